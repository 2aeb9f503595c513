"""`LocalStore` keeps the cache file of one process and the extent log beside it, in the folder of its job.

Knows: both files, and in which order they are written; hosts, directories, ranks and their nodes. Does not know: the
global file, threads.

The ranks of a job have their caches of one file in one folder on each node (`JobCaches`). Every rank knows the
directories of its node, to read what its peers hold, and every place once, for the note by which a recovery finds all
caches. Ranks tell them merged in a tree, so that nobody gets a word of each rank. (Instead of one note there could be a
file for each folder; every opening would then have to list a directory to find them.)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pnc_vol.append_log.private_folders import JobFolders, forget_folder, note_folders
from pnc_vol.append_log.records import RecordHeader
from pnc_vol.cache.extent_log import (
    CUT,
    EPOCH,
    HEADER,
    SUFFIX,
    THROUGH,
    WRITE,
    ExtentLog,
    PendingHeader,
    checksum,
    gathered,
)
from pnc_vol.cache.files import DATA, CacheFile
from pnc_vol.drivers.base import Memory
from pnc_vol.drivers.vectored_io import joined
from pnc_vol.extents.blocks import rounds
from pnc_vol.extents.merge import Ranges
from pnc_vol.extents.model import Extents, before
from pnc_vol.ranks.comm import Comm
from pnc_vol.system import CACHES_NOTED, System, exists, in_memory

__all__ = ["CACHES", "JobCaches", "LocalStore"]

CACHES = JobFolders(
    "pnccache-",
    CACHES_NOTED,
    SUFFIX,
    "e10_cache_path: no cache can be made here ({}); give a directory on node-local storage where you may write, "
    "or open the file without a cache (e10_cache=disable)",
)


@dataclass(frozen=True, slots=True)
class JobCaches:
    """Where the ranks of a job have their caches of one file.

    token : str, random, the same on all ranks.
    rank : int, this one.
    ranks : int, all.
    places : sequence of (str, str), each host with a directory there, once.
    directories : mapping of int to str, those of the ranks of this node; absolute paths.
    """

    token: str
    rank: int
    ranks: int
    places: Sequence[tuple[str, str]]
    directories: Mapping[int, str]

    @classmethod
    def of(cls, comm: Comm, token: str, host: str, directory: str) -> JobCaches:
        """Ask the ranks (collective).

        token : str, that of rank 0 counts.
        directory : str, of this rank.
        """
        nodes = comm.nodes()
        places = comm.merge("open cache", [[host, directory, [[comm.rank, comm.rank]]]], _joined_places)
        token = comm.broadcast("open cache", token)
        peers = nodes.ranks(nodes.of(comm.rank))
        runs = ((range(first, last + 1), there) for _, there, ranks in places for first, last in ranks)
        known = {rank: there for run, there in runs for rank in peers if rank in run}
        return cls(token, comm.rank, comm.size, [(at, there) for at, there, _ in places], known)

    def folder(self, path: str, rank: int) -> str:
        """Return the folder of the caches that a rank of this node and others have of a file, `path`."""
        return os.path.join(self.directories[rank], self._name(path))

    def noted(self, path: str) -> list[str]:
        """Return all folders, each with its host, once."""
        return [f"{host}:{os.path.join(directory, self._name(path))}" for host, directory in self.places]

    def _name(self, path: str) -> str:
        return CACHES.name(path) + self.token


def _joined_places(one: list[Any], other: list[Any]) -> list[Any]:
    """Return hosts and directories of ranks and of higher ones; the ranks as first and last of each run."""
    known = {(host, directory): list(runs) for host, directory, runs in one}
    for host, directory, runs in other:
        own_runs = known.setdefault((host, directory), [])
        if own_runs and own_runs[-1][1] + 1 == runs[0][0]:
            own_runs[-1] = [own_runs[-1][0], runs[0][1]]
            runs = runs[1:]
        own_runs += runs
    return [(*place, runs) for place, runs in known.items()]


_ROW = 16
"""Bytes of a range in the log's tables."""
_ROUND = 16 << 20
"""Bytes of one record of the log at most."""
_LOG_LIMIT = 1 << 20
"""Bytes of a log from which on it is begun anew when all data that it tells of are in the global file."""
_MUCH, _MUCH_LOG = 256 << 20, 16 << 20
"""Bytes written since then, and bytes of the log, from which on it is worth to wait for what is left."""
_LITTLE = 16
"""How many times as much as what is left: where a program waits for that, it is for a 16th of what it wrote at most.

A file would take no space behind the threads if holes were punched there, for which Python has no call. With a second
cache file and log beside the first, every read, thread and recovery would have two sources.
"""


class LocalStore:
    """The cache file and the log of one process.

    Parameters
    ----------
    system : System
    job : JobCaches
    header : RecordHeader, of the log.

    Attributes
    ----------
    file : CacheFile
    log : ExtentLog
    held : list of PendingHeader, oldest first, not known to be in the global file.

    Raises
    ------
    OSError
        The files cannot be made.
    """

    def __init__(self, system: System, job: JobCaches, header: RecordHeader) -> None:
        self.held: list[PendingHeader] = []
        self._path, self._job_directories = header.path, frozenset(map(str, job.directories))
        self.folder = job.folder(header.path, header.rank)
        stem = os.path.join(self.folder, str(header.rank))

        def begin() -> tuple[CacheFile, ExtentLog]:
            # A file system in memory gives a page to a write when it is made, and takes twice as long to reserve it
            # first; on others no cost of it could be measured.
            file = CacheFile(system, stem + DATA, reserve=not in_memory(self.folder))
            try:
                return file, ExtentLog(system, stem, header)
            except BaseException:
                file.close(keep=False)
                raise

        try:
            self.file, self.log = CACHES.begin_files(system, self.folder, begin)
        except BaseException:
            with suppress(OSError):
                system.rmdir(self.folder)
            raise
        self._written, self._log_mark = 0, 0
        if not header.rank:
            with suppress(OSError):
                # A recovery finds the caches of all ranks by it; without the note it has to be told the directories.
                note_folders(system, CACHES.note_of(header.path), job.noted(header.path), durable=False)

    def write(self, extents: Extents, memory: Memory, epoch: int) -> None:
        """Record extents, and write them to the cache file.

        Raises
        ------
        OSError
            There is no room, or the device failed; which of the bytes were written is not known.
        """
        for part in rounds(extents, _ROUND):
            data = gathered(part, memory)
            offset, length = joined(part.offset, part.length)
            packed = Extents(offset, length, before(length))
            self.log.extents(WRITE, epoch, packed, checksum=checksum(data))
            self.file.write(packed, data)
            self._written += data.nbytes

    def through(self, ranges: Ranges, epoch: int) -> None:
        """Record that ranges were written to the global file itself."""
        self.log.extents(THROUGH, epoch, ranges.extents)

    def hold(self, held: PendingHeader) -> None:
        """Record a header that follows the data of its epoch."""
        self.held.append(held)
        self._record_header(held)

    def _record_header(self, held: PendingHeader) -> None:
        sums, data = checksum(held.data), held.data.tobytes()
        self.log.extents(HEADER, held.epoch, held.extents, nbytes=held.reach, checksum=sums, data=data)

    def cut(self, nbytes: int, epoch: int) -> None:
        """Record that the file was cut."""
        self.log.note(CUT, epoch, nbytes)

    def ended(self, epoch: int, synced: int) -> None:
        """Record that an epoch ended, and of which ones the data are in the global file."""
        self.log.note(EPOCH, epoch, synced)

    def released(self, epoch: int) -> None:
        """Record that the headers that were held for epochs up to this one are in the global file."""
        self.log.note(EPOCH, 0, 0, epoch)

    def crowded(self, waiting: Callable[[], tuple[int, int]]) -> bool:
        """Return whether much was written since all data were in the global file last, and little of it is needed
        still.

        waiting : callable, bytes that are not in the global file, and ranges of these.
        """
        if self._written <= _MUCH and self.log.nbytes <= self._log_mark + _MUCH_LOG:
            return False
        nbytes, count = waiting()
        if self.log.nbytes > self._log_mark + max(_MUCH_LOG, _LITTLE * _ROW * count):
            return True
        if self._written > max(_MUCH, _LITTLE * nbytes):
            # Of bytes that are written again and again the cache file has one copy.
            self._written = self.file.allocated()
        return self._written > max(_MUCH, _LITTLE * nbytes)

    def emptied(self, epoch: int, ended: int, *, discard: bool) -> None:
        """All data are in the global file: give the space back.

        Parameters
        ----------
        epoch, ended : int, the epoch that has not ended, and the last one that has.
        discard : bool, the cache file need not be kept.

        Raises
        ------
        OSError
            There is no room to record it; nothing is lost.
        """

        def fill() -> None:
            self.log.note(EPOCH, ended)
            for held in self.held:
                self._record_header(held)

        self.log.note(EPOCH, 0, epoch)
        self._written, self._log_mark = 0, self.log.nbytes
        if discard:
            self.file.empty()
        if self.log.nbytes > _LOG_LIMIT:
            self.log.restart(fill)
            self._log_mark = self.log.nbytes

    def sync(self) -> None:
        """Bring both files to stable storage."""
        self.file.sync()
        self.log.sync()

    def close(self, *, keep: bool) -> None:
        """Let go of the files, and remove them unless they are to be kept; the last process removes the folder.

        Until then an empty log stays: it says that this rank has nothing that is to be carried.
        """
        system = self.file.system
        self.log.close(keep=keep)
        self.file.close(keep=keep)
        if keep:
            return
        with suppress(OSError):
            # a folder that somebody else removed is taken out of the note, too: its data are in the file
            names = system.listdir(self.folder) if exists(system, self.folder) else []
            if all(map(self._ended, names)):
                # Before: what the note names and is not there is taken for lost. On nodes that do not share it, a
                # folder of the same name may have what another node still holds.
                shared = not self._job_directories.issuperset(name.removesuffix(SUFFIX) for name in names)
                if not forget_folder(system, CACHES.note_of(self._path), self.folder, everywhere=shared):
                    return
                # Processes that end at the same time all come here.
                for name in system.listdir(self.folder):
                    with suppress(FileNotFoundError):
                        system.unlink(os.path.join(self.folder, name))
                system.rmdir(self.folder)

    def _ended(self, name: str) -> bool:
        """Return whether a file of the folder is an empty log."""
        return name.endswith(SUFFIX) and not self.file.system.lstat(os.path.join(self.folder, name)).st_size

    def forget(self) -> None:
        """Close the descriptors that a forked child got."""
        self.log.forget()
        with suppress(OSError):
            self.file.system.close(self.file.fd)
