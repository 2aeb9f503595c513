"""This module finds the folders of a file's caches, and decides whether they may be carried to it.

Knows: cache files and their logs, notes, inodes, ranks by their numbers. Does not know: how anything is carried.

Rules
-----
1. Caches are found where the note beside the file says, and in the directory of the hints, on this machine. The note
   names the folders of all ranks with their hosts, so that a node that is missing can be named.
2. The file is the one that the caller names; the path in a log is never followed. A cache of another file, by its
   inode or because its file was replaced since (`is_replaced`), is refused unless `any_file` is set. Where the file has
   caches of its own, they are carried without the others, which are kept. A cache of another file of which no flush was
   complete promised nothing, as that of a new layout that was being made: it is removed.
3. A file that did not have its name yet (``publish="close"``) is recovered under the temporary name that it has, as
   with a log; its caches are found by its inode.
4. Without the caches of all ranks nothing is done unless `partial` is set: the message says which are missing, and that
   the epochs of the others would be incomplete.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pnc_vol.append_log.private_folders import (
    DONE,
    FOREIGN,
    OWN,
    FoldersOfJobs,
    is_here,
    is_replaced,
    mark_replaced,
    missing_ranks,
    remove_folder,
    tidying,
)
from pnc_vol.cache.extent_log import SUFFIX, CacheLog, Written, checksum, read_cache_log
from pnc_vol.cache.files import DATA, read_cached
from pnc_vol.cache.local_store import CACHES
from pnc_vol.errors import LogError, LogRefusedError
from pnc_vol.extents.merge import EMPTY, Ranges, ranges_of
from pnc_vol.extents.model import Extents
from pnc_vol.settings.options import Options
from pnc_vol.system import System, exists, is_folder, is_unnamed

__all__ = [
    "Cache",
    "cache_text",
    "caches_in",
    "empty_logs",
    "find_caches",
    "is_cache_folder",
    "part_from",
    "refuse",
    "remove_caches",
    "shown",
    "temporary_of_folder",
]


@dataclass(slots=True)
class Cache:
    """One cache file with its log."""

    system: System
    stem: str
    log: CacheLog

    @property
    def nbytes(self) -> int:
        """Length of the cache file."""
        return self.system.stat(self.stem + DATA).st_size

    @property
    def file(self) -> bytes:
        """How its log names the file; nothing if it tells of nothing any more."""
        return b"" if self.log.header is None else self.log.header.file

    def read(self, extents: Extents) -> npt.NDArray[np.uint8]:
        """Return bytes of extents that lie one behind another in memory; fewer where the file ends."""
        # A log may claim more than there is memory, so the cache file, which has each byte at its own place, is asked.
        if int((extents.offset + extents.length).max(initial=0)) > self.nbytes or extents.nbytes > self.nbytes:
            return np.empty(0, np.uint8)
        memory = np.empty(extents.nbytes, np.uint8)
        return memory[: read_cached(self.system, self.stem + DATA, extents, memory)]

    def wrong(self, last: int) -> Ranges:
        """Return bytes of epochs up to `last` that are not what their log says."""
        found = EMPTY
        for one in self.log.writes:
            if one.epoch <= last and not self._right(one):
                found = found.plus(ranges_of(one.extents.offset, one.extents.length))
        return found

    def _right(self, one: Written) -> bool:
        data = self.read(one.extents)
        return data.nbytes == one.extents.nbytes and checksum(data) == one.checksum


def find_caches(system: System, path: str, options: Options) -> FoldersOfJobs:
    """Return the folders of caches of a file: where the note beside it says, and in the directory of the hints.

    A damaged one counts as the file's, and says so when it is carried.
    """

    def judge(folders: list[str]) -> str:
        with suppress(LogError):
            caches = [cache for folder in folders for cache in caches_in(system, folder)]
            logs = [cache.log for cache in caches if cache.file]
            if not any(log.ended or log.missing or log.held or log.damage for log in logs):
                return DONE
            if exists(system, path) and _of_another_file(system, path, caches):
                return FOREIGN if min(cache.log.ended for cache in caches) else DONE
        return OWN

    parent = options.hints.get("e10_cache_path", "")
    parent = os.path.abspath(parent) if parent else ""
    return CACHES.find(system, path, parent, lambda one: _is_of(system, one, path), judge)


def shown(folders: Mapping[str, str]) -> str:
    """Return folders that are not read, and why, for a message."""
    lines = [f"{folder}: {why}" for folder, why in folders.items()]
    return "; ".join(lines[:8]) + ("; ..." if len(lines) > 8 else "")


def _is_of(system: System, folder: str, path: str) -> bool:
    """Return whether a folder has a cache of a file, by its inode."""
    with suppress(OSError, LogError):
        inode = _inode_of(system, path)
        return any(cache.file == inode for cache in caches_in(system, folder))
    return False


def _inode_of(system: System, path: str) -> bytes:
    """Return how a log names a file; nothing if there is none."""
    with suppress(FileNotFoundError):
        return b"inode\0\0\0" + system.stat(path).st_ino.to_bytes(8, "little")
    return b""


def _of_another_file(system: System, path: str, caches: Sequence[Cache]) -> list[Cache]:
    """Return those of caches that are not of the file that is there."""
    inode = _inode_of(system, path)
    return [
        cache
        for cache in caches
        if cache.file and (cache.file != inode or is_replaced(system, os.path.dirname(cache.stem)))
    ]


def caches_in(system: System, folder: str) -> list[Cache]:
    """Return the caches in a folder, by rank.

    Raises
    ------
    LogError, OSError
    """
    found = []
    for name in system.listdir(folder):
        if name.endswith(SUFFIX):
            stem = os.path.join(folder, name[: -len(SUFFIX)])
            try:
                found.append(Cache(system, stem, read_cache_log(system, stem)))
            except LogError as error:
                raise LogError(f"{stem}{SUFFIX}: {error}", field="log") from error
    return sorted(found, key=lambda cache: (len(os.path.basename(cache.stem)), cache.stem))


def refuse(system: System, path: str, caches: Sequence[Cache], *, salvage: bool, partial: bool, any_file: bool) -> None:
    """Complain of what must not be carried.

    Raises
    ------
    LogError
        A log is damaged.
    LogRefusedError
        The caches are of another file, or not all there.
    """
    holding = [cache for cache in caches if cache.log.header is not None]
    if not holding:
        return
    for cache in holding:
        if cache.log.damage and not salvage:
            raise LogError(
                f"{cache.stem}{SUFFIX} is damaged: {cache.log.damage}; salvage carries its valid part", field="log"
            )
    others = _of_another_file(system, path, holding)
    if others and not any_file:
        _refuse_nameless(system, path, others[0])
    if not exists(system, path):
        raise LogRefusedError(f"{path}: there is no such file; a cache holds what was written to it", field="path")
    if others and not any_file:
        raise LogRefusedError(
            f"{others[0].stem}{SUFFIX} is the log of another file, which had this name; any_file carries it all the "
            "same",
            field="file",
        )
    header = holding[0].log.header
    assert header is not None
    missing, named = _missing_ranks(caches)
    if named and not partial:
        last = min(cache.log.ended for cache in caches)
        raise LogRefusedError(
            f"{os.path.dirname(holding[0].stem)}: of {header.num_ranks} ranks the caches of ranks {named} are not "
            f"there{_elsewhere(system, path, caches)}: what they held up to flush {last} would be lost, and read as "
            "older bytes or zeros. Bring their folders here, or carry the others alone with partial",
            field="rank",
            value=missing,
        )


def _missing_ranks(caches: Sequence[Cache]) -> tuple[int, str]:
    """Return which ranks of a job have no caches here, see `missing_ranks`; the next one, without a log that tells
    their number."""
    counts = [cache.log.header.num_ranks for cache in caches if cache.log.header is not None]
    there = {int(os.path.basename(cache.stem)) for cache in caches}
    return missing_ranks(counts[0] if counts else len(there) + 1, there)


def _refuse_nameless(system: System, path: str, cache: Cache) -> None:
    """Say under which temporary name the file of a cache is, if it never took its own."""
    other = _temporary_of(system, path, cache)
    if other:
        raise LogRefusedError(
            f"{cache.stem}{SUFFIX} belongs to a file that did not have its final name yet (publish='close'): "
            f"replay it into {other!r}, and rename that",
            field="path",
            value=other,
        )


def _temporary_of(system: System, path: str, cache: Cache) -> str:
    """Return the temporary name, beside `path`, of the file of a cache; "" if it has none."""
    folder = os.path.dirname(path)
    names = [os.path.join(folder, name) for name in system.listdir(folder or ".") if is_unnamed(name)]
    return next((name for name in names if cache.file == _inode_of(system, name)), "")


def _elsewhere(system: System, path: str, caches: Sequence[Cache]) -> str:
    """Return where the note says that other caches of the job are."""
    job = {os.path.basename(os.path.dirname(cache.stem)) for cache in caches}
    lines = [line for line in CACHES.lines(system, path) if os.path.basename(line) in job]
    away = [line for line in lines if not is_here(system, line)]
    return f" (they are in {', '.join(away[:8])})" if away else " (a node that is gone?)"


def part_from(system: System, path: str, folders: Sequence[str]) -> None:
    """Note that the file of some caches has gone, or is about to be replaced.

    An inode number is given to another file once its file is gone. Caches of a file that has only a temporary name yet
    keep it.
    """
    for folder in folders:
        if not temporary_of_folder(system, path, folder):
            with suppress(OSError):
                mark_replaced(system, folder)


def temporary_of_folder(system: System, path: str, folder: str) -> str:
    """Return the temporary name, beside `path`, of the file of the caches in a folder; "" if it has none."""
    with suppress(OSError, LogError):
        return next(filter(None, (_temporary_of(system, path, cache) for cache in caches_in(system, folder))), "")
    return ""


def is_cache_folder(system: System, name: str) -> bool:
    """Return whether a path is a folder of caches."""
    return is_folder(system, name) and any(one.endswith(SUFFIX) for one in system.listdir(name))


def empty_logs(system: System, folders: Sequence[str]) -> None:
    """Let logs tell of nothing any more: all that they told of is in the file."""
    for folder in folders:
        for name in system.listdir(folder):
            if name.endswith(SUFFIX):
                fd = system.open(os.path.join(folder, name), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    system.ftruncate(fd, 0)
                finally:
                    system.close(fd)


def remove_caches(system: System, path: str, folders: Sequence[str], *, carried: bool) -> None:
    """Remove caches, and take them out of the note beside the file.

    The note comes first: what it names and is not there is taken for lost. So a folder stays, with empty logs, while
    the note cannot be changed. One whose files a job is just making stays as it is.

    carried : bool
        All that their jobs had is in the file, or given up; otherwise another node may hold data in such a folder.
    """
    for folder in folders:
        # Another process may remove it at this time, and takes it out of the note before.
        with suppress(FileNotFoundError), tidying(system, folder, CACHES.lock) as gone:
            if gone:
                everywhere = carried or not _missing_ranks(caches_in(system, folder))[1]
                empty_logs(system, [folder])
                if CACHES.forget(system, path, [folder], everywhere=everywhere):
                    remove_folder(system, folder, SUFFIX)


def cache_text(system: System, folder: str) -> Iterator[str]:
    """Yield the caches in a folder, for people."""
    for cache in caches_in(system, folder):
        log = cache.log
        yield f"cache       {cache.stem}{DATA}"
        if log.header is None:
            yield "  all of it is in the global file"
            continue
        yield f"  for       {log.header.path}, rank {log.header.rank} of {log.header.num_ranks}"
        yield f"  epochs    {log.ended} ended, {log.released} complete in the global file"
        for epoch, ranges in sorted(log.missing.items()):
            yield f"  epoch {epoch}: {ranges.nbytes} bytes in {ranges.start.size} extents"
        for one in log.held:
            yield f"  header of epoch {one.epoch}: {one.extents.nbytes} bytes"
        if log.torn_bytes or log.damage:
            yield f"  {log.damage or f'{log.torn_bytes} bytes at the end torn'}"
