"""Whose an attribute is, and what it is called: the key ``attrs`` of markers.

Knows: attributes of a header, groups, named types. Does not know: values.

Rules
-----
1. What a marker says of an attribute that is not there is nothing: another program may have removed it.
2. A global attribute without an owner, or with one that is not there, is the root's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pnc_vol.format.model import Attr, Header
from pnc_vol.mapping.attributes import NO_MARKERS, Attributes
from pnc_vol.mapping.markers import About, Sink, shown
from pnc_vol.mapping.names import MARKERS, is_member_name, split_path
from pnc_vol.mapping.tree import DatasetNode, GroupNode, Node, Tree

__all__ = ["attr_markers", "share_attrs"]

Marker = Mapping[str, Any]


def attr_markers(
    about: Any, raw: tuple[Attr, ...], where: str, findings: Sink
) -> tuple[Mapping[str, Marker], Mapping[str, str]]:
    """Markers and true names, by name in the file, of the attributes that are there.

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
    raw = tuple(attr for attr in header.attrs if attr.name not in MARKERS)
    markers, renamed = attr_markers(about, raw, "the file", tree.findings)
    if not markers:
        tree.root.attrs = Attributes(raw, findings=tree.findings)
        return
    owned: dict[int, tuple[Node, list[Attr]]] = {id(tree.root): (tree.root, [])}
    for attr in raw:
        owner = _owner(tree, markers.get(attr.name, NO_MARKERS), attr)
        owned.setdefault(id(owner), (owner, []))[1].append(attr)
    for group, attrs in owned.values():
        mine = {attr.name: _without_owner(markers[attr.name]) for attr in attrs if attr.name in markers}
        about = About(f"group {shown(group.path)}", tree.findings)
        group.attrs = Attributes(tuple(attrs), {k: v for k, v in mine.items() if v}, renamed, about)


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
    """True if an attribute can have that name; unlike a step of a path it may hold ``/``."""
    return isinstance(name, str) and (name == "" or is_member_name(name.replace("/", "_").replace(".", "_")))
