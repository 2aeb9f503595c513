"""All calls of the operating system that access files are here.

Knows: file descriptors, paths, bytes. Does not know: formats, drivers, MPI.

Rules
-----
1. No other module of the package calls `open`, the file functions of `os`, or the reading and writing methods of
   `pathlib`; a test reads the syntax trees. So one object can be put in place of all of it: `pnc_vol.testing.faults`
   has systems that fail, stop and record.
2. `System` only forwards. What loops, retries or splits is in `full_io`, and takes a `System`.
3. Every descriptor is closed in a program started from this one (``O_CLOEXEC``).
4. A descriptor is an object (`OwnedFd`): Ctrl-C, or no memory, can come between any two lines, before anybody keeps
   what a call returned, or knows that it was closed. It is closed when nobody refers to it any more, and closing it a
   second time does nothing. So every close can be called again, and finishes what an interrupted one left.
5. What an opening of a file opens is noted until it is complete (`closing_if_it_fails`), and is closed at once if the
   opening fails: whoever has the exception may keep it, and its traceback, for long. What else it makes is undone if it
   is interrupted (`undo_if_interrupted`).

=============  ===========================================================================================
`full_io`      reads and writes that go on until all bytes are done
`two_threads`  work that two threads share
=============  ===========================================================================================

`docs/develop/systems.md` lists what Linux has and other systems may not, and what is done without it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import stat
import sys
import threading
import weakref
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from pnc_vol.interruptions import is_interruption

if TYPE_CHECKING:
    from typing_extensions import Buffer

    Path = str | bytes | os.PathLike[str]

__all__ = [
    "CACHES_NOTED", "CALLS", "LOGS_NOTED", "REAL", "TEMPORARY", "OwnedFd", "System", "can_reserve",
    "closing_if_it_fails", "cut_name", "exists", "free_bytes", "in_memory", "is_folder", "is_open", "is_unnamed",
    "neighbour", "scratch_folder", "temporary_directory", "undo_if_interrupted",
]  # fmt: skip
#: Buffers of one vectored call at most.
IOV_MAX: int = os.sysconf("SC_IOV_MAX") if "SC_IOV_MAX" in os.sysconf_names else 16
PAGE: int = mmap.ALLOCATIONGRANULARITY  # a window on a file begins at a multiple of it
_LIBC, _HERE, _NO_REPLACE = ctypes.CDLL(None, use_errno=True), -100, 1  # AT_FDCWD, RENAME_NOREPLACE
_POPULATE = getattr(mmap, "MAP_POPULATE", 0)
_IN_MEMORY = (0x01021994, 0x858458F6)
_Room: Any = ctypes.c_char * 4097  # the longest path and its end
_REALPATH: Any = getattr(_LIBC, "realpath", None)
if _REALPATH is not None:
    _REALPATH.restype, _REALPATH.argtypes = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_char_p)


class ClosedFd(int):
    """The number that an open file had: it may be another file's."""

    closed = True

    def close(self) -> None:
        """Nothing is left to be done."""


class OwnedFd(ClosedFd):
    """The number of an open file, which is closed once: when it is asked for, or when nobody refers to it any more.

    It is a `ClosedFd` then. A copy of the number, e.g. ``int(fd)``, keeps nothing open.

    Examples
    --------
    >>> fd = OwnedFd(os.open(".", os.O_RDONLY))
    >>> fd.close()
    >>> fd.close()
    >>> fd.closed
    True
    """

    __slots__ = ()

    @property
    def closed(self) -> bool:  # type: ignore[override]
        """Whether it was closed."""
        return "number" in vars(self)

    def close(self) -> None:
        """Close it, unless it is closed; it is closed then, also if the system raises an `OSError`."""
        if "number" not in vars(self):
            # noted and closed in one line, between whose parts no exception comes
            os.close(vars(self).setdefault("number", int(self)))
        # which has no destructor
        self.__class__ = ClosedFd  # type: ignore[assignment]

    def __del__(self) -> None:
        # nobody is there who could be told
        with contextlib.suppress(OSError):
            self.close()


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
        """Return a descriptor of `path`; `flags` are ``os.O_*``; with `dir_fd` a relative path starts there."""
        # as `_noted` does, with a call less
        noted: Any = _Unnoted() if _opening.inside is None or (seen := _opening.inside()) is None else seen
        if flags & os.O_EXCL and os.fspath(path).endswith(TEMPORARY):  # type: ignore[arg-type]
            noted.files.append(path)
        # in one line: an interruption comes before it or after it
        noted.append(OwnedFd(os.open(path, flags | os.O_CLOEXEC, mode, dir_fd=dir_fd)))
        return noted[-1]  # type: ignore[no-any-return]

    def close(self, fd: int) -> None:
        """Close a descriptor; one that `open` returned is closed once, however often this is called."""
        if isinstance(fd, ClosedFd):
            fd.close()
        else:
            os.close(fd)

    def pread_into(self, fd: int, buffer: Buffer, offset: int) -> int:
        """Return the number of bytes read into `buffer`; 0 at the end of the file."""
        return os.preadv(fd, [buffer], offset)

    def preadv(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        """Return the number of bytes read into `buffers`, one after another; at most `IOV_MAX` buffers."""
        return os.preadv(fd, buffers, offset)

    def pwrite(self, fd: int, buffer: Buffer, offset: int) -> int:
        """Return the number of bytes written, which may be fewer than asked: use `full_io.write_all`."""
        return os.pwrite(fd, buffer, offset)

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        """Return the number of bytes written from `buffers`, which may be fewer than asked: use `full_io.write_all`."""
        return os.pwritev(fd, buffers, offset)

    def ftruncate(self, fd: int, nbytes: int) -> None:
        os.ftruncate(fd, nbytes)

    def fallocate(self, fd: int, offset: int, nbytes: int) -> None:
        """Reserve the space now, so that a full disk is met here; the file grows to hold it.

        See `full_io.reserve` for where this is not there.
        """
        _if_there("posix_fallocate")(fd, offset, nbytes)

    def mmap(
        self, fd: int, nbytes: int, offset: int = 0, *, writable: bool = True, populate: bool = False
    ) -> mmap.mmap:
        """Return a shared window on a file; the space behind one to be written is reserved first with `fallocate`.

        populate : make its pages now, where the system can; one by one, when they are touched, takes longer.
        """
        flags = mmap.MAP_SHARED | (_POPULATE if populate else 0)
        access = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        noted: Any = _noted()
        # it has a descriptor of its own
        noted.append(mmap.mmap(fd, nbytes, flags=flags, prot=access, offset=offset))
        return noted[-1]  # type: ignore[no-any-return]

    def memory_file(self) -> int:
        """Return a descriptor of a new file that is kept in memory; an `OSError` where the system has no such files."""
        if hasattr(os, "memfd_create"):
            return OwnedFd(os.memfd_create("pnc_vol", os.MFD_CLOEXEC))
        raise OSError(errno.ENOSYS, "this system keeps no files in memory")

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def fdatasync(self, fd: int) -> None:
        getattr(os, "fdatasync", os.fsync)(fd)

    def fstat(self, fd: int) -> os.stat_result:
        return os.fstat(fd)

    def fchmod(self, fd: int, mode: int) -> None:
        os.fchmod(fd, mode)

    def fchown(self, fd: int, user: int, group: int) -> None:
        os.fchown(fd, user, group)

    def flock(self, fd: int, operation: int = fcntl.LOCK_EX | fcntl.LOCK_NB) -> None:
        """Lock the whole file until all copies of `fd` are closed, or unlock it; `BlockingIOError` if it is taken."""
        fcntl.flock(fd, operation)

    def record_lock(self, fd: int, command: int, asked: bytes) -> bytes:
        """Return ``fcntl`` with a ``struct flock``, which comes back as the system changed it; see `disk.locking`."""
        return fcntl.fcntl(fd, command, asked)

    def name_of(self, fd: int) -> str:
        """Return a path of an open file, now, as far as the system knows; it may have none any more, or be another
        file's."""
        with contextlib.suppress(OSError):
            return os.readlink(f"/proc/self/fd/{fd}")
        return ""

    def copy_range(self, source: int, target: int, nbytes: int, source_offset: int, target_offset: int) -> int:
        """Return the number of bytes copied between two descriptors inside the kernel, maybe fewer than asked: use
        `drivers.block_copy`."""
        return _if_there("copy_file_range")(source, target, nbytes, source_offset, target_offset)  # type: ignore[no-any-return]

    def next_data(self, fd: int, offset: int) -> int:
        """Return where the next bytes begin that are in no hole; `OSError` with ENXIO if none follow."""
        if not hasattr(os, "SEEK_DATA"):
            raise OSError(errno.ENOTSUP, "this system does not say where holes are")
        return os.lseek(fd, offset, os.SEEK_DATA)

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
        """Make a second name; `FileExistsError` if it is taken, so that nothing is ever replaced."""
        os.link(source, target)

    def unlink(self, path: Path, *, dir_fd: int | None = None) -> None:
        os.unlink(path, dir_fd=dir_fd)

    def mkdir(self, path: Path, mode: int = 0o777) -> None:
        os.mkdir(path, mode)

    def rmdir(self, path: Path) -> None:
        os.rmdir(path)

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted, so that what is done with them has one order."""
        return sorted(os.listdir(path))

    def getxattr(self, path: Path, name: str) -> bytes:
        """Return an extended attribute; an `OSError` where there is none, or no such thing."""
        return _if_there("getxattr")(path, name)  # type: ignore[no-any-return]

    def setxattr(self, path: Path, name: str, value: bytes, flags: int = 0) -> None:
        _if_there("setxattr")(path, name, value, flags)

    def listxattr(self, path: Path) -> list[str]:
        return sorted(_if_there("listxattr")(path))

    def fsync_dir(self, path: Path) -> None:
        """Put the names of a directory on stable storage."""
        fd = OwnedFd(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        try:
            os.fsync(fd)
        except OSError as error:
            # Some file systems have nothing to sync here and say so; there is nothing more to be done.
            if error.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP):
                raise
        finally:
            fd.close()

    def realpath(self, path: str) -> str:
        """Return the path without symbolic links; its last parts need not exist."""
        folder, slash, name = path.rpartition("/")
        room = _Room()
        # C's call takes a third of the time of Python's; it finds only what exists
        if name in ("", ".", "..") or _REALPATH is None or not _REALPATH(os.fsencode(folder or slash or "."), room):
            return os.path.realpath(path)
        found = os.fsdecode(room.value)
        whole = f"{found}/{name}" if found != "/" else f"/{name}"
        try:
            is_link = stat.S_ISLNK(os.lstat(whole).st_mode)
        except OSError:
            return whole
        return os.path.realpath(path) if is_link else whole

    def getpid(self) -> int:
        return os.getpid()

    def token(self) -> str:
        """Return 16 random hexadecimal digits, for names that nobody else has."""
        return os.urandom(8).hex()


TEMPORARY = ".pnctmp"
"""What the name of a file ends with that has not got its own name yet."""


class _Opened(list["int | mmap.mmap"]):
    """The descriptors and windows that an opening has opened, the temporary files that it made, and what undoes the
    rest."""

    files: list[Path]
    undo: list[Callable[[], object]]


class _Unnoted(list[Any]):
    """What is opened in no opening: nobody looks at it, and it keeps no names."""

    files: ClassVar[deque[Path]] = deque(maxlen=0)
    undo: ClassVar[deque[Callable[[], object]]] = deque(maxlen=0)


class _Opening(threading.local):
    """The opening that this thread is in.

    It is referred to weakly: an interruption can come before it is noted that it has ended, and what is opened later
    must not be kept by it.
    """

    inside: weakref.ref[_Opened] | None = None


_opening = _Opening()


def _noted() -> _Opened | _Unnoted:
    """Return what the opening that this thread is in has opened."""
    noted = None if _opening.inside is None else _opening.inside()
    return _Unnoted() if noted is None else noted


def undo_if_interrupted(undo: Callable[[], object]) -> None:
    """Have `undo` called if the opening that this thread is in is interrupted, whether what it undoes is done or not.

    An `OSError` that it raises is ignored; the last one is called first.
    """
    _noted().undo.append(undo)


class closing_if_it_fails:
    """Close what is opened by this thread inside, and is still open, if an exception ends it.

    After an interruption (`is_interruption`) temporary files go as well, and what `undo_if_interrupted` was given is
    called. One that ends well in another one leaves all to that.

    by_any_error : bool, else only an interruption counts.
    alone : bool, no other rank uses the folders that are made; else they stay, with their notes, for a recovery.

    Examples
    --------
    >>> with contextlib.suppress(KeyboardInterrupt), closing_if_it_fails(REAL):
    ...     fd = REAL.open(".", os.O_RDONLY)
    ...     raise KeyboardInterrupt
    >>> os.fstat(fd)
    Traceback (most recent call last):
    OSError: [Errno 9] Bad file descriptor
    """

    __slots__ = ("_alone", "_any", "_before", "_opened", "_system")

    def __init__(self, system: System, *, by_any_error: bool = True, alone: bool = True) -> None:
        self._alone = alone
        self._system, self._any, self._before = system, by_any_error, _opening.inside
        self._opened = _Opened()
        self._opened.files, self._opened.undo = [], []

    def __enter__(self) -> None:
        _opening.inside = weakref.ref(self._opened)

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        try:
            outer = None if self._before is None else self._before()
            if error is not None:
                self._close(interrupted=is_interruption(error))
            elif outer is not None:
                outer += self._opened
                outer.files += self._opened.files
                outer.undo += self._opened.undo
        finally:
            _opening.inside = self._before

    def keep(self) -> None:
        """Leave what was opened so far to those who refer to it."""
        for noted in (self._opened, self._opened.files, self._opened.undo):
            noted.clear()

    def _close(self, *, interrupted: bool) -> None:
        for one in self._opened[::-1] if interrupted or self._any else ():
            # a window that somebody reads from, an array, goes with that
            with contextlib.suppress(OSError, BufferError):
                one.close() if isinstance(one, mmap.mmap) else self._system.close(one)
        if interrupted:
            for path in self._opened.files:
                # one that has its final name by now is not there any more
                with contextlib.suppress(OSError):
                    self._system.unlink(path)
            for undo in reversed(self._opened.undo if self._alone else []):
                with contextlib.suppress(OSError):
                    undo()


def _if_there(name: str) -> Callable[..., Any]:
    if not hasattr(os, name):
        raise OSError(errno.ENOTSUP, f"this system has no {name}")
    return cast("Callable[..., Any]", getattr(os, name))


def is_open(fd: int) -> bool:
    """Return whether a descriptor that `System.open` returned is open still."""
    return not (isinstance(fd, ClosedFd) and fd.closed)


CALLS = tuple(name for name in vars(System) if not name.startswith("_"))
"""The names of a `System`'s calls."""

REAL = System()
"""The operating system itself."""


def exists(system: System, path: Path) -> bool:
    """Return whether a file or directory has this name, a dangling symbolic link included."""
    try:
        system.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def is_folder(system: System, path: Path) -> bool:
    """Return whether `path` leads to a directory."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return stat.S_ISDIR(system.stat(path).st_mode)
    return False


def free_bytes(folder: Path) -> int:
    """Return the number of bytes that an ordinary user may still write on the file system of a folder."""
    there = os.statvfs(folder)
    return there.f_bavail * there.f_frsize


def can_reserve() -> bool:
    """Return whether the system can reserve space before it is written, and let a file grow while others write to
    it."""
    return hasattr(os, "posix_fallocate")


def in_memory(folder: str) -> bool:
    """Return whether a folder is on a file system of Linux that keeps files in memory (tmpfs, ramfs)."""
    # other systems have a larger structure, without this field
    call = getattr(_LIBC, "statfs", None) if sys.platform == "linux" else None
    found = ctypes.create_string_buffer(256)
    if call is None or call(os.fsencode(folder), found) != 0:
        return False
    # the first field of the structure, a long
    return ctypes.c_long.from_buffer(found).value in _IN_MEMORY


def scratch_folder() -> str:
    """Return where this machine wants temporary files (``TMPDIR``, else ``/tmp`` or its like)."""
    import tempfile  # slow to import, seldom needed

    return tempfile.gettempdir()


@contextlib.contextmanager
def temporary_directory(parent: str | None = None) -> Iterator[str]:
    """Yield a directory of one's own (0700), in `parent` or `scratch_folder`; removed with all it holds in the end."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="pnc-vol-", dir=parent) as path:
        yield path


# ---------------------------------------------------------------------------------------------------------- neighbours
# Hidden files belong to a file and lie beside it: notes, journals, files that have no name yet.


LOGS_NOTED, CACHES_NOTED = "pncbb", "pncc"
"""What the names of notes end with, of the folders of logs and of caches; see `neighbour`."""
_LONGEST = 240
"""Bytes of a name that takes a dot and a suffix besides."""


def neighbour(path: str, suffix: str) -> str:
    """Return the name of a hidden file that belongs to a file, the same each time: ``.NAME.suffix``.

    Examples
    --------
    >>> neighbour("folder/out.nc", "pncj")
    'folder/.out.nc.pncj'
    """
    head, slash, tail = path.rpartition("/")
    if tail.isascii() and len(tail) <= _LONGEST:
        return f"{head}{slash}.{tail}.{suffix}"
    raw = os.fsencode(tail)
    if len(raw) > _LONGEST:
        # a name may have 255 bytes: of a longer one the start, and what tells it from others of that start
        tail = f"{cut_name(raw, _LONGEST - 9)}.{zlib.crc32(raw):08x}"
    return f"{head}{slash}.{tail}.{suffix}"


def is_unnamed(path: str) -> bool:
    """Return whether this is the name of a file that has not got its own name yet."""
    if not path.endswith(TEMPORARY):
        return False  # first: this is asked at every opening
    return os.path.basename(path).startswith(".")


def cut_name(name: bytes, nbytes: int) -> str:
    """Return the start of a name, without half a character at its end."""
    return name[:nbytes].decode("utf-8", "ignore")
