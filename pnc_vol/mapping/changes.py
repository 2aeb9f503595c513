"""A tree that changed becomes a header: from the header before, by what changed.

Knows: which changes leave all other variables as they are. Does not know: bytes, files.

Rules
-----
1. The result is what `flatten.to_header` would make; where that is not sure, there is none. Of a file as it was read
   (`Flat.book` is None) the variables that nobody changed stay as they are there.
2. Record datasets are counted by their length. The length of a dataset is in its marker only if it is not the number of
   records of the file, so that others change only if they have, or had, that number.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

from pnc_vol.format.encode import with_changes
from pnc_vol.format.model import Attr, Dim, Header, Var
from pnc_vol.mapping.attribute_owners import global_attrs, named_attrs, with_fill
from pnc_vol.mapping.flatten import Flat, is_plain_name, numrecs_for, type_says_all, variable_of
from pnc_vol.mapping.names import MARKER
from pnc_vol.mapping.tree import DatasetNode, Tree

__all__ = ["changed"]

_MANY = 64
"""Variables that are encoded anew one by one, however few there are."""


def changed(flat: Flat, tree: Tree, place: Callable[[Header], list[int] | None]) -> Flat | None:
    """What `to_header` would make of a tree that has other attributes, numbers of records or more datasets than `flat`.

    The cost is that of the objects that changed. Variables that were there keep the begins that they have in `flat`.

    Parameters
    ----------
    flat : Flat, with the number of records of `numrecs_of`
    tree : Tree
    place : callable
        Gives new variables their begins, which are a header of their own; None if they get none yet.

    Returns
    -------
    Flat or None
        None if it is to be made anew: much has changed, or more than that.

    Raises
    ------
    DefinitionError
        An attribute that the version cannot hold.
    """
    header, changed = flat.header, tree.changed
    most = max(_MANY, len(flat.uids) // 4)
    if changed is None or len(changed.added) > most:
        return None
    if changed.added and any(node.maxshape is not None for node in changed.added):
        # One that grew since is among those that were resized, too.
        return None
    nodes = {node.uid: node for node in changed.attributes if isinstance(node, DatasetNode)}
    grouped = len(nodes) < len(changed.attributes)
    for node in changed.added:
        nodes.pop(node.uid, None)
    lengths, numrecs = flat.lengths, header.numrecs
    if changed.resized:
        found = _resized(flat, tree, changed.resized)
        if found is None:
            return None
        lengths, numrecs, told = found
        if not (told or nodes or grouped or changed.added):
            # Records alone: no variable is looked at.
            return flat._replace(header=header.with_numrecs(numrecs), lengths=lengths)
        nodes |= told
    if len(nodes) > most:
        return None
    if nodes and not flat.numbers:
        flat.numbers.update(zip(flat.uids, range(len(flat.uids)), strict=True))
    own: dict[int, tuple[Attr, ...]] = {}
    for uid, node in nodes.items():
        i = flat.numbers.get(uid)
        attrs = None if i is None else _attrs_of(flat, node, header.vars[i], numrecs, resized=node in changed.resized)
        if i is None or attrs is None:
            return None
        if len(attrs) != len(header.vars[i].attrs) or attrs != header.vars[i].attrs:
            own[i] = attrs
    of_file = global_attrs(tree) if grouped else header.attrs
    added = _added(flat, tree, changed.added, numrecs) if changed.added else (header.dims, ())
    if added is None:
        return None
    if added[1] and (begins := place(Header(header.version, 0, added[0], (), added[1]))):
        added = added[0], tuple([var._replace(begin=begin) for var, begin in zip(added[1], begins, strict=True)])
    header = header.with_numrecs(numrecs)
    if own or added[1] or len(of_file) != len(header.attrs) or of_file != header.attrs:
        header = with_changes(header, attrs=of_file, own=own, dims=added[0], added=added[1])
    uids = flat.uids
    if changed.added:
        uids += tuple([node.uid for node in changed.added])
        flat.names.update([node.cdf_name for node in changed.added])
        if flat.numbers:
            flat.numbers.update(zip(uids[len(flat.uids) :], range(len(flat.uids), len(uids)), strict=True))
    return flat._replace(header=header, uids=uids, lengths=lengths)


def _attrs_of(flat: Flat, node: DatasetNode, old: Var, numrecs: int, *, resized: bool) -> tuple[Attr, ...] | None:
    """All attributes of a variable; None if it differs in more."""
    if flat.book is None:
        return None if resized else _attrs_of_numbers(node, old, flat.header.dims)
    var = variable_of(node, flat.book, numrecs)
    dims = var.dims if flat.moved is None else tuple(flat.moved[index] for index in var.dims)
    return var.attrs if (var.name, dims, var.type) == (old.name, old.dims, old.type) else None


def _attrs_of_numbers(node: DatasetNode, var: Var, dims: tuple[Dim, ...]) -> tuple[Attr, ...] | None:
    """All attributes of a variable that was read, and changed in them alone; None if more is to be known of it.

    Parameters
    ----------
    node : DatasetNode
    var : Var, as it was read.
    dims : tuple of Dim, those of the header.
    """
    if node.owner is not None or not type_says_all(node.element, var.dims, dims):
        return None
    marker: dict[str, Any] = {}
    attrs = named_attrs(node.attrs, marker)
    if node.fillvalue is not None:
        attrs = with_fill(node.fillvalue, node.element, attrs, marker)
    return None if marker or MARKER in map(itemgetter(0), var.attrs) else attrs


def _added(
    flat: Flat, tree: Tree, nodes: list[DatasetNode], numrecs: int
) -> tuple[tuple[Dim, ...], tuple[Var, ...]] | None:
    """All dimensions, and the variables of new datasets; None if they may change what there is.

    Only datasets of fixed shape in the root are known not to: scales give axes of others their dimension, and records
    move those of others.
    """
    header, book, taken = flat.header, flat.book, flat.names
    # Dimensions that no variable uses stand in no book.
    if book is None or header.version != 5 or len(header.dims) != len(book.dims):
        return None
    if not taken:
        taken.update(map(itemgetter(0), header.vars))
    fresh: set[str] = set()
    found: list[Var] = []
    for node in nodes:
        name = node.name
        plain = node.scale is None and node.made_axes is None and node.parent is tree.root
        if not plain or node.is_placeholder or not is_plain_name(name) or name in taken or name in fresh:
            return None
        node.cdf_name = name
        fresh.add(name)
        if not book.come_plain(node):
            return None
        found.append(variable_of(node, book, numrecs))
    new = book.dims[len(header.dims) :]
    if new and (
        flat.moved is not None or not {dim.name for dim in new}.isdisjoint(dim.name for dim in tree.file_dims.order)
    ):
        return None
    if flat.moved is not None:
        found = [var._replace(dims=tuple(flat.moved[index] for index in var.dims)) for var in found]
    return (*header.dims, *new), tuple(found)


def _resized(
    flat: Flat, tree: Tree, resized: dict[DatasetNode, int]
) -> tuple[dict[int, int], int, dict[int, DatasetNode]] | None:
    """How many datasets have each number of records now, the largest, and the datasets whose marker tells it.

    None if it is that of any other dataset that changes, because the file has more or fewer records.
    """
    lengths, old = dict(flat.lengths), flat.header.numrecs
    # Those that are written together have the same two numbers: all else is done once for all of them.
    alike: dict[tuple[int, int], list[DatasetNode]] = {}
    told: dict[int, DatasetNode] = {}
    for node, before in resized.items():
        shape = node.shape
        if node.is_placeholder or shape is None:
            told[node.uid] = node
        else:
            alike.setdefault((before, shape[0]), []).append(node)
    for (before, _), nodes in alike.items():
        lengths[before] -= len(nodes)
    others = {n for n, count in lengths.items() if count}
    for (_, now), nodes in alike.items():
        lengths[now] = lengths.get(now, 0) + len(nodes)
    lengths = {n: count for n, count in lengths.items() if count}
    numrecs = numrecs_for(tree, lengths)
    if numrecs != old and (old in others or numrecs in others):
        return None
    for (before, now), nodes in alike.items():
        if before != old or now != numrecs:
            told.update([(node.uid, node) for node in nodes])
    return lengths, numrecs, told
