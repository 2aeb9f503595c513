"""A system has a slow file system in it: processes share its bandwidth, and each call has a latency.

    system = ThrottledSystem("/scratch/global", bandwidth=200e6, latency=1e-3, shared="/dev/shm/clock")
    File("/scratch/global/out.nc", "w", system=system, hints={"e10_cache_path": "/dev/shm"})

Knows: the calls of a `System`, the clock. Does not know: drivers, ranks.

Rules
-----
1. Files below `folder` are slow; all others, such as those of a node-local cache, pass freely.
2. The slow file system is one queue: a call waits until those that came before it, of any process, are done. A call
   takes its bytes divided by the bandwidth, and the latency besides, during which others go on.
3. A call waits asleep, so that other threads and processes compute meanwhile.
4. The kernel does not copy between a slow file and another one, as between two file systems of different kinds.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
import time
from typing import Any

from pnc_vol.system import REAL, System
from pnc_vol.testing.faults import HookedSystem, nbytes_of

__all__ = ["ThrottledSystem"]

_MOVES = frozenset(("pread_into", "preadv", "pwrite", "pwritev", "copy_range"))
_WAITS = _MOVES | {"open", "ftruncate", "fsync", "fdatasync", "rename", "unlink", "stat"}
_TIME = struct.Struct("d")
_FLOCK = struct.Struct("hhqqi4x")
"""``struct flock`` of Linux."""


class ThrottledSystem(HookedSystem):
    """A system whose files below one folder are slow.

    Parameters
    ----------
    folder : str, a directory that exists.
    bandwidth : float, bytes per second, of all processes together.
    latency : float, seconds of each call that moves bytes, opens, syncs, cuts or renames.
    shared : str, optional
        A small file by which processes on this machine share the bandwidth; made where it is not there. Without it,
        this object has the bandwidth for itself.
    inner : System

    Attributes
    ----------
    nbytes : int, moved to and from slow files by this object.
    seconds : float, that calls of this object took, of all threads together.

    Examples
    --------
    >>> import tempfile, time
    >>> folder = tempfile.mkdtemp()
    >>> system = ThrottledSystem(folder, bandwidth=1e6)
    >>> fd = system.open(os.path.join(folder, "a"), os.O_RDWR | os.O_CREAT)
    >>> start = time.perf_counter()
    >>> system.pwrite(fd, bytes(100_000), 0)
    100000
    >>> time.perf_counter() - start >= 0.1
    True
    >>> system.close(fd)
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        bandwidth: float,
        latency: float = 0.0,
        shared: str | os.PathLike[str] | None = None,
        inner: System = REAL,
    ) -> None:
        super().__init__(inner)
        if not bandwidth > 0 or latency < 0:
            raise ValueError(f"bandwidth={bandwidth}, latency={latency}: more than 0 bytes per second are needed")
        self._below = os.path.join(REAL.realpath(os.fspath(folder)), "")
        self.bandwidth, self.latency = bandwidth, latency
        self._free = 0.0
        self._clock = -1 if shared is None else REAL.open(os.fspath(shared), os.O_RDWR | os.O_CREAT, 0o600)
        self._slow: set[int] = set()
        self._lock = threading.Lock()
        self.nbytes, self.seconds = 0, 0.0

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        slow = name in _WAITS and self._is_slow(args[0])
        if name == "copy_range" and slow != self._is_slow(args[1]):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        start = time.monotonic()
        result = super().call(name, args, kwargs)
        if name == "open" and slow:
            with self._lock:
                self._slow.add(result)
        elif name == "close":
            with self._lock:
                self._slow.discard(args[0])
        if slow:
            moved = nbytes_of(name, args) if name in _MOVES else 0
            pause = self._done_at(start, moved) + self.latency - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            with self._lock:
                self.nbytes += moved
                self.seconds += time.monotonic() - start
        return result

    def _is_slow(self, target: Any) -> bool:
        if isinstance(target, int):
            return target in self._slow
        return os.path.join(REAL.realpath(os.path.abspath(os.fsdecode(target))), "").startswith(self._below)

    def _done_at(self, start: float, nbytes: int) -> float:
        """Return when the file system has moved bytes of a call that came at `start`, on the system's monotonic
        clock."""
        takes = nbytes / self.bandwidth
        with self._lock:
            if self._clock < 0:
                self._free = max(self._free, start) + takes
                return self._free
            REAL.record_lock(self._clock, fcntl.F_SETLKW, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
            try:
                # a file that was just made reads as time 0
                kept = bytearray(_TIME.size)
                REAL.pread_into(self._clock, kept, 0)
                done: float = max(_TIME.unpack(kept)[0], start) + takes
                REAL.pwrite(self._clock, _TIME.pack(done), 0)
            finally:
                REAL.record_lock(self._clock, fcntl.F_SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 1, 0))
            return done
