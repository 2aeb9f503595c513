"""How variables are encoded, by xarray's conventions, for a NetCDF classic file.

Knows: xarray's coders, encodings of variables that a file has. Does not know: how anything is defined or written.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import xarray
from xarray import conventions
from xarray.backends.common import WritableCFDataStore
from xarray.backends.file_manager import DummyFileManager
from xarray.backends.netcdf3 import encode_nc3_variable
from xarray.coding.strings import CharacterArrayCoder, EncodedStringCoder

from pnc_vol.api.file import File
from pnc_vol.interop.xarray.stores import GroupStore

__all__ = ["Encoder", "encoding_of", "encodings_in"]


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


def encodings_in(file: File, group: str, variables: Mapping[Hashable, xarray.Variable]) -> dict[Hashable, Any]:
    """How the variables that a group of the file has are encoded there."""
    stored = GroupStore(DummyFileManager(file), "", group).get_variables()
    found = {}
    for name, variable in variables.items():
        if name in stored:
            dates, spans = variable.dtype.kind in "MO", variable.dtype.kind == "m"
            decoded = conventions.decode_cf_variable(
                name, stored[name], decode_times=dates, decode_timedelta=spans, concat_characters=True
            )
            # what the dataset has as an attribute was not decoded when it was read, and is not encoded
            drop = {*variable.attrs, "char_dim_name"}
            found[name] = {key: value for key, value in decoded.encoding.items() if key not in drop}
    return found
