"""The values of a log entry as a session takes them, and whether an entry fits its dataset.

Knows: elements of all kinds, also those with hidden dimensions (strings, complex numbers, arrays). Does not know:
where entries come from, which dataset they mean, files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pnc_vol.burst.encoding import Entry
from pnc_vol.errors import LogError
from pnc_vol.extents.model import Int64
from pnc_vol.extents.selection import Selection, hyperslab
from pnc_vol.mapping.tree import DatasetNode

if TYPE_CHECKING:
    from pnc_vol.file.open_file import OpenFile

__all__ = ["alike_and_whole", "blocks_of", "check_entry", "part_of_elements", "values_of_entry", "whole_elements"]

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
    session: OpenFile, node: DatasetNode, selection: Selection, flat: Array, start: Int64, count: Int64
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


def alike_and_whole(node: DatasetNode, entry: Entry, shape: tuple[int, ...]) -> bool:
    """Whether the sub-requests of an entry can be posted in one: whole elements, as wide, all in the shape."""
    rank = len(shape)
    if (entry.count < 0).any() or (rank and bool((entry.start[:, 0] + entry.count[:, 0] > shape[0]).any())):
        return False
    begin, width = entry.start[:, rank:], entry.count[:, rank:]
    return not begin.any() and bool((width == width[0]).all()) and whole_elements(node, begin[0], width[0])


def whole_elements(node: DatasetNode, start: Int64, count: Int64) -> bool:
    """Whether the hidden dimensions are written whole; a string of varying length is as wide as it is."""
    if node.element.kind == "vlen_string":
        return not start.any() and bool((count >= 1).all()) and int(count[0]) != 0
    return not start.any() and tuple(count.tolist()) == node.element.trailing


def blocks_of(entry: Entry, node: DatasetNode, shape: tuple[int, ...]) -> Iterator[tuple[Int64, slice]]:
    """Start, count and stride of each block of an entry as one array, and which of its values are its."""
    full = np.array((*shape, *node.element.trailing), np.int64)
    step = np.ones(entry.ndims, np.int64) if entry.stride is None else entry.stride
    at = 0
    for start, count in zip(entry.start, entry.count, strict=True):
        count = np.where(count < 0, full, count)
        last = at + int(count.prod())
        yield np.stack((start, count, step)), slice(at, last)
        at = last


def check_entry(node: DatasetNode, entry: Entry, shape: tuple[int, ...]) -> None:
    """Raise if an entry cannot be one of this dataset, which has at most this shape."""
    element, rank = node.element, len(shape)
    if entry.ndims != rank + len(element.trailing):
        raise LogError(f"it has {entry.ndims} dimensions, the variable {rank + len(element.trailing)}", field="ndims")
    if (entry.itype == 1) != element.is_string:
        raise LogError("text and numbers cannot be converted to each other", field="itype", value=entry.itype)
    for block, parts in blocks_of(entry, node, shape):
        if parts.start != parts.stop:
            hyperslab(shape, *block[:, :rank].tolist())
        begin, width, step = block[:, rank:]
        if bool(((step != 1) & (width > 1)).any()):
            raise LogError("a stride selects parts of elements", field="stride")
        if element.kind != "vlen_string" and bool((begin + width > np.array(element.trailing, np.int64)).any()):
            raise LogError("it goes beyond an element", field="count")
