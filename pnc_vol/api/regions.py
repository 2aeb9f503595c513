"""Rare kinds of index select elements: region references, h5py's `MultiBlockSlice`, decompositions.

Knows: selections, the JSON of a region. Does not know: how references are stored, data.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pnc_vol.api.ids import DatasetID
from pnc_vol.api.paths import find
from pnc_vol.errors import ConversionError, SelectionValueError
from pnc_vol.extents.decomposition import Decomposition
from pnc_vol.extents.selection import Selection, many, select
from pnc_vol.file.reads.composite_values import region_of
from pnc_vol.mapping.dtypes import RegionReference

if TYPE_CHECKING:
    from pnc_vol.api.objects import HLObject

__all__ = ["MultiBlockSlice", "RegionProxy", "other_selection", "region_selection"]


class MultiBlockSlice:
    """`count` blocks of `block` elements, `stride` elements apart, from `start` on.

    Parameters
    ----------
    start : int
    stride : int
        From the start of a block to the start of the next.
    count : int or None
        As many whole blocks as the axis holds, by default.
    block : int
        Elements of a block.

    Raises
    ------
    ValueError
        A negative start, something below 1, or blocks that overlap.

    Examples
    --------
    >>> MultiBlockSlice(start=1, stride=3, block=2).indices(10)
    (1, 3, 3, 2)
    """

    def __init__(self, start: int = 0, stride: int = 1, count: int | None = None, block: int = 1) -> None:
        if start < 0:
            raise SelectionValueError(f"Start can't be negative: {start}")
        if stride < 1 or block < 1 or (count is not None and count < 1):
            raise SelectionValueError(f"Stride, block and count must be at least 1: {stride}, {block}, {count}")
        if block > stride:
            raise SelectionValueError(f"Blocks will overlap if block ({block}) > stride ({stride})")
        self.start, self.stride, self.count, self.block = start, stride, count, block

    def indices(self, length: int) -> tuple[int, int, int, int]:
        """Start, stride, count and block for an axis of `length` elements.

        Raises
        ------
        ValueError
            A block does not fit.
        """
        room = length - self.start - self.block
        fitting = room // self.stride + 1 if room >= 0 else 0
        count = fitting if self.count is None else self.count
        if not 1 <= count <= fitting:
            raise SelectionValueError(f"{self!r} does not fit an axis of {length} elements: {fitting} blocks would")
        return self.start, self.stride, count, self.block

    def __repr__(self) -> str:
        return f"MultiBlockSlice(start={self.start}, stride={self.stride}, count={self.count}, block={self.block})"


def _expanded(args: Any, shape: tuple[int, ...]) -> Any:
    """Return the index with an array in place of each block slice; the same object if there is none."""
    parts = args if isinstance(args, tuple) else (args,)
    if not any(isinstance(part, MultiBlockSlice) for part in parts):
        return args
    behind = len(shape) - sum(part is not Ellipsis for part in parts)
    found: list[Any] = []
    axis = 0
    for part in parts:
        if isinstance(part, MultiBlockSlice) and axis < len(shape):
            start, stride, count, block = part.indices(shape[axis])
            starts: npt.NDArray[np.int64] = start + stride * np.arange(count)
            part = (starts[:, None] + np.arange(block)).ravel()
        found.append(part)
        axis += behind if part is Ellipsis else 1
    return tuple(found)


class RegionProxy:
    """Makes region references, and shows what they select.

    Examples
    --------
    >>> import pnc_vol
    >>> with pnc_vol.File("example.nc", "w", driver="memory") as f:
    ...     ds = f.create_dataset("x", data=[[1, 2, 3], [4, 5, 6]])
    ...     ref = ds.regionref[1, ::2]
    ...     ds[ref].tolist(), ds.regionref.selection(ref)
    ([[4, 6]], (1, 2))
    """

    def __init__(self, obj: HLObject) -> None:
        self._id = obj.id

    def __getitem__(self, args: Any) -> RegionReference:
        self._id.check()
        if not isinstance(self._id, DatasetID):
            raise TypeError("Region references can only be made to datasets")
        node = self._id.node
        if node.shape is None:
            raise ConversionError(f"{node.path!r} is empty: it has no elements to refer to")
        return RegionReference(node.path, node, region_of(select(node.shape, args)))

    def shape(self, ref: RegionReference) -> tuple[int, ...] | None:
        """Return the shape of the dataset that a reference points into."""
        return find(self._id.check().defs.tree.root, ref.path).shape  # type: ignore[no-any-return]

    def selection(self, ref: RegionReference) -> tuple[int, ...]:
        """Return the shape of what a reference selects."""
        return region_selection(self.shape(ref) or (), ref).result_shape


def region_selection(shape: tuple[int, ...], reference: RegionReference) -> Selection:
    """Return the elements that a region reference names.

    Raises
    ------
    ValueError
        It names none, or is not for a dataset of this shape.
    """
    try:
        region = json.loads(reference.region)
        if "points" in region:
            points = np.array(region["points"], np.int64)
            starts = np.stack(np.unravel_index(points, shape), axis=-1)
            return many(shape, starts, np.ones_like(starts))
        axes = region["select"]
        if len(axes) != len(shape):
            raise ValueError("rank")
        return select(shape, tuple(map(_axis, axes, shape)))
    except (ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError) as problem:
        raise SelectionValueError(f"{reference!r} does not fit a dataset of shape {shape}: {problem}") from None


def _axis(index: Any, n: int) -> Any:
    if isinstance(index, dict):
        return index["list"]
    first, count, step = index
    if first < 0 or count < 0 or step < 1 or (count and first + (count - 1) * step >= n):
        # numpy and HDF5 would cut such a slice, and show other elements than were meant
        raise ValueError(f"{index} in an axis of {n}")
    return slice(first, first + (count - 1) * step + 1 if count else first, step)


def other_selection(shape: tuple[int, ...], args: Any) -> Selection | None:
    """Return the selection of a region reference, of a decomposition, or of block slices; None for any other index.

    Raises
    ------
    SelectionError
        The index does not fit the shape.
    """
    if isinstance(args, RegionReference):
        return region_selection(shape, args)
    parts = Decomposition.of_index(shape, args)
    if parts is not None:
        return parts
    other = _expanded(args, shape)
    return None if other is args else select(shape, other)
