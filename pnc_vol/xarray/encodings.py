"""How variables are encoded, by xarray's conventions, for a NetCDF classic file.

Knows: xarray's coders. Does not know: variables that a file has (`stored`); how anything is defined or written.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray
from xarray.backends.common import WritableCFDataStore
from xarray.backends.netcdf3 import encode_nc3_variable
from xarray.coding.strings import CharacterArrayCoder, EncodedStringCoder

__all__ = ["Encoder", "encoding_of"]


class Encoder(WritableCFDataStore):
    """Encodes variables for a NetCDF classic file; xarray's conventions do the most."""

    def __init__(self, version: int, comm: Any) -> None:
        self._version, self._comm = version, comm

    def encode_variable(self, variable: xarray.Variable, name: Any = None) -> xarray.Variable:
        if self._version < 5:
            return _older(variable, name)
        variable = EncodedStringCoder(allows_unicode=False).encode(variable, name=name)
        if self._comm is not None and variable.dtype.kind == "S":
            width = max(self._comm.allgather(variable.dtype.itemsize))
            variable = variable.copy(deep=False, data=variable.data.astype(f"S{width}"))
        return CharacterArrayCoder().encode(variable, name=name)


def _older(variable: xarray.Variable, name: Any) -> xarray.Variable:
    """As xarray does it for the formats that lack 64-bit integers."""
    encoded = encode_nc3_variable(variable, name=name)
    for key, value in encoded.attrs.items():
        if isinstance(value, np.ndarray) and value.size == 1 and not isinstance(variable.attrs.get(key), list | tuple):
            encoded.attrs[key] = value[0]
    return encoded


_CF = ("units", "calendar", "scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned")
"""Attributes that say how values are encoded."""


def encoding_of(encoded: xarray.Variable, original: xarray.Variable) -> dict[str, Any]:
    """The encoding with which a variable was encoded, so that other ranks encode theirs alike."""
    found = dict(original.encoding)
    found.update({key: encoded.attrs[key] for key in _CF if key in encoded.attrs and key not in original.attrs})
    if original.dtype.kind in "MmO" and encoded.dtype.kind in "iuf":
        found["dtype"] = encoded.dtype
    return found
