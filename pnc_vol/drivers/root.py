"""Every root of a stack has this besides moving bytes: open and closed, threads, counts, refusals.

Knows: the driver protocol, errors. Does not know: how bytes move.

Rules
-----
1. `close` waits for verbs that other threads are in: a descriptor that is closed under a write may by then belong to
   another file.
2. After a `sync` failed, every later one fails: the system reports pages that it could not write only once.
3. How far the file surely goes is known from what was written (`grow`), as long as it was never cut: a write and a cut
   of two threads may end in either order.
"""

from __future__ import annotations

import abc
import errno
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from pnc_vol.drivers.base import Driver, Memory
from pnc_vol.errors import ClosedFileError, ReadOnlyError, SyncError
from pnc_vol.extents.model import Extents

__all__ = ["Root"]


class Root(Driver):
    """A driver at the bottom of a stack; a subclass supplies the underscored verbs.

    Parameters
    ----------
    path : str or None
    writable : bool
        Whether `write` and `resize` are allowed.
    shown : str, what errors call the file, if it is another name.
    """

    def __init__(self, path: str | None, *, writable: bool, shown: str = "") -> None:
        self.path = path
        self.writable = writable
        self._use = _Use(self, shown or path)
        self._sync_failure: SyncError | None = None
        self._counts = dict.fromkeys(("read_calls", "read_bytes", "write_calls", "write_bytes", "syncs"), 0)

    @property
    def shown(self) -> str | None:
        """What errors call the file."""
        return self._use.shown

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._use.closed

    def read(self, extents: Extents, memory: Memory, *, collective: bool = False) -> int:
        with self._use:
            nbytes, calls = self._read(extents, memory, collective)
        counts = self._counts
        with self._use.lock:
            counts["read_calls"] += calls
            counts["read_bytes"] += nbytes
        return nbytes

    def look(self, end: int, nbytes: int, use: Callable[[Memory], None]) -> bool:
        with self._use:
            seen = self._look(end, nbytes, use)
        if seen:
            with self._use.lock:
                self._counts["read_calls"] += 1
                self._counts["read_bytes"] += nbytes
        return seen

    def write(self, extents: Extents, memory: Memory, *, collective: bool = False) -> None:
        with self._use:
            if not self.writable:
                self._may_write()
            calls = self._write(extents, memory, collective)
        length = extents.length
        nbytes = int(length[0]) if len(length) == 1 else extents.nbytes
        # what ranks write together another one may still have to bring to the file
        end = int(extents.offset[-1] + length[-1]) if nbytes and length[-1] and not collective else 0
        with self._use.lock:
            self._note_written(calls, nbytes, end)

    def _note_written(self, calls: int, nbytes: int, end: int) -> None:
        """Count a write, with the lock of `_use` held; the file has `end` bytes at least."""
        counts, use = self._counts, self._use
        counts["write_calls"] += calls
        counts["write_bytes"] += nbytes
        if use.reach is not None and end > use.reach:
            use.reach = end

    def size(self) -> int:
        with self._use:
            return self._size()

    def resize(self, nbytes: int) -> None:
        with self._use:
            self._may_write()
            if nbytes < 0:
                raise ValueError(f"A file cannot have {nbytes} bytes")
            with self._use.lock:
                self._use.reach = None
            self._resize(nbytes)

    def grow(self, nbytes: int) -> None:
        # Asked at each new record, mostly of a file that the record has just made longer.
        reach = self._use.reach
        if reach is None or reach < nbytes:
            super().grow(nbytes)

    def sync(self) -> None:
        with self._use:
            if self._sync_failure is not None:
                raise SyncError(
                    self._sync_failure.errno,
                    "An earlier sync failed, so it is not known which data are on stable storage; write the file again",
                    self.shown,
                ) from self._sync_failure
            try:
                self._sync()
            except OSError as error:
                failure = SyncError(error.errno or errno.EIO, error.strerror or str(error), self.shown)
                self._sync_failure = failure.to_keep()
                raise failure from error
        with self._use.lock:
            self._counts["syncs"] += 1

    def close(self) -> None:
        if self._use.end():
            self._close()

    def statistics(self) -> dict[str, Any]:
        with self._use.lock:
            return {f"{self.name}.{key}": value for key, value in self._counts.items()}

    @abc.abstractmethod
    def _read(self, extents: Extents, memory: Memory, collective: bool) -> tuple[int, int]:
        """Return bytes read, calls made."""

    def _look(self, end: int, nbytes: int, use: Callable[[Memory], None]) -> bool:
        """Return whether `use` saw the file; see `look`."""
        return False

    @abc.abstractmethod
    def _write(self, extents: Extents, memory: Memory, collective: bool) -> int:
        """Calls made."""

    @abc.abstractmethod
    def _size(self) -> int: ...

    @abc.abstractmethod
    def _resize(self, nbytes: int) -> None: ...

    @abc.abstractmethod
    def _sync(self) -> None: ...

    @abc.abstractmethod
    def _close(self) -> None: ...

    def _may_write(self) -> None:
        if not self.writable:
            error = ReadOnlyError(f"The file {self.shown!r} is open for reading; open it with 'r+' to change it")
            error.errno = errno.EBADF
            raise error


class _Use:
    """Inside of it, a driver is open and stays so; errors of the system get the name of the file, `shown`.

    inside : int, how many calls are in it; an interruption (Ctrl-C, no memory) may leave one that is not.
    reach : int or None
        Where the last piece of a write ended, the farthest of all; None once the file was given a size.
    """

    __slots__ = ("_driver", "closed", "idle", "inside", "lock", "reach", "shown")

    def __init__(self, driver: Driver, shown: str | None) -> None:
        self._driver, self.shown = driver, shown
        self.inside = 0
        self.closed = False
        self.reach: int | None = 0
        self.lock = threading.Lock()
        # made by a `close` that has to wait
        self.idle: threading.Condition | None = None

    def __enter__(self) -> None:
        with self.lock:
            if self.closed:
                path = f" {self.shown!r}" if self.shown else ""
                raise ClosedFileError(f"The {self._driver.name} driver's file{path} is closed")
            self.inside += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self.lock:
            self.inside -= 1
            if isinstance(error, OSError) and error.errno and error.filename is None:
                # calls on a descriptor do not say which file it is
                error.filename = self.shown
            if self.idle is not None:
                self.idle.notify_all()

    def end(self) -> bool:
        """Close once the others are out; False if it is closed already."""
        with self.lock:
            if self.closed:
                return False
            self.closed = True
            while self.inside and self._others():
                self.idle = self.idle or threading.Condition(self.lock)
                self.idle.wait(1.0)
            return True

    def _others(self) -> bool:
        """Return whether other threads are in calls of the driver, as their stacks have it: calls should not pay for
        that."""
        for thread, top in sys._current_frames().items():
            frame: FrameType | None = top
            while thread != threading.get_ident() and frame is not None:
                if frame.f_locals.get("self") is self._driver:
                    return True
                frame = frame.f_back
        return False
