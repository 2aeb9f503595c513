"""The log is a queue store: posted values are appended to files on fast local storage, and a flush writes them.

Knows: rows, log files, entries, commit records. Does not know: headers, places of variables, other ranks.

Rules
-----
1. A post is one append of its values, one of its entry, and the CRCs of the open group, which are one word; only then
   does it count as posted. A process that is killed afterwards loses nothing of it. A commit record is written for a
   group of posts; with ``sync="each"`` for each.
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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from pnc_vol.append_log.private_folders import forget_folder
from pnc_vol.append_log.records import SLOT_BYTES, RecordHeader, Share
from pnc_vol.burst.batch import LogBatch, log_batches
from pnc_vol.burst.commit_log import GROUP, GROUP_BYTES, CommitLog, GroupState
from pnc_vol.burst.definition_writer import DefinitionWriter, LoggedFile, LoggedVariable
from pnc_vol.burst.definitions import encode_work
from pnc_vol.burst.encoding import DATA_MAGIC, LEAST_ENTRY, LogHeader, encode_header
from pnc_vol.burst.files import SMALL, LogFiles, note_of
from pnc_vol.burst.recent_posts import LEAST_POST, MOST_POST, MOST_VALUES, POSTS_BYTES, SplitPosts
from pnc_vol.errors import FULL, LogError
from pnc_vol.extents.model import Int64, Runs, Selection
from pnc_vol.format.numeric import Overflow
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.queue.batches import COLUMNS, Batch, Rows, make_rows, of_each
from pnc_vol.queue.stores import ROW_COST, Backlog, Capabilities, Store
from pnc_vol.settings.options import Options
from pnc_vol.system import System, exists
from pnc_vol.warn import warn_outside

__all__ = ["LogStore"]

LEAST_ROUND = 64 << 10
KEPT = 16 << 20
"""Bytes of values whose space the log keeps when it is begun anew: fresh pages take as long as the post of some KiB."""


STRETCH = 16
"""Small posts in a row from which on they go to the slot: to take them out of it costs as much as some of them."""


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
    group : int
        Entries that a commit covers at most.
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
        self.capacity = options.burst_buf_capacity or sys.maxsize
        # What ranks share is written over in place: no entry counts there without its commit.
        self.group = 1 if share is not None or self.each else GROUP
        self.broken, self._closed = "", False
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
        # Of a log with a capacity the room for small posts would be taken from a device that may be small.
        slot = SLOT_BYTES + (POSTS_BYTES if self.group > 1 and not self.options.burst_buf_capacity else 0)
        records = RecordHeader(file.identity, header.rank_id, header.num_ranks, header.path)
        self.commits = CommitLog(files, records, slot)
        if file.temporary:
            files.defs.append(encode_work(os.path.basename(file.work)))
        self._begins = tuple((tail, tail.end) for tail in (files.meta, files.data, files.defs, files.commit))
        files.map_heads(self.commits.begin, slot)
        self.commits.group.use(files.slot, files.posts)
        self.short = ShortPosts(self.backlog, files, self.commits, self.definitions)
        self.put_run = self.short.put_run  # type: ignore[method-assign]
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
        options, words = self.options, ("disable", "enable")
        return {
            "nc_burst_buf": "enable",
            "nc_burst_buf_dirname": os.path.dirname(os.path.dirname(self.files.base)),
            "nc_burst_buf_del_on_close": words[options.burst_buf_del_on_close],
            "nc_burst_buf_flush_buffer_size": str(self.round),
            "nc_burst_buf_overwrite": words[options.burst_buf_overwrite],
            "nc_burst_buf_shared_logs": words[options.burst_buf_shared_logs],
            "nc_burst_buf_sync": options.burst_buf_sync,
            "nc_burst_buf_capacity": str(options.burst_buf_capacity),
        }

    @property
    def round(self) -> int:
        """Bytes that a flush reads from the log at a time."""
        return max(LEAST_ROUND, self.options.burst_buf_flush_buffer_size or self.options.buffer_size)

    # ------------------------------------------------------------------------------------- posting

    def put(
        self,
        node: DatasetNode,
        request: int,
        values: npt.NDArray[Any],
        selection: Selection | None,
        found: Runs,
        on_overflow: Overflow,
    ) -> bool:
        uid, files, backlog = node.uid, self.files, self.backlog
        known = self.definitions.known.get(uid)
        fresh = known is None or (known.version != node.tree.version and not known.holds(node))
        if known is None or fresh:
            known = LoggedVariable(node)
        nbytes = values.size * known.itemsize
        if (backlog.rows + len(found.start)) * ROW_COST > backlog.budget or files.nbytes + nbytes > self.capacity:
            return False
        payload, commits = known.payload(values, on_overflow), self.commits
        if not self.short.interrupt():
            return False
        if commits.open >= self.group or files.data.end + nbytes > commits.group.data_begin + GROUP_BYTES:
            commits.close_group_if_possible()
        before, at = self._state(), files.data.end
        try:
            if fresh:
                self._define(node, known)
            entry = known.entry(uid, selection, found, at, nbytes)
            # What needs memory is made before the post is in the log.
            rows = make_rows(uid, request, found, at, known.itemsize).tobytes()
            files.data.append(payload)
            files.meta.append(entry)
            commits.add_entry(request, entry, payload, alone=self.group == 1)
            if self.group == 1:
                commits.close_group()
            if self.each:
                files.sync()
        except OSError as error:
            self._take_back(before)
            if error.errno in FULL:
                return False
            error.filename = error.filename or files.base
            raise
        except BaseException:
            self._take_back(before)
            raise
        self.short.allow(self.group - commits.open if self.group > 1 and not self.options.burst_buf_capacity else 0)
        backlog.post_packed(uid, rows, known.itemsize)
        return True

    def _define(self, node: DatasetNode, known: LoggedVariable) -> None:
        """Log what replay must know of a dataset."""
        self.definitions.define(node, known, self.commits.when)
        self.files.counters[0] = self.definitions.ndims

    def _state(self) -> tuple[Sequence[int], GroupState]:
        """Return where the files end, and the open group: what `_take_back` goes back to."""
        files = self.files
        return (files.commit.end, files.meta.end, files.data.end), self.commits.state()

    def _take_back(self, state: tuple[Sequence[int], GroupState]) -> None:
        """Forget a post that could not be logged whole."""
        ends, group = state
        for tail, end in zip((self.files.commit, self.files.meta, self.files.data), ends, strict=True):
            if tail.end != end:
                tail.take_back(end)
        self.commits.take_back(ends[0], group)

    def cancel(self, requests: set[int]) -> None:
        self.short.make_rows()
        # Of a log that is damaged nothing is replayed unasked.
        if not self.broken and self.commits.cancel(requests, self.files.data.end) and self.each:
            self.files.sync()

    def cut(self, node: DatasetNode, count: int) -> bool:
        known, files = self.definitions.known.get(node.uid), self.files
        self.commits.close_group_if_possible()
        if self.commits.open:
            return False
        before = self._state()
        try:
            if known is None or not known.holds(node):
                self._define(node, LoggedVariable(node))
            first = count // max(1, math.prod((node.shape or ())[1:]))
            self.commits.fill(node.uid, files.meta.end, first)
            if self.each:
                files.sync()
        except OSError as error:
            self._take_back(before)
            if error.errno in FULL:
                return False
            raise
        except BaseException:
            self._take_back(before)
            raise
        self.commits.filled()
        # A later post says how long the dataset is by then, also if that is as long as before.
        self.definitions.known[node.uid].outdate()
        return True

    # ------------------------------------------------------------------------------------- batches

    def close_batch(self) -> None:
        """Later posts go to a new batch; what is in the log is cut to rounds."""
        backlog = self.backlog
        self.short.make_rows()
        if not backlog.table:
            return
        read, units = self._read, self.definitions.units
        rows = np.array(backlog.open_rows())
        for batch in list(log_batches(rows, backlog.widths, self.round, store=self, read=read, units=units)):
            self.add(batch)
        backlog.clear_open()

    def open_batch(self) -> Batch:
        self.short.make_rows()
        return LogBatch(self, self.backlog.no_rows(), self._read, 0, 0, self.definitions.units)

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
        if not self.broken and self.commits.holds:
            self.broken = self.commits.find_damage()
            if self.broken:
                self.usable = False
                self.files.make_safe()
        if self.broken and (self.batches or (active and self.backlog.table)):
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
        """Begin the log anew, as all that was posted is in the file, header included; return whether it could be."""
        if self.broken:
            # Later posts go to memory; nothing of this log may be replayed any more.
            with suppress(OSError):
                for tail, end in reversed(self._begins):
                    tail.cut(end)
            self._forget()
            return False
        if self.commits.holds or self.definitions.known:
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
            self.commits.drop_group()
            others, commit = [commit, *others[:-1]], others[-1]
        for tail, end in (*others, commit):
            if tail.end != end:
                # Values that an earlier use left count nowhere: commits and the open group have the CRCs of theirs.
                tail.cut(end, keep=KEPT if tail is self.files.data else 0)
        self._forget()

    def _forget(self) -> None:
        self.short.recent.clear()
        self.commits.forget()
        self.definitions.forget()

    def close(self, *, flushed: bool, empty: bool) -> None:
        """Close the log; it is removed if all of it is in the file and nobody wants to keep it."""
        if self._closed:
            return
        held = self.commits.holds or not empty
        whole = flushed and not held
        folder = os.path.dirname(self.files.base)
        self.files.close(delete=whole and self.options.burst_buf_del_on_close)
        # a window keeps a descriptor for as long as it is referred to, and who has closed a file may keep its object
        self.commits.group.use(None, None)
        if whole and not (self.options.burst_buf_del_on_close and exists(self.system, folder)):
            forget_folder(self.system, note_of(self.header.path), folder)
        self._closed = True
        if held:
            kept = self.definitions.file.kept
            advice = "'pnc-vol replay' with these two, or opening the file with recover=True, puts it there"
            if not kept:
                advice = f"'pnc-vol replay --any-file FILE {folder}' puts it into another file"
            where = f"what was posted and is not in the file is kept in {folder}"
            warn_outside(f"{kept or self.header.path}: {where}; {advice}")


# ------------------------------------------------------------------------------------- the short path


class ShortPosts:
    """The path of most posts: one row of numbers, or a run of a dataset with one axis.

    A post here is what `LogStore.put` would make of it; what is new, does not fit, or fails, is left to that, with the
    ends of the files where they were. Small posts of which several come in a row go to the slot, from where all that
    are there go to the logs together (`recent_posts`): one store and one CRC each. Rows are made of them when they
    leave it. All others go to the logs, one by one, while the windows have room.

    Parameters
    ----------
    backlog : Backlog
    files : LogFiles
    commits : CommitLog
    definitions : DefinitionWriter

    Attributes
    ----------
    recent : dict of int to LoggedVariable
        Datasets with posts in the slot, or such whose posts may go there: they have rows in the open batch.
    in_a_row : int, small posts since another one.
    """

    def __init__(self, backlog: Backlog, files: LogFiles, commits: CommitLog, definitions: DefinitionWriter) -> None:
        self.backlog, self.files, self.commits, self.known = backlog, files, commits, definitions.known
        self.data, self.meta, self.posts = files.data, files.meta, commits.group.posts
        self.recent: dict[int, LoggedVariable] = {}
        self.in_a_row = 0
        commits.post_rows = self._post_rows

    def put_run(self, node: DatasetNode, request: int, values: Any, start: int, number: int = 1, step: int = 0) -> bool:
        """See `Store.put_run`."""
        if number > 1 or not node.shape:
            # the entry of a dataset without axes has no dimension: `put` writes it
            return False
        known = self.recent.get(node.uid)
        if known is None or (known.version != node.tree.version and not known.holds(node)):
            return self._put_in_logs(node, request, values, start)
        posts, nbytes = self.posts, values.nbytes
        if not posts.limit:
            self.in_a_row += 1
            if nbytes > MOST_VALUES or self.in_a_row < STRETCH:
                return self._put_in_logs(node, request, values, start)
        pack, row = known.posts[nbytes]
        first, within = divmod(start, known.row_size)
        if pack is None or within:
            return self._put_in_logs(node, request, values, start)
        post = pack(posts.data_end, nbytes, first, row, values.tobytes())
        begin = posts.end
        end = begin + len(post)
        if end > posts.limit:
            return self._begin(node, request, values, start)
        posts.room[begin:end] = post
        posts.crc = posts.slot[0] = crc32(post, posts.crc)
        # No call between the store of the CRC and the last line: an interrupt comes before all of them or behind.
        posts.end = posts.ends[posts.count] = end
        posts.data_end += nbytes
        posts.count += 1
        self.commits.requests.append(request)
        return True

    def _begin(self, node: DatasetNode, request: int, values: Any, start: int) -> bool:
        """Do as `put_run` does, where the slot is full, or the open group is in the logs."""
        backlog, posts = self.backlog, self.posts
        try:
            self.commits.close_group()
            limit = min(len(posts.room), (backlog.budget // ROW_COST - backlog.rows) * LEAST_POST)
            if limit < MOST_POST:
                return False
            self.commits.open_posts(request, limit)
        except OSError:
            # There is no room; `put` tells.
            return False
        return self.put_run(node, request, values, start)

    def _put_in_logs(self, node: DatasetNode, request: int, values: Any, start: int) -> bool:
        backlog, uid = self.backlog, node.uid
        known = self.known.get(uid)
        if known is None or (known.version != node.tree.version and not known.holds(node)):
            return False
        data, meta, commits, group = self.data, self.meta, self.commits, self.commits.group
        at, meta_at, count, nbytes = data.end, meta.end, values.size, values.nbytes
        data_end, meta_end = at + nbytes, meta_at + known.entry_size
        if data_end > group.quick_data or meta_end > group.quick_meta or nbytes >= SMALL or not known.plain:
            return False
        if inner := known.inner:
            first, within = divmod(start, inner)
            if within or count != inner:
                return False
            entry = known.pack(at, nbytes, first, known.posts.row)
        else:
            entry = known.pack(at, nbytes, start, count)
        # What is large is copied once only.
        raw = values if nbytes > MOST_VALUES and values.flags.c_contiguous else values.tobytes()
        data.window[at - data.begin : data_end - data.begin] = raw
        meta.window[meta_at - meta.begin : meta_end - meta.begin] = entry
        crc, data_crc = crc32(entry, group.meta_crc), crc32(raw, group.data_crc)
        # No call from here to the number of entries, see `put_run`.
        group.meta_crc, group.data_crc = crc, data_crc
        group.slot[0] = crc ^ data_crc
        data.end, meta.end = data_end, meta_end
        commits.requests.append(request)
        self.files.counters[1] = len(commits.requests)
        backlog.post(uid, request, start, count, at, known.itemsize)
        if nbytes <= MOST_VALUES:
            self.recent[uid] = known
        else:
            self.in_a_row = 0
        return True

    def allow(self, entries: int) -> None:
        """Let posts fill the open group in the logs, up to so many, as far as there are windows and memory."""
        backlog, group = self.backlog, self.commits.group
        entries = min(entries, backlog.budget // ROW_COST - backlog.rows)
        group.quick_meta = min(self.meta.limit, self.meta.end + entries * LEAST_ENTRY) if entries > 0 else 0
        group.quick_data = min(self.data.limit, group.data_begin + GROUP_BYTES)

    # ------------------------------------------------------------------------- leaving the slot

    def _post_rows(self, posts: SplitPosts, requests: Int64) -> Callable[[], None]:
        """Posts are about to move from the slot to the logs; returns what takes their rows back."""
        backlog = self.backlog
        rows = _rows_of(posts, requests, self.recent)
        end, number = len(backlog.table), backlog.rows

        def undo() -> None:
            del backlog.table[end:]
            backlog.rows = number

        try:
            backlog.table.frombytes(rows.tobytes())
            backlog.rows += len(rows)
        except BaseException:
            undo()
            raise
        return undo

    def interrupt(self) -> bool:
        """Empty the slot, as another post comes; return False if that cannot be done now."""
        self.in_a_row = 0
        if self.posts.limit:
            self.commits.close_group_if_possible()
        return not self.posts.limit

    def make_rows(self) -> None:
        """Empty the slot, since somebody looks at the rows; later posts go to the logs first.

        Raises
        ------
        OSError
            What is in the slot could not be moved to the logs.
        """
        if self.posts.limit:
            self.commits.close_group()
        self.recent.clear()


def _rows_of(posts: SplitPosts, requests: Int64, known: Mapping[int, LoggedVariable]) -> Rows:
    """Return posts that were in the slot as rows.

    Parameters
    ----------
    posts : SplitPosts
    requests : int64[n]
    known : mapping of uid to LoggedVariable, of all that were posted to, and perhaps of others.
    """
    owner, first, data_off, nbytes = posts.fields.T
    rows = np.empty((len(owner), COLUMNS), np.int64)
    rows[:, 0], rows[:, 3], rows[:, 4] = requests, data_off, owner
    rows[:, 1] = first * of_each({uid: one.row_size for uid, one in known.items()}, owner)
    rows[:, 2] = nbytes // of_each({uid: one.itemsize for uid, one in known.items()}, owner)
    return rows
