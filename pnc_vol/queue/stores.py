"""A queue store keeps posted bytes until they are written: its protocol, and the register of names.

Knows: what a store must do and may declare. Does not know: any store.

Rules
-----
1. A store takes a post whole or says no; a `False` leaves nothing behind. Rows go to the backlog, which all stores of
   a queue share; bytes are kept by the store until its batches are done.
2. What a store can do is declared in `Store.capabilities`; nobody asks for its class.
3. A store is named by the option ``store``, and ``nc_burst_buf=enable`` means ``store="log"``. A store of this package
   is imported when it is first named; one of another package is found by its entry point in the group
   ``pnc_vol.stores``, which is searched only for a name that is not known yet.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.disk.stored_file import StoredFile
from pnc_vol.extents.merge import intersect, last_wins
from pnc_vol.extents.model import Extents, Int64, Runs, before, distinct
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.plugins import Registry
from pnc_vol.queue.batches import COLUMNS, NO_ROWS, Batch, Lists, MemoryBatch, Rows, make_rows, pack_row
from pnc_vol.ranks.comm import Comm
from pnc_vol.settings.options import Options

if TYPE_CHECKING:
    from pnc_vol.extents.model import Selection
    from pnc_vol.format.numeric import Overflow

__all__ = [
    "LEAST_BUDGET",
    "LEAST_TAIL",
    "MEMORY",
    "ROW_COST",
    "Backlog",
    "Capabilities",
    "SortedRows",
    "Store",
    "StoreContext",
    "check_name",
    "lay_last",
    "lay_over",
    "near",
    "open_store",
    "register",
    "registered",
    "rows_of_request",
    "same_width",
    "trouble",
]


# ------------------------------------------------------------------------------------------------------------- backlog
# What is posted and not written, in the order of posting: closed batches, then the rows of the open one.
#
# Knows: rows, lists of runs, batches. Does not know: where bytes are kept, variables' places, who posts.
#
# All stores of a queue share one backlog, and one budget of memory: a row takes memory wherever its bytes are.


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
    sorted : dict of int to SortedRows
        Rows of `tables` in order, for reads between posts.
    """

    __slots__ = ("budget", "closed", "lists", "rows", "sorted", "tables")

    def __init__(self, budget: int) -> None:
        self.budget = max(budget, LEAST_BUDGET)
        self.closed: list[Batch] = []
        self.tables: dict[int, array[int]] = {}
        self.lists = Lists()
        self.rows = 0
        self.sorted: dict[int, SortedRows] = {}

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
        """Return the rows of a variable in the open batch, not copied: gone before the next post."""
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
    """Return the first and last row of a request; requests only grow along the table."""
    rows = range(len(table) // COLUMNS)
    first, last = (bisect_left(rows, n, key=lambda i: table[COLUMNS * i]) for n in (request, request + 1))
    return first, last


Bytes = npt.NDArray[np.uint8]

LEAST_TAIL = 512
"""Rows posted since the last sorting that a read looks through one by one."""

_LOOKS = 8
"""Times that reads look through rows until they are sorted, which takes as long: most programs read once, if at all."""


class SortedRows:
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
    def of(cls, rows: Rows) -> SortedRows:
        """Sort rows that stand in the order of posting."""
        widths = rows[:, 4]
        if not len(rows) or bool((widths != widths[0]).any()):
            none = np.empty(0, np.int64)
            return cls(0, none, none, none, 1)
        width = int(widths[0])
        kept = last_wins(Extents(rows[:, 1] * width, rows[:, 2] * width, np.ascontiguousarray(rows[:, 3])))
        return cls(len(rows), kept.offset // width, (kept.offset + kept.length) // width, kept.place, width)

    def is_short(self, rows: int) -> bool:
        """Return whether what was posted since, of `rows` in all, is better looked through once more than sorted."""
        behind = rows - self.count
        self.looked += behind
        return behind <= LEAST_TAIL or self.looked <= _LOOKS * rows

    def near(self, low: int, high: int) -> Rows:
        """Return the rows that reach into the elements from `low` to `high`."""
        first, last = int(self.end.searchsorted(low, "right")), int(self.begin.searchsorted(high))
        if first >= last:
            return NO_ROWS
        rows = np.zeros((last - first, COLUMNS), np.int64)
        rows[:, 1] = begin = self.begin[first:last]
        rows[:, 2] = self.end[first:last] - begin
        rows[:, 3], rows[:, 4] = self.place[first:last], self.width
        return rows


def near(rows: Rows, low: int, high: int, before_request: int | None = None) -> Rows:
    """Return those rows, of requests with a smaller number, that reach into the elements from `low` to `high`;
    copied."""
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
    """Return rows and bytes with all elements `itemsize` wide: strings posted before their variable grew are padded."""
    if bool((rows[:, 4] == itemsize).all()):
        return rows, batch
    counts: Int64 = rows[:, 2]
    packed = np.zeros((int(counts.sum()), itemsize), np.uint8)
    first = before(counts)
    for width in distinct(rows[:, 4]).tolist():
        chosen = np.flatnonzero(rows[:, 4] == width)
        n = counts[chosen]
        got = np.empty((int(n.sum()), width), np.uint8)
        batch.copy(uid, got.reshape(-1), before(n) * width, rows[chosen, 3], n * width)
        to = np.repeat(first[chosen] - before(n), n) + np.arange(len(got))
        packed[to, : min(width, itemsize)] = got[:, :itemsize]
    even = rows.copy()
    even[:, 3] = first * itemsize
    even[:, 4] = itemsize
    return even, MemoryBatch({0: even}, packed.reshape(-1))


GROUP = "pnc_vol.stores"

MEMORY = "memory"
"""The last store of every queue, which needs no opening."""


class Capabilities(NamedTuple):
    """What a queue may rely on, and has to do, when posts go to a store.

    survives_kill : bool
        What was posted outlives the process, and a recovery finds it.
    logged : bool
        What was posted is kept until the header is written, whatever was drained: a drain alone makes no room, a
        whole flush does. All ranks say that they are done before one of them closes such a store.
    shares_lists : bool
        A list of runs is kept once for all posts that have it.
    user_arrays : bool
        An array that ``iput`` is given may stay with the user until the request is complete; a store that must copy
        what it is given says False.
    """

    survives_kill: bool = False
    logged: bool = False
    shares_lists: bool = False
    user_arrays: bool = True


class StoreContext(NamedTuple):
    """What a store is opened with.

    backlog : Backlog, of the queue.
    options : Options, of the file.
    comm : Comm, of the file; opening a store is collective.
    disk : StoredFile, what is on disk: the path, the header that it has now.
    """

    backlog: Backlog
    options: Options
    comm: Comm
    disk: StoredFile


class Store:
    """A place for posted bytes.

    Derive from it and override `put`, `close_batch` and `open_batch`; the rest has a default.

    Parameters
    ----------
    backlog : Backlog
        The rows of the queue that the store belongs to.

    Attributes
    ----------
    batches : list of Batch
        The closed batches that this store made and that are not written.
    usable : bool
        Whether it takes posts; if not, they go to memory.
    """

    capabilities: ClassVar[Capabilities] = Capabilities()

    def __init__(self, backlog: Backlog) -> None:
        self.backlog = backlog
        self.batches: list[Batch] = []
        self.usable = True

    # ------------------------------------------------------------------------------------- posting

    def put(
        self,
        node: DatasetNode,
        request: int,
        values: npt.NDArray[Any],
        selection: Selection | None,
        one: tuple[int, int] | None,
        found: Runs | None,
        on_overflow: Overflow,
    ) -> bool:
        """Take in what is to be written.

        Parameters
        ----------
        node : DatasetNode
        request : int
        values : ndarray, ready for `to_file`.
        selection : Selection or None
            Where the elements are, as the user said it, if the values are all of it.
        one : (start, count) or None
            The elements, where they are one run that crosses no record.
        found : Runs or None
            The elements; needed if `one` is None.
        on_overflow : "raise" or "clip"

        Returns
        -------
        bool
            False if there is no room; nothing was taken in.

        Raises
        ------
        RangeError, DefinitionError
            See `to_file`; nothing was posted.
        """
        raise NotImplementedError

    def put_run(
        self,
        node: DatasetNode,
        request: int,
        values: npt.NDArray[Any],
        start: Any,
        number: int = 1,
        step: int = 0,
    ) -> bool:
        """Do as `put` does, for what most posts are: numbers of the variable's own type, one run that crosses no
        record.

        False also means: ask `put`.

        number, step : int, optional
            There are so many runs of equal length, which begin `step` elements apart. They are given if there is more
            than one; where `step` is 0 then, `start` is an int64[number], the first element of each.
        """
        return False

    # ------------------------------------------------------------------------------------- batches

    def close_batch(self) -> None:
        """Make batches of the open rows, with `add`; later posts go to new ones."""
        raise NotImplementedError

    def add(self, batch: Batch) -> None:
        """Append a batch to the backlog."""
        self.batches.append(batch)
        self.backlog.closed.append(batch)

    def open_batch(self, uid: int) -> Batch:
        """Return the bytes of a variable's open rows, for reads; its own rows are not asked for.

        All rows are in the backlog from then on: a store may have kept some back.
        """
        raise NotImplementedError

    def open_lists(self, uid: int) -> Batch | None:
        """Return a batch of the lists of runs that a variable has in the open batch; None if it has none."""
        return None

    def retain(self, left: Sequence[Batch]) -> int:
        """Keep these of the closed batches; give up what the others took.

        Returns
        -------
        int
            Rows of these that are in memory.
        """
        self.batches = list(left)
        return sum(sum(batch.sizes(uid)) for batch in left if batch.rows_in is None for uid in batch.uids())

    def weight(self) -> tuple[int, int]:
        """Return the runs of its closed batches that are not in rows, and bytes. It is asked when the open batch was
        closed."""
        return 0, sum(batch.size for batch in self.batches)

    # ------------------------------------------------------------------------------ what it is told

    def cancel(self, requests: set[int]) -> None:
        """Requests are about to be dropped.

        Raises
        ------
        OSError
            It cannot be recorded; nothing is dropped then.
        """

    def cut(self, node: DatasetNode, count: int) -> bool:
        """Note that a record variable's rows from element `count` on are about to go; return False if that cannot be
        recorded."""
        return True

    def about_to_flush(self, *, active: bool) -> None:
        """A flush begins.

        Parameters
        ----------
        active : bool, posts go to this store now.

        Raises
        ------
        PncVolError
            What was posted cannot be written.
        """

    def about_to_write(self, header: bytes) -> None:
        """The file gets a new header."""

    def after_flush(self) -> bool:
        """Note that all that was posted is in the file, header included; return whether posts may go here again."""
        return True

    def hints(self) -> dict[str, str]:
        """Return hints in force, by PnetCDF's names."""
        return {}

    def close(self, *, flushed: bool, empty: bool) -> None:
        """Give everything back.

        Parameters
        ----------
        flushed : bool, all that was posted on all ranks is in the file.
        empty : bool, nothing is in the backlog.
        """


# ------------------------------------------------------------------------------------------ names

Factory = Callable[[StoreContext], Store]


def _named(name: str, factory: Factory) -> Factory:
    if not re.fullmatch(r"[\w-]+", name):
        raise ValueError(f"A store's name is a word of letters, digits, '-' and '_', not {name!r}")
    return factory


_registry = Registry[Factory](GROUP, "store", made=_named)


def register(name: str, factory: Factory) -> None:
    """Let the option ``store`` name a store.

    Parameters
    ----------
    name : str
        A word of letters, digits, ``-`` and ``_``. A second store of the same name replaces the first.
    factory : callable
        Takes a `StoreContext`, returns a `Store`; it is called on all ranks, and may use the communicator. If it has an
        attribute ``trouble``, that is called with the `Options` on each rank before a file is touched, and returns the
        error for which this rank cannot have a store, or None.

    Raises
    ------
    ValueError
        The name is no such word.
    """
    _registry.register(name, factory)


def registered() -> list[str]:
    """Return all names that the option ``store`` may have, sorted.

    Examples
    --------
    >>> "memory" in registered()
    True
    """
    return sorted({MEMORY, *_registry.names()})


def check_name(name: str) -> None:
    """Raise if there is no store of a name; asked before a file is touched.

    Raises
    ------
    ValueError
        With the names that there are.
    """
    if name != MEMORY and name not in _registry:
        raise ValueError(f"option store={name!r}: one of {', '.join(registered())} is needed")


def trouble(name: str, options: Options) -> Exception | None:
    """Return why this rank cannot have a store, or None; asked before a file is touched."""
    asked = getattr(_registry.find(name), "trouble", None) if name != MEMORY else None
    return None if asked is None else asked(options)


def open_store(name: str, context: StoreContext) -> Store:
    """Open a store by its name (collective).

    Raises
    ------
    ValueError
        There is no store of this name.
    OSError
        It cannot be opened.
    """
    check_name(name)
    return _registry.find(name)(context)
