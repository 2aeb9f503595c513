"""`LogBatch` presents a range of a data log as a batch of a flush.

Knows: rows, a data log. Does not know: entries, commits, how the log came to be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.vectored_io import copy_pieces, joined
from pnc_vol.extents.blocks import groups
from pnc_vol.extents.model import Int64, before, distinct
from pnc_vol.format.numeric import swap_in_place
from pnc_vol.queue.batches import Batch, Rows, Table, of_each
from pnc_vol.system.two_threads import in_two_threads

__all__ = ["LogBatch", "log_batches"]

Bytes = npt.NDArray[np.uint8]
ReadInto = Callable[[Bytes, int], None]

_SPAN = 1 << 20
"""Bytes that are read at once where pieces lie near each other."""

_WORTH = 4 * _SPAN
"""Bytes up to which a second thread takes longer to begin than it saves."""

_PIECE = 64 << 10
"""Bytes of a piece, on average, from which on a call of its own costs little."""


class LogBatch(Batch):
    """One round of a flush.

    read : callable of an array of bytes and an offset in the data log: fills it, or raises.
    base : int, bytes of the data log before it; addresses of its rows count from there.
    nbytes : int
    units : by variable, bytes of a value to be swapped.
    """

    def __init__(
        self, store: object, table: Table, read: ReadInto, base: int, nbytes: int, units: Mapping[int, int]
    ) -> None:
        super().__init__(table)
        self.store = store
        self.read = read
        self.base = base
        self.size = nbytes
        self.units = units

    def keep(self, table: Table) -> LogBatch:
        return LogBatch(self.store, table, self.read, self.base, self.size, self.units)

    def copy(self, uid: int, target: Bytes, target_place: Int64, address: Int64, nbytes: Int64) -> None:
        packed = self._gather(address + self.base, nbytes)
        swap_in_place(packed, self.units[uid])
        copy_pieces(target, target_place, packed, np.cumsum(nbytes) - nbytes, nbytes)

    def _gather(self, offset: Int64, nbytes: Int64) -> Bytes:
        """Read pieces of the data log one after another; pieces that lie near each other take one read."""
        ends = np.cumsum(nbytes)
        packed = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
        order = np.argsort(offset, kind="stable")
        block = offset[order] // _SPAN
        firsts = np.flatnonzero(np.diff(block, prepend=-1))
        for first, last in zip(firsts.tolist(), [*firsts[1:].tolist(), len(order)], strict=True):
            some = order[first:last]
            begin = int(offset[some[0]])
            if len(some) == 1:
                place = int(ends[some[0]])
                self.read(packed[place - int(nbytes[some[0]]) : place], begin)
                continue
            span = np.empty(int((offset[some] + nbytes[some]).max()) - begin, np.uint8)
            self.read(span, begin)
            copy_pieces(packed, ends[some] - nbytes[some], span, offset[some] - begin, nbytes[some])
        return packed

    def load(self, room: Bytes) -> Bytes:
        whole = room[: self.size] if room.nbytes >= self.size else np.empty(self.size, np.uint8)
        table = self.table
        owner = table.rows[:, 4]
        nbytes, unit_of = table.rows[:, 2] * of_each(table.widths, owner), of_each(self.units, owner)
        stretches = {}
        for unit in distinct(unit_of).tolist():
            alike = unit_of == unit
            stretches[unit] = _stretches(table.rows[alike], nbytes[alike])
        if sum(len(first) for first, _ in stretches.values()) * _PIECE <= self.size:
            # One thread swaps a block while it is still in the processor's cache; another one reads the next block.
            blocks = (partial(self._load_block, whole, *block) for block in _blocks(stretches))
            in_two_threads(blocks, 0, alone=self.size <= _WORTH)
            return whole
        self.read(whole, self.base)
        for unit, (first, nbytes) in stretches.items():
            if len(first) == 1:
                swap_in_place(whole[int(first[0]) : int(first[0] + nbytes[0])], unit)
            elif unit > 1:
                packed, place = np.empty(int(nbytes.sum()), np.uint8), before(nbytes)
                copy_pieces(packed, place, whole, first, nbytes)
                swap_in_place(packed, unit)
                copy_pieces(whole, first, packed, place, nbytes)
        return whole

    def _load_block(self, whole: Bytes, first: int, last: int, unit: int, _: Bytes) -> None:
        self.read(whole[first:last], self.base + first)
        swap_in_place(whole[first:last], unit)


def _stretches(rows: Rows, nbytes: Int64) -> tuple[Int64, Int64]:
    """Return begin and length of the rows' values in memory, joined where one begins at the end of another."""
    address = rows[:, 3]
    if bool((address[1:] < address[:-1]).any()):
        order = np.argsort(address, kind="stable")
        address, nbytes = address[order], nbytes[order]
    return joined(address, nbytes)


def _blocks(stretches: Mapping[int, tuple[Int64, Int64]]) -> Iterator[tuple[int, int, int]]:
    """Yield the first and last byte, and bytes of a value, of blocks of one type each."""
    for unit, (begin, nbytes) in stretches.items():
        step = _SPAN // unit * unit
        for first, last in zip(begin.tolist(), (begin + nbytes).tolist(), strict=True):
            yield from ((at, min(at + step, last), unit) for at in range(first, last, step))


def log_batches(
    rows: Rows, widths: Mapping[int, int], limit: int, *, store: object, read: ReadInto, units: Mapping[int, int]
) -> Iterator[LogBatch]:
    """Yield posted rows as batches of about `limit` bytes of the data log each, in the order of the log.

    Parameters
    ----------
    rows : int64[n, 5], whose addresses are offsets in the data log; they may be changed.
    widths : mapping of uid to bytes of an element.
    store, read, units : see `LogBatch`
    """
    address, width = rows[:, 3], of_each(widths, rows[:, 4])
    if bool((address[1:] < address[:-1]).any()):
        order = np.argsort(address, kind="stable")
        rows, width = rows[order], width[order]
    rows, width = _cut_long(rows, width, limit)
    ends = rows[:, 3] + rows[:, 2] * width
    for first, last in groups(rows[:, 3], ends, limit):
        base = int(rows[first, 3])
        rows[first:last, 3] -= base
        yield LogBatch(store, Table(rows[first:last], widths), read, base, int(ends[last - 1]) - base, units)


def _cut_long(rows: Rows, width: Int64, limit: int) -> tuple[Rows, Int64]:
    """Cut runs that are longer than a round."""
    most = np.maximum(limit // width, 1)
    parts = -(-rows[:, 2] // most)
    if not bool((parts > 1).any()):
        return rows, width
    again = np.repeat(np.arange(len(rows)), parts)
    step = np.arange(len(again)) - np.repeat(np.cumsum(parts) - parts, parts)
    made, most = rows[again], most[again]
    made[:, 1] += step * most
    made[:, 3] += step * most * width[again]
    made[:, 2] = np.minimum(most, rows[again, 2] - step * most)
    return made, width[again]
