"""Some members of a group are no objects of their own: soft, external and second hard links; and named types.

Knows: the tree, the global marker's ``links``. Does not know: other files.

Rules
-----
1. An object has one name that counts, its place in `GroupNode.children`, that of a named type in `GroupNode.links`;
   every other hard link is an entry of `GroupNode.links`. If the place goes, the first entry that is left becomes it.
   The second table, which most groups have empty, keeps the look-up of a member, as nearly all names are, at its cost.
2. A soft link is resolved when it is used, at most `MOST_STEPS` of them for one name, so that a circle ends.
3. What a file says of links is checked: an entry that does not fit is left out, with a finding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pnc_vol.mapping.describe import describe, undescribe
from pnc_vol.mapping.names import shown, split_path
from pnc_vol.mapping.tree import DatasetNode, GroupNode, Node, Tree, walk

__all__ = [
    "MOST_STEPS",
    "External",
    "Hard",
    "Soft",
    "TypeNode",
    "dump_links",
    "entries",
    "read_links",
    "read_orders",
    "remove",
    "remove_link",
]

MOST_STEPS = 16
"""Soft links that are followed for one name, as in HDF5."""


@dataclass(frozen=True, slots=True)
class Soft:
    """A path that stands for an object; relative to the group that has the link."""

    path: str


@dataclass(frozen=True, slots=True)
class External:
    """A path in another file."""

    filename: str
    path: str


@dataclass(slots=True)
class Hard:
    """Another name of an object."""

    node: GroupNode | DatasetNode | TypeNode


class TypeNode(Node):
    """A named type."""

    __slots__ = ("dtype",)

    def __init__(self, tree: Tree, name: str, parent: GroupNode, known_attrs: Any, dtype: np.dtype[Any]) -> None:
        super().__init__(tree, name, parent, known_attrs)
        self.dtype = dtype


def entries(tree: Tree) -> Iterator[tuple[GroupNode, str, Any]]:
    """Yield all links of a tree: the group, the name, the entry."""
    for group in walk(tree.root):
        if isinstance(group, GroupNode) and group.links:
            for name, entry in group.links.items():
                yield group, name, entry


def remove(node: GroupNode | DatasetNode) -> None:
    """Take `node`, and all below it, out of the tree; what has another name elsewhere stays, under that name."""
    tree = node.tree
    inside = {id(found) for found in walk(node)}
    for group, name, entry in list(entries(tree)):
        if not isinstance(entry, Hard) or id(group) in inside:
            continue
        kept = entry.node
        if isinstance(kept, TypeNode):
            if id(kept.parent) in inside:
                _become(kept, group, name)
            continue
        if id(kept) not in inside:
            continue
        order = None if group.order is None else dict(group.order)
        del group.links[name]
        tree.move(kept, group, name)
        # the name is as old as it was
        group.order = order
        if kept is node:
            return
        inside -= {id(found) for found in walk(kept)}
    tree.remove(node)


def remove_link(group: GroupNode, name: str) -> None:
    """Take a link out of a group; a named type that has another name stays, under that name."""
    entry = group.links.pop(name)
    if isinstance(entry, TypeNode):
        for above, other, found in entries(group.tree):
            if isinstance(found, Hard) and found.node is entry:
                _become(entry, above, other)
                break
    group.tree.touch()


def _become(node: TypeNode, group: GroupNode, name: str) -> None:
    group.links[name], node.parent, node.name = node, group, name


# ------------------------------------------------------------------------------------------------ the marker


def dump_links(tree: Tree) -> dict[str, Any]:
    """Return the links of a tree, by path, as the global marker holds them."""
    found: dict[str, Any] = {}
    for group, name, entry in entries(tree):
        path = f"{'' if group.parent is None else group.path}/{name}"
        if isinstance(entry, Soft):
            found[path] = {"soft": entry.path}
        elif isinstance(entry, External):
            found[path] = {"external": [entry.filename, entry.path]}
        elif isinstance(entry, Hard):
            found[path] = {"hard": entry.node.path}
        else:
            found[path] = {"dtype": describe(entry.dtype)}
    return found


def read_links(tree: Tree, marker: Any, findings: list[str]) -> None:
    """Add the links that a file has to the tree."""
    if not isinstance(marker, dict):
        findings.append("the file: links of its marker is not an object; it is ignored")
        return
    # second names of named types come after these
    for path, about in sorted(marker.items(), key=lambda item: isinstance(item[1], dict) and "hard" in item[1]):
        steps = split_path(path)
        group = _group(tree, steps[:-1]) if steps else None
        entry = _entry(tree, about, group, steps[-1]) if steps and group is not None else None
        if entry is None or group is None or not steps or steps[-1] in group.children or steps[-1] in group.links:
            findings.append(f"the file: {shown(path)} cannot be the link {shown(about)}; it is ignored")
            continue
        group.links[steps[-1]] = entry


def read_orders(tree: Tree, orders: Any, findings: list[str]) -> None:
    """Read in which order the members of some groups are listed."""
    if not isinstance(orders, dict):
        findings.append("the file: listed of its marker is not an object; it is ignored")
        return
    for path, names in orders.items():
        steps = [] if path == "/" else split_path(path)
        node = None if steps is None else _group(tree, steps)
        if node is None or not isinstance(names, list):
            findings.append(f"the file: listed {shown(path)} of its marker does not fit; it is ignored")
            continue
        node.order = {name: None for name in names if isinstance(name, str)}


def _group(tree: Tree, steps: list[str]) -> GroupNode | None:
    node: Any = tree.root
    for step in steps:
        node = node.children.get(step)
        if not isinstance(node, GroupNode):
            return None
    return node  # type: ignore[no-any-return]


def _entry(tree: Tree, about: Any, group: GroupNode | None, name: str) -> Any:
    if not isinstance(about, dict) or len(about) != 1 or group is None:
        return None
    (kind, value), *_ = about.items()
    if kind == "soft" and isinstance(value, str):
        return Soft(value)
    if kind == "external" and isinstance(value, list) and len(value) == 2 and all(isinstance(x, str) for x in value):
        return External(*value)
    if kind == "hard":
        steps = [] if value == "/" else split_path(value)
        if steps is None:
            return None
        above = _group(tree, steps[:-1])
        node: Any = None if steps else tree.root
        if above is not None and steps:
            node = above.children.get(steps[-1]) or above.links.get(steps[-1])
        return Hard(node) if isinstance(node, GroupNode | DatasetNode | TypeNode) else None
    dtype = undescribe(value) if kind == "dtype" else None
    return None if dtype is None else TypeNode(tree, name, group, (), dtype)
