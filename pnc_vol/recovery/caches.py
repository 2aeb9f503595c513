"""Caches of killed jobs: what they hold for a file is carried there.

Knows: cache files and their logs, ranks by their numbers, epochs. Does not know: headers, datasets: it moves bytes.

The file gets the state of the last flush that was complete on all ranks: the data of its epochs from all caches, and
then the headers that were held for them.

Rules
-----
1. The file is the one that the caller names; the path in a log is never followed. A cache of another file, by its
   inode, is refused unless `any_file` is set.
2. Without the caches of all ranks nothing is done unless `partial` is set: the message says which are missing, and that
   the epochs of the others would be incomplete.
3. Bytes that do not have the checksum that their log says, and a log that is damaged, are refused unless `salvage` is
   set, and are then left out.
4. Carrying twice changes nothing, and a recovery that is killed may be made again: caches are removed at its end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pnc_vol.append_log.private_folders import (
    Found,
    find_folders,
    folders_named,
    forget_folder,
    name_of_folders,
    noted_folders,
    remove_folder,
)
from pnc_vol.disk.journal import recover as complete_journal
from pnc_vol.drivers.cache.cache_file import PREFIX, note_of
from pnc_vol.drivers.cache.cache_log import CacheLog, Written, decode_cache_log
from pnc_vol.drivers.cache.extent_log import SUFFIX, TABLES, checksum
from pnc_vol.drivers.cache.local_store import DATA
from pnc_vol.drivers.cache.ranges import EMPTY, Ranges, ranges_of
from pnc_vol.errors import LogError, LogRefusedError
from pnc_vol.extents.blocks import rounds
from pnc_vol.extents.model import Extents
from pnc_vol.full_io import read_at, read_whole, write_all
from pnc_vol.options import Options
from pnc_vol.system import System, exists, is_folder
from pnc_vol.warn import warn_outside

__all__ = [
    "CarriedCaches",
    "cache_text",
    "carry_caches",
    "find_caches",
    "is_cache_folder",
    "look_after_caches",
    "replay_caches",
]

_BLOCK = 8 << 20


@dataclass(slots=True)
class CarriedCaches:
    """What was carried.

    Attributes
    ----------
    caches : int, cache files that were read.
    nbytes : int, bytes of data.
    headers : int, headers and record counts.
    epoch : int, the last flush that the file now has; 0 if the caches held nothing.
    unchecked, dropped : int
        Bytes that later writes kept from being checked, and of writes whose flush was never complete.
    messages : list of str
    """

    caches: int = 0
    nbytes: int = 0
    headers: int = 0
    epoch: int = 0
    unchecked: int = 0
    dropped: int = 0
    messages: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Cache:
    """One cache file with its log."""

    system: System
    stem: str
    log: CacheLog

    def read(self, extents: Extents) -> npt.NDArray[np.uint8]:
        """Bytes one after another; those that the file does not have are missing at the end."""
        memory = np.empty(extents.nbytes, np.uint8)
        fd = self.system.open(self.stem + DATA, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            done = 0
            for offset, length in zip(extents.offset.tolist(), extents.length.tolist(), strict=True):
                got = read_at(self.system, fd, memory[done : done + length].data, offset)
                done += got
                if got < length:
                    break
        finally:
            self.system.close(fd)
        return memory[:done]

    def wrong(self, last: int) -> Ranges:
        """Bytes of epochs up to `last` that are not what their log says."""
        found = EMPTY
        for one in self.log.writes:
            if one.epoch <= last and not self._right(one):
                found = found.plus(ranges_of(one.extents.offset, one.extents.length))
        return found

    def _right(self, one: Written) -> bool:
        data = self.read(one.extents)
        return data.nbytes == one.extents.nbytes and checksum(data) == one.checksum


def find_caches(system: System, path: str, options: Options) -> Found:
    """The folders of caches of a file: where the note beside it says, and in the directory of the hints."""
    begin, parent = name_of_folders(PREFIX, path), options.hints.get("e10_cache_path", "")
    folders = [name for name in noted_folders(system, note_of(path)) if os.path.basename(name).startswith(begin)]
    if parent:
        with suppress(OSError):
            folders += folders_named(system, parent, begin)
    return find_folders(system, folders, SUFFIX)


def caches_in(system: System, folder: str) -> list[_Cache]:
    """The caches in a folder, by rank.

    Raises
    ------
    LogError, OSError
    """
    found = []
    for name in system.listdir(folder):
        if name.endswith(SUFFIX):
            stem = os.path.join(folder, name[: -len(SUFFIX)])
            records, tables = (read_whole(system, stem + suffix, flags=os.O_NOFOLLOW) for suffix in (SUFFIX, TABLES))
            try:
                found.append(_Cache(system, stem, decode_cache_log(records, tables)))
            except LogError as error:
                raise LogError(f"{stem}{SUFFIX}: {error}", field="log") from error
    return sorted(found, key=lambda cache: (len(os.path.basename(cache.stem)), cache.stem))


def carry_caches(
    path: str,
    folders: Sequence[str],
    *,
    options: Options,
    salvage: bool = False,
    partial: bool = False,
    any_file: bool = False,
) -> CarriedCaches:
    """Carry what the caches of ended jobs hold to a file; by one process.

    Parameters
    ----------
    path : str
    folders : sequence of str
        Of one job those of all nodes; jobs in the order in which they ran.
    options : Options
    salvage, partial, any_file : bool, see the rules above.

    Raises
    ------
    LogError
        A log or a cache file is damaged; the file is as it was.
    LogRefusedError
        The caches may be good, and are not for this file, or not all there.
    OSError
        Something cannot be read or written; the caches are kept.
    """
    system, report = options.system, CarriedCaches()
    jobs: dict[str, list[_Cache]] = {}
    for folder in folders:
        jobs.setdefault(os.path.basename(folder), []).extend(caches_in(system, folder))
    for caches in jobs.values():
        _refuse(system, path, caches, salvage=salvage, partial=partial, any_file=any_file)
    if any(cache.log.header is not None for caches in jobs.values() for cache in caches):
        # A header that was following when the job was killed; otherwise it would be put over a later one some day.
        complete_journal(system, path, writable=True)
    for caches in jobs.values():
        last = min((cache.log.ended for cache in caches), default=0)
        wrong = [cache.wrong(last) for cache in caches]
        bad = [f"{cache.stem}{DATA}" for cache, ranges in zip(caches, wrong, strict=True) if ranges.start.size]
        if bad and not salvage:
            raise LogError(
                f"{', '.join(bad)}: bytes do not have the checksum of their log; salvage carries the others",
                field="data",
            )
        report.messages += [f"{name}: bytes with a wrong checksum are left out" for name in bad]
        _carry(path, caches, wrong, last, report, system)
    return report


def _refuse(
    system: System, path: str, caches: Sequence[_Cache], *, salvage: bool, partial: bool, any_file: bool
) -> None:
    """Complain of what must not be carried."""
    holding = [cache for cache in caches if cache.log.header is not None]
    if not holding:
        return
    for cache in holding:
        if cache.log.damage and not salvage:
            raise LogError(
                f"{cache.stem}{SUFFIX} is damaged: {cache.log.damage}; salvage carries its valid part", field="log"
            )
    if not exists(system, path):
        raise LogRefusedError(f"{path}: there is no such file; a cache holds what was written to it", field="path")
    inode = b"inode\0\0\0" + system.stat(path).st_ino.to_bytes(8, "little")
    others = [cache.stem for cache in holding if cache.log.header is not None and cache.log.header.file != inode]
    if others and not any_file:
        raise LogRefusedError(
            f"{others[0]}{SUFFIX} is the log of another file, which had this name; any_file carries it all the same",
            field="file",
        )
    header = holding[0].log.header
    assert header is not None
    there = {int(os.path.basename(cache.stem)) for cache in caches}
    missing = sorted(set(range(min(header.num_ranks, 1 << 20))) - there)
    if missing and not partial:
        named = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
        last = min(cache.log.ended for cache in caches)
        raise LogRefusedError(
            f"{os.path.dirname(holding[0].stem)}: of {header.num_ranks} ranks the caches of ranks {named} are not "
            f"there (a node that is gone?): what they held up to flush {last} would be lost, and read as older bytes "
            "or zeros. Bring their folders here, or carry the others alone with partial",
            field="rank",
            value=missing[0],
        )


def _carry(
    path: str, caches: Sequence[_Cache], wrong: Sequence[Ranges], last: int, report: CarriedCaches, system: System
) -> None:
    """Data by epoch, then what was held for these epochs."""
    fd = system.open(path, os.O_RDWR)
    try:
        for epoch, cache, ranges in _by_epoch(caches, wrong):
            if epoch > last:
                report.dropped += ranges.nbytes
                continue
            for part in rounds(ranges.extents, _BLOCK):
                data = cache.read(part)
                if data.nbytes < part.nbytes:
                    raise LogError(f"{cache.stem}{DATA} is shorter than its log says", field="data")
                _write(system, fd, part._replace(place=part.place - part.place[0]), data)
            report.nbytes += ranges.nbytes
        system.fdatasync(fd)
        held = [one for cache in caches for one in cache.log.held if one.epoch <= last]
        for one in held:
            if one.reach and system.fstat(fd).st_size < one.reach:
                write_all(system, fd, b"\0", one.reach - 1)
            _write(system, fd, one.extents, one.data)
        system.fsync(fd)
    finally:
        system.close(fd)
    report.headers += len(held)
    report.caches += len(caches)
    report.unchecked += sum(cache.log.unchecked for cache in caches)
    report.epoch = last if last < 1 << 62 else 0
    torn = sum(cache.log.torn_bytes for cache in caches)
    if torn:
        report.messages.append(f"{torn} bytes at the ends of extent logs dropped: records that were being written")


def _by_epoch(caches: Sequence[_Cache], wrong: Sequence[Ranges]) -> Iterator[tuple[int, _Cache, Ranges]]:
    """What is missing, in the order of epochs, in each of them in the order of ranks."""
    for epoch in sorted({epoch for cache in caches for epoch in cache.log.missing}):
        for cache, bad in zip(caches, wrong, strict=True):
            if epoch in cache.log.missing:
                yield epoch, cache, cache.log.missing[epoch].minus(bad)


def _write(system: System, fd: int, extents: Extents, data: npt.NDArray[np.uint8]) -> None:
    view = data.data
    for offset, length, place in zip(*(column.tolist() for column in extents), strict=True):
        write_all(system, fd, view[place : place + length], offset)


def replay_caches(
    path: str,
    names: Sequence[str] | None,
    *,
    options: Options,
    salvage: bool = False,
    partial: bool = False,
    any_file: bool = False,
) -> CarriedCaches:
    """Carry the caches in some folders, or those that ended jobs left of a file.

    Folders that are named are kept, and their logs marked as done; others are removed.

    Raises
    ------
    LogError, OSError
        As `carry_caches`; also if a running job has them.
    """
    system, flags = options.system, {"salvage": salvage, "partial": partial, "any_file": any_file}
    if names is not None:
        report = carry_caches(path, names, options=options, **flags)
        _mark_done(system, names)
        return report
    found = find_caches(system, path, options)
    if found.alive and not found.gone:
        raise LogRefusedError(
            f"{path}: a running job has its cache in {', '.join(found.alive)}; replay when it has ended", field="lock"
        )
    report = carry_caches(path, found.gone, options=options, **flags)
    report.messages += [f"not looked into: {folder}: {why}" for folder, why in found.closed.items()]
    remove_caches(system, path, found.gone)
    return report


def _mark_done(system: System, folders: Sequence[str]) -> None:
    """Let logs tell of nothing any more: all that they told of is in the file."""
    for folder in folders:
        for name in system.listdir(folder):
            if name.endswith(SUFFIX):
                fd = system.open(os.path.join(folder, name), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    system.ftruncate(fd, 0)
                finally:
                    system.close(fd)


def is_cache_folder(system: System, name: str) -> bool:
    """Whether a path is a folder of caches."""
    return is_folder(system, name) and any(one.endswith(SUFFIX) for one in system.listdir(name))


def remove_caches(system: System, path: str, folders: Sequence[str]) -> None:
    """Remove caches whose bytes are in the file, and take them out of the note beside it."""
    for folder in folders:
        remove_folder(system, folder, SUFFIX)
        forget_folder(system, note_of(path), folder)


def look_after_caches(path: str, options: Options, *, writable: bool, replaced: bool) -> None:
    """Carry, or tell of, the caches that a killed job left of a file; on rank 0, before the file is opened.

    Raises
    ------
    LogError
        A cache that is to be carried is damaged; it is kept.
    """
    system = options.system
    if not (options.hints.get("e10_cache_path") or exists(system, note_of(path))):
        return
    found = find_caches(system, path, options)
    if found.closed:
        closed = "; ".join(f"{folder}: {why}" for folder, why in found.closed.items())
        warn_outside(f"{path}: caches of this file are not read: {closed}")
    left = [folder for folder in found.gone if any(cache.log.header is not None for cache in caches_in(system, folder))]
    if writable:
        remove_caches(system, path, [folder for folder in found.gone if folder not in left])
    if not left:
        return
    if options.recover and writable and not replaced:
        try:
            carry_caches(path, left, options=options, any_file=options.recover == "any-file")
        except LogRefusedError as error:
            warn_outside(f"{path}: caches of a job that ended early are not carried to it: {error}")
        else:
            remove_caches(system, path, left)
        return
    warn_outside(
        f"{path}: a job that ended early left data in caches, in {', '.join(left)}, that may not be in the file; "
        "recover=True with mode 'r+' or 'a', or 'pnc-vol replay FILE', carries them there"
    )


def cache_text(system: System, folder: str) -> Iterator[str]:
    """The caches in a folder, for people."""
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
