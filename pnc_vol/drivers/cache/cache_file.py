"""The cache file of one process: sparse, with the offsets of the global file.

Knows: a private folder, a descriptor. Does not know: the global file, threads, what is in the log.

Rules
-----
1. The folder is private (0700) to one job and one file: its name holds a hash of the whole path of the global file and
   a token of the job. The file in it is private (0600), and is this process's alone: two processes never share pages,
   locks or an end of the file.
2. Where a write does not take its space for good by itself, it is reserved before the data are written.
"""

from __future__ import annotations

import os
from contextlib import suppress

from pnc_vol.append_log.private_folders import join_folder, name_of_folders, neighbour
from pnc_vol.append_log.tail import create_private
from pnc_vol.drivers.base import Memory
from pnc_vol.drivers.cache.ranges import Ranges, ranges_of
from pnc_vol.drivers.vectored_io import get_extents, put_extents
from pnc_vol.extents.model import Extents
from pnc_vol.full_io import read_at, write_all
from pnc_vol.system import PAGE, System

__all__ = ["PREFIX", "CacheFile", "folder_of", "note_of"]

PREFIX = "pnccache-"
_MOST_RESERVED = 256
"""Ranges of one write that are reserved by a call each; more are small, and are reserved by being written."""


def folder_of(system: System, parent: str, path: str, job: str) -> str:
    """Make the folder for the caches that one job has of one file, or join it.

    Parameters
    ----------
    path : str, of the global file.
    job : str, a token that the ranks of the job share.

    Raises
    ------
    OSError
    """
    folder = os.path.join(parent, name_of_folders(PREFIX, path) + job)
    advice = (
        "e10_cache_path: no cache can be made here ({}); give a directory on node-local storage where you may write, "
        "or open the file without a cache (e10_cache=disable)"
    )
    join_folder(system, folder, advice)
    return folder


def note_of(path: str) -> str:
    """The name of the note beside a file that says where its caches are."""
    return neighbour(path, "pncc")


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
        put_extents(extents, memory, lambda buffers, offset: write_all(self.system, self.fd, buffers, offset))

    def _take_space(self, ranges: Ranges) -> None:
        """Reserve whole pages, so that ranges of one page are one."""
        start = ranges.start // PAGE * PAGE
        pages = ranges_of(start, -(-ranges.end // PAGE) * PAGE - start)
        if pages.start.size <= _MOST_RESERVED:
            for first, end in zip(pages.start.tolist(), pages.end.tolist(), strict=True):
                self.system.fallocate(self.fd, first, end - first)

    def read(self, extents: Extents, memory: Memory) -> int:
        """Read extents; bytes."""
        return get_extents(extents, memory, lambda buffers, offset: read_at(self.system, self.fd, buffers, offset))[0]

    def empty(self) -> None:
        """Give back all space: nothing in the file is needed any more.

        Raises
        ------
        OSError
        """
        self.system.ftruncate(self.fd, 0)

    def allocated(self) -> int:
        """Bytes that the file takes on the device."""
        return self.system.fstat(self.fd).st_blocks * 512

    def sync(self) -> None:
        """Bring what is in the file to stable storage."""
        self.system.fdatasync(self.fd)

    def close(self, *, keep: bool) -> None:
        """Let go of the file, and remove it with its folder unless it is to be kept."""
        with suppress(OSError):
            self.system.close(self.fd)
        if not keep:
            with suppress(OSError):
                self.system.unlink(self.path)
            with suppress(OSError):
                # The last process of the job that is through on this node.
                self.system.rmdir(os.path.dirname(self.path))
