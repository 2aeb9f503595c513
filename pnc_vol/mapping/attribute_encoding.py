"""One attribute value is made of what a user gives, encoded for the header, and decoded again.

Knows: h5py's rules for types of attributes, NC types, the keys of an attribute's marker (``type``, ``order``,
``encoding``, ``enum``, ``shape``, ``null``, ``width``, ``lengths``, ``dtype``). Does not know: names that attributes
may have, owners.

Rules
-----
1. A NetCDF attribute is a 1-D row of values. Without a marker one value is a scalar, more are 1-D, characters are one
   ``str``. What differs from that is in the marker: shape, type, lengths.
2. Several strings are joined by ``", "``, so that other tools show them; ``lengths`` (bytes of each) takes them apart
   again, whatever they hold.
3. A string of fixed width is stored without its padding, if what the padding would take is small.
4. A marker is checked against the bytes; one that does not fit is ignored and reported, and no memory is ever
   allocated because of it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from math import prod
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pnc_vol.errors import ConversionError, DefinitionError, RangeError
from pnc_vol.format.model import CHAR, DOUBLE, FLOAT, TYPES, Attr
from pnc_vol.format.numeric import converted
from pnc_vol.mapping import conventions
from pnc_vol.mapping.dtypes import (
    COMPLEX_DIM,
    RAW_KINDS,
    Dtype,
    Element,
    element_for,
    is_empty,
    metadata_of,
    string_dtype,
)
from pnc_vol.mapping.encoding import decode, encode, guessed, numbers
from pnc_vol.mapping.names import is_shape

if TYPE_CHECKING:
    from pnc_vol.mapping.names import Sink

__all__ = ["Attribute", "decode_attribute", "encode_attribute", "fitting", "make_attribute"]

Shape = tuple[int, ...] | None
Marker = Mapping[str, Any]

SEPARATOR = b", "
PADDING = 1 << 16
"""The largest padding that a marker may ask for; bytes."""
LITERAL = RAW_KINDS | {"composite"}
"""Kinds of values that are written as JSON text."""


class Attribute(NamedTuple):
    """The value of an attribute.

    dtype : dtype as stored, with h5py's metadata.
    shape : tuple of int, or None for an empty (null) attribute.
    value : read-only ndarray of that shape, or None when `shape` is None; strings of varying length are objects
        of ``str``. Copy it before it goes to a user.
    """

    dtype: Dtype
    shape: tuple[int, ...] | None
    value: NDArray[Any] | None


def _of(dtype: Dtype, shape: tuple[int, ...], value: NDArray[Any]) -> Attribute:
    value.flags.writeable = False
    return Attribute(dtype, shape, value)


def _composite() -> ModuleType:
    """Return `mapping.composite`, for values of the kinds in `LITERAL`."""
    # Few files have such attributes: `import pnc_vol` loads no module that it can do without.
    from pnc_vol.mapping import composite

    return composite


# ------------------------------------------------------------------------------------------ from the user's value


def make_attribute(
    value: Any, *, shape: int | tuple[int, ...] | None = None, dtype: DTypeLike | None = None
) -> Attribute:
    """Make an attribute as ``attrs.create(name, value, shape, dtype)`` of h5py 3.16 does.

    Parameters
    ----------
    value : anything array-like, str, bytes or Empty
    shape : tuple of int, int or None
        Another shape for the same number of values.
    dtype : dtype-like or None
        Type to store; by default the value's own, with ``str`` and ``bytes`` as strings of varying length.

    Raises
    ------
    TypeError
        No equivalent in HDF5: ``U`` arrays, objects that are neither all str nor all bytes.
    ValueError
        Shapes that do not agree, NULs in strings of varying length, values that do not fit.

    Examples
    --------
    >>> make_attribute("K").value.item(), make_attribute([1, 2]).shape
    ('K', (2,))
    """
    wanted = None if dtype is None else np.dtype(dtype)
    if isinstance(shape, (int, np.integer)):
        shape = (int(shape),)
    if is_empty(value):
        if shape is not None:
            raise ConversionError("an Empty attribute has no shape; leave shape= out")
        return Attribute(element_for(value.dtype if wanted is None else wanted).dtype, None, None)
    array, wanted = _as_array(value, wanted)
    element = element_for(wanted)
    axes = element.axes
    if shape is not None:
        shape = (*map(int, shape), *axes)
        if int(np.prod(shape, dtype=object)) != array.size:
            raise DefinitionError(
                f"Shape of new attribute conflicts with shape of data: {shape} was asked, the data has {array.shape}"
            )
        array = array.reshape(shape)
    stored = _as_stored(array, element)
    return _of(element.dtype, stored.shape[: stored.ndim - len(axes)], stored)


def _as_array(value: Any, wanted: Dtype | None) -> tuple[NDArray[Any], Dtype]:
    """Return the value as an array, and the type to store."""
    if wanted is None:
        return guessed(value)
    kind = element_for(wanted).kind
    if kind in LITERAL:
        return _composite().literal(value, wanted), wanted
    if kind in ("number", "enum", "complex", "float16"):
        if isinstance(value, np.ndarray) and value.dtype.kind in "SU":
            value = value.astype(wanted)
        return numbers(value, wanted), wanted
    if not isinstance(value, np.ndarray) or (wanted.kind == "S" and value.dtype.kind != "O"):
        return np.asarray(value, dtype=wanted, order="C"), wanted
    return np.asarray(value, order="C"), wanted


def _as_stored(array: NDArray[Any], element: Element) -> NDArray[Any]:
    """Return the values as they will be read again: of the element's dtype, texts as str; in memory of their own."""
    dtype = element.dtype
    if element.kind in LITERAL:
        # a copy: it may be the user's own
        kept = array.dtype == dtype or dtype.subdtype is not None
        return array.copy() if kept else _composite().literal(array, dtype)
    if element.kind == "vlen_string":
        return _texts(encode(array, element).ravel().tolist(), dtype).reshape(array.shape)
    if element.kind == "string":
        return encode(array, element).astype(dtype)
    if array.dtype.kind not in "biufc":
        raise ConversionError(f"No conversion path for dtype: {array.dtype!r} to {dtype!r}")
    if array.dtype.kind == "c" and dtype.kind != "c":
        raise ConversionError(f"No conversion path for dtype: {array.dtype!r} to {dtype!r}; take .real")
    try:
        return converted(array, dtype)
    except RangeError:
        values = f"{array.item()}" if array.size == 1 else f"values from {array.min()} to {array.max()}"
        raise RangeError(f"{values} cannot be stored as {dtype}: out of its range; give a wider dtype=") from None


def _texts(coded: Sequence[bytes], dtype: Dtype) -> NDArray[Any]:
    """Return an object array of str from bytes; what is no UTF-8 becomes surrogates, as h5py does."""
    texts = np.empty(len(coded), dtype=dtype)
    texts[:] = [text.decode("utf-8", "surrogateescape") for text in coded]
    return texts


def fitting(attribute: Attribute, *, exact: bool) -> Attribute:
    """Return the attribute for a file without 64-bit integers (CDF-1, CDF-2): Python's integers are stored as int32.

    Parameters
    ----------
    exact : bool
        The type was asked for, or came with the value: it stays.

    Examples
    --------
    >>> str(fitting(make_attribute(5), exact=False).dtype)
    'int32'
    """
    value = attribute.value
    if exact or value is None or attribute.dtype != np.int64 or metadata_of(attribute.dtype):
        return attribute
    if value.size and not -(2**31) <= value.min() <= value.max() < 2**31:
        return attribute
    return make_attribute(value.astype(np.int32))


# ------------------------------------------------------------------------------------------------------ writing


def encode_attribute(name: str, attribute: Attribute) -> tuple[Attr, dict[str, Any] | None]:
    """Encode an attribute for the header.

    Parameters
    ----------
    name : str, as it will be in the file
    attribute : Attribute

    Returns
    -------
    attr : Attr
    marker : dict or None
        What the attribute alone does not say; see ``docs/reference/file-format.md``.

    Examples
    --------
    >>> encode_attribute("n", make_attribute([[1, 2]]))[1]
    {'shape': [1, 2]}
    """
    dtype, shape, value = attribute
    element = element_for(dtype)
    if element.is_string:
        return _encode_strings(name, element, shape, value)
    if element.kind in LITERAL:
        return _composite().to_attr(name, dtype, shape, value)  # type: ignore[no-any-return]
    marker = {} if element.kind == "number" and dtype.isnative else _type_marker(element)
    if shape is None or value is None:
        return Attr(name, element.nc_type, 0, b""), {**marker, "null": True}
    # nothing can overflow: the values have the element's type, float16 but widens
    raw = value.astype(element.file_dtype).tobytes()
    if shape != ((value.size,) if value.size != 1 else ()):
        marker["shape"] = list(shape)
    nelems = len(raw) // TYPES[element.nc_type].size
    return Attr(name, element.nc_type, nelems, raw), marker or None


def _type_marker(element: Element) -> dict[str, Any]:
    """Return the marker's keys that speak of the type; an attribute has no conventions to derive it from."""
    return conventions.element_marker(element, _plain(element.nc_type))


def _encode_strings(
    name: str, element: Element, shape: Shape, value: NDArray[Any] | None
) -> tuple[Attr, dict[str, Any] | None]:
    fixed = element.kind == "string"
    width = element.itemsize
    marker: dict[str, Any] = {"type": "string"} if fixed else {}
    if element.encoding != ("ascii" if fixed else "utf-8"):
        marker["encoding"] = element.encoding
    if shape is None or value is None:
        marker |= {"null": True, "width": width} if fixed else {"null": True}
        return Attr(name, CHAR, 0, b""), marker
    texts: list[bytes] = value.ravel().tolist()
    if not fixed:
        texts = [text.encode("utf-8", "surrogateescape") for text in texts]  # type: ignore[attr-defined]
    elif width * len(texts) > PADDING:
        texts = [text.ljust(width, b"\0") for text in texts]
    if shape == ():
        data = texts[0]
    else:
        data = SEPARATOR.join(texts)
        marker["lengths"] = [len(text) for text in texts]
        if shape != (len(texts),):
            marker["shape"] = list(shape)
    if fixed and (shape != () or width != len(data)):
        marker["width"] = width
    return Attr(name, CHAR, len(data), data), marker or None


# ------------------------------------------------------------------------------------------------------ reading


def decode_attribute(attr: Attr, marker: Marker | None = None, findings: Sink | None = None) -> Attribute:
    """Read an attribute of a header.

    Parameters
    ----------
    attr : Attr
    marker : dict or None
        A hint that is checked; what does not fit is ignored.
    findings : Sink or None
        Gets a sentence if the marker was ignored.

    Examples
    --------
    >>> str(decode_attribute(Attr("units", 2, 1, b"K")).value)
    'K'
    """
    read = _strings if attr.type == CHAR else _numbers
    if marker:
        try:
            if marker.get("type") == "json":
                dtype, shape, value = _composite().from_attr(attr, marker)
                return Attribute(dtype, None, None) if value is None else _of(dtype, shape, value)
            return read(attr, marker)
        except (ValueError, TypeError, KeyError, OverflowError, RangeError):
            if findings is not None:
                findings.append(f"attribute {attr.name[:60]!r}: its marker does not fit its {attr.nelems} values")
    return read(attr, {})


def _shape_of(marker: Marker, default: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Return the marker's shape, if it holds just `count` elements."""
    if "shape" not in marker:
        return default
    shape = marker["shape"]
    if not is_shape(shape) or prod(shape) != count:
        raise ValueError("shape")
    return tuple(shape)


def _numbers(attr: Attr, marker: Marker) -> Attribute:
    if not marker:
        element = _plain(attr.type)
    elif marker.get("type") == "complex" and attr.type in (FLOAT, DOUBLE):
        element = conventions.element_of_var(attr.type, (2,), (COMPLEX_DIM,), (), marker, complain=_misfit)
    else:
        element = conventions.element_of_var(attr.type, (), (), (), marker, complain=_misfit)
    if marker.get("null") is True and attr.nelems == 0:
        return Attribute(element.dtype, None, None)
    raw = np.frombuffer(attr.data, np.uint8)
    count, more = divmod(raw.size, element.itemsize)
    if more:
        raise ValueError("number of values")
    shape = _shape_of(marker, (count,) if count != 1 else (), count)
    return _of(element.dtype, shape, decode(raw, element, shape))


@functools.cache
def _plain(code: int) -> Element:
    """Return the element of an attribute without a marker."""
    return conventions.element_of_var(code, (), (), ())


def _misfit(sentence: str) -> None:
    raise ValueError(sentence)


def _strings(attr: Attr, marker: Marker) -> Attribute:
    kind = marker.get("type", "vlen_string")
    if kind not in ("string", "vlen_string"):
        raise ValueError("type")
    fixed = kind == "string"
    encoding = marker.get("encoding", "ascii" if fixed else "utf-8")
    if encoding not in ("ascii", "utf-8"):
        raise ValueError("encoding")
    coded, shape = _taken_apart(attr, marker, fixed)
    width = _width(attr, marker, coded) if fixed else 0
    dtype = string_dtype(encoding, width or None)
    if marker.get("null") is True and attr.nelems == 0:
        return Attribute(dtype, None, None)
    values = np.array(coded, dtype=f"S{width}").astype(dtype) if fixed else _texts(coded, dtype)
    return _of(dtype, shape, values.reshape(shape))


def _taken_apart(attr: Attr, marker: Marker, fixed: bool) -> tuple[list[bytes], tuple[int, ...]]:
    """Return the strings, and their shape."""
    lengths = marker.get("lengths")
    if lengths is None:
        # other writers end a text with NUL now and then; a fixed width puts the NULs back
        return [attr.data.rstrip(b"\0")], _shape_of(marker, (), 1)
    if not isinstance(lengths, list) or not all(type(n) is int and n >= 0 for n in lengths):
        raise ValueError("lengths")
    gaps = len(SEPARATOR) * max(0, len(lengths) - 1)
    if sum(lengths) + gaps != attr.nelems:
        raise ValueError("lengths")
    coded, at = [], 0
    for length in lengths:
        coded.append(attr.data[at : at + length])
        at += length + len(SEPARATOR)
    if not fixed and any(b"\0" in text for text in coded):
        raise ValueError("NUL")
    return coded, _shape_of(marker, (len(coded),), len(coded))


def _width(attr: Attr, marker: Marker, coded: list[bytes]) -> int:
    """Return the number of bytes of each string of fixed width."""
    width = marker.get("width", max(1, attr.nelems))
    longest = max(map(len, coded), default=0)
    if type(width) is not int or width < max(1, longest) or width * max(1, len(coded)) > attr.nelems + PADDING:
        raise ValueError("width")
    return width
