"""How one element of a dataset is spelled in the file.

Knows: numpy dtypes with h5py's metadata, NC type codes, hidden trailing dimensions. Does not know: variables,
headers, selections, byte ranges; conversion of numbers to big-endian is `format.convert`'s.

Rules
-----
1. Strings are characters with a trailing dimension, booleans bytes, complex numbers have a trailing dimension of 2,
   enums are their base type, float16 is float; array types, opaque data and long doubles are `mapping.raw`'s.
   Compounds,
   arrays of varying length and references take several variables (`mapping.composite`); theirs is a byte that holds
   nothing. Everything else is the type of the same name.
2. `encode` takes what h5py takes and refuses what it refuses; strings are the exception where h5py's refusal
   is a gap of HDF5's converters (bytes into fixed UTF-8, objects into fixed ASCII): they are stored.
3. Numbers are not checked against the stored type here: `format.convert` does that while it copies.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pnc_vol.errors import ConversionError, DefinitionError, RangeError
from pnc_vol.format.types import BYTE, CHAR, DOUBLE, FLOAT, nc_type
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
    "decode",
    "element_for",
    "encode",
    "numbers",
]

Kind = Literal[
    "number", "bool", "string", "vlen_string", "enum", "complex", "float16",
    "array", "opaque", "longdouble", "datetime", "composite",
]  # fmt: skip
RAW_KINDS = frozenset(("array", "opaque", "longdouble", "datetime"))
"""Kinds that `mapping.raw` encodes; it is loaded when there is something of them, as few files have."""
COMPLEX_DIM = "_pfnc_complex"
"""Name of the trailing dimension of complex variables, as nc-complex (netCDF4's ``auto_complex``) writes it."""


@dataclass(frozen=True, slots=True)
class Element:
    """How one element is spelled in the file.

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

    def same_as(self, other: Element) -> bool:
        """Equality that also looks at the metadata of the dtype, which numpy's ``==`` does not."""
        return self == other and metadata_of(self.dtype) == metadata_of(other.dtype)

    def widened(self, width: int) -> Element:
        """The same string element with room for `width` bytes."""
        width = max(1, width)
        return replace(self, file_dtype=np.dtype(f"S{width}"), trailing=(width,), trailing_names=(f"strlen_{width}",))


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
    if dt.kind in "VMm" or dt.metadata or dt.char in "gG":
        from pnc_vol.mapping.raw import raw_parts

        raw = raw_parts(dt)
        if raw is not None:
            shown, file_dtype, code, trailing, names, kind = raw
            return Element(shown, file_dtype, code, trailing, names, kind)  # type: ignore[arg-type]
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


# ------------------------------------------------------------------------------------------- the values


def encode(values: Any, element: Element) -> NDArray[Any]:
    """Turn what the user gives into an array that `format.convert.to_file` takes.

    Parameters
    ----------
    values : array-like
    element : Element

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
    >>> encode(["a", "bcd"], element_for(string_dtype()))
    array([b'a', b'bcd'], dtype='|S3')
    """
    if element.kind == "vlen_string":
        return _vlen_strings(values, element.encoding)
    if element.kind == "string":
        return _fixed_strings(values, element)
    if element.kind == "bool":
        return _booleans(values)
    if element.kind in RAW_KINDS:
        from pnc_vol.mapping.raw import encode_raw

        return encode_raw(values, element)
    array = numbers(values, element.dtype)
    if array.dtype.kind == "c" and element.kind != "complex":
        raise ConversionError(f"No conversion path for dtype: {array.dtype!r} to {element.dtype!r}; take .real")
    if array.dtype.kind == "f" and element.kind == "enum":
        raise ConversionError(f"No conversion path for dtype: {array.dtype!r} to an enum")
    if element.kind == "float16" and array.dtype.str[1:] != "f2":
        try:
            with np.errstate(over="raise"):
                return array.astype(np.float16)
        except FloatingPointError:
            raise RangeError("a value is beyond float16, whose largest is 65504") from None
    return array


def numbers(values: Any, dtype: DTypeLike) -> NDArray[Any]:
    """Turn what the user gives for numbers into an array of numbers, of a type that loses nothing.

    Parameters
    ----------
    values : array-like of numbers, or of what numpy reads as numbers (text)
    dtype : dtype-like, the type that will be stored

    Returns
    -------
    ndarray
        Arrays, and what gives one, as they are; Python's own numbers of `dtype` if they fit. Whether the values fit
        `dtype` is left to the conversion to the file.

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
        if dt.str[1:] == "u8" and _all_int(values):
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
    return values


def _booleans(values: Any) -> NDArray[np.int8]:
    if not isinstance(values, np.ndarray):
        values = np.asarray(values, dtype=bool)
    elif values.dtype.kind not in "biu":
        raise ConversionError(f"No conversion path for dtype: {values.dtype!r} to bool")
    booleans: NDArray[np.bool_] = values.astype(bool, copy=False)
    return booleans.view(np.int8)


def _no_strings() -> ConversionError:
    return ConversionError("Can't implicitly convert non-string objects to strings")


def _bytes_of(array: NDArray[Any], encoding: str) -> NDArray[np.bytes_]:
    """An object array of str and bytes as ``S``, as wide as the longest."""
    flat = array.ravel().tolist()
    coded = [text.encode(encoding) if isinstance(text, str) else text for text in flat]
    if not all(isinstance(text, bytes) for text in coded):
        raise _no_strings()
    width = max(map(len, coded), default=1) or 1
    return np.array(coded, dtype=f"S{width}").reshape(array.shape)


def _vlen_strings(values: Any, encoding: str) -> NDArray[np.bytes_]:
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


def _all_str(values: Any) -> bool:
    if isinstance(values, (list, tuple)):
        return bool(values) and all(map(_all_str, values))
    return type(values) is str


def _all_int(values: Any) -> bool:
    if isinstance(values, (list, tuple)):
        return bool(values) and all(map(_all_int, values))
    return type(values) is int


def _fixed_strings(values: Any, element: Element) -> NDArray[np.bytes_]:
    """Strings cut to the element's width; what is shorter is padded with NUL by the conversion to the file."""
    size = element.itemsize
    if isinstance(values, np.ndarray):
        kind = values.dtype.kind
        if kind in "OT":
            array = _bytes_of(values.astype(object, copy=False), "utf-8" if kind == "T" else element.encoding)
        elif kind == "S":
            array = values
        else:
            raise ConversionError(f"No conversion path for dtype: {values.dtype!r} to {element.dtype!r}")
    elif element.encoding == "utf-8" and _all_str(values):
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
    if element.kind in RAW_KINDS:
        from pnc_vol.mapping.raw import decode_raw

        return decode_raw(raw, element, shape)
    array = raw.view(element.file_dtype).reshape(shape)
    if element.kind == "bool":
        return np.asarray(array != 0)
    if element.kind == "vlen_string":
        objects = np.empty(shape, dtype=element.dtype)
        objects[...] = array
        return objects
    if element.kind == "float16":
        with np.errstate(over="ignore"):
            # what float16 cannot hold becomes infinity
            return array.astype(element.dtype)
    return array.astype(element.dtype)
