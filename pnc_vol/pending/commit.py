"""How a file comes under its name, and how its header is replaced, so that a kill at any moment harms nothing.

Knows: paths, the system, header bytes. Does not know: variables, requests; ranks other than that only one calls this.

Rules
-----
1. A new file is written under a temporary name in the same directory and renamed, so that its name always
   stands for a whole file. With ``publish="close"`` the rename comes at the close.
2. A header is replaced in place with a journal beside the file: first the journal with both headers, then the header,
   then the journal goes. A journal that is found when a file is opened is completed.
3. A layout that moves data is written to a temporary copy; the rename makes it the file.
4. Errors name the user's path, not the temporary one.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import numpy as np

from pnc_vol.drivers.base import Driver
from pnc_vol.errors import warn_outside
from pnc_vol.pending.batches import one_extent
from pnc_vol.pending.identity import carry
from pnc_vol.system import System, read_at, write_all

__all__ = ["Location", "check_place", "mode_of_new", "name_new", "neighbour", "recover"]

_JOURNAL = struct.Struct("<8sQQQI")
_MAGIC = b"PNCJ0001"
_LONGEST = 240
"""Bytes of a name that takes a dot and a suffix besides."""
_NO_FILES = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class Location:
    """Where a file is, and under which name it is worked on.

    path : str, the file's name, symbolic links resolved.
    work : str, the name that drivers open: `path`, or a temporary one until `publish`.
    exclusive : bool, `publish` replaces nothing.
    key : tuple of int or None, device and inode, on the rank that looked.
    unseen : bool, nothing of what is worked on has ever been under the name: no flush of it can be lost.
    """

    def __init__(self, system: System, path: str, work: str, *, exclusive: bool = False, unseen: bool = False) -> None:
        self.system = system
        self.path = path
        self.work = work
        self.exclusive = exclusive
        self.unseen = unseen
        self.key: tuple[int, int] | None = None
        self._named_for_good = False
        self._torn: bytes | None = None

    @property
    def published(self) -> bool:
        """True if the file under its name is the one that is worked on."""
        return self.work == self.path

    @classmethod
    def create(
        cls, system: System, path: str, header: bytes, *, exclusive: bool, publish: bool, durable: bool = False
    ) -> Location:
        """Make a file that holds `header` and nothing else.

        Parameters
        ----------
        path : str
        header : bytes
        exclusive : bool
            An existing file is an error instead of being replaced.
        publish : bool
            Put it under its name now; else `publish` does.
        durable : bool
            Bring it, and the name that it has, to stable storage.

        Raises
        ------
        OSError
            FileExistsError, IsADirectoryError, PermissionError...; nothing is left behind.
        """
        target = system.realpath(path)
        with _named(path):
            mode = mode_of_new(system, target, exclusive=exclusive)
        location = cls(system, target, _beside(system, target, "pnctmp"), exclusive=exclusive, unseen=True)
        with _named(path):
            location.key = _write_new(system, location.work, header, mode, durable=durable)
        try:
            if publish:
                location.publish(durable=durable)
            elif durable:
                system.fsync_dir(os.path.dirname(location.work) or ".")
        except OSError:
            location.discard()
            raise
        return location

    def publish(self, *, durable: bool = False) -> None:
        """Give the file its name, in place of what was there; nothing to do if it has it.

        Parameters
        ----------
        durable : bool
            Bring the name to stable storage, once in the life of the file: an earlier flush may have been content with
            less.

        Raises
        ------
        OSError
            It has its temporary name still, and this may be called again.
        """
        with _named(self.path):
            if not self.published:
                if self.exclusive:
                    name_new(self.system, self.work, self.path)
                else:
                    self.system.rename(self.work, self.path)
                self.exclusive = self._named_for_good = False
                self.work, self.unseen = self.path, False
                _forget_journal(self.system, self.path)
            if durable and not self._named_for_good:
                self.system.fsync_dir(os.path.dirname(self.path) or ".")
                self._named_for_good = True

    def copy(self) -> Location:
        """A new, empty file beside this one that takes its place when published."""
        work = _beside(self.system, self.path, "pnctmp")
        made = Location(self.system, self.path, work, exclusive=self.exclusive, unseen=self.unseen)
        mode = self.system.stat(self.work).st_mode & 0o7777
        with _named(self.path):
            made.key = _write_new(self.system, made.work, b"", mode)
            try:
                # Logs that belong to the file belong to the copy once that has its name.
                carry(self.system, self.work, made.work)
            except OSError:
                made.discard()
                raise
        return made

    def discard(self) -> None:
        """Remove the file if it is not under its name."""
        if not self.published:
            with suppress(OSError):
                self.system.unlink(self.work)

    def replace_header(self, driver: Driver, old: bytes, new: bytes, *, durable: bool = False) -> None:
        """Put `new` where `old` is, in the file that `driver` has open.

        Raises
        ------
        OSError
            The header in the file is the old one, or, if even that could not be put back, the journal is kept
            and the next open completes it.
        """
        if not self.published:
            write_bytes(driver, 0, new)
            return
        journal = journal_path(self.path)
        body = old + new
        with _named(self.path):
            there = self.system.stat(self.path)
            content = _JOURNAL.pack(_MAGIC, there.st_ino, len(old), len(new), zlib.crc32(body)) + body
            _forget_journal(self.system, self.path)
            # Who may read the file must be able to read its header, wherever that is.
            _write_new(self.system, journal, content, 0o600 | there.st_mode & 0o666, durable=durable)
            if durable:
                # The folder holds the file's own name as well.
                self.system.fsync_dir(os.path.dirname(self.path) or ".")
                self._named_for_good = True
            self._torn = old
            try:
                write_bytes(driver, 0, new)
                if durable:
                    driver.sync()
                self.system.unlink(journal)
                self._torn = None
            except OSError:
                # What failed first says more; what cannot be restored now is, before the next header.
                with suppress(OSError):
                    self.restore_header(driver)
                raise

    def restore_header(self, driver: Driver) -> None:
        """Put back the header that a failed replacement may have left half done; nothing to do otherwise.

        Raises
        ------
        OSError
            The journal is kept, for the next attempt or the next open.
        """
        if self._torn is not None:
            write_bytes(driver, 0, self._torn)
            _forget_journal(self.system, self.path)
            self._torn = None


def write_bytes(driver: Driver, offset: int, data: bytes) -> None:
    """Write `data` at `offset`, on this rank alone."""
    driver.write(one_extent(offset, len(data)), np.frombuffer(data, np.uint8))


def journal_path(path: str) -> str:
    """The name of a file's journal."""
    return neighbour(path, "pncj")


def neighbour(path: str, suffix: str) -> str:
    """The name of a hidden file that belongs to a file, the same each time: ``.NAME.suffix``.

    Examples
    --------
    >>> neighbour("folder/out.nc", "pncj")
    'folder/.out.nc.pncj'
    """
    head, tail = os.path.split(path)
    raw = os.fsencode(tail)
    if len(raw) > _LONGEST:
        # a name may have 255 bytes: of a longer one the start, and what tells it from others of that start
        tail = f"{_cut(raw, _LONGEST - 9)}.{zlib.crc32(raw):08x}"
    return os.path.join(head, f".{tail}.{suffix}")


def _cut(name: bytes, nbytes: int) -> str:
    """The start of a name, without half a character at its end."""
    return name[:nbytes].decode("utf-8", "ignore")


def recover(system: System, path: str, *, writable: bool, target: str = "") -> bytes | None:
    """Complete a header replacement that was cut short.

    Parameters
    ----------
    path : str
    writable : bool
        Put the new header in place; else it is only returned.
    target : str, optional
        The path without symbolic links, where it is known.

    Returns
    -------
    bytes or None
        The header to use instead of what the file begins with; None if there is nothing to complete.
    """
    target = target or system.realpath(path)
    journal = journal_path(target)
    content = _read_if_there(system, journal)
    if content is None:
        return None
    found = _open_journal(content)
    fd = system.open(target, os.O_RDWR if writable else os.O_RDONLY)
    try:
        if found is not None:
            inode, old, new = found
            size = max(len(old), len(new))
            now = bytearray(size)
            del now[read_at(system, fd, memoryview(now), 0) :]
            if system.fstat(fd).st_ino != inode or not _is_mix(bytes(now), old, new):
                if _read_if_there(system, journal) != content:
                    # Its writer is at work, and was done with this header between the two looks.
                    return recover(system, path, writable=writable, target=target)
                warn_outside(
                    f"{path}: the journal {journal} belongs to another state of the file and is not used; remove it",
                )
                return None
            if not writable:
                return new
            write_all(system, fd, new, 0)
        if writable:
            # A torn journal means that the header was not touched yet.
            system.unlink(journal)
    finally:
        system.close(fd)
    return None


def _read_if_there(system: System, path: str) -> bytes | None:
    try:
        return _read_whole(system, path)
    except FileNotFoundError:
        return None


def _open_journal(content: bytes) -> tuple[int, bytes, bytes] | None:
    if len(content) < _JOURNAL.size:
        return None
    magic, inode, old_size, new_size, crc = _JOURNAL.unpack_from(content)
    body = content[_JOURNAL.size :]
    if magic != _MAGIC or old_size + new_size != len(body) or zlib.crc32(body) != crc:
        return None
    return inode, body[:old_size], body[old_size:]


def _is_mix(now: bytes, old: bytes, new: bytes) -> bool:
    """Whether every byte is the old one or the new one, as far as each goes."""
    # Behind the end of the old header there was free space, or the end of the file: nothing is known of it.
    size = min(len(now), len(old))
    found, stale = np.frombuffer(now, np.uint8, size), np.frombuffer(old, np.uint8, size)
    fresh = np.frombuffer(new.ljust(size, b"\0"), np.uint8, size)
    changed = found != fresh
    changed[len(new) :] = True
    return not bool((changed & (found != stale)).any())


def mode_of_new(system: System, target: str, *, exclusive: bool) -> int:
    """The permissions of a file that will take the place of `target`.

    Raises
    ------
    FileExistsError, IsADirectoryError, PermissionError, OSError
        Nothing may take its place, or, with `exclusive`, there is something.
    """
    try:
        there = system.stat(target)
    except FileNotFoundError:
        return 0o666 & ~system.umask()
    check_place(there, target, exclusive=exclusive)
    try:
        # a rename asks for no right to the file that it replaces: who took it away meant to keep the file
        system.close(system.open(target, os.O_WRONLY | os.O_CLOEXEC))
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


def _beside(system: System, target: str, suffix: str) -> str:
    head, tail = os.path.split(target)
    # A name may have 255 bytes; what is cut from a long one is made up for by the token.
    return os.path.join(head, f".{_cut(os.fsencode(tail), 100)}.{system.token()}.{suffix}")


def _write_new(system: System, path: str, content: bytes, mode: int, *, durable: bool = False) -> tuple[int, int]:
    """Make a file; its device and inode."""
    folder = os.path.dirname(path) or "."
    try:
        fd = system.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, f"there is no folder {folder!r}; make it first", path) from None
    except PermissionError as error:
        # new headers and new layouts need a file beside the old one, so this is met when an old file is changed too
        text = f"no file can be made in the folder {folder!r}; get the right to write there, or use another folder"
        raise PermissionError(error.errno, text, path) from None
    try:
        try:
            system.fchmod(fd, mode)
            if content:
                write_all(system, fd, content, 0)
            if durable:
                system.fsync(fd)
            made = system.fstat(fd)
        finally:
            system.close(fd)
    except OSError:
        with suppress(OSError):
            system.unlink(path)
        raise
    return made.st_dev, made.st_ino


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
        system.link(work, path)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
            raise
        # No hard links here: take the name first, then put the file over it.
        system.close(system.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
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


def _forget_journal(system: System, path: str) -> None:
    with suppress(FileNotFoundError):
        system.unlink(journal_path(path))


def _read_whole(system: System, path: str) -> bytes:
    fd = system.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        content = bytearray(system.fstat(fd).st_size)
        del content[read_at(system, fd, memoryview(content), 0) :]
        return bytes(content)
    finally:
        system.close(fd)


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Let errors name the user's file, not the temporary one or the journal."""
    try:
        yield
    except OSError as error:
        if error.errno and error.filename != path:
            raise type(error)(error.errno, error.strerror, path) from error
        raise
