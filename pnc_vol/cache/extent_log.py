"""The extent log lists which bytes of a cache file are to be carried to the global file, and the pending headers.

Knows: records, tables of extents, the log's file. Does not know: threads, the global file.

The file ``.extents`` holds records of 64 bytes, each with a CRC (`pnc_vol.append_log.records`, which has the states of
its end), and behind a record its table: offsets and lengths (int64, little-endian), and the bytes of a header.

=============  ====================================================================================================
record         meaning
=============  ====================================================================================================
``write``      these extents are being written to the cache file; `checksum` is that of their new bytes in a row
``through``    these extents were written to the global file itself: what the cache has of them is old
``header``     these extents, with their bytes in the table, follow when all data of the epoch are in the file, which
               has at least `nbytes` bytes then
``cut``        the file was cut to `nbytes` bytes
``epoch``      three epochs, 0 for none. `epoch`: the flush that ends it is complete, and its data are in the caches of
               all ranks or in the file. `nbytes`: of the writes up to here, those of epochs up to this one are in the
               global file. `checksum`: what was held for epochs up to this one is there
=============  ====================================================================================================

What a reader concludes from a record. *Missing* is what the global file may lack, by epoch; *held* is what follows the
data of an epoch, oldest first. A log that is empty, or holds zeros alone, was ended: nothing is missing or held.

=============  ====================================================  ===============================================
record         missing                                               held
=============  ====================================================  ===============================================
``write``      its extents are added to its epoch, and stay in       what has a byte of them goes: it is older
               older ones that they are missing in
``through``    its extents go from all epochs                        what has a byte of them goes
``cut``        what lies behind `nbytes` goes                        each is cut to `nbytes`
``header``     (no change)                                           it is added
``epoch``      the epoch may be carried, with all before it; what    the same; what is of epochs that are there goes
               is of epochs that are in the file goes
=============  ====================================================  ===============================================

Rules
-----
1. A ``write`` is recorded before the cache file is changed: bytes that the log does not tell of are as they were.
2. A record that cannot be written whole is not written, and is an error.
3. The checksum is a sum of 64-bit words, modulo 2^64, in place of a CRC, which takes half as long as the write itself.
   It finds every cut and every flipped bit, and not two words that changed places. Each record has a CRC.
4. The valid prefix of the records counts; a kill tears at most the end.
5. What is held is cut with the file. What was written over was in the global file by then: else it would be held, too.
6. A write can be checked as long as no later one changed a byte of it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.append_log.records import RecordFormat, RecordHeader, RecordWriter, decode_records
from pnc_vol.append_log.tail import Tail, create_private, lock_of_writer
from pnc_vol.drivers.vectored_io import copy_pieces
from pnc_vol.errors import LogError
from pnc_vol.extents.merge import EMPTY, Ranges, ranges_of
from pnc_vol.extents.model import Extents, before
from pnc_vol.system import System, is_open
from pnc_vol.system.full_io import read_whole

__all__ = [
    "CUT", "EPOCH", "FORMAT", "HEADER", "KINDS", "SUFFIX", "THROUGH", "WRITE", "CacheLog", "ExtentLog", "PendingHeader",
    "Written", "checksum", "gathered", "read_cache_log",
]  # fmt: skip

SUFFIX, _NEW = ".extents", ".new"

WRITE, THROUGH, HEADER, CUT, EPOCH = range(1, 6)
KINDS = {WRITE: "write", THROUGH: "through", HEADER: "header", CUT: "cut", EPOCH: "epoch"}

FORMAT = RecordFormat(
    "extent log",
    b"PncVolE2",
    KINDS,
    ("table_crc", "table_bytes", "epoch", "count", "nbytes", "checksum", "reserved"),
)

_WINDOW = 1 << 20


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


class PendingHeader(NamedTuple):
    """What follows the data of an epoch.

    epoch : int
    extents : Extents, of the header or the record count; `place` is in `data`.
    data : uint8[...]
    reach : int, bytes that the file has then at least.
    """

    epoch: int
    extents: Extents
    data: npt.NDArray[np.uint8]
    reach: int = 0

    def covers(self, ranges: Ranges) -> bool:
        """Return whether it has a byte of these ranges."""
        return ranges_of(self.extents.offset, self.extents.length).touches(ranges)

    def below(self, nbytes: int) -> PendingHeader:
        """Return what is left of it in a file that is cut."""
        length = np.clip(nbytes - self.extents.offset, 0, self.extents.length)
        return self._replace(extents=self.extents._replace(length=length), reach=min(self.reach, nbytes))


class _LogFile:
    """The file of a log that is being written, with the lock of its writer.

    Raises
    ------
    OSError
        It cannot be made.
    """

    __slots__ = ("lock_fd", "tail", "writer")

    def __init__(self, system: System, path: str, header: RecordHeader) -> None:
        fds: list[int] = []
        try:
            fds.append(create_private(system, path))
            self.tail = Tail(system, fds[0], _WINDOW)
            fds.append(lock_of_writer(system, path))
            self.lock_fd = fds[1]
            self.writer = RecordWriter(FORMAT, self.tail, header)
        except BaseException:
            for fd in fds:
                system.close(fd)
            if fds:
                with suppress(OSError):
                    system.unlink(path)
            raise

    def forget(self) -> None:
        """Close the descriptors."""
        self.tail.give_up_window()
        for fd in (self.tail.fd, self.lock_fd):
            with suppress(OSError):
                self.tail.system.close(fd)


class ExtentLog:
    """The log of one process, being written.

    Parameters
    ----------
    system : System
    stem : str, path of the file without its suffix.
    header : RecordHeader, with the identity of the global file, by its inode.

    Raises
    ------
    OSError
        The file cannot be made.
    """

    def __init__(self, system: System, stem: str, header: RecordHeader) -> None:
        self._system, self._path, self._header = system, stem + SUFFIX, header
        self._finished = False
        # the program's thread and the sync threads
        self._lock = threading.RLock()
        self._file = _LogFile(system, self._path, header)

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return self._file.tail.end

    def extents(
        self, kind: int, epoch: int, extents: Extents, *, nbytes: int = 0, checksum: int = 0, data: bytes = b""
    ) -> None:
        """Record extents, with what is said of them, and the bytes of a header.

        Raises
        ------
        OSError
            There is no room; nothing was recorded.
        """
        columns = np.concatenate((extents.offset, extents.length)).astype("<i8", copy=False).tobytes()
        with self._lock:
            self._file.writer.add_with_table(kind, (columns, data), epoch, len(extents.offset), nbytes, checksum, 0)

    def note(self, kind: int, epoch: int, nbytes: int = 0, checksum: int = 0) -> None:
        """Record something that has no extents.

        Raises
        ------
        OSError
            There is no room; nothing was recorded.
        """
        with self._lock:
            self._file.writer.add(kind, 0, 0, epoch, 0, nbytes, checksum, 0)

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
            old, path = self._file, self._path + _NEW
            new = _LogFile(self._system, path, self._header)
            try:
                self._file = new
                fill()
                self._system.rename(path, self._path)
            except BaseException:
                self._file = old
                new.forget()
                with suppress(OSError):
                    self._system.unlink(path)
                raise
            old.forget()

    def finish(self) -> None:
        """Say that there is nothing to carry, which needs no room: the log is empty from now on.

        Raises
        ------
        OSError
            It can be neither emptied nor removed.
        """
        with self._lock:
            if not self._finished and is_open(self._file.tail.fd):
                try:
                    self._file.tail.cut(0)
                except OSError:
                    self._system.unlink(self._path)
                self._finished = True

    def sync(self) -> None:
        """Bring the log to stable storage."""
        self._system.fdatasync(self._file.tail.fd)

    def close(self, *, keep: bool) -> None:
        """Let go of the file; unless it is to be kept, the log is empty then."""
        if not keep:
            with suppress(OSError):
                self.finish()
        with suppress(OSError):
            self._file.tail.close()
        with suppress(OSError):
            self._system.close(self._file.lock_fd)

    def forget(self) -> None:
        """Close the descriptors that a forked child got."""
        self._file.forget()


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


# ------------------------------------------------------------------------------------------------------------- reading


class Written(NamedTuple):
    """One record of a write.

    epoch : int
    extents : Extents, in the order of the checksum.
    checksum : int, of their bytes.
    """

    epoch: int
    extents: Extents
    checksum: int


LOG_ID = 48
"""Bytes of the header of a log that tell one log from the next in the same file."""
_MOST = 1 << 62
"""Bytes that no file has, and epochs that no job has."""


class CacheLog:
    """A log, as far as its records were taken in.

    Attributes
    ----------
    header : RecordHeader or None, None for a log that was ended: all that it told of is in the global file.
    ended, released : int, the last epoch that ended, and the last one whose header is in the global file.
    missing : dict of int to Ranges, by epoch: what the global file may lack.
    writes : list of Written, those of which no byte was changed later.
    held : list of PendingHeader, oldest first, not known to be in the global file.
    torn_bytes : int
    damage : str, what no kill explains; "" if nothing.
    head : bytes[48], the beginning of its header, which no other log in the same file has; b"" if the log was ended.
    end : int, where its valid records end in the file.
    """

    def __init__(self, content: bytes = b"") -> None:
        self.header: RecordHeader | None = None
        self.ended, self.released = _MOST, 0
        self.missing: dict[int, Ranges] = {}
        self.writes: list[Written] = []
        self.held: list[PendingHeader] = []
        self.torn_bytes, self.damage, self.head, self.end = 0, "", b"", 0
        if not any(content):
            return
        found = decode_records(FORMAT, content)
        self.header, self.ended = found.header, 0
        self.torn_bytes, self.head, self.end = found.torn_bytes, content[:LOG_ID], found.end
        self.damage = "valid records follow one that is not" if found.later else ""
        for record, table in zip(found.records, found.tables, strict=True):
            try:
                self._take(record, table)
            except LogError as error:
                self.damage = self.damage or str(error)
                break

    def _take(self, record: np.void, table: memoryview) -> None:
        """Go on with the next record and its table."""
        kind, epoch, nbytes, sums = (int(record[name]) for name in ("kind", "epoch", "nbytes", "checksum"))
        if max(epoch, nbytes, sums if kind == EPOCH else 0) > _MOST:
            raise LogError(f"record {int(record['sequence'])} has a number that no file has", field="nbytes")
        extents, data = _extents_of(record, table)
        ranges = ranges_of(extents.offset, extents.length)
        if kind in (WRITE, THROUGH):
            self.held = [one for one in self.held if not one.covers(ranges)]
        if kind == WRITE:
            # What an earlier epoch wants of these bytes it wants still, whether this epoch ends or not.
            self._forget(lambda old: old, ranges)
            self.missing[epoch] = self.missing.get(epoch, EMPTY).plus(ranges)
            self.writes.append(Written(epoch, extents, sums))
        elif kind == THROUGH:
            self._forget(lambda old: old.minus(ranges), ranges)
        elif kind == CUT:
            self._forget(lambda old: old.below(nbytes), Ranges(np.array([nbytes]), np.array([_MOST])))
            self.held = [one.below(nbytes) for one in self.held]
        elif kind == HEADER:
            if data.nbytes != extents.nbytes:
                raise LogError("the bytes of a held header are not there", field="count")
            if checksum(data) != sums:
                raise LogError("the bytes of a held header have a wrong checksum", field="checksum")
            self.held.append(PendingHeader(epoch, extents, data, nbytes))
        elif kind == EPOCH:
            self.ended, self.released = max(self.ended, epoch), max(self.released, sums)
            self.missing = {of: left for of, left in self.missing.items() if of > nbytes}
            self.writes = [one for one in self.writes if one.epoch > nbytes]
            self.held = [one for one in self.held if one.epoch > sums]

    def _forget(self, what: Callable[[Ranges], Ranges], changed: Ranges) -> None:
        """Leave a part of what is missing; writes that `changed` touches cannot be checked any more."""
        left = {epoch: what(ranges) for epoch, ranges in self.missing.items()}
        self.missing = {epoch: ranges for epoch, ranges in left.items() if ranges.start.size}
        self.writes = [one for one in self.writes if not ranges_of(*one.extents[:2]).touches(changed)]


def _extents_of(record: np.void, table: memoryview) -> tuple[Extents, npt.NDArray[np.uint8]]:
    """Return the extents of a record, and what its table has besides."""
    count, nbytes = int(record["count"]), int(record["table_bytes"])
    if nbytes < 16 * count or (nbytes and not count):
        raise LogError(f"record {int(record['sequence'])} has a table of another size", field="table_bytes")
    columns = np.frombuffer(table, "<i8", 2 * count).reshape(2, count).astype(np.int64)
    if columns.size and (int(columns.min()) < 0 or int((columns[0] + columns[1]).max()) < 0):
        raise LogError(f"record {int(record['sequence'])} has extents that no file has", field="offset")
    return Extents(columns[0], columns[1], before(columns[1])), np.frombuffer(table, np.uint8)[16 * count : nbytes]


def read_cache_log(system: System, stem: str) -> CacheLog:
    """Return what a log says.

    Parameters
    ----------
    stem : str, path of its file without the suffix.

    Raises
    ------
    LogError
        The header is wrong.
    OSError
        It cannot be read.
    """
    return CacheLog(read_whole(system, stem + SUFFIX, flags=os.O_NOFOLLOW))
