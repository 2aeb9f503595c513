"""What was posted, as rows of integers.

Knows: runs. Does not know: data, where variables lie, files.

Rows
----
A posted run is a row of five int64: request, first element, elements, address, bytes of an element. Rows of
a variable stand in the order of posting; that order decides who wins where they overlap. A request of many runs, which
other requests may have as well, is `Listed`: the runs stand once for all that have them, and so does their plan.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from struct import Struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.extents.model import Int64, Runs, before

__all__ = ["COLUMNS", "NO_ROWS", "Item", "Listed", "Rows", "Tables", "make_rows", "pack_row"]

COLUMNS = 5
Rows = npt.NDArray[np.int64]
"""int64[n, 5]: request, first element, elements, address (bytes), bytes of an element."""

pack_row = Struct(f"{COLUMNS}q").pack
"""The bytes of one row: an array takes these in half of the time that it takes for five numbers."""

NO_ROWS: Rows = np.empty((0, COLUMNS), np.int64)


class Listed(NamedTuple):
    """A request of many runs, whose data lie one after another.

    request : int
    runs : Runs, the same object wherever the same runs are meant.
    address : int, of the first byte.
    itemsize : int, bytes of an element.
    """

    request: int
    runs: Runs
    address: int
    itemsize: int

    def rows(self) -> Rows:
        """The same as rows."""
        return make_rows(self.request, self.runs, self.address, self.itemsize)


Item = Rows | Listed
"""What was posted for a variable, or a part of it."""


def make_rows(request: int, runs: Runs, address: int, itemsize: int) -> Rows:
    """Rows of runs whose data lie one after another from `address` on."""
    rows = np.empty((len(runs.start), COLUMNS), np.int64)
    rows[:, 0] = request
    rows[:, 1] = runs.start
    rows[:, 2] = runs.length
    rows[:, 3] = before(runs.length) * itemsize + address
    rows[:, 4] = itemsize
    return rows


class Tables(Mapping[int, Rows]):
    """Rows of variables, in one table: many variables have but a row or two.

    uids : list of int, the variables.
    rows : Rows of all of them, one variable's behind the other's.
    counts : int64[variables], rows of each; None if each has one.
    """

    def __init__(self, tables: Mapping[int, array[int]]) -> None:
        self.uids = list(tables)
        self.rows: Rows = np.frombuffer(bytearray(b"".join(tables.values())), np.int64).reshape(-1, COLUMNS)
        self.counts: Int64 | None = None
        if len(self.rows) != len(self.uids) or not all(tables.values()):
            self.counts = np.fromiter(map(len, tables.values()), np.int64, len(self.uids)) // COLUMNS
        self._index: dict[int, int] = {}
        self._ends: Int64 | None = None

    def __getitem__(self, uid: int) -> Rows:
        if self.uids and not self._index:
            self._index = {uid: i for i, uid in enumerate(self.uids)}
        i = self._index[uid]
        if self.counts is None:
            return self.rows[i : i + 1]
        if self._ends is None:
            self._ends = np.cumsum(self.counts)
        return self.rows[int(self._ends[i] - self.counts[i]) : int(self._ends[i])]

    def __iter__(self) -> Iterator[int]:
        return iter(self.uids)

    def __len__(self) -> int:
        return len(self.uids)
