"""`CacheDriver` writes to a cache file on this node, lets threads carry that to the global file, and reads both.

    File(path, "w", driver="cache(path=/nvm) | posix")
    File(path, "w", driver="cache | mpio", comm=comm, hints={"e10_cache_path": "/nvm"})

Knows: the driver protocol, what this process holds. Does not know: headers, variables, what other ranks do.

Rules
-----
1. What a `write` has returned for is in the cache file and its log, or in the global file.
2. Of two writes to one byte the later one is what the global file has in the end, and what a read sees meanwhile.
3. `order` brings all data to the global file: a flush whose header is held (`holding`) does without.
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

import numpy.typing as npt

from pnc_vol.cache.held_bytes import HeldBytes
from pnc_vol.cache.hints import CacheHints, cache_hints
from pnc_vol.cache.local_store import JobCaches
from pnc_vol.cache.overlay import View, read_over
from pnc_vol.drivers.base import Capabilities, Driver, Memory, OpenContext, Wrapper
from pnc_vol.drivers.vectored_io import check
from pnc_vol.errors import ClosedFileError, ForkedFileError, ReadOnlyError
from pnc_vol.extents.merge import EMPTY, ranges_of
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
    >>> os.path.getsize(path), driver.size(), driver.holder.unsynced().nbytes
    (0, 5, 5)
    >>> driver.holder.drain()
    >>> open(path, "rb").read()
    b'hello'
    >>> driver.close()
    """

    name = "cache"

    def __init__(self, inner: Driver, hints: CacheHints, context: OpenContext, job: JobCaches) -> None:
        super().__init__(inner)
        self._hints, self._system, self._writable = hints, context.system, context.writable
        self._pid = context.system.getpid()
        self.holder = self._bytes = HeldBytes(inner, hints, context, job)
        self._queue = self._bytes.queue
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
        if self._bytes.off and not self._queue.nbytes:
            self.inner.write(extents, memory, collective=collective)
            return
        check(extents, memory)
        self._bytes.write(extents, memory)

    def read(self, extents: Extents, memory: Memory, *, collective: bool = False) -> int:
        self._check()
        check(extents, memory)
        with self._locked(extents), self._queue.reading() as ranges:
            held = self._bytes
            source = None if held.store is None else held.store.file
            # Who has waited at the locks finds in the file what others held.
            hidden = EMPTY if held.locks is not None and held.locks.works else held.elsewhere.hidden()
            view = View(
                self.inner, source, held.elsewhere.peers, self._queue.ended, held.reach, hidden, held.elsewhere.reason
            )
            return read_over(view, extents, memory, ranges, collective=collective)

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
        held, others = self._bytes, self._bytes.elsewhere
        return held.locks is None and others.peers is None and not (others or self._queue.nbytes or held.reach)

    def size(self) -> int:
        self._check()
        # First what waits: what is carried meanwhile is in the file then.
        with self._queue.reading() as ranges:
            reach: int = max(self._bytes.reach, *ranges.end[-1:].tolist(), 0)
            return max(reach, self.inner.size())

    def grow(self, nbytes: int) -> None:
        self._check(writing=True)
        if self._bytes.off and not self._queue.nbytes:
            self.inner.grow(nbytes)
        else:
            self._bytes.file.grow(nbytes)

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
        self._bytes.drain()
        self.inner.order()

    def end_flush(self) -> None:
        self._check()
        self._bytes.end_epoch()
        self.inner.end_flush()

    def replace_with(self, copy: Driver) -> bool:
        # What waits is of the content that goes, and would be laid over the new one.
        self._bytes.drain()
        if not self.inner.replace_with(copy):
            return False
        self._bytes.cut(0)
        return True

    def sync(self) -> None:
        self._check()
        try:
            self._bytes.drain()
        except OSError:
            # The others wait there for all.
            with suppress(OSError):
                self.inner.sync()
            raise
        self.inner.sync()

    def close(self) -> None:
        if self._system.getpid() != self._pid:
            self._bytes.closed = True
            return
        try:
            self._bytes.leave()
        except OSError:
            # The first error says where the data are.
            with suppress(OSError):
                self.inner.close()
            raise
        self.inner.close()

    def statistics(self) -> dict[str, Any]:
        return self._bytes.watch.statistics() | {"cache.unsynced_bytes": self._queue.nbytes} | self.inner.statistics()

    # -------------------------------------------------------------------------------------------- others

    def _check(self, *, writing: bool = False) -> None:
        if self._system.getpid() != self._pid:
            raise ForkedFileError(f"The file {self.path!r} was opened before a fork; open it again in this process")
        if self._bytes.closed:
            raise ClosedFileError(f"The file {self.path!r} is closed")
        if writing and not self._writable:
            raise ReadOnlyError(f"The file {self.path!r} is open for reading; open it with 'r+' to change it")

    def end_of_process(self) -> None:
        """Bring all to the file before the interpreter ends; what cannot be brought stays in the cache file."""
        if not self._bytes.closed and self._system.getpid() == self._pid and self._hints.flush != "flush_none":
            with suppress(Exception):
                self._bytes.drain()

    def forget(self) -> None:
        """Close what a forked child got of this."""
        if not self._bytes.closed:
            # The numbers of closed descriptors may be those of others by now.
            self._bytes.forget()


def _at_exit() -> None:
    for driver in list(_live):
        driver.end_of_process()


def _after_fork() -> None:
    for driver in list(_live):
        driver.forget()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_after_fork)
