"""Values of types that NetCDF attributes cannot have are JSON text: compounds, arrays of varying length, references.

Knows: dtypes and their values, the marker of such an attribute. Does not know: names, owners, headers.

Rules
-----
1. A compound is a list of its fields' values, an array a list; numbers are JSON numbers (which round-trip exactly),
   text is text.
   Bytes that are no text, long doubles and opaque data are hexadecimal, dates integers, references ``[path]`` or
   ``[path, region]``.
2. What is read is not trusted: anything that does not fit is a `ValueError` or a `TypeError`, and what is
   allocated is what the text itself takes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pnc_vol.errors import DefinitionError
from pnc_vol.format.model import CHAR, Attr
from pnc_vol.mapping.composite import conform, ragged_base, references
from pnc_vol.mapping.describe import describe, undescribe
from pnc_vol.mapping.dtypes import Dtype, check_string_dtype, element_for, metadata_of
from pnc_vol.mapping.encoding import decode, encode
from pnc_vol.mapping.references import Reference, RegionReference

__all__ = ["from_attr", "from_text", "literal", "to_attr", "to_text"]

MAX_RANK = 32


def to_attr(
    name: str, dtype: Dtype, shape: tuple[int, ...] | None, value: NDArray[Any] | None
) -> tuple[Attr, dict[str, Any]]:
    """Do as `attribute_encoding.to_attr` does, for a value that is JSON text."""
    marker = {"type": "json", "dtype": describe(dtype)}
    if shape is None or value is None:
        return Attr(name, CHAR, 0, b""), {**marker, "null": True}
    if shape:
        marker["shape"] = list(shape)
    text = to_text(value, dtype).encode("utf-8", "surrogateescape")
    return Attr(name, CHAR, len(text), text), marker


def from_attr(attr: Attr, marker: Mapping[str, Any]) -> tuple[Dtype, tuple[int, ...] | None, NDArray[Any] | None]:
    """Do as `attribute_encoding.from_attr` does; whatever does not fit is a ValueError, or another error of
    `from_text`."""
    described = undescribe(marker.get("dtype"))
    if described is None or attr.type != CHAR:
        raise ValueError("dtype")
    dtype = element_for(described).dtype
    if marker.get("null") is True and not attr.nelems:
        return dtype, None, None
    shape = marker.get("shape", [])
    if not isinstance(shape, list) or len(shape) > MAX_RANK or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError("shape")
    try:
        return dtype, tuple(shape), from_text(attr.data.decode("utf-8", "surrogateescape"), dtype, tuple(shape))
    except RecursionError:
        raise ValueError("depth") from None


def literal(value: Any, wanted: Dtype) -> NDArray[Any]:
    """Return what the user gives for an attribute, as an array of `wanted`.

    Raises
    ------
    TypeError, ValueError
        It does not convert; the last axes of an array type are not its own.
    """
    element = element_for(wanted)
    dtype = element.dtype
    if element.kind == "composite":
        return conform(value, dtype)
    array = np.asarray(value)
    inner = () if dtype.subdtype is None else dtype.subdtype[1]
    if inner and array.shape[array.ndim - len(inner) :] != inner:
        raise DefinitionError(f"array dtype shape {inner} is incompatible with data of shape {array.shape}")
    coded = encode(value, element)
    if coded.dtype.kind != "V":
        return coded.view(np.dtype(dtype.str))
    return decode(np.ascontiguousarray(coded).reshape(-1).view(np.uint8), element, coded.shape)


def to_text(values: NDArray[Any], dtype: Dtype) -> str:
    """Return an array of `dtype` as JSON.

    Parameters
    ----------
    values : ndarray, of `dtype`; of an array type, with its axes
    dtype : dtype

    Examples
    --------
    >>> to_text(np.array((1, 2.5), "i4,f4"), np.dtype("i4,f4"))
    '[1,2.5]'
    """
    inner = 0 if dtype.subdtype is None else len(dtype.subdtype[1])
    return json.dumps(_listed(values, dtype, values.ndim - inner), separators=(",", ":"), ensure_ascii=False)


def _listed(values: Any, dtype: Dtype, axes: int) -> Any:
    """Return the items of an array of so many axes; an item may be an array itself."""
    if axes <= 0:
        return _one(values, dtype)
    return [_listed(item, dtype, axes - 1) for item in values]


def _one(value: Any, dtype: Dtype) -> Any:
    if isinstance(value, np.ndarray) and value.shape == ():
        value = value[()]
    if dtype.names is not None:
        assert dtype.fields is not None
        return [_one(value[name], dtype.fields[name][0]) for name in dtype.names]
    base = ragged_base(dtype)
    if base is not None:
        return [] if value is None or not isinstance(value, np.ndarray) else [_one(item, base) for item in value]
    if dtype.subdtype is not None:
        return _listed(value, dtype.subdtype[0], len(dtype.subdtype[1]))
    kind = metadata_of(dtype).get("ref")
    if kind is not None:
        value = references(value, kind).item()
        if not isinstance(value, Reference):
            return [""]
        return [value.path, value.region] if isinstance(value, RegionReference) else [value.path]
    if check_string_dtype(dtype) is not None:
        coded = value if isinstance(value, bytes) else (value or "").encode("utf-8", "surrogateescape")
        return coded.decode("utf-8", "surrogateescape")
    if metadata_of(dtype).get("h5py_opaque") and dtype.kind in "Mm":
        return int(np.asarray(value).astype(dtype.newbyteorder("=")).view("i8"))
    if dtype.kind == "V" or metadata_of(dtype).get("h5py_opaque") or (dtype.kind in "fc" and dtype.char in "gG"):
        return np.asarray(value, np.dtype(dtype.str)).tobytes().hex()
    if dtype.kind == "c":
        return [float(value.real), float(value.imag)]
    return value.item() if isinstance(value, np.generic) else value


def from_text(text: str, dtype: Dtype, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the array of `dtype` and `shape` that `to_text` was given.

    Raises
    ------
    ValueError, TypeError, KeyError, OverflowError
        The text does not fit.
    """
    found = json.loads(text)
    flat: list[Any] = []
    _flatten(found, shape, flat)
    if dtype.subdtype is not None:
        base, inner = dtype.subdtype
        made = np.empty((len(flat), *inner), base)
        for at, item in enumerate(flat):
            made[at] = _made(item, dtype)
        return made.reshape((*shape, *inner))
    made = np.zeros(len(flat), dtype)
    for at, item in enumerate(flat):
        made[at] = _made(item, dtype)
    return made.reshape(shape)


def _flatten(found: Any, shape: tuple[int, ...], flat: list[Any]) -> None:
    if not shape:
        flat.append(found)
        return
    if not isinstance(found, list) or len(found) != shape[0]:
        raise ValueError("shape")
    for item in found:
        _flatten(item, shape[1:], flat)


def _made(item: Any, dtype: Dtype) -> Any:
    if dtype.names is not None:
        assert dtype.fields is not None
        if not isinstance(item, list) or len(item) != len(dtype.names):
            raise ValueError("fields")
        # of one element: into a scalar, numpy would spread the values of a row
        made = np.zeros(1, dtype)
        for name, value in zip(dtype.names, item, strict=True):
            made[name][0] = _made(value, dtype.fields[name][0])
        return made[0]
    base = ragged_base(dtype)
    if base is not None:
        row = np.empty(len(item), base)
        for at, value in enumerate(item):
            row[at] = _made(value, base)
        return row
    if dtype.subdtype is not None:
        flat: list[Any] = []
        _flatten(item, dtype.subdtype[1], flat)
        inner = np.empty(len(flat), dtype.subdtype[0])
        for at, value in enumerate(flat):
            inner[at] = _made(value, dtype.subdtype[0])
        return inner.reshape(dtype.subdtype[1])
    return _scalar(item, dtype)


def _scalar(item: Any, dtype: Dtype) -> Any:
    if "ref" in metadata_of(dtype):
        path, *region = item
        if not isinstance(path, str) or not all(isinstance(part, str) for part in region) or len(region) > 1:
            raise ValueError("reference")
        return RegionReference(path, None, region[0]) if region else Reference(path)
    info = check_string_dtype(dtype)
    if info is not None:
        if not isinstance(item, str):
            raise ValueError("text")
        coded = item.encode("utf-8", "surrogateescape")
        if info.length is None:
            return coded
        if len(coded) > info.length:
            raise ValueError("text")
        return coded
    if metadata_of(dtype).get("h5py_opaque") and dtype.kind in "Mm":
        return np.array(item, "i8").view(dtype.newbyteorder("="))[()]
    if dtype.kind == "V" or metadata_of(dtype).get("h5py_opaque") or (dtype.kind in "fc" and dtype.char in "gG"):
        raw = bytes.fromhex(item)
        if len(raw) != dtype.itemsize:
            raise ValueError("bytes")
        return np.frombuffer(raw, np.dtype(dtype.str))[0]
    if dtype.kind == "c":
        real, imaginary = item
        return complex(real, imaginary)
    if not isinstance(item, (int, float, bool)):
        raise ValueError("number")
    return item
