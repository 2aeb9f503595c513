"""How one element of a dataset is stored in the file.

Knows: numpy dtypes with h5py's metadata, NC type codes, hidden trailing dimensions. Does not know: variables,
headers, selections, byte ranges; conversion of numbers to big-endian is `format.convert`'s.

Rules
-----
1. Strings are characters with a trailing dimension, booleans bytes, complex numbers have a trailing dimension of 2,
   enums are their base type, float16 is float. Compounds, arrays of varying length and references take several
   variables (`mapping.composite`); theirs is a byte that holds nothing. Everything else is the type of the same name.
2. An array type of numbers is its numbers, with trailing dimensions; other programs see an array with more axes.
3. Opaque data and long doubles are their bytes, as the machine has them, with a trailing dimension; dates are their
   int64.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from pnc_vol.errors import ConversionError, DefinitionError
from pnc_vol.format.types import BYTE, CHAR, DOUBLE, FLOAT, INT64, UBYTE, nc_type
from pnc_vol.mapping.names import NameBook
from pnc_vol.mapping.special import (
    Dtype,
    check_complex_dtype,
    check_string_dtype,
    metadata_of,
    string_dtype,
    with_metadata,
)

__all__ = [
    "COMPLEX_DIM",
    "RAW_KINDS",
    "Element",
    "Kind",
    "element_for",
]

Kind = Literal[
    "number", "bool", "string", "vlen_string", "enum", "complex", "float16",
    "array", "opaque", "longdouble", "datetime", "composite",
]  # fmt: skip
RAW_KINDS = frozenset(("array", "opaque", "longdouble", "datetime"))
"""Kinds that are several numbers, or bytes."""
COMPLEX_DIM = "_pfnc_complex"
"""Name of the trailing dimension of complex variables, as nc-complex (netCDF4's ``auto_complex``) writes it."""


class Element(NamedTuple):
    """How one element is stored in the file.

    dtype : dtype that the user sees, with h5py's metadata.
    file_dtype : big-endian dtype of one element, hidden trailing dimensions included: ``>f8``, ``S10``, ``>c16``.
    nc_type : int, NC type code of the variable.
    trailing : tuple of int, sizes of the hidden trailing dimensions.
    trailing_names : tuple of str, their names.
    kind : what the element is.
    """

    dtype: Dtype
    file_dtype: Dtype
    nc_type: int
    trailing: tuple[int, ...] = ()
    trailing_names: tuple[str, ...] = ()
    kind: Kind = "number"

    @property
    def itemsize(self) -> int:
        """Bytes of one element in the file."""
        return self.file_dtype.itemsize

    @property
    def is_string(self) -> bool:
        """True for strings, fixed or of varying length."""
        return self.nc_type == CHAR

    @property
    def encoding(self) -> str:
        """``"utf-8"`` or ``"ascii"``; the latter for all that is no string."""
        metadata = metadata_of(self.dtype)
        return "utf-8" if metadata.get("vlen") is str or metadata.get("h5py_encoding") == "utf-8" else "ascii"

    @property
    def axes(self) -> tuple[int, ...]:
        """Axes that arrays of values have behind those of the dataset."""
        return () if self.dtype.subdtype is None else self.dtype.subdtype[1]

    def widened(self, width: int) -> Element:
        """The same string element with room for `width` bytes."""
        width = max(1, width)
        return self._replace(file_dtype=np.dtype(f"S{width}"), trailing=(width,), trailing_names=(f"strlen_{width}",))


# ------------------------------------------------------------------------------------ from the user's dtype


def element_for(dtype: DTypeLike, *, width: int = 1) -> Element:
    """The element that holds values of `dtype`.

    Parameters
    ----------
    dtype : dtype-like
    width : int, bytes
        Room for a string of varying length; `Element.widened` changes it later.

    Raises
    ------
    TypeError
        A type without an equivalent in HDF5: ``U``, plain ``O``, dates.
    ValueError
        A string of length 0.

    Examples
    --------
    >>> element_for("c16").trailing
    (2,)
    """
    dt = np.dtype(dtype)
    if dt.kind in "iuf" and dt.metadata is None:
        return plain_element(dt)
    info = check_string_dtype(dt)
    if info is not None:
        return _string_element(*info, width)
    # numpy's equality does not look at metadata, which the fields of a compound may have
    if dt.metadata is None and dt.kind != "V":
        return plain_element(dt)
    return _element(dt)


@lru_cache(maxsize=256)
def plain_element(dt: Dtype) -> Element:
    """As `element_for`, of a dtype without metadata."""
    return _element(dt)


def _element(dt: Dtype) -> Element:
    raw = _raw_element(dt) if dt.kind in "VMm" or dt.metadata or dt.char in "gG" else None
    if raw is not None:
        return raw
    complex_ = check_complex_dtype(dt) if dt.names is not None else None
    if complex_ is not None:
        return _element(complex_)
    if dt.kind in "VO" and _composite(dt):
        return Element(dt, np.dtype("i1"), BYTE, kind="composite")
    _refuse(dt)
    enum = metadata_of(dt).get("enum")
    if enum is not None:
        return _enum_element(dt, dict(enum))
    # the type itself, without metadata that is not ours
    shown = np.dtype(dt.str)
    if dt.kind == "b":
        return Element(shown, np.dtype("i1"), BYTE, kind="bool")
    if dt.kind == "c":
        code = FLOAT if dt.itemsize == 8 else DOUBLE
        return Element(shown, shown.newbyteorder(">"), code, (2,), (COMPLEX_DIM,), "complex")
    if dt.str[1:] == "f2":
        return Element(shown, np.dtype(">f4"), FLOAT, kind="float16")
    return Element(shown, shown.newbyteorder(">"), nc_type(dt).code)


def _raw_element(dt: Dtype) -> Element | None:
    """The element of array types of numbers, opaque data, long doubles and dates; None for any other type."""
    opaque = metadata_of(dt).get("h5py_opaque")
    if opaque or (dt.kind == "V" and dt.names is None and dt.subdtype is None):
        shown = with_metadata(dt.str, {"h5py_opaque": True}) if opaque else np.dtype(dt.str)
        return Element(shown, np.dtype(">i8"), INT64, kind="datetime") if dt.kind in "Mm" else _bytes(shown, "opaque")
    if dt.kind in "fc" and dt.itemsize > (8 if dt.kind == "f" else 16):
        return _bytes(dt, "longdouble")
    if dt.subdtype is not None:
        base, shape = dt.subdtype
        if base.kind in "iuf" and base.metadata is None and base.itemsize <= 8 and base.str[1:] != "f2" and prod(shape):
            # two axes never share a dimension, see `mapping.dimensions`
            book = NameBook()
            names = tuple(book.take(f"array_{n}") for n in shape)
            return Element(dt, np.dtype(f"V{dt.itemsize}"), nc_type(base).code, shape, names, "array")
    return None


def _bytes(shown: Dtype, kind: Kind) -> Element:
    size = shown.itemsize
    return Element(shown, np.dtype(f"V{size}"), UBYTE, (size,), (f"bytes_{size}",), kind)


@lru_cache(maxsize=256)
def _string_element(encoding: str, length: int | None, width: int) -> Element:
    if length == 0:
        raise DefinitionError("Size must be positive: a fixed-length string needs at least one byte")
    size = length or max(1, width)
    kind: Kind = "string" if length else "vlen_string"
    shown = string_dtype(encoding, length)
    return Element(shown, np.dtype(f"S{size}"), CHAR, (size,), (f"strlen_{size}",), kind)


def _enum_element(dt: Dtype, members: dict[str, int]) -> Element:
    """An enum; its members are kept as Python ints and must fit the base type."""
    limits = np.iinfo(dt)
    clean = {str(name): int(value) for name, value in members.items()}
    for name, value in clean.items():
        if not limits.min <= value <= limits.max:
            raise DefinitionError(f"enum member {name!r} = {value} does not fit its base type {np.dtype(dt.str)!r}")
    shown = with_metadata(dt.str, {"enum": clean})
    return Element(shown, np.dtype(dt.str).newbyteorder(">"), nc_type(dt).code, kind="enum")


def _refuse(dt: Dtype) -> None:
    """Raise what h5py raises for types that HDF5 lacks."""
    if dt.kind == "O":
        raise ConversionError(f"Object dtype {dt!r} has no native HDF5 equivalent; use string_dtype() for strings")
    if dt.kind not in "biufcST":
        raise ConversionError(f"No conversion path for dtype: {dt!r}")


def _composite(dt: Dtype) -> bool:
    """True for a type that takes several variables; its parts are checked too.

    Raises
    ------
    ConversionError
        A part of it has no equivalent in HDF5.
    """
    metadata = metadata_of(dt)
    if "ref" in metadata:
        return True
    vlen: Any = metadata.get("vlen")
    # by identity: numpy says that float64 equals None
    if dt.kind == "O" and not any(vlen is known for known in (None, str, bytes)):
        element_for(vlen)
        return True
    if dt.names is not None and dt.fields is not None:
        for name in dt.names:
            element_for(dt.fields[name][0])
        return True
    if dt.subdtype is not None:
        element_for(dt.subdtype[0])
        return True
    return False
