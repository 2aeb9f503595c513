"""The key ``attrs`` of markers says whose an attribute is, and what it is called.

Knows: attributes of a header, groups, named types. Does not know: values.

Rules
-----
1. What a marker says of an attribute that is not there is nothing: another program may have removed it.
2. A global attribute without an owner, or with one that is not there, is the root's.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from pnc_vol.format.model import TYPES, Attr, Header, Var
from pnc_vol.mapping import conventions
from pnc_vol.mapping.attributes import NO_MARKERS, Attributes
from pnc_vol.mapping.dtypes import Element
from pnc_vol.mapping.names import (
    MARKER,
    About,
    NameBook,
    Sink,
    dump_json,
    dump_marker,
    is_member_name,
    legal_name,
    shown,
    split_path,
)
from pnc_vol.mapping.tree import DatasetNode, GroupNode, Node, Tree

__all__ = ["fill_of", "global_attrs", "named_attrs", "share_attrs", "shown_attrs", "with_fill"]

Marker = Mapping[str, Any]

WIDEST_FILL = 1 << 16
"""Bytes of the longest fill value that is made from a single value: the header may declare any width."""


# ------------------------------------------------------------------------------------------ writing


def named_attrs(attributes: Attributes, marker: dict[str, Any]) -> tuple[Attr, ...]:
    """Return attributes as the header has them, and their markers under ``attrs``."""
    raw, markers = attributes.raw, attributes.markers
    if markers:
        marker["attrs"] = {attr.name: markers[attr.name] for attr in raw if attr.name in markers}
    return raw


def with_fill(fill: bytes, element: Element, written: tuple[Attr, ...], marker: dict[str, Any]) -> tuple[Attr, ...]:
    """Return attributes with that of a fill value, one element as in the file; what it does not say goes to the
    marker."""
    fill = fill[: element.itemsize].ljust(element.itemsize, b"\0")
    stored = next((attr for attr in written if attr.name == conventions.FILL), None)
    wanted = conventions.fill_attr(fill, element)
    if stored is None and (wanted is not None or not any(fill)):
        # zeros are what a dataset without a fill value has
        return written if wanted is None else (*written, wanted)
    if stored != wanted or wanted is None:
        marker["fill"] = fill.rstrip(b"\0").hex()
    return written


def global_attrs(tree: Tree) -> tuple[Attr, ...]:
    """Return attributes of the root and of all groups, and the global marker."""
    root = tree.root.attrs
    if tree.all_groups is None:
        groups = _groups_below(tree.root)
        tree.all_groups = groups, _unnamed_groups(tree, groups) if groups else {}
    groups, unnamed = tree.all_groups
    marker: dict[str, Any] = {}
    raw = named_attrs(root, marker)
    if not (groups or tree.links or tree.layout or marker or tree.root.order is not None):
        # What most files have: nothing is copied.
        return raw
    written, parts = list(raw), dict[str, str]()
    about: Mapping[str, str] = NO_MARKERS
    if groups:
        of_groups = _of_groups(tree, groups, {MARKER, *(attr.name for attr in raw)})
        written += chain.from_iterable(of_groups.attrs.values())
        about = of_groups.about
        if unnamed is None or unnamed:
            # Left out where the paths of variables name all groups in the same order.
            parts["groups"] = f"[{','.join(of_groups.paths)}]"
    if tree.links:
        _describe_links(tree, written, marker)
    orders = {group.path: list(group.order) for group in (tree.root, *groups) if group.order is not None}
    if orders:
        marker["listed"] = orders
    if tree.layout:
        marker["layout"] = tree.layout
    if own := marker.pop("attrs", None):
        about = {**about, **{name: _about(name, found) for name, found in own.items()}}
    if about:
        parts["attrs"] = "{" + ",".join([about[name] for name in sorted(about)]) + "}"
    if marker or parts:
        marker["version"] = 1
        written.append(dump_marker(marker, parts))
    return tuple(written)


class _GroupAttrs:
    """The attributes of groups as global ones, and what the global marker says of them.

    It is kept with the tree and follows what changed: thousands of groups that each have an attribute are common, and
    a program that adds one in each step would else make all of them again in each.

    Attributes
    ----------
    groups : list of GroupNode
        That of `Tree.all_groups`, to which groups may be appended.
    attrs : dict of GroupNode to list of Attr
    about : dict of str to str
        JSON of each entry of the marker's ``attrs``, by the name of the attribute.
    paths : list of str
        JSON of the paths of the groups.
    """

    __slots__ = ("about", "attrs", "groups", "paths", "separator")

    def __init__(self, groups: list[GroupNode], separator: str) -> None:
        self.groups, self.separator = groups, separator
        self.attrs: dict[Node, list[Attr]] = {}
        self.about: dict[str, str] = {}
        self.paths: list[str] = []

    def follow(self, changed: Iterable[Node], take: Callable[[str], str], taken: Container[str]) -> bool:
        """Take over the attributes of groups that changed, and those of new groups.

        take : callable, gives an attribute its name in the header.
        taken : container of str, names that none can have.

        Returns
        -------
        bool
            False if one has a name that is taken; then nothing of this counts.
        """
        wanted: list[Node] = [group for group in changed if group in self.attrs]
        for group in wanted:
            for attr in self.attrs[group]:
                del self.about[attr.name]
        wanted += self.groups[len(self.paths) :]
        self.paths += [dump_json(group.path) for group in self.groups[len(self.paths) :]]
        for group in wanted:
            found = self.attrs[group] = []
            for attr, marker in _group_attrs(group, self.separator, take) if group.attrs else ():
                if attr.name in self.about or attr.name in taken:
                    return False
                self.about[attr.name] = _about(attr.name, marker)
                found.append(attr)
        return True


def _of_groups(tree: Tree, groups: list[GroupNode], taken: set[str]) -> _GroupAttrs:
    """Return the attributes of all groups.

    taken : set of str, names that they cannot have.
    """
    kept: _GroupAttrs | None = tree.group_attrs
    changed, tree.group_attrs = tree.changed, None
    if kept is None or kept.groups is not groups or changed is None or not kept.about.keys().isdisjoint(taken):
        kept = _GroupAttrs(groups, tree.separator)
    if kept.follow(changed.attributes if changed is not None else (), str, taken):
        tree.group_attrs = kept
        return kept
    # Where two would have one name, each name depends on all before it.
    kept = _GroupAttrs(groups, tree.separator)
    kept.follow((), NameBook(taken).take, ())
    return kept


def _about(name: str, marker: Marker) -> str:
    """Return what the global marker has under ``attrs`` of one attribute, as JSON."""
    return f"{dump_json(name)}:{dump_json(marker)}"


def _describe_links(tree: Tree, written: list[Attr], marker: dict[str, Any]) -> None:
    """Links go to the global marker; the attributes of a named type are global ones, as those of a group."""
    from pnc_vol.mapping import links

    found = links.dump_links(tree)
    if not found:
        return
    marker["links"] = found
    book = NameBook((MARKER, *(attr.name for attr in written)))
    markers: dict[str, Any] = marker.setdefault("attrs", {})
    for _, _, entry in links.entries(tree):
        if isinstance(entry, links.TypeNode):
            for attr, about in _group_attrs(entry, tree.separator, book.take):
                written.append(attr)
                markers[attr.name] = about
    if not markers:
        del marker["attrs"]


def _group_attrs(group: Node, separator: str, take: Callable[[str], str]) -> Iterator[tuple[Attr, Marker]]:
    """Yield the attributes of a group as global ones, each with its marker, which ties it to its owner."""
    path = group.path
    for name, attr in group.attrs.stored().items():
        flat = take(legal_name(f"{path[1:]}/{name}".replace("/", separator)))
        about = {key: value for key, value in group.attrs.markers.get(attr.name, {}).items() if key != "name"}
        yield attr._replace(name=flat), {**about, "owner": path, "name": name}


def _unnamed_groups(tree: Tree, groups: list[GroupNode]) -> dict[GroupNode, None] | None:
    """Return the groups that the path of no dataset names; None if datasets name those within a group in another order
    than that of their creation.

    groups : list of GroupNode, what `_groups_below` finds below the root.
    """
    visited: dict[int, list[str]] = {id(tree.root): []}
    entries: list[Any] = list(dict.values(tree.datasets))
    for node in entries:
        # Those that are not made are in the root. A part of another dataset names no group: its parent is that dataset
        # (`node.owner`, without a call for each).
        if type(node) is tuple or type(node.parent) is not GroupNode:
            continue
        group, new = node.parent, []
        while id(group) not in visited:
            new.append(group)
            assert group.parent is not None
            group = group.parent
        for group in reversed(new):
            visited[id(group)] = []
            visited[id(group.parent)].append(group.name)
    for group in (tree.root, *groups):
        there = [name for name, child in dict.items(group.children) if isinstance(child, GroupNode)]
        named = visited.get(id(group), [])
        if there[: len(named)] != named:
            return None
    return {group: None for group in groups if id(group) not in visited}


# ------------------------------------------------------------------------------------------ reading


def shown_attrs(var: Var, element: Element, marker: Marker, findings: Sink) -> Attributes:
    """Return the attributes of a variable without those that only express its type."""
    own = marker.get("own", [])
    if not isinstance(own, list):
        findings.append(f"variable {shown(var.name)}: own {shown(own)} of its marker is not a list; it is ignored")
        own = []
    hidden = {attr for attr in conventions.generated_attrs(element) if attr.name not in own}
    raw = tuple(attr for attr in var.attrs if attr.name != MARKER and attr not in hidden)
    where = f"variable {shown(var.name)}"
    markers, renamed = _attr_markers(marker.get("attrs"), raw, where, findings)
    return Attributes(raw, markers, renamed, About(where, findings))


def fill_of(var: Var, element: Element, marker: Marker, findings: Sink) -> bytes | None:
    """Return the fill value of a variable, one element as in the file."""
    fill = None
    for attr in var.attrs:
        if attr.name == conventions.FILL:
            if attr.type != var.type or attr.nelems != 1:
                findings.append(f"variable {shown(var.name)}: _FillValue is not one value of its type")
            elif element.itemsize <= WIDEST_FILL:
                fill = attr.data * (element.itemsize // TYPES[var.type].size)
    if "fill" in marker:
        try:
            given = bytes.fromhex(marker["fill"])
        except (TypeError, ValueError):
            given = None
        if given is not None and len(given) <= element.itemsize <= len(given) + WIDEST_FILL:
            return given.ljust(element.itemsize, b"\0")
        findings.append(f"variable {shown(var.name)}: fill {shown(marker['fill'])} of its marker does not fit")
    return fill


def _attr_markers(
    about: Any, raw: tuple[Attr, ...], where: str, findings: Sink
) -> tuple[Mapping[str, Marker], Mapping[str, str]]:
    """Return markers and true names, by name in the file, of the attributes that are there.

    Parameters
    ----------
    about : what the owner's marker has under ``attrs``, not trusted
    raw : attributes of the owner
    where : str, the owner, for findings
    findings : Sink
    """
    if about is None:
        return NO_MARKERS, NO_MARKERS
    if not isinstance(about, dict):
        findings.append(f"{where}: attrs of its marker is not an object; it is ignored")
        return NO_MARKERS, NO_MARKERS
    markers, renamed = {}, {}
    for attr in raw:
        marker = about.get(attr.name)
        if not isinstance(marker, dict):
            if attr.name in about:
                findings.append(f"{where}: the marker of attribute {shown(attr.name)} is not an object; it is ignored")
            continue
        markers[attr.name] = marker
        name = marker.get("name", attr.name)
        if name == attr.name:
            continue
        if is_attr_name(name):
            renamed[attr.name] = name
        else:
            findings.append(f"{where}: attribute {shown(attr.name)} cannot have the name {shown(name)}")
    return markers, renamed


def share_attrs(header: Header, tree: Tree, about: Any) -> None:
    """Hand each global attribute to its owner: the root, a group, or a named type.

    Parameters
    ----------
    header : Header
    tree : Tree, with all its groups and links
    about : what the file's marker has under ``attrs``, not trusted
    """
    raw = tuple(attr for attr in header.attrs if attr.name != MARKER)
    markers, renamed = _attr_markers(about, raw, "the file", tree.findings)
    if not markers:
        tree.root.known_attrs = Attributes(raw, findings=tree.findings)
        return
    owned: dict[int, tuple[Node, list[Attr]]] = {id(tree.root): (tree.root, [])}
    for attr in raw:
        owner = _owner(tree, markers.get(attr.name, NO_MARKERS), attr)
        owned.setdefault(id(owner), (owner, []))[1].append(attr)
    for group, attrs in owned.values():
        kept = {attr.name: _without_owner(markers[attr.name]) for attr in attrs if attr.name in markers}
        about = About(f"group {shown(group.path)}", tree.findings)
        group.known_attrs = Attributes(tuple(attrs), {k: v for k, v in kept.items() if v}, renamed, about)


def _owner(tree: Tree, marker: Marker, attr: Attr) -> Node:
    path = marker.get("owner", "/")
    node: Any = tree.root
    steps = [] if path == "/" else split_path(path)
    for step in steps or ():
        links = getattr(node, "links", None)
        node = node.children.get(step, (links or {}).get(step)) if isinstance(node, GroupNode) else None
    if steps is None or isinstance(node, DatasetNode) or not isinstance(node, Node):
        text = f"no group {shown(path)} exists; it is shown in the root group"
        tree.findings.append(f"global attribute {shown(attr.name)}: {text}")
        return tree.root
    return node


def _without_owner(marker: Marker) -> Marker:
    return {key: value for key, value in marker.items() if key != "owner"} if "owner" in marker else marker


def is_attr_name(name: object) -> bool:
    """Return True if an attribute can have that name; unlike a step of a path it may hold ``/``."""
    return isinstance(name, str) and (name == "" or is_member_name(name.replace("/", "_").replace(".", "_")))


def _groups_below(root: GroupNode) -> list[GroupNode]:
    """Return all groups below one, parents first, in the order of creation; no dataset is made for that."""
    found = []
    stack = [node for node in dict.values(root.children) if isinstance(node, GroupNode)][::-1]
    while stack:
        group = stack.pop()
        found.append(group)
        stack += [node for node in group.children.values() if isinstance(node, GroupNode)][::-1]
    return found
