"""The eleven external types of NetCDF, and attribute values.

Knows: type codes, sizes, fill values, the numpy type of each. Does not know: HDF5's types, headers.

Source: NetCDF classic format specification (types 1 to 6), PnetCDF's CDF-5 specification (7 to 11).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.errors import DefinitionError
from pnc_vol.format.model import Attr

__all__ = [
    "BYTE",
    "CHAR",
    "DOUBLE",
    "FLOAT",
    "INT",
    "INT64",
    "SHORT",
    "TYPES",
    "UBYTE",
    "UINT",
    "UINT64",
    "USHORT",
    "NCType",
    "attr_values",
    "file_dtype",
    "nc_type",
    "pad4",
]

BYTE, CHAR, SHORT, INT, FLOAT, DOUBLE, UBYTE, USHORT, UINT, INT64, UINT64 = range(1, 12)


class NCType(NamedTuple):
    """One external type.

    code : int, as in the file.
    name : str, as in CDL, e.g. ``"ushort"``.
    size : int, bytes of a value.
    dtype : numpy.dtype, big-endian; ``S1`` for char.
    versions : tuple of int, the versions of the format that have it.
    fill : bytes, the default fill value as in the file.
    """

    code: int
    name: str
    size: int
    dtype: np.dtype[Any]
    versions: tuple[int, ...]
    fill: bytes

    @property
    def fill_value(self) -> Any:
        """The default fill value as a numpy scalar in native byte order; ``b"\\x00"`` for char."""
        if self.code == CHAR:
            return b"\0"
        return np.frombuffer(self.fill, self.dtype).astype(self.dtype.newbyteorder("="))[0]


_ALL, _CDF5 = (1, 2, 5), (5,)

TYPES: dict[int, NCType] = {
    row[0]: NCType(row[0], row[1], np.dtype(row[2]).itemsize, np.dtype(row[2]), row[3], bytes.fromhex(row[4]))
    for row in (
        (BYTE, "byte", "i1", _ALL, "81"),
        (CHAR, "char", "S1", _ALL, "00"),
        (SHORT, "short", ">i2", _ALL, "8001"),
        (INT, "int", ">i4", _ALL, "80000001"),
        (FLOAT, "float", ">f4", _ALL, "7cf00000"),
        (DOUBLE, "double", ">f8", _ALL, "479e000000000000"),
        (UBYTE, "ubyte", "u1", _CDF5, "ff"),
        (USHORT, "ushort", ">u2", _CDF5, "ffff"),
        (UINT, "uint", ">u4", _CDF5, "ffffffff"),
        (INT64, "int64", ">i8", _CDF5, "8000000000000002"),
        (UINT64, "uint64", ">u8", _CDF5, "fffffffffffffffe"),
    )
}
"""`NCType` by code."""

_BY_DTYPE = {(t.dtype.kind, t.size): t for t in TYPES.values()}


def pad4(nbytes: int) -> int:
    """Return `nbytes` rounded up to a multiple of 4, the format's alignment."""
    return (nbytes + 3) & -4


def nc_type(dtype: npt.DTypeLike) -> NCType:
    """Return the external type that stores `dtype` without loss.

    Parameters
    ----------
    dtype
        Anything that numpy takes for a type, in any byte order: int8 to uint64, float32, float64, ``S1``.

    Raises
    ------
    DefinitionError
        No external type holds it.

    Examples
    --------
    >>> nc_type("<u2").name
    'ushort'
    """
    wanted = np.dtype(dtype)
    found = _BY_DTYPE.get((wanted.kind, wanted.itemsize))
    if found is None:
        raise DefinitionError(
            f"NetCDF has no type for {wanted}; it has 1- to 8-byte integers, float32, float64 and "
            "single characters (S1)."
        )
    return found


def file_dtype(code: int) -> np.dtype[Any]:
    """Return the big-endian numpy type of an NC type code (``S1`` for char)."""
    return TYPES[code].dtype


def attr_values(attr: Attr) -> npt.NDArray[Any] | bytes:
    """Return the values of an attribute.

    Returns
    -------
    bytes or ndarray
        ``bytes`` for char; else a new 1-D array of ``attr.nelems`` values in native byte order.

    Examples
    --------
    >>> attr_values(Attr("valid_range", SHORT, 2, bytes([0, 0, 0, 99])))
    array([ 0, 99], dtype=int16)
    """
    if attr.type == CHAR:
        return attr.data
    dtype = TYPES[attr.type].dtype
    return np.frombuffer(attr.data, dtype, attr.nelems).astype(dtype.newbyteorder("="))
