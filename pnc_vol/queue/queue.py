"""The posted requests of one file, in the order in which they were posted, within a budget of bytes.

Knows: rows, batches, memory. Does not know: variables' places, headers, ranks, or who posts.

Rules
-----
1. Data is in file form (type, big-endian) in one arena, appended in the order of posting.
2. `take` never exceeds the budget: it declines, and the session drains. A row is charged with what planning it will
   cost, so that a million tiny posts do not take more memory than one large one. A list of runs is charged once,
   however many posts have it; they are planned a part at a time.
3. What cannot go to the file yet goes to the spill file, data and rows. Nothing is dropped before it is written.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.base import Driver
from pnc_vol.extents.decomposition import LEAST_RUNS
from pnc_vol.extents.model import Extents, Runs, one_extent
from pnc_vol.extents.selection import Selection
from pnc_vol.format.convert import Overflow, to_file
from pnc_vol.mapping.dtypes import Element
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.queue.batches import Batch, LentBatch, MemoryBatch, SpilledBatch, without
from pnc_vol.queue.read_your_writes import LEAST_TAIL, Sorted, lay_over, near
from pnc_vol.queue.rows import COLUMNS, NO_ROWS, Listed, Rows, Tables, make_rows
from pnc_vol.queue.run_lists import LIST_COST, LONG_LIST, Lists

__all__ = ["Queue"]

Bytes = npt.NDArray[np.uint8]

ROW_COST = 160
"""Bytes that a row is charged with: 40 for itself, the rest for the plan."""

LEAST_BUDGET = 64 << 10


class Queue:
    """Where promises wait.

    Parameters
    ----------
    budget : int, bytes of data and rows held in memory; at least 64 KiB.
    open_spill : callable
        Opens a driver on a new, private file for what does not fit.
    """

    logged = False
    """True if a drain alone does not make room, because what is posted is kept until the header is written."""

    shares_lists = True
    """Whether a list of runs is kept once for all posts that have it."""

    def __init__(self, budget: int, open_spill: Callable[[], Driver]) -> None:
        self.budget = max(budget, LEAST_BUDGET)
        self.tables: dict[int, array[int]] = {}
        """Rows of the open batch by variable; see `plan` for the columns."""
        self.closed: list[Batch] = []
        self.position = 0
        """Bytes of the arena that are in use."""
        self.rows = 0
        self.in_blocks = 0
        """The last request that was too large for the queue; it may be in the file since it was posted."""
        self.lists = Lists()
        self._sorted: dict[int, Sorted] = {}
        self._arena: Bytes | None = None
        self._typed: dict[int, npt.NDArray[Any]] = {}
        self._open_spill = open_spill
        self._spill: Driver | None = None
        self._spill_end = 0
        self.spilled_bytes = 0
        """Bytes that went to the spill file so far, for statistics."""

    # ------------------------------------------------------------------------------------- posting

    @property
    def arena(self) -> Bytes:
        """uint8[budget]; the system gives memory for what was touched only."""
        if self._arena is None:
            self._arena = np.empty(self.budget, np.uint8)
        return self._arena

    def _arena_of(self, element: Element) -> npt.NDArray[Any]:
        """The arena as elements of a type, kept: a view made for each post would take a tenth of its time."""
        found = self._typed.get(element.nc_type)
        if found is None:
            whole = self.arena
            found = whole[: whole.nbytes // element.itemsize * element.itemsize].view(element.file_dtype)
            self._typed[element.nc_type] = found
        return found

    @property
    def used(self) -> int:
        """Bytes charged to the budget."""
        return self.position + self.rows * ROW_COST + self.lists.nbytes

    def __len__(self) -> int:
        """Rows that wait, spilled ones not counted."""
        return self.weight()[0]

    @property
    def empty(self) -> bool:
        """True if nothing waits."""
        return not self.rows and not self.listed and not self.closed

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
            False if there is no room within the budget; nothing was taken in.

        Raises
        ------
        RangeError, DefinitionError
            See `to_file`; nothing was posted.
        """
        element, itemsize = node.element, node.element.itemsize
        nbytes = values.size * itemsize
        self._make_way(node.uid, found)
        if one is not None and element.kind == "number" and values.dtype == element.dtype:
            return self.put_run(node, request, values, one[0])
        before_it, as_list = self.position, one is None and self._as_list(node.uid, found)
        if as_list:
            assert found is not None
            address = self.take(nbytes, 0, itemsize, self.lists.cost(found))
        else:
            address = self.take(nbytes, 1 if one is not None else len(found.start), itemsize)  # type: ignore[union-attr]
        if address < 0:
            return False
        room = self.arena[address : address + nbytes]
        try:
            to_file(values, element.file_dtype, room, on_overflow=on_overflow, what=node.name)
        except BaseException:
            self.position = before_it
            raise
        if one is not None:
            self.post(node.uid, request, one[0], one[1], address, itemsize)
        elif as_list:
            assert found is not None
            self.lists.add(node.uid, request, found, address, itemsize)
        else:
            self.post_runs(node.uid, request, found, address, itemsize)  # type: ignore[arg-type]
        return True

    # A variable has either lists or rows in the open batch: which of two posts came later is then plain.

    @property
    def listed(self) -> dict[int, list[Listed]]:
        """Lists of runs of the open batch by variable; none of them has rows in it."""
        return self.lists.open

    def _as_list(self, uid: int, found: Runs | None) -> bool:
        if found is None or uid in self.tables or not self.shares_lists:
            return False
        return len(found.start) >= LEAST_RUNS or uid in self.listed

    def _make_way(self, uid: int, found: Runs | None) -> None:
        """Before a post of rows where there are lists, or the other way round."""
        if uid in self.listed:
            if found is None and not self._expand(uid):
                self.close_batch()
        elif uid in self.tables and found is not None and self.shares_lists and len(found.start) >= LONG_LIST:
            self.close_batch()

    def _expand(self, uid: int) -> bool:
        """Make rows of a variable's lists; False if they are too long for it."""
        listed = self.listed[uid]
        rows = sum(len(item.runs.start) for item in listed)
        if rows >= LONG_LIST or self.used + rows * ROW_COST > self.budget:
            return False
        self.tables[uid] = array("q")
        for item in listed:
            self.post_runs(uid, item.request, item.runs, item.address, item.itemsize)
        self.lists.nbytes -= LIST_COST * len(listed)
        del self.listed[uid]
        return True

    def put_run(self, node: DatasetNode, request: int, values: npt.NDArray[Any], start: int) -> bool:
        """As `put`, for what most posts are: numbers of the variable's own type, one run that crosses no record."""
        element = node.element
        itemsize = element.file_dtype.itemsize
        first = -(-self.position // itemsize)
        last = first + values.size
        if last * itemsize + (self.rows + 1) * ROW_COST + self.lists.nbytes > self.budget or node.uid in self.listed:
            return False
        self._arena_of(element)[first:last] = values if values.ndim == 1 else values.reshape(-1)
        self.position = last * itemsize
        self.post(node.uid, request, start, last - first, first * itemsize, itemsize)
        return True

    def take(self, nbytes: int, rows: int, itemsize: int, besides: int = 0) -> int:
        """Room for `nbytes` in the arena, and for rows and some bytes besides.

        Returns
        -------
        int
            Address, a multiple of `itemsize` (whose power of two part is what matters); -1 if the budget is used up.
        """
        address = -(-self.position // itemsize) * itemsize if itemsize > 1 else self.position
        if address + nbytes + (self.rows + rows) * ROW_COST + self.lists.nbytes + besides > self.budget:
            return -1
        self.position = address + nbytes
        return address

    def post(self, uid: int, request: int, start: int, count: int, address: int, itemsize: int) -> None:
        """Add one run of elements."""
        table = self.tables.get(uid)
        if table is None:
            self.tables[uid] = array("q", (request, start, count, address, itemsize))
        else:
            table.extend((request, start, count, address, itemsize))
        self.rows += 1

    def post_runs(self, uid: int, request: int, runs: Runs, address: int, itemsize: int) -> None:
        """Add many runs, whose data lie one after another from `address` on."""
        rows = make_rows(request, runs, address, itemsize)
        table = self.tables.get(uid)
        if table is None:
            table = self.tables[uid] = array("q")
        table.frombytes(rows.tobytes())
        self.rows += len(rows)

    def in_memory(self) -> AbstractContextManager[None]:
        """What is posted meanwhile goes to no log, whatever the queue: it is posted for a flush that has begun."""
        return nullcontext()

    def lend(self, uid: int, request: int, runs: Runs, data: Bytes, swap: int, itemsize: int) -> None:
        """Add runs whose data stay in the user's array until the request is complete."""
        self.close_batch()
        self.closed.append(LentBatch({uid: make_rows(request, runs, 0, itemsize)}, data, swap))

    def _open_rows(self, uid: int) -> Rows:
        """The rows of a variable in the open batch, not copied: gone before the next post."""
        return np.frombuffer(self.tables[uid], np.int64).reshape(-1, COLUMNS)

    def _open_batch(self, uid: int) -> Batch:
        """The bytes of the open batch."""
        return MemoryBatch({}, self.arena)

    def close_batch(self) -> None:
        """Later posts go to a new batch, so that what is added in between keeps its turn."""
        if self.tables or self.listed:
            self.closed.append(MemoryBatch(Tables(self.tables), self.arena, self.lists.close()))
            self.tables, self._sorted = {}, {}

    # -------------------------------------------------------------------------- looking and carrying

    def has(self, uid: int) -> bool:
        """Whether a variable has posted rows."""
        if uid in self.tables or uid in self.listed:
            return True
        return bool(self.closed) and any(uid in batch.uids() for batch in self.closed)

    def holds(self, request: int) -> bool:
        """Whether a request has posted rows."""
        return any(request in batch.rows(uid)[:, 0] for batch in self.batches() for uid in batch.uids())

    def batches(self) -> list[Batch]:
        """All batches in the order of posting; the open one is closed."""
        self.close_batch()
        return self.closed

    def replace(self, left: list[Batch]) -> None:
        """After batches were carried out: what is left of them, in order."""
        self.closed = [batch for batch in left if batch.uids()]
        in_memory = [batch for batch in self.closed if isinstance(batch, MemoryBatch)]
        listed = [item for batch in in_memory for items in batch.listed.values() for item in items]
        self.rows = sum(sum(map(sum, map(batch.sizes, batch.uids()))) for batch in in_memory)
        self.rows -= sum(len(item.runs.start) for item in listed)
        self.lists.recount(listed)
        if not in_memory:
            self.position = 0
        if not self.closed and self._spill is not None:
            self._spill_end = 0
            self._spill.resize(0)

    def cancel(self, requests: set[int]) -> int:
        """Take requests out; returns the rows that they had.

        Raises
        ------
        OSError
            A log could not be told; nothing was taken out.
        """
        left, gone = without(self.batches(), requests)
        self.replace(left)
        return gone

    def cut(self, node: DatasetNode, count: int) -> bool:
        """Drop the rows of a record variable from element `count` on, where a record begins.

        Returns
        -------
        bool
            False if there is no room to remember it; nothing was dropped.
        """
        uid = node.uid
        if self.has(uid):
            left = []
            for batch in self.batches():
                rows = batch.rows(uid)
                kept = rows[rows[:, 1] < count]
                left.append(batch.change({uid: kept}) if len(kept) < len(rows) else batch)
            self.replace(left)
        return True

    def forget(self, uids: set[int]) -> None:
        """Drop all rows of variables that are gone."""
        found = [(batch, uids.intersection(batch.uids())) for batch in self.batches()] if uids else []
        if found:
            self.replace([batch.change(dict.fromkeys(gone, NO_ROWS)) if gone else batch for batch, gone in found])

    def spill(self) -> None:
        """Move all that is in memory to the spill file.

        Raises
        ------
        OSError
            There is no room for it; the queue is as it was.
        """
        batches = [batch for batch in self.batches() if isinstance(batch, MemoryBatch)]
        if not batches:
            return
        if self._spill is None:
            self._spill = self._open_spill()
        base = -(-self._spill_end // 8) * 8
        self._spill.write(one_extent(base, self.position), self.arena)
        end = -(-(base + self.position) // 8) * 8
        spilled: dict[int, SpilledBatch] = {}
        for batch in batches:
            where = {}
            for uid in batch.uids():
                where[uid] = (end, 0)
                for item in batch.items(uid):
                    rows = np.ascontiguousarray(item.rows() if isinstance(item, Listed) else item)
                    self._spill.write(one_extent(end, rows.nbytes), rows.view(np.uint8).reshape(-1))
                    where[uid] = (where[uid][0], where[uid][1] + len(rows))
                    end += rows.nbytes
            spilled[id(batch)] = SpilledBatch(self._spill, base, self.position, where)
        self.spilled_bytes += end - base
        self._spill_end = end
        self.replace([spilled.get(id(batch), batch) for batch in self.closed])

    def weight(self) -> tuple[int, int]:
        """Posted runs and bytes that a flush would write."""
        listed = [items for batch in self.closed if isinstance(batch, MemoryBatch) for items in batch.listed.values()]
        listed += self.listed.values()
        return self.rows + sum(len(item.runs.start) for items in listed for item in items), self.position

    def about_to_flush(self) -> None:
        """A flush begins."""

    def settled(self) -> None:
        """What was carried out is in the file, header included."""

    def stop_logging(self) -> None:
        """Wait in memory from now on; that is where this queue waits anyway."""

    def close(self, *, flushed: bool = True) -> None:
        """Give back the memory and the spill file.

        Parameters
        ----------
        flushed : bool, all that was posted on all ranks is in the file.
        """
        self.tables, self._sorted, self.closed = {}, {}, []
        self.rows, self.position, self._arena = 0, 0, None
        self.lists = Lists()
        self._typed.clear()
        if self._spill is not None:
            with suppress(OSError):
                # Nobody will read it again.
                self._spill.close()
            self._spill = None

    # --------------------------------------------------------------------------------- reading back

    def overlay(self, uid: int, wanted: Extents, target: Bytes, itemsize: int, before_request: int) -> None:
        """Put what is posted for a variable over what the file holds.

        Parameters
        ----------
        uid : int
        wanted : Extents
            ``offset`` counts bytes of elements from the variable's first one; ``place`` is the place in `target`.
        target : uint8[...], in file form.
        itemsize : int, bytes of an element in `target`.
        before_request : int
            Only requests with a smaller number count.
        """
        low = int(wanted.offset.min()) // itemsize
        high = -(-int((wanted.offset + wanted.length).max()) // itemsize)
        # The open batch stays open: a program that reads after each post would leave one batch a post behind.
        batches: list[Batch] = list(self.closed)
        if uid in self.listed and not self._expand(uid):
            batches.append(MemoryBatch({}, self.arena, {uid: self.listed[uid]}))
        for batch in batches:
            for item in batch.items(uid):
                rows = item.rows() if isinstance(item, Listed) else item
                lay_over(batch, uid, near(rows, low, high, before_request), wanted, target, itemsize)
        if uid in self.tables:
            rows = self._open_rows(uid)
            batch = self._open_batch(uid)
            if before_request <= int(rows[-1, 0]):
                lay_over(batch, uid, near(rows, low, high, before_request), wanted, target, itemsize)
                return
            known = self._sorted.get(uid)
            if known is None or len(rows) - known.count > max(LEAST_TAIL, known.count // 8):
                known = self._sorted[uid] = Sorted.of(rows)
            lay_over(batch, uid, known.near(low, high), wanted, target, itemsize)
            lay_over(batch, uid, near(rows[known.count :], low, high, before_request), wanted, target, itemsize)
