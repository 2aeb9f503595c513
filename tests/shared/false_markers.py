"""Files whose markers lie, made from one in which every marker occurs: a generated catalogue.

Every JSON value of every marker is replaced by each of a list of hostile ones, left out, or put under another key; and
the variables that markers speak of are removed or renamed. The data stay where they are: the header has room to change.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from file_format import Attr, Header, Var, decode, encode

MARKER = "pnc_vol_hdf5"
"""The attribute, by docs/reference/file-format.md."""

ROOM = 1 << 16
"""Bytes that a header is given to change in."""

HOSTILE: list[Any] = [
    None, True, 0, -1, 1, 3, 1 << 31, 1 << 62, 1 << 80, -(1 << 63), 0.5, float("inf"), "", "x", "/", "//", "/A", "/t",
    "/A/B", "/A/../B", "a\0b", "\ud800", "\udcff", "composite", "enum", "utf-8", [], [[]], [0], [-1], [1 << 62], [1, 1],
    [1 << 40, 1 << 40], [True], ["t"], [["t"]], [["t"], ["t"]], {}, {"a": 1}, {"a": {"a": {}}}, {"t": {"path": "/"}},
]  # fmt: skip

#: What replaces a text that names something: other names, so that things meet, change places, go in circles.
NAMES = [
    "t",
    "A_B",
    "time",
    "compound",
    "compound_x",
    "tracks",
    "tracks_count",
    "/compound",
    "/A",
    "/again",
    "/empty/deep",
]


class Case(NamedTuple):
    """One file that lies.

    what : str, which lie.
    header : Header
    """

    what: str
    header: Header


def markers(header: Header) -> Iterator[tuple[str, Any]]:
    """Name of the variable (empty for the file) and content of each marker."""
    for name, attrs in [("", header.attrs), *((var.name, var.attrs) for var in header.vars)]:
        for attr in attrs:
            if attr.name == MARKER:
                yield name, json.loads(attr.data)


def with_marker(header: Header, name: str, content: Any) -> Header:
    """The header with another marker; of bytes, as they are; without any for None."""

    def changed(attrs: tuple[Attr, ...]) -> tuple[Attr, ...]:
        rest = tuple(attr for attr in attrs if attr.name != MARKER)
        if content is None:
            return rest
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        return (*rest, Attr(MARKER, 2, len(data), data))

    if not name:
        return header.replaced(attrs=changed(header.attrs))
    return header.replaced(
        vars=tuple(var._replace(attrs=changed(var.attrs)) if var.name == name else var for var in header.vars)
    )


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value inside of a JSON value, the outermost left out."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def changed(value: Any, path: tuple[Any, ...], new: Any, *, key: Any = None, gone: bool = False) -> Any:
    """A copy of a JSON value with another one at a place: left out, or under another key."""
    first, *rest = path
    made = dict(value) if isinstance(value, dict) else list(value)
    if rest:
        made[first] = changed(value[first], tuple(rest), new, key=key, gone=gone)
    elif gone:
        del made[first]
    elif key is not None:
        made[key] = made.pop(first)
    else:
        made[first] = new
    return made


def at(value: Any, path: tuple[Any, ...]) -> Any:
    """What is at a place of a JSON value."""
    for step in path:
        value = value[step]
    return value


def of_values(header: Header) -> Iterator[Case]:
    """Every value of every marker, replaced by each hostile one."""
    for name, content in markers(header):
        for path in places(content):
            old = at(content, path)
            where = f"{name}:{'.'.join(map(str, path))}"
            for new in [*HOSTILE, *(NAMES if isinstance(old, str) else ())]:
                if new != old or type(new) is not type(old):
                    yield Case(f"{where} = {new!a}", with_marker(header, name, changed(content, path, new)))
            yield Case(f"{where} gone", with_marker(header, name, changed(content, path, None, gone=True)))
            if isinstance(path[-1], str):
                for key in ("unknown", "path", "attrs", "parts"):
                    renamed = changed(content, path, None, key=key)
                    yield Case(f"{where} as {key}", with_marker(header, name, renamed))
            if isinstance(old, list):
                for new in (old + old, old[:-1], old[::-1], old * 1000):
                    yield Case(f"{where} of {len(new)}", with_marker(header, name, changed(content, path, new)))


def of_texts(header: Header) -> Iterator[Case]:
    """Markers that are no JSON object, or a very odd one."""
    deep = 10_000
    texts = [
        b"", b"{", b"null", b"[]", b"3", b'"x"', b"\xff\xfe", b"\0" * 9, b"[" * deep, b'{"path":' * deep,
        b'{"a":' * 900 + b"1" + b"}" * 900, b'{"path":"/a","path":"/b"}', b'{"version":1}', b'{"version":2}',
        b'{"version":"x","groups":[]}', b'{"groups":["/' + b"a/" * 20_000 + b'a"]}',
        b'{"path":"/' + b"a/" * 20_000 + b'a"}', b'{"path":"/' + b"a/" * 900 + b'a"}', b'{"len":' + b"9" * 5000 + b"}",
        b'{"len":NaN}', b'{"shape":[1e999]}', b'\xef\xbb\xbf{"path":"/a"}',
        b'{"groups":["/' + b"x" * 60_000 + b'"]}', b'{"unknown":1}', b'{"links":{"/l":{"hard":"/l"}}}',
        b'{"links":{"/l":{"hard":"/"},"/l/l":{"hard":"/l"}}}', b'{"links":{"/a":{"soft":"/b"},"/b":{"soft":"/a"}}}',
        b'{"links":{"/e":{"external":["/etc/passwd","/"]}}}', b'{"links":{"/t/x":{"soft":"/"},"/t":{"soft":"/"}}}',
    ]  # fmt: skip
    for name, _ in markers(header):
        for text in texts:
            yield Case(f"{name}: {text[:40]!r} of {len(text)}", with_marker(header, name, text))
        yield Case(f"{name}: none", with_marker(header, name, None))
        for other, content in markers(header):
            if other != name:
                yield Case(f"{name}: that of {other}", with_marker(header, name, content))


def of_variables(header: Header) -> Iterator[Case]:
    """Variables removed, renamed, of another type or shape, under markers that speak of what they were."""

    def put(i: int, *new: Var) -> Header:
        return header.replaced(vars=(*header.vars[:i], *new, *header.vars[i + 1 :]))

    scalar = [i for i, var in enumerate(header.vars) if not var.dims][:1]
    for i, var in enumerate(header.vars):
        yield Case(f"{var.name} removed", put(i))
        yield Case(f"{var.name} renamed", put(i, var._replace(name=var.name + "_x")))
        smaller = {4: 5, 5: 4, 6: 10, 10: 6, 1: 7, 7: 1, 2: 1, 3: 8}.get(var.type, 1)
        yield Case(f"{var.name} of another type", put(i, var._replace(type=smaller)))
        if var.dims:
            yield Case(f"{var.name} without its last axis", put(i, var._replace(dims=var.dims[:-1])))
        for j in scalar:
            if j != i:
                yield Case(f"{var.name} with the markers of another", put(i, var._replace(attrs=header.vars[j].attrs)))
        for j, attr in enumerate(var.attrs):
            if attr.name != MARKER:
                attrs = (*var.attrs[:j], *var.attrs[j + 1 :])
                yield Case(f"{var.name} without {attr.name}", put(i, var._replace(attrs=attrs)))
                short = attr._replace(
                    nelems=attr.nelems // 2,
                    data=attr.data[: len(attr.data) // max(1, attr.nelems) * (attr.nelems // 2)],
                )
                attrs = (*var.attrs[:j], short, *var.attrs[j + 1 :])
                yield Case(f"{var.name} with half of {attr.name}", put(i, var._replace(attrs=attrs)))
    for j, attr in enumerate(header.attrs):
        if attr.name != MARKER:
            yield Case(f"file without {attr.name}", header.replaced(attrs=(*header.attrs[:j], *header.attrs[j + 1 :])))


def cases(header: Header) -> Iterator[Case]:
    """The whole catalogue."""
    yield from of_texts(header)
    yield from of_variables(header)
    yield from of_values(header)


def header_of(raw: bytes) -> Header:
    return decode(raw, file_size=len(raw)).header


def content(case: Case, original: bytes) -> bytes | None:
    """The file of a case; None if its header does not fit the room, or is none."""
    begin = min(var.begin for var in header_of(original).vars)
    head = encode(case.header, check=False)
    return None if len(head) > begin else head.ljust(begin, b"\0") + original[begin:]
