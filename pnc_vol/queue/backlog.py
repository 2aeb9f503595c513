"""What is posted and not written, in the order of posting: closed batches, then the rows of the open one.

Knows: rows, lists of runs, batches. Does not know: where bytes are kept, variables' places, who posts.

All stores of a queue share one backlog, and one budget of memory: a row takes memory wherever its bytes are.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left

import numpy as np
import numpy.typing as npt

from pnc_vol.extents.merge import intersect, last_wins
from pnc_vol.extents.model import Extents, Int64, Runs, before, distinct
from pnc_vol.queue.batches import Batch, MemoryBatch
from pnc_vol.queue.rows import COLUMNS, NO_ROWS, Lists, Rows, make_rows, pack_row

__all__ = [
    "LEAST_BUDGET",
    "LEAST_TAIL",
    "ROW_COST",
    "Backlog",
    "Sorted",
    "lay_last",
    "lay_over",
    "near",
    "rows_of_request",
    "same_width",
]

ROW_COST = 160
"""Bytes that a row is charged with: 40 for itself, the rest for the plan."""

LEAST_BUDGET = 64 << 10


class Backlog:
    """Posted rows of one file.

    Parameters
    ----------
    budget : int, bytes of data and rows held in memory; at least 64 KiB.

    Attributes
    ----------
    closed : list of Batch
        In the order of posting.
    tables : dict of int to array
        Rows of the open batch by variable; see `rows` for the columns.
    lists : Lists
        Lists of runs of the open batch, of variables that have no rows in it.
    rows : int
        Rows in memory, those of closed batches included.
    sorted : dict of int to Sorted
        Rows of `tables` in order, for reads between posts.
    """

    __slots__ = ("budget", "closed", "lists", "rows", "sorted", "tables")

    def __init__(self, budget: int) -> None:
        self.budget = max(budget, LEAST_BUDGET)
        self.closed: list[Batch] = []
        self.tables: dict[int, array[int]] = {}
        self.lists = Lists()
        self.rows = 0
        self.sorted: dict[int, Sorted] = {}

    def post(self, uid: int, request: int, start: int, count: int, address: int, itemsize: int) -> None:
        """Add one run of elements to the open batch."""
        # as `post_packed`, with a call less
        table = self.tables.get(uid)
        if table is None:
            table = self.tables[uid] = array("q")
        table.frombytes(pack_row(request, start, count, address, itemsize))
        self.rows += 1

    def post_packed(self, uid: int, rows: bytes, number: int) -> None:
        """Add rows to the open batch, as the bytes that `pack_row` makes of each."""
        table = self.tables.get(uid)
        if table is None:
            table = self.tables[uid] = array("q")
        table.frombytes(rows)
        self.rows += number

    def post_runs(self, uid: int, request: int, runs: Runs, address: int, itemsize: int) -> None:
        """Add many runs, whose data lie one after another from `address` on."""
        rows = make_rows(request, runs, address, itemsize)
        self.post_packed(uid, rows.tobytes(), len(rows))

    def open_rows(self, uid: int) -> Rows:
        """The rows of a variable in the open batch, not copied: gone before the next post."""
        return np.frombuffer(self.tables[uid], np.int64).reshape(-1, COLUMNS)

    def clear_tables(self) -> None:
        """The rows of the open batch are in a closed one from now on."""
        self.tables, self.sorted = {}, {}

    def take_out(self, request: int) -> int:
        """Drop the rows that a request has in the open batch; returns how many."""
        gone = 0
        for uid, table in list(self.tables.items()):
            first, last = rows_of_request(table, request)
            if last > first:
                gone += last - first
                del table[first * COLUMNS : last * COLUMNS]
                self.sorted.pop(uid, None)
                if not table:
                    del self.tables[uid]
        self.rows -= gone
        return gone

    def clear(self) -> None:
        """Forget everything."""
        self.closed, self.tables, self.sorted = [], {}, {}
        self.lists, self.rows = Lists(), 0


def rows_of_request(table: array[int], request: int) -> tuple[int, int]:
    """First and last row of a request; requests only grow along the table."""
    rows = range(len(table) // COLUMNS)
    first, last = (bisect_left(rows, n, key=lambda i: table[COLUMNS * i]) for n in (request, request + 1))
    return first, last


Bytes = npt.NDArray[np.uint8]

LEAST_TAIL = 512
"""Rows posted since the last sorting that a read looks through one by one."""

_LOOKS = 8
"""Times that reads look through rows until they are sorted, which takes as long: most programs read once, if at all."""


class Sorted:
    """The first rows of a variable, sorted and without what later ones of them overwrote.

    Reads that come between posts would otherwise look through all rows each time.

    count : int, rows that it stands for.
    looked : int, rows behind these that reads have looked through.
    begin, end, place : int64[n], elements and addresses of disjoint rows; each column by itself, for `searchsorted`.
    width : int, bytes of an element.
    """

    __slots__ = ("begin", "count", "end", "looked", "place", "width")

    def __init__(self, count: int, begin: Int64, end: Int64, place: Int64, width: int) -> None:
        self.count, self.looked = count, 0
        self.begin, self.end, self.place, self.width = begin, end, place, width

    @classmethod
    def of(cls, rows: Rows) -> Sorted:
        """Sort rows that stand in the order of posting."""
        widths = rows[:, 4]
        if not len(rows) or bool((widths != widths[0]).any()):
            none = np.empty(0, np.int64)
            return cls(0, none, none, none, 1)
        width = int(widths[0])
        kept = last_wins(Extents(rows[:, 1] * width, rows[:, 2] * width, np.ascontiguousarray(rows[:, 3])))
        return cls(len(rows), kept.offset // width, (kept.offset + kept.length) // width, kept.place, width)

    def is_short(self, rows: int) -> bool:
        """Whether what was posted since, of `rows` in all, is better looked through once more than sorted."""
        behind = rows - self.count
        self.looked += behind
        return behind <= LEAST_TAIL or self.looked <= _LOOKS * rows

    def near(self, low: int, high: int) -> Rows:
        """The rows that reach into the elements from `low` to `high`."""
        first, last = int(self.end.searchsorted(low, "right")), int(self.begin.searchsorted(high))
        if first >= last:
            return NO_ROWS
        rows = np.zeros((last - first, COLUMNS), np.int64)
        rows[:, 1] = begin = self.begin[first:last]
        rows[:, 2] = self.end[first:last] - begin
        rows[:, 3], rows[:, 4] = self.place[first:last], self.width
        return rows


def near(rows: Rows, low: int, high: int, before_request: int | None = None) -> Rows:
    """Those rows, of requests with a smaller number, that reach into the elements from `low` to `high`; copied."""
    begin = rows[:, 1]
    reach = begin < high
    reach &= begin + rows[:, 2] > low
    if before_request is not None:
        reach &= rows[:, 0] < before_request
    at = reach.nonzero()[0]
    return rows[at] if at.size else NO_ROWS


def lay_last(batch: Batch, uid: int, rows: Rows, low: int, high: int, target: Bytes, itemsize: int) -> bool:
    """Copy the elements from `low` to `high`, if the last row holds them all; False if it does not."""
    _, begin, count, address, width = rows[-1].tolist()
    if begin > low or begin + count < high or width != itemsize:
        return False
    piece = np.array((0, address + (low - begin) * width, (high - low) * width), np.int64)
    batch.copy(uid, target, piece[:1], piece[1:2], piece[2:])
    return True


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
