"""What a user gives for an attribute, as the array that is kept of it.

Knows: h5py's rules for types of attributes. Does not know: `Attribute`, names, headers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pnc_vol.errors import ConversionError, RangeError
from pnc_vol.mapping.attribute_encoding import LITERAL
from pnc_vol.mapping.dtypes import Element, element_for
from pnc_vol.mapping.encoding import encode, numbers
from pnc_vol.mapping.special import Dtype, check_string_dtype, special_dtype, string_dtype

__all__ = ["as_array", "as_stored", "frozen", "texts"]


def as_array(value: Any, wanted: Dtype | None) -> tuple[NDArray[Any], Dtype]:
    """The value as an array, and the type to store."""
    if wanted is not None:
        if element_for(wanted).kind in LITERAL:
            return _literal(value, wanted)
        if element_for(wanted).kind in ("number", "enum", "complex", "float16"):
            if isinstance(value, np.ndarray) and value.dtype.kind in "SU":
                value = value.astype(wanted)
            return numbers(value, wanted), wanted
        if not isinstance(value, np.ndarray) or (wanted.kind == "S" and value.dtype.kind != "O"):
            return np.asarray(value, dtype=wanted, order="C"), wanted
        return np.asarray(value, order="C"), wanted
    item = _item_type(value)
    if item is bytes or item is str:
        tagged = string_dtype("ascii" if item is bytes else "utf-8")
        return np.asarray(value, dtype=object, order="C"), tagged
    if item is not None and item.__name__ in ("Reference", "RegionReference"):
        return _literal(value, special_dtype(ref=item))
    array = np.asarray(value, order="C")
    if array.dtype.kind == "S" and not array.dtype.itemsize:
        array = array.astype("S1")
    return array, array.dtype


def _literal(value: Any, wanted: Dtype) -> tuple[NDArray[Any], Dtype]:
    from pnc_vol.mapping.literals import literal

    return literal(value, wanted), wanted


def _item_type(value: Any) -> type | None:
    """The one Python type of all items of an object array or nested list; the type of anything else."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind != "O" or check_string_dtype(value.dtype):
            return None
        types = {type(item) for item in value.ravel().tolist()}
    elif isinstance(value, (list, tuple)):
        types = {_item_type(item) for item in value}  # type: ignore[misc]
    else:
        return type(value)
    return types.pop() if len(types) == 1 else None


def as_stored(array: NDArray[Any], element: Element) -> NDArray[Any]:
    """The values as they will be read again: of the element's dtype, texts as str."""
    dtype = element.dtype
    if element.kind in LITERAL:
        return array if array.dtype == dtype or dtype.subdtype is not None else _literal(array, dtype)[0]
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
    """An object array of str from bytes; what is no UTF-8 becomes surrogates, as h5py does."""
    texts = np.empty(len(coded), dtype=dtype)
    texts[:] = [text.decode("utf-8", "surrogateescape") for text in coded]
    return texts


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array
