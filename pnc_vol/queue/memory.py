"""The memory store keeps posted bytes in one arena, in file form, appended in the order of posting.

Knows: rows, lists of runs, arrays. Does not know: files, variables' places, ranks.

Rules
-----
1. Data is in file form (type, big-endian), so that a flush writes it straight from the arena.
2. The budget is never exceeded: a post that does not fit is refused. A row is charged with what planning it will cost,
   so that a million tiny posts do not take more memory than one large one. A list of runs is charged once, however
   many posts have it; they are planned a part at a time.
3. A variable has either lists or rows in the open batch: which of two posts came later is then plain. Where both come,
   the lists become rows, or the batch is closed if they are too long for that.
4. Small posts of one type are kept as bytes and go to the arena together, when anything else comes (`_settle`): a view
   and a copy for each of them took half of the time of a post of 64 bytes. Their rows are in the tables at once.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from pnc_vol.extents.blocks import parts, run_elements
from pnc_vol.extents.model import LEAST_RUNS, Runs
from pnc_vol.format import numeric
from pnc_vol.mapping.dtypes import Element
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.queue.batches import (
    COLUMNS,
    LIST_COST,
    LONG_LIST,
    MOST_RUNS,
    RUN_COST,
    Batch,
    Listed,
    MemoryBatch,
    Tables,
    compact,
    pack_row,
)
from pnc_vol.queue.stores import ROW_COST, Backlog, Capabilities, Store

if TYPE_CHECKING:
    from pnc_vol.extents.model import Selection
    from pnc_vol.format.numeric import Overflow

__all__ = ["MemoryStore"]

Bytes = npt.NDArray[np.uint8]

_FIRST = 64 << 10
"""Bytes of the arena at first: what the system need not be asked for."""

_SMALL = 2 << 10
"""Bytes of a post, at most, that are staged: to copy them twice takes less than to copy them by a call of their own."""

_BY_NUMPY = 12
"""Rows from which on numpy makes them together."""

_STRETCH = 64 << 10
"""Bytes that are staged at most, with their rows: they are still in the processor's cache when they are copied."""


class MemoryStore(Store):
    """Bytes in memory.

    Attributes
    ----------
    position : int
        Bytes of the arena that are in use.
    """

    capabilities = Capabilities(shares_lists=True)

    def __init__(self, backlog: Backlog) -> None:
        super().__init__(backlog)
        self.position = 0
        self._arena: Bytes | None = None
        self._typed: dict[int, npt.NDArray[Any]] = {}
        # values of one stretch, which are not in the arena yet: their type, where they begin, and what may still be
        # added to them, bytes with the rows
        self._staged: list[bytes] = []
        self._element: Element | None = None
        self._dtype: np.dtype[Any] | None = None
        self._itemsize = self._settled = 0
        self._left = -1

    @property
    def arena(self) -> Bytes:
        """uint8[n], at least what is in use."""
        self._settle()
        return self._room_for(self.position)

    def _room_for(self, end: int) -> Bytes:
        """Return the arena, which has `end` bytes at least: few at first, then the budget.

        The system gives memory for what was touched only, but in pages of up to 2 MiB, which it clears.
        """
        arena = self._arena
        if arena is None or end > arena.nbytes:
            nbytes = self.backlog.budget
            made = np.empty(min(nbytes, _FIRST) if end <= _FIRST else nbytes, np.uint8)
            if arena is not None:
                # batches that were closed keep the old one, which has the same bytes at the same addresses
                made[: arena.nbytes] = arena
            self._typed.clear()
            self._arena = arena = made
        return arena

    def _arena_of(self, element: Element) -> npt.NDArray[Any]:
        """Return the arena as elements of a type, kept: a view made for each post would take a tenth of its time."""
        found = self._typed.get(element.nc_type)
        if found is None:
            whole = self._room_for(self.position)
            found = whole[: whole.nbytes // element.itemsize * element.itemsize].view(element.file_dtype)
            self._typed[element.nc_type] = found
        return found

    @property
    def used(self) -> int:
        """Bytes charged to the budget."""
        backlog = self.backlog
        return self.position + backlog.rows * ROW_COST + backlog.lists.nbytes

    # ------------------------------------------------------------------------------------- posting

    def put_run(
        self,
        node: DatasetNode,
        request: int,
        values: npt.NDArray[Any],
        start: Any,
        number: int = 1,
        step: int = 0,
    ) -> bool:
        # The path of most posts: the values as bytes, and one row. What is the same for all posts of a stretch is
        # looked at when it begins, and its values are turned round and copied to the arena together.
        backlog, nbytes, uid = self.backlog, values.nbytes, node.uid
        left = self._left - nbytes - ROW_COST * number
        if left < 0 or nbytes > _SMALL or values.dtype is not self._dtype:
            return self._begin_stretch(node, request, values, start, number, step)
        table = backlog.tables.get(uid)
        if table is None:
            if uid in backlog.lists.open:
                return self._begin_stretch(node, request, values, start, number, step)
            table = backlog.tables[uid] = array("q")
        address = self.position
        self._staged.append(values.tobytes())
        self._left, self.position = left, address + nbytes
        if number == 1:
            table.frombytes(pack_row(request, start, values.size, address, self._itemsize))
        else:
            table.frombytes(_packed(request, start, values.size // number, address, self._itemsize, number, step))
        backlog.rows += number
        return True

    def _begin_stretch(
        self, node: DatasetNode, request: int, values: npt.NDArray[Any], start: Any, number: int, step: int
    ) -> bool:
        """Do as `put_run` does; the values go to the arena at once, and later ones of this type may be staged behind
        them."""
        if self._staged:
            self._settle()
        element, backlog, uid, count = node.element, self.backlog, node.uid, values.size
        if uid in backlog.lists.open:
            self._make_way(uid, None)
        itemsize, lists = element.file_dtype.itemsize, backlog.lists
        first = -(-self.position // itemsize)
        last = first + count
        left = backlog.budget - last * itemsize - (backlog.rows + number) * ROW_COST - lists.nbytes
        if left < 0:
            return False
        typed = self._typed.get(element.nc_type)
        if typed is None or last > typed.size:
            self._room_for(last * itemsize)
            typed = self._arena_of(element)
        typed[first:last] = values if values.ndim == 1 else values.reshape(-1)
        if number == 1:
            backlog.post(uid, request, start, count, first * itemsize, itemsize)
        else:
            rows = _packed(request, start, count // number, first * itemsize, itemsize, number, step)
            backlog.post_packed(uid, rows, number)
        self.position = self._settled = last * itemsize
        self._element, self._dtype, self._itemsize = element, values.dtype, itemsize
        self._left = min(left, _STRETCH) if values.dtype.itemsize == itemsize else -1
        return True

    def _settle(self) -> None:
        """Put what is staged into the arena, and end the stretch."""
        element = self._element
        if self._staged and element is not None:
            self._room_for(self.position)
            # in the user's byte order, which may be the file's
            values = np.frombuffer(b"".join(self._staged), self._dtype)
            first = self._settled // self._itemsize
            self._arena_of(element)[first : first + len(values)] = values
            self._staged.clear()
        self._left = -1

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
        backlog = self.backlog
        if one is not None or found is not None:
            self._make_way(node.uid, found)
        if one is not None and node.element.kind == "number" and values.dtype == node.element.dtype:
            return self.put_run(node, request, values, one[0])
        if found is None and one is None and selection is not None:
            return self._put_many(node, request, values, selection, on_overflow)
        if found is not None and one is None and self._as_list(node.uid, found):
            return self._put_list(node, request, found, values, on_overflow)
        rows = len(found.start) if found is not None and one is None else 1
        address = self._take_in(node, values, on_overflow, (backlog.rows + rows) * ROW_COST + backlog.lists.nbytes)
        if address < 0:
            return False
        if one is not None:
            backlog.post(node.uid, request, one[0], one[1], address, node.element.itemsize)
        elif found is not None:
            backlog.post_runs(node.uid, request, found, address, node.element.itemsize)
        return True

    def _put_many(
        self, node: DatasetNode, request: int, values: npt.NDArray[Any], selection: Selection, on_overflow: Overflow
    ) -> bool:
        """Take in a hyperslab of very many runs as lists that are made part by part: all of it, or nothing.

        All lists at once would take more memory than the data.
        """
        uid, lists, many = node.uid, self.backlog.lists, -(-values.size // run_elements(selection))
        # what all of it will be charged with at most
        cost = values.size * node.element.itemsize + many * RUN_COST + (many // MOST_RUNS + 2) * LIST_COST
        if self.used + cost > self.backlog.budget:
            return False
        if uid in self.backlog.tables:
            self.close_batch()
        position, count, charged = self.position, len(lists.open.get(uid, ())), lists.nbytes
        cut = parts(selection, values, record=node.is_record, most_elements=values.size, most_runs=MOST_RUNS)
        whole = False
        try:
            whole = all(self._put_list(node, request, compact(found), some, on_overflow) for found, some in cut)
        finally:
            if not whole:
                self.position = position
                lists.take_back(uid, count, charged)
        return whole

    def _put_list(
        self, node: DatasetNode, request: int, found: Runs, values: npt.NDArray[Any], on_overflow: Overflow
    ) -> bool:
        lists = self.backlog.lists
        charged = self.backlog.rows * ROW_COST + lists.nbytes + lists.cost(found)
        address = self._take_in(node, values, on_overflow, charged)
        if address < 0:
            return False
        lists.add(node.uid, request, found, address, node.element.itemsize)
        return True

    def _take_in(self, node: DatasetNode, values: npt.NDArray[Any], on_overflow: Overflow, charged: int) -> int:
        """Put values into the arena in file form; rows and lists are charged with some bytes then.

        Returns
        -------
        int
            Address, a multiple of the item size (whose power of two part is what matters); -1 if the budget is used up.
        """
        self._settle()
        element, before = node.element, self.position
        itemsize = element.itemsize
        address = -(-before // itemsize) * itemsize
        end = address + values.size * itemsize
        if end + charged > self.backlog.budget:
            return -1
        arena = self._room_for(end)
        self.position = end
        try:
            numeric.to_file(values, element.file_dtype, arena[address:end], on_overflow=on_overflow, what=node.name)
        except BaseException:
            self.position = before
            raise
        return address

    # ------------------------------------------------------------------------------- lists of runs

    def _as_list(self, uid: int, found: Runs) -> bool:
        listed = len(found.start) >= LEAST_RUNS or uid in self.backlog.lists.open
        return listed and uid not in self.backlog.tables

    def _make_way(self, uid: int, found: Runs | None) -> None:
        """Close rows before a post of lists, or lists before one of rows."""
        if uid in self.backlog.lists.open:
            if found is None and not self._expand(uid):
                self.close_batch()
        elif uid in self.backlog.tables and found is not None and len(found.start) >= LONG_LIST:
            self.close_batch()

    def _expand(self, uid: int) -> bool:
        """Make rows of a variable's lists; False if they are too long for it."""
        backlog = self.backlog
        listed = backlog.lists.open[uid]
        rows = sum(len(item.runs.start) for item in listed)
        if rows >= LONG_LIST or self.used + rows * ROW_COST > backlog.budget:
            return False
        backlog.tables[uid] = array("q")
        for item in listed:
            backlog.post_runs(uid, item.request, item.runs, item.address, item.itemsize)
        backlog.lists.nbytes -= LIST_COST * len(listed)
        del backlog.lists.open[uid]
        return True

    # ------------------------------------------------------------------------------------- batches

    def close_batch(self) -> None:
        backlog = self.backlog
        if backlog.tables or backlog.lists.open:
            # The rows stay posted until they are in the batch: memory may run out while it is made.
            tables = Tables(backlog.tables)
            self.add(MemoryBatch(tables, self.arena, backlog.lists.close(), self))
            backlog.clear_tables()

    def open_batch(self, uid: int) -> Batch:
        return MemoryBatch({}, self.arena)

    def open_lists(self, uid: int) -> Batch | None:
        listed = self.backlog.lists.open
        if uid not in listed or self._expand(uid):
            return None
        return MemoryBatch({}, self.arena, {uid: listed[uid]})

    def retain(self, left: Sequence[Batch]) -> int:
        self._settle()
        self.batches = list(left)
        listed = self._listed() if left else []
        if self.backlog.lists.nbytes:
            self.backlog.lists.recount(listed)
        if not left:
            self.position = 0
            return 0
        rows = sum(sum(batch.sizes(uid)) for batch in left for uid in batch.uids())
        return rows - sum(len(item.runs.start) for item in listed)

    def _listed(self) -> list[Listed]:
        """Return the lists of the closed batches."""
        # Asked at every flush: not by variable, of which there may be very many.
        found = [cast(MemoryBatch, batch).listed for batch in self.batches]
        return [item for listed in found for items in listed.values() for item in items]

    def weight(self) -> tuple[int, int]:
        items = self._listed()
        for listed in self.backlog.lists.open.values():
            items += listed
        return sum(len(item.runs.start) for item in items), self.position

    def close(self, *, flushed: bool, empty: bool) -> None:
        self.position, self._left, self._arena = 0, -1, None
        self.batches = []
        self._staged.clear()
        self._typed.clear()


def _packed(request: int, start: Any, count: int, address: int, itemsize: int, number: int, step: int) -> bytes:
    """Return rows of equal length, one behind the other, `step` elements from one to the next, or each from its own
    start."""
    nbytes = count * itemsize
    if number < _BY_NUMPY and type(start) is int:
        each = range(number)
        return b"".join([pack_row(request, start + i * step, count, address + i * nbytes, itemsize) for i in each])
    rows = np.empty((number, COLUMNS), np.int64)
    rows[:] = request, 0, count, address, itemsize
    numbers = np.arange(number, dtype=np.int64)
    rows[:, 3] += numbers * nbytes
    rows[:, 1] = start if step == 0 else numbers * step + start
    return rows.tobytes()
