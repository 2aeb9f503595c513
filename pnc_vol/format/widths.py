"""How wide the fields of a header are in CDF-1, CDF-2 and CDF-5.

Knows: widths, byte orders, tags, limits. Does not know: what the fields mean. The decoder and the encoder are written
once over this table. The header of a file is big-endian; a header that is kept as the bytes of something else, such as
a dataset of an HDF5 file, may be in the other byte order (`LITTLE`).

Source: NetCDF classic format specification; PnetCDF's CDF-5 specification.
"""

from __future__ import annotations

from struct import Struct
from typing import Literal, NamedTuple

from pnc_vol.format.types import TYPES

__all__ = [
    "ABSENT",
    "ATTRIBUTE",
    "DIMENSION",
    "LITTLE",
    "MAX_BYTES",
    "MAX_COUNT",
    "MAX_OFFSET",
    "MAX_VAR_DIMS",
    "VARIABLE",
    "WIDTHS",
    "Order",
    "Widths",
]

ABSENT, DIMENSION, VARIABLE, ATTRIBUTE = 0, 10, 11, 12
"""Tags of the lists of a header."""

MAX_OFFSET = 2**63 - 1
MAX_BYTES = 2**63 - 4
"""Bytes of the largest variable or record of any version."""
MAX_COUNT = 2**31 - 1
"""Dimensions, variables, attributes, attribute values: the limit of every NetCDF library."""
MAX_VAR_DIMS = 1024


Order = Literal["big", "little"]


class Widths(NamedTuple):
    """The fields of one version.

    width : int, bytes of a count, a length or a name length.
    sign : int, the value from which such a field is negative.
    number : Struct, one such field.
    listing : Struct, a tag or type, then such a field.
    tail : Struct, the end of a variable: type, vsize, begin.
    begin : int, bytes of a begin.
    begin_max : int, largest begin.
    dim_max : int, largest dimension that a reader accepts.
    var_max : int, bytes of the largest variable that is not the last of its kind.
    sizes : dict of int to int, bytes of each type that this version has.
    dim_min, attr_min, var_min : int, bytes of the smallest entry of each list.
    order : str, the byte order of all numbers.
    """

    width: int
    sign: int
    number: Struct
    listing: Struct
    tail: Struct
    begin: int
    begin_max: int
    dim_max: int
    var_max: int
    sizes: dict[int, int]
    dim_min: int
    attr_min: int
    var_min: int
    order: Order

    @property
    def mark(self) -> str:
        """The byte order as `struct` and numpy write it."""
        return ">" if self.order == "big" else "<"


def _widths(version: int, width: int, begin: int, dim_max: int, var_max: int, order: Order = "big") -> Widths:
    mark = ">" if order == "big" else "<"
    number, place = ("Q" if n == 8 else "I" for n in (width, begin))
    return Widths(
        width,
        2 ** (8 * width - 1),
        Struct(f"{mark}{number}"),
        Struct(f"{mark}I{number}"),
        Struct(f"{mark}I{number}{place}"),
        begin,
        2 ** (8 * begin - 1) - 1,
        dim_max,
        var_max,
        {t.code: t.size for t in TYPES.values() if version in t.versions},
        2 * width + 4,
        2 * width + 8,
        4 * width + 12 + begin,
        order,
    )


# netCDF-C writes CDF-2 dimensions up to 2**32 - 4: safe to read, since nothing here is signed.
WIDTHS = {
    1: _widths(1, 4, 4, 2**31 - 1, 2**31 - 4),
    2: _widths(2, 4, 8, 2**32 - 4, 2**32 - 4),
    5: _widths(5, 8, 8, 2**63 - 1, MAX_BYTES),
}
"""`Widths` by version."""

LITTLE = _widths(5, 8, 8, 2**63 - 1, MAX_BYTES, "little")
"""`Widths` of CDF-5 with every number in little-endian order."""
