"""This module checks the name of a new file, makes the file, and gives it a name that must be new.

Knows: paths, permissions, links. Does not know: what is in the file.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from pnc_vol.disk.locking import Held, Key
from pnc_vol.system import System, cut_name
from pnc_vol.system.full_io import write_all

__all__ = [
    "ATTEMPTS", "beside", "beside_start", "check_place", "mode_of_new", "name_new", "replaced_too_often", "write_new",
]  # fmt: skip

ATTEMPTS = 100
"""Looks at a file that another process changes, until it is said that it cannot be opened."""

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_FILES = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def replaced_too_often(path: str) -> OSError:
    """Return what is said of a file whose name never stands still."""
    text = f"other processes replaced or changed the file {ATTEMPTS} times while it was being opened; try again"
    return OSError(errno.EBUSY, text, path)


def mode_of_new(system: System, target: str, *, exclusive: bool, held: Held | None = None) -> int | None:
    """Return the permissions of a file that will take the place of `target`, which is locked in `held`.

    Returns
    -------
    int or None
        None if there is nothing: the file is made for everybody (0666), and the system takes away what the process's
        mask forbids.

    Raises
    ------
    FileExistsError, IsADirectoryError, PermissionError, OSError
        Nothing may take its place, or, with `exclusive`, there is something.
    """
    try:
        there = system.stat(target)
    except FileNotFoundError:
        return None
    check_place(there, target, exclusive=exclusive)
    if held is not None and (there.st_dev, there.st_ino) in held.fds:
        return there.st_mode & 0o7777
    try:
        # a rename asks for no right to the file that it replaces: who took it away meant to keep the file
        if held is not None:
            held.take(target)
        else:
            system.close(system.open(target, os.O_WRONLY))
    except PermissionError as error:
        raise PermissionError(error.errno, "the file may not be written, so it is not replaced", target) from None
    return there.st_mode & 0o7777


def check_place(there: os.stat_result, path: str, *, exclusive: bool) -> None:
    """Complain if what has a file's name is no file; with `exclusive`, if there is anything.

    A device or a pipe would be lost if a new file were renamed over it, and opening a pipe may wait for ever.

    Raises
    ------
    FileExistsError, IsADirectoryError, OSError
    """
    if not exclusive and stat.S_ISREG(there.st_mode):
        return
    what = next((name for test, name in _NO_FILES if test(there.st_mode)), "")
    if exclusive:
        raise FileExistsError(
            errno.EEXIST,
            f"{what} has this name"
            if what
            else "the file exists; open it with mode 'r+' or 'a', or replace it with 'w'",
            path,
        )
    if stat.S_ISDIR(there.st_mode):
        raise IsADirectoryError(errno.EISDIR, "this is a directory, not a file", path)
    if what:
        raise OSError(errno.EINVAL, f"this is {what}, not a regular file; give another name", path)


def name_new(system: System, work: str, path: str) -> None:
    """Rename `work` to a name that must be new.

    Raises
    ------
    FileExistsError
        The name is taken.
    OSError
        `work` has its old name still.
    """
    try:
        system.rename(work, path, replace=False)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
            raise
    else:
        return
    try:
        system.link(work, path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
            raise
        # No hard links here: take the name first, then put the file over it.
        system.close(system.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        try:
            system.rename(work, path)
        except OSError:
            with suppress(OSError):
                system.unlink(path)
            raise
    else:
        # The file has its name; that it has another one as well harms nobody.
        with suppress(OSError):
            system.unlink(work)


def beside(system: System, target: str, suffix: str) -> str:
    """Return a new name in the same directory that nobody else has."""
    head, slash, tail = target.rpartition("/")
    return f"{head}{slash}{beside_start(tail)}{system.token()}.{suffix}"


def beside_start(target: str) -> str:
    """Return what the names that `beside` makes for a file begin with."""
    # A name may have 255 bytes; what is cut from a long one is made up for by the token.
    return f".{cut_name(os.fsencode(target.rpartition('/')[2]), 100)}."


def write_new(
    system: System, path: str, content: bytes, mode: int | None, *, durable: bool = False, held: Held | None = None
) -> Key:
    """Make a file, and with `held` keep it, locked; its device and inode.

    mode : int or None, its permissions; None: what the process's mask leaves of 0666.
    """
    try:
        fd = system.open(path, _NEW, 0o666 if mode is None else mode)
    except FileNotFoundError:
        folder = os.path.dirname(path) or "."
        raise FileNotFoundError(errno.ENOENT, f"there is no folder {folder!r}; create it first", path) from None
    except PermissionError as error:
        folder = os.path.dirname(path) or "."
        # new headers and new layouts need a file beside the old one, so this is met when an old file is changed too
        text = f"no file can be made in the folder {folder!r}; get permission to write there, or use another folder"
        raise PermissionError(error.errno, text, path) from None
    try:
        try:
            made = system.fstat(fd)
            if mode is not None and made.st_mode & 0o7777 != mode:
                # the process's mask has taken something away
                system.fchmod(fd, mode)
            if content:
                write_all(system, fd, memoryview(content), 0)
            if durable:
                system.fsync(fd)
            if held is not None:
                held.lock(fd)
                return held.keep(fd, (made.st_dev, made.st_ino))
        except BaseException:
            system.close(fd)
            raise
        system.close(fd)
    except OSError:
        with suppress(OSError):
            system.unlink(path)
        raise
    return made.st_dev, made.st_ino
