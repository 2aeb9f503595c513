"""The files of one rank's log: how bytes are appended to them.

Knows: names, descriptors, windows. Does not know: what the bytes mean, which folder they are in.

Rules
-----
1. Files are 0600, made with `O_EXCL` and never through a symbolic link.
2. A write is whole or an error; after an error the ends are where they were.
3. Little is reserved at first, and more each time, so that a small log is small and a full device is an error here.
"""

from __future__ import annotations

import errno
import os
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from pnc_vol.log.decoding import SHARED_BLOCK, shared_pieces
from pnc_vol.log.encoding import MAX_NDIMS_AT
from pnc_vol.system import PAGE, System, write_all

__all__ = ["FULL", "LogFiles", "Share", "Tail"]

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Numbers of the errors that mean: no room."""

SUFFIXES = (".defs", ".commit", ".data", ".meta")
"""In the order in which they are made; they are removed in the other: where there is a metadata log, all is there."""
_PAGE = PAGE
_WINDOW = 1 << 20
_DATA_WINDOW = 1 << 20
LARGE = 2 << 10
"""Bytes from which on data is written by a call."""


class Share(NamedTuple):
    """A file that the ranks of a node share: block i of rank c of n is block ``i * n + c`` of the file.

    channel, channels : int, c and n.
    """

    channel: int
    channels: int

    def pieces(self, offset: int, nbytes: int) -> list[tuple[int, int]]:
        """Where a rank's own bytes stand in the file."""
        return shared_pieces(self.channel, self.channels, offset, nbytes)

    def size_of(self, physical: int) -> int:
        """Bytes that a rank may have in a file of so many bytes."""
        rounds, rest = divmod(physical, self.channels * SHARED_BLOCK)
        return rounds * SHARED_BLOCK + min(max(rest - self.channel * SHARED_BLOCK, 0), SHARED_BLOCK)

    def part_of(self, whole: bytes) -> bytes:
        """A rank's own bytes of a whole file."""
        return b"".join(whole[at : at + n] for at, n in self.pieces(0, self.size_of(len(whole))))

    def cuts(self, offset: int, end: int) -> bool:
        """Whether bytes of one post lie in two blocks."""
        return offset // SHARED_BLOCK != (end - 1) // SHARED_BLOCK


class Tail:
    """The end of a file that grows, through a window of memory.

    What is stored in the window is the kernel's at once: a process that is killed loses nothing of it, and a post takes
    no system call. The space behind a window is reserved before it is used, so that a full device is an error here
    and never a signal.

    Parameters
    ----------
    system : System
    fd : int
    most : int, bytes of the largest window, a multiple of the page size.
    share : Share
        How the file is shared with other ranks; offsets are those of this rank's own bytes.
    """

    __slots__ = ("_size", "begin", "end", "fd", "limit", "most", "share", "system", "window")

    def __init__(self, system: System, fd: int, most: int, share: Share | None = None) -> None:
        self.system = system
        self.fd = fd
        self.most = most
        self.share = share
        self.end = 0
        self.begin = self.limit = 0
        self._size = _PAGE // 4
        self.window: Any = None

    def append(self, data: memoryview | bytes) -> None:
        """Put bytes at the end.

        Raises
        ------
        OSError
            The end is where it was.
        """
        end = self.end
        after = end + len(data)
        if len(data) >= LARGE or (self.share is not None and self.share.cuts(end, after)):
            # A call costs less than touching new pages of the window.
            self._write(data, end)
            self.end = after
            return
        if after > self.limit:
            self._move(end, len(data))
        self.window[end - self.begin : after - self.begin] = data
        self.end = after

    def _write(self, data: memoryview | bytes, end: int) -> None:
        done = 0
        if self.share is None:
            done = self.system.pwrite(self.fd, data, end)
            if done == len(data):
                return
        view = memoryview(data)
        for at, nbytes in self.pieces(end + done, len(data) - done):
            write_all(self.system, self.fd, view[done : done + nbytes], at)
            done += nbytes

    def pieces(self, offset: int, nbytes: int) -> list[tuple[int, int]]:
        """Where bytes stand in the file: (offset, nbytes) pairs."""
        return [(offset, nbytes)] if self.share is None else self.share.pieces(offset, nbytes)

    def _move(self, end: int, nbytes: int) -> None:
        """Open the window at `end`, four times as large as the last one if there is room."""
        base = end // _PAGE * _PAGE
        need = -(-(end + nbytes - base) // _PAGE) * _PAGE
        (at, size), *_ = self.pieces(base, max(need, min(4 * self._size, self.most)))
        while True:
            try:
                self.system.fallocate(self.fd, at, size)
                break
            except OSError as error:
                if size == need or error.errno not in FULL:
                    raise
                size = max(need, size // 4 // _PAGE * _PAGE)
        moved = self.system.mmap(self.fd, size, at)
        self.give_up_window()
        self.window, self.begin, self.limit, self._size = moved, base, base + size, size

    def cut(self, end: int) -> None:
        """Let the file end at `end`; in a shared file the bytes behind it are just not counted any more."""
        if self.share is None:
            self.give_up_window()
            self.system.ftruncate(self.fd, end)
        elif end < self.begin:
            self.give_up_window()
        self.end = end

    def take_back(self, end: int) -> None:
        """Forget what was put behind `end`; if it cannot be cut off, it will be written over."""
        try:
            self.cut(end)
        except OSError:
            self.end = end

    def give_up_window(self) -> None:
        """Let go of the window; the next append opens one."""
        if self.window is not None:
            self.window.close()
        self.window, self.begin, self.limit = None, 0, 0

    def leave(self) -> None:
        """Let go of the file as it is."""
        self.give_up_window()
        self.system.close(self.fd)

    def close(self) -> None:
        """Give up the window, and what was reserved beyond the end."""
        self.give_up_window()
        if self.share is None:
            with suppress(OSError):
                self.system.ftruncate(self.fd, self.end)
        self.system.close(self.fd)


class LogFiles:
    """Four files that grow: entries, data, commit records, definitions.

    Parameters
    ----------
    system : System
    base : str
        Their path without suffix.
    share : Share, optional
        Entries and data are in files that other ranks of the node write to as well.

    Attributes
    ----------
    meta, data, commit, defs : Tail
    counters : memoryview of int64[2]
        ``max_ndims`` and ``num_entries`` in the header of the metadata log.
    """

    def __init__(self, system: System, base: str, share: Share | None = None) -> None:
        self.system = system
        self.base = base
        self.share = share
        self._tails: dict[str, Tail] = {}
        self._lock = -1
        self._page: Any = None
        self.counters: Any = None
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            for suffix in SUFFIXES:
                shared = share if suffix in (".meta", ".data") else None
                exclusive = os.O_EXCL if shared is None else 0
                fd = system.open(self.path(suffix), flags | exclusive, 0o600)
                window = _DATA_WINDOW if suffix == ".data" else _WINDOW
                self._tails[suffix] = Tail(system, fd, window, shared)
                if suffix == ".commit":
                    self._lock = self._locked(self.path(suffix))
        except OSError:
            # Other ranks may be about to make theirs: whoever made the folder removes it.
            self.close(delete=True, alone=True)
            raise
        self.defs, self.commit, self.data, self.meta = (self._tails[suffix] for suffix in SUFFIXES)
        _OPEN.add(self)

    def _locked(self, path: str) -> int:
        """A descriptor that says that the job lives.

        It is never mapped: while somebody looks into /proc, the windows of a killed process outlive it, and with them
        the locks of what they show.
        """
        fd = self.system.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        with suppress(OSError):
            self.system.flock(fd, exclusive=True)
        return fd

    def _unlock(self) -> None:
        if self._lock >= 0:
            self.system.close(self._lock)
            self._lock = -1

    def map_counters(self) -> None:
        """Map the counters of the header, which was written."""
        ((first_page, _),) = self.meta.pieces(0, _PAGE)
        self._page = self.system.mmap(self.meta.fd, _PAGE, first_page)
        self.counters = memoryview(self._page)[MAX_NDIMS_AT : MAX_NDIMS_AT + 16].cast("q")

    @property
    def closed(self) -> bool:
        """Whether they were closed."""
        return not self._tails

    def path(self, suffix: str) -> str:
        """The path of one file; ranks that share a pair of logs have commit records of their own."""
        own = self.share is not None and suffix in (".commit", ".defs")
        return self.base + suffix + (f".{self.share.channel}" if own and self.share is not None else "")

    @property
    def nbytes(self) -> int:
        """Bytes of all four files."""
        return self.meta.end + self.data.end + self.commit.end + self.defs.end

    def sizes(self) -> Iterator[tuple[str, int, int]]:
        """Of each file its path, the bytes that were written to it, and those that are there."""
        for suffix, tail in self._tails.items():
            there = self.system.fstat(tail.fd).st_size
            yield self.path(suffix), tail.end, there if tail.share is None else tail.share.size_of(there)

    def make_safe(self) -> None:
        """After somebody cut a file: let no store go to a window behind its end, which the system answers by a signal.

        What was cut off is not brought back: reading values meets their end.
        """
        for tail in self._tails.values():
            end = max(tail.limit, _PAGE)
            if tail is self.data:
                tail.give_up_window()
            elif tail.share is None and self.system.fstat(tail.fd).st_size < end:
                with suppress(OSError):
                    self.system.fallocate(tail.fd, 0, end)

    def sync(self) -> None:
        """Bring all to stable storage, the commit records last."""
        for tail in (self.defs, self.data, self.meta, self.commit):
            self.system.fdatasync(tail.fd)

    def sync_names(self) -> None:
        """Bring the names of the files, and of their folder, to stable storage."""
        folder = os.path.dirname(self.base)
        for name in (folder, os.path.dirname(folder)):
            self.system.fsync_dir(name or ".")

    def close(self, *, delete: bool, alone: bool = False) -> None:
        """Close the files, and remove them if asked; their folder too, if that is empty then, unless `alone`."""
        _OPEN.discard(self)
        if self._page is not None:
            self.counters.release()
            self._page.close()
            self._page = None
        for suffix, tail in reversed(self._tails.items()):
            if delete:
                with suppress(OSError):
                    self.system.unlink(self.path(suffix))
            tail.close()
        self._unlock()
        self._tails = {}
        if delete and not alone:
            # The last rank of the job removes the folder; before, it is not empty.
            with suppress(OSError):
                self.system.rmdir(os.path.dirname(self.base))

    def leave(self) -> None:
        """In a forked child: let go of files and windows, so that the lock ends with the job and not with the child."""
        with suppress(OSError):
            self._unlock()
        for tail in self._tails.values():
            with suppress(OSError):
                tail.leave()
        self._tails = {}


_OPEN: weakref.WeakSet[LogFiles] = weakref.WeakSet()


def _forked() -> None:
    while _OPEN:
        # One log that cannot be left must not keep the locks of the others.
        with suppress(BaseException):
            _OPEN.pop().leave()


os.register_at_fork(after_in_child=_forked)
