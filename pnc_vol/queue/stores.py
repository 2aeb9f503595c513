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
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.disk.stored_file import StoredFile
from pnc_vol.extents.merge import intersect, last_wins
from pnc_vol.extents.model import Extents, Int64, Runs, before
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.plugins import Registry
from pnc_vol.queue.batches import COLUMNS, NO_ROWS, Batch, Lists, MemoryBatch, Rows, Table, make_rows, of_each, pack_row
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
    "same_width",
    "trouble",
]


# ------------------------------------------------------------------------------------------------------------- backlog
# What is posted and not written, in the order of posting: closed batches, then the rows of the open one.
#
# Knows: rows, batches. Does not know: where bytes are kept, variables' places, who posts.
#
# All stores of a queue share one backlog, and one budget of memory: a row takes memory wherever its bytes are.


ROW_COST = 160
"""Bytes that a row is charged with: 40 for itself, the rest for the plan."""

LEAST_BUDGET = 64 << 10

_ROW_BYTES = 8 * COLUMNS


class Backlog:
    """Posted rows of one file.

    Parameters
    ----------
    budget : int, bytes of data and rows held in memory; at least 64 KiB.

    Attributes
    ----------
    closed : list of Batch
        In the order of posting.
    table : array of int
        Rows of the open batch, in the order of posting.
    widths, listed : dict of int to int
        Bytes of an element of each variable that has rows of runs, and rows of lists, in the open batch.
    lists : Lists
        The lists of runs that rows may be of.
    rows : int
        Rows in memory, those of closed batches included.
    sorted : SortedRows or None
        Rows of `table` in order, for reads between posts.
    """

    __slots__ = ("budget", "closed", "listed", "lists", "rows", "sorted", "table", "widths")

    def __init__(self, budget: int) -> None:
        self.budget = max(budget, LEAST_BUDGET)
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.closed: list[Batch] = []
        self.lists, self.rows = Lists(), 0
        self.clear_open()

    def clear_open(self) -> None:
        """The rows of the open batch are in a closed one from now on."""
        self.table: array[int] = array("q")
        self.widths: dict[int, int] = {}
        self.listed: dict[int, int] = {}
        self.sorted: SortedRows | None = None

    def post(self, uid: int, request: int, start: int, count: int, address: int, itemsize: int) -> None:
        """Add one run of elements to the open batch."""
        self.widths[uid] = itemsize
        self.table.frombytes(pack_row(request, start, count, address, uid))
        self.rows += 1

    def post_packed(self, uid: int, rows: bytes, itemsize: int) -> None:
        """Add rows of a variable to the open batch, as the bytes that `pack_row` makes of each."""
        self.widths[uid] = itemsize
        self.table.frombytes(rows)
        self.rows += len(rows) // _ROW_BYTES

    def post_runs(self, uid: int, request: int, runs: Runs, address: int, itemsize: int) -> None:
        """Add runs, whose data lie one after another from `address` on."""
        if len(runs.start) == 1:
            self.post(uid, request, int(runs.start[0]), int(runs.length[0]), address, itemsize)
            return
        self.post_packed(uid, make_rows(uid, request, runs, address, itemsize).tobytes(), itemsize)

    def post_list(self, uid: int, request: int, runs: Runs, address: int, itemsize: int) -> None:
        """Do as `post_runs`; the runs are kept once for all posts that have them."""
        numbers = self.lists.add(runs)
        self.listed[uid] = itemsize
        for number in numbers:
            count = self.lists.elements[number]
            self.table.frombytes(pack_row(request, -1 - number, count, address, uid))
            self.rows += 1
            address += count * itemsize

    def open_rows(self) -> Rows:
        """Return the rows of the open batch, not copied: gone before the next post."""
        return np.frombuffer(self.table, np.int64).reshape(-1, COLUMNS)

    def open_table(self) -> Table:
        """Return the same as a table, which may be kept if the batch is closed."""
        # copied: what an interrupt leaves is an open batch to which posts may still be added
        rows = np.array(self.open_rows())
        return Table(rows, self.listed | self.widths, self.lists.runs) if self.listed else Table(rows, self.widths)

    def no_rows(self) -> Table:
        """Return the open batch without its rows."""
        return Table(NO_ROWS, self.listed | self.widths if self.listed else self.widths)

    def take_out(self, request: int) -> None:
        """Drop the rows that a request has in the open batch."""
        table = self.table
        # requests only grow along the table
        rows = range(len(table) // COLUMNS)
        first, last = (bisect_left(rows, n, key=lambda i: table[COLUMNS * i]) for n in (request, request + 1))
        del table[first * COLUMNS : last * COLUMNS]
        self.rows -= last - first
        self.sorted = None


Bytes = npt.NDArray[np.uint8]

LEAST_TAIL = 512
"""Rows posted since the last sorting that a read looks through one by one."""

_LOOKS = 8
"""Times that reads look through rows until they are sorted, which takes as long: most programs read once, if at all."""

_MOST_BYTES = 2.0**62
"""Bytes of variables beyond which their rows are not sorted: no int64 would hold where the last of them ends."""


class SortedRows:
    """The first rows of the open batch, sorted and without what later ones of them overwrote; none that are of lists.

    Reads that come between posts would otherwise look through all rows each time.

    count : int, rows that it stands for.
    looked : int, rows behind these that reads have looked through.
    spans : dict of int to (int, int), first and last byte of each variable, if all lie one behind another.
    begin, end, place : int64[n], such bytes, and addresses, of disjoint rows; each column by itself, for
        `searchsorted`.
    """

    __slots__ = ("begin", "count", "end", "looked", "place", "spans")

    def __init__(self, rows: Rows, widths: Mapping[int, int]) -> None:
        self.count = self.looked = 0
        self.spans: dict[int, tuple[int, int]] = {}
        self.begin = self.end = self.place = NO_ROWS[:, 0]
        table = Table(rows[rows[:, 1] >= 0], widths)
        width = of_each(widths, table.rows[:, 4])
        offset, length = table.rows[:, 1] * width, table.rows[:, 2] * width
        # a byte between two variables: no piece is in both
        size = np.maximum.reduceat(offset + length, table.begins) + 1
        if size.sum(dtype=np.float64) > _MOST_BYTES:
            return
        first = before(size)
        offset += np.repeat(first, np.diff(table.begins, append=len(offset)))
        kept = last_wins(Extents(offset, length, np.ascontiguousarray(table.rows[:, 3])))
        self.begin, self.end, self.place = kept.offset, kept.offset + kept.length, kept.place
        self.spans = dict(zip(table.uids, zip(first.tolist(), (first + size).tolist(), strict=True), strict=True))
        self.count = len(rows)

    def is_short(self, rows: int) -> bool:
        """Return whether what was posted since, of `rows` in all, is better looked through once more than sorted."""
        behind = rows - self.count
        self.looked += behind
        return behind <= LEAST_TAIL or self.looked <= _LOOKS * rows

    def near(self, uid: int, low: int, high: int, width: int) -> Rows:
        """Return the rows of a variable that reach into the elements from `low` to `high`."""
        base, last = self.spans.get(uid, (0, 0))
        first = int(self.end.searchsorted(base + low * width, "right"))
        last = int(self.begin.searchsorted(min(base + high * width, last)))
        if first >= last:
            return NO_ROWS
        rows = np.zeros((last - first, COLUMNS), np.int64)
        rows[:, 1] = (self.begin[first:last] - base) // width
        rows[:, 2] = (self.end[first:last] - self.begin[first:last]) // width
        rows[:, 3], rows[:, 4] = self.place[first:last], uid
        return rows


def near(rows: Rows, uid: int, low: int, high: int, before_request: int | None = None) -> Rows:
    """Return those rows of a variable, of requests with a smaller number, that reach into the elements from `low` to
    `high`; copied."""
    begin = rows[:, 1]
    reach = begin < high
    reach &= begin + rows[:, 2] > low
    if before_request is not None:
        reach &= rows[:, 0] < before_request
    at = reach.nonzero()[0]
    if not at.size:
        return NO_ROWS
    # last, as mostly there is none to ask
    found: Rows = rows[at[rows[at, 4] == uid]]
    return found


def lay_last(batch: Batch, uid: int, rows: Rows, low: int, high: int, target: Bytes, itemsize: int) -> bool:
    """Copy the elements from `low` to `high`, if the last row holds them all; False if it does not."""
    _, begin, count, address, _ = rows[-1].tolist()
    if begin > low or begin + count < high or batch.widths[uid] != itemsize:
        return False
    piece = np.array((0, address + (low - begin) * itemsize, (high - low) * itemsize), np.int64)
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
    """Return rows and bytes with elements `itemsize` wide: strings posted before their variable grew are padded."""
    width = batch.widths[uid]
    if width == itemsize:
        return rows, batch
    counts: Int64 = rows[:, 2]
    got = np.empty((int(counts.sum()), width), np.uint8)
    batch.copy(uid, got.reshape(-1), before(counts) * width, rows[:, 3], counts * width)
    packed = np.zeros((len(got), itemsize), np.uint8)
    packed[:, : min(width, itemsize)] = got[:, :itemsize]
    even = rows.copy()
    even[:, 3] = before(counts) * itemsize
    return even, MemoryBatch(Table(even, {uid: itemsize}), packed.reshape(-1))


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
        found: Runs,
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
        found : Runs
            The elements; no run crosses a record.
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

    def open_batch(self) -> Batch:
        """Return the bytes of the open rows, for reads.

        All rows are in the backlog from then on: a store may have kept some back.
        """
        raise NotImplementedError

    def retain(self, left: Sequence[Batch]) -> None:
        """Keep these of the closed batches; give up what the others took."""
        self.batches = list(left)

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
