"""The memory store keeps posted bytes in one arena, in file form, appended in the order of posting.

Knows: rows, lists of runs, arrays. Does not know: files, variables' places, ranks.

Rules
-----
1. Data is in file form (type, big-endian), so that a flush writes it straight from the arena.
2. The budget is never exceeded: a post that does not fit is refused. A row is charged with what planning it will cost,
   so that a million tiny posts do not take more memory than one large one. A list of runs is charged once, however
   many posts have it; they are planned a part at a time.
3. Small posts of one type are kept as bytes and go to the arena together, when anything else comes (`_settle`): a view
   and a copy for each of them took half of the time of a post of 64 bytes. Their rows are in the table at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pnc_vol.extents.model import LEAST_RUNS, Runs
from pnc_vol.format import numeric
from pnc_vol.mapping.dtypes import Element
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.queue.batches import COLUMNS, Batch, MemoryBatch, pack_row
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

LONG_LIST = 1 << 12
"""Runs from which on a list is not made rows of, as these would take more of the budget."""

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
        address, itemsize = self.position, self._itemsize
        self._staged.append(values.tobytes())
        self._left, self.position = left, address + nbytes
        backlog.widths[uid] = itemsize
        if number == 1:
            backlog.table.frombytes(pack_row(request, start, values.size, address, uid))
        else:
            backlog.table.frombytes(
                _packed(uid, request, start, values.size // number, address, itemsize, number, step)
            )
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
        itemsize = element.file_dtype.itemsize
        first = -(-self.position // itemsize)
        last = first + count
        left = backlog.budget - last * itemsize - (backlog.rows + number) * ROW_COST - backlog.lists.nbytes
        if left < 0:
            return False
        typed = self._typed.get(element.nc_type)
        if typed is None or last > typed.size:
            self._room_for(last * itemsize)
            typed = self._arena_of(element)
        typed[first:last] = values if values.ndim == 1 else values.reshape(-1)
        address = first * itemsize
        backlog.widths[uid] = itemsize
        if number == 1:
            backlog.table.frombytes(pack_row(request, start, count, address, uid))
        else:
            backlog.table.frombytes(_packed(uid, request, start, count // number, address, itemsize, number, step))
        backlog.rows += number
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
        found: Runs,
        on_overflow: Overflow,
    ) -> bool:
        backlog, uid, itemsize = self.backlog, node.uid, node.element.itemsize
        # what has rows gets more of them: they are placed together, and lists one by one
        listed = len(found.start) >= (LONG_LIST if uid in backlog.widths else LEAST_RUNS)
        rows, cost = backlog.lists.cost(found) if listed else (len(found.start), 0)
        charged = (backlog.rows + rows) * ROW_COST + backlog.lists.nbytes + cost
        address = self._take_in(node, values, on_overflow, charged)
        if address < 0:
            return False
        post = backlog.post_list if listed else backlog.post_runs
        post(uid, request, found, address, itemsize)
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

    # ------------------------------------------------------------------------------------- batches

    def close_batch(self) -> None:
        backlog = self.backlog
        if backlog.table:
            # The rows stay posted until they are in the batch: memory may run out while it is made.
            self.add(MemoryBatch(backlog.open_table(), self.arena, self))
            backlog.clear_open()

    def open_batch(self) -> Batch:
        return MemoryBatch(self.backlog.no_rows(), self.arena)

    def retain(self, left: Sequence[Batch]) -> None:
        self._settle()
        self.batches = list(left)
        if self.backlog.lists.runs:
            first = [batch.table.rows[:, 1] for batch in left]
            self.backlog.lists.retain({-1 - number for column in first for number in column[column < 0].tolist()})
        if not left:
            self.position = 0

    def close(self, *, flushed: bool, empty: bool) -> None:
        self.position, self._left, self._arena = 0, -1, None
        self.batches = []
        self._staged.clear()
        self._typed.clear()


def _packed(
    uid: int, request: int, start: Any, count: int, address: int, itemsize: int, number: int, step: int
) -> bytes:
    """Return rows of equal length, one behind the other, `step` elements from one to the next, or each from its own
    start."""
    nbytes = count * itemsize
    if number < _BY_NUMPY and type(start) is int:
        each = range(number)
        return b"".join([pack_row(request, start + i * step, count, address + i * nbytes, uid) for i in each])
    rows = np.empty((number, COLUMNS), np.int64)
    rows[:] = request, 0, count, address, uid
    numbers = np.arange(number, dtype=np.int64)
    rows[:, 3] += numbers * nbytes
    rows[:, 1] = start if step == 0 else numbers * step + start
    return rows.tobytes()
