"""The queue kept on disk: posted values go to a log on fast local storage, and from there to the file at a flush.

Knows: rows, log files, entries, commit records. Does not know: headers, places of variables, other ranks.

Rules
-----
1. A post is one append of its values, one of its entry, one commit record; only then does it count as posted. A
   process that is killed afterwards loses nothing of it.
2. Values are logged in the variable's type and the machine's byte order, so the common post copies and nothing else.
3. The log is begun anew only when all that it holds is in the file, header included (`settled`).
4. If the log or its device is full, the queue declines a post: the session drains, in a single process with a
   whole flush. Where that does not empty the log, later posts are kept in memory, behind those of the log.
5. A dataset is defined in the log before the first entry that refers to it, and again after each flush: a log explains
   itself, and holds nothing that is in the file.
"""

from __future__ import annotations

import math
import os
import sys
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.base import Driver
from pnc_vol.errors import LogError
from pnc_vol.extents.model import Runs
from pnc_vol.extents.selection import Selection
from pnc_vol.format.convert import Overflow
from pnc_vol.log.batch import DataLog, LogBatch, weight_of
from pnc_vol.log.commit_log import (
    FLUSHED,
    TOMBSTONE,
    CommitLogHeader,
    encode_commit,
    encode_commit_log_header,
    encode_fill,
    encode_record,
)
from pnc_vol.log.definition_writer import DefinitionWriter, LoggedFile
from pnc_vol.log.definitions import encode_work
from pnc_vol.log.encoding import DATA_MAGIC, MAX_NDIMS_AT, LogHeader, encode_header
from pnc_vol.log.fast_append import post_run
from pnc_vol.log.files import FULL, LogFiles, Share
from pnc_vol.log.folders import forget_folder
from pnc_vol.log.hints import hints_in_force
from pnc_vol.log.integrity import find_damage
from pnc_vol.log.logged_variables import LoggedVariable, cut_to_rounds, entries_of, rows_of_request
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.options import Options
from pnc_vol.queue.batches import Batch
from pnc_vol.queue.queue import ROW_COST, Queue
from pnc_vol.queue.rows import COLUMNS
from pnc_vol.system import System, exists
from pnc_vol.warn import warn_outside

__all__ = ["LogQueue"]

LEAST_ROUND = 64 << 10
_PAGE = 4096


class LogQueue(Queue):
    """Where promises wait: on disk.

    Parameters
    ----------
    options : Options
    open_spill : callable, as of `Queue`.
    base : str, path of the log files without suffix.
    path : str, the file that the log is for.
    file : LoggedFile, the same as it is now.
    rank, size : int, of the job.
    share : Share, optional, how ranks of the node share the files.
    """

    logged = True
    shares_lists = False

    def __init__(
        self,
        options: Options,
        open_spill: Callable[[], Driver],
        *,
        base: str,
        path: str,
        file: LoggedFile,
        rank: int,
        size: int,
        share: Share | None = None,
    ) -> None:
        super().__init__(options.buffer_size, open_spill)
        self.options = options
        self.system: System = options.system
        self.round = max(LEAST_ROUND, options.burst_buf_flush_buffer_size or options.buffer_size)
        self.capacity = options.burst_buf_capacity or sys.maxsize
        self._limited = options.burst_buf_capacity > 0
        self.header = LogHeader(path, os.uname().nodename, size, rank)
        self.log_id = os.urandom(16)
        self.seed = crc32(self.log_id)
        self.sequence = self.epoch = self.fills = self.entries = 0
        self.logging = True
        self.entry_requests, self.entry_ends = array("q"), array("q")
        """Request and end of each entry."""
        self.broken = ""
        """What another process did to the log."""
        self._each = options.burst_buf_sync == "each"
        self.quick = not self._each and not self._limited
        self._work = encode_work(os.path.basename(file.work)) if file.temporary else b""
        self.files = LogFiles(self.system, base, share)
        self.defining = DefinitionWriter(self.system, self.files.defs, file)
        self.known = self.defining.known
        try:
            self._begin(file.identity)
        except BaseException:
            self.files.close(delete=True, alone=True)
            raise

    def _begin(self, file: bytes) -> None:
        files, header = self.files, self.header
        files.meta.append(encode_header(header))
        files.data.append(DATA_MAGIC)
        about = CommitLogHeader(self.log_id, file, header.rank_id, header.num_ranks, header.path)
        files.commit.append(encode_commit_log_header(about))
        if self._work:
            files.defs.append(self._work)
        self._begins = tuple((tail, tail.end) for tail in (files.meta, files.data, files.defs, files.commit))
        self.data = DataLog(files.data, files.base + ".data")
        ((first_page, _),) = files.meta.pieces(0, _PAGE)
        self._page = self.system.mmap(files.meta.fd, _PAGE, first_page)
        self.counters = memoryview(self._page)[MAX_NDIMS_AT : MAX_NDIMS_AT + 16].cast("q")
        """``max_ndims`` and ``num_entries`` of the header."""
        if self.options.burst_buf_sync != "none":
            files.sync()
            files.sync_names()

    def hints(self) -> dict[str, str]:
        """What is in force, by the names and in the words of PnetCDF."""
        return hints_in_force(self.options, os.path.dirname(os.path.dirname(self.files.base)), self.round)

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
        known = self.known.get(uid)
        fresh = known is None or (known.version != node.tree.version and not known.holds(node))
        if known is None or fresh:
            known = LoggedVariable(node)
        nbytes = values.size * known.itemsize
        count = 1 if one is not None else len(found.start)  # type: ignore[union-attr]
        if (self.rows + count) * ROW_COST > self.budget or (self._limited and files.nbytes + nbytes > self.capacity):
            return False
        payload = known.payload(values, on_overflow)
        at = files.data.end
        before = (files.meta.end, at, files.commit.end)
        try:
            if fresh:
                self._define(node, known)
            entry = known.entry(uid, selection, one, found, at, nbytes)
            files.data.append(payload)
            files.meta.append(entry)
            self.counters[1] = self.entries + 1
            ends = files.meta.end, files.data.end
            record = encode_commit(
                self.seed, self.sequence + 1, request, self.epoch, *ends, crc32(entry), crc32(payload)
            )
            files.commit.append(record)
            if self._each:
                files.sync()
        except OSError as error:
            self._take_back(*before)
            if error.errno in FULL:
                return False
            error.filename = error.filename or files.base
            raise
        self.entries += 1
        self.sequence += 1
        self.entry_requests.append(request)
        self.entry_ends.append(ends[0])
        if one is not None:
            self.post(uid, request, one[0], one[1], at, known.itemsize)
        else:
            assert found is not None
            self.post_runs(uid, request, found, at, known.itemsize)
        return True

    put_run = post_run

    def _define(self, node: DatasetNode, known: LoggedVariable) -> None:
        """Log what replay must know of a dataset."""
        self.defining.define(node, known, (self.epoch, self.fills))
        self.counters[0] = self.defining.ndims

    def _take_back(self, meta: int, data: int, commit: int) -> None:
        """Forget a post that could not be logged whole."""
        files = self.files
        for tail, end in ((files.commit, commit), (files.meta, meta), (files.data, data)):
            if tail.end != end:
                tail.take_back(end)
        self.counters[1] = self.entries

    def _record(self, kind: int, *which: tuple[int, int]) -> None:
        """Records that are no commits, one for each request and end in the entry log, or none is added."""
        about = {"log_id": self.log_id, "epoch": self.epoch, "data_end": self.files.data.end}
        records = [
            encode_record(kind, sequence=self.sequence + i, request=request, meta_end=end, **about)  # type: ignore[arg-type]
            for i, (request, end) in enumerate(which, 1)
        ]
        self.files.commit.append(b"".join(records))
        self.sequence += len(records)

    @contextmanager
    def in_memory(self) -> Iterator[None]:
        before, self.logged = self.logging, False
        self.stop_logging()
        try:
            yield
        finally:
            self.close_batch()
            self.logged, self.logging = True, before

    def lend(self, *args: Any) -> None:
        raise NotImplementedError("a log copies what it is given: post it with put")

    def cancel(self, requests: set[int]) -> int:
        entries = entries_of(self.entry_requests, self.entry_ends, requests)
        if entries:
            self._record(TOMBSTONE, *entries)
        if self._each and self.logging:
            self.files.sync()
        if self.closed or not self.logging or len(requests) != 1:
            return super().cancel(requests)
        gone = 0
        (request,) = requests
        for uid, table in list(self.tables.items()):
            first, last = rows_of_request(table, request)
            if last > first:
                gone += last - first
                del table[first * COLUMNS : last * COLUMNS]
                self._sorted.pop(uid, None)
                if not table:
                    del self.tables[uid]
        self.rows -= gone
        return gone

    def cut(self, node: DatasetNode, count: int) -> bool:
        if self.logging:
            known = self.known.get(node.uid)
            try:
                if known is None or not known.holds(node):
                    self._define(node, LoggedVariable(node))
                first = count // max(1, math.prod((node.shape or ())[1:]))
                record = encode_fill(
                    node.uid,
                    log_id=self.log_id,
                    sequence=self.sequence + 1,
                    meta_end=self.files.meta.end,
                    first=first,
                    epoch=self.epoch,
                )
                self.files.commit.append(record)
                if self._each:
                    self.files.sync()
            except OSError as error:
                if error.errno in FULL:
                    return False
                raise
            self.sequence += 1
            self.fills += 1
            # A later post says how long the dataset is by then, also if that is as long as before.
            self.known[node.uid].outdate()
        return super().cut(node, count)

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
        for by_uid, base, nbytes in cut_to_rounds(np.concatenate(tables), owner, self.round):
            self.closed.append(LogBatch(by_uid, self.data, base, nbytes, self.defining.units))
        self.tables = {}
        self._sorted = {}

    def replace(self, left: list[Batch]) -> None:
        super().replace(left)
        # Rows of the log are in memory, whoever has the bytes.
        self.rows += sum(weight_of(batch)[0] for batch in self.closed)
        self.rows += sum(len(table) for table in self.tables.values()) // COLUMNS

    def weight(self) -> tuple[int, int]:
        return self.rows, self.position + sum(weight_of(batch)[1] for batch in self.closed)

    def _open_batch(self, uid: int) -> Batch:
        if not self.logging:
            return super()._open_batch(uid)
        return LogBatch({}, self.data, 0, 0, self.defining.units)

    def stop_logging(self) -> None:
        """Let later posts wait in memory: the log is full and cannot be emptied now."""
        self.close_batch()
        self.logging = False

    def about_to_flush(self) -> None:
        """A new epoch; bring the log to stable storage if that was asked for at flushes.

        Raises
        ------
        LogError
            Somebody cut a file of the log, or wrote to it: what was posted cannot be flushed.
        """
        self._check_whole()
        if self.options.burst_buf_sync != "none":
            self.files.sync()
        self.defining.about_to_flush((self.epoch, self.fills), logging=self.logging)
        self.epoch += 1
        self.fills = 0

    def _check_whole(self) -> None:
        if not self.broken and self.sequence:
            self.broken = find_damage(self.files, self._begins[-1][1])
            if self.broken:
                self.files.make_safe()
                self.stop_logging()
        if self.broken and any(weight_of(batch)[0] for batch in self.closed):
            raise LogError(
                f"{self.header.path}: the log of what was posted is damaged: {self.broken}. Another process changed "
                "it, and what was posted since the last flush cannot be flushed: f.cancel() drops it, 'pnc-vol replay "
                f"--salvage FILE {os.path.dirname(self.files.base)}' replays its valid parts when the job has ended",
                field="log",
            )

    def about_to_write(self, header: bytes) -> None:
        """Say which header comes: from then on datasets are in the file under their new names."""
        self.defining.about_to_write(header, self.epoch)
        if self.options.burst_buf_sync != "none":
            # After a crash of the node, too, the log knows the header that the file has.
            self.system.fdatasync(self.files.defs.fd)

    def settled(self) -> None:
        """All that was posted is in the file, header included: begin the log anew."""
        if not self.empty:
            return
        if self.broken:
            # Later posts wait in memory; nothing of this log may be replayed any more.
            with suppress(OSError):
                for tail, end in reversed(self._begins):
                    tail.cut(end)
            self._forget()
            return
        if self.sequence or self.known:
            try:
                self._begin_anew()
            except OSError:
                # Nothing is lost: posts wait in memory until the log can be begun anew.
                self.logging = False
                return
        self.logging = True

    def _begin_anew(self) -> None:
        *others, commit = self._begins
        try:
            self._record(FLUSHED, (0, self.files.meta.end))
            if self.options.burst_buf_sync != "none":
                # A log that is cut and does not say why would pass for a damaged one after a crash of the node.
                self.system.fdatasync(self.files.commit.fd)
        except OSError:
            # No room to say so: without commit records nothing of the log counts.
            others, commit = [commit, *others[:-1]], others[-1]
        for tail, end in (*others, commit):
            if tail.end != end:
                tail.cut(end)
        self.counters[1] = 0
        self._forget()

    def _forget(self) -> None:
        self.sequence = self.entries = 0
        self.defining.forget()
        self.entry_requests, self.entry_ends = array("q"), array("q")

    def close(self, *, flushed: bool = True) -> None:
        """Close the log; it is removed if all of it is in the file and nobody wants to keep it."""
        held = bool(self.sequence) or not self.empty
        whole = flushed and not held
        super().close(flushed=flushed)
        if self._page.closed:
            return
        self.counters.release()
        self._page.close()
        folder = os.path.dirname(self.files.base)
        self.files.close(delete=whole and self.options.burst_buf_del_on_close)
        if whole:
            if not (self.options.burst_buf_del_on_close and exists(self.system, folder)):
                forget_folder(self.system, self.header.path, folder)
        elif held:
            warn_outside(
                f"{self.header.path}: what was posted and is not in the file is kept in {folder}; 'pnc-vol replay' "
                "with these two, or opening the file with recover=True, puts it there"
            )
