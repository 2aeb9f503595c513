"""Recording every change that a program makes to a folder of files, with its data.

Knows: the calls of `pnc_vol.system.System`, files and folders below one folder. Does not know: drivers, files' formats,
what a crash leaves (`states`).

Rules
-----
1. What is stored through a writable window (`System.mmap`) is found by comparing the file with what is known of it,
   before each later call. Between two calls the order of such stores is not known, so they are one change.
2. Calls that fail change nothing. Changes outside of the folder, and of files without a name, are not recorded.
3. Random names are the same in every run, so that a state can be found again by its number.
"""

from __future__ import annotations

import os
import stat
import threading
from contextlib import suppress
from typing import Any

from crash.disk import (
    Change,
    Cut,
    Disk,
    FolderSynced,
    Labelled,
    Made,
    Mode,
    Named,
    Renamed,
    Stored,
    Synced,
    Unnamed,
    Written,
)  # fmt: skip
from pnc_vol.testing.faults import HookedSystem

__all__ = ["RECORDED", "UNCHANGING", "Rebuilt", "Recorder"]

RECORDED = frozenset(
    {"open", "close", "pwrite", "pwritev", "ftruncate", "fallocate", "fsync", "fdatasync", "fsync_dir", "rename"}
    | {"link", "unlink", "mkdir", "rmdir", "fchmod", "setxattr", "copy_range", "mmap", "token"}
)
"""Calls that `Recorder` follows."""

UNCHANGING = frozenset(
    {
        "pread_into",
        "preadv",
        "fstat",
        "stat",
        "lstat",
        "listdir",
        "flock",
        "fchown",
        "memory_file",
        "realpath",
        "next_data",
    }
    | {"getpid", "getxattr", "listxattr", "record_lock", "name_of"}
)
"""Calls that leave a tree as it is, as far as a `Disk` knows it. A test holds that every call is in one of the two."""

_BLOCK = 64
"""Bytes that are compared together to find what was stored through a window."""

_BY_PLACE = frozenset({"st_mode", "st_ino", "st_dev", "st_nlink", "st_uid", "st_gid", "st_size"})
"""Fields that `os.stat_result` takes from its sequence; of times this has whole seconds alone."""


class Recorder(HookedSystem):
    """A system that writes down the changes below one folder.

    Parameters
    ----------
    root : str
        A folder that exists; what is in it is where the recording begins.
    inner : HookedSystem, optional
    token : int
        After which the random parts of names begin; names of an earlier recording may be in the folder.

    Attributes
    ----------
    start : Disk
        The tree at the beginning.
    changes : list of Change
        In the order in which the calls returned.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> system = Recorder(folder)
    >>> fd = system.open(folder + "/a", os.O_RDWR | os.O_CREAT, 0o600)
    >>> system.pwrite(fd, b"xy", 2)
    2
    >>> system.fsync(fd)
    >>> system.close(fd)
    >>> system.changes
    [Made(path='a', inode=1, mode=384, folder=False), Written(inode=1, offset=2, data=b'xy'), Synced(inode=1)]
    """

    def __init__(self, root: str, inner: HookedSystem | None = None, *, token: int = 0) -> None:
        super().__init__(inner or HookedSystem())
        self.root = self.inner.realpath(root)
        self.changes: list[Change] = []
        self.real: dict[int, int] = {}
        """Real inode numbers, by inode."""
        self._now = Disk()
        self._handles: dict[int, int] = {}
        self._windows: set[int] = set()
        self._held: dict[int, int] = {}
        """Descriptors of files with windows, by inode."""
        self._tokens = token
        self._lock = threading.RLock()
        self._scan("")
        self.start = self._now.copy()

    def _scan(self, folder: str) -> None:
        for name in self.inner.listdir(os.path.join(self.root, folder)):
            path = f"{folder}/{name}" if folder else name
            there = self.inner.lstat(os.path.join(self.root, path))
            inode = next((i for i, number in self.real.items() if number == there.st_ino), len(self.real) + 1)
            self.real[inode] = there.st_ino
            self._now.names[path] = inode
            self._now.add(inode, stat.S_IMODE(there.st_mode), folder=stat.S_ISDIR(there.st_mode))
            if stat.S_ISDIR(there.st_mode):
                self._scan(path)
            else:
                self._now.files[inode] = bytearray(self._content(os.path.join(self.root, path)))
                with suppress(OSError):
                    for label in self.inner.listxattr(os.path.join(self.root, path)):
                        value = self.inner.getxattr(os.path.join(self.root, path), label)
                        self._now.apply(Labelled(inode, label, value))

    def _content(self, path: str) -> bytes:
        fd = self.inner.open(path, os.O_RDONLY)
        try:
            return self._bytes_of(fd)
        finally:
            self.inner.close(fd)

    def _bytes_of(self, fd: int) -> bytes:
        content = bytearray(self.inner.fstat(fd).st_size)
        return bytes(content[: self.inner.pread_into(fd, content, 0)])

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name not in RECORDED:
            return super().call(name, args, kwargs)
        with self._lock:
            self.notice()
            if name == "token":
                self._tokens += 1
                return f"{self._tokens:016x}"
            gone = self._inode(args[0]) if name in ("rename", "unlink", "rmdir", "link") else 0
            result = super().call(name, args, kwargs)
            note = getattr(self, f"_note_{name}", None)
            if note is not None:
                note(gone or result, *args, **kwargs)
            return result

    def notice(self) -> None:
        """Record what was stored through windows since the last call."""
        pieces: list[Written] = []
        for inode, new in self._stored().items():
            old = self._now.files[inode]
            at = 0
            while old != new and at < len(new):
                # neighbouring blocks that differ are one piece
                end = at
                while end < len(new) and old[end : end + _BLOCK] != new[end : end + _BLOCK]:
                    end += _BLOCK
                if end > at:
                    pieces.append(Written(inode, at, new[at:end]))
                at = max(end, at + _BLOCK)
        if pieces:
            self._add(Stored(tuple(pieces)))

    def _stored(self) -> dict[int, bytes]:
        """Return what files with windows hold, all at one moment: other threads may store at the same time."""
        before: dict[int, bytes] | None = None
        while True:
            now = {inode: self._bytes_of(self._held[inode]) for inode in sorted(self._windows)}
            if len(now) < 2 or now == before:
                return now
            before = now

    def finish(self) -> None:
        """Let go of what is held; nothing is recorded any more."""
        self.notice()
        self._windows.clear()
        while self._held:
            self.inner.close(self._held.popitem()[1])

    # --------------------------------------------------------------------------------------------- each call

    def _add(self, change: Change) -> None:
        self._now.apply(change)
        self.changes.append(change)

    def _path(self, path: Any) -> str | None:
        """The path below the root, or None for one elsewhere."""
        text = os.path.abspath(os.fsdecode(path))
        if text == self.root:
            return ""
        return text[len(self.root) + 1 :] if text.startswith(self.root + "/") else None

    def _inode(self, path: Any) -> int:
        name = None if isinstance(path, int) else self._path(path)
        return self._now.names.get(name or "", 0)

    def _new(self, path: str, target: Any, *, folder: bool = False) -> int:
        there = self.inner.lstat(target)
        inode = len(self.real) + 1
        self.real[inode] = there.st_ino
        self._add(Made(path, inode, stat.S_IMODE(there.st_mode), folder))
        return inode

    def _note_open(self, fd: int, path: Any, flags: int, mode: int = 0o666, *, dir_fd: int | None = None) -> None:
        if dir_fd is not None and not os.path.isabs(os.fsdecode(path)):
            path = os.path.join(self.inner.realpath(f"/proc/self/fd/{dir_fd}"), os.fsdecode(path))
        name = self._path(path)
        # by another path, such as /proc/self/fd/7, it may be a file of the folder all the same
        inode = self._known(fd) if name is None else self._now.names.get(name, 0)
        if name is not None and not inode and flags & os.O_CREAT:
            inode = self._new(name, path)
        elif inode and flags & os.O_TRUNC and self._now.files.get(inode):
            self._add(Cut(inode, 0))
        self._handles[fd] = inode

    def _known(self, fd: int) -> int:
        number = self.inner.fstat(fd).st_ino
        there = {*self._now.names.values(), *self._handles.values()} - self._now.folders
        return next((inode for inode in there if inode and self.real[inode] == number), 0)

    def _note_close(self, result: Any, fd: int) -> None:
        self._handles.pop(fd, None)

    def _note_pwrite(self, done: int, fd: int, buffer: Any, offset: int) -> None:
        self._note_pwritev(done, fd, [buffer], offset)

    def _note_pwritev(self, done: int, fd: int, buffers: Any, offset: int) -> None:
        if inode := self._handles.get(fd):
            data = b"".join(memoryview(part).tobytes() for part in buffers)
            self._add(Written(inode, offset, data[:done]))

    def _note_copy_range(self, done: int, source: int, target: int, nbytes: int, start: int, offset: int) -> None:
        if inode := self._handles.get(target):
            data = bytearray(done)
            self.inner.pread_into(target, data, offset)
            self._add(Written(inode, offset, bytes(data)))

    def _note_ftruncate(self, result: Any, fd: int, nbytes: int) -> None:
        if inode := self._handles.get(fd):
            self._add(Cut(inode, nbytes))

    def _note_fallocate(self, result: Any, fd: int, offset: int, nbytes: int) -> None:
        inode = self._handles.get(fd)
        if inode and len(self._now.files[inode]) < offset + nbytes:
            self._add(Cut(inode, offset + nbytes))

    def _note_fchmod(self, result: Any, fd: int, mode: int) -> None:
        if inode := self._handles.get(fd):
            self._add(Mode(inode, mode))

    def _note_setxattr(self, result: Any, path: Any, name: str, value: bytes, flags: int = 0) -> None:
        if inode := self._inode(path):
            self._add(Labelled(inode, name, bytes(value)))

    def _note_fsync(self, result: Any, fd: int) -> None:
        if inode := self._handles.get(fd):
            self._add(Synced(inode))

    def _note_fdatasync(self, result: Any, fd: int) -> None:
        if inode := self._handles.get(fd):
            self._add(Synced(inode, whole=False))

    def _note_fsync_dir(self, result: Any, path: Any) -> None:
        name = self._path(path)
        if name is not None:
            self._add(FolderSynced(name))

    def _note_mmap(
        self, result: Any, fd: int, nbytes: int, offset: int = 0, *, writable: bool = True, **_: Any
    ) -> None:
        inode = self._handles.get(fd)
        if writable and inode and inode not in self._windows:
            self._windows.add(inode)
            # read through a descriptor of its own: the program may close that one and go on with the window
            self._held[inode] = self.inner.open(f"/proc/self/fd/{fd}", os.O_RDONLY)

    def _note_rename(self, inode: Any, source: Any, target: Any, *, replace: bool = True) -> None:
        name, new = self._path(source), self._path(target)
        if inode and name is not None and new is not None:
            self._add(Renamed(name, new, inode))

    def _note_link(self, inode: Any, source: Any, target: Any) -> None:
        name = self._path(target)
        if inode and name is not None:
            self._add(Named(name, inode))

    def _note_unlink(self, inode: Any, path: Any, *, dir_fd: int | None = None) -> None:
        if dir_fd is not None and not os.path.isabs(os.fsdecode(path)):
            path = os.path.join(self.inner.realpath(f"/proc/self/fd/{dir_fd}"), os.fsdecode(path))
        name = self._path(path)
        if name is not None and self._now.names.get(name):
            self._add(Unnamed(name, self._now.names[name]))

    def _note_mkdir(self, result: Any, path: Any, mode: int = 0o777) -> None:
        name = self._path(path)
        if name is not None:
            self._new(name, path, folder=True)

    def _note_rmdir(self, inode: Any, path: Any) -> None:
        name = self._path(path)
        if inode and name is not None:
            self._add(Unnamed(name, inode))


class Rebuilt(HookedSystem):
    """A system on which files have the inode numbers that they had when they were recorded.

    A file that names another one by its inode number, as a journal does, is thereby right after a tree was rebuilt.

    Parameters
    ----------
    numbers : dict of int to int
        What to say, by the real inode number.
    inner : HookedSystem, optional
    """

    def __init__(self, numbers: dict[int, int], inner: HookedSystem | None = None) -> None:
        super().__init__(inner or HookedSystem())
        self.numbers = numbers

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = super().call(name, args, kwargs)
        if name in ("fstat", "stat", "lstat") and result.st_ino in self.numbers:
            told = list(result)
            # Python 3.13 refuses by name what is in the sequence, too
            named = [name for name in dir(result) if name.startswith("st_") and name not in _BY_PLACE]
            fields = {name: getattr(result, name) for name in named}
            told[1] = self.numbers[result.st_ino]
            return os.stat_result(told, fields)
        return result
