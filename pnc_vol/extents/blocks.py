"""Lists of extents, runs and arrays that are too large for one call are cut into rounds and blocks.

Knows: extents, runs, shapes, chunk shapes, bytes per element. Does not know: files, datasets, who reads or writes.

Rules
-----
1. The parts have the order of the whole and cover it once. Nobody else in the package does this arithmetic, but
   `format.convert`, which stands below and cannot import it.
2. The blocks of a shape come in C order of their first elements.
3. Blocks are whole chunks where a chunk fits the budget: a compressed chunk is then unpacked once. A chunk may
   be up to `CHUNK_EXCESS` times the budget, since the library holds it whole anyway.
4. Trailing axes grow first: a block is as contiguous in the classic format as the budget allows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from pnc_vol.extents.model import Extents, Int64, Runs, one_extent

__all__ = ["block_shape", "blocks", "groups", "rounds", "runs_between"]

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
