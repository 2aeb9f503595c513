"""Reads and writes are complete or fail, over the calls of a `System`.

Knows: descriptors, bytes, what calls of the operating system leave undone. Does not know: drivers, formats.

Rules
-----
1. `write_all` is the one function that writes: the rest of a short write is written by further calls, a call that
   writes nothing is an error, an error keeps its number.
2. `read_at` is its twin; it is short only where the file ends.
3. `reserve` keeps what the bytes are, but not what others write there meanwhile.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from pnc_vol.system import IOV_MAX, System

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from pnc_vol.system import Path

__all__ = ["read_at", "read_content", "read_whole", "reserve", "write_all", "write_whole"]

#: Bytes moved by one call at most: Linux cuts at 2 GiB - 4096, other systems refuse what does not fit an int.
CALL_BYTES = 1 << 30
#: Interrupted calls in a row that are made again; Python itself does so unless a signal's handler raises.
_PATIENCE = 1000
_PIECE = 1 << 20
_NOT_HERE = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


def write_all(system: System, fd: int, buffers: Buffer | Sequence[Buffer], offset: int) -> int:
    """Write one buffer, or buffers one after another, at `offset`: all of it, or an error.

    Parameters
    ----------
    buffers : bytes-like, or list or tuple of bytes-like
        C-contiguous. More than `IOV_MAX` of them, or more than 1 GiB, take several calls.
    offset : int, bytes from the start of the file.

    Returns
    -------
    int
        System calls that it took.

    Raises
    ------
    OSError
        With the system's number, or `errno.EIO` if it wrote nothing and gave no reason. How much was written is then
        not known.
    """
    calls = 0
    # What most calls are: one view, taken whole by one call. The general way costs four times as much.
    if type(buffers) is memoryview and buffers.format == "B" and buffers.ndim == 1 and 0 < buffers.nbytes <= CALL_BYTES:
        try:
            done = system.pwrite(fd, buffers, offset)
        except InterruptedError:
            done = 0
        if done == buffers.nbytes:
            return 1
        buffers, offset, calls = buffers[done:], offset + done, 1
    return calls + _move_all(system.pwrite, system.pwritev, fd, buffers, offset, writing=True)[1]


def read_at(system: System, fd: int, buffers: Buffer | Sequence[Buffer], offset: int) -> int:
    """Fill one buffer, or buffers one after another, from `offset` on, as far as the file goes.

    Returns
    -------
    int
        Bytes read; fewer than the buffers hold only where the file ends. The rest of the buffers is left as it was.
    """
    done = 0
    if type(buffers) is memoryview and buffers.format == "B" and buffers.ndim == 1 and 0 < buffers.nbytes <= CALL_BYTES:
        try:
            done = system.pread_into(fd, buffers, offset)
        except InterruptedError:
            done = 0
        if done == buffers.nbytes:
            return done
        buffers, offset = buffers[done:], offset + done
    return done + _move_all(system.pread_into, system.preadv, fd, buffers, offset, writing=False)[0]


def _move_all(
    one: Callable[[int, Buffer, int], int],
    many: Callable[[int, Sequence[Buffer], int], int],
    fd: int,
    buffers: Buffer | Sequence[Buffer],
    offset: int,
    *,
    writing: bool,
) -> tuple[int, int]:
    """Return bytes moved and calls made; short only where a read meets the end of the file."""
    pieces = cast("Sequence[Buffer]", buffers if isinstance(buffers, (list, tuple)) else (buffers,))
    whole: list[memoryview] = [memoryview(piece) for piece in pieces]
    # A view of nothing cannot be cast, and a vector of nothing moves 0 bytes, which would look like the end.
    views = [view.cast("B") for view in whole if view.nbytes]
    first = moved = calls = interrupted = 0
    while first < len(views):
        batch = views[first : first + IOV_MAX]
        if len(batch) > 1 or batch[0].nbytes > CALL_BYTES:
            batch = _at_most(batch, CALL_BYTES)
        try:
            done = one(fd, batch[0], offset) if len(batch) == 1 else many(fd, batch, offset)
        except InterruptedError:
            interrupted += 1
            if interrupted > _PATIENCE:
                raise
            continue
        calls += 1
        if done <= 0:
            if writing:
                raise OSError(errno.EIO, f"The system wrote 0 of {batch[0].nbytes} bytes at offset {offset}")
            break
        moved += done
        offset += done
        # A vectored call may end within any of its buffers: whole ones are dropped, and one is cut.
        while first < len(views) and done >= views[first].nbytes:
            done -= views[first].nbytes
            first += 1
        if done:
            views[first] = views[first][done:]
    return moved, calls


def _at_most(views: list[memoryview], nbytes: int) -> list[memoryview]:
    """Return the first of `views`, of `nbytes` bytes in all at most; the last one cut."""
    for i, view in enumerate(views):
        if view.nbytes >= nbytes:
            return [*views[:i], view[:nbytes]]
        nbytes -= view.nbytes
    return views


def reserve(system: System, fd: int, offset: int, nbytes: int) -> None:
    """Make sure that a file has space for some bytes, of which nobody else writes any now; it grows to hold them.

    Where the system cannot reserve, what is there is read and written again, and zeros behind the end.

    Raises
    ------
    OSError
        There is no space.
    """
    try:
        system.fallocate(fd, offset, nbytes)
    except OSError as error:
        if error.errno not in _NOT_HERE:
            raise
        # Writing is what makes a file system that cannot reserve find the space, or report that there is none.
        for at in range(offset, offset + nbytes, _PIECE):
            piece = memoryview(bytearray(min(_PIECE, offset + nbytes - at)))
            read_at(system, fd, piece, at)
            write_all(system, fd, piece, at)


def read_whole(system: System, path: Path, *, limit: int = 1 << 30, flags: int = 0) -> bytes:
    """Return the content of a file, an `OSError` of `errno.EFBIG` if it has more bytes; `flags` are added to
    ``O_RDONLY``."""
    return bytes(read_content(system, path, limit=limit, flags=flags))


def read_content(system: System, path: Path, *, limit: int, flags: int = 0) -> memoryview:
    """Return the same in memory of its own that is not copied again."""
    fd = system.open(path, os.O_RDONLY | flags)
    try:
        nbytes = system.fstat(fd).st_size
        if nbytes > limit:
            raise OSError(errno.EFBIG, f"The file has {nbytes} bytes; at most {limit} are read", os.fspath(path))
        content = memoryview(bytearray(nbytes))
        return content[: read_at(system, fd, content, 0)]
    finally:
        system.close(fd)


def write_whole(
    system: System, path: Path, content: Buffer, *, mode: int = 0o666, exclusive: bool = False, durable: bool = False
) -> None:
    """Make a file of this content; what had the name before is replaced, or with `exclusive` refused.

    Parameters
    ----------
    mode : int, permissions before the process's mask.
    exclusive : bool, raise `FileExistsError` if the name is taken, and follow no symbolic link.
    durable : bool, return when the content is on stable storage. The name is not: see `System.fsync_dir`.
    """
    # A link that another user has put there in a shared folder must not lead the write to another file.
    kind = os.O_EXCL | os.O_NOFOLLOW if exclusive else os.O_TRUNC
    fd = system.open(path, os.O_WRONLY | os.O_CREAT | kind, mode)
    try:
        write_all(system, fd, content, 0)
        if durable:
            system.fsync(fd)
    finally:
        system.close(fd)
