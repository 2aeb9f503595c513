"""Read-your-writes: what is posted for a variable, applied to what the file holds of it.

Knows: rows, batches, memory. Does not know: the queue, places of variables, headers.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pnc_vol.extents.merge import intersect, last_wins
from pnc_vol.extents.model import Extents, Int64, before, distinct
from pnc_vol.queue.batches import Batch, MemoryBatch
from pnc_vol.queue.rows import COLUMNS, Rows

__all__ = ["LEAST_TAIL", "Sorted", "lay_over", "near", "same_width"]

Bytes = npt.NDArray[np.uint8]

LEAST_TAIL = 512
"""Rows posted since the last sorting that a read looks through one by one."""


class Sorted:
    """The first rows of a variable, sorted and without what later ones of them overwrote.

    Reads that come between posts would otherwise look through all rows each time.

    count : int, rows that it stands for.
    rows : int64[n, 5], sorted by first element, disjoint.
    """

    __slots__ = ("count", "rows")

    def __init__(self, count: int, rows: Rows) -> None:
        self.count = count
        self.rows = rows

    @classmethod
    def of(cls, rows: Rows) -> Sorted:
        """Sort rows that stand in the order of posting."""
        widths = rows[:, 4]
        if not len(rows) or bool((widths != widths[0]).any()):
            return cls(0, rows[:0].copy())
        width = int(widths[0])
        kept = last_wins(Extents(rows[:, 1] * width, rows[:, 2] * width, np.ascontiguousarray(rows[:, 3])))
        sorted_rows = np.empty((len(kept.offset), COLUMNS), np.int64)
        sorted_rows[:, 0] = 0
        sorted_rows[:, 1] = kept.offset // width
        sorted_rows[:, 2] = kept.length // width
        sorted_rows[:, 3] = kept.place
        sorted_rows[:, 4] = width
        return cls(len(rows), sorted_rows)

    def near(self, low: int, high: int) -> Rows:
        """The rows that reach into the elements from `low` to `high`."""
        first = max(int(np.searchsorted(self.rows[:, 1], low, side="right")) - 1, 0)
        last = int(np.searchsorted(self.rows[:, 1], high, side="left"))
        return self.rows[first:last]


def near(rows: Rows, low: int, high: int, before_request: int) -> Rows:
    """Those rows, of requests with a smaller number, that reach into the elements from `low` to `high`."""
    return rows[(rows[:, 1] < high) & (rows[:, 1] + rows[:, 2] > low) & (rows[:, 0] < before_request)]


def lay_over(batch: Batch, uid: int, rows: Rows, wanted: Extents, target: Bytes, itemsize: int) -> None:
    """Copy what the rows hold of the wanted bytes."""
    if not len(rows):
        return
    rows, source = same_width(batch, uid, rows, itemsize)
    posted = last_wins(Extents(rows[:, 1] * itemsize, rows[:, 2] * itemsize, np.ascontiguousarray(rows[:, 3])))
    i, j, offset, length = intersect(wanted.offset, wanted.length, posted.offset, posted.length)
    if len(offset):
        place = wanted.place[i] + (offset - wanted.offset[i])
        source.copy(uid, target, place, posted.place[j] + (offset - posted.offset[j]), length)


def same_width(batch: Batch, uid: int, rows: Rows, itemsize: int) -> tuple[Rows, Batch]:
    """Rows and bytes with all elements `itemsize` wide: strings posted before their variable grew are padded."""
    if bool((rows[:, 4] == itemsize).all()):
        return rows, batch
    counts: Int64 = rows[:, 2]
    packed = np.zeros((int(counts.sum()), itemsize), np.uint8)
    first = before(counts)
    for width in distinct(rows[:, 4]).tolist():
        mine = np.flatnonzero(rows[:, 4] == width)
        n = counts[mine]
        got = np.empty((int(n.sum()), width), np.uint8)
        batch.copy(uid, got.reshape(-1), before(n) * width, rows[mine, 3], n * width)
        to = np.repeat(first[mine] - before(n), n) + np.arange(len(got))
        packed[to, : min(width, itemsize)] = got[:, :itemsize]
    even = rows.copy()
    even[:, 3] = first * itemsize
    even[:, 4] = itemsize
    return even, MemoryBatch({0: even}, packed.reshape(-1))
