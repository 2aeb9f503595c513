"""`CacheFile` is where the bytes of one process wait, and `GlobalFile` the file to which they are copied.

Knows: a private folder, descriptors, a driver below. Does not know: epochs, queues, threads, what is in the log.

Rules
-----
1. A cache file is sparse, and has the offsets of the global file. Its folder is private (0700) to one job and one file:
   its name holds a hash of the whole path of the global file and a token of the job. The file in it is private (0600),
   and is this process's alone: two processes never share pages, locks or an end of the file. (E10 has one file for
   each node. Four processes wrote to one file and to four at the same rate; with four, a rank that fails leaves the
   others' caches whole, and a log is that of one rank.)
2. Where a write does not take its space for good by itself, it is reserved before the data are written.
3. A global file of the operating system is written by a descriptor of its own: no thread calls MPI, and none waits for
   the lock of a driver that does.
4. What is copied at a time has ``ind_wr_buffer_size`` bytes. Ranges that touch are one by then.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from threading import local

import numpy as np

from pnc_vol.append_log.tail import create_private
from pnc_vol.cache.watch import Watch
from pnc_vol.drivers.base import Driver, Memory
from pnc_vol.drivers.block_copy import Descriptors, copy_blocks
from pnc_vol.drivers.vectored_io import get_extents, put_extents
from pnc_vol.extents.merge import Ranges, ranges_of
from pnc_vol.extents.model import Extents
from pnc_vol.system import PAGE, System, can_reserve
from pnc_vol.system.full_io import read_at, write_all

__all__ = ["DATA", "CacheFile", "GlobalFile", "grow_file", "read_cached", "write_extents"]

DATA = ".cache"
"""Suffix of a cache file; those of its log are in `extent_log`."""
_MOST_RESERVED = 256
"""Ranges of one write that are reserved by a call each; more are small, and are reserved by being written."""


class CacheFile:
    """Where the bytes wait.

    Parameters
    ----------
    system : System
    path : str, of a file that does not exist.
    reserve : bool, whether space is to be reserved by a call of its own.

    Attributes
    ----------
    path : str
    fd : int

    Raises
    ------
    OSError
        It cannot be made.
    """

    def __init__(self, system: System, path: str, *, reserve: bool) -> None:
        if not can_reserve():
            raise OSError(errno.ENOTSUP, "a cache needs space that is reserved, and this system has no posix_fallocate")
        self.system, self.path, self._reserve = system, path, reserve
        self.fd = create_private(system, path)

    def write(self, extents: Extents, memory: Memory) -> None:
        """Write extents at their places.

        Raises
        ------
        OSError
            Which bytes were written is not known.
        """
        if self._reserve:
            self._take_space(ranges_of(extents.offset, extents.length))
        write_extents(self.system, self.fd, extents, memory)

    def _take_space(self, ranges: Ranges) -> None:
        """Reserve whole pages, so that ranges of one page are one."""
        start = ranges.start // PAGE * PAGE
        pages = ranges_of(start, -(-ranges.end // PAGE) * PAGE - start)
        if pages.start.size <= _MOST_RESERVED:
            for first, end in zip(pages.start.tolist(), pages.end.tolist(), strict=True):
                self.system.fallocate(self.fd, first, end - first)

    def read(self, extents: Extents, memory: Memory) -> int:
        """Read extents; bytes."""
        return _read_extents(self.system, self.fd, extents, memory)

    def empty(self) -> None:
        """Give back all space: nothing in the file is needed any more.

        Raises
        ------
        OSError
        """
        self.system.ftruncate(self.fd, 0)

    def allocated(self) -> int:
        """Return the number of bytes that the file takes on the device."""
        return self.system.fstat(self.fd).st_blocks * 512

    def sync(self) -> None:
        """Bring what is in the file to stable storage."""
        self.system.fdatasync(self.fd)

    def close(self, *, keep: bool) -> None:
        """Let go of the file, and remove it unless it is to be kept."""
        with suppress(OSError):
            self.system.close(self.fd)
        if not keep:
            with suppress(OSError):
                self.system.unlink(self.path)


def read_cached(system: System, path: str, extents: Extents, memory: Memory) -> int:
    """Read extents from the cache file of another process; bytes, fewer where the file ends."""
    fd = system.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return _read_extents(system, fd, extents, memory)
    finally:
        system.close(fd)


def _read_extents(system: System, fd: int, extents: Extents, memory: Memory) -> int:
    return get_extents(extents, memory, lambda buffers, offset: read_at(system, fd, buffers, offset))[0]


def write_extents(system: System, fd: int, extents: Extents, memory: Memory) -> None:
    """Write extents to a file of the operating system, by this process alone."""
    put_extents(extents, memory, lambda buffers, offset: write_all(system, fd, buffers, offset))


def grow_file(system: System, fd: int, nbytes: int) -> None:
    """Let a file have at least so many bytes; never shorter, and no byte changed."""
    if nbytes and system.fstat(fd).st_size < nbytes:
        # A thread, or another rank, may bring data there meanwhile: a zero that is written would take their place.
        system.fallocate(fd, nbytes - 1, 1)


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
