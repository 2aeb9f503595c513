"""Plain attributes: one text, one number, as most are. How they are encoded, shown and looked up in few steps.

Knows: NetCDF attributes. Does not know: `Attribute`, markers, owners.

Many objects have the same attributes with the same values. So a list of plain attributes is made once: what becomes
of a tuple of attributes with one more is remembered, and so is the table in which they are found by name. A file of
100,000 variables with the same attributes has one tuple of them, which is also checked, measured and encoded once.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pnc_vol.format.model import Attr
from pnc_vol.format.types import BYTE, CHAR, DOUBLE, FLOAT, INT, INT64, SHORT, UBYTE, UINT, UINT64, USHORT
from pnc_vol.mapping.names import MARKER, legal_name

__all__ = [
    "PLAIN_TYPES",
    "Listed",
    "Plain",
    "encode_plain",
    "is_listed",
    "is_plain",
    "listed",
    "met_before",
    "shown_plainly",
    "with_new",
]

Plain = str | float | int | np.number[Any]
"""A text or a number, of Python's or numpy's, of which nothing but itself is to be stored."""

_CODES: dict[type, int] = {
    np.int8: BYTE, np.int16: SHORT, np.int32: INT, np.int64: INT64, np.float32: FLOAT, np.float64: DOUBLE,
    np.uint8: UBYTE, np.uint16: USHORT, np.uint32: UINT, np.uint64: UINT64,
}  # fmt: skip

PLAIN_TYPES = frozenset((str, float, int, *_CODES))

_LEAST, _LARGEST = -(2**63), 2**63 - 1

_FEW = 64
"""Attributes up to which one more makes a new tuple."""

_SHORT = 64
"""Characters of a text that is remembered."""

_MOST_KNOWN = 1 << 12
"""Entries that are remembered; then memory is emptied, and fills with what is used now."""


class Listed(NamedTuple):
    """Attributes of a header, as they are looked up.

    table : by name; not to be changed.
    names : sorted.
    shown : values as a user sees them, of those that were looked at; all of them immutable.
    """

    raw: tuple[Attr, ...]
    table: dict[str, Any]
    names: list[str]
    shown: dict[str, Any]


# By the tuple's identity, which is its own as long as the entry keeps it alive.
_listed: dict[int, Listed] = {}
_legal: set[str] = set()
_more: dict[tuple[int, str, type, Plain], tuple[tuple[Attr, ...], tuple[Attr, ...]]] = {}


def is_plain(value: Any) -> bool:
    """True for a text or number with which nothing can be wrong.

    Examples
    --------
    >>> is_plain("K"), is_plain(2**63), is_plain(True), is_plain(np.float32(0.5))
    (True, False, False, True)
    """
    kind = type(value)
    if kind is str:
        return value.isascii() and "\0" not in value
    return kind is float or kind in _CODES or (kind is int and _LEAST <= value <= _LARGEST)


_make = tuple.__new__
_TURN = -1 if sys.byteorder == "little" else 1
_DOUBLE, _INT64 = struct.Struct(">d").pack, struct.Struct(">q").pack
_SCALARS: dict[int, tuple[Callable[[bytes], tuple[Any]], type[np.generic]]] = {
    code: (struct.Struct(letter).unpack, scalar)
    for code, letter, scalar in (
        (BYTE, ">b", np.int8),
        (SHORT, ">h", np.int16),
        (INT, ">i", np.int32),
        (FLOAT, ">f", np.float32),
        (DOUBLE, ">d", np.float64),
        (INT64, ">q", np.int64),
    )
}


def encode_plain(name: str, value: Plain) -> Attr:
    """Encode a plain value for the header; it never needs a marker.

    Examples
    --------
    >>> encode_plain("units", "K")
    Attr(name='units', type=2, nelems=1, data=b'K')
    """
    kind = type(value)
    if kind is str:
        text = value.encode()  # type: ignore[union-attr]
        return _make(Attr, (name, CHAR, len(text), text))
    if kind is float:
        return _make(Attr, (name, DOUBLE, 1, _DOUBLE(value)))
    if kind is int:
        return _make(Attr, (name, INT64, 1, _INT64(value)))
    return _make(Attr, (name, _CODES[kind], 1, value.tobytes()[::_TURN]))  # type: ignore[union-attr]


def shown_plainly(attr: Attr) -> Any:
    """The value of an attribute without a marker as a user sees it, if it is one text or number; else None.

    Examples
    --------
    >>> shown_plainly(encode_plain("n", 2.5)).item()
    2.5
    """
    _, code, nelems, data = attr
    if code == CHAR:
        return data.rstrip(b"\0").decode("utf-8", "surrogateescape")
    scalar = _SCALARS.get(code) if nelems == 1 else None
    return None if scalar is None else scalar[1](scalar[0](data)[0])


def met_before(raw: tuple[Attr, ...], name: str, value: Any) -> tuple[Attr, ...] | None:
    """What `with_new` returned for the same arguments, if it remembers; `value` is of `PLAIN_TYPES`."""
    met = _more.get((id(raw), name, type(value), value))
    return None if met is None or met[0] is not raw else met[1]


def with_new(raw: tuple[Attr, ...], name: str, value: Plain) -> tuple[Attr, ...] | None:
    """The attributes with one text or number more, or in the place of that of its name; None if it needs a marker.

    Call `met_before` first, which knows what was made not long ago.

    Examples
    --------
    >>> made = with_new((), "units", "K")
    >>> met_before((), "units", "K") is made, with_new((), "a/b", 1)
    (True, None)
    """
    if len(raw) >= _FEW or (name not in _legal and not _is_legal(name)):
        return None
    attr = encode_plain(name, value)
    for one in raw:
        if one[0] == name:
            made = tuple([attr if one[0] == name else one for one in raw])
            break
    else:
        made = (*raw, attr)
    # Zeros are equal whatever their sign.
    if len(value) <= _SHORT if type(value) is str else value:
        if len(_more) >= _MOST_KNOWN:
            _more.clear()
        _more[id(raw), name, type(value), value] = raw, made
    return made


def _is_legal(name: str) -> bool:
    """Whether an attribute of that name has it in the file, too; told once for the names that programs use."""
    if legal_name(name) != name or name == MARKER:
        return False
    if len(_legal) < _MOST_KNOWN:
        _legal.add(name)
    return True


def is_listed(raw: tuple[Attr, ...]) -> bool:
    """Whether `listed` remembers these attributes."""
    found = _listed.get(id(raw))
    return found is not None and found.raw is raw


def listed(raw: tuple[Attr, ...]) -> Listed:
    """The table and the names of attributes that are called as in the header; of two of one name the first."""
    found = _listed.get(id(raw))
    if found is None or found.raw is not raw:
        table: dict[str, Any] = {}
        for attr in raw:
            table.setdefault(attr[0], attr)
        found = Listed(raw, table, sorted(table), {})
        if len(_listed) >= _MOST_KNOWN:
            _listed.clear()
        _listed[id(raw)] = found
    return found
