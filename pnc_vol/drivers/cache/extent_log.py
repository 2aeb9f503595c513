"""The extent log beside a cache file: which bytes of it are to be carried to the global file, and the headers held.

Knows: records, tables of extents, one log's two files. Does not know: threads, the global file.

Two files: ``.extents`` holds records of 64 bytes, each with a CRC (`pnc_vol.append_log`); ``.tables`` holds what a
record has besides: offsets and lengths (int64, little-endian), and the bytes of a header.

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
=============  ====================================================================================================

Rules
-----
1. A ``write`` is recorded before the cache file is changed: bytes that the log does not tell of are as they were.
2. A record that cannot be written whole is not written, and is an error.
3. The checksum is a sum of 64-bit words, modulo 2^64, in place of a CRC, which takes half as long as the write itself.
   Each record has a CRC.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from pnc_vol.append_log.records import RecordFormat, RecordWriter
from pnc_vol.append_log.tail import Tail, create_private, lock_of_writer
from pnc_vol.drivers.byte_copy import copy_pieces
from pnc_vol.extents.model import Extents, before
from pnc_vol.system import System

__all__ = [
    "CUT", "EPOCH", "FORMAT", "GROW", "HEADER", "KINDS", "RELEASED", "SUFFIX", "SYNCED", "TABLES", "THROUGH", "WRITE",
    "ExtentLog", "Subject", "checksum", "gathered",
]  # fmt: skip

SUFFIX, TABLES = ".extents", ".tables"

WRITE, THROUGH, HEADER, GROW, CUT, EPOCH, SYNCED, RELEASED = range(1, 9)
KINDS = {
    WRITE: "write", THROUGH: "through", HEADER: "header", GROW: "grow", CUT: "cut", EPOCH: "epoch", SYNCED: "synced",
    RELEASED: "released",
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
    """The sum of the 64-bit words of some bytes, the last word filled with zeros.

    Examples
    --------
    >>> checksum(np.arange(9, dtype=np.uint8)) == int.from_bytes(bytes(range(8)), "little") + 8
    True
    """
    whole = data.nbytes // 8 * 8
    words = data[:whole].view("<u8")
    rest = int.from_bytes(data[whole:].tobytes(), "little")
    return (int(np.add.reduce(words, dtype=np.uint64)) + rest) % (1 << 64)


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
        self._system, self._stem, self._subject, self._finished = system, stem, subject, False
        # the program's thread and the sync threads
        self._lock = threading.Lock()
        fds: list[int] = []
        try:
            fds = [create_private(system, stem + TABLES), create_private(system, stem + SUFFIX)]
            self._tables, self._records = (Tail(system, fd, _WINDOW) for fd in fds)
            self._lock_fd = lock_of_writer(system, stem + SUFFIX)
            fds.append(self._lock_fd)
            self._begin()
        except BaseException:
            for fd in fds:
                system.close(fd)
            for suffix in (TABLES, SUFFIX):
                with suppress(OSError):
                    system.unlink(stem + suffix)
            raise

    def _begin(self) -> None:
        file, rank, num_ranks, path = self._subject
        self._writer = RecordWriter(FORMAT, self._records.append, file=file, rank=rank, num_ranks=num_ranks, path=path)

    @property
    def nbytes(self) -> int:
        """Bytes of both files."""
        return self._tables.end + self._records.end

    def extents(self, kind: int, epoch: int, extents: Extents, *, checksum: int = 0, data: bytes = b"") -> None:
        """Record extents, with what is said of them, and the bytes of a header.

        Raises
        ------
        OSError
            There is no room; nothing was recorded.
        """
        columns = np.concatenate((extents.offset, extents.length)).astype("<i8", copy=False).tobytes()
        table = columns + data
        with self._lock:
            begin = self._tables.end
            self._tables.append(table)
            try:
                self._add(kind, epoch, len(extents.offset), extents.nbytes, crc32(table), checksum)
            except OSError:
                self._tables.take_back(begin)
                raise

    def note(self, kind: int, epoch: int, nbytes: int = 0) -> None:
        """Record something that has no extents.

        Raises
        ------
        OSError
            There is no room; nothing was recorded.
        """
        with self._lock:
            self._add(kind, epoch, 0, nbytes, 0, 0)

    def _add(self, kind: int, epoch: int, count: int, nbytes: int, table_crc: int, checksum: int) -> None:
        end = self._records.end
        try:
            self._writer.add(kind, table_crc, epoch, self._tables.end, count, nbytes, checksum, 0)
        except OSError:
            self._records.take_back(end)
            raise

    def restart(self, epoch: int) -> None:
        """Begin anew: all that the log told of is in the global file, epochs up to `epoch` have ended.

        Raises
        ------
        OSError
            There is no room.
        """
        with self._lock:
            self._tables.cut(0)
            self._records.cut(0)
            self._begin()
            if epoch:
                self._add(EPOCH, epoch, 0, 0, 0, 0)

    def finish(self) -> None:
        """Say that there is nothing to carry, which needs no room: the log is empty from now on.

        Raises
        ------
        OSError
            It can be neither emptied nor removed.
        """
        with self._lock:
            if not self._finished:
                try:
                    self._records.cut(0)
                except OSError:
                    self._system.unlink(self._stem + SUFFIX)
                self._finished = True

    def sync(self) -> None:
        """Bring the log to stable storage."""
        for tail in (self._tables, self._records):
            self._system.fdatasync(tail.fd)

    def close(self, *, keep: bool) -> None:
        """Let go of the files; unless they are to be kept, the log is empty then, and has no tables."""
        if not keep:
            # The records first: without them the rest counts for nothing.
            with suppress(OSError):
                self.finish()
        for tail in (self._tables, self._records):
            with suppress(OSError):
                tail.close()
        if not keep:
            with suppress(OSError):
                self._system.unlink(self._stem + TABLES)
        with suppress(OSError):
            self._system.close(self._lock_fd)

    def forget(self) -> None:
        """Close the descriptors that a forked child got."""
        for fd in (self._tables.fd, self._records.fd, self._lock_fd):
            with suppress(OSError):
                self._system.close(fd)


def gathered(extents: Extents, memory: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """The bytes of extents one after another; a view of the memory if they lie so."""
    place, length = extents.place, extents.length
    if not len(place):
        return memory[:0]
    if len(place) == 1 or bool((place[1:] == place[:-1] + length[:-1]).all()):
        return memory[int(place[0]) : int(place[-1] + length[-1])]
    packed = np.empty(extents.nbytes, np.uint8)
    copy_pieces(packed, before(length), memory, place, length)
    return packed
