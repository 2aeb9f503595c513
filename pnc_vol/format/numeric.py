"""Values are converted to the bytes of a file and back, in one pass; small values to a variable's own type.

Knows: numpy types, byte order, ranges. Does not know: headers, variables, requests.

Rules
-----
1. What needs no check is one `numpy.copyto`: conversion, transposition and byte order together. Measured, that
   beats a copy followed by a swap at every block size, since the bytes cross the memory bus once.
2. What can overflow is checked and converted in blocks that stay in cache.
3. Nothing that fits is refused; nothing that does not fit is stored, unless clipping was asked for.
4. What `own_type` makes, of what most posts are, is what `to_file` would store, bit for bit. Its None means: ask the
   general way, which also finds what is wrong with the values, and says it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any, Literal, NoReturn

import numpy as np
import numpy.typing as npt

from pnc_vol.errors import DefinitionError, RangeError

__all__ = ["TURNED", "Overflow", "converted", "may_overflow", "own_type", "swap_in_place", "to_file"]

Overflow = Literal["raise", "clip"]
Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

BLOCK = 1 << 20
"""Bytes of values that are checked and converted at a time."""

TURNED = 32 << 10
"""Bytes from which on a copy onto itself turns values round in less time than numpy's `byteswap`."""

_NUMERIC = "biuf"


def to_file(
    values: Array, file_dtype: np.dtype[Any], out: Bytes, *, on_overflow: Overflow = "raise", what: str = "values"
) -> None:
    """Convert `values` to `file_dtype`, in C order, into `out`.

    Parameters
    ----------
    values : ndarray
        Numbers, booleans, complex numbers or fixed-length bytes; any shape, strides and byte order.
    file_dtype : numpy.dtype
        As in the file, big-endian.
    out : uint8[values.size * file_dtype.itemsize]
        Contiguous; it need not be aligned and must not overlap `values`.
    on_overflow : {"raise", "clip"}
        What to do with a value that the type cannot hold. ``"clip"`` stores the nearest integer of the type, 0 for
        NaN, and infinity for a float that is too large, as HDF5 does.
    what : str
        Names the values in errors.

    Raises
    ------
    RangeError
        A value does not fit: a number outside an integer type, NaN or infinity for an integer type, a finite float that
        would become infinite, bytes that are too long. `out` is then partly written.
    DefinitionError
        The kinds do not convert (text and numbers, complex to real).

    Examples
    --------
    >>> out = np.empty(4, np.uint8)
    >>> to_file(np.array([1, 258]), np.dtype(">i2"), out)
    >>> out
    array([0, 1, 1, 2], dtype=uint8)
    """
    source = values.dtype
    _check_kinds(source, file_dtype, what)
    if out.nbytes != values.size * file_dtype.itemsize:
        raise ValueError(f"{what}: {values.size} values of {file_dtype} do not make {out.nbytes} bytes")
    target = out.view(file_dtype).reshape(values.shape)
    if not may_overflow(source, file_dtype):
        np.copyto(target, values, casting="unsafe")
        return
    if file_dtype.kind == "S":
        _copy_bytes(values, target, what)
        return
    move = _clip_block if on_overflow == "clip" else _checked_block
    for index in _blocks(values.shape, max(1, BLOCK // max(source.itemsize, file_dtype.itemsize))):
        # With an ellipsis even a single value is an array.
        at = move(values[(*index, ...)], target[(*index, ...)])
        if at >= 0:
            _refuse(values, index, at, file_dtype, what)


def converted(values: Array, dtype: np.dtype[Any], on_overflow: Overflow = "raise") -> Array:
    """Return numbers as an array of another type, checked or cut as `to_file` does it.

    Examples
    --------
    >>> converted(np.array([1, 300]), np.dtype("u1"), "clip")
    array([  1, 255], dtype=uint8)
    """
    made = np.empty(values.shape, dtype)
    to_file(values, dtype, made.reshape(-1).view(np.uint8), on_overflow=on_overflow)
    return made


def swap_in_place(raw: Bytes, itemsize: int) -> None:
    """Turn big-endian values into native ones, or back, where they lie; nothing to do on big-endian machines.

    Parameters
    ----------
    raw : uint8[n], contiguous, n a multiple of `itemsize`.
    itemsize : int, bytes of a value (for complex numbers, of a part).

    Examples
    --------
    >>> raw = np.array([0, 1], np.uint8)
    >>> swap_in_place(raw, 2)
    >>> int(raw.view("u2")[0])
    1
    """
    if itemsize > 1 and sys.byteorder == "little":
        values = raw.view(f"u{itemsize}")
        if raw.nbytes < TURNED:
            values.byteswap(inplace=True)
        else:
            # in an eighth to a half of the time, and other threads run meanwhile
            np.copyto(values, values.view(values.dtype.newbyteorder()))


def _check_kinds(source: np.dtype[Any], target: np.dtype[Any], what: str) -> None:
    a, b = source.kind, target.kind
    fits = (a in _NUMERIC and b in _NUMERIC + "c") or (a == b and a in "SVc")
    if not fits or (a == "V" and source != target):
        raise DefinitionError(f"{what}: {source} does not convert to {target}.")


def _limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    if dtype.kind == "b":
        return 0, 1
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def may_overflow(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Return whether some value of `source` has no place in `target`."""
    a, b = source.kind, target.kind
    if b == "S":
        return source.itemsize > target.itemsize
    if a == "V":
        return False
    if b == "c" or b == "f":
        if a in "fc":
            # A complex number holds two parts.
            return source.itemsize // (1 + (a == "c")) > target.itemsize // (1 + (b == "c"))
        return b == "f" and target.itemsize == 2 and a in "iu" and source.itemsize > 1
    if b == "b":
        return False
    if a == "f":
        return True
    low, high = _limits(source)
    least, most = _limits(target)
    return low < least or high > most


def _blocks(shape: tuple[int, ...], limit: int) -> Iterator[tuple[int | slice, ...]]:
    """Yield indices that cut `shape` into pieces of at most `limit` elements, in C order."""
    inner = 1
    axis = len(shape)
    while axis and inner * shape[axis - 1] <= limit:
        axis -= 1
        inner *= shape[axis]
    if axis == 0:
        yield ()
        return
    step = max(1, limit // max(inner, 1))
    for outer in np.ndindex(*shape[: axis - 1]):
        for start in range(0, shape[axis - 1], step):
            yield (*outer, slice(start, start + step))


def _checked_block(values: Array, target: Array) -> int:
    """Convert one block; return the flat position of the first value that does not fit, or -1."""
    if not values.size:
        return -1
    if target.dtype.kind in "iu":
        bad = _outside(values, *_limits(target.dtype))
        if bad is None:
            np.copyto(target, values, casting="unsafe")
            return -1
    else:
        with np.errstate(over="ignore"):
            np.copyto(target, values, casting="unsafe")
        if np.isfinite(target).all():
            return -1
        bad = ~np.isfinite(target) & np.isfinite(values)
    where = np.flatnonzero(bad)
    return int(where[0]) if where.size else -1


def _outside(values: Array, least: int, most: int) -> npt.NDArray[np.bool_] | None:
    """Return where `values` lie outside ``[least, most]`` once truncated, or None if nowhere."""
    low, high = values.min(), values.max()
    if values.dtype.kind != "f":
        if int(low) >= least and int(high) <= most:
            return None
        bad = np.zeros(values.shape, np.bool_)
        info = np.iinfo(values.dtype)
        if least > info.min:
            bad |= values < least
        if most < info.max:
            bad |= values > most
        return bad
    # Python floats hold every bound of up to 32 bits exactly, and 2**63 and 2**64; NaN fails both comparisons.
    above = float(most + 1)
    below = float(least - 1)
    if below == float(least):
        below = float(np.nextafter(below, -np.inf))
    if below < float(low) and float(high) < above:
        return None
    wide = values.astype(np.float64) if values.dtype.itemsize < 8 else values
    return np.asarray(~((wide > below) & (wide < above)))


def _clip_block(values: Array, target: Array) -> int:
    with np.errstate(over="ignore", invalid="ignore"):
        np.copyto(target, values, casting="unsafe")
        if values.size and target.dtype.kind in "iu":
            least, most = _limits(target.dtype)
            bad = _outside(values, least, most)
            if bad is not None:
                target[bad & (values > 0)] = most
                target[bad & (values < 0)] = least
                if values.dtype.kind == "f":
                    target[np.isnan(values)] = 0
    return -1


def _copy_bytes(values: Array, target: Array, what: str) -> None:
    room = target.dtype.itemsize
    lengths = np.char.str_len(values)
    if values.size and int(lengths.max()) > room:
        index = tuple(int(i) for i in np.unravel_index(int(lengths.argmax()), values.shape))
        raise RangeError(
            f"{what}: {bytes(values[index])!r} at index {index} has {int(lengths.max())} bytes; {room} is the fixed "
            "length. Shorten it or define a longer type."
        )
    np.copyto(target, values, casting="unsafe")


def _refuse(values: Array, index: tuple[int | slice, ...], at: int, target: np.dtype[Any], what: str) -> NoReturn:
    block = values[(*index, ...)]
    inside = [int(i) for i in np.unravel_index(at, block.shape)]
    value = block[tuple(inside)]
    place = []
    for part in index:
        place.append(part.start + inside.pop(0) if isinstance(part, slice) else part)
    place += inside
    if target.kind in "iu":
        least, most = _limits(target)
        room = f"{least} to {most}"
    else:
        # The message shall name a float type's range as people know it: its largest finite number.
        largest = np.finfo(target.newbyteorder("=")).max
        room = f"-{largest:.6g} to {largest:.6g}"
    where = f" at index {tuple(place)}" if place else ""
    raise RangeError(
        f"{what}: {value!s}{where} does not fit {target.newbyteorder('=')}, which holds {room}; store a wider type, or "
        "open the file with on_overflow='clip'."
    )


# ----------------------------------------------------------------- small values in a variable's own type, in few steps

_MOST = 8 << 10
"""Elements from which on values are converted while they are copied, which needs no memory of their own."""

_BY_PYTHON = 32
"""Values that Python adds up in less time than a call of numpy takes."""


def own_type(values: Any, dtype: np.dtype[Any], shape: tuple[int, ...], size: int) -> Array | None:
    """Return an array of this type and shape; None if it takes more than a few steps to make.

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
    if size > _MOST:
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
        if len(values) > _MOST or (dtype.kind == "u" and dtype.itemsize == 8):
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
        if limit < 0 or values.size > _MOST:
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
    """Return the sum of the magnitudes of all values."""
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
    elif not may_overflow(source, target):
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
