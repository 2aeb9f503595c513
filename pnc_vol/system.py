"""All calls of the operating system that access files.

Knows: file descriptors, paths, bytes. Does not know: formats, drivers, MPI.

Rules
-----
1. No other module of the package calls `open`, the file functions of `os`, or the reading and writing methods of
   `pathlib`; a test reads the syntax trees. So one object can be put in place of all of it: `pnc_vol.testing.faults`
   has systems that fail, stop and record.
2. `System` only forwards. What loops, retries or splits are the functions below it, and they take a `System`.
3. `write_all` is the one function that writes: a short count is written on, zero is an error, an error keeps its
   number. `read_at` is its twin; it is short only where the file ends.
4. Every descriptor is closed in a program started from this one (``O_CLOEXEC``).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from typing_extensions import Buffer

    Path = str | bytes | os.PathLike[str]

__all__ = [
    "CALLS", "REAL", "System", "copy_all", "exists", "free_bytes", "is_folder", "read_at", "read_whole",
    "scratch_folder", "temporary_directory", "write_all", "write_whole",
]  # fmt: skip
#: Bytes moved by one call at most: Linux cuts at 2 GiB - 4096, other systems refuse what does not fit an int.
CALL_BYTES = 1 << 30
#: Buffers of one vectored call at most.
IOV_MAX: int = os.sysconf("SC_IOV_MAX") if "SC_IOV_MAX" in os.sysconf_names else 16

PAGE: int = mmap.ALLOCATIONGRANULARITY  # a window on a file begins at a multiple of it
#: Interrupted calls in a row that are made again; Python itself does so unless a signal's handler raises.
_PATIENCE = 1000

_LIBC, _HERE, _NO_REPLACE = ctypes.CDLL(None, use_errno=True), -100, 1  # AT_FDCWD, RENAME_NOREPLACE
#: What `System.copy_range` says where only reading and writing will do.
_NO_COPY_RANGE = (
    errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF, errno.ETXTBSY,
)  # fmt: skip

#: The names of a `System`'s calls.
CALLS = (
    "open", "close", "pread_into", "preadv", "pwrite", "pwritev", "ftruncate", "fallocate", "fsync", "fdatasync",
    "fsync_dir", "fstat", "stat", "lstat", "rename", "link", "unlink", "mkdir", "rmdir", "listdir", "fchmod", "fchown",
    "getxattr", "setxattr", "listxattr", "flock", "record_lock", "name_of", "mmap", "memory_file", "copy_range",
    "realpath", "getpid", "umask", "token",
)  # fmt: skip


class System:
    """The calls. Each raises `OSError` as the operating system does.

    A test or a program that wants other behaviour derives from this class and passes the object down.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "a")
    >>> fd = REAL.open(path, os.O_RDWR | os.O_CREAT)
    >>> REAL.pwrite(fd, b"four", 0)
    4
    >>> REAL.close(fd)
    """

    def open(self, path: Path, flags: int, mode: int = 0o666, *, dir_fd: int | None = None) -> int:
        """A descriptor of `path`; `flags` are ``os.O_*``; with `dir_fd` a relative path starts there."""
        return os.open(path, flags | os.O_CLOEXEC, mode, dir_fd=dir_fd)

    def close(self, fd: int) -> None:
        os.close(fd)

    def pread_into(self, fd: int, buffer: Buffer, offset: int) -> int:
        """Bytes read into `buffer`; 0 at the end of the file."""
        return os.preadv(fd, [buffer], offset)

    def preadv(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        """Bytes read into `buffers`, one after another; at most `IOV_MAX` buffers."""
        return os.preadv(fd, buffers, offset)

    def pwrite(self, fd: int, buffer: Buffer, offset: int) -> int:
        """Bytes written, which may be fewer than asked: use `write_all`."""
        return os.pwrite(fd, buffer, offset)

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        """Bytes written from `buffers`, which may be fewer than asked: use `write_all`."""
        return os.pwritev(fd, buffers, offset)

    def ftruncate(self, fd: int, nbytes: int) -> None:
        os.ftruncate(fd, nbytes)

    def fallocate(self, fd: int, offset: int, nbytes: int) -> None:
        """Reserve the space now, so that a full disk is met here; the file grows to hold it."""
        os.posix_fallocate(fd, offset, nbytes)

    def mmap(self, fd: int, nbytes: int, offset: int = 0, *, writable: bool = True) -> mmap.mmap:
        """A shared window on a file; the space behind one to be written is reserved first with `fallocate`."""
        return mmap.mmap(fd, nbytes, prot=mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0), offset=offset)

    def memory_file(self) -> int:
        """A descriptor of a new file that is kept in memory; an `OSError` where the system has no such files."""
        if hasattr(os, "memfd_create"):
            return os.memfd_create("pnc_vol", os.MFD_CLOEXEC)
        raise OSError(errno.ENOSYS, "this system keeps no files in memory")

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def fdatasync(self, fd: int) -> None:
        os.fdatasync(fd)

    def fstat(self, fd: int) -> os.stat_result:
        return os.fstat(fd)

    def fchmod(self, fd: int, mode: int) -> None:
        os.fchmod(fd, mode)

    def fchown(self, fd: int, user: int, group: int) -> None:
        os.fchown(fd, user, group)

    def flock(self, fd: int, *, exclusive: bool, wait: bool = False) -> None:
        """Lock the whole file until `fd` is closed; `BlockingIOError` if somebody has it and `wait` is False."""
        fcntl.flock(fd, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | (0 if wait else fcntl.LOCK_NB))

    def record_lock(self, fd: int, command: int, asked: bytes) -> bytes:
        """``fcntl`` with a ``struct flock``, which comes back as the system changed it; see `disk.locking`."""
        return fcntl.fcntl(fd, command, asked)

    def name_of(self, fd: int) -> str:
        """A path of an open file, now, as far as the system knows; it may have none any more, or be another file's."""
        with contextlib.suppress(OSError):
            return os.readlink(f"/proc/self/fd/{fd}")
        return ""

    def copy_range(self, source: int, target: int, nbytes: int, source_offset: int, target_offset: int) -> int:
        """Bytes copied between two descriptors inside the kernel, possibly fewer than asked: use `copy_all`."""
        return os.copy_file_range(source, target, nbytes, source_offset, target_offset)

    def stat(self, path: Path) -> os.stat_result:
        return os.stat(path)

    def lstat(self, path: Path) -> os.stat_result:
        return os.lstat(path)

    def rename(self, source: Path, target: Path, *, replace: bool = True) -> None:
        """Give `source` the name `target` at once, in place of what had it; `FileExistsError` with ``replace=False``.

        Not every system and file system can do the latter: `errno.ENOSYS` or `errno.EINVAL`.
        """
        if replace:
            os.replace(source, target)
            return
        # of Linux's C libraries; Python has no name for it
        call = getattr(_LIBC, "renameat2", None)
        if call is None or call(_HERE, os.fsencode(source), _HERE, os.fsencode(target), _NO_REPLACE) != 0:
            number = ctypes.get_errno() if call is not None else errno.ENOSYS
            raise OSError(number, os.strerror(number), os.fspath(source), None, os.fspath(target))

    def link(self, source: Path, target: Path) -> None:
        """A second name; `FileExistsError` if it is taken, so that nothing is ever replaced."""
        os.link(source, target)

    def unlink(self, path: Path, *, dir_fd: int | None = None) -> None:
        os.unlink(path, dir_fd=dir_fd)

    def mkdir(self, path: Path, mode: int = 0o777) -> None:
        os.mkdir(path, mode)

    def rmdir(self, path: Path) -> None:
        os.rmdir(path)

    def listdir(self, path: str) -> list[str]:
        """The names in a directory, sorted, so that what is done with them has one order."""
        return sorted(os.listdir(path))

    def getxattr(self, path: Path, name: str) -> bytes:
        """An extended attribute; an `OSError` where there is none, or no such thing."""
        return _with_attributes("getxattr")(path, name)  # type: ignore[no-any-return]

    def setxattr(self, path: Path, name: str, value: bytes, flags: int = 0) -> None:
        _with_attributes("setxattr")(path, name, value, flags)

    def listxattr(self, path: Path) -> list[str]:
        return sorted(_with_attributes("listxattr")(path))

    def fsync_dir(self, path: Path) -> None:
        """Put the names of a directory on stable storage."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            # Some file systems have nothing to sync here and say so; there is nothing more to be done.
            if error.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP):
                raise
        finally:
            os.close(fd)

    def realpath(self, path: str) -> str:
        """The path without symbolic links; its last parts need not exist."""
        return os.path.realpath(path)

    def getpid(self) -> int:
        return os.getpid()

    def umask(self) -> int:
        """The process's mask for new files, read without changing it where the system allows that."""
        with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith("Umask:"):
                    return int(line.split()[1], 8)
        mask = os.umask(0o077)
        os.umask(mask)
        return mask

    def token(self) -> str:
        """16 random hexadecimal digits, for names that nobody else has."""
        return os.urandom(8).hex()


def _with_attributes(name: str) -> Callable[..., Any]:
    if not hasattr(os, name):
        raise OSError(errno.ENOTSUP, "this system has no extended attributes")
    return cast("Callable[..., Any]", getattr(os, name))


REAL = System()
"""The operating system itself."""


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
    """Bytes moved and calls made; short only where a read meets the end of the file."""
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
        while first < len(views) and done >= views[first].nbytes:
            done -= views[first].nbytes
            first += 1
        if done:
            views[first] = views[first][done:]
    return moved, calls


def _at_most(views: list[memoryview], nbytes: int) -> list[memoryview]:
    """The first of `views`, of `nbytes` bytes in all at most; the last one cut."""
    for i, view in enumerate(views):
        if view.nbytes >= nbytes:
            return [*views[:i], view[:nbytes]]
        nbytes -= view.nbytes
    return views


def copy_all(
    system: System, source: int, target: int, nbytes: int, source_offset: int = 0, target_offset: int = 0
) -> int:
    """Copy bytes from one open file to another, inside the kernel where that is possible.

    Parameters
    ----------
    source, target : int, descriptors of two files, or of one file whose two ranges do not overlap.

    Returns
    -------
    int
        Bytes copied; fewer than `nbytes` only where the source ends.
    """
    copied = 0
    while copied < nbytes:
        ask = min(nbytes - copied, CALL_BYTES)
        try:
            done = system.copy_range(source, target, ask, source_offset + copied, target_offset + copied)
        except InterruptedError:
            continue
        except OSError as error:
            if error.errno not in _NO_COPY_RANGE:
                raise
            break
        if done == 0:
            break
        copied += done
    # Here after the end of the source too: some kernels say 0 for files that have bytes (of /proc, of overlays).
    block = memoryview(bytearray(min(nbytes - copied, 1 << 20)))
    while copied < nbytes:
        done = read_at(system, source, block[: min(nbytes - copied, block.nbytes)], source_offset + copied)
        if done == 0:
            break
        write_all(system, target, block[:done], target_offset + copied)
        copied += done
    return copied


def exists(system: System, path: Path) -> bool:
    """Whether a file or directory has this name, a dangling symbolic link included."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        system.lstat(path)
        return True
    return False


def read_whole(system: System, path: Path, *, limit: int = 1 << 30, flags: int = 0) -> bytes:
    """The content of a file, an `OSError` of `errno.EFBIG` if it has more bytes; `flags` are added to ``O_RDONLY``."""
    fd = system.open(path, os.O_RDONLY | flags)
    try:
        nbytes = system.fstat(fd).st_size
        if nbytes > limit:
            raise OSError(errno.EFBIG, f"The file has {nbytes} bytes; at most {limit} are read", os.fspath(path))
        content = bytearray(nbytes)
        return bytes(memoryview(content)[: read_at(system, fd, content, 0)])
    finally:
        system.close(fd)


def is_folder(system: System, path: Path) -> bool:
    """Whether `path` leads to a directory."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return stat.S_ISDIR(system.stat(path).st_mode)
    return False


def free_bytes(folder: Path) -> int:
    """Bytes that an ordinary user may still write on the file system of a folder."""
    there = os.statvfs(folder)
    return there.f_bavail * there.f_frsize


def scratch_folder() -> str:
    """Where this machine wants temporary files (``TMPDIR``, else ``/tmp`` or its like)."""
    import tempfile  # slow to import, seldom needed

    return tempfile.gettempdir()


@contextlib.contextmanager
def temporary_directory(parent: str | None = None) -> Iterator[str]:
    """A directory of one's own (0700), in `parent` or `scratch_folder`; removed with all it holds in the end."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="pnc-vol-", dir=parent) as path:
        yield path


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
    kind = os.O_EXCL | os.O_NOFOLLOW if exclusive else os.O_TRUNC
    fd = system.open(path, os.O_WRONLY | os.O_CREAT | kind, mode)
    try:
        write_all(system, fd, content, 0)
        if durable:
            system.fsync(fd)
    finally:
        system.close(fd)
