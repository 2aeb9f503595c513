"""What was posted, as rows of integers and as lists of runs.

Knows: runs. Does not know: data, where variables lie, files.

Rows
----
A posted run is a row of five int64: request, first element, elements, address, bytes of an element. Rows of
a variable stand in the order of posting; that order decides who wins where they overlap. A request of many runs, which
other requests may have as well, is `Listed`: the runs stand once for all that have them, and so does their plan.

Rules
-----
1. A list of runs is kept, and charged, once for all posts that have it; where all of its runs are equally long the
   lengths take no memory. A hyperslab in place of its list would save the 8 bytes that are left of each run; then
   whoever reads the queue would have to make the runs.
2. What is planned at once has `MOST_RUNS` runs at most: a longer list is several, which are views of it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from struct import Struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.extents.model import Int64, Runs, before

__all__ = [
    "COLUMNS", "LIST_COST", "LONG_LIST", "MOST_RUNS", "NO_ROWS", "RUN_COST", "Item", "Listed", "Lists", "Rows",
    "Tables", "compact", "make_rows", "pack_row",
]  # fmt: skip

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


# ---------------------------------------------------------------------------------- lists of runs

LIST_COST = 512
"""Bytes that a post of a list of runs, or of a part of one, is charged with, beside its values."""

RUN_COST = 16
"""Bytes that a run of a list takes, once for all posts; 8 of them if all runs are equally long."""

MOST_RUNS = 1 << 17
"""Runs of a part of a list at most, which is what is planned at once."""

LONG_LIST = 1 << 12
"""Runs from which on a list is not made rows of: a batch more costs less."""


def compact(runs: Runs) -> Runs:
    """The same runs; the lengths without memory of their own if they are all equal.

    Examples
    --------
    >>> compact(Runs(np.array([0, 5, 9]), np.array([2, 2, 2]))).length.strides
    (0,)
    """
    length = runs.length
    if len(length) < 2 or int(length.min()) != int(length.max()):
        return runs
    return Runs(runs.start, np.broadcast_to(length[:1].copy(), length.shape))


def _nbytes(runs: Runs) -> int:
    return RUN_COST // 2 * len(runs.start) * (1 if len(runs.start) > 1 and runs.length.strides == (0,) else 2)


class Lists:
    """Lists of runs that are posted and not written."""

    def __init__(self) -> None:
        self.open: dict[int, list[Listed]] = {}
        """Those of the open batch by variable, in the order of posting; none of these variables has rows in it."""
        self.nbytes = 0
        """What they are charged with, closed batches included."""
        self._known: dict[int, Runs] = {}
        self._parts: dict[int, tuple[Runs, list[Runs]]] = {}

    def parts(self, runs: Runs) -> list[Runs]:
        """The runs in lists of `MOST_RUNS` at most, the same ones each time."""
        n = len(runs.start)
        if n <= MOST_RUNS:
            return [runs]
        found = self._parts.get(id(runs))
        if found is None:
            cuts = range(0, n, MOST_RUNS)
            views = [Runs(runs.start[at : at + MOST_RUNS], runs.length[at : at + MOST_RUNS]) for at in cuts]
            # The list is kept as well, so that its identity stays its own.
            found = self._parts[id(runs)] = runs, views
        return found[1]

    def cost(self, runs: Runs) -> int:
        """What a post of these runs is charged with beside its values."""
        parts = self.parts(runs)
        return LIST_COST * len(parts) + sum(_nbytes(part) for part in parts if id(part) not in self._known)

    def add(self, uid: int, request: int, runs: Runs, address: int, itemsize: int) -> None:
        """Add a post whose data lie one after another from `address` on."""
        self.nbytes += self.cost(runs)
        into = self.open.setdefault(uid, [])
        parts = self.parts(runs)
        first = [0] if len(parts) == 1 else before(np.array([int(part.length.sum()) for part in parts])).tolist()
        for part, elements in zip(parts, first, strict=True):
            self._known[id(part)] = part
            into.append(Listed(request, part, address + elements * itemsize, itemsize))

    def take_back(self, uid: int, count: int, nbytes: int) -> None:
        """Forget lists that were added to a variable beyond `count`; before, all was charged with `nbytes`."""
        items = self.open.pop(uid, [])
        for item in items[count:]:
            # They were made for this post.
            self._known.pop(id(item.runs), None)
        if count:
            self.open[uid] = items[:count]
        self.nbytes = nbytes

    def close(self) -> dict[int, list[Listed]]:
        """The open ones, which are in a closed batch from now on."""
        closed, self.open = self.open, {}
        return closed

    def recount(self, left: Iterable[Listed]) -> None:
        """After a flush: only these wait."""
        items = list(left)
        self._known = {id(item.runs): item.runs for item in items}
        self._parts = {}
        self.nbytes = LIST_COST * len(items) + sum(map(_nbytes, self._known.values()))
