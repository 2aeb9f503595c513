"""A read of a hyperslab also reads the bytes between its elements, if that is cheaper, and numpy skips them.

Knows: selections, a variable as an array in the file, drivers, two threads. Does not know: layouts, fill values, posted
writes; whoever calls falls back to reading runs where these matter.

A hyperslab is *pieces*, alike and at places that its outer axes give, and what a piece holds of the inner axes. The
cut between outer and inner axes is put where pieces and bytes cost least: a column of a wide table is one piece a row,
every third column of it is whole rows.

Rules
-----
1. A block of pieces goes to memory that stays in cache, and from there, in one pass, to its place in the result.
2. The result is written nowhere else; if a read is short, False is returned.
3. What is cheaper follows from the driver's declared cost of a call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.base import CALL_COST, Driver
from pnc_vol.extents.model import Extents, Int64, Selection, one_extent
from pnc_vol.file.reads.execute import Step, call, carry_out, look, read_strided
from pnc_vol.flush.execute import BLOCK, block_of
from pnc_vol.layout.base import Grid

__all__ = ["Costs", "costs_of", "reach", "read_hyperslab"]

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

LEAST_SHARED = 8 << 20
"""Bytes from which on two threads look at a file; half of them for each look."""

LARGE_ROW = 16 << 10
"""Bytes of a row from which on rows that a list picks are copied one by one."""


class Costs(NamedTuple):
    """What is cheaper on a driver.

    small : int, bytes from the first element to the last up to which all between them is read.
    piece : int, bytes whose copy takes as long as one piece more.
    block : int, bytes of a block.
    """

    small: int
    piece: int
    block: int


def costs_of(driver: Driver) -> Costs:
    """Return the costs of a driver; a piece costs half a call, since many of them go by one."""
    able = driver.capabilities
    # What such a driver has read of a block is in memory, and the next piece of it costs no call.
    cost = CALL_COST if able.joins_pieces else able.call_cost
    return Costs(4 * cost, cost // 2, block_of(driver))


class _Cut(NamedTuple):
    """Pieces and what is in them.

    axis : int, the first inner axis.
    pieces : int
    span : int, bytes from a piece's first byte to its last.
    steps : int
        Elements of `axis` that are read at a time, where a piece does not fit a block; 0 where it does.
    """

    axis: int
    pieces: int
    span: int
    steps: int


class _Slab(NamedTuple):
    """A read: of what, from where, to where; see `read_hyperslab`."""

    driver: Driver
    grid: Grid
    selection: Selection
    file_dtype: np.dtype[Any]
    out: Array


def read_hyperslab(driver: Driver, grid: Grid, selection: Selection, file_dtype: np.dtype[Any], out: Array) -> bool:
    """Fill `out` with a selection that is no list of runs.

    Parameters
    ----------
    driver : Driver
    grid : Grid, of the variable.
    selection : Selection, not empty, of at least one axis.
    file_dtype : dtype of an element in the file.
    out : ndarray of `selection.count`, C-contiguous; the values are converted to its dtype.

    Returns
    -------
    bool
        False if the file ended before the data; what `out` holds is then not known.
    """
    costs = costs_of(driver)
    strides = [step * weight for step, weight in zip(selection.stride, grid.strides, strict=True)]
    target = out.reshape(selection.count)
    if selection.index is None and out.nbytes < LEAST_SHARED:
        first = grid.origin + sum(n * weight for n, weight in zip(selection.start, grid.strides, strict=True))
        if read_strided(driver, first, selection.count, strides, file_dtype, target, costs.small):
            # What most reads are, without a plan.
            return True
    slab = _Slab(driver, grid, selection, file_dtype, out)
    if carry_out(driver, _looks(slab, strides, target)):
        return True
    cut = _best_cut(selection, grid.strides, file_dtype.itemsize, costs)
    steps = _in_steps(slab, cut) if cut.steps else _in_batches(slab, cut, costs.block)
    return carry_out(driver, steps, min(costs.block, cut.pieces * cut.span))


def _looks(slab: _Slab, strides: list[int], target: Array) -> Iterator[Step]:
    """Return what to look at, where the file can be looked at as memory: numpy then picks the elements."""
    _, (origin, weights), selection, file_dtype, _ = slab
    index, axis = selection.index, selection.axis if selection.index is not None else -1
    counts = list(selection.count)
    first = origin + sum(n * weight for n, weight in zip(selection.start, weights, strict=True))
    if index is not None:
        first += int(index[0]) * weights[axis]
        counts[axis], strides[axis] = reach(selection, axis) + 1, weights[axis]
        index = index - index[0]
    end = first + sum((n - 1) * step for n, step in zip(counts, strides, strict=True)) + file_dtype.itemsize

    def step(low: int, high: int) -> Step:
        def use(file: Bytes) -> None:
            whole: Array = np.ndarray(counts, file_dtype, file, first, strides)
            if index is None:
                target[low:high] = whole[low:high]
            elif axis:
                target[low:high] = whole[low:high].take(index, axis)
            elif row >= LARGE_ROW:
                for i, of in enumerate(index[low:high].tolist(), low):
                    target[i] = whole[of]
            else:
                target[low:high] = whole[index[low:high]]

        return look(slab.driver, end, target[low:high].nbytes, use)

    rows = len(target)
    row = target.nbytes // rows
    # Without a list numpy needs no memory of its own; with one, a block of it should stay in the cache.
    block = max(1, BLOCK // row) if index is not None else max(1, -(-rows // max(1, 2 * target.nbytes // LEAST_SHARED)))
    return (step(low, min(low + block, rows)) for low in range(0, rows, block))


def _best_cut(selection: Selection, weights: tuple[int, ...], itemsize: int, costs: Costs) -> _Cut:
    """Return the cut between outer and inner axes where pieces and bytes cost least."""
    block = costs.block
    count, stride, rank = selection.count, selection.stride, len(weights)
    span, best, least = itemsize, _Cut(rank, math.prod(count), itemsize, 0), -1
    for axis in range(rank, -1, -1):
        inside = span
        if axis < rank:
            inside = span + reach(selection, axis) * weights[axis]
        pieces = math.prod(count[:axis])
        steps = 0
        if inside > block:
            if axis == rank or axis == selection.axis or span > block:
                break
            steps = 1 + (block - span) // (stride[axis] * weights[axis])
        cost = pieces * (inside + costs.piece * (-(-count[axis] // steps) if steps else 1))
        if least < 0 or cost <= least:
            best, least = _Cut(axis, pieces, inside, steps), cost
        if steps:
            break
        span = inside
    return best


def reach(selection: Selection, axis: int) -> int:
    """Return the number of elements of an axis from the first that is selected, without it, to the last."""
    if axis == selection.axis and selection.index is not None:
        return int(selection.index[-1] - selection.index[0])
    return (selection.count[axis] - 1) * selection.stride[axis]


def _places(slab: _Slab, cut: _Cut) -> Int64:
    """Return int64[pieces], the first byte of each piece in the file."""
    selection, found = slab.selection, np.array([slab.grid.origin], np.int64)
    for axis, weight in enumerate(slab.grid.strides):
        first = selection.start[axis]
        if axis == selection.axis and selection.index is not None:
            if axis < cut.axis:
                found = np.add.outer(found, selection.index * weight).ravel()
            else:
                found += int(selection.index[0]) * weight
        elif axis < cut.axis and selection.count[axis] > 1:
            step = np.arange(selection.count[axis], dtype=np.int64)
            found = np.add.outer(found, (first + step * selection.stride[axis]) * weight).ravel()
        else:
            found += first * weight
    return found


def _inside(slab: _Slab, cut: _Cut) -> Callable[[Bytes, int, int], Array]:
    """Return a function of memory, pieces in it and elements of the first inner axis: the selected elements of the
    pieces."""
    selection, weights, file_dtype = slab.selection, slab.grid.strides, slab.file_dtype
    index, along = selection.index, selection.axis - cut.axis + 1
    picked = along > 0
    inner = range(cut.axis, len(weights))
    strides = tuple((1 if axis == selection.axis else selection.stride[axis]) * weights[axis] for axis in inner)
    counts = tuple(reach(selection, axis) + 1 if axis == selection.axis else selection.count[axis] for axis in inner)

    def view(memory: Bytes, pieces: int, first: int) -> Array:
        shape = (pieces, *counts) if not cut.steps else (pieces, first, *counts[1:])
        found: Array = np.ndarray(shape, file_dtype, memory, 0, (cut.span, *strides))
        return found.take(index - index[0], axis=along) if index is not None and picked else found

    return view


def _in_batches(slab: _Slab, cut: _Cut, block: int) -> Iterator[Step]:
    """Yield calls that each read as many pieces as fit a block."""
    places, view = _places(slab, cut), _inside(slab, cut)
    target = slab.out.reshape(cut.pieces, *slab.selection.count[cut.axis :])
    batch = max(1, block // cut.span)

    def step(first: int) -> Step:
        offset = places[first : first + batch]
        n = len(offset)
        if int(offset[-1] - offset[0]) == (n - 1) * cut.span:
            extents = one_extent(int(offset[0]), n * cut.span)
        else:
            extents = Extents(offset, np.full(n, cut.span), np.arange(n, dtype=np.int64) * cut.span)

        def pick(memory: Bytes) -> None:
            target[first : first + n] = view(memory, n, 0)

        return call(slab.driver, extents, None, pick)

    return (step(first) for first in range(0, cut.pieces, batch))


def _in_steps(slab: _Slab, cut: _Cut) -> Iterator[Step]:
    """Return a part of one piece at a time."""
    places, view, selection = _places(slab, cut).tolist(), _inside(slab, cut), slab.selection
    count = selection.count[cut.axis]
    target = slab.out.reshape(cut.pieces, *selection.count[cut.axis :])
    apart = selection.stride[cut.axis] * slab.grid.strides[cut.axis]
    last = cut.span - (count - 1) * apart

    def step(piece: int, first: int) -> Step:
        n = min(cut.steps, count - first)

        def pick(memory: Bytes) -> None:
            target[piece, first : first + n] = view(memory, 1, n)[0]

        return call(slab.driver, one_extent(places[piece] + first * apart, (n - 1) * apart + last), None, pick)

    return (step(piece, first) for piece in range(cut.pieces) for first in range(0, count, cut.steps))
