"""`decode_cache_log` reads an extent log, and finds what of a cache file is not known to be in the global file.

Knows: the records, their tables, checksums. Does not know: which epochs are to be carried, other ranks' logs.

Rules
-----
1. The valid prefix of the records counts; a kill tears at most the end.
2. A byte has what the last ``write`` of it put there. It is missing in the global file unless a later ``through``,
   ``cut`` or ``synced`` says otherwise.
3. What is held is cut with the file. What was written over was in the global file by then: else it would be held, too.
4. A write can be checked as long as no later one changed a byte of it. The rest is counted, not checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from pnc_vol.append_log.records import RecordHeader, decode_records
from pnc_vol.cache import extent_log
from pnc_vol.cache.queues import PendingHeader
from pnc_vol.errors import LogError
from pnc_vol.extents.merge import EMPTY, Ranges, ranges_of
from pnc_vol.extents.model import Extents, before

__all__ = ["CacheLog", "Written", "decode_cache_log"]


class Written(NamedTuple):
    """One record of a write.

    epoch : int
    extents : Extents, in the order of the checksum.
    checksum : int, of their bytes.
    """

    epoch: int
    extents: Extents
    checksum: int


class CacheLog(NamedTuple):
    """A decoded log.

    header : RecordHeader or None, None for a log that was ended: all that it told of is in the global file.
    ended, released : int, the last epoch that ended, and the last one whose header is in the global file.
    missing : dict of int to Ranges, by epoch: what the global file may lack.
    writes : list of Written, those that can be checked.
    unchecked : int, bytes of `missing` that cannot.
    held : list of PendingHeader, oldest first, not known to be in the global file.
    torn_bytes : int
    damage : str, what no kill explains; "" if nothing.
    """

    header: RecordHeader | None
    ended: int
    released: int
    missing: dict[int, Ranges]
    writes: list[Written]
    unchecked: int
    held: list[PendingHeader]
    torn_bytes: int
    damage: str


_MOST = 1 << 62
"""Bytes that no file has, and epochs that no job has."""
_ENDED = CacheLog(None, _MOST, 0, {}, [], 0, [], 0, "")


def decode_cache_log(records: bytes, tables_of: Callable[[int], bytes]) -> CacheLog:
    """Return what a log says.

    Parameters
    ----------
    records : bytes
    tables_of : callable, reads the file of the tables of this number.

    Raises
    ------
    LogError
        The header is wrong.
    """
    if not any(records):
        return _ENDED
    found = decode_records(extent_log.FORMAT, records)
    first = found.records[:1]
    state = _State(tables_of(int(first["nbytes"][0]) if first["kind"].tolist() == [extent_log.BEGIN] else 0))
    damage = "valid records follow one that is not" if found.later else ""
    for record in found.records:
        try:
            state.take(record)
        except LogError as error:
            damage = damage or str(error)
            break
    checked = [one for one in state.writes if one.epoch in state.missing]
    total = EMPTY
    for one in checked:
        total = total.plus(ranges_of(one.extents.offset, one.extents.length))
    unchecked = sum(ranges.minus(total).nbytes for ranges in state.missing.values())
    return CacheLog(
        found.header,
        state.ended,
        state.released,
        state.missing,
        checked,
        unchecked,
        state.held,
        found.torn_bytes,
        damage,
    )


class _State:
    """What is known after some records."""

    def __init__(self, tables: bytes) -> None:
        self._tables, self._end = tables, 0
        self.ended = self.released = 0
        self.missing: dict[int, Ranges] = {}
        self.writes: list[Written] = []
        self.held: list[PendingHeader] = []

    def take(self, record: np.void) -> None:
        """Go on with the next record."""
        kind, epoch, nbytes = (int(record[name]) for name in ("kind", "epoch", "nbytes"))
        if max(epoch, nbytes) > _MOST:
            raise LogError(f"record {int(record['sequence'])} has a number that no file has", field="nbytes")
        extents, data = self._table(record)
        ranges = ranges_of(extents.offset, extents.length)
        if kind in (extent_log.WRITE, extent_log.THROUGH):
            self.held = [one for one in self.held if not one.covers(ranges)]
        if kind == extent_log.WRITE:
            # What an earlier epoch wants of these bytes it wants still, whether this epoch ends or not.
            self._forget(lambda old: old, ranges)
            self.missing[epoch] = self.missing.get(epoch, EMPTY).plus(ranges)
            self.writes.append(Written(epoch, extents, int(record["checksum"])))
        elif kind == extent_log.THROUGH:
            self._forget(lambda old: old.minus(ranges), ranges)
        elif kind == extent_log.CUT:
            self._forget(lambda old: old.below(nbytes), Ranges(np.array([nbytes]), np.array([_MOST])))
            self.held = [one.below(nbytes) for one in self.held]
        elif kind == extent_log.HEADER:
            if data.nbytes != extents.nbytes:
                raise LogError("the bytes of a held header are not there", field="count")
            if extent_log.checksum(data) != int(record["checksum"]):
                raise LogError("the bytes of a held header have a wrong checksum", field="checksum")
            self.held.append(PendingHeader(epoch, extents, data))
        elif kind == extent_log.GROW:
            if data.nbytes or extents.nbytes:
                raise LogError("a record of a length has bytes besides", field="count")
            self.held.append(PendingHeader(epoch, extents, data, nbytes))
        elif kind == extent_log.EPOCH:
            self.ended = max(self.ended, epoch)
        elif kind == extent_log.SYNCED:
            self.missing = {of: left for of, left in self.missing.items() if of > epoch}
            self.writes = [one for one in self.writes if one.epoch > epoch]
        elif kind == extent_log.RELEASED:
            self.released = max(self.released, epoch)
            self.held = [one for one in self.held if one.epoch > epoch]

    def _table(self, record: np.void) -> tuple[Extents, npt.NDArray[np.uint8]]:
        begin, self._end = self._end, int(record["table_end"])
        count = int(record["count"])
        table = self._tables[begin : self._end]
        if len(table) != self._end - begin or len(table) < 16 * count or (table and not count):
            raise LogError(f"the table of record {int(record['sequence'])} is cut off", field="table_end")
        if count and crc32(table) != int(record["table_crc"]):
            raise LogError(f"the table of record {int(record['sequence'])} has a wrong CRC", field="table_crc")
        columns = np.frombuffer(table, "<i8", 2 * count).reshape(2, count).astype(np.int64)
        if columns.size and (int(columns.min()) < 0 or int((columns[0] + columns[1]).max()) < 0):
            raise LogError(f"record {int(record['sequence'])} has extents that no file has", field="offset")
        return Extents(columns[0], columns[1], before(columns[1])), np.frombuffer(table, np.uint8)[16 * count :]

    def _forget(self, what: Callable[[Ranges], Ranges], changed: Ranges) -> None:
        """Leave a part of what is missing; writes that `changed` touches cannot be checked any more."""
        left = {epoch: what(ranges) for epoch, ranges in self.missing.items()}
        self.missing = {epoch: ranges for epoch, ranges in left.items() if ranges.start.size}
        self.writes = [one for one in self.writes if not ranges_of(*one.extents[:2]).touches(changed)]
