"""One attribute value is encoded from what a user gives to an attribute of the header, and decoded again.

Knows: h5py's rules for types of attributes, NC types, the keys of an attribute's marker (``type``, ``order``,
``encoding``, ``enum``, ``shape``, ``null``, ``width``, ``lengths``, ``dtype``). Does not know: `Attribute`, names,
owners.

Rules
-----
1. Several strings are joined by ``", "``, so that other tools show them; ``lengths`` (bytes of each) takes them apart
   again, whatever they hold.
2. A string of fixed width is stored without its padding, if what the padding would take is small.
3. What a marker says must agree with the number of bytes that are there.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from math import prod
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pnc_vol.errors import ConversionError, RangeError
from pnc_vol.format.model import CHAR, DOUBLE, FLOAT, TYPES, Attr
from pnc_vol.mapping import conventions
from pnc_vol.mapping.dtypes import COMPLEX_DIM, RAW_KINDS, Dtype, Element, element_for, metadata_of, string_dtype
from pnc_vol.mapping.encoding import encode, guessed, numbers

if TYPE_CHECKING:
    from pnc_vol.mapping.names import Sink

__all__ = ["as_array", "as_stored", "from_attr", "frozen", "literals", "texts", "to_attr"]

Shape = tuple[int, ...] | None
Marker = Mapping[str, Any]

SEPARATOR = b", "
PADDING = 1 << 16
"""The largest padding that a marker may ask for; bytes."""
MAX_RANK = 32
LITERAL = RAW_KINDS | {"composite"}
"""Kinds of values that are written as JSON text."""


def literals() -> ModuleType:
    """Return `mapping.literals`, for values of the kinds in `LITERAL`."""
    # Few files have such attributes: `import pnc_vol` loads no module that it can do without.
    from pnc_vol.mapping import literals as module

    return module


# ------------------------------------------------------------------------------------------ from the user's value


def as_array(value: Any, wanted: Dtype | None) -> tuple[NDArray[Any], Dtype]:
    """Return the value as an array, and the type to store."""
    if wanted is not None:
        if element_for(wanted).kind in LITERAL:
            return literals().literal(value, wanted), wanted
        if element_for(wanted).kind in ("number", "enum", "complex", "float16"):
            if isinstance(value, np.ndarray) and value.dtype.kind in "SU":
                value = value.astype(wanted)
            return numbers(value, wanted), wanted
        if not isinstance(value, np.ndarray) or (wanted.kind == "S" and value.dtype.kind != "O"):
            return np.asarray(value, dtype=wanted, order="C"), wanted
        return np.asarray(value, order="C"), wanted
    return guessed(value)


def as_stored(array: NDArray[Any], element: Element) -> NDArray[Any]:
    """Return the values as they will be read again: of the element's dtype, texts as str."""
    dtype = element.dtype
    if element.kind in LITERAL:
        return array if array.dtype == dtype or dtype.subdtype is not None else literals().literal(array, dtype)
    if element.kind == "vlen_string":
        coded = encode(array, element)
        return texts(coded.ravel().tolist(), dtype).reshape(array.shape)
    if element.kind == "string":
        return encode(array, element).astype(dtype)
    if array.dtype.kind not in "biufc":
        raise ConversionError(f"No conversion path for dtype: {array.dtype!r} to {dtype!r}")
    if array.dtype.kind == "c" and dtype.kind != "c":
        raise ConversionError(f"No conversion path for dtype: {array.dtype!r} to {dtype!r}; take .real")
    if dtype.kind in "iu" and array.dtype.kind in "iuf" and array.size:
        limits = np.iinfo(dtype)
        low, high = array.min(), array.max()
        if not (int(limits.min) <= low and high <= int(limits.max)):
            raise _too_large(array, dtype)
    try:
        with np.errstate(over="raise"):
            return array.astype(dtype)
    except FloatingPointError:
        raise _too_large(array, dtype) from None


def _too_large(array: NDArray[Any], dtype: Dtype) -> RangeError:
    values = f"{array.item()}" if array.size == 1 else f"values from {array.min()} to {array.max()}"
    return RangeError(f"{values} cannot be stored as {dtype}: out of its range; give a wider dtype=")


def texts(coded: Sequence[bytes], dtype: Dtype) -> NDArray[Any]:
    """Return an object array of str from bytes; what is no UTF-8 becomes surrogates, as h5py does."""
    texts = np.empty(len(coded), dtype=dtype)
    texts[:] = [text.decode("utf-8", "surrogateescape") for text in coded]
    return texts


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


# ------------------------------------------------------------------------------------------------------ writing


def to_attr(name: str, dtype: Dtype, shape: Shape, value: NDArray[Any] | None) -> tuple[Attr, dict[str, Any] | None]:
    """Return the attribute and its marker (None if the attribute says it all).

    Parameters
    ----------
    name : str, as it will be in the file
    dtype, shape, value
        As in `mapping.attributes.Attribute`.
    """
    if shape == () and value is not None and metadata_of(dtype).get("vlen") is str:
        # by far the most common attribute: one text
        text = value.item().encode("utf-8", "surrogateescape")
        return Attr(name, CHAR, len(text), text), None
    element = element_for(dtype)
    if element.is_string:
        return _strings_to_attr(name, element, shape, value)
    if element.kind in LITERAL:
        return literals().to_attr(name, dtype, shape, value)  # type: ignore[no-any-return]
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
    return conventions.element_marker(element, conventions.element_of_var(element.nc_type, (), (), ()))


def _strings_to_attr(
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


def from_attr(attr: Attr, marker: Marker | None, findings: Sink | None) -> tuple[Dtype, Shape, NDArray[Any] | None]:
    """Return type, shape and values; strings of varying length are still bytes.

    Parameters
    ----------
    attr : Attr
    marker : dict or None, not trusted
    findings : Sink or None, gets a sentence if the marker does not fit
    """
    if marker:
        try:
            if marker.get("type") == "json":
                return literals().from_attr(attr, marker)  # type: ignore[no-any-return]
            return (_strings if attr.type == CHAR else _numbers)(attr, marker)
        except (ValueError, TypeError, KeyError, OverflowError, RangeError):
            if findings is not None:
                findings.append(f"attribute {attr.name[:60]!r}: its marker does not fit its {attr.nelems} values")
    return (_strings if attr.type == CHAR else _numbers)(attr, {})


def _shape_of(marker: Marker, default: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Return the marker's shape, if it holds just `count` elements."""
    shape = marker.get("shape", default)
    if not isinstance(shape, (list, tuple)) or len(shape) > MAX_RANK:
        raise ValueError("shape")
    if not all(type(n) is int and 0 <= n < 1 << 62 for n in shape) or prod(shape) != count:
        raise ValueError("shape")
    return tuple(shape)


def _numbers(attr: Attr, marker: Marker) -> tuple[Dtype, Shape, NDArray[Any] | None]:
    if not marker:
        element = _plain(attr.type)
        values = np.frombuffer(attr.data, element.file_dtype).astype(element.dtype)
        values = values if values.size != 1 else values.reshape(())
        return element.dtype, values.shape, values
    complex_ = marker.get("type") == "complex"
    if complex_ and attr.type in (FLOAT, DOUBLE):
        element = conventions.element_of_var(attr.type, (2,), (COMPLEX_DIM,), (), marker, complain=_misfit)
    else:
        element = conventions.element_of_var(attr.type, (), (), (), marker, complain=_misfit)
    if marker.get("null") is True and attr.nelems == 0:
        return element.dtype, None, None
    raw = np.frombuffer(attr.data, np.uint8)
    if raw.size % element.itemsize:
        raise ValueError("number of values")
    values = raw.view(element.file_dtype)
    shape = _shape_of(marker, (values.size,) if values.size != 1 else (), values.size)
    with np.errstate(over="ignore"):
        # what float16 cannot hold becomes infinity
        return element.dtype, shape, values.astype(element.dtype).reshape(shape)


@functools.cache
def _plain(code: int) -> Element:
    """Return the element of an attribute without a marker."""
    return conventions.element_of_var(code, (), (), ())


def _misfit(sentence: str) -> None:
    raise ValueError(sentence)


def _strings(attr: Attr, marker: Marker) -> tuple[Dtype, Shape, NDArray[Any] | None]:
    kind = marker.get("type", "vlen_string")
    if kind not in ("string", "vlen_string"):
        raise ValueError("type")
    fixed = kind == "string"
    encoding = marker.get("encoding", "ascii" if fixed else "utf-8")
    if encoding not in ("ascii", "utf-8"):
        raise ValueError("encoding")
    texts, shape = _texts(attr, marker, fixed)
    width = _width(attr, marker, texts) if fixed else 0
    dtype = string_dtype(encoding, width or None)
    if marker.get("null") is True and attr.nelems == 0:
        return dtype, None, None
    if fixed:
        values = np.array(texts, dtype=f"S{width}").astype(dtype)
    else:
        values = np.empty(len(texts), dtype=object)
        values[:] = texts
    return dtype, shape, values.reshape(shape)


def _texts(attr: Attr, marker: Marker, fixed: bool) -> tuple[list[bytes], tuple[int, ...]]:
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
    texts, at = [], 0
    for length in lengths:
        texts.append(attr.data[at : at + length])
        at += length + len(SEPARATOR)
    if not fixed and any(b"\0" in text for text in texts):
        raise ValueError("NUL")
    return texts, _shape_of(marker, (len(texts),), len(texts))


def _width(attr: Attr, marker: Marker, texts: list[bytes]) -> int:
    """Return the number of bytes of each string of fixed width."""
    width = marker.get("width", max(1, attr.nelems))
    longest = max(map(len, texts), default=0)
    if type(width) is not int or width < max(1, longest) or width * max(1, len(texts)) > attr.nelems + PADDING:
        raise ValueError("width")
    return width
