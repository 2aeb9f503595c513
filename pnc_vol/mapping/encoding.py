"""The values of an element are encoded from what users give to arrays that go to the file, and decoded again.

Knows: elements (`mapping.dtypes`), numpy. Does not know: variables, headers, selections; conversion of numbers to
big-endian is `format.numeric`'s.

Rules
-----
1. `encode` takes what h5py takes and refuses what it refuses; strings are the exception where h5py's refusal
   is a gap of HDF5's converters (bytes into fixed UTF-8, objects into fixed ASCII): they are stored.
2. Numbers are not checked against the stored type here: `format.numeric` does that while it copies.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pnc_vol.errors import ConversionError, DefinitionError, RangeError
from pnc_vol.format.numeric import Overflow, converted, to_file
from pnc_vol.mapping.dtypes import Dtype, Element, Kind, special_dtype, string_dtype

__all__ = ["decode", "encode", "from_fields", "guessed", "numbers"]

Shape = tuple[int, ...]


def encode(values: Any, element: Element, on_overflow: Overflow = "raise") -> NDArray[Any]:
    """Turn what the user gives into an array that `format.numeric.to_file` takes.

    Parameters
    ----------
    values : array-like
    element : Element
    on_overflow : {"raise", "clip"}, for what `to_file` sees no more: the numbers of an array type, and of float16

    Returns
    -------
    ndarray
        Of the shape of `values`: numbers as they are (arrays are not copied, whatever their strides), ``S`` for
        strings (those of varying length as wide as the longest, maybe wider than the element), int8 for bool.

    Raises
    ------
    ConversionError
        A TypeError (and OSError): no way from this type to the stored one.
    ValueError
        A NUL inside a string of varying length; text that is no number.

    Examples
    --------
    >>> from pnc_vol.mapping.dtypes import element_for
    >>> encode(["a", "bcd"], element_for(string_dtype()))
    array([b'a', b'bcd'], dtype='|S3')
    """
    if isinstance(values, np.ndarray):
        # masked arrays and arrays with units compare in their own way
        values = np.asarray(values)
    return _KINDS[element.kind].encode(values, element, on_overflow)


def guessed(values: Any) -> tuple[NDArray[Any], Dtype]:
    """Return what the user gives without a type, as an array, and the type to store: h5py's rules.

    Examples
    --------
    >>> guessed(["a", "b"])[1].metadata, guessed([1, 2])[1]
    (mappingproxy({'vlen': <class 'str'>}), dtype('int64'))
    """
    item = _item_type(values)
    if item is str or item is bytes:
        return np.asarray(values, dtype=object, order="C"), string_dtype("utf-8" if item is str else "ascii")
    if item is not None and item.__name__ in ("Reference", "RegionReference"):
        return np.asarray(values, dtype=object), special_dtype(ref=item)
    array = np.asarray(values, order="C")
    if array.dtype.kind == "S" and not array.dtype.itemsize:
        array = array.astype("S1")
    return array, array.dtype


def _item_type(values: Any) -> type | None:
    """Return the one Python type of all items of nested lists or of an object array; the type of anything else."""
    if isinstance(values, np.ndarray):
        if values.dtype.kind != "O" or values.dtype.metadata:
            return None
        kinds: set[type | None] = set(map(type, values.ravel().tolist()))
    elif isinstance(values, (list, tuple)):
        kinds = set(map(_item_type, values))
    else:
        return type(values)
    return kinds.pop() if len(kinds) == 1 else None


def numbers(values: Any, dtype: DTypeLike) -> NDArray[Any]:
    """Turn what the user gives for numbers into an array of numbers, of a type that loses nothing.

    Parameters
    ----------
    values : array-like of numbers, or of what numpy reads as numbers (text)
    dtype : dtype-like, the type that will be stored

    Returns
    -------
    ndarray
        Arrays, and what gives one, as they are, without a mask; Python's own numbers of `dtype` if they fit. Whether
        the values fit `dtype` is left to the conversion to the file.

    Raises
    ------
    ConversionError
        No numbers.
    RangeError
        Text, or an integer beyond 64 bits, that `dtype` cannot hold.

    Examples
    --------
    >>> numbers([1, 300], "u1")
    array([  1, 300])
    """
    dt = np.dtype(dtype)
    if type(values) in (int, float, bool):
        # the short way of ``ds[i] = 3``; what does not fit takes the long one
        try:
            with np.errstate(over="raise"):
                return np.asarray(values, dtype=dt.newbyteorder("="))
        except (OverflowError, FloatingPointError, ValueError):
            pass
    if not isinstance(values, np.ndarray):
        # not `dtype=`: numpy would wrap its own scalars, and what has an `__array__`, into the smaller type
        if dt.str[1:] == "u8" and _all_are(values, int):
            # beyond int64 numpy would make floats of them
            try:
                return np.asarray(values, order="C", dtype=dt.newbyteorder("="))
            except OverflowError:
                pass
        array = np.asarray(values, order="C")
        if array.dtype.kind in "biufc":
            return array
        try:
            with np.errstate(over="raise"):
                return np.asarray(values, order="C", dtype=dt.newbyteorder("="))
        except (OverflowError, FloatingPointError) as problem:
            raise RangeError(f"a value does not fit {dt}: {problem}; store a wider type") from None
    if values.dtype.kind not in "biufc":
        raise ConversionError(f"No conversion path for dtype: {values.dtype!r} to {dtype!r}")
    # what masked arrays are converted to under their mask is not what they have
    return np.asarray(values)


def _encode_numbers(values: Any, element: Element, _: Overflow) -> NDArray[Any]:
    array = numbers(values, element.dtype)
    if array.dtype.kind == "c":
        raise ConversionError(f"No conversion path for dtype: {array.dtype!r} to {element.dtype!r}; take .real")
    return array


def from_fields(array: NDArray[Any], dtype: Dtype) -> NDArray[Any]:
    """Return complex numbers that are given as HDF5 has them, a compound of ``r`` and ``i``; any other array as it is.

    Raises
    ------
    ConversionError
        A compound without these two fields of real numbers.
    """
    names = array.dtype.names
    if names is None:
        return array
    if not {"r", "i"} <= set(names) or not all(array[name].dtype.kind in "biuf" for name in "ri"):
        lacks = "it has not the fields 'r' and 'i' of real numbers, which a complex number is in HDF5"
        raise ConversionError(f"No conversion path for dtype: {array.dtype!r} to {dtype!r}: {lacks}")
    made = np.empty(array.shape, np.result_type(np.complex64, array["r"], array["i"]))
    made.real, made.imag = array["r"], array["i"]
    return made


def _encode_complex(values: Any, element: Element, _: Overflow) -> NDArray[Any]:
    return numbers(from_fields(values, element.dtype) if isinstance(values, np.ndarray) else values, element.dtype)


def _encode_members(values: Any, element: Element, on_overflow: Overflow) -> NDArray[Any]:
    array = _encode_numbers(values, element, on_overflow)
    if array.dtype.kind == "f":
        raise ConversionError(f"No conversion path for dtype: {array.dtype!r} to an enum")
    return array


def _encode_float16(values: Any, element: Element, on_overflow: Overflow) -> NDArray[Any]:
    array = _encode_numbers(values, element, on_overflow)
    return array if array.dtype.str[1:] == "f2" else converted(array, np.dtype(np.float16), on_overflow)


def _booleans(values: Any, element: Element, _: Overflow) -> NDArray[np.int8]:
    if not isinstance(values, np.ndarray):
        values = np.asarray(values, dtype=bool)
    elif values.dtype.kind not in "biu":
        raise ConversionError(f"No conversion path for dtype: {values.dtype!r} to bool")
    booleans: NDArray[np.bool_] = values.astype(bool, copy=False)
    return booleans.view(np.int8)


def _no_strings() -> ConversionError:
    return ConversionError("Can't implicitly convert non-string objects to strings")


def _bytes_of(array: NDArray[Any], encoding: str) -> NDArray[np.bytes_]:
    """Return an object array of str and bytes as ``S``, as wide as the longest."""
    flat = array.ravel().tolist()
    coded = [text.encode(encoding) if isinstance(text, str) else text for text in flat]
    if not all(isinstance(text, bytes) for text in coded):
        raise _no_strings()
    width = max(map(len, coded), default=1) or 1
    return np.array(coded, dtype=f"S{width}").reshape(array.shape)


def _vlen_strings(values: Any, element: Element, _: Overflow) -> NDArray[np.bytes_]:
    encoding = element.encoding
    array = values if isinstance(values, np.ndarray) else np.asarray(values, dtype=object)
    kind = array.dtype.kind
    if kind == "S":
        array = np.ascontiguousarray(array).reshape(array.shape)
        zero = array.ravel().view(np.uint8).reshape(array.size, -1) == 0 if array.size else np.zeros((0, 1), bool)
        nul = bool((zero[:, :-1] & ~zero[:, 1:]).any())
    elif kind == "U":
        flat = np.ascontiguousarray(array).reshape(-1)
        codes = flat.view(np.uint32).reshape(array.size, -1) if array.size else np.ones((0, 1))
        nul = bool(((codes[:, :-1] == 0) & (codes[:, 1:] != 0)).any())
        array = np.char.encode(array, encoding)
    elif kind in "OT":
        objects = array.astype(object, copy=False)
        array = _bytes_of(objects, encoding)
        nul = any((b"\0" if isinstance(text, bytes) else "\0") in text for text in objects.ravel().tolist())
    else:
        raise _no_strings()
    if nul:
        raise DefinitionError("VLEN strings do not support embedded NULLs")
    return array if array.dtype.itemsize else array.astype("S1")


def _all_are(values: Any, kind: type) -> bool:
    """Return whether a value, or each item of nested lists, none of which is empty, is of this type."""
    if isinstance(values, (list, tuple)):
        return bool(values) and all(_all_are(value, kind) for value in values)
    return type(values) is kind


def _fixed_strings(values: Any, element: Element, _: Overflow) -> NDArray[np.bytes_]:
    """Return strings cut to the element's width; what is shorter is padded with NUL by the conversion to the file."""
    size = element.itemsize
    if isinstance(values, np.ndarray):
        kind = values.dtype.kind
        if kind in "OT":
            array = _bytes_of(values.astype(object, copy=False), "utf-8" if kind == "T" else element.encoding)
        elif kind == "S":
            array = values
        else:
            raise ConversionError(f"No conversion path for dtype: {values.dtype!r} to {element.dtype!r}")
    elif element.encoding == "utf-8" and _all_are(values, str):
        array = _bytes_of(np.asarray(values, dtype=object), "utf-8")
    else:
        array = np.asarray(values, dtype=f"S{size}")
    return np.ascontiguousarray(array, dtype=f"S{size}").reshape(array.shape)


def decode(raw: NDArray[np.uint8], element: Element, shape: tuple[int, ...]) -> NDArray[Any]:
    """Turn bytes of the file into what the user sees.

    Parameters
    ----------
    raw : uint8[n * itemsize], contiguous, elements as in the file
    element : Element
    shape : tuple of int

    Returns
    -------
    ndarray
        New, writable, of `element.dtype`; strings of varying length are ``bytes`` objects.

    Examples
    --------
    >>> decode(np.frombuffer(b"\\0\\1\\0\\2", np.uint8), element_for("i2"), (2,))
    array([1, 2], dtype=int16)
    """
    return _KINDS[element.kind].decode(raw, element, shape)


def _encode_raw(values: Any, element: Element, _: Overflow) -> NDArray[Any]:
    """Return an array of `element.file_dtype`, int64 for dates: the bytes of the file, which are only copied from here
    on."""
    dt = element.dtype
    array = values if isinstance(values, np.ndarray) else np.asarray(values, dtype=np.dtype(dt.str))
    if element.kind == "longdouble":
        if array.dtype.kind not in "biufc" or (array.dtype.kind == "c" and dt.kind != "c"):
            raise ConversionError(f"No conversion path for dtype: {array.dtype!r} to {dt!r}")
        array = array.astype(dt)
    elif array.dtype != dt:
        raise ConversionError(f"No conversion path for dtype: {array.dtype!r} to {dt!r}")
    array = np.ascontiguousarray(array).reshape(array.shape)
    if element.kind == "datetime":
        return array.view("i8") if array.dtype.isnative else array.astype(dt.newbyteorder("=")).view("i8")
    return array.view(element.file_dtype)


def _encode_arrays(values: Any, element: Element, on_overflow: Overflow) -> NDArray[Any]:
    dt = element.dtype
    assert dt.subdtype is not None
    base, shape = dt.subdtype
    array = values if isinstance(values, np.ndarray) else np.asarray(values, order="C")
    if array.dtype.kind not in "biuf":
        raise ConversionError(f"No conversion path for dtype: {array.dtype!r} to {dt!r}")
    if array.shape[-len(shape) :] != shape:
        raise ConversionError(
            f"When writing to array types, last N dimensions must match (got {array.shape[-len(shape) :]}, "
            f"but should be {shape})"
        )
    raw = np.empty(array.size * base.itemsize, np.uint8)
    to_file(array, base.newbyteorder(">"), raw, on_overflow=on_overflow)
    return raw.view(f"V{dt.itemsize}").reshape(array.shape[: -len(shape)])


# ---------------------------------------------------------------------------------------------------- from the file


def _decode_numbers(raw: NDArray[np.uint8], element: Element, shape: Shape) -> NDArray[Any]:
    return raw.view(element.file_dtype).reshape(shape).astype(element.dtype)


def _decode_float16(raw: NDArray[np.uint8], element: Element, shape: Shape) -> NDArray[Any]:
    with np.errstate(over="ignore"):
        # what float16 cannot hold becomes infinity
        return _decode_numbers(raw, element, shape)


def _decode_booleans(raw: NDArray[np.uint8], element: Element, shape: Shape) -> NDArray[Any]:
    return np.asarray(raw.view(element.file_dtype).reshape(shape) != 0)


def _decode_vlen_strings(raw: NDArray[np.uint8], element: Element, shape: Shape) -> NDArray[Any]:
    objects = np.empty(shape, dtype=element.dtype)
    objects[...] = raw.view(element.file_dtype).reshape(shape)
    return objects


def _decode_raw(raw: NDArray[np.uint8], element: Element, shape: Shape) -> NDArray[Any]:
    return raw.view(np.dtype(element.dtype.str)).astype(element.dtype).reshape(shape)


def _decode_dates(raw: NDArray[np.uint8], element: Element, shape: Shape) -> NDArray[Any]:
    dt = element.dtype
    return raw.view(">i8").astype("i8").view(dt.newbyteorder("=")).astype(dt).reshape(shape)


def _decode_arrays(raw: NDArray[np.uint8], element: Element, shape: Shape) -> NDArray[Any]:
    """Return arrays, whose axes are behind those of `shape`."""
    dt = element.dtype
    assert dt.subdtype is not None
    base, inner = dt.subdtype
    found = raw.view(base.newbyteorder(">")).astype(base)
    if prod(shape) * dt.itemsize != raw.nbytes:
        # the shape of an array that has these axes already
        shape = shape[: -len(inner)]
    return found.reshape((*shape, *inner))


class _Conversion(NamedTuple):
    """How the values of one kind of element go to the file and come back: see `encode` and `decode`."""

    encode: Callable[[Any, Element, Overflow], NDArray[Any]]
    decode: Callable[[NDArray[np.uint8], Element, Shape], NDArray[Any]]


_KINDS: dict[Kind, _Conversion] = {
    "number": _Conversion(_encode_numbers, _decode_numbers),
    "bool": _Conversion(_booleans, _decode_booleans),
    "string": _Conversion(_fixed_strings, _decode_numbers),
    "vlen_string": _Conversion(_vlen_strings, _decode_vlen_strings),
    "enum": _Conversion(_encode_members, _decode_numbers),
    "complex": _Conversion(_encode_complex, _decode_numbers),
    "float16": _Conversion(_encode_float16, _decode_float16),
    "array": _Conversion(_encode_arrays, _decode_arrays),
    "opaque": _Conversion(_encode_raw, _decode_raw),
    "longdouble": _Conversion(_encode_raw, _decode_raw),
    "datetime": _Conversion(_encode_raw, _decode_dates),
    # of the byte that stands for it: its values are those of several variables, see `mapping.composite`
    "composite": _Conversion(_encode_numbers, _decode_numbers),
}
