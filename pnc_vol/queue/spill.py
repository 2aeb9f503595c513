"""The spill file keeps what memory does not hold until the flush.

Knows: batches, one driver. Does not know: variables' places, headers, ranks, who posts.

Rules
-----
1. What goes there is data and rows of whole batches, when memory is full and their places in the file are not agreed;
   of batches whose bytes are in a log, the rows alone.
2. A drain does not write it: reading it back takes the memory that the drain is to make.
3. The file is private, has no name, and is opened when it is first needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.base import Driver
from pnc_vol.extents.model import Extents, Int64, one_extent
from pnc_vol.queue.batches import COLUMNS, MOST_RUNS, NO_TABLE, Batch, Rows, Table

__all__ = ["SpillFile", "SpilledBytes", "SpilledRows"]

Bytes = npt.NDArray[np.uint8]


class SpillFile:
    """Batches that were moved out of memory.

    Parameters
    ----------
    open_file : callable
        Opens a driver on a new, private file.

    Attributes
    ----------
    nbytes : int
        Bytes that went there so far, for statistics.
    """

    def __init__(self, open_file: Callable[[], Driver]) -> None:
        self.nbytes = 0
        self._open_file = open_file
        self._driver: Driver | None = None
        self._end = 0

    def take(self, batches: Sequence[Batch], data: Bytes | None = None) -> list[Batch]:
        """Return the same batches, with their rows in the file, and their bytes as well if these are given.

        Parameters
        ----------
        data : uint8[n], all their bytes, by address; None: these stay where they are.

        Raises
        ------
        OSError
            There is no room for them; what is in the file already is as it was.
        """
        if self._driver is None:
            self._driver = self._open_file()
        driver = self._driver
        base = end = _eights(self._end)
        if data is not None:
            driver.write(one_extent(base, data.nbytes), data)
            end = _eights(base + data.nbytes)
        spilled: list[Batch] = []
        for batch in batches:
            where, end = _write_rows(driver, batch.table, end)
            kept = batch.keep(NO_TABLE) if data is None else SpilledBytes(self, driver, base, data.nbytes, NO_TABLE)
            spilled.append(SpilledRows(self, driver, where, batch.table.widths, kept))
        self.nbytes += end - base
        self._end = end
        return spilled

    def retain(self, left: Sequence[Batch]) -> None:
        """Keep only these of the batches that have rows or bytes in it: without any the file is emptied."""
        if not left and self._end and self._driver is not None:
            self._end = 0
            self._driver.resize(0)

    def close(self) -> None:
        """Give the file up."""
        if self._driver is not None:
            with suppress(OSError):
                # Nobody will read it again.
                self._driver.close()
            self._driver = None


def _eights(nbytes: int) -> int:
    return -(-nbytes // 8) * 8


def _write_rows(driver: Driver, table: Table, end: int) -> tuple[dict[int, tuple[int, int]], int]:
    """Write the rows of a batch from byte `end` on; (offset, rows) of each variable, and the new end."""
    where = {}
    for uid in table.uids:
        begin, count = end, 0
        for rows in table.of(uid).pieces():
            driver.write(one_extent(end, rows.nbytes), np.ascontiguousarray(rows).view(np.uint8).reshape(-1))
            end += rows.nbytes
            count += len(rows)
        where[uid] = (begin, count)
    return where, end


class SpilledBytes(Batch):
    """Bytes that were moved to the spill file.

    base : int, bytes from the start of the spill file to the batch.
    """

    drains = False

    def __init__(self, file: SpillFile, driver: Driver, base: int, nbytes: int, table: Table) -> None:
        super().__init__(table)
        self.file = self.store = file
        self.driver, self.base, self.size = driver, base, nbytes

    def keep(self, table: Table) -> Batch:
        return SpilledBytes(self.file, self.driver, self.base, self.size, table)

    def copy(self, uid: int, target: Bytes, target_place: Int64, address: Int64, nbytes: Int64) -> None:
        self.driver.read(Extents(address + self.base, nbytes, target_place), target)

    def load(self, room: Bytes) -> Bytes:
        whole = room[: self.size] if room.nbytes >= self.size else np.empty(self.size, np.uint8)
        self.driver.read(one_extent(self.base, self.size), whole)
        return whole


class SpilledRows(Batch):
    """Rows that were moved to the spill file, of bytes that are there, too, or that another store keeps.

    where : mapping of uid to (offset, rows) of its rows in the spill file, one behind another.
    kept : Batch, the bytes; without some of the rows it has the others in memory again.
    """

    drains = False

    def __init__(
        self,
        file: SpillFile,
        driver: Driver,
        where: Mapping[int, tuple[int, int]],
        widths: Mapping[int, int],
        kept: Batch,
    ) -> None:
        self.rows_in, self._widths = file, widths
        self.driver, self.where, self.kept = driver, where, kept
        self.store, self.size = kept.store, kept.size

    @property
    def widths(self) -> Mapping[int, int]:
        return self._widths

    @property
    def table(self) -> Table:  # type: ignore[override]
        begin = min((offset for offset, _ in self.where.values()), default=0)
        return Table(self._read(begin, sum(count for _, count in self.where.values())), self._widths)

    def _read(self, offset: int, count: int) -> Rows:
        found = np.empty((count, COLUMNS), np.int64)
        self.driver.read(one_extent(offset, found.nbytes), found.view(np.uint8).reshape(-1))
        return found

    def uids(self) -> list[int]:
        return [*self.where]

    @property
    def rounds(self) -> int:
        # known without a read
        return -(-sum(count for _, count in self.where.values()) // MOST_RUNS)

    def pieces(self, uid: int) -> Iterable[Rows]:
        return [self._read(*self.where[uid])] if uid in self.where else []

    def keep(self, table: Table) -> Batch:
        return self.kept.keep(table)

    def copy(self, uid: int, target: Bytes, target_place: Int64, address: Int64, nbytes: Int64) -> None:
        self.kept.copy(uid, target, target_place, address, nbytes)

    def load(self, room: Bytes) -> Bytes:
        # a log tells by the rows what its bytes are
        return self.kept.keep(NO_TABLE if self.store is self.rows_in else self.table).load(room)
