"""What is posted and not written, in the order of posting: closed batches, then the rows of the open one.

Knows: rows, lists of runs, batches. Does not know: where bytes are kept, variables' places, who posts.

All stores of a queue share one backlog, and one budget of memory: a row takes memory wherever its bytes are.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left

import numpy as np

from pnc_vol.extents.model import Runs
from pnc_vol.queue.batches import Batch
from pnc_vol.queue.read_your_writes import Sorted
from pnc_vol.queue.rows import COLUMNS, Rows, make_rows, pack_row
from pnc_vol.queue.run_lists import Lists

__all__ = ["LEAST_BUDGET", "ROW_COST", "Backlog", "rows_of_request"]

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
