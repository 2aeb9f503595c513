"""A stretch of a data log as a batch of a flush.

Knows: rows, a data log. Does not know: entries, commits, how the log came to be.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.byte_copy import copy_pieces
from pnc_vol.extents.model import Int64
from pnc_vol.format.convert import swap_in_place
from pnc_vol.log.files import LogFiles
from pnc_vol.queue.batches import RowsOf
from pnc_vol.queue.rows import Rows

__all__ = ["LogBatch"]

Bytes = npt.NDArray[np.uint8]

_SPAN = 1 << 20
"""Bytes that are read at once where pieces lie near each other."""


class LogBatch(RowsOf):
    """One round of a flush.

    files : LogFiles
    base : int, bytes of the data log before it; addresses of its rows count from there.
    nbytes : int
    units : by variable, bytes of a value to be swapped.
    """

    def __init__(
        self, store: object, rows: Mapping[int, Rows], files: LogFiles, base: int, nbytes: int, units: Mapping[int, int]
    ) -> None:
        super().__init__(rows)
        self.store = store
        self.files = files
        self.base = base
        self.size = nbytes
        self.units = units

    def keep(self, rows: Mapping[int, Rows]) -> LogBatch:
        return LogBatch(self.store, rows, self.files, self.base, self.size, self.units)

    def copy(self, uid: int, target: Bytes, target_place: Int64, address: Int64, nbytes: Int64) -> None:
        packed = self._gather(address + self.base, nbytes)
        swap_in_place(packed, self.units[uid])
        copy_pieces(target, target_place, packed, np.cumsum(nbytes) - nbytes, nbytes)

    def _gather(self, offset: Int64, nbytes: Int64) -> Bytes:
        """Pieces of the data log, one after another; what lies near each other is read together."""
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
                self.files.read(".data", packed[place - int(nbytes[some[0]]) : place], begin)
                continue
            span = np.empty(int((offset[some] + nbytes[some]).max()) - begin, np.uint8)
            self.files.read(".data", span, begin)
            copy_pieces(packed, ends[some] - nbytes[some], span, offset[some] - begin, nbytes[some])
        return packed

    def load(self, room: Bytes) -> Bytes:
        whole = room[: self.size] if room.nbytes >= self.size else np.empty(self.size, np.uint8)
        self.files.read(".data", whole, self.base)
        by_unit: dict[int, list[Rows]] = {}
        for uid in self.uids():
            by_unit.setdefault(self.units[uid], []).append(self.rows(uid))
        for unit, tables in by_unit.items():
            if unit > 1:
                rows = np.concatenate(tables)
                for first, last in _stretches(rows[:, 3], rows[:, 2] * rows[:, 4]):
                    swap_in_place(whole[first:last], unit)
        return whole


def _stretches(begin: Int64, nbytes: Int64) -> list[tuple[int, int]]:
    """Pieces joined where one begins at the end of another."""
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], (begin + nbytes)[order]
    breaks = np.flatnonzero(begin[1:] != end[:-1]) + 1
    firsts = begin[np.concatenate(([0], breaks))]
    lasts = end[np.concatenate((breaks - 1, [len(end) - 1]))]
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))
