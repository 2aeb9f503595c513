"""Indices become selections, runs of elements, and extents of bytes.

Knows: numpy. Does not know: variables, files, types.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.errors import SelectionTypeError, SelectionValueError

__all__ = [
    "LEAST_RUNS", "MOST_AXES", "Extents", "Int64", "Runs", "Selection", "before", "cut_at", "distinct",
    "one_extent", "refuse_axes", "spread",
]  # fmt: skip

MOST_AXES = 64 if int(np.__version__.partition(".")[0]) >= 2 else 32
"""Axes that an array can have; a variable of a file may have up to 1,024."""

LEAST_RUNS = 16
"""Runs below which a list is not worth remembering."""

Int64 = npt.NDArray[np.int64]
Shape = tuple[int, ...]


class Runs(NamedTuple):
    """Elements of one variable, as runs that lie one after another in memory.

    start : int64[n], the run's first element, counted in C order from the variable's first element.
    length : int64[n], elements.

    The i-th run begins ``sum(length[:i])`` elements into the memory that it is read to or written from.
    """

    start: Int64
    length: Int64


class Extents(NamedTuple):
    """Pieces of a file and where they lie in memory.

    offset : int64[n], bytes from the start of the file.
    length : int64[n], bytes.
    place : int64[n], bytes from the start of the memory that goes with it.
    """

    offset: Int64
    length: Int64
    place: Int64

    @property
    def nbytes(self) -> int:
        """Bytes in all."""
        length = self.length
        # most are one piece, which numpy would take a microsecond to add up
        return int(length[0]) if len(length) == 1 else int(np.add.reduce(length))


class Selection(NamedTuple):
    """Some elements of a dataset. Made by `select`, `hyperslab`, `many` and `whole`; never changed.

    One of three kinds: a hyperslab (`index` and `listed` are None), a hyperslab with an increasing index array on
    one axis, or a list of runs (masks of the whole shape, lists of subarrays, any other index arrays).
    """

    shape: Shape
    """Elements of the dataset along each axis."""
    start: Shape
    """First index on each axis; 0 on the axis that has an index array; empty for a list of runs."""
    count: Shape  # type: ignore[assignment]  # the field's word; tuple.count is no loss
    """Elements along each axis, 1 where an integer was given; ``(nelems,)`` for a list of runs."""
    stride: Shape
    """Distance of the elements along each axis, in elements, at least 1."""
    dropped: int
    """Bit i is set if axis i was indexed by an integer and is no axis of the result."""
    result_shape: Shape
    """The shape of the array that is read or written."""
    axis: int = -1
    """The axis that has an index array, or -1."""
    index: Int64 | None = None  # type: ignore[assignment]
    """int64[count[axis]], increasing, the elements of that axis."""
    listed: Runs | None = None
    """Merged runs without empty ones, in the order of the result."""

    @property
    def nelems(self) -> int:
        """Elements in all."""
        return math.prod(self.result_shape)

    def single_run(self) -> tuple[int, int] | None:
        """Return the elements as one contiguous run.

        Returns
        -------
        (start, length) or None
            In elements, counted in C order; ``(0, 0)`` if nothing is selected; None if it takes several runs.

        Examples
        --------
        >>> from pnc_vol.extents.selection import select
        >>> select((4, 6), (slice(1, 3),)).single_run()
        (6, 12)
        """
        shape, starts, counts, strides, _, _, _, index, listed = self
        if 0 in counts:
            return (0, 0)
        if listed is not None:
            return (int(listed.start[0]), int(listed.length[0])) if listed.start.size == 1 else None
        if index is not None:
            return None
        at = 0
        length = 1
        for dim, start, count, stride in zip(shape, starts, counts, strides):  # noqa: B905 (costs as much as the loop)
            at = at * dim + start
            if length > 1:
                if count != dim:
                    return None
                length *= count
            elif count != 1:
                if stride != 1:
                    return None
                length = count
        return (at, length)

    def broadcast(self, source_shape: Shape) -> Shape:
        """Return the shape to give an array of `source_shape` so that numpy broadcasts it to `result_shape`.

        Leading axes of length 1 that the selection lacks are taken off; an array for a list of runs may have
        any shape of the right size. Wider than h5py in one point: index arrays broadcast as slices do.

        Raises
        ------
        SelectionTypeError
            The array does not fit; it is a `TypeError`, as in h5py.

        Examples
        --------
        >>> from pnc_vol.extents.selection import select
        >>> sel = select((10, 4), (slice(None), 0))
        >>> np.broadcast_to(np.ones((1, 10)).reshape(sel.broadcast((1, 10))), sel.result_shape).shape
        (10,)
        """
        target = self.result_shape
        if source_shape == target:
            return target
        if self.listed is not None and len(target) == 1:
            if math.prod(source_shape) == target[0]:
                return target
            if source_shape == ():
                return ()
        else:
            extra = max(len(source_shape) - len(target), 0)
            kept = source_shape[extra:]
            if all(n == 1 for n in source_shape[:extra]) and all(
                n in (1, wanted) for n, wanted in zip(reversed(kept), reversed(target), strict=False)
            ):
                return kept
        axes = () if self.listed is not None else [i for i in range(len(self.shape)) if not self.dropped >> i & 1]
        raise SelectionTypeError(f"Can't broadcast {source_shape} -> {target}: {_misfit(axes, target, source_shape)}")


def one_extent(offset: int, nbytes: int, place: int = 0) -> Extents:
    """Return extents of a single piece."""
    columns = np.array((offset, nbytes, place), np.int64)
    return Extents(columns[:1], columns[1:2], columns[2:])


def refuse_axes(number: int) -> None:
    """Complain of a selection with more axes than arrays have.

    Raises
    ------
    SelectionValueError
    """
    raise SelectionValueError(
        f"The selection has {number} axes, and arrays have at most {MOST_AXES}; select a single index of some axes"
    )


def before(counts: Int64) -> Int64:
    """Sum of all counts before each one (the exclusive running sum).

    Examples
    --------
    >>> before(np.array([2, 0, 3])).tolist()
    [0, 2, 2]
    """
    total = np.empty(counts.size, np.int64)
    if counts.size:
        total[0] = 0
        np.cumsum(counts[:-1], out=total[1:])
    return total


def distinct(values: Int64) -> Int64:
    """Return the values that there are, sorted.

    Not ``np.unique``: from numpy 2.3 on it hashes, which is 20 times slower, and its first call loads ``numpy.ma``.

    Examples
    --------
    >>> distinct(np.array([3, 1, 3])).tolist()
    [1, 3]
    """
    found = np.sort(values, axis=None)
    return found[np.concatenate(([True], found[1:] != found[:-1]))] if found.size else found


def spread(counts: Int64) -> tuple[Int64, Int64]:
    """Number the members of rows of given lengths.

    Parameters
    ----------
    counts : int64[n], members of each row, none negative.

    Returns
    -------
    owner : int64[sum(counts)], the row of each member.
    step : int64[sum(counts)], the member's number within its row, from 0.

    Examples
    --------
    >>> [a.tolist() for a in spread(np.array([2, 0, 3]))]
    [[0, 0, 2, 2, 2], [0, 1, 0, 1, 2]]
    """
    owner = np.repeat(np.arange(counts.size, dtype=np.int64), counts)
    step = np.arange(owner.size, dtype=np.int64)
    step -= before(counts)[owner]
    return owner, step


def cut_at(start: Int64, length: Int64, step: int) -> tuple[Int64, Int64, Int64 | None]:
    """Cut pieces, none of them empty, where they cross a multiple of `step`.

    Returns
    -------
    start, length : int64[m]
    owner : int64[m] or None, the piece that each is a part of; None if no piece crosses a multiple.

    Examples
    --------
    >>> [column.tolist() for column in cut_at(np.array([4, 20]), np.array([4, 1]), 6)]
    [[4, 6, 20], [2, 2, 1], [0, 0, 1]]
    """
    end = start + length
    first = start // step
    more = (end - 1) // step - first
    if not np.count_nonzero(more):
        return start, length, None
    owner, number = spread(more + 1)
    number += first[owner]
    number *= step
    # Each part begins at a multiple, but for the first one of a piece.
    low = np.maximum(start[owner], number)
    number += step
    return low, np.minimum(end[owner], number) - low, owner


def _misfit(axes: Sequence[int], target: Shape, source: Shape) -> str:
    """Return which axis it is that values do not fit.

    Parameters
    ----------
    axes : sequence of int
        The dataset's axis of each axis of `target`; none if there are no such axes.
    target, source : shapes of the selection and of the values

    Examples
    --------
    >>> _misfit((0, 2), (4, 6), (5,))
    'axis 2 takes 6 values or 1, not 5'
    """
    if len(axes) != len(target):
        return f"{target[0]} elements are selected"
    for axis, wanted, n in zip(reversed(axes), reversed(target), reversed(source), strict=False):
        if n not in (1, wanted):
            return f"axis {axis} takes {wanted} values{' or 1' if wanted != 1 else ''}, not {n}"
    return f"the selection has {len(target)} axes, the values have {len(source)}"
