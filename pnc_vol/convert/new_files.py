"""A new file takes its name when it is whole: one that a block of code writes, or a copy of another one's bytes.

Knows: bytes, places, names, permissions, locks. Does not know: headers, variables, formats, why.

Rules
-----
1. The new file is written beside the target, and then gets the target's name: at every moment the old one or the new
   one is there, whole. What takes the place of a file, and every copy, is on stable storage first.
2. On the way a copy has one name for each target, and is locked: what a killed process left is removed by the
   next one that writes the same file. With a random name nobody could tell what is left from what is at work.
3. If anything fails, nothing is left, and the old file is as it was.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.api.opening import refuse_remote
from pnc_vol.disk.identity import own
from pnc_vol.disk.locking import Held
from pnc_vol.disk.naming import beside, mode_of_new
from pnc_vol.disk.publish import Location
from pnc_vol.drivers.block_copy import BLOCK, Descriptors, copy_blocks
from pnc_vol.errors import NO_LOCKS
from pnc_vol.extents.merge import intersect
from pnc_vol.extents.model import Extents
from pnc_vol.file.leftovers import look_after
from pnc_vol.format.placing import Moves
from pnc_vol.settings.options import resolve
from pnc_vol.system import System, exists, is_folder, neighbour
from pnc_vol.system.full_io import write_all

__all__ = ["Copying", "Progress", "check_names", "published", "rewrite", "same_file"]

Bytes = npt.NDArray[np.uint8]
Progress = Callable[[int, int, str], None]

_HOLES = 1 << 20
"""Bytes that a file's blocks on the device fall short of its size from which on it counts as one with holes."""
_OF_HOLES = 1 << 20
"""Bytes of a block of a file with holes, which stay in a processor's cache while zeros are looked for."""
_PAGE = 1 << 12
"""Of a file with holes, blocks are read, and pages of zeros not written."""


def check_names(source: str, target: str, *, overwrite: bool, system: System) -> None:
    """Refuse a target that is the source, has no folder, or exists without `overwrite`."""
    refuse_remote(target, "write the file here, and copy it there")
    folder = os.path.dirname(system.realpath(target))
    if not is_folder(system, folder):
        raise FileNotFoundError(errno.ENOENT, "the folder does not exist; make it first, or write elsewhere", folder)
    if not exists(system, target):
        return
    with suppress(FileNotFoundError):
        if same_file(system.stat(source), system.stat(target)):
            raise FileExistsError(errno.EEXIST, "The target is the source itself; give another name", target)
    if not overwrite:
        raise FileExistsError(errno.EEXIST, "The target exists; give another name, or overwrite=True", target)
    mode_of_new(system, target, exclusive=False)


@contextmanager
def published(target: str, *, overwrite: bool, system: System) -> Iterator[str]:
    """Yield a temporary name that becomes `target` if the block ends well, and is removed if it does not."""
    # what a symbolic link leads to is replaced, not the link
    target = system.realpath(target)
    held = Held(system, target, resolve({}).locking)
    location = Location(system, target, beside(system, target, "part"), exclusive=not overwrite, held=held)
    try:
        with _removed_if_it_fails(location):
            if overwrite:
                held.may_replace(target)
            yield location.work
            fd = system.open(location.work, os.O_RDWR)
            try:
                location.key = _key(system.fstat(fd))
                if exists(system, target):
                    # what is replaced may be on stable storage: what takes its name is, too
                    system.fsync(fd)
            finally:
                system.close(fd)
            if overwrite:
                held.may_replace(target)
                look_after(target, target, resolve({"system": system}), writable=True, replaced=True)
            location.publish()
    finally:
        held.release()


@contextmanager
def _removed_if_it_fails(location: Location) -> Iterator[None]:
    """Remove a file that has no name yet if the block fails; an error that names it names the target."""
    try:
        yield
    except BaseException as error:
        with suppress(OSError):
            location.discard()
        if isinstance(error, OSError) and error.filename == location.work:
            error.filename = location.path
        raise


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
    mode = mode_of_new(system, target, exclusive=exclusive, held=held)
    try:
        fd = _begin(system, work, 0o666 if mode is None else 0o600)
    except OSError as error:
        error.filename = target if error.filename == work else error.filename
        raise
    try:
        with _removed_if_it_fails(location):
            location.key = _key(system.fstat(fd))
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
    finally:
        # The lock goes with it, so it is open until the name is settled; all of it is on stable storage by then.
        with suppress(OSError):
            system.close(fd)


def _key(there: os.stat_result) -> tuple[int, int]:
    return there.st_dev, there.st_ino


def same_file(one: os.stat_result, other: os.stat_result) -> bool:
    """Return whether two names lead to one file."""
    return _key(one) == _key(other)


def _begin(system: System, work: str, mode: int) -> int:
    """Return a new, locked file; what a killed repack left under its name is removed."""
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
        if error.errno not in (*NO_LOCKS, errno.EINVAL):
            raise


def _copy(system: System, source: int, target: int, copying: Copying) -> None:
    """Copy the pieces; holes of the source stay holes."""
    before, pieces = copying.before, copying.pieces
    files = Descriptors(system, source, target)
    holes = before.st_blocks * 512 < before.st_size - _HOLES
    total, done = pieces.nbytes, 0

    def note(verb: str, _: float, nbytes: int) -> None:
        nonlocal done
        if verb == "write" and copying.progress is not None:
            done += nbytes
            copying.progress(done, total, copying.source)

    def write_used(extents: Extents, memory: Bytes) -> None:
        files.write(_used(extents, memory), memory)

    copy_blocks(
        files.read,
        write_used if holes else files.write,
        Extents(pieces.src, pieces.length, pieces.dst),
        by_kernel=None if holes else files.by_kernel,
        block=_OF_HOLES if holes else BLOCK,
        too_short=lambda: OSError(errno.EIO, "it became shorter while it was read; try again", copying.source),
        note=note,
    )


def _used(extents: Extents, memory: Bytes) -> Extents:
    """Return the parts of extents, which lie one behind another in memory, without pages that hold nothing but
    zeros."""
    first = np.arange(0, memory.size, _PAGE)
    used = np.logical_or.reduceat(memory, first)
    edges = np.flatnonzero(np.diff(used, prepend=False, append=False)).reshape(-1, 2) * _PAGE
    piece, _, place, length = intersect(
        extents.place, extents.length, edges[:, 0], np.minimum(edges[:, 1], memory.size) - edges[:, 0]
    )
    return Extents(extents.offset[piece] + place - extents.place[piece], length, place)


def _check_unchanged(system: System, source: int, copying: Copying) -> None:
    """Raise if the source was changed or replaced while it was copied."""
    before, after = copying.before, system.fstat(source)
    same = (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    if not same or not same_file(before, system.stat(copying.source)):
        text = "it was changed while it was copied; repack it when no process writes to it"
        raise OSError(errno.EBUSY, text, copying.source)
