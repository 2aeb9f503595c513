"""Rank 0 holds the files of a session open, and locks them against other processes that would write them.

Knows: descriptors, record locks, processes. Does not know: headers, sessions; other ranks, which hold nothing.

The lock is an open file description lock (``F_OFD_SETLK`` of Linux) on the data file itself, for writing, on the byte
2^62, which no file reaches. No other file is needed, and nothing is left behind: the system removes the lock when the
last descriptor of that opening is closed, however the process ends. Where there are no such locks, ``flock`` is used.
Who holds the lock neither kind tells: to ``F_OFD_GETLK`` and ``F_GETLK`` alike, Linux answers process -1.

Rules
-----
1. A writer holds the lock of its file from before the header is read, or before the file has a name, until the close.
2. A file that is replaced is locked as well, until the new one, locked, has the name. So a name never stands for an
   unlocked file that somebody writes.
3. A reader neither takes nor checks a lock.
4. A lock is given back by name before the descriptor is closed: a child between fork and exec may have a copy.
5. A forked child closes its copies: the lock ends with the process that took it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Callable
from contextlib import suppress
from weakref import WeakSet

from pnc_vol.errors import LOCK_TAKEN, NO_LOCKS, LockedError
from pnc_vol.settings.options import launched
from pnc_vol.system import System, is_open
from pnc_vol.warn import warn_once

__all__ = ["Held", "Key"]

Key = tuple[int, int]
"""Device and inode."""

_FLOCK = struct.Struct("hhqqi4x")
"""``struct flock`` of Linux's C libraries with 64-bit offsets: type, whence, start, length, process."""
_START = 1 << 62
_OFD = hasattr(fcntl, "F_OFD_SETLK")

_all: WeakSet[Held] = WeakSet()


def _forget() -> None:
    for held in _all:
        held.forget()


os.register_at_fork(after_in_child=_forget)


class Held:
    """Descriptors by file.

    Parameters
    ----------
    system : System
    path : str, for messages.
    locking : bool or "best-effort" or None
        None: as "best-effort", with a warning where a file system has no locks; see `Options.locking`.

    Attributes
    ----------
    fds : dict, descriptors by device and inode.
    """

    def __init__(self, system: System, path: str, locking: bool | str | None = False) -> None:
        self.system = system
        self.path = path
        self.locking = locking
        self.fds: dict[Key | None, int] = {}
        _all.add(self)

    def keep(self, fd: int, key: Key | None = None) -> Key:
        """Keep a descriptor, to be closed by `drop`, `only` or `release`."""
        if key is None:
            there = self.system.fstat(fd)
            key = there.st_dev, there.st_ino
        self.fds[key] = fd
        return key

    def take(self, path: str) -> None:
        """Open a file for writing, lock and keep it.

        Raises
        ------
        LockedError, OSError
        """
        fd = self.system.open(path, os.O_WRONLY)
        try:
            self.lock(fd)
            self.keep(fd)
        except BaseException:
            self.system.close(fd)
            raise

    def lock(self, fd: int) -> None:
        """Lock an open file for writing, as long as it is open by this descriptor.

        Raises
        ------
        LockedError
            Another opening of the file, of any process, has it.
        OSError
            The file system has no locks, and ``locking=True``.
        """
        if self.locking is False:
            return
        try:
            if not _OFD:
                self.system.flock(fd)
                return
            self.system.record_lock(fd, fcntl.F_OFD_SETLK, _packed(fcntl.F_WRLCK))
        except OSError as error:
            if error.errno in LOCK_TAKEN:
                raise self._refused(fd) from None
            if error.errno not in NO_LOCKS:
                raise
            self._without(error)

    def _refused(self, fd: int) -> LockedError:
        there = self.system.fstat(fd)
        if any((there.st_dev, there.st_ino) in held.fds for held in tuple(_all) if held is not self):
            who = "this process itself, in another session"
        else:
            who = "another process"
        advice = (
            f"wait until it is closed there ('lsof {self.path}', on the machine where it runs, finds it); "
            "locking=False opens the file nevertheless, if nobody writes to it"
        )
        if launched():
            advice = (
                "this is a process of an MPI job: to write one file from all ranks pass driver='mpio' and "
                "comm=MPI.COMM_WORLD, or give each rank a file of its own"
            )
        text = f"unable to lock file: held by {who}, which has it open for writing; {advice}"
        return LockedError(errno.EAGAIN, text, self.path)

    def _without(self, error: OSError) -> None:
        """Go on, or fail, where there are no locks."""
        if self.locking is True:
            text = (
                f"the file system has no locks ({error.strerror}); pass locking='best-effort', or set "
                "HDF5_USE_FILE_LOCKING=BEST_EFFORT, to write without one"
            )
            raise OSError(error.errno, text, self.path) from error
        if self.locking is None:
            warn_once(
                "no file locks",
                f"{self.path}: the file system has no locks ({error.strerror}), so two processes could write "
                "this file at the same time (locking='best-effort' or False switches this warning off)",
            )

    def may_replace(self, path: str) -> None:
        """Lock and keep what stands under a name, so that another file may take its place.

        Raises
        ------
        LockedError, OSError
        """
        with suppress(FileNotFoundError):
            while True:
                there = self.system.stat(path)
                if (there.st_dev, there.st_ino) in self.fds:
                    return
                self.take(path)

    def where(self, path: str, key: Key | None) -> os.stat_result | None:
        """Return what stands under `path` if that is the file `key`; None if it is another one, or nothing."""
        try:
            there = self.system.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return there if key is None or (there.st_dev, there.st_ino) == key else None

    def name_of(self, key: Key | None) -> str:
        """Return the name that a file has now, if the system knows it; else ""."""
        fd = self.fds.get(key, -1)
        name = self.system.name_of(fd) if fd >= 0 else ""
        return name if name and self.where(name, key) is not None else ""

    def stat(self, key: Key | None) -> os.stat_result:
        """Return what the system says of a file that may have no name any more."""
        fd = self.fds.get(key, -1)
        if fd < 0:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.path)
        return self.system.fstat(fd)

    def drop(self, key: Key | None) -> None:
        """Let go of one file."""
        if key not in self.fds:
            return
        # of a descriptor that was closed, after an interruption, another file may have the number, and a lock
        if self.locking is not False and is_open(self.fds[key]):
            if _OFD:
                _quietly(self.system.record_lock, self.fds[key], fcntl.F_OFD_SETLK, _packed(fcntl.F_UNLCK))
            else:
                _quietly(self.system.flock, self.fds[key], fcntl.LOCK_UN)
        # Ctrl-C before it was closed leaves the descriptor to the next call.
        _quietly(self.system.close, self.fds[key])
        del self.fds[key]

    def without(self, key: Key | None) -> Held:
        """Return the descriptors of all files but one, which alone stays here."""
        made = Held(self.system, self.path, self.locking)
        made.fds = {other: self.fds.pop(other) for other in tuple(self.fds) if other != key}
        return made

    def only(self, key: Key | None) -> None:
        """Let go of all files but one."""
        for other in tuple(self.fds):
            if other != key:
                self.drop(other)

    def release(self) -> None:
        """Let go of all."""
        self.only(None)

    def forget(self) -> None:
        """Close the descriptors that a forked child got; the lock stays with its parent."""
        fds, self.fds = self.fds, {}
        for fd in fds.values():
            _quietly(self.system.close, fd)


def _quietly(call: Callable[..., object], *args: object) -> None:
    """Call something whose failure changes nothing."""
    try:
        call(*args)
    except OSError:
        return


def _packed(kind: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, _START, 1, 0)
