"""A header of which only attributes changed, from the one before.

Knows: how `flatten` spells one variable. Does not know: who notes what changed (`Tree.touch_attributes`), files.

Rule
----
What comes of it is what `flatten.to_header` would make; where that is not sure, there is none.
"""

from __future__ import annotations

from collections.abc import Collection

from pnc_vol.format.encode import with_attributes
from pnc_vol.format.model import Attr
from pnc_vol.mapping.flatten import Flat, global_attrs, numrecs_of, variable_of
from pnc_vol.mapping.markers import no_collections
from pnc_vol.mapping.tree import DatasetNode, Node, Tree

__all__ = ["respelled"]

_MANY = 64
"""Variables that are respelled one by one, however few there are."""


def respelled(flat: Flat, tree: Tree, changed: Collection[Node]) -> Flat | None:
    """What `to_header` would make of a tree of which attributes changed, and nothing else, since it made `flat`.

    Parameters
    ----------
    flat : Flat, with the number of records of `numrecs_of`
    tree : Tree
    changed : the objects whose attributes changed

    Returns
    -------
    Flat or None
        None if it is to be made anew: much has changed, or more than attributes.

    Raises
    ------
    DefinitionError
        An attribute that the version cannot hold.
    """
    header, numrecs = flat.header, numrecs_of(tree)
    uids = {node.uid for node in changed if isinstance(node, DatasetNode)}
    if numrecs != header.numrecs or len(uids) > max(_MANY, len(flat.uids) // 4):
        return None
    made: dict[int, tuple[Attr, ...]] = {}
    with no_collections():
        for i, uid in enumerate(flat.uids):
            if uid in uids:
                var, old = variable_of(tree.datasets[uid], flat.book, numrecs), header.vars[i]
                dims = var.dims if flat.moved is None else tuple(flat.moved[index] for index in var.dims)
                if (var.name, dims, var.type) != (old.name, old.dims, old.type):
                    return None
                made[i] = var.attrs
        own = global_attrs(tree) if len(uids) < len(changed) else header.attrs
    if len(made) < len(uids):
        return None
    return flat._replace(header=with_attributes(header, made, own))
