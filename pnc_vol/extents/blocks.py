"""A dataset cut into blocks that fit a byte budget.

Knows: shapes, chunk shapes, bytes per element. Does not know: files, datasets, who reads or writes.

Rules
-----
1. The blocks of a shape cover every element once, in C order of their first elements.
2. Blocks are whole chunks where a chunk fits the budget: a compressed chunk is then unpacked once. A chunk may
   be up to `CHUNK_EXCESS` times the budget, since the library holds it whole anyway.
3. Trailing axes grow first: a block is as contiguous in the classic format as the budget allows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Block = tuple[slice, ...]

__all__ = ["block_shape", "blocks"]

CHUNK_EXCESS = 4


def block_shape(
    shape: Sequence[int], itemsize: int, block_bytes: int, chunks: Sequence[int] | None = None
) -> tuple[int, ...]:
    """The shape of the largest block within the budget.

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
    """Selections that cover `shape`, each of `block_bytes` at most.

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
