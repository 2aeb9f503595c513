"""`say_instead` explains why something cannot be stored, and what to store instead.

Knows: Python's and numpy's types. Does not know: how anything is stored. Loaded when there is an error to explain.
"""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np

from pnc_vol.errors import ConversionError

__all__ = ["say_instead"]

_TIME = (
    "NetCDF has no type for times: store numbers, and say in the attribute 'units' what they count, such as "
    "'days since 2000-01-01'"
)
_NUMBERS = "(x - np.datetime64('2000-01-01')) / np.timedelta64(1, 'D')"


def say_instead(error: ConversionError, what: str, value: Any, dtype: Any = None) -> None:
    """Say in the error what could not be stored, and how such values are stored instead, if that is known.

    Parameters
    ----------
    what : str, such as ``"attribute 'units' of '/t'"``.
    value : what was to be stored, or None if only its type is known.
    dtype : dtype-like, optional
    """
    instead = _instead(value, dtype)
    if instead:
        error.args = (f"Unable to store {what}: {instead}",)


def _instead(value: Any, dtype: Any) -> str:
    found = getattr(value, "dtype", dtype)
    kind = np.dtype(found).kind if isinstance(found, (np.dtype, str, type)) and found is not object else ""
    if kind == "M":
        return f"{found} is a type of numpy alone. {_TIME}: {_NUMBERS}"
    if kind == "m":
        return f"{found} is a type of numpy alone. Store numbers, x / np.timedelta64(1, 's'), with 'units' 's'"
    if kind == "U":
        return "numpy's fixed-width text has no equivalent in HDF5. Store text of any length, x.astype(string_dtype())"
    if isinstance(value, (list, tuple)) and len({isinstance(one, (str, bytes)) for one in value}) == 2:
        return "its items are not of one type. Store texts and others apart, or all as text"
    item = _odd_item(value)
    name = type(item).__name__
    if isinstance(item, (datetime.datetime, datetime.date)):
        return f"a {name} is no value of HDF5 or NetCDF. Store its text, x.isoformat(). {_TIME}"
    if isinstance(item, datetime.timedelta):
        return f"a {name} is no value of HDF5 or NetCDF. Store x.total_seconds(), with 'units' 's'"
    if isinstance(item, dict):
        return (
            "a dict is no value of HDF5 or NetCDF. Store each of its items under its own name, as attrs.update(x) does "
            "for attributes, or all of it as text, json.dumps(x)"
        )
    if item is None:
        return (
            "None is no value of HDF5 or NetCDF. Leave it out, or store Empty('f4') for a value that is not there, NaN "
            "for a missing number, '' for a missing text"
        )
    if isinstance(item, (set, frozenset)):
        return f"a {name} is no value of HDF5 or NetCDF. Store sorted(x)"
    if isinstance(item, int) and not isinstance(item, bool):
        return f"{item} is beyond 64 bits. Store a float, or its digits as text, str(x)"
    if hasattr(item, "__fspath__"):
        return "a path is no value of HDF5 or NetCDF. Store its text, str(x)"
    return ""


def _odd_item(value: Any, depth: int = 0) -> Any:
    """Return the first item that is neither text nor an ordinary number; "" if there is none."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind != "O":
            return ""
        value = value.ravel().tolist()
    if isinstance(value, (list, tuple)):
        if depth < 32:
            for item in value:
                odd = _odd_item(item, depth + 1)
                if not (isinstance(odd, str) and odd == ""):
                    return odd
        return ""
    if isinstance(value, int):
        return "" if -(1 << 63) <= value < 1 << 64 else value
    return "" if isinstance(value, (str, bytes, float, complex, np.generic)) else value
