"""External types by their names in CDL, and attributes from values, for tests of headers."""

from __future__ import annotations

from typing import Any

import numpy as np

from pnc_vol.errors import DefinitionError
from pnc_vol.format.convert import to_file
from pnc_vol.format.model import Attr
from pnc_vol.format.names import normalise
from pnc_vol.format.types import CHAR, TYPES, NCType, nc_type

BY_NAME = {known.name: known for known in TYPES.values()}


def type_named(name: str) -> NCType:
    """Return the external type with a CDL name.

    Raises
    ------
    DefinitionError
        No such type.

    Examples
    --------
    >>> type_named("ubyte").code
    7
    """
    try:
        return BY_NAME[name]
    except KeyError:
        raise DefinitionError(f"NetCDF has no type {name!r}; it has {', '.join(BY_NAME)}.") from None


def make_attr(name: str, values: Any, type: int | None = None) -> Attr:
    """Make an attribute from values.

    Parameters
    ----------
    name : str
        Stored in normalisation form C.
    values : str, bytes, number, or array-like of numbers
        Text becomes char, as UTF-8. Arrays are stored flat, in C order.
    type : int, optional
        NC type code; by default the one that holds the values' numpy type.

    Raises
    ------
    DefinitionError
        The values have no external type.
    RangeError
        A value does not fit `type`.

    Examples
    --------
    >>> make_attr("units", "K")
    Attr(name='units', type=2, nelems=1, data=b'K')
    """
    name = normalise(name)
    if isinstance(values, str):
        values = values.encode("utf-8", "surrogateescape")
    if isinstance(values, (bytes, bytearray, memoryview)):
        data = bytes(values)
        if type not in (None, CHAR):
            if len(data) % TYPES[type].size:
                raise DefinitionError(
                    f"Attribute {name!r}: {len(data)} bytes are not a whole number of {TYPES[type].name}s."
                )
            return Attr(name, type, len(data) // TYPES[type].size, data)
        return Attr(name, CHAR, len(data), data)
    array = np.asarray(values)
    kind = nc_type(array.dtype) if type is None else TYPES[type]
    if (kind.code == CHAR) != (array.dtype.kind == "S"):
        raise DefinitionError(
            f"Attribute {name!r}: text and numbers cannot be converted to each other ({array.dtype} to {kind.name})."
        )
    out = np.empty(array.size * kind.size, np.uint8)
    to_file(array, kind.dtype, out, what=f"attribute {name!r}")
    return Attr(name, kind.code, array.size, out.tobytes())
