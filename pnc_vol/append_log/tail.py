"""`Tail` appends to a file through a window of memory; private files and the lock of their writer are here, too.

Knows: descriptors, windows. Does not know: what the bytes mean.

Rules
-----
1. A private file is 0600, and is never made or opened through a symbolic link.
2. A write is whole or an error; after an error the end is where it was.
3. Little is reserved at first, and more each time, so that a small log is small and a full device is an error here.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from pnc_vol.append_log.private_folders import lock_patiently
from pnc_vol.append_log.records import SLOT_BYTES, Share
from pnc_vol.errors import FULL
from pnc_vol.system import PAGE, System, is_open
from pnc_vol.system.full_io import reserve, write_all

__all__ = [
    "LARGE",
    "Tail",
    "create_private",
    "lock_of_writer",
]

_KEPT = 16
"""Windows of the largest size that are kept: opening one again takes a call for each page that is stored to."""

LARGE = 2 << 10
"""Bytes from which on data is written by a call, if not told otherwise."""


def create_private(system: System, path: str, *, exclusive: bool = True) -> int:
    """Make a file that only its user may read and write.

    Parameters
    ----------
    exclusive : bool, refuse a file that is there already, which another rank may have made.

    Returns
    -------
    int
        A descriptor, for reading and writing.

    Raises
    ------
    OSError
        It cannot be made, or is there, or is a symbolic link.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return system.open(path, flags | (os.O_EXCL if exclusive else 0), 0o600)


def lock_of_writer(system: System, path: str) -> int:
    """Return a descriptor whose lock says that the writer of a file lives.

    It is never mapped: while somebody looks into /proc, the windows of a killed process outlive it, and with them
    the locks of what they show.
    """
    fd = system.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    # somebody may look just now whether the writer lives
    lock_patiently(system, fd)
    return fd


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
    large : int
        Bytes from which on data is written by a call; if it is more than usual, the pages of a window are made when it
        is opened, which takes a third of the time of making them one by one, and windows are kept while the file is.
    """

    __slots__ = (
        "_kept", "_leaving", "_reserved", "_size",
        "begin", "end", "fd", "large", "limit", "most", "share", "system", "window",
    )  # fmt: skip

    def __init__(self, system: System, fd: int, most: int, share: Share | None = None, *, large: int = LARGE) -> None:
        self.system = system
        self.fd = fd
        self.most = most
        self.share = share
        self.large = large
        self.end = 0
        self.begin = self.limit = 0
        self._size = PAGE // 4
        self._reserved = 0
        self._kept: list[tuple[Any, int, int]] = []
        self._leaving: list[Any] = []
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
        if len(data) >= self.large or (self.share is not None and self.share.cuts(end, after)):
            # A call costs less than touching new pages of the window.
            self.extend(data)
            return
        if after > self.limit:
            self._move(end, len(data))
        self.window[end - self.begin : after - self.begin] = data
        self.end = after

    def append_head(self, data: bytes) -> None:
        """Put bytes at the end that may end in many zeros: nothing is reserved for these, see `provide`.

        Raises
        ------
        OSError
            The end is where it was.
        """
        # What is changed in place first is in the pages that are written.
        used = data[: -(-(len(data.rstrip(b"\0")) + SLOT_BYTES) // PAGE) * PAGE]
        if len(used) == len(data) or self.share is not None:
            self.append(data)
            return
        # The file is as long as it says before it says so.
        reserve(self.system, self.fd, self.end + len(data), PAGE)
        write_all(self.system, self.fd, memoryview(used), self.end)
        self.end += len(data)
        self._reserved = self.end + PAGE

    def provide(self, offset: int, nbytes: int) -> None:
        """Make sure that there is room for bytes that were left out.

        Raises
        ------
        OSError
            There is none.
        """
        reserve(self.system, self.fd, offset, nbytes)

    def reserve(self, nbytes: int) -> None:
        """Make sure that there is room for some bytes at the end of a file that is not shared; no window is opened.

        Raises
        ------
        OSError
            There is none.
        """
        if self.end + nbytes > max(self.limit, self._reserved):
            size = max(nbytes, min(4 * self._size, self.most))
            reserve(self.system, self.fd, self.end, size)
            self._reserved, self._size = self.end + size, size

    def extend(self, data: memoryview | bytes) -> None:
        """Put bytes at the end by a call, however few.

        Raises
        ------
        OSError
            The end is where it was.
        """
        self._write(data, self.end)
        self.end += len(data)

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
        """Return where bytes stand in the file: (offset, nbytes) pairs."""
        return [(offset, nbytes)] if self.share is None else self.share.pieces(offset, nbytes)

    def _move(self, end: int, nbytes: int) -> None:
        """Open the window at `end`, four times as large as the last one if there is room, or one that was kept."""
        for window, begin, limit in self._kept:
            if begin <= end and end + nbytes <= limit:
                # Somebody may have cut the file meanwhile.
                reserve(self.system, self.fd, begin, limit - begin)
                self._release_mappings()
                self.window, self.begin, self.limit = window, begin, limit
                return
        base = end // PAGE * PAGE
        need = -(-(end + nbytes - base) // PAGE) * PAGE
        (at, size), *_ = self.pieces(base, max(need, min(4 * self._size, self.most)))
        while True:
            try:
                reserve(self.system, self.fd, at, size)
                break
            except OSError as error:
                if size == need or error.errno not in FULL:
                    raise
                size = max(need, size // 4 // PAGE * PAGE)
        moved = self.system.mmap(self.fd, size, at, populate=self.large > LARGE)
        self._release_mappings()
        self.window, self.begin, self.limit, self._size = moved, base, base + size, size
        if size == self.most and self.large > LARGE and self.share is None and len(self._kept) < _KEPT:
            self._kept.append((moved, self.begin, self.limit))

    def cut(self, end: int, *, keep: int = 0) -> None:
        """Let the file end at `end`; in a shared file the bytes behind it are just not counted any more.

        The next window is about as large as what is cut off.

        Parameters
        ----------
        keep : int, bytes of a file that are not cut off but just not counted: to make pages anew takes time.
        """
        if self.share is None:
            self._size = max(min(self.end - end, self.most) // 4, PAGE // 4)
            self._release_mappings()
            for kept in [kept for kept in self._kept if kept[2] > keep]:
                kept[0].close()
                self._kept.remove(kept)
            if self.end > keep:
                self.system.ftruncate(self.fd, max(keep, end))
            self._reserved = min(self._reserved, max(keep, end))
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
        """Let go of all windows; the next append opens one."""
        self._release_mappings()
        while self._kept:
            self._kept.pop()[0].close()

    def _release_mappings(self) -> None:
        """Let go of the window, if it is not one of those that are kept."""
        # First no longer used, then closed; what an interruption comes into, the next call finishes.
        if self.window is not None and all(self.window is not kept for kept, _, _ in self._kept):
            self._leaving.append(self.window)
        self.window, self.begin, self.limit = None, 0, 0
        while self._leaving:
            self._leaving[-1].close()
            self._leaving.pop()

    def leave(self) -> None:
        """Let go of the file as it is."""
        self.give_up_window()
        self.system.close(self.fd)

    def close(self) -> None:
        """Give up the window, and what was reserved beyond the end; can be called again."""
        self.give_up_window()
        if self.share is None and is_open(self.fd):
            with suppress(OSError):
                self.system.ftruncate(self.fd, self.end)
        self.system.close(self.fd)
