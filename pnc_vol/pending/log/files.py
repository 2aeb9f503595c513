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
from typing import Any, NamedTuple

from pnc_vol.pending.log.reading import SHARED_BLOCK, shared_pieces
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
        if ".commit" in name:
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
    window : int, bytes, a multiple of the page size.
    share : Share
        How the file is shared with other ranks; offsets are those of this rank's own bytes.
    """

    def __init__(self, system: System, fd: int, window: int, share: Share | None = None) -> None:
        self.system = system
        self.fd = fd
        self.window = window
        self.share = share
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
            if len(data) > self.window // 2 or (self.share is not None and self.share.cuts(end, after)):
                # Large ones go their own way.
                view, done = memoryview(data), 0
                for at, nbytes in self.pieces(end, len(data)):
                    write_all(self.system, self.fd, view[done : done + nbytes], at)
                    done += nbytes
                self.end = after
                return
            self._move(end)
        self._map[end - self._base : after - self._base] = data
        self.end = after

    def pieces(self, offset: int, nbytes: int) -> list[tuple[int, int]]:
        """Where bytes stand in the file: (offset, nbytes) pairs."""
        return [(offset, nbytes)] if self.share is None else self.share.pieces(offset, nbytes)

    def _move(self, end: int) -> None:
        """Open the window at `end`."""
        base = end // _PAGE * _PAGE
        (at, nbytes), *_ = self.pieces(base, self.window)
        self.system.fallocate(self.fd, at, nbytes)
        moved = self.system.mmap(self.fd, nbytes, at)
        self._unmap()
        self._map, self._base, self._limit = moved, base, base + nbytes

    def cut(self, end: int) -> None:
        """Let the file end at `end`; in a shared file the bytes behind it are just not counted any more."""
        if self.share is None:
            self._unmap()
            self.system.ftruncate(self.fd, end)
        elif end < self._base:
            self._unmap()
        self.end = end

    def _unmap(self) -> None:
        if self._map is not None:
            self._map.close()
        self._map, self._base, self._limit = None, 0, 0

    def close(self) -> None:
        """Give up the window, and what was reserved beyond the end."""
        self._unmap()
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
    """

    def __init__(self, system: System, base: str, share: Share | None = None) -> None:
        self.system = system
        self.base = base
        self.share = share
        self._tails: dict[str, Tail] = {}
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            for suffix in SUFFIXES:
                shared = share if suffix in (".meta", ".data") else None
                exclusive = os.O_EXCL if shared is None else 0
                fd = system.open(self.path(suffix), flags | exclusive, 0o600)
                window = _DATA_WINDOW if suffix == ".data" else _WINDOW
                self._tails[suffix] = Tail(system, fd, window, shared)
            with suppress(OSError):
                system.flock(self._tails[".commit"].fd, exclusive=True)
        except OSError:
            self.close(delete=True)
            raise
        self.meta, self.data, self.commit, self.defs = (self._tails[suffix] for suffix in SUFFIXES)

    def path(self, suffix: str) -> str:
        """The path of one file; ranks that share a pair of logs have commit records of their own."""
        own = self.share is not None and suffix in (".commit", ".defs")
        return self.base + suffix + (f".{self.share.channel}" if own and self.share is not None else "")

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
                    self.system.unlink(self.path(suffix))
            tail.close()
        self._tails = {}
        if delete:
            # The last rank of the job removes the folder; before, it is not empty.
            with suppress(OSError):
                self.system.rmdir(os.path.dirname(self.base))
