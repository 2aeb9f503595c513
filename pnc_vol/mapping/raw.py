"""Elements of several numbers, or of bytes: array types, opaque data, long doubles, dates.

Knows: such types, and their values as bytes of the file. Does not know: variables, headers.

Rules
-----
1. An array type of numbers is its numbers, with trailing dimensions; other programs see an array with more axes.
2. Opaque data and long doubles are their bytes, as the machine has them, with a trailing dimension; dates are their
   int64.
3. `encode_raw` makes bytes in the file's form, so that everything after it only carries bytes.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pnc_vol.errors import ConversionError
from pnc_vol.format.convert import to_file
from pnc_vol.format.types import INT64, UBYTE, nc_type
from pnc_vol.mapping.names import NameBook
from pnc_vol.mapping.special import Dtype, metadata_of, with_metadata

if TYPE_CHECKING:
    from pnc_vol.mapping.dtypes import Element

__all__ = ["decode_raw", "encode_raw", "raw_parts"]


def raw_parts(dt: Dtype) -> tuple[Dtype, Dtype, int, tuple[int, ...], tuple[str, ...], str] | None:
    """What makes an `Element` for a type of this module; None for a type that is none of it.

    Examples
    --------
    >>> raw_parts(np.dtype(("<f4", (3,))))[3:]
    ((3,), ('array_3',), 'array')
    """
    if metadata_of(dt).get("h5py_opaque") or (dt.kind == "V" and dt.names is None and dt.subdtype is None):
        shown = with_metadata(dt.str, {"h5py_opaque": True}) if metadata_of(dt).get("h5py_opaque") else np.dtype(dt.str)
        if dt.kind in "Mm":
            return shown, np.dtype(">i8"), INT64, (), (), "datetime"
        return shown, np.dtype(f"V{dt.itemsize}"), UBYTE, (dt.itemsize,), (f"bytes_{dt.itemsize}",), "opaque"
    if dt.kind in "fc" and dt.itemsize > (8 if dt.kind == "f" else 16):
        size = dt.itemsize
        return dt, np.dtype(f"V{size}"), UBYTE, (size,), (f"bytes_{size}",), "longdouble"
    if dt.subdtype is not None:
        base, shape = dt.subdtype
        if base.kind in "iuf" and base.metadata is None and base.itemsize <= 8 and base.str[1:] != "f2" and prod(shape):
            # two axes never share a dimension, see `mapping.dimensions`
            book = NameBook()
            names = tuple(book.take(f"array_{n}") for n in shape)
            return dt, np.dtype(f"V{dt.itemsize}"), nc_type(base).code, shape, names, "array"
    return None


def encode_raw(values: Any, element: Element) -> NDArray[Any]:
    """What the user gives as elements of the file.

    Returns
    -------
    ndarray
        Of `element.file_dtype`, or int64 for dates; its shape is that of the elements.

    Raises
    ------
    ConversionError
        No way from the values to the type; the last axes of an array type are not its own.
    """
    dt = element.dtype
    if element.kind == "array":
        return _encode_arrays(values, dt)
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


def _encode_arrays(values: Any, dt: Dtype) -> NDArray[Any]:
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
    to_file(array, base.newbyteorder(">"), raw)
    return raw.view(f"V{dt.itemsize}").reshape(array.shape[: -len(shape)])


def decode_raw(raw: NDArray[np.uint8], element: Element, shape: tuple[int, ...]) -> NDArray[Any]:
    """Bytes of the file as the user sees them; an array type adds its axes to `shape`."""
    dt = element.dtype
    if element.kind == "datetime":
        return raw.view(">i8").astype("i8").view(dt.newbyteorder("=")).astype(dt).reshape(shape)
    if element.kind == "array":
        assert dt.subdtype is not None
        base, inner = dt.subdtype
        found = raw.view(base.newbyteorder(">")).astype(base)
        if prod(shape) * dt.itemsize != raw.nbytes:
            # the shape of an array that has these axes already
            shape = shape[: -len(inner)]
        return found.reshape((*shape, *inner))
    return raw.view(np.dtype(dt.str)).astype(dt).reshape(shape)
