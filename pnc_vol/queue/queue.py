"""The queue has the posted requests of one file, in the order in which they were posted, within a budget of bytes.

Knows: the backlog, stores, the spill file. Does not know: what a store does with bytes, variables' places, headers,
ranks, or who posts.

Rules
-----
1. Posts go to one store at a time, the one in front: a log if the file has one, else memory. When it has no room and
   cannot be emptied, posts go to memory until all of it is in the file (`fall_back`), and what memory does not hold
   goes to the spill file (`spill`). Nothing is dropped before it is written.
2. Changing the store closes the batch: the order of batches is the order of posting.
3. `put_run`, which most posts are made by, is the store's own: it costs no call more than the store takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.base import Driver
from pnc_vol.extents.model import Extents, Runs
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.queue.batches import Batch, Rows, Table, UserArrayBatch, make_rows, pieces, posted
from pnc_vol.queue.memory import MemoryStore
from pnc_vol.queue.stores import Backlog, Capabilities, SortedRows, Store, lay_over, near

if TYPE_CHECKING:
    from pnc_vol.extents.model import Selection
    from pnc_vol.format.numeric import Overflow
    from pnc_vol.queue import spill as spilling

__all__ = ["Queue"]

Bytes = npt.NDArray[np.uint8]


class Queue:
    """What is posted to a file.

    Parameters
    ----------
    budget : int, bytes of data and rows held in memory; at least 64 KiB.
    open_spill : callable
        Opens a driver on a new, private file for what does not fit.

    Attributes
    ----------
    backlog : Backlog
    memory : MemoryStore
    spill_file : SpillFile or None
        None before the first spill.
    stores : list of Store
        In the order in which they are tried; memory is the last, and need not be told of flushes.
    store : Store
        Where posts go now.
    put_run : callable
        That of `store`.
    declared : Capabilities
        Of the store that the file was opened with, whatever posts go to now.
    logged : bool
        Whether a drain alone does not make room, because what is posted is kept until the header is written.
    in_blocks : int
        The last request that was too large for the queue; it may be in the file since it was posted.
    """

    put_run: Callable[..., bool]

    def __init__(self, budget: int, open_spill: Callable[[], Driver]) -> None:
        self.backlog = Backlog(budget)
        self.memory = MemoryStore(self.backlog)
        self.spill_file: spilling.SpillFile | None = None
        self._open_spill = open_spill
        self.stores: list[Store] = [self.memory]
        self.in_blocks = 0
        self._declare(self.memory.capabilities)
        self._use(self.memory)

    def put_in_front(self, store: Store) -> None:
        """Let posts go to a store that was opened with this queue's backlog, and to memory when it has no room."""
        self.stores.insert(0, store)
        self.close_batch()
        self._declare(store.capabilities)
        self._use(store)

    def _declare(self, capabilities: Capabilities) -> None:
        self.declared, self.logged = capabilities, capabilities.logged

    def _use(self, store: Store) -> None:
        self.store, self.put_run = store, store.put_run

    # ------------------------------------------------------------------------------------- posting

    @property
    def budget(self) -> int:
        """Bytes of data and rows that may be held in memory."""
        return self.backlog.budget

    @property
    def used(self) -> int:
        """Bytes charged to the budget."""
        return self.memory.used

    @property
    def empty(self) -> bool:
        """True if nothing is posted."""
        return not self.backlog.rows and not self.backlog.closed

    def put(
        self,
        node: DatasetNode,
        request: int,
        values: npt.NDArray[Any],
        selection: Selection | None,
        found: Runs,
        on_overflow: Overflow,
    ) -> bool:
        """See `Store.put`."""
        uid, itemsize, backlog = node.uid, node.element.itemsize, self.backlog
        if backlog.widths.get(uid, backlog.listed.get(uid, itemsize)) != itemsize:
            # strings that grew
            self.close_batch()
        return self.store.put(node, request, values, selection, found, on_overflow)

    def put_user_array(self, uid: int, request: int, runs: Runs, data: Bytes, swap: int, itemsize: int) -> None:
        """Add runs whose data stay in the user's array until the request is complete."""
        if not self.declared.user_arrays:
            raise NotImplementedError("the store copies what it is given: post it with put")
        self.put_batch(UserArrayBatch(Table(make_rows(uid, request, runs, 0, itemsize), {uid: itemsize}), data, swap))

    def put_batch(self, batch: Batch) -> None:
        """Add what somebody else keeps: posted as it is, behind all that was posted so far."""
        self.close_batch()
        self.backlog.closed.append(batch)

    @contextmanager
    def in_memory(self) -> Iterator[None]:
        """Yield what is posted meanwhile stays in memory, whatever the store: it is posted for a flush that has
        begun."""
        before, declared = self.store, self.declared
        self.fall_back()
        self._declare(self.memory.capabilities)
        try:
            yield
        finally:
            self.close_batch()
            self._declare(declared)
            self._use(before)

    # --------------------------------------------------------------------------------- making room

    def fall_back(self) -> None:
        """Let later posts go to memory: the store in front is full and cannot be emptied now."""
        if self.store is not self.memory:
            self.close_batch()
            self._use(self.memory)

    def spill(self) -> None:
        """Move all that is in memory to the spill file.

        Raises
        ------
        OSError
            There is no room for it; the queue is as it was.
        """
        self.close_batch()
        memory, closed = self.memory, self.backlog.closed
        # A log has its bytes in files of its own, but not its rows, which alone may fill the memory.
        logged = [batch for batch in self._in_memory() if batch.store is not memory]
        if not memory.batches and not logged:
            return
        if self.spill_file is None:
            from pnc_vol.queue import spill as spilling

            self.spill_file = spilling.SpillFile(self._open_spill)
        moved = [*memory.batches, *logged]
        spilled = self.spill_file.take(memory.batches, memory.arena[: memory.position]) if memory.batches else []
        spilled += self.spill_file.take(logged)
        instead = {id(batch): other for batch, other in zip(moved, spilled, strict=True)}
        self.replace([instead.get(id(batch), batch) for batch in closed])

    @property
    def spilled_bytes(self) -> int:
        """Bytes that went to the spill file so far, for statistics."""
        return 0 if self.spill_file is None else self.spill_file.nbytes

    # ------------------------------------------------------------------------- batches of a flush

    def close_batch(self) -> None:
        """Later posts go to a new batch, so that what is added in between keeps its turn."""
        self.store.close_batch()

    def has(self, uid: int) -> bool:
        """Return whether a variable has posted rows."""
        backlog = self.backlog
        if uid in backlog.widths or uid in backlog.listed:
            return True
        return bool(backlog.closed) and any(uid in batch.uids() for batch in backlog.closed)

    def holds(self, request: int) -> bool:
        """Return whether a request has posted rows."""
        return request in posted(self.batches())

    def batches(self) -> list[Batch]:
        """Return all batches in the order of posting; the open one is closed."""
        backlog = self.backlog
        if backlog.table:
            self.store.close_batch()
        if backlog.rows and not backlog.closed:
            # a `replace` that was interrupted
            self.replace([])
        return backlog.closed

    def replace(self, left: list[Batch]) -> None:
        """Keep, in order, what is left of the batches after they were written."""
        backlog = self.backlog
        backlog.closed = closed = [batch for batch in left if batch.uids()] if left else []
        for store in self.stores:
            store.retain([batch for batch in closed if batch.store is store] if closed else [])
        if (file := self.spill_file) is not None:
            file.retain([batch for batch in closed if batch.store is file or batch.rows_in is file])
        backlog.rows = sum(len(batch.table.rows) for batch in self._in_memory())

    def _in_memory(self) -> list[Batch]:
        """Return the closed batches that a store made and whose rows are in memory."""
        return [batch for batch in self.backlog.closed if batch.store is not None and batch.rows_in is None]

    def weight(self) -> tuple[int, int]:
        """Return runs and bytes that a flush would write, when the open batch was closed; spilled ones are not
        counted."""
        in_stores = [batch.size for batch in self.backlog.closed if batch.store in self.stores]
        return sum(batch.table.runs for batch in self._in_memory()), self.memory.position + sum(in_stores)

    # ------------------------------------------------------------------------------------ dropping

    def cancel(self, requests: set[int]) -> None:
        """Take requests out.

        Raises
        ------
        OSError
            A store could not record it; nothing was taken out.
        """
        backlog = self.backlog
        few = len(requests) == 1 and not backlog.closed
        # What needs memory is made before a store records anything.
        left = [] if few else self._without(0, requests)
        for store in self.stores:
            store.cancel(requests)
        if few:
            # One of many posts, as a program that changes its mind does: the others stay in the open batch.
            backlog.take_out(*requests)
        if not (few and backlog.table):
            self.replace(left)

    def _without(self, column: int, numbers: set[int]) -> list[Batch]:
        """Return the batches without the rows that have one of some numbers in a column."""
        left, gone = [], np.fromiter(numbers, np.int64, len(numbers))
        for batch in self.batches():
            table = batch.table
            dropped = np.isin(table.rows[:, column], gone)
            left.append(batch.keep(table.where(~dropped)) if dropped.any() else batch)
        return left

    def cut(self, node: DatasetNode, count: int) -> bool:
        """Drop the rows of a record variable from element `count` on, where a record begins.

        Returns
        -------
        bool
            False if there is no room to record it; nothing was dropped.
        """
        uid = node.uid
        left: list[Batch] | None = None
        if self.has(uid):
            # Before the store records it, as in `cancel`.
            left = []
            for batch in self.batches():
                rows = batch.rows(uid)
                kept = rows[rows[:, 1] < count]
                left.append(batch.change({uid: kept}) if len(kept) < len(rows) else batch)
        if not self.store.cut(node, count):
            return False
        if left is not None:
            self.replace(left)
        return True

    def forget(self, uids: set[int]) -> None:
        """Drop all rows of variables that are gone."""
        if uids and self.batches():
            self.replace(self._without(4, uids))

    # ------------------------------------------------------------------------- the course of a flush

    def about_to_flush(self) -> list[Batch]:
        """Begin a flush; return what it is to write.

        Raises
        ------
        PncVolError
            A store cannot give back what was posted to it.
        """
        try:
            for store in self.stores[:-1]:
                store.about_to_flush(active=store is self.store)
        finally:
            if not self.store.usable:
                self.fall_back()
        return self.batches()

    def about_to_write(self, header: bytes) -> None:
        """The file gets a new header."""
        for store in self.stores[:-1]:
            store.about_to_write(header)

    def after_flush(self) -> None:
        """Note that data and header are in the file: if nothing is left, posts go to the first store again."""
        if len(self.stores) > 1 and self.empty:
            # Whatever comes between, an interrupt too: nothing is posted to a store that is half begun anew.
            self._use(self.memory)
            self._use(next((store for store in self.stores[:-1] if store.after_flush()), self.memory))

    def hints(self) -> dict[str, str]:
        """Return hints of the burst buffer in force, by PnetCDF's names."""
        return {"nc_burst_buf": "disable"} | self.stores[0].hints()

    def close(self, *, flushed: bool = True) -> None:
        """Give back the memory, the stores and the spill file.

        Parameters
        ----------
        flushed : bool, all that was posted on all ranks is in the file.
        """
        empty = self.empty
        self.backlog.clear()
        try:
            for store in reversed(self.stores):
                store.close(flushed=flushed, empty=empty)
        finally:
            if self.spill_file is not None:
                self.spill_file.close()

    # --------------------------------------------------------------------------------- reading back

    def reaching(self, uid: int, low: int, high: int, before_request: int | None = None) -> list[tuple[Batch, Rows]]:
        """Return what is posted of a variable's elements from `low` to `high`: rows, with the batch that has their
        bytes.

        In the order of posting, copied; only of requests with a smaller number than `before_request`.
        """
        backlog = self.backlog
        found: list[tuple[Batch, Rows]] = []
        for batch in backlog.closed:
            found += [(batch, near(rows, uid, low, high, before_request)) for rows in batch.pieces(uid)]
        # The open batch stays open: a program that reads after each post would leave one batch a post behind.
        if uid in backlog.widths or uid in backlog.listed:
            try:
                found += self._reaching_open(uid, low, high, before_request)
            except BaseException:
                # the traceback may be kept, and with it the view of the table, which could not grow then
                backlog.table = backlog.table[:]
                raise
        return [item for item in found if len(item[1])]

    def _reaching_open(self, uid: int, low: int, high: int, before_request: int | None) -> list[tuple[Batch, Rows]]:
        """Return what the open batch has of it."""
        backlog, batch = self.backlog, self.store.open_batch()
        rows = backlog.open_rows()
        found: list[tuple[Batch, Rows]] = []
        parts: Iterable[Rows] = (rows,)
        if uid in backlog.listed:
            parts = pieces(rows[rows[:, 4] == uid], backlog.lists.runs, backlog.listed)
        elif before_request is None or not rows.size or before_request > int(rows[-1, 0]):
            known = backlog.sorted
            if known is None:
                known = backlog.sorted = SortedRows(rows[:0], {})
            if not known.is_short(len(rows)):
                known = backlog.sorted = SortedRows(rows, backlog.widths)
            found.append((batch, known.near(uid, low, high, backlog.widths[uid])))
            parts = (rows[known.count :],)
        for part in parts:
            found.append((batch, near(part, uid, low, high, before_request)))
        return found

    def overlay(self, uid: int, wanted: Extents, target: Bytes, itemsize: int, before_request: int | None) -> None:
        """Put what is posted for a variable over what the file holds.

        Parameters
        ----------
        uid : int
        wanted : Extents
            ``offset`` counts bytes of elements from the variable's first one; ``place`` is the place in `target`.
        target : uint8[...], in file form.
        itemsize : int, bytes of an element in `target`.
        before_request : int or None
            Only requests with a smaller number count.
        """
        low = int(wanted.offset.min()) // itemsize
        high = -(-int((wanted.offset + wanted.length).max()) // itemsize)
        for batch, rows in self.reaching(uid, low, high, before_request):
            lay_over(batch, uid, rows, wanted, target, itemsize)
