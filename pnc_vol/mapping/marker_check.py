"""The marker check finds whether the markers of a header speak of what is there, for who checks a file.

Knows: what `unflatten` finds, which keys there are. Does not know: bytes, files, values.

Rules
-----
1. What `unflatten` ignored is said again, and what it has no reason to look at: each attribute is decoded once, unknown
   keys, keys that are there twice, and markers of attributes that are not there.
2. Everything is a warning: the file is a good NetCDF file, whatever our marker says.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from pnc_vol.format.model import CHAR, Attr, Finding, Header
from pnc_vol.mapping.links import TypeNode, entries
from pnc_vol.mapping.names import MARKER, Findings, shown
from pnc_vol.mapping.tree import Node, Tree, walk
from pnc_vol.mapping.unflatten import from_header

__all__ = ["ATTRIBUTE_KEYS", "FILE_KEYS", "VARIABLE_KEYS", "examine", "warning"]

VARIABLE_KEYS = frozenset((
    "path", "type", "dtype", "parts", "track", "loose", "part", "max", "encoding", "order", "enum", "own", "shape",
    "record", "null", "len", "scale", "labels", "scales", "fill", "attrs", "elsewhere",
))  # fmt: skip
FILE_KEYS = frozenset(("version", "groups", "attrs", "links", "listed", "layout"))
ATTRIBUTE_KEYS = frozenset(
    ("name", "owner", "shape", "null", "type", "encoding", "enum", "order", "lengths", "width", "dtype")
)


def warning(sentence: str) -> Finding:
    """Return a sentence about markers as a finding; it has no one place in the file."""
    return Finding("warning", -1, MARKER, None, sentence)


def examine(header: Header) -> list[Finding]:
    """List what is wrong with the markers of a header.

    Examples
    --------
    >>> from pnc_vol.format.model import Dim, Var
    >>> marker = Attr(MARKER, 2, 11, b'{"len": 30}')
    >>> [found.message for found in examine(Header(5, 0, (), (), (Var("v", (), (marker,), 5),)))]
    ["variable 'v': len 30 of its marker does not fit; it is ignored"]
    """
    tree = from_header(header)
    for node in _nodes(tree):
        for name in node.attrs:
            # looking at it is what finds out
            node.attrs[name]
    findings = Findings()
    for sentence in (*tree.findings, *_odd_keys(header)):
        findings.append(sentence)
    return [warning(sentence) for sentence in findings]


def _nodes(tree: Tree) -> Iterator[Node]:
    yield from walk(tree.root)
    yield from (tree.datasets[uid] for uid in sorted(tree.loose))
    yield from (entry for _, _, entry in entries(tree) if isinstance(entry, TypeNode))


def _odd_keys(header: Header) -> Iterator[str]:
    """Yield unknown keys, keys that are there twice, or that name attributes that are not there."""
    owners = [("the file", header.attrs, FILE_KEYS)]
    owners += [(f"variable {shown(var.name)}", var.attrs, VARIABLE_KEYS) for var in header.vars]
    for where, attrs, known in owners:
        for attr in attrs:
            if attr.name == MARKER:
                twice: list[str] = []
                marker = _loaded(attr, twice)
                for key in twice:
                    yield f"{where}: key {shown(key)} of its marker occurs twice; the last one is used"
                yield from _of_marker(where, marker, attrs, known)


def _loaded(attr: Attr, twice: list[str]) -> Mapping[str, Any]:
    def noted(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            twice.extend(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        return made

    try:
        found = json.loads(attr.data.decode("utf-8"), object_pairs_hook=noted) if attr.type == CHAR else None
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}


def _of_marker(where: str, marker: Mapping[str, Any], attrs: tuple[Attr, ...], known: frozenset[str]) -> Iterator[str]:
    for key in marker.keys() - known:
        yield f"{where}: key {shown(key)} of its marker is unknown; it is ignored"
    about = marker.get("attrs")
    names = {attr.name for attr in attrs}
    for name, value in about.items() if isinstance(about, dict) else ():
        if name not in names:
            yield f"{where}: attrs of its marker names {shown(name)}, which is not one of its attributes; it is ignored"
        for key in value.keys() - ATTRIBUTE_KEYS if isinstance(value, dict) else ():
            yield f"{where}: key {shown(key)} of its marker for attribute {shown(name)} is not known; it is ignored"
