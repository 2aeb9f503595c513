"""A tree takes over what another one says, and what users hold of it stays what it is.

Knows: trees, links. Does not know: headers, files.

Rules
-----
1. An object of the old tree that has an object of its kind at the same path in the new one goes on to stand for that;
   what has none is gone, as if it had been deleted.
2. Nothing but identity is kept: shapes, types, attributes, links and the order of all things are the new tree's.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

from pnc_vol.mapping.links import Hard, TypeNode
from pnc_vol.mapping.tree import Axis, GroupNode, Node, Parts, Tree, read_all, walk

__all__ = ["refresh_tree"]


def refresh_tree(tree: Tree, new: Tree) -> None:
    """Make `tree` the same as `new`, which is used up.

    Examples
    --------
    >>> from pnc_vol.format.model import Dim, Header, Var
    >>> from pnc_vol.mapping.unflatten import from_header
    >>> header = Header(5, 2, (Dim("t", 0),), (), (Var("x", (0,), (), 5),))
    >>> tree = from_header(header)
    >>> x = tree.root.children["x"]
    >>> refresh_tree(tree, from_header(header.replaced(numrecs=3)))
    >>> tree.root.children["x"] is x, x.shape
    (True, (3,))
    """
    read_all(tree)
    read_all(new)
    existing = {(type(node), node.path): node for node in _all(tree)}
    theirs = _all(new)
    kept: dict[int, Node] = {}
    for node in theirs:
        same = existing.get((type(node), node.path))
        kept[id(node)] = node if same is None else same
    for node in theirs:
        target = kept[id(node)]
        for field in chain(*(vars(kind)["__slots__"] for kind in type(node).__mro__[:-1])):
            setattr(target, field, _with(getattr(node, field), kept))
        target.tree = tree
    tree.root = _with(new.root, kept)
    tree.datasets = _with(new.datasets, kept)
    for name in ("links", "next_uid", "records", "findings", "file_dims", "loose", "layout"):
        setattr(tree, name, getattr(new, name))
    tree.history.clear()
    tree.touch()


def _all(tree: Tree) -> list[Any]:
    """Return all nodes, named types included."""
    nodes: list[Node] = list(walk(tree.root))
    for group in [node for node in nodes if isinstance(node, GroupNode)] if tree.links else ():
        nodes += [entry for entry in group.links.values() if isinstance(entry, TypeNode)]
    return nodes


def _with(value: Any, kept: dict[int, Node]) -> Any:
    """Return the value with nodes of the old tree in the place of new ones."""
    if isinstance(value, Node):
        return kept.get(id(value), value)
    if isinstance(value, Axis):
        value.scales = _with(value.scales, kept)
        return value
    if isinstance(value, Hard):
        return Hard(_with(value.node, kept))
    if isinstance(value, Parts):
        value.update({name: _with(part, kept) for name, part in value.items()})
        return value
    if type(value) is dict:
        return {key: _with(one, kept) for key, one in value.items()}
    if type(value) is list:
        return [_with(one, kept) for one in value]
    return value
