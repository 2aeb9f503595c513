"""Lists of blocks of one dataset (PnetCDF's ``varn``) are flattened to runs without a loop over blocks.

Knows: shapes, blocks. Does not know: indices as users write them, records, bytes.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.errors import SelectionIndexError, SelectionTypeError, SelectionValueError
from pnc_vol.extents.model import Int64, Runs, cut_at, spread

__all__ = ["as_subarrays", "checked_block", "flatten", "join_runs"]

Shape = tuple[int, ...]


def flatten(shape: tuple[int, ...], starts: npt.ArrayLike, counts: npt.ArrayLike | None) -> tuple[Runs, int]:
    """Return runs of the blocks, one block after another, each in C order; adjacent runs are joined.

    Parameters
    ----------
    shape : tuple of int
    starts, counts : integers (n, ndim); `counts` None means one element each.

    Returns
    -------
    runs : Runs
    total : int, elements in all.

    Raises
    ------
    SelectionTypeError, SelectionValueError, SelectionIndexError
        As in `selection.many`.

    Examples
    --------
    >>> runs, total = flatten((4, 6), [[0, 4], [1, 0]], [[1, 2], [2, 1]])
    >>> runs.start.tolist(), runs.length.tolist(), total
    ([4, 12], [3, 1], 4)
    """
    first = _rows(shape, starts, "starts")
    number = np.ones_like(first) if counts is None else _rows(shape, counts, "counts")
    if first.shape != number.shape:
        raise SelectionValueError(f"{len(first)} starts were given with {len(number)} counts")
    _check(shape, first, number)
    total = int(number.prod(axis=1).sum())
    if not total:
        return Runs(np.empty(0, np.int64), np.empty(0, np.int64)), 0
    # Trailing axes that every block takes in full belong to the runs.
    axis, inner = len(shape) - 1, 1
    while axis >= 0 and bool((number[:, axis] == shape[axis]).all()):
        inner *= shape[axis]
        axis -= 1
    if axis < 0:
        zeros = np.zeros(len(first), np.int64)
        return Runs(zeros, np.full(len(first), inner, np.int64)), total
    weight = np.array([int(np.prod(shape[i + 1 :], dtype=np.int64)) for i in range(axis + 1)], np.int64)
    base = first[:, : axis + 1] @ weight
    # A row for each run of a block, whose number in the block is divided up into indices of the outer axes.
    owner, step = spread(number[:, :axis].prod(axis=1) * (number[:, axis] > 0))
    start = base[owner]
    for outer in range(axis - 1, -1, -1):
        step, at = np.divmod(step, number[owner, outer])
        start += at * weight[outer]
    return join_runs(Runs(start, number[owner, axis] * inner)), total


def as_subarrays(shape: tuple[int, ...], runs: Runs) -> tuple[Int64, Int64]:
    """Return runs as blocks of a dataset, each within one row of the last axis.

    Returns
    -------
    starts, counts : int64[n, ndim]

    Examples
    --------
    >>> starts, counts = as_subarrays((4, 6), Runs(np.array([4]), np.array([4])))
    >>> starts.tolist(), counts.tolist()
    ([[0, 4], [1, 0]], [[1, 2], [1, 2]])
    """
    if not shape:
        return np.empty((len(runs.start), 0), np.int64), np.empty((len(runs.start), 0), np.int64)
    first, length, _ = cut_at(*runs, max(shape[-1], 1))
    starts = np.stack(np.unravel_index(first, shape), axis=1).astype(np.int64)
    counts = np.ones_like(starts)
    counts[:, -1] = length
    return starts, counts


def join_runs(runs: Runs, inner: int | None = None) -> Runs:
    """Join runs that continue each other; with `inner`, never across a multiple of it.

    Examples
    --------
    >>> join_runs(Runs(np.array([0, 2, 9]), np.array([2, 1, 1]))).start.tolist()
    [0, 9]
    """
    start, length = runs
    if start.size < 2:
        return runs
    joined = start[1:] == start[:-1] + length[:-1]
    if inner is not None:
        joined &= start[1:] % inner != 0
    if not joined.any():
        return runs
    heads = np.concatenate(([0], np.flatnonzero(~joined) + 1))
    return Runs(start[heads], np.add.reduceat(length, heads))


def checked_block(
    shape: Shape, start: Sequence[int], count: Sequence[int], stride: Sequence[int] | None
) -> tuple[Shape, Shape, Shape]:
    """Start, count and stride of one block, as `selection.hyperslab` takes and refuses them."""
    rank = len(shape)
    first = tuple(map(operator.index, start))
    number = tuple(map(operator.index, count))
    step = (1,) * rank if stride is None else tuple(map(operator.index, stride))
    if not len(first) == len(number) == len(step) == rank:
        raise SelectionValueError(
            f"start {first}, count {number}, stride {step} need one entry for each of {rank} dimensions"
        )
    for dim, s, c, t in zip(shape, first, number, step, strict=True):
        if c < 0 or t < 1:
            raise SelectionValueError(f"count {number} must not be negative, stride {step} must be at least 1")
        if s < 0 or s > dim or (c and s + (c - 1) * t >= dim):
            raise SelectionIndexError(
                f"start {first}, count {number}, stride {step} out of range for the shape {shape}"
            )
    return first, number, step


def _rows(shape: tuple[int, ...], rows: npt.ArrayLike, name: str) -> Int64:
    array: npt.NDArray[Any] = np.asarray(rows)
    if array.size == 0 and array.ndim < 2:
        array = np.empty((0, len(shape)), np.int64)
    if array.dtype.kind not in "iu":
        raise SelectionTypeError(f"{name} must be integers, not {array.dtype}")
    if array.ndim != 2 or array.shape[1] != len(shape):
        raise SelectionValueError(
            f"{name} has the shape {array.shape}; for a dataset of shape {shape} it must be (n, {len(shape)})"
        )
    if array.dtype == np.uint64 and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise SelectionIndexError(f"{name} out of range for the shape {shape}")
    return array.astype(np.int64, copy=False)


def _check(shape: tuple[int, ...], starts: Int64, counts: Int64) -> None:
    dims = np.array(shape, np.int64)
    if bool((counts < 0).any()):
        row = int(np.flatnonzero((counts < 0).any(axis=1))[0])
        raise SelectionValueError(f"counts[{row}] = {tuple(counts[row].tolist())} must not be negative")
    # Compared against what is left of the axis, so that no sum can overflow.
    outside = ((starts < 0) | (starts > dims) | (counts > dims - starts)).any(axis=1)
    if bool(outside.any()):
        row = int(np.flatnonzero(outside)[0])
        raise SelectionIndexError(
            f"starts[{row}] = {tuple(starts[row].tolist())}, counts[{row}] = {tuple(counts[row].tolist())} "
            f"out of range for the shape {shape}"
        )
