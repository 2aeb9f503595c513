"""A file whose data are copied from another one, and that takes its name when it is whole.

Knows: bytes, places, names, permissions, locks. Does not know: headers, variables, why.

Rules
-----
1. The new file is written beside the target, brought to stable storage, and then gets the target's name: at every
   moment the old one or the new one is there, whole.
2. On the way it has one name for each target, and is locked: what a killed process left is removed by the
   next one that writes the same file. With a random name nobody could tell what is left from what is at work.
3. If anything fails, nothing is left, and the old file is as it was.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from pnc_vol.disk.likeness import own
from pnc_vol.disk.locking import Held
from pnc_vol.disk.naming import mode_of_new
from pnc_vol.disk.publish import Location
from pnc_vol.format.moving import Moves
from pnc_vol.system import System
from pnc_vol.system.full_io import copy_all, read_at, write_all
from pnc_vol.system.neighbours import neighbour

__all__ = ["Copying", "Progress", "rewrite", "same_file"]

Progress = Callable[[int, int, str], None]

_STEP = 64 << 20
"""Bytes between two calls of `progress`."""
_BLOCK = 1 << 20
_PAGE = 1 << 12
"""Of a file with holes, blocks are read, and pages of zeros not written."""


class Copying(NamedTuple):
    """What a new file shall hold.

    head : bytes, its first bytes.
    pieces : Moves, what is copied, all of it there.
    nbytes : int, its size.
    source : str, where the copied bytes come from, links resolved.
    before : the status of the source when the pieces were found.
    progress : called as ``progress(done, total, source)``, or None.
    """

    head: bytes
    pieces: Moves
    nbytes: int
    source: str
    before: os.stat_result
    progress: Progress | None


def rewrite(copying: Copying, source: int, target: str, *, exclusive: bool, system: System, held: Held) -> None:
    """Make a file, or put it in the place of one.

    Parameters
    ----------
    copying : Copying
    source : int
        Descriptor of the source.
    target : str
        Links resolved. What is replaced gives its permissions, and its owner where the system allows that.
    exclusive : bool
        Replace nothing.
    system : System
    held : Held
        Locks what is replaced.

    Raises
    ------
    LockedError
        A process has the target open for writing.
    FileExistsError
        `exclusive`, and there is a file of that name.
    OSError
        Reading or writing failed, or the source changed meanwhile.
    """
    work = neighbour(target, "pncrepack")
    location = Location(system, target, work, exclusive=exclusive, held=held)
    try:
        mode = mode_of_new(system, target, exclusive=exclusive, held=held)
        fd = _begin(system, work, 0o666 if mode is None else 0o600)
        try:
            if mode is not None:
                try:
                    own(system, fd, system.stat(target), mode)
                except FileNotFoundError:
                    system.fchmod(fd, mode)
            write_all(system, fd, copying.head, 0)
            _copy(system, source, fd, copying)
            system.ftruncate(fd, copying.nbytes)
            system.fsync(fd)
            _check_unchanged(system, source, copying)
            _check_ours(system, fd, work)
            location.publish(durable=True)
        except BaseException:
            with suppress(OSError):
                location.discard()
            raise
        finally:
            # The lock goes with it, so it is open until the name is settled; all of it is on stable storage by then.
            with suppress(OSError):
                system.close(fd)
    except OSError as error:
        if error.filename == work:
            error.filename = target
        raise


def same_file(one: os.stat_result, other: os.stat_result) -> bool:
    """Whether two names lead to one file."""
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def _begin(system: System, work: str, mode: int) -> int:
    """A new, locked file; what a killed repack left under its name is removed."""
    with suppress(FileNotFoundError):
        left = system.open(work, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _lock(system, left, work)
            system.unlink(work)
        finally:
            system.close(left)
    fd = system.open(work, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        _lock(system, fd, work)
        _check_ours(system, fd, work)
    except BaseException as error:
        with suppress(OSError):
            system.close(fd)
            if not isinstance(error, OSError) or error.errno != errno.EBUSY:
                system.unlink(work)
        raise
    return fd


def _check_ours(system: System, fd: int, work: str) -> None:
    """Raise if the name stands for another file: it must not be published in the place of ours."""
    with suppress(FileNotFoundError):
        if same_file(system.fstat(fd), system.lstat(work)):
            return
    raise OSError(errno.EBUSY, "another repack is writing this file; wait until it ends", work)


def _lock(system: System, fd: int, work: str) -> None:
    try:
        system.flock(fd)
    except BlockingIOError:
        raise OSError(errno.EBUSY, "another repack is writing this file; wait until it ends", work) from None
    except OSError as error:
        # some network file systems have no locks: two repacks at a time are then the user's to avoid
        if error.errno not in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL):
            raise


def _copy(system: System, source: int, target: int, copying: Copying) -> None:
    """Copy the pieces; holes of the source stay holes."""
    before, pieces = copying.before, copying.pieces
    holes = before.st_blocks * 512 < before.st_size - _BLOCK
    total, done = pieces.nbytes, 0
    for src, dst, length in zip(pieces.src.tolist(), pieces.dst.tolist(), pieces.length.tolist(), strict=True):
        for at in range(0, length, _STEP):
            want = min(_STEP, length - at)
            move = _copy_sparse if holes else copy_all
            if move(system, source, target, want, src + at, dst + at) < want:
                raise OSError(errno.EIO, "it became shorter while it was read; try again", copying.source)
            done += want
            if copying.progress is not None:
                copying.progress(done, total, copying.source)


def _copy_sparse(system: System, source: int, target: int, nbytes: int, src: int, dst: int) -> int:
    """As `copy_all`, but runs of pages that hold nothing but zeros are not written."""
    room = bytearray(min(nbytes, _BLOCK))
    view, values = memoryview(room), np.frombuffer(room, np.uint8)
    for at in range(0, nbytes, _BLOCK):
        size = min(_BLOCK, nbytes - at)
        if read_at(system, source, view[:size], src + at) < size:
            return at
        used = np.logical_or.reduceat(values[:size], np.arange(0, size, _PAGE))
        edges = np.flatnonzero(np.diff(used, prepend=False, append=False)).reshape(-1, 2) * _PAGE
        for first, last in edges.tolist():
            write_all(system, target, view[first : min(last, size)], dst + at + first)
    return nbytes


def _check_unchanged(system: System, source: int, copying: Copying) -> None:
    """Raise if the source was changed or replaced while it was copied."""
    before, after = copying.before, system.fstat(source)
    same = (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    if not same or not same_file(before, system.stat(copying.source)):
        text = "it was changed while it was copied; repack it when no process writes to it"
        raise OSError(errno.EBUSY, text, copying.source)
