"""`LogFiles` opens, maps and closes the four files of one rank's log; `LOGS` are the folders that jobs have for them.

Knows: names, descriptors. Does not know: what the bytes mean, how they are appended (`append_log.tail`), which folders
are private (`append_log.private_folders`).
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.append_log.private_folders import FoldersOfJobs, JobFolders, empty_folder, host_and_folder
from pnc_vol.append_log.records import SLOT_BYTES, Share
from pnc_vol.append_log.tail import LARGE, Tail, create_private, lock_of_writer
from pnc_vol.burst.encoding import MAX_NDIMS_AT
from pnc_vol.errors import PncVolError
from pnc_vol.settings.options import Options
from pnc_vol.system import LOGS_NOTED, PAGE, System, is_unnamed
from pnc_vol.system.full_io import read_at, reserve

__all__ = ["LOGS", "SMALL", "LogFiles", "find_logs", "logs_in", "note_of", "parent_of", "remove_logs"]

SUFFIXES = (".defs", ".commit", ".data", ".meta")
"""In the order in which they are made; they are removed in the other: where there is a metadata log, all is there."""
_WINDOW = 1 << 20
"""Bytes of the largest window on one of them."""

SMALL = 16 << 10
"""Bytes of values up to which they are stored through the window."""


class LogFiles:
    """Four files that grow: entries, data, commit records, definitions.

    Parameters
    ----------
    system : System
    base : str
        Their path without suffix.
    share : Share, optional
        Entries and data are in files that other ranks of the node write to as well.

    Attributes
    ----------
    meta, data, commit, defs : Tail
    counters : memoryview of int64[2]
        ``max_ndims`` and ``num_entries`` in the header of the metadata log.
    slot : memoryview of uint64[8]
        The first 64 bytes of the slot of the commit log.
    posts : memoryview of bytes
        The others, if it has more.
    """

    def __init__(self, system: System, base: str, share: Share | None = None) -> None:
        self.system = system
        self.base = base
        self.share = share
        self._tails: dict[str, Tail] = {}
        self._lock = -1
        self._pages: list[Any] = []
        self.counters: Any = None
        self.slot: Any = None
        self.posts: Any = None
        try:
            for suffix in SUFFIXES:
                shared = share if suffix in (".meta", ".data") else None
                fd = create_private(system, self.path(suffix), exclusive=shared is None)
                large = SMALL if suffix == ".data" else LARGE
                self._tails[suffix] = Tail(system, fd, _WINDOW, shared, large=large)
                if suffix == ".commit":
                    self._lock = lock_of_writer(system, self.path(suffix))
        except OSError:
            # The folder stays: other ranks may be about to make their files in it. Its maker removes it.
            self.close(delete=True, alone=True)
            raise
        self.defs, self.commit, self.data, self.meta = (self._tails[suffix] for suffix in SUFFIXES)
        _OPEN.add(self)

    def _unlock(self) -> None:
        if self._lock >= 0:
            self.system.close(self._lock)
            self._lock = -1

    def map_heads(self, records: int, slot: int) -> None:
        """Map what is changed in place of the two headers, which were written.

        records : int, where the records begin.
        slot : int, bytes of the slot in front of them.
        """
        ((first_page, _),) = self.meta.pieces(0, PAGE)
        self.counters = self._map(self.meta, first_page)[MAX_NDIMS_AT : MAX_NDIMS_AT + 16].cast("q")
        page, at = divmod(records - slot, PAGE)
        mapped = self._map(self.commit, page * PAGE, -(-(at + slot) // PAGE) * PAGE)[at : at + slot]
        self.slot, self.posts = mapped[:SLOT_BYTES].cast("Q"), mapped[SLOT_BYTES:]

    def _map(self, tail: Tail, offset: int, nbytes: int = PAGE) -> memoryview:
        self._pages.append(self.system.mmap(tail.fd, nbytes, offset))
        return memoryview(self._pages[-1])

    def path(self, suffix: str) -> str:
        """Return the path of one file; ranks that share a pair of logs have commit records of their own."""
        own = self.share is not None and suffix in (".commit", ".defs")
        return self.base + suffix + (f".{self.share.channel}" if own and self.share is not None else "")

    @property
    def nbytes(self) -> int:
        """Bytes of all four files."""
        return self.meta.end + self.data.end + self.commit.end + self.defs.end

    def sizes(self) -> Iterator[tuple[str, int, int]]:
        """Yield, for each file, its path, the bytes that were written to it, and those that are there."""
        for suffix, tail in self._tails.items():
            there = self.system.fstat(tail.fd).st_size
            yield self.path(suffix), tail.end, there if tail.share is None else tail.share.size_of(there)

    def read(self, suffix: str, target: npt.NDArray[np.uint8], offset: int) -> None:
        """Fill `target` with the bytes of one file from `offset` on.

        Raises
        ------
        PncVolError
            The file is shorter than what was written to it.
        """
        tail, done = self._tails[suffix], 0
        for at, nbytes in tail.pieces(offset, target.nbytes):
            if nbytes and read_at(self.system, tail.fd, target[done : done + nbytes].data, at) < nbytes:
                raise PncVolError(f"{self.path(suffix)} was cut by another process: posted data are lost")
            done += nbytes

    def make_safe(self) -> None:
        """Let no store go to a window behind the end of a file that somebody cut: the system answers such by a signal.

        What was cut off is not brought back: reading values meets their end.
        """
        for tail in self._tails.values():
            end = max(tail.limit, PAGE)
            if tail is self.data:
                tail.give_up_window()
            elif tail.share is None and self.system.fstat(tail.fd).st_size < end:
                with suppress(OSError):
                    reserve(self.system, tail.fd, 0, end)

    def sync(self) -> None:
        """Bring all to stable storage, the commit records last."""
        for tail in (self.defs, self.data, self.meta, self.commit):
            self.system.fdatasync(tail.fd)

    def sync_names(self) -> None:
        """Bring the names of the files, and of their folder, to stable storage."""
        folder = os.path.dirname(self.base)
        for name in (folder, os.path.dirname(folder)):
            self.system.fsync_dir(name or ".")

    def close(self, *, delete: bool, alone: bool = False) -> None:
        """Close the files, and remove them if asked; their folder too, if that is empty then, unless `alone`.

        The first that goes is what makes them a log (``.meta``). If that cannot be removed, all of them stay: a whole
        log of which nothing is to be replayed, where one without its data would be an error at each recovery.
        """
        _OPEN.discard(self)
        if self._pages:
            self.counters = self.slot = self.posts = None
            self._pages.clear()
        while self._tails:
            suffix, tail = next(reversed(self._tails.items()))
            if delete:
                try:
                    self.system.unlink(self.path(suffix))
                except FileNotFoundError:
                    pass  # another rank that shares the file has removed it
                except OSError:
                    delete = suffix != ".meta"
            # An interrupted caller calls this again, so a file counts as open until its close has returned.
            tail.close()
            del self._tails[suffix]
        self._unlock()
        if delete and not alone:
            # This succeeds on the last rank of the job only: before, the folder is not empty.
            with suppress(OSError):
                self.system.rmdir(os.path.dirname(self.base))

    def leave(self) -> None:
        """Let go of files and windows in a forked child, so that the lock ends with the job and not with the child."""
        with suppress(OSError):
            self._unlock()
        for tail in self._tails.values():
            with suppress(OSError):
                tail.leave()
        self._tails = {}


_OPEN: weakref.WeakSet[LogFiles] = weakref.WeakSet()


def _forked() -> None:
    while _OPEN:
        # An error of one log must not leave the locks of the others with the child.
        with suppress(BaseException):
            _OPEN.pop().leave()


os.register_at_fork(after_in_child=_forked)


# ------------------------------------------------------------------------------------------------ folders of jobs


LOGS = JobFolders(
    "pncbb-",
    LOGS_NOTED,
    ".commit",
    "nc_burst_buf_dirname: no log folder can be made here ({}); give a folder on a device with room "
    "where you may write, or open the file without a log (nc_burst_buf=disable)",
)

note_of = LOGS.note_of

_AWAY = (
    "it is not on this machine. If its job has ended, what it posted last is there alone: 'pnc-vol replay FILE' on its "
    "host, or with the folder brought here 'pnc-vol replay FILE FOLDER', puts it into the file "
    "(nc_burst_buf_overwrite=enable gives it up)"
)


def parent_of(path: str, options: Options) -> str:
    """Return the folder that the folders of logs are in; whole, because who looks for it later may be elsewhere."""
    return os.path.abspath(options.burst_buf_dirname or os.path.dirname(path))


def find_logs(
    path: str, options: Options, is_of: Callable[[str], bool], judge: Callable[[list[str]], str]
) -> FoldersOfJobs:
    """Find the folders of a file's logs; `is_of` and `judge` as of `JobFolders.find`."""
    found = LOGS.find(options.system, path, parent_of(path, options), is_of, judge)
    if not is_unnamed(path):
        missing = LOGS.missing(options.system, path, {})
        found.closed.update((host_and_folder(line)[1], _AWAY) for line in missing)
    return found


def logs_in(system: System, folder: str) -> list[str]:
    """Return the logs of a folder, without their suffixes, sorted."""
    return sorted(
        os.path.join(folder, name[: -len(".meta")]) for name in system.listdir(folder) if name.endswith(".meta")
    )


def remove_logs(system: System, path: str, folder: str) -> None:
    """Remove the logs of a job, and take their folder out of the note beside the file.

    Raises
    ------
    OSError
        They cannot be removed.
    """
    # The folder is the last to go: the next opening for writing finds by the note what a kill leaves.
    empty_folder(system, folder, ".meta")
    LOGS.forget(system, path, [folder])
    with suppress(FileNotFoundError):
        # another process has removed it, as `empty_folder` says
        system.rmdir(folder)
