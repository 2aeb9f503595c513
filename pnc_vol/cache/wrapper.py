"""`CacheDriver` writes to a cache file on this node, lets threads carry that to the global file, and reads both.

    File(path, "w", driver="cache(path=/nvm) | posix")
    File(path, "w", driver="cache | mpio", comm=comm, hints={"e10_cache_path": "/nvm"})

Knows: the driver protocol, what this process holds. Does not know: headers, variables, what other ranks do.

Rules
-----
1. What a `write` has returned for is in the cache file and its log, or in the global file.
2. Of two writes to one byte the later one is what the global file has in the end, and what a read sees meanwhile.
3. What is written between `order` and `end_flush` follows when its epoch is released; so does what is written over
   bytes that are held for that.
4. If the cache cannot take a write, the global file does, in order; `trouble` says so from there on.
5. A cache file that holds something that is not in the global file is never removed.
6. A forked child can neither use the driver nor harm it.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from pnc_vol.cache.held_bytes import HeldBytes
from pnc_vol.cache.hints import HINTED, CacheHints, cache_hints
from pnc_vol.cache.local_store import JobCaches
from pnc_vol.cache.overlay import View, read_over
from pnc_vol.cache.queues import Lost
from pnc_vol.drivers.base import Capabilities, Driver, Memory, OpenContext, Wrapper
from pnc_vol.drivers.holding import NOWHERE, Phase, Unwritten
from pnc_vol.drivers.vectored_io import check
from pnc_vol.errors import ClosedFileError, ForkedFileError, ReadOnlyError
from pnc_vol.extents.merge import EMPTY, Ranges, ranges_of
from pnc_vol.extents.model import Extents
from pnc_vol.ranks.comm import Comm
from pnc_vol.ranks.mpi_comm import over
from pnc_vol.warn import warn_outside

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["CacheDriver"]

_live: WeakSet[CacheDriver] = WeakSet()


class CacheDriver(Wrapper):
    """Holds writes in a cache file until threads have carried them to the driver below.

    Parameters
    ----------
    inner : Driver
    hints : CacheHints
    context : OpenContext, what `inner` was opened with.
    job : JobCaches

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from pnc_vol.drivers.stack import open_stack
    >>> nvm, path = tempfile.mkdtemp(), os.path.join(tempfile.mkdtemp(), "a")
    >>> open(path, "wb").close()
    >>> driver = open_stack(f"cache(path='{nvm}', flush=flush_onclose) | posix", path)
    >>> driver.write(Extents(*np.array([[0], [5], [0]])), np.frombuffer(b"hello", np.uint8))
    >>> os.path.getsize(path), driver.size(), driver.unsynced().nbytes
    (0, 5, 5)
    >>> driver.drain()
    >>> open(path, "rb").read()
    b'hello'
    >>> driver.close()
    """

    name = "cache"

    def __init__(self, inner: Driver, hints: CacheHints, context: OpenContext, job: JobCaches) -> None:
        super().__init__(inner)
        self._hints, self._system, self._writable = hints, context.system, context.writable
        self._first = not job.rank
        self._pid = context.system.getpid()
        self._reason, self._elsewhere = "", dict[int, Ranges]()
        # nobody uses it any more; nothing is open any more
        self._closed = self._left = False
        self._bytes = HeldBytes(inner, hints, context, job)
        self._queue, self._watch = self._bytes.queue, self._bytes.watch
        _live.add(self)

    @classmethod
    def declares(cls, below: Capabilities) -> Capabilities:
        return below._replace(holds_back=True, concurrent=False)

    @classmethod
    def over(cls, inner: Driver, context: OpenContext, **options: Any) -> Self:
        comm, token, host = context.comm, context.system.token(), os.uname().nodename
        if comm is None or comm.size == 1:
            asked = cache_hints(context.hints, options, named=True)
            there = os.path.abspath(asked.path)
            return cls(inner, asked, context, JobCaches(token, 0, 1, [(host, there)], {0: there}))
        ranks = comm if isinstance(comm, Comm) else over(comm.mpi, timeout=None)
        with ranks.errors_shared():
            asked = cache_hints(context.hints, options, named=True)
            job = JobCaches.of(ranks, token, host, os.path.abspath(asked.path))
        if asked.mode == "coherent" and asked.flush != "flush_immediate":
            # A rank would wait for locks that another one gives back at a call of all ranks.
            if comm.rank == 0:
                warn_outside(
                    f"{context.name or inner.path}: with e10_cache=coherent and several ranks, data are carried at "
                    f"once (flush_immediate), not as {asked.flush} says: ranks would wait for each other for ever"
                )
            asked = asked._replace(flush="flush_immediate")
        return cls(inner, asked, context, job)

    # ---------------------------------------------------------------------------------------------- verbs

    def write(self, extents: Extents, memory: Memory, *, collective: bool = False) -> None:
        self._check(writing=True)
        if self._bytes.off and not self._waits():
            self.inner.write(extents, memory, collective=collective)
            return
        check(extents, memory)
        self._bytes.write(extents, memory)

    def read(self, extents: Extents, memory: Memory, *, collective: bool = False) -> int:
        self._check()
        check(extents, memory)
        with self._locked(extents), self._queue.reading() as (ranges, held):
            store = self._bytes.store
            source = None if store is None else store.file
            locks = self._bytes.locks
            # Who has waited at the locks finds in the file what others held.
            hidden = self._hidden() if self._elsewhere and (locks is None or not locks.works) else EMPTY
            view = View(self.inner, source, self._bytes.peers, self._queue.ended, hidden, self._reason)
            return read_over(view, extents, memory, ranges, held, collective=collective)

    def _hidden(self) -> Ranges:
        """Return what others wrote last, as far as is known, and may hold back where it cannot be seen here."""
        hidden = EMPTY
        for ranges in self._elsewhere.values():
            hidden = hidden.plus(ranges)
        return hidden.minus(self._bytes.own.all())

    def _locked(self, extents: Extents) -> Any:
        """Hold locks, in coherent mode, on what other processes may be writing."""
        locks = self._bytes.locks
        if locks is None:
            return nullcontext()
        others = ranges_of(extents.offset, extents.length).minus(self._queue.unsynced())
        return locks.reading(others, self._queue.submit, self._bytes.free)

    def read_one(self, array: npt.NDArray[Any], offset: int) -> int:
        if self._reads_below():
            return self.inner.read_one(array, offset)
        return super().read_one(array, offset)

    def look(self, end: int, nbytes: int, use: Callable[[Memory], None]) -> bool:
        return self._reads_below() and self.inner.look(end, nbytes, use)

    def _reads_below(self) -> bool:
        """Return whether a read is one of the file below, whatever it asks for."""
        self._check()
        alone = self._bytes.peers is None and self._bytes.locks is None
        return alone and not self._elsewhere and not self._waits()

    def _waits(self) -> bool:
        """Return whether anything is held."""
        return bool(self._queue.nbytes or self._queue.held())

    def size(self) -> int:
        self._check()
        # First what waits: what is carried meanwhile is in the file then.
        with self._queue.reading() as (ranges, held):
            reach: int = max((0, *ranges.end[-1:].tolist(), *(one.end for one in held)))
            return max(reach, self.inner.size())

    def grow(self, nbytes: int) -> None:
        self._check(writing=True)
        if self._bytes.off and not self._waits():
            self.inner.grow(nbytes)
        else:
            self._bytes.grow(nbytes)

    def resize(self, nbytes: int) -> None:
        self._check(writing=True)
        with self._bytes.writing:
            try:
                if nbytes >= 0:
                    self._bytes.cut(nbytes)
            finally:
                # Also after an error: the others wait here for all.
                self.inner.resize(nbytes)

    def order(self) -> None:
        self._check()
        self._queue.order()
        self.inner.order()

    def unorder(self) -> None:
        self._queue.unorder()
        self.inner.unorder()

    def end_flush(self) -> None:
        self._check()
        self._bytes.end_epoch()
        self.inner.end_flush()

    def replace_with(self, copy: Driver) -> bool:
        # What waits is of the content that goes, and would be laid over the new one.
        self.drain()
        if not self.inner.replace_with(copy):
            return False
        self._bytes.cut(0)
        return True

    def sync(self) -> None:
        self._check()
        lost = self._bytes.bring(headers=True)
        try:
            self.inner.sync()
        finally:
            # Also where that failed: the others wait there for all.
            if lost:
                raise self._bytes.error_of(lost[0])

    def close(self) -> None:
        if self._system.getpid() != self._pid:
            self._closed = True
            return
        try:
            self.leave()
        except OSError:
            # The first error says where the data are.
            with suppress(OSError):
                self.inner.close()
            raise
        self.inner.close()

    def leave(self) -> None:
        # Ctrl-C may end it anywhere: called again, it does what is left
        if self._left:
            return
        error: OSError | None = None
        named = self._bytes.file.has_name()
        if not self._closed and named and (self._hints.flush != "flush_none" or self._bytes.off):
            lost = self._bytes.bring(headers=True)
            error = self._bytes.error_of(lost[0], closing=True) if lost else None
        self._closed = True
        self._queue.stop()
        left, store = named and self._waits(), self._bytes.store
        if left and error is None and store is not None:
            warn_outside(
                f"{self._bytes.file.name}: data stay in the cache file {store.file.path} "
                "(e10_cache_flush_flag=flush_none, or a flush that was not completed on all ranks); "
                "'pnc-vol replay' brings them to the file"
            )
        try:
            self._bytes.close_files(keep=left or not (self._hints.discard or self._bytes.off), done=not left)
        except OSError as caught:
            error = error or caught
        self._left = True
        if error is not None:
            raise error

    # --------------------------------------------------------------------------------- what is held back

    @property
    def sees_node(self) -> bool:  # type: ignore[override]
        peers = self._bytes.peers
        return self._queue.alone if peers is None else peers.seen

    def synced_epoch(self) -> int:
        return self._queue.synced_epoch()

    def release(self, epoch: int) -> None:
        self._elsewhere = {of: ranges for of, ranges in self._elsewhere.items() if of > epoch}
        try:
            self._bytes.release(epoch)
        except OSError as error:
            raise self._bytes.error_of(Lost(EMPTY, error)) from error

    def hold_headers(self) -> None:
        self._queue.hold_headers()

    def drain(self) -> None:
        self._check()
        if lost := self._bytes.bring(headers=False):
            raise self._bytes.error_of(lost[0])

    def unsynced(self) -> Extents:
        return self._queue.unsynced().extents

    def trouble(self) -> str:
        return self._bytes.reason

    def stop_holding(self, reason: str) -> None:
        first, lost = not self._bytes.off, self._bytes.stop(reason)
        if first and self._first:
            warn_outside(
                f"{self._bytes.file.name}: the cache (e10_cache) is off from here, and writes go to the file itself: "
                f"{reason}"
            )
        if lost:
            raise self._bytes.error_of(lost[0])

    def failures(self) -> list[Unwritten]:
        found = []
        for lost in self._queue.lost():
            start, end = (lost.ranges.start[0], lost.ranges.end[-1]) if lost.ranges.start.size else (0, 0)
            found.append(Unwritten(int(start), int(end - start), self._bytes.error_of(lost)))
        return found

    def hints(self) -> dict[str, str]:
        return dict(HINTED.when_off) if self._bytes.off else self._hints.in_force()

    def note_elsewhere(self, reason: str, where: npt.NDArray[np.int64] = NOWHERE) -> None:
        self._reason = reason
        if not reason:
            self._elsewhere.clear()
            return
        self._elsewhere[self._queue.ended] = Ranges(*where.T.copy())
        own = self._bytes.own_of_last
        self._elsewhere = {of: left for of, all_of in self._elsewhere.items() if (left := all_of.minus(own)).start.size}

    def observe(self, note: Callable[[Phase], None]) -> None:
        self._watch.observe(note)

    def statistics(self) -> dict[str, Any]:
        return self._watch.statistics() | {"cache.unsynced_bytes": self._queue.nbytes} | self.inner.statistics()

    # -------------------------------------------------------------------------------------------- others

    def _check(self, *, writing: bool = False) -> None:
        if self._system.getpid() != self._pid:
            raise ForkedFileError(f"The file {self.path!r} was opened before a fork; open it again in this process")
        if self._closed:
            raise ClosedFileError(f"The file {self.path!r} is closed")
        if writing and not self._writable:
            raise ReadOnlyError(f"The file {self.path!r} is open for reading; open it with 'r+' to change it")

    def end_of_process(self) -> None:
        """Bring all to the file before the interpreter ends; what cannot be brought stays in the cache file."""
        if not self._closed and self._system.getpid() == self._pid and self._hints.flush != "flush_none":
            with suppress(Exception):
                self._bytes.bring(headers=True)

    def forget(self) -> None:
        """Close what a forked child got of this."""
        if not self._closed:
            # The numbers of closed descriptors may be those of others by now.
            self._closed = True
            self._bytes.forget()


def _at_exit() -> None:
    for driver in list(_live):
        driver.end_of_process()


def _after_fork() -> None:
    for driver in list(_live):
        driver.forget()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_after_fork)
