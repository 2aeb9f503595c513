"""The cache file of one process is sparse, and has the offsets of the global file.

Knows: a private folder, a descriptor. Does not know: the global file, threads, what is in the log.

Rules
-----
1. The folder is private (0700) to one job and one file: its name holds a hash of the whole path of the global file and
   a token of the job. The file in it is private (0600), and is this process's alone: two processes never share pages,
   locks or an end of the file. (E10 has one file for each node. Four processes wrote to one file and to four at the
   same rate; with four, a rank that fails leaves the others' caches whole, and a log is that of one rank.)
2. Where a write does not take its space for good by itself, it is reserved before the data are written.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress

from pnc_vol.append_log.private_folders import join_folder
from pnc_vol.append_log.tail import create_private
from pnc_vol.drivers.base import Memory
from pnc_vol.drivers.vectored_io import get_extents, put_extents
from pnc_vol.extents.merge import Ranges, ranges_of
from pnc_vol.extents.model import Extents
from pnc_vol.system import CACHES_NOTED, PAGE, System, can_reserve, neighbour
from pnc_vol.system.full_io import read_at, write_all

__all__ = [
    "DATA",
    "CacheFile",
    "grow_file",
    "make_folder",
    "note_of",
    "read_cached",
    "write_extents",
]

DATA = ".cache"
"""Suffix of a cache file; those of its log are in `extent_log`."""
_MOST_RESERVED = 256
"""Ranges of one write that are reserved by a call each; more are small, and are reserved by being written."""


def make_folder(system: System, folder: str) -> None:
    """Make the folder for the caches that one job has of one file, or join it.

    Raises
    ------
    OSError
    """
    advice = (
        "e10_cache_path: no cache can be made here ({}); give a directory on node-local storage where you may write, "
        "or open the file without a cache (e10_cache=disable)"
    )
    join_folder(system, folder, advice)


def note_of(path: str) -> str:
    """Return the name of the note beside a file that says where its caches are."""
    return neighbour(path, CACHES_NOTED)


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
