"""The log as a queue store: posted values are appended to files on fast local storage, and go to the file at a flush.

Knows: rows, log files, entries, commit records. Does not know: headers, places of variables, other ranks.

Rules
-----
1. A post is one append of its values, one of its entry, one commit record; only then does it count as posted. A
   process that is killed afterwards loses nothing of it.
2. Values are logged in the variable's type and the machine's byte order, so the common post copies and nothing else.
3. The log is begun anew only when all that it holds is in the file, header included (`after_flush`).
4. A log that is full, or whose device is, refuses a post: the session drains, in a single process with a whole flush.
   Where that does not empty the log, the queue goes on in memory, behind what the log holds.
5. A dataset is defined in the log before the first entry that means it, and again after each flush: a log explains
   itself, and holds nothing that is in the file.
"""

from __future__ import annotations

import math
import os
import sys
from contextlib import suppress
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from pnc_vol.append_log.private_folders import forget_folder
from pnc_vol.append_log.records import CRC, RECORD_BODY, RECORD_BYTES
from pnc_vol.append_log.shared_blocks import Share
from pnc_vol.append_log.tail import FULL, LARGE
from pnc_vol.errors import LogError
from pnc_vol.extents.model import Runs
from pnc_vol.extents.selection import Selection
from pnc_vol.format.convert import Overflow
from pnc_vol.log.batch import LogBatch, log_batches
from pnc_vol.log.commit_log import COMMIT, CommitLog
from pnc_vol.log.definition_writer import DefinitionWriter, LoggedFile
from pnc_vol.log.definitions import encode_work
from pnc_vol.log.encoding import DATA_MAGIC, VARA, LogHeader, encode_header
from pnc_vol.log.files import LogFiles
from pnc_vol.log.folders import note_of
from pnc_vol.log.integrity import find_damage
from pnc_vol.log.logged_variables import LoggedVariable
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.options import Options
from pnc_vol.queue.backlog import ROW_COST, Backlog
from pnc_vol.queue.batches import Batch
from pnc_vol.queue.rows import pack_row
from pnc_vol.queue.stores import Capabilities, Store
from pnc_vol.system import System, exists
from pnc_vol.warn import warn_outside

__all__ = ["LogStore"]

LEAST_ROUND = 64 << 10
_body = RECORD_BODY.pack
_crc = CRC.pack


class LogStore(Store):
    """Posted bytes on disk.

    Parameters
    ----------
    backlog : Backlog
    options : Options
    base : str, path of the log files without suffix.
    path : str, the file that the log is for.
    file : LoggedFile, the same as it is now.
    rank, size : int, of the job.
    share : Share, optional, how ranks of the node share the files.

    Attributes
    ----------
    round : int
        Bytes that a flush reads at once.
    capacity : int
        Bytes that the files may take.
    fast : bool
        Whether `put_run` may be used: nothing is to be done at each post but appending.
    broken : str
        What another process did to the log; "" if nothing is known.
    """

    capabilities = Capabilities(survives_kill=True, logged=True, user_arrays=False)

    def __init__(
        self,
        backlog: Backlog,
        options: Options,
        *,
        base: str,
        path: str,
        file: LoggedFile,
        rank: int,
        size: int,
        share: Share | None = None,
    ) -> None:
        super().__init__(backlog)
        self.options = options
        self.round = max(LEAST_ROUND, options.burst_buf_flush_buffer_size or options.buffer_size)
        self.capacity = options.burst_buf_capacity or sys.maxsize
        self.fast = options.burst_buf_sync != "each" and not options.burst_buf_capacity
        self.broken = ""
        self.header = LogHeader(path, os.uname().nodename, size, rank)
        self.files = LogFiles(options.system, base, share)
        self.definitions = DefinitionWriter(options.system, self.files.defs, file)
        try:
            self._begin(file)
        except BaseException:
            self.files.close(delete=True, alone=True)
            raise

    def _begin(self, file: LoggedFile) -> None:
        files, header = self.files, self.header
        files.meta.append(encode_header(header))
        files.data.append(DATA_MAGIC)
        self.commits = CommitLog(files.commit.append, file.identity, header.rank_id, header.num_ranks, header.path)
        if file.temporary:
            files.defs.append(encode_work(os.path.basename(file.work)))
        self._begins = tuple((tail, tail.end) for tail in (files.meta, files.data, files.defs, files.commit))
        files.map_counters()
        if self.options.burst_buf_sync != "none":
            files.sync()
            files.sync_names()

    @property
    def system(self) -> System:
        """The system that the files are on."""
        return self.options.system

    @property
    def each(self) -> bool:
        """Whether each post is brought to stable storage."""
        return self.options.burst_buf_sync == "each"

    def hints(self) -> dict[str, str]:
        options, said = self.options, ("disable", "enable")
        return {
            "nc_burst_buf": "enable",
            "nc_burst_buf_dirname": os.path.dirname(os.path.dirname(self.files.base)),
            "nc_burst_buf_del_on_close": said[options.burst_buf_del_on_close],
            "nc_burst_buf_flush_buffer_size": str(self.round),
            "nc_burst_buf_overwrite": said[options.burst_buf_overwrite],
            "nc_burst_buf_shared_logs": said[options.burst_buf_shared_logs],
            "nc_burst_buf_sync": options.burst_buf_sync,
            "nc_burst_buf_capacity": str(options.burst_buf_capacity),
        }

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
        uid, files, backlog = node.uid, self.files, self.backlog
        known = self.definitions.known.get(uid)
        fresh = known is None or (known.version != node.tree.version and not known.holds(node))
        if known is None or fresh:
            known = LoggedVariable(node)
        nbytes = values.size * known.itemsize
        count = 1 if one is not None else len(found.start)  # type: ignore[union-attr]
        if (backlog.rows + count) * ROW_COST > backlog.budget or files.nbytes + nbytes > self.capacity:
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
            files.counters[1] = self.commits.entries + 1
            end = files.meta.end
            self.commits.commit(request, end, files.data.end, crc32(entry), crc32(payload))
            if self.each:
                files.sync()
        except OSError as error:
            self._take_back(*before)
            if error.errno in FULL:
                return False
            error.filename = error.filename or files.base
            raise
        self.commits.added(request, end)
        if one is not None:
            backlog.post(uid, request, one[0], one[1], at, known.itemsize)
        else:
            assert found is not None
            backlog.post_runs(uid, request, found, at, known.itemsize)
        return True

    def put_run(self, node: DatasetNode, request: int, values: Any, start: int) -> bool:
        # As `put`, in the same order, for one run of whole rows of numbers: half of its time, which most posts are
        # worth. What does not fit, is new, or fails, is left to `put`, with the ends of the files where they were.
        uid = node.uid
        known = self.definitions.known.get(uid)
        if known is None or not known.plain or (known.version != node.tree.version and not known.holds(node)):
            return False
        count, inner, backlog = values.size, known.inner, self.backlog
        first, within = divmod(start, inner)
        number, more = (1, 0) if count == inner else divmod(count, inner)
        if within or more or not self.fast or (backlog.rows + 1) * ROW_COST > backlog.budget:
            return False
        files, commits = self.files, self.commits
        data, meta, commit = files.data, files.meta, files.commit
        at, meta_at, commit_at = data.end, meta.end, commit.end
        nbytes, size = values.nbytes, known.entry_size
        data_end, meta_end, commit_end = at + nbytes, meta_at + size, commit_at + RECORD_BYTES
        if meta_end > meta.limit or commit_end > commit.limit:
            return False
        try:
            if nbytes >= LARGE:
                if data.share is not None or data.system.pwrite(data.fd, values, at) != nbytes:
                    return False
                crc = crc32(values)
            elif data_end > data.limit:
                return False
            else:
                # As bytes, they are copied and summed up in half of the time that it takes to ask an array for a view.
                raw = values.tobytes()
                data.window[at - data.begin : data_end - data.begin] = raw
                crc = crc32(raw)
        except (OSError, ValueError):
            # Values that do not lie one after another among them.
            return False
        rest, sequence = known.rest, commits.sequence + 1
        if rest:
            axes = len(rest) + 1
            entry = known.pack(size, VARA, known.itype, uid, axes, at, nbytes, first, *known.origin, number, *rest)
        else:
            entry = known.pack(size, VARA, known.itype, uid, 1, at, nbytes, first, number)
        meta.window[meta_at - meta.begin : meta_end - meta.begin] = entry
        commits.entries = files.counters[1] = commits.entries + 1
        body = _body(RECORD_BYTES, COMMIT, crc32(entry), sequence, request, commits.epoch, meta_end, data_end, 1, crc)
        commit.window[commit_at - commit.begin : commit_end - commit.begin] = body + _crc(crc32(body, commits.seed))
        commits.sequence, data.end, meta.end, commit.end = sequence, data_end, meta_end, commit_end
        commits.requests.append(request)
        commits.ends.append(meta_end)
        backlog.post_packed(uid, pack_row(request, start, count, at, known.itemsize), 1)
        return True

    def _define(self, node: DatasetNode, known: LoggedVariable) -> None:
        """Log what replay must know of a dataset."""
        self.definitions.define(node, known, self.commits.when)
        self.files.counters[0] = self.definitions.ndims

    def _take_back(self, meta: int, data: int, commit: int) -> None:
        """Forget a post that could not be logged whole."""
        files = self.files
        for tail, end in ((files.commit, commit), (files.meta, meta), (files.data, data)):
            if tail.end != end:
                tail.take_back(end)
        self.commits.take_back(commit)
        files.counters[1] = self.commits.entries

    def cancel(self, requests: set[int]) -> None:
        if self.commits.cancel(requests, self.files.data.end) and self.each:
            self.files.sync()

    def cut(self, node: DatasetNode, count: int) -> bool:
        known, files = self.definitions.known.get(node.uid), self.files
        before = (files.meta.end, files.data.end, files.commit.end)
        try:
            if known is None or not known.holds(node):
                self._define(node, LoggedVariable(node))
            first = count // max(1, math.prod((node.shape or ())[1:]))
            self.commits.fill(node.uid, files.meta.end, first)
            if self.each:
                files.sync()
        except OSError as error:
            self._take_back(*before)
            if error.errno in FULL:
                return False
            raise
        self.commits.filled()
        # A later post says how long the dataset is by then, also if that is as long as before.
        self.definitions.known[node.uid].outdate()
        return True

    # ------------------------------------------------------------------------------------- batches

    def close_batch(self) -> None:
        """Later posts go to a new batch; what is in the log is cut to rounds."""
        backlog = self.backlog
        uids = list(backlog.tables)
        if not uids:
            return
        tables = [backlog.open_rows(uid) for uid in uids]
        owner = np.repeat(np.array(uids, np.int64), [len(table) for table in tables])
        units = self.definitions.units
        rows = np.concatenate(tables)
        for batch in list(log_batches(rows, owner, self.round, store=self, read=self._read, units=units)):
            self.add(batch)
        backlog.clear_tables()

    def open_batch(self, uid: int) -> Batch:
        return LogBatch(self, {}, self._read, 0, 0, self.definitions.units)

    def _read(self, target: npt.NDArray[np.uint8], offset: int) -> None:
        self.files.read(".data", target, offset)

    # ------------------------------------------------------------------------- the course of a flush

    def about_to_flush(self, *, active: bool) -> None:
        """A new epoch; bring the log to stable storage if that was asked for at flushes.

        Raises
        ------
        LogError
            Somebody cut a file of the log, or wrote to it: what was posted cannot be flushed.
        """
        self._check_whole(active=active)
        if self.options.burst_buf_sync != "none":
            self.files.sync()
        self.definitions.about_to_flush(self.commits.when, logging=active and self.usable)
        self.commits.next_epoch()

    def _check_whole(self, *, active: bool) -> None:
        if not self.broken and self.commits.sequence:
            self.broken = find_damage(self.files, self.commits.begin)
            if self.broken:
                self.usable = False
                self.files.make_safe()
        if self.broken and (self.batches or (active and self.backlog.tables)):
            raise LogError(
                f"{self.header.path}: the log of what was posted is damaged: {self.broken}. Another process changed "
                "it, and what was posted since the last flush cannot be flushed: f.cancel() drops it, 'pnc-vol replay "
                f"--salvage FILE {os.path.dirname(self.files.base)}' replays its valid parts when the job has ended",
                field="log",
            )

    def about_to_write(self, header: bytes) -> None:
        """Say which header comes: from then on datasets are in the file under their new names."""
        self.definitions.about_to_write(header, self.commits.epoch)
        if self.options.burst_buf_sync != "none":
            # After a crash of the node, too, the log knows the header that the file has.
            self.system.fdatasync(self.files.defs.fd)

    def after_flush(self) -> bool:
        """All that was posted is in the file, header included: begin the log anew."""
        if self.broken:
            # Later posts go to memory; nothing of this log may be replayed any more.
            with suppress(OSError):
                for tail, end in reversed(self._begins):
                    tail.cut(end)
            self._forget()
            return False
        if self.commits.sequence or self.definitions.known:
            try:
                self._begin_anew()
            except OSError:
                # Nothing is lost: posts go to memory until the log can be begun anew.
                return False
        return True

    def _begin_anew(self) -> None:
        *others, commit = self._begins
        try:
            self.commits.flushed(self.files.meta.end, self.files.data.end)
            if self.options.burst_buf_sync != "none":
                # A log that is cut and does not say why would pass for a damaged one after a crash of the node.
                self.system.fdatasync(self.files.commit.fd)
        except OSError:
            # No room to say so: without commit records nothing of the log counts.
            others, commit = [commit, *others[:-1]], others[-1]
        for tail, end in (*others, commit):
            if tail.end != end:
                tail.cut(end)
        self.files.counters[1] = 0
        self._forget()

    def _forget(self) -> None:
        self.commits.forget()
        self.definitions.forget()

    def close(self, *, flushed: bool, empty: bool) -> None:
        """Close the log; it is removed if all of it is in the file and nobody wants to keep it."""
        if self.files.closed:
            return
        held = bool(self.commits.sequence) or not empty
        whole = flushed and not held
        folder = os.path.dirname(self.files.base)
        self.files.close(delete=whole and self.options.burst_buf_del_on_close)
        if whole:
            if not (self.options.burst_buf_del_on_close and exists(self.system, folder)):
                forget_folder(self.system, note_of(self.header.path), folder)
        elif held:
            warn_outside(
                f"{self.header.path}: what was posted and is not in the file is kept in {folder}; 'pnc-vol replay' "
                "with these two, or opening the file with recover=True, puts it there"
            )
