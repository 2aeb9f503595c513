"""This module decides where a write of a process goes, how it gets to the global file, and what follows a failure.

Knows: the cache file and its log, the queues and threads, the global file, locks; of the driver below that it writes.
Does not know: reads, the rest of the driver protocol.

A write goes to the cache; to what is held for `release`; or through to the global file, if the cache is full, in
trouble, or off.

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
from contextlib import AbstractContextManager, nullcontext, suppress
from threading import RLock
from typing import Any

import numpy as np

from pnc_vol.cache.extent_log import Subject, gathered
from pnc_vol.cache.files import GlobalFile
from pnc_vol.cache.hints import CacheHints
from pnc_vol.cache.local_store import JobCaches, LocalStore
from pnc_vol.cache.locks import RangeLocks
from pnc_vol.cache.overlay import NodePeer, NodePeers
from pnc_vol.cache.queues import Lost, Pending, PendingHeader
from pnc_vol.cache.sync_threads import SyncThreads
from pnc_vol.cache.watch import Watch
from pnc_vol.drivers.base import Driver, Memory, OpenContext
from pnc_vol.extents.merge import EMPTY, Ranges, ranges_of
from pnc_vol.extents.model import Extents, before
from pnc_vol.ranks.comm import Comm
from pnc_vol.warn import warn_once

__all__ = ["HeldBytes"]

_SMALL = 4
"""A full cache is emptied at once if not more than this part of it is needed still."""
_NOTHING = Extents(*np.zeros((3, 0), np.int64))


class HeldBytes:
    """The cache of one process.

    Parameters
    ----------
    inner : Driver, over the global file.
    hints : CacheHints
    context : OpenContext, what `inner` was opened with.
    job : JobCaches

    Attributes
    ----------
    reason : str, why the cache is in trouble; "" if it is not.
    telling : bool, the log tells of everything.
    off : bool, nothing new is held.
    store : LocalStore or None
    peers : NodePeers or None, what the other ranks of the node hold; None if there are no other ranks at all.
    own : Pending, what was written in the present epoch, where there are other ranks, held or not.
    own_of_last : Ranges, the same of the epoch before.
    locks : RangeLocks or None
    queue : SyncThreads
    watch : Watch
    """

    def __init__(self, inner: Driver, hints: CacheHints, context: OpenContext, job: JobCaches) -> None:
        self.inner, self.hints = inner, hints
        self.reason, self.off, self._closed = "", hints.mode == "disable", False
        self.telling = True
        self.writing = RLock()
        self.watch = Watch()
        self.store: LocalStore | None = None
        self.locks: RangeLocks | None = None
        self.peers: NodePeers | None = None
        self.own, self.own_of_last = Pending(), EMPTY
        self.file = _global_file(inner, hints, context, self.watch)
        try:
            if hints.mode == "coherent" and inner.path is not None:
                limit = context.comm.timeout if isinstance(context.comm, Comm) else None
                self.locks = RangeLocks(context.system, inner.path, self.watch, writable=context.writable, limit=limit)
            if context.writable and not self.off:
                self._open_store(context, job)
        except BaseException:
            self.close_files(keep=False)
            raise
        self.queue = SyncThreads(
            self._carry,
            self._write_held,
            self._idle,
            threads=hints.threads if self.file.has_descriptor else 1,
            immediate=hints.flush == "flush_immediate",
            alone=job.ranks == 1,
        )

    def _open_store(self, context: OpenContext, job: JobCaches) -> None:
        """Make the cache file and its log; if that fails there is trouble from the beginning."""
        path, ranks = self.inner.path, job.ranks
        inode = 0 if path is None else context.system.stat(path).st_ino
        identity = b"inode\0\0\0" + (inode & (2**64 - 1)).to_bytes(8, "little")
        subject = Subject(identity, job.rank, ranks, os.path.abspath(context.name or path or ""))
        try:
            self.store = LocalStore(context.system, job, subject)
        except OSError as error:
            self.reason = f"{error.strerror or error} ({self.hints.path})"
            return
        if ranks > 1:
            stems = [
                os.path.join(job.folder(subject.path, peer), str(peer)) for peer in job.directories if peer != job.rank
            ]
            self.peers = NodePeers([NodePeer(context.system, stem) for stem in stems])

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
            if self.queue.ordered or any(held.covers(ranges) for held in self.queue.held()):
                self._hold(extents, memory, ranges)
            elif self.store is None or self.reason or not self._has_room(self.store, ranges):
                self._through(extents, memory, ranges)
            else:
                self._cache(extents, memory, ranges)
            if self.peers is not None:
                self.own.add(ranges)

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
        bound, capacity, queue = self.hints.in_flight, self.hints.capacity, self.queue
        if bound and queue.weight + ranges.nbytes > bound:
            return False

        def full() -> bool:
            return bool(capacity) and store.file.allocated() + ranges.nbytes > capacity

        if self.hints.flush == "flush_none":
            return not full()
        if store.crowded(queue.waiting) or (full() and _SMALL * queue.nbytes < capacity):
            with self.watch.phase("waiting"):
                queue.settle()
            self._idle()
        return not full()

    def _through(self, extents: Extents, memory: Memory, ranges: Ranges) -> None:
        """Write to the global file, in the place of what waits for these bytes."""

        def act() -> None:
            self.inner.write(extents, memory)
            self.watch.wrote_through(extents.nbytes)
            self._record(lambda store: store.through(ranges, self.queue.epoch))

        with self._locked(ranges):
            self.queue.forget(ranges, act=act)
        self._end_log()

    def _hold(self, extents: Extents, memory: Memory, ranges: Ranges) -> None:
        """Keep what follows the data of its epoch, or write it if it is released."""
        epoch = self.queue.epoch
        if epoch <= self.queue.released and not self.queue.held():
            self._through(extents, memory, ranges)
            return
        data = np.array(gathered(extents, memory), copy=True)
        self._keep(
            PendingHeader(epoch, Extents(extents.offset.copy(), extents.length.copy(), before(extents.length)), data)
        )

    def grow(self, nbytes: int) -> None:
        """See `Driver.grow`."""
        with self.writing:
            if self.queue.epoch <= self.queue.released and not self.queue.held():
                self.file.grow(nbytes)
            else:
                self._keep(PendingHeader(self.queue.epoch, _NOTHING, np.zeros(0, np.uint8), nbytes))

    def _keep(self, held: PendingHeader) -> None:
        self._record(lambda store: store.hold(held))
        self.queue.hold(held)

    def cut(self, nbytes: int) -> None:
        """The global file is about to be cut, or made longer.

        Raises
        ------
        OSError
        """
        self.queue.cut(nbytes)
        own, self.own = self.own.all().below(nbytes), Pending()
        self.own.add(own)
        if self.locks is not None:
            # Nobody carries these bytes any more, so nobody else would give their locks back.
            self.locks.unlock(Ranges(np.array([nbytes]), np.array([1 << 62])), lambda all_of: all_of)
        self._record(lambda store: store.cut(nbytes, self.queue.epoch))

    def end_epoch(self) -> None:
        """The epoch ends."""
        with self.writing:
            self.own_of_last, self.own = self.own.all(), Pending()
            ended, synced = self.queue.end_epoch(), self.queue.synced_epoch()
            self._record(lambda store: store.ended(ended, synced))
            self._end_log()

    def release(self, epoch: int) -> None:
        """See `Holds.release`."""
        self.queue.release(epoch)
        with self.writing:
            self._end_log()

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
        where = self.hints.path if self.store is None else self.store.file.path
        self.reason = self.reason or f"{error.strerror or error} ({where})"

    def _end_log(self) -> None:
        """Write what waits to the file after trouble, and end the log with it, unless headers are held."""
        if not self.reason or self.store is None or self.queue.drain() or self.queue.held():
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

    def stop(self, reason: str) -> list[Lost]:
        """Hold nothing new from now on, and bring what waits to the global file; what could not be brought."""
        # The files stay until the close: a recovery that found the logs of some ranks would miss the others.
        with self.writing:
            self.off, self.reason = True, self.reason or reason
            lost = self.bring(headers=False)
            if not lost:
                self._end_log()
        return lost

    def bring(self, *, headers: bool) -> list[Lost]:
        """Bring what waits to the global file; what could not be brought.

        Parameters
        ----------
        headers : bool
            Then also what is held, if no other rank has data.
        """
        with self.watch.phase("non-hidden sync"):
            lost = self.queue.drain()
            if headers and not lost:
                try:
                    self.queue.release_alone()
                except OSError as error:
                    return [Lost(EMPTY, error)]
            return lost

    def error_of(self, lost: Lost, *, closing: bool = False) -> OSError:
        """Return the error of a thread, or of a header, with all that helps; `closing`: nothing tries again."""
        ranges, error = lost
        where = f"bytes {ranges.start[0]} to {ranges.end[-1]}" if ranges.start.size else "the header"
        if self.store is not None and (ranges.start.size or self.telling):
            kept = f"the data stay in the cache file {self.store.file.path}"
            again = "" if closing else "the next flush tries again, or after the close "
            then = f"{again}'pnc-vol replay' brings them to the file"
        else:
            # The log may have ended, and does not tell of headers.
            kept, then = "the data are in memory", "are lost" if closing else "the next flush tries again"
        text = f"{where} could not be synchronised: {error.strerror or error}; {kept}, and {then}"
        made = type(error)(error.errno or errno.EIO, text, self.inner.path)
        made.__cause__ = error
        return made

    # -------------------------------------------------------------------------------------------- threads

    def _carry(self, ranges: Ranges, thread: int) -> None:
        assert self.store is not None
        self.file.carry(self.store.file, ranges, thread)
        if self.locks is not None:
            self.locks.unlock(ranges, lambda some: self.queue.done_with(some, thread))

    def _write_held(self, held: PendingHeader) -> None:
        if held.reach:
            self.file.grow(held.reach)
        if held.extents.length.size:
            self.file.write(held.extents, held.data)
        if self.store is not None and self.telling:
            with suppress(OSError):
                # More may be held for this epoch; what a recovery writes once more does no harm.
                self.store.released(held.epoch - 1)

    def _idle(self) -> None:
        """All data are in the global file: give space and locks back, unless the program writes again already."""
        if not self.writing.acquire(blocking=False):
            return
        try:
            if self._closed or self.store is None or self.reason:
                return
            with self.queue.quiet() as quiet:
                if quiet:
                    with suppress(OSError):
                        queue = self.queue
                        self.store.emptied(queue.epoch, queue.ended, queue.held(), discard=self.hints.discard)
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
        self._closed = True
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
        self._closed = True
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
