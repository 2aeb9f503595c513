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
``header``     these extents, with their bytes in the table, follow when all data of the epoch are in the file
``grow``       the file has at least `nbytes` bytes then
``cut``        the file was cut to `nbytes` bytes
``epoch``      a flush is complete: the epoch ends, and its data are in the caches of all ranks or in the file
``synced``     of the writes up to here, those of epochs up to this one are in the global file
``released``   what was held for epochs up to this one is in the global file
``begin``      the first record of a log that was begun anew: its tables are in the file of this number, `nbytes`
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
``grow``       (no change)                                           it is added
``synced``     epochs up to this one go                              (no change)
``released``   (no change)                                           what is of epochs up to this one goes
``epoch``      the epoch may be carried, with all before it          the same
=============  ====================================================  ===============================================

Rules
-----
1. A ``write`` is recorded before the cache file is changed: bytes that the log does not tell of are as they were.
2. A record that cannot be written whole is not written, and is an error.
3. The checksum is a sum of 64-bit words, modulo 2^64, in place of a CRC, which takes half as long as the write itself.
   It finds every cut and every flipped bit, and not two words that changed places. Each record has a CRC.
4. The valid prefix of the records counts; a kill tears at most the end.
5. What is held is cut with the file. What was written over was in the global file by then: else it would be held, too.
6. A write can be checked as long as no later one changed a byte of it. The rest is counted, not checked.
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

from pnc_vol.append_log.records import RecordFormat, RecordHeader, RecordWriter, decode_records
from pnc_vol.append_log.tail import Tail, create_private, lock_of_writer
from pnc_vol.drivers.vectored_io import copy_pieces
from pnc_vol.errors import LogError
from pnc_vol.extents.merge import EMPTY, Ranges, ranges_of
from pnc_vol.extents.model import Extents, before
from pnc_vol.system import System, is_open
from pnc_vol.system.full_io import read_whole

__all__ = [
    "BEGIN", "CUT", "ENDED", "EPOCH", "FORMAT", "GROW", "HEADER", "KINDS", "RELEASED", "SUFFIX", "SYNCED", "TABLES",
    "THROUGH", "WRITE", "CacheLog", "ExtentLog", "PendingHeader", "Subject", "Written", "checksum", "gathered",
    "read_cache_log",
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
        """Add a record and what it has besides: both, or an error and none, also by Ctrl-C."""
        begin, end, sequence = self.tables.end, self.records.end, self._writer.sequence
        try:
            if table:
                self.tables.append(table)
            self._writer.add(kind, crc32(table), epoch, self.tables.end, count, nbytes, checksum, 0)
        except BaseException:
            self.records.take_back(end)
            self.tables.take_back(begin)
            self._writer.sequence = sequence
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


class CacheLog(NamedTuple):
    """A decoded log.

    header : RecordHeader or None, None for a log that was ended: all that it told of is in the global file.
    ended, released : int, the last epoch that ended, and the last one whose header is in the global file.
    missing : dict of int to Ranges, by epoch: what the global file may lack.
    writes : list of Written, those that can be checked.
    unchecked : int, bytes of `missing` that cannot.
    held : list of PendingHeader, oldest first, not known to be in the global file.
    torn_bytes : int
    damage : str, what no kill explains; "" if nothing.
    head : bytes[48], the beginning of its header, which no other log in the same file has; b"" if the log was ended.
    end : int, where its valid records end in the file.
    """

    header: RecordHeader | None
    ended: int
    released: int
    missing: dict[int, Ranges]
    writes: list[Written]
    unchecked: int
    held: list[PendingHeader]
    torn_bytes: int
    damage: str
    head: bytes = b""
    end: int = 0


LOG_ID = 48
"""Bytes of the header of a log that tell one log from the next in the same file."""
_MOST = 1 << 62
"""Bytes that no file has, and epochs that no job has."""
ENDED = CacheLog(None, _MOST, 0, {}, [], 0, [], 0, "")
"""A log that tells of nothing any more."""


def read_cache_log(system: System, stem: str) -> CacheLog:
    """Return what a log says.

    Parameters
    ----------
    stem : str, path of its files without their suffixes.

    Raises
    ------
    LogError
        The header is wrong.
    OSError
        It cannot be read.
    """
    records = read_whole(system, stem + SUFFIX, flags=os.O_NOFOLLOW)
    if not any(records):
        return ENDED
    found = decode_records(FORMAT, records)
    first, tables = found.records[:1], b""
    number = int(first["nbytes"][0]) if first["kind"].tolist() == [BEGIN] else 0
    with suppress(FileNotFoundError):
        # a power failure may leave an empty file as well as none: what the records need of it decides
        tables = read_whole(system, stem + TABLES[number % len(TABLES)], flags=os.O_NOFOLLOW)
    state = _State(tables)
    damage = "valid records follow one that is not" if found.later else ""
    for record in found.records:
        try:
            state.take(record)
        except LogError as error:
            damage = damage or str(error)
            break
    checked = [one for one in state.writes if one.epoch in state.missing]
    total = EMPTY
    for one in checked:
        total = total.plus(ranges_of(one.extents.offset, one.extents.length))
    unchecked = sum(ranges.minus(total).nbytes for ranges in state.missing.values())
    return CacheLog(
        found.header,
        state.ended,
        state.released,
        state.missing,
        checked,
        unchecked,
        state.held,
        found.torn_bytes,
        damage,
        records[:LOG_ID],
        found.end,
    )


class _State:
    """What is known after some records."""

    def __init__(self, tables: bytes) -> None:
        self._tables, self._end = tables, 0
        self.ended = self.released = 0
        self.missing: dict[int, Ranges] = {}
        self.writes: list[Written] = []
        self.held: list[PendingHeader] = []

    def take(self, record: np.void) -> None:
        """Go on with the next record."""
        kind, epoch, nbytes = (int(record[name]) for name in ("kind", "epoch", "nbytes"))
        if max(epoch, nbytes) > _MOST:
            raise LogError(f"record {int(record['sequence'])} has a number that no file has", field="nbytes")
        extents, data = self._table(record)
        ranges = ranges_of(extents.offset, extents.length)
        if kind in (WRITE, THROUGH):
            self.held = [one for one in self.held if not one.covers(ranges)]
        if kind == WRITE:
            # What an earlier epoch wants of these bytes it wants still, whether this epoch ends or not.
            self._forget(lambda old: old, ranges)
            self.missing[epoch] = self.missing.get(epoch, EMPTY).plus(ranges)
            self.writes.append(Written(epoch, extents, int(record["checksum"])))
        elif kind == THROUGH:
            self._forget(lambda old: old.minus(ranges), ranges)
        elif kind == CUT:
            self._forget(lambda old: old.below(nbytes), Ranges(np.array([nbytes]), np.array([_MOST])))
            self.held = [one.below(nbytes) for one in self.held]
        elif kind == HEADER:
            if data.nbytes != extents.nbytes:
                raise LogError("the bytes of a held header are not there", field="count")
            if checksum(data) != int(record["checksum"]):
                raise LogError("the bytes of a held header have a wrong checksum", field="checksum")
            self.held.append(PendingHeader(epoch, extents, data))
        elif kind == GROW:
            if data.nbytes or extents.nbytes:
                raise LogError("a record of a length has bytes besides", field="count")
            self.held.append(PendingHeader(epoch, extents, data, nbytes))
        elif kind == EPOCH:
            self.ended = max(self.ended, epoch)
        elif kind == SYNCED:
            self.missing = {of: left for of, left in self.missing.items() if of > epoch}
            self.writes = [one for one in self.writes if one.epoch > epoch]
        elif kind == RELEASED:
            self.released = max(self.released, epoch)
            self.held = [one for one in self.held if one.epoch > epoch]

    def _table(self, record: np.void) -> tuple[Extents, npt.NDArray[np.uint8]]:
        begin, self._end = self._end, int(record["table_end"])
        count = int(record["count"])
        table = self._tables[begin : self._end]
        if len(table) != self._end - begin or len(table) < 16 * count or (table and not count):
            raise LogError(f"the table of record {int(record['sequence'])} is cut off", field="table_end")
        if count and crc32(table) != int(record["table_crc"]):
            raise LogError(f"the table of record {int(record['sequence'])} has a wrong CRC", field="table_crc")
        columns = np.frombuffer(table, "<i8", 2 * count).reshape(2, count).astype(np.int64)
        if columns.size and (int(columns.min()) < 0 or int((columns[0] + columns[1]).max()) < 0):
            raise LogError(f"record {int(record['sequence'])} has extents that no file has", field="offset")
        return Extents(columns[0], columns[1], before(columns[1])), np.frombuffer(table, np.uint8)[16 * count :]

    def _forget(self, what: Callable[[Ranges], Ranges], changed: Ranges) -> None:
        """Leave a part of what is missing; writes that `changed` touches cannot be checked any more."""
        left = {epoch: what(ranges) for epoch, ranges in self.missing.items()}
        self.missing = {epoch: ranges for epoch, ranges in left.items() if ranges.start.size}
        self.writes = [one for one in self.writes if not ranges_of(*one.extents[:2]).touches(changed)]
