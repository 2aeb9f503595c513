"""The queue kept on disk: posted values go to a log on fast local storage, and from there to the file at a flush.

Knows: rows, log files, entries, commit records. Does not know: headers, places of variables, other ranks.

Rules
-----
1. A post is one append of its values, one of its entry, one commit record; only then does it count as posted. A
   process that is killed afterwards loses nothing of it.
2. Values are logged in the variable's type and the machine's byte order, so the common post copies and nothing else.
3. The log is begun anew only when all that it holds is in the file, header included (`settled`).
4. A log that is full, or whose device is, makes the queue say no: the session drains, in a single process with a
   whole flush. Where that does not empty the log, later posts wait in memory, behind those of the log.
"""

from __future__ import annotations

import errno
import math
import os
import sys
from array import array
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.base import Driver
from pnc_vol.drivers.pieces import copy_pieces
from pnc_vol.errors import PncVolError
from pnc_vol.extents.model import Extents, Int64, Runs
from pnc_vol.extents.selection import Selection
from pnc_vol.extents.subarrays import as_subarrays
from pnc_vol.format.convert import Overflow, swap_in_place, to_file
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.options import Options
from pnc_vol.pending.batches import Batch, RowsOf
from pnc_vol.pending.log.companion import (
    COMMIT,
    FLUSHED,
    RESET,
    TOMBSTONE,
    CompanionHeader,
    encode_companion_header,
    encode_fill,
    encode_record,
)
from pnc_vol.pending.log.definitions import encode_definition
from pnc_vol.pending.log.files import LogFiles, Share, pointer_path
from pnc_vol.pending.log.layout import (
    DATA_MAGIC,
    NUM_ENTRIES_AT,
    LogHeader,
    encode_header,
    encode_vara,
    encode_varn,
    encode_vars,
    itype_of,
)
from pnc_vol.pending.plan import COLUMNS, Rows
from pnc_vol.pending.queue import Queue
from pnc_vol.system import System, read_at

__all__ = ["LogQueue"]

Bytes = npt.NDArray[np.uint8]

LEAST_ROUND = 64 << 10
_PAGE = 4096


class LogBatch(RowsOf):
    """A stretch of a data log, one round of a flush.

    base : int, bytes of the data log before it; addresses of its rows count from there.
    nbytes : int
    units : by variable, bytes of a value to be swapped.
    """

    def __init__(
        self, rows: Mapping[int, Rows], queue: LogQueue, base: int, nbytes: int, units: Mapping[int, int]
    ) -> None:
        super().__init__(rows)
        self.queue = queue
        self.base = base
        self.size = nbytes
        self.units = units

    def keep(self, rows: Mapping[int, Rows]) -> LogBatch:
        return LogBatch(rows, self.queue, self.base, self.size, self.units)

    def copy(self, uid: int, target: Bytes, target_place: Int64, address: Int64, nbytes: Int64) -> None:
        ends = np.cumsum(nbytes)
        packed = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
        self.queue.fetch(Extents(address + self.base, nbytes, ends - nbytes), packed)
        swap_in_place(packed, self.units[uid])
        copy_pieces(target, target_place, packed, ends - nbytes, nbytes)

    def load(self, room: Bytes) -> Bytes:
        whole = room[: self.size] if room.nbytes >= self.size else np.empty(self.size, np.uint8)
        zero = np.zeros(1, np.int64)
        self.queue.fetch(Extents(zero + self.base, zero + self.size, zero), whole)
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


class LogQueue(Queue):
    """Where promises wait: on disk.

    Parameters
    ----------
    options : Options
    open_spill : callable, as of `Queue`.
    base : str, path of the log files without suffix.
    path : str, the file that the log is for.
    rank, size : int, of the job.
    share : Share, optional, how ranks of the node share the files.
    """

    logged = True

    def __init__(
        self,
        options: Options,
        open_spill: Callable[[], Driver],
        *,
        base: str,
        path: str,
        rank: int,
        size: int,
        share: Share | None = None,
    ) -> None:
        super().__init__(options.buffer_size, open_spill)
        self.options = options
        self.system: System = options.system
        self.round = max(LEAST_ROUND, options.burst_buf_flush_buffer_size or options.buffer_size)
        self.capacity = options.burst_buf_capacity or sys.maxsize
        self.files = LogFiles(self.system, base, share)
        self.header = LogHeader(path, os.uname().nodename, size, rank)
        self.log_id = os.urandom(16)
        self.sequence = 0
        self.epoch = 0
        self.entries = 0
        self.logging = True
        self._units: dict[int, int] = {}
        self._known: dict[int, _Known] = {}
        self._logged = array("q")
        """Request and end of each entry, by turns."""
        self._each = options.burst_buf_sync == "each"
        self.files.meta.append(encode_header(self.header))
        self.files.data.append(DATA_MAGIC)
        about = CompanionHeader(self.log_id, bytes(16), rank, size, path)
        self.files.commit.append(encode_companion_header(about))
        self._begin_meta, self._begin_data = self.files.meta.end, self.files.data.end
        ((counter, _),) = self.files.meta.pieces(0, _PAGE)
        self._page = self.system.mmap(self.files.meta.fd, _PAGE, counter)
        self._counter = memoryview(self._page)[NUM_ENTRIES_AT : NUM_ENTRIES_AT + 8].cast("q")

    # ------------------------------------------------------------------------------------- posting

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
        if not self.logging:
            return super().put(node, request, values, selection, one, found, on_overflow)
        uid, files = node.uid, self.files
        known = self._known.get(uid)
        if known is None or not known.holds(node):
            known = self._define(node)
        nbytes = values.size * known.itemsize
        count = 1 if one is not None else len(found.start)  # type: ignore[union-attr]
        if files.nbytes + nbytes > self.capacity or (self.rows + count) * COLUMNS * 8 > self.budget:
            return False
        payload = known.payload(values, on_overflow)
        at = files.data.end
        before = (files.meta.end, at, files.commit.end, self.entries, self.sequence)
        try:
            entry = known.entry(uid, selection, one, found, at, nbytes)
            files.data.append(payload)
            files.meta.append(entry)
            self.entries += 1
            self._counter[0] = self.entries
            self._record(COMMIT, request, 1, crc32(entry), crc32(payload))
            self._logged.extend((request, files.meta.end))
            if self._each:
                files.sync()
        except OSError as error:
            self._take_back(*before)
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                return False
            raise
        if one is not None:
            self.post(uid, request, one[0], one[1], at, known.itemsize)
        else:
            assert found is not None
            self.post_runs(uid, request, found, at, known.itemsize)
        return True

    def _define(self, node: DatasetNode) -> _Known:
        """Log what replay must know of a dataset."""
        self.files.defs.append(encode_definition(node))
        known = self._known[node.uid] = _Known(node)
        self._units[node.uid] = known.unit
        return known

    def _take_back(self, meta: int, data: int, commit: int, entries: int, sequence: int) -> None:
        """Forget a post that could not be logged whole."""
        for tail, end in ((self.files.meta, meta), (self.files.data, data), (self.files.commit, commit)):
            if tail.end != end:
                tail.cut(end)
        self.entries, self.sequence = entries, sequence
        self._counter[0] = entries

    def _record(
        self, kind: int, request: int = 0, number: int = 0, meta_crc: int = 0, data_crc: int = 0, meta_end: int = -1
    ) -> None:
        record = encode_record(
            kind,
            log_id=self.log_id,
            sequence=self.sequence + 1,
            request=request,
            epoch=self.epoch,
            meta_end=self.files.meta.end if meta_end < 0 else meta_end,
            data_end=self.files.data.end,
            number=number,
            meta_crc=meta_crc,
            data_crc=data_crc,
        )
        self.files.commit.append(record)
        self.sequence += 1

    def lend(self, *args: Any) -> None:
        raise NotImplementedError("a log copies what it is given: post it with put")

    def cancel(self, request: int) -> int:
        if self.logging:
            logged = np.array(self._logged, np.int64).reshape(-1, 2)
            for end in logged[logged[:, 0] == request, 1].tolist():
                self._record(TOMBSTONE, request, meta_end=end)
        return super().cancel(request)

    def cut(self, uid: int, count: int) -> None:
        known = self._known.get(uid)
        if known is not None and self.logging:
            first = count // max(1, known.inner)
            self.sequence += 1
            self.files.commit.append(
                encode_fill(uid, log_id=self.log_id, sequence=self.sequence, meta_end=self.files.meta.end, first=first)
            )
        super().cut(uid, count)

    # ------------------------------------------------------------------------------------ carrying

    def close_batch(self) -> None:
        """Later posts go to a new batch; what is in the log is cut to rounds."""
        if not self.logging:
            super().close_batch()
            return
        if not self.tables:
            return
        uids = list(self.tables)
        tables = [self._open_rows(uid) for uid in uids]
        owner = np.repeat(np.array(uids, np.int64), [len(table) for table in tables])
        rows, owner = _cut_long(np.concatenate(tables), owner, self.round)
        order = np.argsort(rows[:, 3], kind="stable")
        rows, owner = rows[order], owner[order]
        ends = rows[:, 3] + rows[:, 2] * rows[:, 4]
        first = 0
        while first < len(rows):
            base = int(rows[first, 3])
            last = max(first + 1, int(np.searchsorted(ends, base + self.round, side="right")))
            part, of = rows[first:last].copy(), owner[first:last]
            part[:, 3] -= base
            by_uid = {uid: part[of == uid] for uid in dict.fromkeys(of.tolist())}
            nbytes = int(ends[last - 1]) - base
            self.closed.append(LogBatch(by_uid, self, base, nbytes, self._units))
            first = last
        self.tables = {}
        self._sorted = {}
        self.rows = 0

    def weight(self) -> tuple[int, int]:
        runs, nbytes = super().weight()
        for batch in self.closed:
            if isinstance(batch, LogBatch):
                runs += sum(len(batch.rows(uid)) for uid in batch.uids())
                nbytes += batch.size
        return runs, nbytes

    def _open_batch(self, uid: int) -> Batch:
        if not self.logging:
            return super()._open_batch(uid)
        return LogBatch({}, self, 0, 0, self._units)

    def fetch(self, extents: Extents, memory: Bytes) -> None:
        """Bytes of the data log.

        Raises
        ------
        PncVolError
            The log is shorter than what was written to it.
        """
        view = memory.data
        for offset, length, place in zip(*(column.tolist() for column in extents), strict=True):
            for at, nbytes in self.files.data.pieces(offset, length):
                if read_at(self.system, self.files.data.fd, view[place : place + nbytes], at) < nbytes:
                    raise PncVolError(f"{self.files.base}.data was cut by somebody else: posted data is lost")
                place += nbytes

    def stop_logging(self) -> None:
        """Let later posts wait in memory: the log is full and cannot be emptied now."""
        self.close_batch()
        self.logging = False

    def settled(self) -> None:
        """All that was posted is in the file, header included: begin the log anew."""
        if not self.empty:
            return
        if self.entries:
            self._record(FLUSHED)
            self.epoch += 1
            self.entries = 0
            self._counter[0] = 0
            self._logged = array("q")
            self.files.meta.cut(self._begin_meta)
            self.files.data.cut(self._begin_data)
            self._record(RESET)
        self.logging = True

    def about_to_flush(self) -> None:
        """Bring the log to stable storage if that was asked for at flushes."""
        if self.options.burst_buf_sync == "flush":
            self.files.sync()

    def close(self, *, flushed: bool = True) -> None:
        """Close the log; it is removed if all of it is in the file and nobody wants to keep it."""
        whole = flushed and self.empty and not self.entries
        super().close(flushed=flushed)
        if not self._page.closed:
            self._counter.release()
            self._page.close()
            self.files.close(delete=whole and self.options.burst_buf_del_on_close)
            if whole and self.header.rank_id == 0:
                with suppress(OSError):
                    self.system.unlink(pointer_path(self.header.path))


class _Known:
    """What was logged of a dataset, and how its values and entries are spelled."""

    __slots__ = (
        "element", "inner", "itemsize", "itype", "name", "native", "parent", "shape", "trailing", "unit", "zeros",
    )  # fmt: skip

    def __init__(self, node: DatasetNode) -> None:
        self.shape, self.element, self.name, self.parent = node.shape, node.element, node.name, node.parent
        dtype = node.element.file_dtype
        self.itemsize = dtype.itemsize
        self.inner = math.prod((node.shape or ())[1:])
        self.native = dtype.newbyteorder("=")
        part = np.dtype("f4" if dtype.itemsize == 8 else "f8") if dtype.kind == "c" else dtype
        self.itype = itype_of("S1" if dtype.kind == "S" else part)
        self.unit = 1 if dtype.kind == "S" else part.itemsize
        self.trailing = node.element.trailing
        self.zeros = (0,) * len(self.trailing)

    def holds(self, node: DatasetNode) -> bool:
        """Whether the dataset is as it was logged."""
        return (
            node.shape is self.shape
            and node.element is self.element
            and node.name is self.name
            and node.parent is self.parent
        )

    def payload(self, values: npt.NDArray[Any], on_overflow: Overflow) -> memoryview:
        """The values as bytes of the variable's type in the machine's byte order; a view if that is what they are."""
        if values.dtype == self.native and values.flags.c_contiguous:
            return values.reshape(-1).view(np.uint8).data
        made = np.empty(values.size * self.itemsize, np.uint8)
        to_file(values, self.native, made, on_overflow=on_overflow, what=self.name)
        return made.data

    def entry(
        self,
        varid: int,
        selection: Selection | None,
        one: tuple[int, int] | None,
        found: Runs | None,
        at: int,
        nbytes: int,
    ) -> bytes:
        """The entry of a request in the words of the variable's own dimensions, hidden ones included."""
        if selection is not None and selection.index is None and selection.listed is None:
            start, count, stride = selection.start, selection.count, selection.stride
            if self.trailing:
                start, count, stride = (
                    (*start, *self.zeros), (*count, *self.trailing), (*stride, *(1 for _ in self.zeros))
                )  # fmt: skip
            if max(stride, default=1) == 1:
                return encode_vara(self.itype, varid, start, count, at, nbytes)
            return encode_vars(self.itype, varid, start, count, stride, at, nbytes)
        if found is None:
            assert one is not None
            found = Runs(np.array(one[:1], np.int64), np.array(one[1:], np.int64))
        starts, counts = as_subarrays(self.shape or (), found)
        hidden = np.zeros((len(starts), len(self.zeros)), np.int64)
        whole = hidden + np.array(self.trailing, np.int64)
        return encode_varn(self.itype, varid, np.hstack((starts, hidden)), np.hstack((counts, whole)), at, nbytes)


def _cut_long(rows: Rows, owner: Int64, limit: int) -> tuple[Rows, Int64]:
    """Cut runs that are longer than a round."""
    most = np.maximum(limit // rows[:, 4], 1)
    parts = -(-rows[:, 2] // most)
    if not bool((parts > 1).any()):
        return rows, owner
    again = np.repeat(np.arange(len(rows)), parts)
    step = np.arange(len(again)) - np.repeat(np.cumsum(parts) - parts, parts)
    made, most = rows[again], most[again]
    made[:, 1] += step * most
    made[:, 3] += step * most * made[:, 4]
    made[:, 2] = np.minimum(most, rows[again, 2] - step * most)
    return made, owner[again]
