"""A write in parts that fit memory: some of its elements, and the runs where they go.

Knows: selections, runs, arrays. Does not know: files, variables' places, the queue.

Rules
-----
1. Parts come in the order of the elements, and each is a view of the caller's array.
2. The runs of a hyperslab are made part by part: those of all its elements may take more memory than the elements.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.extents.model import Int64, Runs
from pnc_vol.extents.place import runs
from pnc_vol.extents.ragged import before
from pnc_vol.extents.selection import Selection

__all__ = ["parts", "run_elements"]

Array = npt.NDArray[Any]


def run_elements(selection: Selection) -> int:
    """Elements of one run, at most; runs that an index array joins count as several.

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
    """A write in parts.

    Parameters
    ----------
    selection : Selection, not empty.
    values : array of its `result_shape`.
    record : bool, axis 0 is the record dimension.
    most_elements, most_runs : int
        Of a part; a single run is cut to fit.
    """
    one = selection.single_run()
    if one is not None or selection.listed is not None:
        inner = math.prod(selection.shape[1:]) if record else 0
        length = min(one[1], inner or one[1]) if one is not None else run_elements(selection)
        limit = max(1, min(most_elements, most_runs * length))
        single = None if one is None else Runs(np.array(one[:1], np.int64), np.array(one[1:], np.int64))
        found = runs(selection, record=record) if single is None else single
        begins = before(found.length)
        for first, part in pieces(values, limit):
            some = slice_runs(found, begins, first, part.size)
            yield (_cut(some, inner) if single is not None and inner else some), part
        return
    limit = max(1, min(most_elements, most_runs * run_elements(selection)))
    for some_of, part in _boxes(selection, values.reshape(selection.count), limit):
        yield runs(some_of, record=record), part


def _cut(one: Runs, inner: int) -> Runs:
    """A single run, cut at the multiples of `inner`."""
    start, end = int(one.start[0]), int(one.start[0] + one.length[0])
    low = np.maximum(np.arange(start // inner, (end - 1) // inner + 1, dtype=np.int64) * inner, start)
    return Runs(low, np.diff(low, append=end))


def _boxes(selection: Selection, values: Array, limit: int) -> Iterator[tuple[Selection, Array]]:
    """A hyperslab, with or without an index array, in hyperslabs of at most `limit` elements."""
    count = selection.count
    axis = 0
    while axis < len(count) - 1 and math.prod(count[axis + 1 :]) > limit:
        axis += 1
    step = max(1, limit // math.prod(count[axis + 1 :]))
    for outer in itertools.product(*map(range, count[:axis])):
        for low in range(0, count[axis], step):
            high = min(low + step, count[axis])
            first = (*outer, low, *(0 for _ in count[axis + 1 :]))
            size = (*(1 for _ in outer), high - low, *count[axis + 1 :])
            index = selection.index
            if index is not None:
                at = first[selection.axis]
                index = index[at : at + size[selection.axis]]
            start = tuple(
                s if i == selection.axis else s + f * d
                for i, (s, f, d) in enumerate(zip(selection.start, first, selection.stride, strict=True))
            )
            box = selection._replace(start=start, count=size, dropped=0, result_shape=size, index=index)
            at_once: tuple[Any, ...] = (*outer, slice(low, high))
            yield box, values[at_once].reshape(size)


def pieces(values: Array, limit: int) -> Iterator[tuple[int, Array]]:
    """The array in C order, in parts of at most `limit` elements, with the number of each part's first element.

    Parts are views; a part that has several rows is not contiguous if the array is not.
    """
    if values.size <= limit:
        if values.size:
            yield 0, values
        return
    row = math.prod(values.shape[1:])
    if row > limit:
        for i in range(values.shape[0]):
            for first, part in pieces(values[i], limit):
                yield i * row + first, part
        return
    step = limit // row
    for i in range(0, values.shape[0], step):
        yield i * row, values[i : i + step]


def slice_runs(whole: Runs, begins: Int64, first: int, count: int) -> Runs:
    """The runs of elements `first` to ``first + count`` of what the runs enumerate; `begins` is the first of each."""
    if len(whole.start) == 1:
        return Runs(whole.start + first, np.array([count], np.int64))
    low = int(np.searchsorted(begins, first, side="right")) - 1
    high = int(np.searchsorted(begins, first + count, side="left"))
    start, length = whole.start[low:high].copy(), whole.length[low:high].copy()
    skipped = first - int(begins[low])
    start[0] += skipped
    length[0] -= skipped
    length[-1] -= int(begins[high - 1] + whole.length[high - 1]) - (first + count)
    return Runs(start, length)
