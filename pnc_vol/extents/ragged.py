"""Counting through rows of unequal length without a loop.

Knows: numpy. Does not know: what is counted.
"""

from __future__ import annotations

import numpy as np

from pnc_vol.extents.model import Int64

__all__ = ["before", "spread"]


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
