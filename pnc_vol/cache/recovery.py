"""`carry_caches` carries what the caches of killed jobs hold to their file.

Knows: cache files and their logs, ranks by their numbers, epochs. Does not know: headers, datasets: it moves bytes.

The file gets the state of the last flush that was complete on all ranks: the data of its epochs from all caches, and
then the headers that were held for them.

Rules
-----
1. What must not be carried is refused first (`folders.refuse`), and then nothing is changed.
2. Bytes that do not have the checksum that their log says, and a log that is damaged, are refused unless `salvage` is
   set, and are then left out.
3. Carrying twice changes nothing, and a recovery that is killed may be made again: caches are removed at its end. A
   header is replaced with a journal, so that the file can be read meanwhile.
4. A cache is never older than its file: a file that has caches is not opened for writing before they are carried or
   given up. They are not carried unasked: a cache knows its file by an inode number, which another program's file of
   that name may have got, and which stays when a backup is copied into the file.
"""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Iterator, Sequence
from typing import Any

from pnc_vol.cache.extent_log import SUFFIX, PendingHeader
from pnc_vol.cache.files import DATA, grow_file, read_cached, write_extents
from pnc_vol.cache.folders import (
    Cache,
    caches_in,
    empty_logs,
    find_caches,
    part_from,
    refuse,
    remove_caches,
    shown,
    temporary_of_folder,
)
from pnc_vol.cache.local_store import CACHES
from pnc_vol.disk.journal import content_of, forget_journal, is_atomic, journal_path, write_journal
from pnc_vol.disk.journal import recover as complete_journal
from pnc_vol.disk.locking import Held
from pnc_vol.drivers.block_copy import copy_blocks
from pnc_vol.errors import LogError, LogRefusedError
from pnc_vol.extents.merge import Ranges
from pnc_vol.file.leftovers import ReplayReport
from pnc_vol.format.encode import Parts, changed_parts
from pnc_vol.ranks.comm import Comm, on_root
from pnc_vol.settings.options import Options
from pnc_vol.system import System, exists
from pnc_vol.system.full_io import read_at
from pnc_vol.warn import warn_outside

__all__ = ["carry_caches", "look_after_caches", "replay_caches"]


def carry_caches(
    path: str,
    folders: Sequence[str],
    *,
    options: Options,
    salvage: bool = False,
    partial: bool = False,
    any_file: bool = False,
    remove: bool = False,
) -> ReplayReport:
    """Carry what the caches of ended jobs hold to a file; by one process.

    Parameters
    ----------
    path : str
    folders : sequence of str
        Of one job those of all nodes; jobs in the order in which they ran.
    options : Options
    salvage, partial, any_file : bool, see the rules above.
    remove : bool
        Remove the folders then, which a search has found: another process may have carried and removed them since.

    Raises
    ------
    LogError
        A log or a cache file is damaged; the file is as it was.
    LogRefusedError
        The caches may be good, and are not for this file, or not all there.
    LockedError
        Another process has the file open for writing.
    OSError
        Something cannot be read or written; the caches are kept.
    """
    system, report = options.system, ReplayReport()
    jobs: dict[str, list[Cache]] = {}
    held = Held(system, path, options.locking)
    try:
        if folders and exists(system, path):
            # Another process may be writing the file, with the caches carried or without; then it is too late to look.
            held.take(path)
        if remove:
            folders = [folder for folder in folders if exists(system, folder)]
        for folder in folders:
            jobs.setdefault(os.path.basename(folder), []).extend(caches_in(system, folder))
        for caches in jobs.values():
            refuse(system, path, caches, salvage=salvage, partial=partial, any_file=any_file)
        _carry_jobs(path, list(jobs.values()), report, system, salvage=salvage)
        if remove:
            # Still locked: who comes next finds all of them, or none.
            remove_caches(system, path, folders, carried=True)
    finally:
        held.release()
    return report


def _carry_jobs(
    path: str, jobs: Sequence[Sequence[Cache]], report: ReplayReport, system: System, *, salvage: bool
) -> None:
    """Carry caches that were not refused to a file that nobody else writes."""
    if any(cache.log.header is not None for caches in jobs for cache in caches):
        # A header that was following when the job was killed; otherwise it would be put over a later one some day.
        complete_journal(system, path, writable=True)
    for caches in jobs:
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


def _carry(
    path: str, caches: Sequence[Cache], wrong: Sequence[Ranges], last: int, report: ReplayReport, system: System
) -> None:
    """Carry data by epoch, then what was held for these epochs."""
    fd = system.open(path, os.O_RDWR)
    try:
        for epoch, cache, ranges in _by_epoch(caches, wrong):
            if epoch > last:
                continue
            report.carried += copy_blocks(
                functools.partial(read_cached, system, cache.stem + DATA),
                functools.partial(write_extents, system, fd),
                ranges.extents._replace(place=ranges.extents.offset),
                too_short=functools.partial(LogError, f"{cache.stem}{DATA} is shorter than its log says", field="data"),
            )
        system.fdatasync(fd)
        held = [(cache, one) for cache in caches for one in cache.log.held if one.epoch <= last]
        for cache, one in held:
            try:
                grow_file(system, fd, one.reach)
                _put_held(path, fd, one, system)
            except OSError as error:
                if error.errno != errno.EFBIG:
                    raise
                end = max(one.reach, int((one.extents.offset + one.extents.length).max(initial=0)))
                text = f"{cache.stem}{SUFFIX}: the file is to have {end} bytes, and no file can have so many here"
                raise LogError(text, field="nbytes", value=end) from error
        system.fsync(fd)
    finally:
        system.close(fd)
    report.headers += len(held)
    report.caches += len(caches)
    torn = sum(cache.log.torn_bytes for cache in caches)
    if torn:
        report.messages.append(f"{torn} bytes at the ends of extent logs dropped: records that were being written")


def _put_held(path: str, fd: int, held: PendingHeader, system: System) -> None:
    """Write a header or a record count; with a journal, as each header is that takes the place of another one."""
    parts: Parts = []
    if held.extents.offset.tolist() == [0]:
        old, new = bytearray(held.extents.nbytes), held.data.tobytes()
        del old[read_at(system, fd, memoryview(old), 0) :]
        parts = changed_parts(bytes(old), new)
    if is_atomic(parts):
        write_extents(system, fd, held.extents, held.data)
        return
    there, target = system.fstat(fd), system.realpath(path)
    content = content_of(there.st_ino, bytes(old), new, parts)
    write_journal(system, journal_path(target), content, 0o600 | there.st_mode & 0o666, durable=True)
    write_extents(system, fd, held.extents, held.data)
    system.fsync(fd)
    forget_journal(system, target)


def _by_epoch(caches: Sequence[Cache], wrong: Sequence[Ranges]) -> Iterator[tuple[int, Cache, Ranges]]:
    """Yield what is missing, in the order of epochs, in each of them in the order of ranks."""
    for epoch in sorted({epoch for cache in caches for epoch in cache.log.missing}):
        for cache, bad in zip(caches, wrong, strict=True):
            if epoch in cache.log.missing:
                yield epoch, cache, cache.log.missing[epoch].minus(bad)


def replay_caches(
    paths: Sequence[str], names: Sequence[str] | None, *, options: Options, comm: Comm, **flags: bool
) -> ReplayReport:
    """Carry the caches in some folders, or those that ended jobs left of files (collective; rank 0 does it).

    Folders that are named are kept, and their logs marked as done; others are removed.

    Parameters
    ----------
    paths : sequence of str, one file, or those of a set.
    names : sequence of str, or None for all that were left.
    **flags : `salvage`, `partial`, `any_file`.

    Raises
    ------
    LogError, OSError
        As `carry_caches`; also if a running job has them.
    """

    def carry() -> list[Any]:
        done = [_replayed(path, names, options=options, **flags) for path in (paths if names is None else paths[:1])]
        messages = [message for one in done for message in one.messages]
        sums = [sum(counts) for counts in zip(*((one.caches, one.carried, one.headers) for one in done), strict=True)]
        return [*sums, messages]

    report = ReplayReport()
    report.caches, report.carried, report.headers, report.messages = on_root(comm, "replay caches", carry)
    return report


def _replayed(
    path: str,
    names: Sequence[str] | None,
    *,
    options: Options,
    salvage: bool = False,
    partial: bool = False,
    any_file: bool = False,
) -> ReplayReport:
    """Carry caches to one file; by one process."""
    system, flags = options.system, {"salvage": salvage, "partial": partial, "any_file": any_file}
    if names is not None:
        report = carry_caches(path, names, options=options, **flags)
        empty_logs(system, names)
        CACHES.forget_moved(system, path, {os.path.basename(os.path.abspath(name)) for name in names})
        return report
    found = find_caches(system, path, options)
    if found.alive and not found.gone:
        raise LogRefusedError(
            f"{path}: a running job has its cache in {', '.join(found.alive)}; replay when it has ended", field="lock"
        )
    own, foreign, done = found.own, found.foreign, found.done
    # First: another node may have noted a folder of the same name.
    remove_caches(system, path, done, carried=False)
    missing = CACHES.missing(system, path, found.closed)
    if missing and not own and not partial:
        raise LogRefusedError(
            f"{path}: its caches cannot be read here: {shown(missing)}. What was flushed last may be there "
            "alone: replay on that host, or bring the folders here and name them; partial gives them up",
            field="rank",
        )
    if any_file or not own:
        # Where all are of another file they are named, so that the refusal says which.
        own, foreign = found.held, []
    report = carry_caches(path, own, options=options, remove=True, **flags)
    report.messages += [f"not looked into: {folder}: {why}" for folder, why in found.closed.items()]
    report.messages += [f"not carried: {folder}: it is of another file, which had this name" for folder in foreign]
    if partial:
        report.messages += [f"given up: {line}" for line in missing]
        CACHES.forget(system, path, missing)
    return report


def look_after_caches(path: str, options: Options, *, writable: bool, replaced: bool) -> None:
    """Carry, refuse or tell of the caches that a killed job left of a file; on rank 0, before the file is opened.

    Raises
    ------
    LogError
        The file is opened for writing, and its caches hold data that are not carried to it: `recover` is not set, or a
        cache is damaged or not there. All are kept.
    """
    system = options.system
    found = find_caches(system, path, options)
    own, foreign, done = found.own, found.foreign, found.done
    if writable:
        remove_caches(system, path, done, carried=False)
        CACHES.tidy_notes(system, path)
    missing = {} if replaced else CACHES.missing(system, path, found.closed)
    others = {folder: why for folder, why in found.closed.items() if not any(line.endswith(folder) for line in missing)}
    if others:
        warn_outside(f"{path}: caches of this file are not read: {shown(others)}")
    if replaced or not exists(system, path):
        own, foreign = [], own + foreign
        part_from(system, path, foreign)
    elif options.recover == "any-file":
        own, foreign = found.held, []
    for folder in foreign:
        work = temporary_of_folder(system, path, folder)
        if work:
            whose, advice = f"{work!r}, which did not have its final name yet", f"'pnc-vol replay {work}' carries them"
        else:
            whose = "another file that had this name"
            advice = (
                "'pnc-vol log FOLDER' shows them, 'pnc-vol replay --any-file FILE FOLDER' carries them all the same"
            )
        warn_outside(
            f"{path}: a job that ended early left data of {whose}, in caches in {folder}. They are kept and not put "
            f"into this file; {advice}"
        )
    if missing:
        text = (
            f"{path}: caches of this file cannot be read here: {shown(missing)}. If their job has ended, "
            "what it flushed last may be missing in the file: 'pnc-vol replay' on that host, or with their folders "
            "brought here, puts it there; 'pnc-vol replay --partial FILE' gives it up"
        )
        if writable:
            raise LogRefusedError(f"{text}. Until then the file can only be read{_OLDER}", field="rank")
        warn_outside(text)
    if own and options.recover and writable:
        carry_caches(path, own, options=options, any_file=options.recover == "any-file", remove=True)
    elif own:
        text = (
            f"{path}: a job that ended early left data in caches, in {', '.join(own)}, that may not be in the file; "
            "recover=True with mode 'r+' or 'a', or 'pnc-vol replay FILE', carries them there"
        )
        if writable:
            raise LogRefusedError(f"{text}. Until then the file can only be read{_OLDER}", field="file")
        warn_outside(text)


_OLDER = ": what is written to it now would later be covered by the older data of these caches"
