"""A run that changes no file: what is written goes to a folder of its own, and is seen there.

Knows: the calls of the system that take paths. Does not know: formats, sessions, scripts.

Rules
-----
1. A file is copied to the folder when it is first opened for writing; from then on its name stands for the copy.
2. What was not written is the real file. What was removed, or renamed away, is gone from view, and stays where it is.
3. The real files are never opened for writing, renamed or removed.
"""

from __future__ import annotations

import errno
import os
from typing import Any

from pnc_vol.system import REAL, System, exists
from pnc_vol.system.full_io import copy_all

__all__ = ["Aside"]

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class Aside(System):
    """The system, with all changes kept in a folder.

    Parameters
    ----------
    folder : str
        An empty one.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.gone: set[str] = set()
        """Real files that were removed or renamed."""

    def _key(self, path: Any) -> str:
        folder, name = os.path.split(os.path.abspath(os.fsdecode(path)))
        return os.path.join(REAL.realpath(folder), name)

    def _aside(self, key: str) -> str:
        return self.folder + key

    def _seen(self, path: Any) -> str:
        """The file that a name stands for now."""
        key = self._key(path)
        aside = self._aside(key)
        return aside if key in self.gone or exists(REAL, aside) else key

    def _own(self, path: Any, *, copy: bool = True) -> str:
        """The name in the folder, with what the real file holds if there is nothing yet."""
        key = self._key(path)
        aside = self._aside(key)
        self._folders(os.path.dirname(aside))
        if copy and not exists(REAL, aside) and key not in self.gone and exists(REAL, key):
            source = REAL.open(key, os.O_RDONLY)
            target = REAL.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                copy_all(REAL, source, target, REAL.fstat(source).st_size, 0, 0)
            finally:
                REAL.close(source)
                REAL.close(target)
        return aside

    def _folders(self, path: str) -> None:
        if not exists(REAL, path):
            self._folders(os.path.dirname(path))
            REAL.mkdir(path)

    def _taken(self, path: Any) -> None:
        if exists(REAL, self._seen(path)):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)

    # ------------------------------------------------------------------------------------------- the system

    def open(self, path: Any, flags: int, mode: int = 0o666, *, dir_fd: int | None = None) -> int:
        if dir_fd is not None:
            return super().open(path, flags, mode, dir_fd=dir_fd)
        if not flags & _WRITING:
            return super().open(self._seen(path), flags, mode)
        if flags & os.O_CREAT and flags & os.O_EXCL:
            self._taken(path)
        return super().open(self._own(path, copy=not flags & (os.O_TRUNC | os.O_EXCL)), flags, mode)

    def stat(self, path: Any) -> os.stat_result:
        return super().stat(self._seen(path))

    def lstat(self, path: Any) -> os.stat_result:
        return super().lstat(self._seen(path))

    def rename(self, source: Any, target: Any, *, replace: bool = True) -> None:
        if not replace:
            self._taken(target)
        super().rename(self._own(source), self._own(target, copy=False))
        self.gone.add(self._key(source))

    def link(self, source: Any, target: Any) -> None:
        self._taken(target)
        super().link(self._own(source), self._own(target, copy=False))

    def unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        if dir_fd is not None:
            super().unlink(path, dir_fd=dir_fd)
            return
        seen, key = self._seen(path), self._key(path)
        REAL.lstat(seen)
        if seen != key:
            super().unlink(seen)
        self.gone.add(key)

    def mkdir(self, path: Any, mode: int = 0o777) -> None:
        self._taken(path)
        super().mkdir(self._own(path, copy=False), mode)

    def rmdir(self, path: Any) -> None:
        seen, key = self._seen(path), self._key(path)
        if seen != key:
            super().rmdir(seen)
        self.gone.add(key)

    def listdir(self, path: str) -> list[str]:
        key = self._key(path)
        found: set[str] = set()
        for folder in (key, self._aside(key)):
            if exists(REAL, folder):
                found.update(REAL.listdir(folder))
        return sorted(name for name in found if exists(REAL, self._seen(os.path.join(key, name))))

    def getxattr(self, path: Any, name: str) -> bytes:
        return super().getxattr(self._seen(path), name)

    def setxattr(self, path: Any, name: str, value: bytes, flags: int = 0) -> None:
        super().setxattr(self._own(path), name, value, flags)

    def fsync_dir(self, path: Any) -> None:
        """Nothing is to outlive this run."""
