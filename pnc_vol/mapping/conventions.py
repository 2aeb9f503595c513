"""`element_of_var` finds what an element of a variable means: by NetCDF's conventions first, then by our marker.

Knows: the conventions of xarray, netCDF4, nc-complex and CF for types that NetCDF lacks. Does not know: names of
variables, headers, what the values are.

Rules
-----
1. `derive` says what a variable means without help of ours; `element_marker` is the difference to the truth, and
   is empty whenever that is the same.
2. A marker is checked against the variable; one that does not fit is ignored and reported.
3. What `generated_attrs` gives is hidden from the user where a file says exactly this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from pnc_vol.errors import DefinitionError, PncVolError
from pnc_vol.format.model import BYTE, CHAR, DOUBLE, FLOAT, TYPES, Attr
from pnc_vol.mapping.dtypes import (
    COMPLEX_DIM,
    RAW_KINDS,
    Element,
    Kind,
    element_for,
    metadata_of,
    string_dtype,
    with_metadata,
)

__all__ = [
    "FILL",
    "TYPE_KEYS",
    "derive",
    "element_marker",
    "element_of_var",
    "fill_attr",
    "generated_attrs",
]

Marker = Mapping[str, Any]

FILL = "_FillValue"

WIDEST = 2**31 - 1
"""Bytes of the widest string that numpy has; characters of a wider dimension are single ones."""

CHARACTERS = "char"
"""Type in a marker: elements are single characters, also if the last dimension could be the length of strings."""

TYPE_KEYS = ("type", "encoding", "enum", "order", "dtype")
"""Keys of a marker that belong to the element."""


_UTF8 = (Attr("_Encoding", CHAR, 5, b"utf-8"),)
_BOOL = (Attr("dtype", CHAR, 4, b"bool"),)


@lru_cache(maxsize=64)
def _number(code: int) -> Element:
    dt = TYPES[code].dtype
    return Element(dt.newbyteorder("="), dt, code)


@lru_cache(maxsize=1024)
def _string(sizes: tuple[int, ...], names: tuple[str, ...], encoding: str, kind: Kind) -> Element:
    """Return strings as wide as the one dimension that is given, or single characters."""
    width = sizes[0] if sizes else 1
    shown = string_dtype(encoding, width if kind == "string" else None)
    return Element(shown, np.dtype(f"S{width}"), CHAR, sizes, names, kind)


def _width_dim(sizes: tuple[int, ...], names: tuple[str, ...]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the size and name of the dimension that is the width of a char variable's strings, if there is one."""
    if sizes and 0 < sizes[-1] <= WIDEST:
        return sizes[-1:], names[-1:]
    return (), ()


def _attr(attrs: Sequence[Attr], name: str) -> Attr | None:
    for attr in attrs:
        if attr[0] == name:
            return attr
    return None


def derive(code: int, sizes: tuple[int, ...], names: tuple[str, ...], attrs: Sequence[Attr]) -> Element:
    """Return what a variable's element is, going by NetCDF's conventions alone.

    Parameters
    ----------
    code : int, NC type code.
    sizes, names : sizes and names of the dimensions that are not the record dimension.
    attrs : attributes of the variable.
    """
    if code == CHAR:
        encoding = _attr(attrs, "_Encoding")
        utf8 = encoding is not None and encoding.data.lower() in (b"utf-8", b"utf8")
        # xarray and netCDF4 write `_Encoding` on strings of varying length; characters without it are just that.
        return _string(*_width_dim(sizes, names), *(("utf-8", "vlen_string") if utf8 else ("ascii", "string")))
    if code == BYTE:
        marker = _attr(attrs, "dtype")
        return element_for(bool) if marker is not None and marker[1:] == (CHAR, 4, b"bool") else _number(code)
    if code in (FLOAT, DOUBLE) and names and names[-1] == COMPLEX_DIM and sizes[-1] == 2:
        return element_for("c8" if code == FLOAT else "c16")
    return _number(code)


def element_of_var(
    code: int,
    sizes: tuple[int, ...],
    names: tuple[str, ...],
    attrs: Sequence[Attr],
    marker: Marker | None = None,
    *,
    complain: Callable[[str], None] | None = None,
) -> Element:
    """Return the element of a variable that is read from a header.

    Parameters
    ----------
    code, sizes, names, attrs
        As in `derive`.
    marker : dict or None
        The variable's marker, not trusted: keys ``type``, ``encoding``, ``enum``, ``order``.
    complain : called with a sentence for each key that does not fit.

    Returns
    -------
    Element
        What is left of `sizes` after its `trailing` is the shape that the user sees.
    """
    derived = derive(code, sizes, names, attrs)
    if not marker or marker.keys().isdisjoint(TYPE_KEYS):
        return derived
    element = _marked_element(code, sizes, names, derived, marker)
    if element is None:
        if complain is not None:
            complain(f"type {str(marker.get('type'))[:40]!r} of its marker does not fit the variable")
        return derived
    return element


def _marked_element(
    code: int, sizes: tuple[int, ...], names: tuple[str, ...], derived: Element, marker: Marker
) -> Element | None:
    """Return what the marker makes of the variable; None if it does not fit."""
    kind = marker.get("type", derived.kind)
    order = marker.get("order", "=")
    encoding = marker.get("encoding", derived.encoding)
    if order not in ("=", ">") or encoding not in ("utf-8", "ascii") or not isinstance(kind, str):
        return None
    element: Element | None = None
    if code == CHAR and kind == CHARACTERS:
        return _string((), (), encoding, "string")
    if code == CHAR and kind in ("string", "vlen_string"):
        return _string(*_width_dim(sizes, names), encoding, "string" if kind == "string" else "vlen_string")
    if kind == "number" and code != CHAR:
        element = _number(code)
    elif kind == "bool" and code == BYTE:
        element = element_for(bool)
    elif kind == "float16" and code == FLOAT:
        element = element_for(np.float16)
    elif kind == "complex" and code in (FLOAT, DOUBLE) and sizes and sizes[-1] == 2:
        made = element_for("c8" if code == FLOAT else "c16")
        element = made._replace(trailing_names=(names[-1],))
    elif kind == "enum" and code not in (CHAR, FLOAT, DOUBLE):
        element = _marked_enum(code, marker.get("enum"))
    elif kind in _DESCRIBED:
        return _described(code, sizes, names, kind, marker.get("dtype"))
    if element is not None and order == ">":
        # `newbyteorder` drops all metadata: the members of an enum
        metadata = element.dtype.metadata
        turned = element.dtype.newbyteorder(">")
        element = element._replace(dtype=with_metadata(turned, metadata) if metadata else turned)
    return element


_DESCRIBED = RAW_KINDS | {"composite"}


def _described(
    code: int, sizes: tuple[int, ...], names: tuple[str, ...], kind: str, description: Any
) -> Element | None:
    """Return the element of a type that the marker describes, if the variable can hold it."""
    dtype = _describe().undescribe(description)
    if dtype is None:
        return None
    try:
        element = element_for(dtype)
    except (PncVolError, ValueError, TypeError):
        return None
    n = len(element.trailing)
    if element.kind != kind or element.nc_type != code or (n and sizes[-n:] != element.trailing):
        return None
    return element._replace(trailing_names=names[-n:]) if n else element


def _describe() -> ModuleType:
    # Few files have types that are described: `import pnc_vol` loads no module that it can do without.
    from pnc_vol.mapping import describe

    return describe


def _marked_enum(code: int, members: Any) -> Element | None:
    if not isinstance(members, dict) or not all(type(value) is int for value in members.values()):
        return None
    base = with_metadata(TYPES[code].dtype.newbyteorder("="), {"enum": members})
    try:
        return element_for(base)
    except DefinitionError:
        return None


# ---------------------------------------------------------------------------------------- to a variable


def element_marker(element: Element, derived: Element) -> dict[str, Any]:
    """Return the keys of the marker that make `element` out of what `derive` says."""
    if element.kind == "number" and element.dtype == derived.dtype and derived.kind == "number":
        return {}
    marker: dict[str, Any] = {}
    if element.kind != derived.kind:
        marker["type"] = element.kind
    if element.kind == "enum":
        marker["enum"] = dict(metadata_of(element.dtype)["enum"])
    if element.kind in _DESCRIBED:
        marker["dtype"] = _describe().describe(element.dtype)
    elif element.is_string:
        if derived.trailing and not element.trailing:
            marker["type"] = CHARACTERS
        if element.encoding != derived.encoding:
            marker["encoding"] = element.encoding
    elif element.dtype.str[0] == ">" and element.dtype.itemsize > 1 and np.little_endian:
        marker["order"] = ">"
    return marker


def generated_attrs(element: Element) -> tuple[Attr, ...]:
    """Return the attributes that NetCDF's conventions ask for; hidden from the user when they say just this."""
    if element.kind == "number":
        return ()
    if element.is_string:
        return _UTF8 if element.encoding == "utf-8" else ()
    if element.kind == "bool":
        return _BOOL
    if element.kind == "enum":
        return _flags(element)
    return ()


def _flags(element: Element) -> tuple[Attr, ...]:
    """Return CF's flag attributes; a blank in a member's name becomes ``_`` there (the marker has the true name).

    By value: the marker does not keep the order of the members, and what is written must be known when it is read.
    """
    members = sorted(metadata_of(element.dtype)["enum"].items(), key=lambda member: (int(member[1]), member[0]))
    if not members:
        return ()
    values = np.array([value for _, value in members], dtype=element.file_dtype)
    names = " ".join("_".join(name.split()) or "_" for name, _ in members).encode("utf-8", "surrogateescape")
    return (
        Attr("flag_values", element.nc_type, values.size, values.tobytes()),
        Attr("flag_meanings", CHAR, len(names), names),
    )


def fill_attr(fill: bytes, element: Element) -> Attr | None:
    """Return the attribute `_FillValue` for a fill value, or None if one value of the type does not say it.

    Other programs mask what equals the attribute: truth values, which have none to spare, members of an enum, and what
    is no element but a part of one, such as a character or the real part of a complex number.

    Parameters
    ----------
    fill : bytes, one element as in the file
    element : Element
    """
    if element.kind == "bool" or (element.trailing and element.kind != "array"):
        return None
    members = metadata_of(element.dtype)["enum"].values() if element.kind == "enum" else ()
    if members and np.frombuffer(fill, element.file_dtype)[0] in members:
        return None
    size = TYPES[element.nc_type].size
    base = fill[:size]
    return Attr(FILL, element.nc_type, 1, base) if base * (len(fill) // size) == fill else None
