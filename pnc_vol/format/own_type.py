"""Small values as an array of a variable's own type, where that takes no look at each of them: what most posts are.

Knows: numpy types, ranges. Does not know: bytes of the file (`convert`), selections, how anything else is converted.

Rules
-----
1. None means: ask the general way, which also finds what is wrong with the values, and says it.
2. What is made here is what the general way would store, bit for bit.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pnc_vol.late import late

if TYPE_CHECKING:
    from pnc_vol.format import convert
else:
    convert = late("pnc_vol.format.convert")

__all__ = ["own_type"]

Array = npt.NDArray[Any]

MOST = 8 << 10
"""Elements from which on values are converted while they are copied, which needs no memory of their own."""

_BY_PYTHON = 32
"""Values that Python adds up in less time than a call of numpy takes."""


def own_type(values: Any, dtype: np.dtype[Any], shape: tuple[int, ...], size: int) -> Array | None:
    """An array of this type and shape; None if it takes more than a few steps to make.

    Parameters
    ----------
    values : Python number, numpy scalar, list, tuple or array
        One number is repeated; all else must have the shape.
    dtype : dtype, of kind ``i``, ``u`` or ``f``.
    size : int, elements of that shape.

    Examples
    --------
    >>> own_type(1.5, np.dtype("f4"), (3,), 3)
    array([1.5, 1.5, 1.5], dtype=float32)
    >>> own_type([1, 300], np.dtype("i2"), (2,), 2).tolist(), own_type([1, 70000], np.dtype("i2"), (2,), 2)
    ([1, 300], None)
    """
    if size > MOST:
        return values if type(values) is np.ndarray and values.dtype == dtype and values.shape == shape else None
    kind = type(values)
    if kind is float or kind is int:
        least, most = _RANGE.get(dtype.char) or _range(dtype)
        if not least <= values <= most:
            return None
        array = np.empty(shape, dtype)
        array.fill(values)
        return array
    if kind is list or kind is tuple:
        # Integers beyond int64 would become floats.
        if len(values) > MOST or (dtype.kind == "u" and dtype.itemsize == 8):
            return None
        try:
            values = np.array(values)
        except (ValueError, TypeError, OverflowError):
            return None
    elif kind is not np.ndarray and not isinstance(values, np.generic):
        return None
    source = values.dtype
    if source != dtype:
        limit = _LIMIT.get(source.char + dtype.char)
        if limit is None:
            limit = _limit(source, dtype)
        if limit < 0 or values.size > MOST:
            return None
        # If the sum of the magnitudes is within the range, each value is; with nan or inf the sum is not.
        if limit and not _magnitude(values) <= limit:
            return None
        values = values.astype(dtype)
    if values.shape == shape:
        return values if type(values) is np.ndarray else np.asarray(values)
    if values.shape:
        return None
    array = np.empty(shape, dtype)
    array.fill(values)
    return array


def _magnitude(values: Array) -> float:
    """The sum of the magnitudes of all values."""
    flat = values if values.ndim == 1 else values.reshape(-1)
    if flat.size <= _BY_PYTHON:
        return sum(map(abs, flat.tolist()))  # type: ignore[no-any-return]
    with np.errstate(all="ignore"):
        return float(np.abs(flat.astype("f8")).sum())


def _range(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    if dtype.kind == "f":
        most = float(np.finfo(dtype).max)
        found: tuple[Any, Any] = -most, most
    else:
        info = np.iinfo(dtype)
        found = int(info.min), int(info.max)
    return _RANGE.setdefault(dtype.char, found)


def _limit(source: np.dtype[Any], target: np.dtype[Any]) -> float:
    if source.kind not in "biuf" or source.char == "g":
        found = -1.0
    elif not convert.may_overflow(source, target):
        found = 0.0
    elif target.kind == "u":
        found = -1.0
    else:
        most = float(_range(target)[1])
        # As a float, the largest 64-bit integer is one too large.
        found = math.nextafter(most, 0) if target.kind == "i" and target.itemsize == 8 else most
    return _LIMIT.setdefault(source.char + target.char, found)


_RANGE: dict[str, tuple[Any, Any]] = {}
"""The least and the largest number of a type, by its character."""

_LIMIT: dict[str, float] = {}
"""The largest value that may be converted, by the characters of both types; 0: all may be, -1: that does not tell."""
