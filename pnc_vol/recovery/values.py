"""Values of a log as a session takes them, whatever part of an element they are.

Knows: elements of all kinds, also those with hidden dimensions (strings, complex numbers, arrays). Does not know:
logs, files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pnc_vol.extents.model import Int64
from pnc_vol.extents.selection import Selection
from pnc_vol.mapping.tree import DatasetNode

if TYPE_CHECKING:
    from pnc_vol.file.session import Session

__all__ = ["part_of_elements", "values_of_entry"]

Array = npt.NDArray[Any]


def values_of_entry(node: DatasetNode, flat: Array, shape: tuple[int, ...], hidden: Int64) -> Array:
    """Whole elements from their parts.

    Parameters
    ----------
    flat : array, in memory form, hidden dimensions included.
    shape : tuple of int, of the elements.
    hidden : int64[k], sizes of the hidden dimensions.
    """
    element = node.element
    if element.is_string:
        width = int(hidden[0])
        return np.ascontiguousarray(flat).view(f"S{width}").reshape(shape)
    if element.kind == "complex":
        dtype = flat.dtype
        return np.ascontiguousarray(flat).view(np.dtype(f"{dtype.byteorder}c{2 * dtype.itemsize}")).reshape(shape)
    if element.kind == "bool":
        true: npt.NDArray[np.bool_] = flat != 0
        return true.reshape(shape)
    if element.kind == "array":
        return flat.reshape(*shape, *element.trailing)
    if element.kind in ("opaque", "longdouble"):
        return np.ascontiguousarray(flat).view(np.dtype(element.dtype.str)).reshape(shape)
    if element.kind == "datetime":
        native = element.dtype.newbyteorder("=")
        return flat.astype("i8").view(native).astype(element.dtype).reshape(shape)
    return flat.reshape(shape)


def part_of_elements(
    session: Session, node: DatasetNode, selection: Selection, flat: Array, start: Int64, count: Int64
) -> Array:
    """Whole elements, of which a log has parts: as they are now, with the parts put in.

    Parameters
    ----------
    start, count : int64[k], the parts along the hidden dimensions.
    """
    element = node.element
    shape = selection.result_shape
    now = session.read(node, selection)
    if element.is_string:
        width = max(element.itemsize, int(start[0] + count[0]))
        parts = np.ascontiguousarray(np.asarray(now).astype(f"S{width}")).view("S1").reshape(*shape, width)
    else:
        value = np.dtype(f"f{element.itemsize // 2}")
        parts = np.array(now, np.dtype(f"c{element.itemsize}")).view(value).reshape(*shape, *element.trailing)
    box: tuple[Any, ...] = tuple(slice(int(s), int(s) + int(c)) for s, c in zip(start, count, strict=True))
    parts[(..., *box)] = flat.reshape(*shape, *count.tolist())
    return values_of_entry(node, parts.reshape(-1), shape, np.array(parts.shape[len(shape) :], np.int64))
