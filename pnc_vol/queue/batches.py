"""A batch has posted bytes with the table of their rows: every queue store makes batches, and a flush writes them.

Knows: rows, runs, memory. Does not know: variables' places, headers, ranks, stores.

Rules
-----
1. A post becomes rows of five integers: request, first element, elements, address of the bytes, variable. A post of
   many runs is one row: the runs, in a list that other posts may have as well, stand in place of the first element.
2. A batch has a `Table` of rows and can copy any piece of their bytes, in the file's byte order. All elements of a
   variable are of one width in it: strings that grow begin another batch.
3. Batches are written one after another, in the order of posting, so a later one wins over an earlier one; so do rows
   of a variable within a batch.
4. What a batch can do is declared (`store`, `drains`, `streamed`); nobody asks for its class.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from struct import Struct

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers import vectored_io
from pnc_vol.extents.blocks import groups
from pnc_vol.extents.merge import stable_order
from pnc_vol.extents.model import Int64, Runs, before
from pnc_vol.format import numeric

__all__ = [
    "COLUMNS",
    "MOST_RUNS",
    "NO_ROWS",
    "NO_TABLE",
    "RUN_COST",
    "Batch",
    "Lists",
    "MemoryBatch",
    "Rows",
    "Table",
    "UserArrayBatch",
    "in_parts",
    "make_rows",
    "of_each",
    "pack_row",
    "pieces",
    "posted",
]

# ---------------------------------------------------------------------------------------------------------------- rows

COLUMNS = 5
Rows = npt.NDArray[np.int64]
"""int64[n, 5]: request, first element, elements, address (bytes), variable.

Where the first element is ``-1 - i``, the elements are those of list `i` of the batch's lists of runs, and their bytes
stand one after another from the address on.
"""

pack_row = Struct(f"{COLUMNS}q").pack
"""The bytes of one row: an array takes these in half of the time that it takes for five numbers."""

NO_ROWS: Rows = np.empty((0, COLUMNS), np.int64)


def make_rows(uid: int, request: int, runs: Runs, address: int, itemsize: int) -> Rows:
    """Return rows of runs whose data lie one after another from `address` on."""
    rows = np.empty((len(runs.start), COLUMNS), np.int64)
    rows[:, 0] = request
    rows[:, 1] = runs.start
    rows[:, 2] = runs.length
    rows[:, 3] = before(runs.length) * itemsize + address
    rows[:, 4] = uid
    return rows


def in_parts(rows: Rows, lists: Sequence[Runs]) -> Iterator[tuple[Rows, Runs | None]]:
    """Yield rows in parts: one row and its list, or rows that are of no list."""
    first = 0
    for at in (rows[:, 1] < 0).nonzero()[0].tolist() if lists else ():
        if first < at:
            yield rows[first:at], None
        yield rows[at : at + 1], lists[-1 - int(rows[at, 1])]
        first = at + 1
    if first < len(rows):
        yield rows[first:], None


def pieces(rows: Rows, lists: Sequence[Runs], widths: Mapping[int, int]) -> Iterator[Rows]:
    """Yield rows in parts, in which those of lists are replaced by rows of their runs, one list at a time."""
    for part, runs in in_parts(rows, lists):
        if runs is None:
            yield part
        else:
            request, _, _, address, uid = part[0].tolist()
            yield make_rows(uid, request, runs, address, widths[uid])


def _joined(parts: Iterable[Rows]) -> Rows:
    found = list(parts)
    return found[0] if len(found) == 1 else np.concatenate([NO_ROWS, *found])


def of_each(values: Mapping[int, int], owner: Int64) -> Int64:
    """Return the value that is kept for each variable of `owner`.

    Examples
    --------
    >>> of_each({7: 4, 2: 8}, np.array([2, 7, 7])).tolist()
    [8, 4, 4]
    """
    uids = np.sort(np.fromiter(values, np.int64, len(values)))
    return np.array([values[uid] for uid in uids.tolist()], np.int64)[np.searchsorted(uids, owner)]


class Table:
    """Rows, one variable's behind the other's, each in the order of posting.

    Parameters
    ----------
    rows : Rows
        In the order of posting.
    widths : mapping of uid to bytes of an element, of these variables and perhaps of others.
    lists : sequence of Runs
        What rows may be of.

    Attributes
    ----------
    uids : list of int, the variables.
    begins : int64[n], the first row of each.
    """

    __slots__ = ("_index", "begins", "lists", "rows", "uids", "widths")

    def __init__(self, rows: Rows, widths: Mapping[int, int], lists: Sequence[Runs] = ()) -> None:
        n = len(rows)
        if n > 1 and len(widths) > 1:
            owner = rows[:, 4]
            if np.count_nonzero(owner[1:] < owner[:-1]):
                rows = rows[stable_order(owner)]
                owner = rows[:, 4]
            self.begins: Int64 = np.concatenate(([True], owner[1:] != owner[:-1])).nonzero()[0]
            self.uids: list[int] = owner[self.begins].tolist()
        else:
            self.begins, self.uids = (_FIRST, [int(rows[0, 4])]) if n else (_FIRST[:0], [])
        self.rows, self.widths, self.lists = rows, widths, lists
        self._index: dict[int, int] | None = None

    @property
    def runs(self) -> int:
        """The number of runs."""
        return int(self._sizes().sum()) if self.lists else len(self.rows)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return sum(int(self.of(uid).rows[:, 2].sum()) * self.widths[uid] for uid in self.uids)

    def _sizes(self) -> Int64:
        """Return the runs of each row."""
        sizes = np.ones(len(self.rows), np.int64)
        first = self.rows[:, 1]
        listed = (first < 0).nonzero()[0]
        sizes[listed] = [len(self.lists[-1 - number].start) for number in first[listed].tolist()]
        return sizes

    def groups(self) -> list[Table]:
        """Return the table in parts of `MOST_RUNS` runs at most, which is what is planned at once."""
        if not self.lists and len(self.rows) <= MOST_RUNS:
            return [self]
        end = np.cumsum(sizes := self._sizes())
        return [self._with(self.rows[first:last]) for first, last in groups(end - sizes, end, MOST_RUNS)]

    def _with(self, rows: Rows) -> Table:
        return Table(rows, self.widths, self.lists)

    def where(self, chosen: npt.NDArray[np.bool_]) -> Table:
        """Return some of the rows."""
        return self._with(self.rows[chosen])

    def of(self, uid: int) -> Table:
        """Return the rows of one variable."""
        if self._index is None:
            self._index = {uid: i for i, uid in enumerate(self.uids)}
        i = self._index.get(uid)
        if i is None:
            return NO_TABLE
        first, *last = self.begins[i : i + 2].tolist()
        return Table(self.rows[first : last[0] if last else None], {uid: self.widths[uid]}, self.lists)

    def pieces(self) -> Iterator[Rows]:
        """See `pieces`."""
        return pieces(self.rows, self.lists, self.widths)

    def expanded(self) -> Rows:
        """Return all rows, those of lists replaced by rows of their runs."""
        return _joined(self.pieces())

    def change(self, rows: Mapping[int, Rows]) -> Table:
        """Return the table with other rows of some variables; a variable that has none left is gone."""
        parts = [rows[uid] if uid in rows else self.of(uid).rows for uid in self.uids]
        return self._with(np.concatenate([NO_ROWS, *parts]))


_FIRST = np.zeros(1, np.int64)
NO_TABLE = Table(NO_ROWS, {})


# ---------------------------------------------------------------------------------- lists of runs

RUN_COST = 16
"""Bytes that a run of a list takes, once for all posts; 8 of them if all runs are equally long."""

MOST_RUNS = 1 << 17
"""Runs that are planned at once: a longer list is several, which are views of it."""


class Lists:
    """Lists of runs that are posted and not written: each is kept, and charged, once for all posts that have it.

    A hyperslab in place of its list would save the 8 bytes that each run takes where all are equally long; then
    whoever reads the queue would have to make the runs.

    Attributes
    ----------
    runs : list of Runs
        What rows refer to; batches share it. `elements` has the number of elements of each.
    nbytes : int
        What they are charged with.
    """

    def __init__(self) -> None:
        self.runs: list[Runs] = []
        self.elements: list[int] = []
        self.nbytes = 0
        # by the identity of the starts, which are kept so that it stays theirs
        self._known: dict[int, tuple[Int64, range]] = {}

    def cost(self, found: Runs) -> tuple[int, int]:
        """Return how many rows a post of these runs becomes, and what the list is charged with besides."""
        known = self._known.get(id(found.start))
        if known is not None:
            return len(known[1]), 0
        n = len(found.start)
        return -(-n // MOST_RUNS), _nbytes(n, equal=_equal(found.length))

    def add(self, found: Runs) -> range:
        """Return the numbers of a list, or of its parts, the same ones each time."""
        known = self._known.get(id(found.start))
        if known is None:
            first, n, length = len(self.runs), len(found.start), found.length
            if equal := _equal(length):
                length = np.broadcast_to(length[:1].copy(), length.shape)
            for at in range(0, n, MOST_RUNS):
                part = Runs(found.start[at : at + MOST_RUNS], length[at : at + MOST_RUNS])
                self.elements.append(int(part.length.sum()))
                self.runs.append(part)
            self.nbytes += _nbytes(n, equal=equal)
            known = self._known[id(found.start)] = found.start, range(first, len(self.runs))
        return known[1]

    def retain(self, used: set[int]) -> None:
        """Keep only lists of some numbers."""
        self._known = {key: known for key, known in self._known.items() if not used.isdisjoint(known[1])}
        kept = {number for _, numbers in self._known.values() for number in numbers}
        if not kept:
            self.runs, self.elements = [], []
        # in place: what batches refer to
        self.runs[:] = [runs if i in kept else _NO_RUNS for i, runs in enumerate(self.runs)]
        self.nbytes = sum(_nbytes(len(runs.start), equal=_equal(runs.length)) for runs in self.runs)


_NO_RUNS = Runs(*np.empty((2, 0), np.int64))


def _equal(length: Int64) -> bool:
    return length.strides == (0,) or (len(length) > 1 and int(length.min()) == int(length.max()))


def _nbytes(n: int, *, equal: bool) -> int:
    return RUN_COST // 2 * n * (1 if equal else 2)


# -------------------------------------------------------------------------------------------------------------- batches

Bytes = npt.NDArray[np.uint8]


class Batch:
    """A table of posted rows, with their bytes.

    Derive from it and define `keep`, `copy`, and `load` unless it is streamed.

    table : Table, what was posted.
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

    def __init__(self, table: Table) -> None:
        self.table = table

    @property
    def widths(self) -> Mapping[int, int]:
        """Bytes of an element of each variable."""
        return self.table.widths

    def uids(self) -> list[int]:
        """Return the variables that have rows here."""
        return self.table.uids

    @property
    def rounds(self) -> int:
        """How many `Table.groups` there are."""
        return len(self.table.groups())

    def pieces(self, uid: int) -> Iterable[Rows]:
        """Yield the rows of one variable in parts, see `pieces`."""
        return self.table.of(uid).pieces()

    def rows(self, uid: int) -> Rows:
        """Return the rows of one variable, in posting order, one for each run; none if it has none here."""
        return _joined(self.pieces(uid))

    def keep(self, table: Table) -> Batch:
        """Return the same bytes with other rows."""
        raise NotImplementedError

    def change(self, rows: Mapping[int, Rows]) -> Batch:
        """Return the same bytes with other rows of some variables; a variable that has none left is gone."""
        return self.keep(self.table.change(rows))

    def copy(self, uid: int, target: Bytes, target_place: Int64, address: Int64, nbytes: Int64) -> None:
        """Do ``target[t:t+n] = bytes[a:a+n]`` for each piece; pieces are whole elements of one variable."""
        raise NotImplementedError

    def load(self, room: Bytes) -> Bytes:
        """Return all bytes, indexed by address; `room` may be used to hold them."""
        raise NotImplementedError


def posted(batches: Iterable[Batch]) -> set[int]:
    """Return the requests that have rows."""
    return {number for batch in batches for number in batch.table.rows[:, 0].tolist()}


class MemoryBatch(Batch):
    """Bytes in one array, such as a queue's arena; an address is an index into it."""

    def __init__(self, table: Table, arena: Bytes, store: object = None) -> None:
        # without a call more: a program may flush after each post
        self.table, self.store, self.arena = table, store, arena

    def keep(self, table: Table) -> MemoryBatch:
        return MemoryBatch(table, self.arena, self.store)

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

    def __init__(self, table: Table, array: Bytes, swap: int) -> None:
        super().__init__(table)
        self.array = array
        self.swap = swap

    def keep(self, table: Table) -> UserArrayBatch:
        return UserArrayBatch(table, self.array, self.swap)

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
