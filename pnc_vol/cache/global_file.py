"""How bytes get from the cache file to the global file.

Knows: two descriptors, or a driver below. Does not know: epochs, queues, ranks.

Rules
-----
1. A file of the operating system is written by a descriptor of its own: no thread calls MPI, and none waits for the
   lock of a driver that does.
2. The kernel copies where it can (`copy_file_range`); elsewhere pieces of ``ind_wr_buffer_size`` bytes are read and
   written. Ranges that touch are one by then.
"""

from __future__ import annotations

import errno
import time
from contextlib import suppress
from threading import local

import numpy as np

from pnc_vol.cache.cache_file import CacheFile, grow_file, write_extents
from pnc_vol.cache.watch import Watch
from pnc_vol.drivers.base import Driver, Memory
from pnc_vol.extents.blocks import rounds
from pnc_vol.extents.model import Extents
from pnc_vol.extents.ranges import Ranges
from pnc_vol.system import System
from pnc_vol.system.full_io import NO_COPY_RANGE

__all__ = ["GlobalFile"]

_LONG = 64 << 10
"""Mean bytes of ranges from which on a call for each is worth it."""


class GlobalFile:
    """The file that all is for.

    Parameters
    ----------
    system : System
    inner : Driver
    fd : int
        A descriptor of the file for writing, or -1: then `inner` is used.
    lent : bool
        The descriptor stays the caller's.
    copy_size : int
        Bytes of one copy.
    watch : Watch
    """

    def __init__(self, system: System, inner: Driver, fd: int, *, lent: bool, copy_size: int, watch: Watch) -> None:
        self._system, self._inner, self._fd, self._lent = system, inner, fd, lent
        self._copy_size, self._watch = copy_size, watch
        self._kernel_copies = fd >= 0
        self._room = local()

    @property
    def has_descriptor(self) -> bool:
        """Whether several threads can write at once."""
        return self._fd >= 0

    def carry(self, source: CacheFile, ranges: Ranges, thread: int) -> None:
        """Copy ranges from the cache file.

        Raises
        ------
        OSError
        """
        extents = ranges.extents
        if (
            self._kernel_copies
            and extents.nbytes >= _LONG * len(extents.length)
            and self._copy(source, extents, thread)
        ):
            return
        room: Memory | None = getattr(self._room, "memory", None)
        if room is None:
            room = self._room.memory = np.empty(self._copy_size, np.uint8)
        for part in rounds(extents, self._copy_size):
            packed = part._replace(place=part.place - part.place[0])
            nbytes = part.nbytes
            start = time.perf_counter()
            # What the cache file does not reach is a hole of a write that left no bytes: it cannot be.
            if source.read(packed, room) < nbytes:
                raise OSError(errno.EIO, f"the cache file {source.path} is shorter than what was written to it")
            start = self._watch.note("sync read", start, nbytes, thread)
            self.write(packed, room)
            self._watch.note("sync write", start, nbytes, thread)

    def _copy(self, source: CacheFile, extents: Extents, thread: int) -> bool:
        """Let the kernel copy; False if it does not for these files."""
        for offset, length in zip(extents.offset.tolist(), extents.length.tolist(), strict=True):
            done = 0
            while done < length:
                at, start = offset + done, time.perf_counter()
                try:
                    moved = self._system.copy_range(source.fd, self._fd, min(length - done, self._copy_size), at, at)
                except InterruptedError:
                    continue
                except OSError as error:
                    if error.errno not in NO_COPY_RANGE:
                        raise
                    moved = 0
                if not moved:
                    # 0 is what some kernels say of files that have bytes; a file that is too short is found out there.
                    self._kernel_copies = False
                    return False
                done += moved
                self._watch.note("sync write", start, moved, thread)
        return True

    def write(self, extents: Extents, memory: Memory) -> None:
        """Write extents by this process alone.

        Raises
        ------
        OSError
        """
        if self._fd < 0:
            self._inner.write(extents, memory)
        else:
            write_extents(self._system, self._fd, extents, memory)

    def grow(self, nbytes: int) -> None:
        """See `Driver.grow`."""
        if self._fd < 0:
            self._inner.grow(nbytes)
        else:
            grow_file(self._system, self._fd, nbytes)

    def close(self) -> None:
        """Let go of the descriptor."""
        if self._fd >= 0 and not self._lent:
            # What the file system says only now (quota, NFS) must not be lost.
            self._system.close(self._fd)

    def forget(self) -> None:
        """Close the descriptor that a forked child got."""
        if self._fd >= 0 and not self._lent:
            with suppress(OSError):
                self._system.close(self._fd)
