"""`GlobalFile` copies bytes from the cache file to the global file.

Knows: two descriptors, or a driver below. Does not know: epochs, queues, ranks.

Rules
-----
1. A file of the operating system is written by a descriptor of its own: no thread calls MPI, and none waits for the
   lock of a driver that does.
2. What is copied at a time has ``ind_wr_buffer_size`` bytes. Ranges that touch are one by then.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from threading import local

import numpy as np

from pnc_vol.cache.cache_file import CacheFile, grow_file, write_extents
from pnc_vol.cache.watch import Watch
from pnc_vol.drivers.base import Driver, Memory
from pnc_vol.drivers.block_copy import Descriptors, copy_blocks
from pnc_vol.extents.merge import Ranges
from pnc_vol.extents.model import Extents
from pnc_vol.system import System

__all__ = ["GlobalFile"]


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
    name : str or None, the path that the user knows.
    """

    def __init__(
        self, system: System, inner: Driver, fd: int, *, lent: bool, copy_size: int, watch: Watch, name: str | None
    ) -> None:
        self._system, self._inner, self._fd, self._lent = system, inner, fd, lent
        self._copy_size, self._watch, self.name = copy_size, watch, name
        self._descriptors: Descriptors | None = None
        self._room = local()

    @property
    def has_descriptor(self) -> bool:
        """Whether several threads can write at once."""
        return self._fd >= 0

    def has_name(self) -> bool:
        """Return whether somebody can find the file; else what a cache holds of it is worth nothing.

        A new layout that did not become the file, and a file whose place a new layout has taken, have none.
        """
        with suppress(OSError):
            return self._fd < 0 or self._system.fstat(self._fd).st_nlink > 0
        return True

    def carry(self, source: CacheFile, ranges: Ranges, thread: int) -> None:
        """Copy ranges from the cache file.

        Raises
        ------
        OSError
        """
        room: Memory | None = getattr(self._room, "memory", None)
        if room is None:
            room = self._room.memory = np.empty(self._copy_size, np.uint8)

        def too_short() -> OSError:
            # What the cache file does not reach is a hole of a write that left no bytes: it cannot be.
            return OSError(errno.EIO, f"the cache file {source.path} is shorter than what was written to it")

        if self._fd >= 0 and (self._descriptors is None or self._descriptors.source != source.fd):
            self._descriptors = Descriptors(self._system, source.fd, self._fd)
        copy_blocks(
            source.read,
            self.write,
            ranges.extents._replace(place=ranges.extents.offset),
            by_kernel=None if self._descriptors is None else self._descriptors.by_kernel,
            block=self._copy_size,
            room=room,
            too_short=too_short,
            note=lambda verb, start, nbytes: self._watch.note(f"sync {verb}", start, nbytes, thread),
        )

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
