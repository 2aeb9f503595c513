"""The two basic lists of integers: runs of elements and extents of bytes; the largest number of axes of arrays.

Knows: numpy. Does not know: variables, files, types.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.errors import SelectionValueError

__all__ = ["MOST_AXES", "Extents", "Int64", "Runs", "before", "one_extent", "refuse_axes", "spread"]

MOST_AXES = 64 if int(np.__version__.partition(".")[0]) >= 2 else 32
"""Axes that an array can have; a variable of a file may have up to 1,024."""

Int64 = npt.NDArray[np.int64]


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


def one_extent(offset: int, nbytes: int, place: int = 0) -> Extents:
    """Extents of a single piece."""
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
