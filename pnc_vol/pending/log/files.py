"""The files of one rank's log: where they are, and how bytes get to their ends.

Knows: folders, names, descriptors. Does not know: what the bytes mean.

Rules
-----
1. Every job has a folder of its own (0700), named after the full path of the file and a random token, so that two
   jobs, or two files of one name, never meet. Files are 0600, made with `O_EXCL` and never through a symbolic link.
2. A write is whole or an error; after an error the ends are where they were.
3. The folder is locked while its job lives: what is found unlocked was left by a job that is gone.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from contextlib import suppress
from typing import Any

from pnc_vol.system import System, is_folder, read_whole, write_all

__all__ = ["LogFiles", "Tail", "folder_for", "left_behind", "logs_in", "pointer_path", "remove_folder", "stem_of"]

SUFFIXES = (".meta", ".data", ".commit", ".defs")
_PREFIX = "pncbb-"
_PAGE = 64 << 10
"""Bytes; a multiple of every page size in use."""
_WINDOW = 256 << 10
_DATA_WINDOW = 4 << 20


def stem_of(path: str) -> str:
    """The part of a log's name that tells a person which file it belongs to."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", os.path.basename(path))[:64] or "file"


def _key(path: str) -> str:
    digest = hashlib.sha256(os.path.abspath(path).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return f"{_PREFIX}{stem_of(path)}-{digest}-"


def folder_for(system: System, path: str, parent: str) -> str:
    """Make the folder for the logs of one job.

    Raises
    ------
    OSError
        `parent` is no folder that one can write to.
    """
    folder = os.path.join(parent, _key(path) + system.token())
    try:
        system.mkdir(folder, 0o700)
    except OSError as error:
        raise type(error)(
            error.errno, f"nc_burst_buf_dirname: no log folder can be made here ({error.strerror})", parent
        ) from error
    return folder


def leftovers(system: System, path: str, parent: str) -> list[str]:
    """Folders of logs of this file whose job is gone, oldest first."""
    found = []
    key = _key(path)
    with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        for name in system.listdir(parent):
            folder = os.path.join(parent, name)
            if name.startswith(key) and not is_alive(system, folder):
                found.append((system.stat(folder).st_mtime_ns, folder))
    return [folder for _, folder in sorted(found)]


def pointer_path(path: str) -> str:
    """The name of the note beside a file that says where its logs are while they hold what the file does not."""
    head, tail = os.path.split(path)
    return os.path.join(head, f".{tail}.pncbb")


def left_behind(system: System, path: str, parent: str) -> list[str]:
    """Folders of logs of this file whose job is gone: in `parent`, and where the note beside the file says.

    The note is not trusted: what it names counts only if its name is that of a log folder of this very file.
    """
    folders = leftovers(system, path, parent)
    with suppress(OSError, UnicodeDecodeError):
        told = read_whole(system, pointer_path(path), limit=4096).decode().strip()
        known = os.path.basename(told).startswith(_key(path)) and is_folder(system, told)
        if known and told not in folders and not is_alive(system, told):
            folders.append(told)
    return [folder for folder in folders if logs_in(system, folder)]


def logs_in(system: System, folder: str) -> list[str]:
    """The logs of a folder, without their suffixes, sorted."""
    return sorted(
        os.path.join(folder, name[: -len(".meta")]) for name in system.listdir(folder) if name.endswith(".meta")
    )


def is_alive(system: System, folder: str) -> bool:
    """Whether the job of a folder still runs on this machine."""
    for name in system.listdir(folder):
        if name.endswith(".commit"):
            fd = system.open(os.path.join(folder, name), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                system.flock(fd, exclusive=True)
            except OSError as error:
                if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN):
                    return True
            finally:
                system.close(fd)
    return False


def remove_folder(system: System, folder: str) -> None:
    """Remove the logs of a job, all of whose posts are in the file."""
    for name in system.listdir(folder):
        system.unlink(os.path.join(folder, name))
    system.rmdir(folder)


class Tail:
    """The end of a file that grows, through a window of memory.

    What is stored in the window is the kernel's at once: a process that is killed loses nothing of it, and a post takes
    no system call. The space behind a window is reserved before it is used, so that a full device is an error here
    and never a signal.

    Parameters
    ----------
    system : System
    fd : int
    window : int, bytes, a multiple of the page size.
    """

    def __init__(self, system: System, fd: int, window: int) -> None:
        self.system = system
        self.fd = fd
        self.window = window
        self.end = 0
        self._base = self._limit = 0
        self._map: Any = None

    def append(self, data: memoryview | bytes) -> None:
        """Put bytes at the end.

        Raises
        ------
        OSError
            The end is where it was.
        """
        end = self.end
        after = end + len(data)
        if after > self._limit:
            if len(data) > self.window // 2:
                # Large ones go their own way.
                write_all(self.system, self.fd, data, end)
                self.end = after
                return
            self._move(end)
        self._map[end - self._base : after - self._base] = data
        self.end = after

    def _move(self, end: int) -> None:
        """Open the window at `end`."""
        base = end // _PAGE * _PAGE
        self.system.fallocate(self.fd, base, self.window)
        moved = self.system.mmap(self.fd, self.window, base)
        self._unmap()
        self._map, self._base, self._limit = moved, base, base + self.window

    def cut(self, end: int) -> None:
        """Let the file end at `end`."""
        self._unmap()
        self.system.ftruncate(self.fd, end)
        self.end = end

    def _unmap(self) -> None:
        if self._map is not None:
            self._map.close()
        self._map, self._base, self._limit = None, 0, 0

    def close(self) -> None:
        """Give up the window, and what was reserved beyond the end."""
        self._unmap()
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

    Attributes
    ----------
    meta, data, commit, defs : Tail
    """

    def __init__(self, system: System, base: str) -> None:
        self.system = system
        self.base = base
        self._tails: dict[str, Tail] = {}
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            for suffix in SUFFIXES:
                fd = system.open(base + suffix, flags, 0o600)
                self._tails[suffix] = Tail(system, fd, _DATA_WINDOW if suffix == ".data" else _WINDOW)
            with suppress(OSError):
                system.flock(self._tails[".commit"].fd, exclusive=True)
        except OSError:
            self.close(delete=True)
            raise
        self.meta, self.data, self.commit, self.defs = (self._tails[suffix] for suffix in SUFFIXES)

    @property
    def nbytes(self) -> int:
        """Bytes of all four files."""
        return self.meta.end + self.data.end + self.commit.end + self.defs.end

    def sync(self) -> None:
        """Bring all to stable storage, the commit records last."""
        for tail in (self.defs, self.data, self.meta, self.commit):
            self.system.fdatasync(tail.fd)

    def close(self, *, delete: bool) -> None:
        """Close the files, and remove them and their folder if asked."""
        for suffix, tail in self._tails.items():
            if delete:
                with suppress(OSError):
                    self.system.unlink(self.base + suffix)
            tail.close()
        self._tails = {}
        if delete:
            # The last rank of the job removes the folder; before, it is not empty.
            with suppress(OSError):
                self.system.rmdir(os.path.dirname(self.base))
