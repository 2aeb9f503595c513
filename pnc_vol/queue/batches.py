"""A batch has posted bytes with their rows: every queue store makes batches, and a flush writes them.

Knows: rows, memory. Does not know: variables' places, headers, ranks, stores.

Rules
-----
1. A batch holds the rows of some variables and can copy any piece of their bytes, in the file's byte order.
2. Batches are written one after another, in the order of posting, so a later one wins over an earlier one.
3. What a batch can do is declared (`store`, `drains`, `streamed`, `whole`); nobody asks for its class.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from struct import Struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers import vectored_io
from pnc_vol.extents.model import Int64, Runs, before
from pnc_vol.format import numeric

__all__ = [
    "COLUMNS",
    "LIST_COST",
    "LONG_LIST",
    "MOST_RUNS",
    "NO_ROWS",
    "RUN_COST",
    "Batch",
    "Item",
    "Listed",
    "Lists",
    "MemoryBatch",
    "Rows",
    "Tables",
    "UserArrayBatch",
    "changed",
    "compact",
    "make_rows",
    "pack_row",
    "posted",
    "without",
]


# ---------------------------------------------------------------------------------------------------------------- rows
# What was posted, as rows of integers and as lists of runs.
#
# Knows: runs. Does not know: data, where variables lie, files.
#
# Rows ---- A posted run is a row of five int64: request, first element, elements, address, bytes of an element. Rows of
# a variable stand in the order of posting; that order decides who wins where they overlap. A request of many runs,
# which other requests may have as well, is `Listed`: the runs stand once for all that have them, and so does their
# plan.
#
# Rules
# -----
# 1. A list of runs is kept, and charged, once for all posts that have it; where all of its runs are equally long the
#    lengths take no memory. A hyperslab in place of its list would save the 8 bytes that are left of each run; then
#    whoever reads the queue would have to make the runs.
# 2. What is planned at once has `MOST_RUNS` runs at most: a longer list is several, which are views of it.


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
        """Return the same as rows."""
        return make_rows(self.request, self.runs, self.address, self.itemsize)


Item = Rows | Listed
"""What was posted for a variable, or a part of it."""


def make_rows(request: int, runs: Runs, address: int, itemsize: int) -> Rows:
    """Return rows of runs whose data lie one after another from `address` on."""
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
    """Return the same runs; the lengths without memory of their own if they are all equal.

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
        """Return the runs in lists of `MOST_RUNS` at most, the same ones each time."""
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
        """Return what a post of these runs is charged with beside its values."""
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
        """Return the open ones, which are in a closed batch from now on."""
        closed, self.open = self.open, {}
        return closed

    def recount(self, left: Iterable[Listed]) -> None:
        """Count again after a flush: only these wait."""
        items = list(left)
        self._known = {id(item.runs): item.runs for item in items}
        self._parts = {}
        self.nbytes = LIST_COST * len(items) + sum(map(_nbytes, self._known.values()))


Bytes = npt.NDArray[np.uint8]


class Batch:
    """Some posted rows by variable, with their bytes.

    Derive from it and define `keep`, `copy`, and `load` unless it is streamed.

    store : object, what keeps the bytes and is told which of its batches are left; None if nothing needs to know.
    rows_in : object, the spill file that its rows are in; None if they are in memory.
    drains : bool, a queue that is full may write it before the flush.
    streamed : bool, it is never loaded: its bytes are copied in blocks, and not joined with other ranks' data.
    size : int, bytes that `load` needs room for.
    """

    store: object = None
    rows_in: object = None
    drains = True
    streamed = False
    size = 0

    def __init__(self, rows: Mapping[int, Rows]) -> None:
        self._rows: Mapping[int, Rows] = rows

    @property
    def whole(self) -> Tables | None:
        """All of it as it was posted, if it can be planned at once; None otherwise."""
        return None

    def uids(self) -> list[int]:
        """Return the variables that have rows here."""
        return list(self._rows)

    def rows(self, uid: int) -> Rows:
        """Return the rows of one variable, in posting order; none if it has none here."""
        found = self._rows.get(uid)
        return NO_ROWS if found is None else found

    def items(self, uid: int) -> Sequence[Item]:
        """Return what `rows` says, in parts, lists of runs as they are."""
        return [self.rows(uid)]

    def sizes(self, uid: int) -> list[int]:
        """Return the runs of each of the `items`, without looking at them."""
        found = self._rows.get(uid)
        return [0 if found is None else len(found)]

    def keep(self, rows: Mapping[int, Rows]) -> Batch:
        """Return the same bytes with other rows."""
        raise NotImplementedError

    def change(self, rows: Mapping[int, Rows]) -> Batch:
        """Return the same bytes with other rows of some variables; a variable that has none left is gone."""
        return self.keep(changed(self._rows, rows))

    def copy(self, uid: int, target: Bytes, target_place: Int64, address: Int64, nbytes: Int64) -> None:
        """Do ``target[t:t+n] = bytes[a:a+n]`` for each piece; pieces are whole elements of one variable."""
        raise NotImplementedError

    def load(self, room: Bytes) -> Bytes:
        """Return all bytes, indexed by address; `room` may be used to hold them."""
        raise NotImplementedError


def posted(batches: Sequence[Batch]) -> set[int]:
    """Return the requests that have rows."""
    return {number for batch in batches for uid in batch.uids() for number in batch.rows(uid)[:, 0].tolist()}


def without(batches: Sequence[Batch], requests: set[int]) -> tuple[list[Batch], int]:
    """Return the batches without the rows of some requests, and how many rows these had."""
    gone = 0
    left: list[Batch] = []
    numbers = np.fromiter(requests, np.int64, len(requests))
    for batch in batches:
        changed = {}
        for uid in batch.uids():
            rows = batch.rows(uid)
            kept = rows[~np.isin(rows[:, 0], numbers)]
            if len(kept) < len(rows):
                gone += len(rows) - len(kept)
                changed[uid] = kept
        left.append(batch.change(changed) if changed else batch)
    return left, gone


def changed(rows: Mapping[int, Rows], others: Mapping[int, Rows]) -> dict[int, Rows]:
    """Return rows by variable, with others of some; a variable that has none left is gone."""
    return {uid: found for uid, found in (dict(rows) | dict(others)).items() if len(found)}


class MemoryBatch(Batch):
    """Bytes in one array, such as a queue's arena; an address is an index into it.

    listed : mapping of uid to lists of runs in the order of posting; of variables that have no rows.
    """

    def __init__(
        self,
        rows: Mapping[int, Rows],
        arena: Bytes,
        listed: Mapping[int, Sequence[Listed]] | None = None,
        store: object = None,
    ) -> None:
        # without a call more: a program may flush after each post
        self._rows, self.store, self.arena = rows, store, arena
        self.listed = dict(listed or {})

    def uids(self) -> list[int]:
        own = [*(self._rows.uids if isinstance(self._rows, Tables) else self._rows)]
        return own + [uid for uid in self.listed if uid not in self._rows] if self.listed else own

    def rows(self, uid: int) -> Rows:
        found = self.listed.get(uid) if self.listed else None
        return super().rows(uid) if found is None else np.concatenate([item.rows() for item in found])

    def items(self, uid: int) -> Sequence[Item]:
        return self.listed[uid] if uid in self.listed else [self.rows(uid)]

    def sizes(self, uid: int) -> list[int]:
        listed = self.listed.get(uid)
        return super().sizes(uid) if listed is None else [len(item.runs.start) for item in listed]

    def keep(self, rows: Mapping[int, Rows]) -> MemoryBatch:
        return MemoryBatch(rows, self.arena, store=self.store)

    def change(self, rows: Mapping[int, Rows]) -> MemoryBatch:
        listed = {uid: found for uid, found in self.listed.items() if uid not in rows}
        return MemoryBatch(changed(self._rows, rows), self.arena, listed, self.store)

    @property
    def whole(self) -> Tables | None:
        # Only if nothing was taken out and nothing is a list.
        return self._rows if isinstance(self._rows, Tables) and not self.listed else None

    def copy(self, uid: int, target: Bytes, target_place: Int64, address: Int64, nbytes: Int64) -> None:
        vectored_io.copy_pieces(target, target_place, self.arena, address, nbytes)

    def load(self, room: Bytes) -> Bytes:
        return self.arena


class UserArrayBatch(Batch):
    """An array of the user's, posted by ``iput`` without a copy; it does not change until the request is complete.

    array : uint8[n], its bytes, in C order and the machine's byte order.
    swap : int, bytes of a value, for the file's byte order.
    """

    streamed = True

    def __init__(self, rows: Mapping[int, Rows], array: Bytes, swap: int) -> None:
        super().__init__(rows)
        self.array = array
        self.swap = swap

    def keep(self, rows: Mapping[int, Rows]) -> UserArrayBatch:
        return UserArrayBatch(rows, self.array, self.swap)

    def copy(self, uid: int, target: Bytes, target_place: Int64, address: Int64, nbytes: Int64) -> None:
        if len(nbytes) == 1:
            # Most blocks of a stream are one piece: no array between is needed.
            at, n, begin = int(target_place[0]), int(nbytes[0]), int(address[0])
            target[at : at + n] = self.array[begin : begin + n]
            numeric.swap_in_place(target[at : at + n], self.swap)
            return
        ends = np.cumsum(nbytes)
        packed = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
        vectored_io.copy_pieces(packed, ends - nbytes, self.array, address, nbytes)
        numeric.swap_in_place(packed, self.swap)
        vectored_io.copy_pieces(target, target_place, packed, ends - nbytes, nbytes)

    def load(self, room: Bytes) -> Bytes:
        raise NotImplementedError("a user's array is written in blocks, never loaded whole")
