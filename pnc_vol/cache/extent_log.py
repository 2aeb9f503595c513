"""The extent log lists which bytes of a cache file are to be carried to the global file, and the pending headers.

Knows: records, tables of extents, one log's two files. Does not know: threads, the global file.

Two files: ``.extents`` holds records of 64 bytes, each with a CRC (`pnc_vol.append_log`); ``.tables`` holds what a
record has besides: offsets and lengths (int64, little-endian), and the bytes of a header. A log that was begun anew has
its tables in ``.tables1``, the one after it in ``.tables`` again, so that the old log is whole until the new one is.

=============  ====================================================================================================
record         meaning
=============  ====================================================================================================
``write``      these extents are being written to the cache file; `checksum` is that of their new bytes in a row
``through``    these extents were written to the global file itself: what the cache has of them is old
``header``     these extents, with their bytes in the table, follow when the epoch is released
``grow``       the file has at least `nbytes` bytes when the epoch is released
``cut``        the file was cut to `nbytes` bytes
``epoch``      a flush is complete: the epoch ends, and its data are in the caches of all ranks or in the file
``synced``     of the writes up to here, those of epochs up to this one are in the global file
``released``   what was held for epochs up to this one is in the global file
``begin``      the first record of a log that was begun anew: its tables are in the file of this number, `nbytes`
=============  ====================================================================================================

Rules
-----
1. A ``write`` is recorded before the cache file is changed: bytes that the log does not tell of are as they were.
2. A record that cannot be written whole is not written, and is an error.
3. The checksum is a sum of 64-bit words, modulo 2^64, in place of a CRC, which takes half as long as the write itself.
   It finds every cut and every flipped bit, and not two words that changed places. Each record has a CRC.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from pnc_vol.append_log.records import RecordFormat, RecordWriter
from pnc_vol.append_log.tail import Tail, create_private, lock_of_writer
from pnc_vol.drivers.vectored_io import copy_pieces
from pnc_vol.extents.model import Extents, before
from pnc_vol.system import System, is_open
from pnc_vol.system.full_io import read_whole

__all__ = [
    "BEGIN", "CUT", "EPOCH", "FORMAT", "GROW", "HEADER", "KINDS", "RELEASED", "SUFFIX", "SYNCED", "TABLES", "THROUGH",
    "WRITE", "ExtentLog", "Subject", "checksum", "gathered", "read_log",
]  # fmt: skip

SUFFIX, TABLES = ".extents", (".tables", ".tables1")
_NEW = ".new"

WRITE, THROUGH, HEADER, GROW, CUT, EPOCH, SYNCED, RELEASED, BEGIN = range(1, 10)
KINDS = {
    WRITE: "write", THROUGH: "through", HEADER: "header", GROW: "grow", CUT: "cut", EPOCH: "epoch", SYNCED: "synced",
    RELEASED: "released", BEGIN: "begin",
}  # fmt: skip

FORMAT = RecordFormat(
    "extent log",
    b"PncVolE1",
    KINDS,
    ("table_crc", "epoch", "table_end", "count", "nbytes", "checksum", "reserved"),
)

_WINDOW = 1 << 20


class Subject(NamedTuple):
    """What a log says of itself.

    file : bytes[16], identity of the global file, by its inode.
    rank, num_ranks : int
    path : str, of the global file.
    """

    file: bytes
    rank: int
    num_ranks: int
    path: str


def checksum(data: npt.NDArray[np.uint8]) -> int:
    """Return the sum of the 64-bit words of some bytes, the last word filled with zeros.

    Examples
    --------
    >>> checksum(np.arange(9, dtype=np.uint8)) == int.from_bytes(bytes(range(8)), "little") + 8
    True
    """
    whole = data.nbytes // 8 * 8
    words = data[:whole].view("<u8")
    rest = int.from_bytes(data[whole:].tobytes(), "little")
    return (int(np.add.reduce(words, dtype=np.uint64)) + rest) % (1 << 64)


def read_log(system: System, stem: str) -> tuple[bytes, Callable[[int], bytes]]:
    """Return the records of a log, and what reads its tables.

    Raises
    ------
    OSError
    """

    def tables_of(number: int) -> bytes:
        try:
            return read_whole(system, stem + TABLES[number % len(TABLES)], flags=os.O_NOFOLLOW)
        except FileNotFoundError:
            # a power failure may leave an empty file as well as none: what the records need of it decides
            return b""

    return read_whole(system, stem + SUFFIX, flags=os.O_NOFOLLOW), tables_of


class _LogPair:
    """The two files of a log, being written.

    Parameters
    ----------
    system : System
    records, tables : str, paths of files that do not exist.
    subject : Subject

    Raises
    ------
    OSError
        They cannot be made.
    """

    __slots__ = ("_paths", "_system", "_writer", "lock_fd", "records", "tables")

    def __init__(self, system: System, records: str, tables: str, subject: Subject) -> None:
        self._system, self._paths = system, [records, tables]
        fds: list[int] = []
        try:
            for path in (tables, records):
                fds.append(create_private(system, path))
            self.tables, self.records = (Tail(system, fd, _WINDOW) for fd in fds)
            self.lock_fd = lock_of_writer(system, records)
            fds.append(self.lock_fd)
            file, rank, num_ranks, path = subject
            self._writer = RecordWriter(
                FORMAT, self.records.append, file=file, rank=rank, num_ranks=num_ranks, path=path
            )
        except BaseException:
            for fd in fds:
                system.close(fd)
            self._remove()
            raise

    def add(self, kind: int, epoch: int, count: int, nbytes: int, checksum: int, table: bytes = b"") -> None:
        """Add a record and what it has besides: both, or an error and none."""
        begin, end = self.tables.end, self.records.end
        try:
            if table:
                self.tables.append(table)
            self._writer.add(kind, crc32(table), epoch, self.tables.end, count, nbytes, checksum, 0)
        except OSError:
            self.records.take_back(end)
            self.tables.take_back(begin)
            raise

    def rename(self, records: str) -> None:
        """Give the records the name of those of another log, in its place."""
        self._system.rename(self._paths[0], records)
        self._paths[0] = records

    def replaced(self) -> None:
        """Let go of both files; another one has the name of the records."""
        self.forget()
        self._paths.pop(0)
        self._remove()

    def drop(self) -> None:
        """Let go of both files, and remove them."""
        self.forget()
        self._remove()

    def close(self, *, keep: bool) -> None:
        """Let go of both files; unless they are to be kept, the tables are removed."""
        for tail in (self.tables, self.records):
            with suppress(OSError):
                tail.close()
        if not keep:
            with suppress(OSError):
                self._system.unlink(self._paths[1])
        with suppress(OSError):
            self._system.close(self.lock_fd)

    def forget(self) -> None:
        """Close the descriptors."""
        for tail in (self.tables, self.records):
            tail.give_up_window()
        for fd in (self.tables.fd, self.records.fd, self.lock_fd):
            with suppress(OSError):
                self._system.close(fd)

    def _remove(self) -> None:
        for path in self._paths:
            with suppress(OSError):
                self._system.unlink(path)


class ExtentLog:
    """The log of one process, being written.

    Parameters
    ----------
    system : System
    stem : str, path of both files without their suffixes.
    subject : Subject

    Raises
    ------
    OSError
        The files cannot be made.
    """

    def __init__(self, system: System, stem: str, subject: Subject) -> None:
        self._system, self._stem, self._subject = system, stem, subject
        self._number, self._finished = 0, False
        # the program's thread and the sync threads
        self._lock = threading.RLock()
        self._files = _LogPair(system, stem + SUFFIX, stem + TABLES[0], subject)

    @property
    def nbytes(self) -> int:
        """Bytes of both files."""
        return self._files.tables.end + self._files.records.end

    def extents(self, kind: int, epoch: int, extents: Extents, *, checksum: int = 0, data: bytes = b"") -> None:
        """Record extents, with what is said of them, and the bytes of a header.

        Raises
        ------
        OSError
            There is no room; nothing was recorded.
        """
        columns = np.concatenate((extents.offset, extents.length)).astype("<i8", copy=False).tobytes()
        with self._lock:
            self._files.add(kind, epoch, len(extents.offset), extents.nbytes, checksum, columns + data)

    def note(self, kind: int, epoch: int, nbytes: int = 0) -> None:
        """Record something that has no extents.

        Raises
        ------
        OSError
            There is no room; nothing was recorded.
        """
        with self._lock:
            self._files.add(kind, epoch, 0, nbytes, 0)

    def restart(self, fill: Callable[[], None]) -> None:
        """Begin anew; a kill leaves the old log or the new one.

        Parameters
        ----------
        fill : callable
            Records in the new log what of the old one is needed still.

        Raises
        ------
        OSError
            There is no room; the log is as it was.
        """
        with self._lock:
            old, number = self._files, 1 - self._number
            new = _LogPair(self._system, self._stem + SUFFIX + _NEW, self._stem + TABLES[number], self._subject)
            try:
                self._files = new
                self.note(BEGIN, 0, number)
                fill()
                new.rename(self._stem + SUFFIX)
            except BaseException:
                self._files = old
                new.drop()
                raise
            self._number = number
            old.replaced()

    def finish(self) -> None:
        """Say that there is nothing to carry, which needs no room: the log is empty from now on.

        Raises
        ------
        OSError
            It can be neither emptied nor removed.
        """
        with self._lock:
            if not self._finished and is_open(self._files.records.fd):
                try:
                    self._files.records.cut(0)
                except OSError:
                    self._system.unlink(self._stem + SUFFIX)
                self._finished = True

    def sync(self) -> None:
        """Bring the log to stable storage."""
        for tail in (self._files.tables, self._files.records):
            self._system.fdatasync(tail.fd)

    def close(self, *, keep: bool) -> None:
        """Let go of the files; unless they are to be kept, the log is empty then, and has no tables."""
        if not keep:
            # The records first: without them the rest counts for nothing.
            with suppress(OSError):
                self.finish()
        self._files.close(keep=keep)

    def forget(self) -> None:
        """Close the descriptors that a forked child got."""
        self._files.forget()


def gathered(extents: Extents, memory: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return the bytes of extents one after another; a view of the memory if they lie so."""
    place, length = extents.place, extents.length
    if not len(place):
        return memory[:0]
    if len(place) == 1 or bool((place[1:] == place[:-1] + length[:-1]).all()):
        return memory[int(place[0]) : int(place[-1] + length[-1])]
    packed = np.empty(extents.nbytes, np.uint8)
    copy_pieces(packed, before(length), memory, place, length)
    return packed
