"""A large write is posted in parts that fit memory: some of its elements, and the runs where they go.

Knows: selections, runs, arrays. Does not know: files, variables' places, the queue.

Rules
-----
1. Parts come in the order of the elements, and each is a view of the caller's array; but what has to be cut between
   runs is copied part by part if the array is not contiguous.
2. The runs of a hyperslab are made part by part: those of all its elements may take more memory than the elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.extents.blocks import blocks, runs_between
from pnc_vol.extents.model import Runs, Selection
from pnc_vol.extents.place import runs, split_rows

__all__ = ["parts", "run_elements"]

Array = npt.NDArray[Any]


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
