"""Coherent mode locks the extents of the global file that are not in it yet.

Knows: open file description locks, ranges. Does not know: the cache, threads.

The locks are those of Linux (``F_OFD_SETLK``): they belong to an opening of the file, not to a process, so that they do
not vanish when another descriptor of the file is closed, and hold between threads. A reader of another process that
asks for the same bytes in coherent mode, or takes such locks itself, waits until they are in the file.

Rules
-----
1. Writers and readers of one process use two openings: a lock for reading would replace one for writing of the same
   opening.
2. Nobody waits for a lock while what it holds itself waits for being submitted: two ranks could wait for each other.
3. Ctrl-C may leave a lock that nobody gives back. Before one opening waits for a lock, the other one gives back what
   nothing needs: a process would wait for itself.
4. Where the file system has no locks, a warning says so once, at the open, and there are none.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from threading import Lock

import numpy as np

from pnc_vol.cache.watch import Watch
from pnc_vol.errors import LOCK_TAKEN, NO_LOCKS
from pnc_vol.extents.merge import EMPTY, Ranges
from pnc_vol.system import System
from pnc_vol.warn import warn_once

__all__ = ["RangeLocks"]

_FLOCK = struct.Struct("hhqqi4x")
"""``struct flock`` of Linux's C libraries with 64-bit offsets: type, whence, start, length, process."""
_SETLK = getattr(fcntl, "F_OFD_SETLK", 0)
_NO_LOCKS = (*NO_LOCKS, errno.EINVAL)
"""The last: of a kernel without open file description locks."""
_MOST = 1024
"""Ranges of one write that get a lock each; of more, the gaps between the closest are locked too."""
_FIRST_NAP, _LONGEST_NAP = 0.0005, 0.02


class RangeLocks:
    """The locks of one process on one file.

    Parameters
    ----------
    system : System
    path : str, of the global file.
    watch : Watch, is told of the time that is waited.
    writable : bool
    limit : float or None, seconds to wait for a lock; None: without end. A rank waits no longer for a lock than for
        the other ranks, of which one may have what it cannot carry.
    """

    def __init__(self, system: System, path: str, watch: Watch, *, writable: bool, limit: float | None = None) -> None:
        self._system, self._path, self._watch, self._limit = system, path, watch, limit
        # what the program is writing, whose locks a thread does not give back
        self._being_written, self._unlocking = EMPTY, Lock()
        self._fds = [system.open(path, os.O_RDWR)] if writable else []
        try:
            self._fds.append(system.open(path, os.O_RDONLY))
            self.works = self._try()
        except BaseException:
            self.close()
            raise

    def _try(self) -> bool:
        try:
            if not _SETLK:
                raise OSError(errno.ENOSYS, "this system has no open file description locks")
            # A lock where no file has bytes, and none that another lock could be in the way of.
            self._system.record_lock(self._fds[-1], _SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 1, 0))
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            warn_once(
                "no byte-range locks",
                f"{self._path}: e10_cache=coherent needs byte-range locks, which are not to be had here "
                f"({error.strerror}); readers of other processes may see old bytes until they are synchronised",
            )
            return False
        return True

    @contextmanager
    def writing(self, ranges: Ranges, ready: Callable[[], None], free: Callable[[Ranges], Ranges]) -> Iterator[None]:
        """Hold locks for writing until what the block writes is queued, or in the file, after others gave theirs back.

        A thread that has carried earlier bytes of the same ranges gives back none of the locks that are taken already:
        an opening has one lock on a byte, however often it was taken. At the end those locks are given back for which
        nothing waits: of ranges that are in the file already, and of the gaps that `_fewer` locked, too.

        Parameters
        ----------
        ready : callable
            Called once before anybody is waited for: submits what holds locks of this process.
        free : callable
            Of some ranges those for which nothing waits.

        Raises
        ------
        TimeoutError
            Another process did not give its locks back in time.
        """
        if not self.works:
            yield
            return
        ranges = _fewer(ranges)

        def wait() -> None:
            ready()
            self._unlock_all(self._fds[-1])

        take = partial(self._take_for_writing, ranges, free)
        try:
            with self._watch.phase("waiting"):
                self._take(self._fds[0], fcntl.F_WRLCK, ranges, wait, take)
            yield
        finally:
            with self._unlocking:
                self._being_written = EMPTY
                self._release(self._fds[0], free(ranges))

    def _take_for_writing(self, ranges: Ranges, free: Callable[[Ranges], Ranges], n: int, asked: bytes) -> None:
        """Try to take the n-th lock of a write, which keeps it until its end, as it does those before.

        What this process holds of the later ones, by an earlier write, is given back as ever: two processes that wait
        would else keep from each other what each of them is to take later.
        """
        with self._unlocking:
            self._being_written = Ranges(ranges.start[: n + 1], ranges.end[: n + 1])
            try:
                self._system.record_lock(self._fds[0], _SETLK, asked)
            except OSError:
                self._being_written = Ranges(ranges.start[:n], ranges.end[:n])
                self._release(self._fds[0], free(Ranges(ranges.start[n : n + 1], ranges.end[n : n + 1])))
                raise

    def unlock(self, ranges: Ranges, free: Callable[[Ranges], Ranges]) -> None:
        """Give back locks for writing where nothing waits any more; `free` as of `writing`."""
        if self.works and ranges.start.size:
            with self._unlocking:
                self._release(self._fds[0], free(ranges).minus(self._being_written))

    def unlock_all(self) -> None:
        """Give back all locks for writing: nothing waits any more."""
        if self.works:
            self._unlock_all(self._fds[0])

    def _unlock_all(self, fd: int) -> None:
        with suppress(OSError):
            # up to the end, however long the file is
            self._system.record_lock(fd, _SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0))

    @contextmanager
    def reading(self, ranges: Ranges, ready: Callable[[], None], free: Callable[[Ranges], Ranges]) -> Iterator[None]:
        """Hold locks for reading, after those who write there are through; `ready`, `free` as of `writing`."""
        if not self.works or not ranges.start.size:
            yield
            return
        ranges = _fewer(ranges)

        def wait() -> None:
            ready()
            with self._unlocking:
                for fd in self._fds[:-1]:
                    self._release(fd, free(ranges))

        try:
            self._take(self._fds[-1], fcntl.F_RDLCK, ranges, wait)
            yield
        finally:
            self._release(self._fds[-1], ranges)

    def _take(
        self,
        fd: int,
        kind: int,
        ranges: Ranges,
        ready: Callable[[], None],
        take: Callable[[int, bytes], None] | None = None,
    ) -> None:
        waited, begun = False, time.monotonic()
        for n, (start, end) in enumerate(zip(ranges.start.tolist(), ranges.end.tolist(), strict=True)):
            nap = _FIRST_NAP
            asked = _FLOCK.pack(kind, os.SEEK_SET, start, end - start, 0)
            while True:
                try:
                    if take is None:
                        self._system.record_lock(fd, _SETLK, asked)
                    else:
                        take(n, asked)
                    break
                except OSError as error:
                    if error.errno not in LOCK_TAKEN:
                        raise
                if not waited:
                    ready()
                    waited = True
                if self._limit is not None and time.monotonic() > begun + self._limit:
                    raise TimeoutError(
                        errno.ETIMEDOUT,
                        f"bytes {start} to {end} are locked by another process, which did not bring them to the file "
                        f"within {self._limit:g} s (e10_cache=coherent; collective_timeout= sets the time limit)",
                        self._path,
                    )
                # A call that waits would keep this process from noticing a signal's handler, and from giving up.
                time.sleep(nap)
                nap = min(2 * nap, _LONGEST_NAP)

    def _release(self, fd: int, ranges: Ranges) -> None:
        for start, end in zip(ranges.start.tolist(), ranges.end.tolist(), strict=True):
            with suppress(OSError):
                self._system.record_lock(fd, _SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, start, end - start, 0))

    def close(self) -> None:
        """Give back all locks."""
        for fd in self._fds:
            with suppress(OSError):
                self._system.close(fd)


def _fewer(ranges: Ranges) -> Ranges:
    """Return at most `_MOST` ranges that cover these: the smallest gaps are covered too."""
    if ranges.start.size <= _MOST:
        return ranges
    gaps = ranges.start[1:] - ranges.end[:-1]
    kept = np.sort(np.argpartition(gaps, -(_MOST - 1))[-(_MOST - 1) :])
    return Ranges(np.append(ranges.start[:1], ranges.start[kept + 1]), np.append(ranges.end[kept], ranges.end[-1:]))
