"""This module decides where a write of a process goes, how it gets to the global file, and what follows a failure.

Knows: the cache file and its log, the queues and threads, the global file, locks; of the driver below that it writes.
Does not know: reads, the verbs of a driver.

A write goes to the cache, or through to the global file, if the cache is full, in trouble, or off. The header of an
epoch goes to the log (`drivers.holding`).

Rules
-----
1. One write at a time: the log, the cache file and the queues change together.
2. If the cache cannot take a write, the global file does, in order: what waits for these bytes is forgotten when, and
   not before, they are in the file.
3. After trouble the log goes on as long as it can tell of everything. It is ended when all that waits or is held is in
   the global file. Until then a log that lacks something tells of the last epoch that ended before: a flush does not
   return before that has changed (see `Epochs.stop_holding`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from threading import RLock
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.append_log.records import RecordHeader
from pnc_vol.cache.extent_log import PendingHeader
from pnc_vol.cache.files import GlobalFile
from pnc_vol.cache.hints import HINTED, CacheHints
from pnc_vol.cache.local_store import JobCaches, LocalStore
from pnc_vol.cache.locks import RangeLocks
from pnc_vol.cache.overlay import HeldByOthers, NodePeer, NodePeers
from pnc_vol.cache.sync_threads import Lost, SyncThreads
from pnc_vol.cache.watch import Watch
from pnc_vol.drivers.base import Driver, Memory, OpenContext
from pnc_vol.drivers.holding import NOWHERE, Holder, Phase, Unwritten
from pnc_vol.extents.merge import Ranges, ranges_of
from pnc_vol.extents.model import Extents, one_extent
from pnc_vol.ranks.comm import Comm
from pnc_vol.warn import warn_once, warn_outside

__all__ = ["HeldBytes"]

_SMALL = 4
"""A full cache is emptied at once if not more than this part of it is needed still."""


class HeldBytes(Holder):
    """The cache of one process.

    Parameters
    ----------
    below : Driver, over the global file.
    hints : CacheHints
    context : OpenContext, what `inner` was opened with.
    job : JobCaches

    Attributes
    ----------
    reason : str, why the cache is in trouble; "" if it is not.
    telling : bool, the log tells of everything.
    off : bool, nothing new is held.
    store : LocalStore or None
    elsewhere : HeldByOthers
    locks : RangeLocks or None
    queue : SyncThreads
    watch : Watch
    closed : bool, nobody uses it any more.
    """

    below: Driver

    def __init__(self, below: Driver, hints: CacheHints, context: OpenContext, job: JobCaches) -> None:
        self.below, self._hints, self._job = below, hints, job
        self.reason, self.off = "", hints.mode == "disable"
        # nothing is open any more
        self.closed = self._left = False
        self.elsewhere = HeldByOthers()
        self.telling = True
        self.writing = RLock()
        self.watch = Watch()
        self.store: LocalStore | None = None
        self.locks: RangeLocks | None = None
        self.file = _global_file(below, hints, context, self.watch)
        try:
            if hints.mode == "coherent" and below.path is not None:
                limit = context.comm.timeout if isinstance(context.comm, Comm) else None
                self.locks = RangeLocks(context.system, below.path, self.watch, writable=context.writable, limit=limit)
            if context.writable and not self.off:
                self._open_store(context, job)
        except BaseException:
            self.close_files(keep=False)
            raise
        self.queue = SyncThreads(
            self._carry,
            self._idle,
            threads=hints.threads if self.file.has_descriptor else 1,
            immediate=hints.flush == "flush_immediate",
        )

    def _open_store(self, context: OpenContext, job: JobCaches) -> None:
        """Make the cache file and its log; if that fails there is trouble from the beginning."""
        path, ranks = self.below.path, job.ranks
        inode = 0 if path is None else context.system.stat(path).st_ino
        identity = b"inode\0\0\0" + (inode & (2**64 - 1)).to_bytes(8, "little")
        header = RecordHeader(identity, job.rank, ranks, os.path.abspath(context.name or path or ""))
        try:
            self.store = LocalStore(context.system, job, header)
        except OSError as error:
            self.reason = f"{error.strerror or error} ({self._hints.path})"
            return
        if ranks > 1:
            stems = [
                os.path.join(job.folder(header.path, peer), str(peer)) for peer in job.directories if peer != job.rank
            ]
            self.elsewhere.peers = NodePeers([NodePeer(context.system, stem) for stem in stems])

    # ---------------------------------------------------------------------------------------------- writes

    def write(self, extents: Extents, memory: Memory) -> None:
        """Take a write.

        Raises
        ------
        OSError
            Neither the cache nor the global file could take it.
        """
        ranges = ranges_of(extents.offset, extents.length)
        if not ranges.start.size:
            return
        with self.writing:
            if self.store is None or self.reason or not self._has_room(self.store, ranges):
                self._through(extents, memory, ranges)
            else:
                self._cache(extents, memory, ranges)
            if self.elsewhere.peers is not None:
                self.elsewhere.wrote(ranges)

    def _cache(self, extents: Extents, memory: Memory, ranges: Ranges) -> None:
        assert self.store is not None
        with self._locked(ranges):
            try:
                with self.watch.phase("copy to cache", extents.nbytes):
                    self.store.write(extents, memory, self.queue.epoch)
            except OSError as error:
                self._trouble(error)
            else:
                self.queue.add(ranges)
                return
        self._through(extents, memory, ranges)

    def _locked(self, ranges: Ranges) -> AbstractContextManager[None]:
        """Hold locks on ranges in coherent mode until they are queued, or in the file."""
        return nullcontext() if self.locks is None else self.locks.writing(ranges, self.queue.submit, self.free)

    def free(self, ranges: Ranges) -> Ranges:
        """Return those of some ranges for which nothing waits."""
        return self.queue.done_with(ranges, -1)

    def _has_room(self, store: LocalStore, ranges: Ranges) -> bool:
        """Return whether the cache may take these; where little of what it has is needed still, room is made first."""
        bound, capacity, queue = self._hints.in_flight, self._hints.capacity, self.queue
        if bound and queue.weight + ranges.nbytes > bound:
            return False

        def full() -> bool:
            return bool(capacity) and store.file.allocated() + ranges.nbytes > capacity

        if self._hints.flush == "flush_none":
            return not full()
        if store.crowded(queue.waiting) or (full() and _SMALL * queue.nbytes < capacity):
            with self.watch.phase("waiting"):
                queue.settle()
            self._idle()
        return not full()

    def _through(self, extents: Extents, memory: Memory, ranges: Ranges) -> None:
        """Write to the global file, in the place of what waits for these bytes."""

        def act() -> None:
            self.below.write(extents, memory)
            self.watch.wrote_through(extents.nbytes)
            self._record(lambda store: store.through(ranges, self.queue.epoch))

        with self._locked(ranges):
            self.queue.forget(ranges, act=act)
        self._end_log()

    def cut(self, nbytes: int) -> None:
        """The global file is about to be cut, or made longer.

        Raises
        ------
        OSError
        """
        self.queue.cut(nbytes)
        self.elsewhere.cut(nbytes)
        if self.locks is not None:
            # Nobody carries these bytes any more, so nobody else would give their locks back.
            self.locks.unlock(Ranges(np.array([nbytes]), np.array([1 << 62])), lambda all_of: all_of)
        self._record(lambda store: store.cut(nbytes, self.queue.epoch))

    def end_epoch(self) -> None:
        """The epoch ends."""
        with self.writing:
            self.elsewhere.end_epoch()
            ended, synced = self.queue.end_epoch(), self.queue.synced_epoch()
            self._record(lambda store: store.ended(ended, synced))
            self._end_log()

    # ------------------------------------------------------------------------------------- what `Holder` asks

    @property
    def sees_node(self) -> bool:
        return self._job.ranks == 1 if self.elsewhere.peers is None else self.elsewhere.peers.seen

    def hold(self, offset: int, header: bytes, reach: int) -> None:
        data = np.frombuffer(header, np.uint8)
        with self.writing:
            self._record(
                lambda store: store.hold(PendingHeader(self.queue.epoch, one_extent(offset, data.nbytes), data, reach))
            )

    def release(self, epoch: int) -> None:
        self.elsewhere.release(epoch)
        with self.writing:
            if self.store is not None and self.store.held and self.store.held[0].epoch <= epoch:
                self._record(lambda store: store.released(epoch))
                # last: what an interruption leaves is recorded by the next call
                self.store.held = [held for held in self.store.held if held.epoch > epoch]
            self._end_log()

    def synced_epoch(self) -> int:
        return self.queue.synced_epoch()

    def unsynced(self) -> Extents:
        return self.queue.unsynced().extents

    def drain(self, *, stop: str = "") -> None:
        # The files stay until the close: a recovery that found the logs of some ranks would miss the others.
        with self.writing if stop else nullcontext():
            first, self.off = stop and not self.off, self.off or bool(stop)
            self.reason = self.reason or stop
            lost = self._bring()
            if stop and not lost:
                self._end_log()
        if first and not self._job.rank:
            warn_outside(
                f"{self.file.name}: the cache (e10_cache) is off from here, and writes go to the file itself: {stop}"
            )
        if lost:
            raise self.error_of(lost[0])

    def failures(self) -> list[Unwritten]:
        found = []
        for lost in self.queue.lost():
            start, end = (lost.ranges.start[0], lost.ranges.end[-1]) if lost.ranges.start.size else (0, 0)
            found.append(Unwritten(int(start), int(end - start), self.error_of(lost)))
        return found

    def trouble(self) -> str:
        return self.reason

    def note_elsewhere(self, reason: str, where: npt.NDArray[np.int64] = NOWHERE) -> None:
        self.elsewhere.note(self.queue.ended, reason, Ranges(*where.T.copy()))

    def hints(self) -> dict[str, str]:
        return dict(HINTED.when_off) if self.off else self._hints.in_force()

    def observe(self, note: Callable[[Phase], None]) -> None:
        self.watch.observe(note)

    def leave(self) -> None:
        # Ctrl-C may end it anywhere: called again, it does what is left
        if self._left:
            return
        error: OSError | None = None
        named, store = self.file.has_name(), self.store
        if not self.closed and named and (self._hints.flush != "flush_none" or self.off):
            lost = self._bring()
            error = self.error_of(lost[0], closing=True) if lost else None
        self.closed = True
        self.queue.stop()
        left = named and self.waits()
        if left and error is None and store is not None:
            warn_outside(
                f"{self.file.name}: data stay in the cache file {store.file.path} "
                "(e10_cache_flush_flag=flush_none, or a flush that was not completed on all ranks); "
                "'pnc-vol replay' brings them to the file"
            )
        try:
            self.close_files(keep=left or not (self._hints.discard or self.off), done=not left)
        except OSError as caught:
            error = error or caught
        self._left = True
        if error is not None:
            raise error

    # --------------------------------------------------------------------------------------------- trouble

    def _record(self, note: Any) -> None:
        """Note something in the log; if that fails there is trouble."""
        if self.store is not None and self.telling:
            try:
                note(self.store)
            except OSError as error:
                self.telling = False
                self._trouble(error)

    def _trouble(self, error: OSError) -> None:
        where = self._hints.path if self.store is None else self.store.file.path
        self.reason = self.reason or f"{error.strerror or error} ({where})"

    def _end_log(self) -> None:
        """Write what waits to the file after trouble, and end the log with it, unless headers are held."""
        if not self.reason or self.store is None or self.queue.drain() or self.store.held:
            return
        self.telling = False
        try:
            self.store.log.finish()
        except OSError as error:
            warn_once(
                self.store.file.path,
                f"the log of this cache cannot be ended ({error.strerror}). Remove the cache file and its log if this "
                "job is killed: a replay would put older bytes over those in the file",
            )

    def waits(self) -> bool:
        """Return whether something that was flushed, or may still be flushed, is not in the global file."""
        ended = self.store is not None and bool(self.store.held) and self.store.held[0].epoch <= self.queue.ended
        return ended or self.queue.nbytes > 0

    @property
    def reach(self) -> int:
        """Bytes that the global file has at least when the headers that are held are in it."""
        return max((held.reach for held in self.store.held), default=0) if self.store is not None else 0

    def _bring(self) -> list[Lost]:
        """Bring what waits to the global file; what could not be brought."""
        with self.watch.phase("non-hidden sync"):
            return self.queue.drain()

    def error_of(self, lost: Lost, *, closing: bool = False) -> OSError:
        """Return the error of a thread with all that helps; `closing`: nothing tries again."""
        ranges, error = lost
        assert self.store is not None
        where = f"bytes {ranges.start[0]} to {ranges.end[-1]}" if ranges.start.size else "some bytes"
        again = "" if closing else "the next flush tries again, or after the close "
        text = (
            f"{where} could not be synchronised: {error.strerror or error}; the data stay in the cache file "
            f"{self.store.file.path}, and {again}'pnc-vol replay' brings them to the file"
        )
        made = type(error)(error.errno or errno.EIO, text, self.below.path)
        made.__cause__ = error
        return made

    # -------------------------------------------------------------------------------------------- threads

    def _carry(self, ranges: Ranges, thread: int) -> None:
        assert self.store is not None
        self.file.carry(self.store.file, ranges, thread)
        if self.locks is not None:
            self.locks.unlock(ranges, lambda some: self.queue.done_with(some, thread))

    def _idle(self) -> None:
        """All data are in the global file: give space and locks back, unless the program writes again already."""
        if not self.writing.acquire(blocking=False):
            return
        try:
            if self.closed or self.store is None or self.reason:
                return
            with self.queue.quiet() as quiet:
                if quiet:
                    with suppress(OSError):
                        queue = self.queue
                        self.store.emptied(queue.epoch, queue.ended, discard=self._hints.discard)
                    if self.locks is not None:
                        self.locks.unlock_all()
        finally:
            self.writing.release()

    # ---------------------------------------------------------------------------------------------- the end

    def close_files(self, *, keep: bool, done: bool = False) -> None:
        """Close all files; the cache file and its log are removed unless they are to be kept.

        done : bool, all data are in the global file: a log that is kept tells of nothing any more. Otherwise it would
            be carried again, over all that was written to the file since.

        Raises
        ------
        OSError
            From the descriptor of the global file.
        """
        self.closed = True
        if self.store is not None:
            if keep and done:
                with suppress(OSError):
                    self.store.log.finish()
            self.store.close(keep=keep)
        if self.locks is not None:
            self.locks.close()
        self.file.close()

    def forget(self) -> None:
        """Close what a forked child got of this."""
        self.closed = True
        if self.store is not None:
            self.store.forget()
        self.file.forget()


def _global_file(inner: Driver, hints: CacheHints, context: OpenContext, watch: Watch) -> GlobalFile:
    fd, lent = -1, context.fd >= 0
    if context.writable and inner.capabilities.keeps_file and inner.path is not None:
        fd = context.fd if lent else context.system.open(inner.path, os.O_RDWR)
    elif context.writable and inner.capabilities.collective:
        raise ValueError(f"cache | {inner.describe()}: a collective driver without a file cannot be written by threads")
    name = context.name or inner.path
    return GlobalFile(context.system, inner, fd, lent=lent, copy_size=hints.copy_size, watch=watch, name=name)
