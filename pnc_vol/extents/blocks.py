"""Lists of extents, runs, arrays and writes that are too large for one call are cut into rounds, blocks and parts.

Knows: extents, runs, selections, shapes, chunk shapes, bytes per element. Does not know: files, datasets, who reads or
writes.

Rules
-----
1. The parts have the order of the whole and cover it once. Nobody else in the package does this arithmetic, but
   `format.numeric`, which stands below and cannot import it.
2. The blocks of a shape come in C order of their first elements.
3. Blocks are whole chunks where a chunk fits the budget: a compressed chunk is then unpacked once. A chunk may
   be up to `CHUNK_EXCESS` times the budget, since the library holds it whole anyway.
4. Trailing axes grow first: a block is as contiguous in the classic format as the budget allows.
5. The parts of a write are views of the caller's array; but what has to be cut between runs is copied part by part if
   the array is not contiguous. The runs of a hyperslab are made part by part: those of all its elements may take more
   memory than the elements.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.extents.model import Extents, Int64, Runs, Selection, one_extent
from pnc_vol.extents.place import runs, split_rows

__all__ = ["block_shape", "blocks", "groups", "parts", "pieces", "rounds", "run_elements", "runs_between"]

Array = npt.NDArray[Any]

Block = tuple[slice, ...]

CHUNK_EXCESS = 4


def rounds(extents: Extents, nbytes: int) -> Iterator[Extents]:
    """Cut extents, in the order they have, into parts of `nbytes` bytes each but for the last.

    An element is never cut where its size divides `nbytes`.

    Raises
    ------
    ValueError
        `nbytes` is below 1.

    Examples
    --------
    >>> whole = Extents(*np.array([[0, 100], [6, 6], [0, 6]]))
    >>> [part.length.tolist() for part in rounds(whole, 8)]
    [[6, 2], [4]]
    """
    if nbytes < 1:
        raise ValueError(f"extents cannot be cut into parts of {nbytes} bytes; ask for at least 1")
    offset, length, place = extents
    if len(length) == 1 and int(length[0]) > nbytes:
        # What large reads and writes are: integers only, a fifth of the time that the lists below take.
        at, left, to = int(offset[0]), int(length[0]), int(place[0])
        for low in range(0, left, nbytes):
            yield one_extent(at + low, min(nbytes, left - low), to + low)
        return
    end = np.cumsum(length)
    total = int(end[-1]) if len(end) else 0
    if total <= nbytes:
        if total:
            yield extents
        return
    start = end - length
    for low in range(0, total, nbytes):
        part, skip, some = _between(start, end, low, min(low + nbytes, total))
        yield Extents(offset[part] + skip, some, place[part] + skip)


def runs_between(runs: Runs, begin: Int64, end: Int64, first: int, count: int) -> Runs:
    """Return the runs of elements `first` to ``first + count`` of what the runs enumerate.

    begin, end : int64[n], elements up to each run, without and with it: added once for many calls.

    Examples
    --------
    >>> some = runs_between(Runs(np.array([10, 30]), np.array([4, 4])), np.array([0, 4]), np.array([4, 8]), 2, 4)
    >>> some.start.tolist(), some.length.tolist()
    ([12, 30], [2, 2])
    """
    if len(runs.start) == 1:
        return Runs(runs.start + first, np.array([count], np.int64))
    part, skip, length = _between(begin, end, first, first + count)
    return Runs(runs.start[part] + skip, length)


def _between(start: Int64, end: Int64, low: int, high: int) -> tuple[slice, Int64, Int64]:
    """Return which of ordered, disjoint ranges have something in [low, high), what each has before it, and how much in
    it."""
    # Ordered and disjoint, so those that have something in it are neighbours.
    part = slice(int(np.searchsorted(end, low, side="right")), int(np.searchsorted(start, high, side="left")))
    skip = np.maximum(low - start[part], 0)
    return part, skip, np.minimum(end[part], high) - start[part] - skip


def groups(begin: Int64, end: Int64, limit: int) -> Iterator[tuple[int, int]]:
    """Yield neighbours taken together: as many as reach no further than `limit`, and at least one.

    Parameters
    ----------
    begin, end : int64[n], where each begins and ends.

    Yields
    ------
    first, last : int, as in a slice.

    Examples
    --------
    >>> end = np.cumsum([3, 4, 9, 1, 1])
    >>> list(groups(end - [3, 4, 9, 1, 1], end, 8))
    [(0, 2), (2, 3), (3, 5)]
    """
    first = 0
    while first < len(end):
        last = max(first + 1, int(np.searchsorted(end, int(begin[first]) + limit, side="right")))
        yield first, last
        first = last


def block_shape(
    shape: Sequence[int], itemsize: int, block_bytes: int, chunks: Sequence[int] | None = None
) -> tuple[int, ...]:
    """Return the shape of the largest block within the budget.

    Parameters
    ----------
    shape : sequence of int
        Elements along each axis; none is 0.
    itemsize : int
        Bytes of an element.
    block_bytes : int
        The budget. A single element may exceed it.
    chunks : sequence of int, optional
        Shape of the storage's chunks.

    Returns
    -------
    tuple of int

    Examples
    --------
    >>> block_shape((1000, 1000), 8, 80_000)
    (10, 1000)
    >>> block_shape((1000, 1000), 8, 80_000, chunks=(100, 50))
    (100, 100)
    """
    budget = max(1, block_bytes // max(1, itemsize))
    unit = [1] * len(shape)
    if chunks is not None and len(chunks) == len(shape):
        clipped = [max(1, min(c, n)) for c, n in zip(chunks, shape, strict=True)]
        size = 1
        for n in clipped:
            size *= n
        if size <= CHUNK_EXCESS * budget:
            unit = clipped
    size = 1
    for n in unit:
        size *= n
    block = list(unit)
    for axis in reversed(range(len(shape))):
        needed = -(-shape[axis] // unit[axis])
        count = max(1, min(needed, budget // size))
        block[axis] = min(unit[axis] * count, shape[axis])
        size *= count
        # No axis in front of one that is not taken whole may grow: the block would not be contiguous.
        if count < needed:
            break
    return tuple(block)


def blocks(
    shape: Sequence[int], itemsize: int, block_bytes: int, chunks: Sequence[int] | None = None
) -> Iterator[Block]:
    """Yield selections that cover `shape`, each of `block_bytes` at most.

    Parameters
    ----------
    shape, itemsize, block_bytes, chunks
        As for `block_shape`.

    Yields
    ------
    tuple of slice
        One slice per axis; the empty tuple, once, for a scalar; nothing for a shape that contains 0.

    Examples
    --------
    >>> [b[0] for b in blocks((5,), 8, 16)]
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    if 0 in shape:
        return
    step = block_shape(shape, itemsize, block_bytes, chunks)
    starts = [range(0, n, s) for n, s in zip(shape, step, strict=True)]
    for corner in itertools.product(*starts):
        yield tuple(slice(a, min(a + s, n)) for a, s, n in zip(corner, step, shape, strict=True))


# ------------------------------------------------------------------------------------------ writes


def run_elements(selection: Selection) -> int:
    """Return the number of elements of one run, at most; runs that an index array joins count as several.

    Examples
    --------
    >>> from pnc_vol.extents.selection import select
    >>> run_elements(select((4, 6), (slice(1, 3), slice(0, 2)))), run_elements(select((4, 6), slice(0, None, 2)))
    (2, 6)
    """
    if selection.listed is not None:
        return max(1, selection.nelems // max(1, len(selection.listed.start)))
    shape, _, count, stride, *_ = selection
    length = 1
    for axis in range(len(shape) - 1, -1, -1):
        if axis == selection.axis or (stride[axis] > 1 and count[axis] > 1):
            break
        length *= count[axis]
        if count[axis] != shape[axis]:
            break
    return max(1, length)


def parts(
    selection: Selection, values: Array, *, record: bool, most_elements: int, most_runs: int
) -> Iterator[tuple[Runs, Array]]:
    """Yield a write in parts.

    Parameters
    ----------
    selection : Selection, not empty.
    values : array of its `result_shape`.
    record : bool, axis 0 is the record dimension.
    most_elements, most_runs : int
        Of a part; a single run is cut to fit.
    """
    if selection.listed is not None or selection.single_run() is not None:
        # cut into records part by part: a run may have very many
        inner, found = math.prod(selection.shape[1:]) if record else 0, runs(selection, record=False)
        end = np.cumsum(found.length)
        begin = end - found.length
        for first, part in pieces(values, max(1, most_elements)):
            some = runs_between(found, begin, end, first, part.size)
            yield from _few(split_rows(some, inner) if inner else some, part, most_runs)
        return
    limit = max(1, min(most_elements, most_runs * run_elements(selection)))
    for some_of, part in _boxes(selection, values.reshape(selection.count), limit):
        yield runs(some_of, record=record), part


def _few(some: Runs, part: Array, most_runs: int) -> Iterator[tuple[Runs, Array]]:
    """Yield a part in parts of at most so many runs, however long each of them is."""
    number = len(some.start)
    if number <= most_runs:
        yield some, part
        return
    flat, end = part.reshape(-1), np.cumsum(some.length)
    for low in range(0, number, most_runs):
        high = min(low + most_runs, number)
        yield Runs(some.start[low:high], some.length[low:high]), flat[end[low] - some.length[low] : end[high - 1]]


def _boxes(selection: Selection, values: Array, limit: int) -> Iterator[tuple[Selection, Array]]:
    """Yield a hyperslab, with or without an index array, in hyperslabs of at most `limit` elements."""
    for block in blocks(selection.count, 1, limit):
        size = tuple(along.stop - along.start for along in block)
        index = selection.index
        if index is not None:
            index = index[block[selection.axis]]
        start = tuple(
            s if i == selection.axis else s + along.start * d
            for i, (s, along, d) in enumerate(zip(selection.start, block, selection.stride, strict=True))
        )
        yield selection._replace(start=start, count=size, dropped=0, result_shape=size, index=index), values[block]


def pieces(values: Array, limit: int) -> Iterator[tuple[int, Array]]:
    """Yield the array in C order, in parts of at most `limit` elements, with the number of each part's first element.

    Parts are views; a part that has several rows is not contiguous if the array is not.
    """
    first = 0
    for block in blocks(values.shape, 1, limit):
        # With an ellipsis even a single value is an array.
        inside: tuple[Any, ...] = (*block, ...)
        part = values[inside]
        yield first, part
        first += part.size
