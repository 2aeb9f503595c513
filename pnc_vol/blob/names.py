"""The subfiles of a set are named after it: ``out.nc.0000``, ``out.nc.0001``, ... make up the set ``out.nc``.

The subfiles of a new set take the names of an older set in one step: a journal lists the renames.

Knows: names, a system, a communicator. Does not know: what is in the files. No other module makes such a name, and only
`burst.recovery.ownership` reads one: of a set that had not got its name. `file.opening` looks for a set where a name
ends in a digit.

Rules of renames
----------------
1. All files of the new set are complete under temporary names, and on stable storage, before the journal is written.
   The journal is the step: without it the old set has the names, with it the new one.
2. Who opens the set for writing while the journal is there does the renames that are left, and who reads it reads
   the temporary files. A temporary name is never used twice, so a rename that another process has done fails with
   ENOENT, and nothing else can be renamed by mistake.
3. The journal holds no paths, only the temporary names beside each subfile: a journal from a stranger can rename
   nothing but what is called like a temporary file of the same subfile.
4. The journal is removed by who has the lock of the new set: another process might remove that of the next set.
"""

from __future__ import annotations

import fnmatch
import os
import re
import struct
import zlib
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import count, takewhile

from pnc_vol.disk.journal import distrust
from pnc_vol.disk.naming import beside, beside_start, write_new
from pnc_vol.ranks.comm import Comm, joined_lists
from pnc_vol.system import TEMPORARY, System, exists, neighbour
from pnc_vol.system.full_io import read_at
from pnc_vol.warn import warn_outside

__all__ = [
    "complete_renames", "forget_renames", "matched_set", "pending_renames", "remove_stale", "set_of_subfile",
    "subfile_path", "subfiles_of", "write_renames",
]  # fmt: skip

_SUBFILE = re.compile(r"(?s)(.+)\.\d{4,}")
_SHOWN = 4
"""Sets that are named in a message."""


def subfile_path(path: str, number: int) -> str:
    """Return the name of a subfile of a set.

    Examples
    --------
    >>> subfile_path("out.nc", 3)
    'out.nc.0003'
    """
    return f"{path}.{number:04d}"


def set_of_subfile(path: str) -> str:
    """Return the name of the set to which a file of this name belongs; "" if it is not named like a subfile.

    Examples
    --------
    >>> set_of_subfile("out.nc.0003"), set_of_subfile("out.nc")
    ('out.nc', '')
    """
    named = _SUBFILE.fullmatch(path)
    return named[1] if named else ""


def subfiles_of(system: System, path: str) -> list[str]:
    """Return the subfiles of a set that are there, from the first one to the last before one that is not."""
    return list(takewhile(lambda name: exists(system, name), map(partial(subfile_path, path), count())))


def matched_set(system: System, path: str) -> str:
    """Return the name of the set whose subfiles a pattern matches; any other path as it is.

    Raises
    ------
    ValueError
        The pattern matches subfiles of several sets.
    """
    folder, pattern = os.path.split(path)
    if not set("*?[") & set(pattern):
        return path
    try:
        names = fnmatch.filter(system.listdir(folder or "."), pattern)
    except OSError:
        return path
    bases = sorted(set(filter(None, map(set_of_subfile, names))))
    if len(bases) > 1:
        shown = ", ".join(map(repr, bases[:_SHOWN])) + (", ..." if len(bases) > _SHOWN else "")
        raise ValueError(f"{path}: the pattern matches subfiles of {len(bases)} sets ({shown}); name one of them")
    return os.path.join(folder, bases[0]) if bases else path


# ---------------------------------------------------------------------------------------------------------- renames

_HEAD = struct.Struct("<8sI")
"""Magic, CRC-32 of what follows: the temporary names in the order of the subfiles, each with a zero behind it."""
_MAGIC = b"PNCR0001"
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def remove_stale(system: System, path: str, stale: list[str]) -> None:
    """Remove the files that a set has taken the place of, as nobody will find undone, when its files have their names.

    stale : list of str, is empty then.
    """
    if stale:
        system.fsync_dir(os.path.dirname(subfile_path(path, 0)) or ".")
    while stale:
        with suppress(FileNotFoundError):
            system.unlink(stale.pop(0))


def _journal_path(system: System, path: str) -> str:
    return neighbour(system.realpath(subfile_path(path, 0)), "pncr")


def write_renames(
    comm: Comm, system: System, path: str, works: Sequence[tuple[int, str]], error: BaseException | None = None
) -> None:
    """Write the journal of a new set, durably (collective): from now on the set has its names, whatever happens.

    Parameters
    ----------
    path : str, of the set.
    works : sequence of (int, str), subfiles of this rank: their numbers, and their temporary names beside them.
    error : BaseException, optional, why this rank's subfile is not complete.

    Raises
    ------
    OSError
        There is no journal, and the older set has the names still.
    """
    names = comm.merge("flush names", [list(one) for one in works] or None, joined_lists, error=error)
    if comm.rank == 0:
        try:
            _write(system, path, [work for _, work in sorted(names)])
        except OSError as reason:
            error = reason
    comm.agree("flush names noted", error=error)


def _write(system: System, path: str, works: list[str]) -> None:
    journal = _journal_path(system, path)
    body = b"".join(os.fsencode(os.path.basename(work)) + b"\0" for work in works)
    work = beside(system, journal, "pnctmp")
    write_new(system, work, _HEAD.pack(_MAGIC, zlib.crc32(body)) + body, None, durable=True)
    try:
        # The journal is worth nothing after a power failure that takes the names which it lists.
        for folder in sorted({os.path.dirname(name) or "." for name in (*works, work)}):
            system.fsync_dir(folder)
        system.rename(work, journal)
    except OSError:
        with suppress(OSError):
            system.unlink(work)
        raise
    system.fsync_dir(os.path.dirname(journal) or ".")


def pending_renames(system: System, path: str) -> dict[int, str]:
    """Return the temporary names of subfiles whose set was killed before they got their own; usually there are none.

    A writer that is still at work may rename one of them between this look and the next call.
    """
    journal = _journal_path(system, path)
    try:
        status = system.lstat(journal)
        why, content = distrust(status, system.stat(os.path.dirname(journal) or ".")), b""
        if not why:
            content = _content(system, journal, status.st_size)
    except FileNotFoundError:
        # there is none, or its writer is done
        return {}
    if not why and content[: _HEAD.size] != _HEAD.pack(_MAGIC, zlib.crc32(content[_HEAD.size :])):
        why = "is damaged"
    if why:
        warn_outside(f"{path}: the journal {journal} {why} and is not used; remove it")
    pending: dict[int, str] = {}
    for number, name in enumerate([] if why else os.fsdecode(content[_HEAD.size :]).split("\0")[:-1]):
        target = system.realpath(subfile_path(path, number))
        work = os.path.join(os.path.dirname(target), name)
        if (
            name.startswith(beside_start(target))
            and name.endswith(TEMPORARY)
            and "/" not in name
            and exists(system, work)
        ):
            pending[number] = work
    return pending


def complete_renames(system: System, path: str) -> None:
    """Do the renames of a set that was killed in the middle of them.

    Raises
    ------
    OSError
        A file could not be renamed: the set is not opened, since its subfiles are those of two sets.
    """
    for number, work in pending_renames(system, path).items():
        with suppress(FileNotFoundError):
            system.rename(work, system.realpath(subfile_path(path, number)))


def _content(system: System, journal: str, nbytes: int) -> bytes:
    fd = system.open(journal, _FLAGS)
    try:
        found = bytearray(nbytes)
        return bytes(found[: read_at(system, fd, memoryview(found), 0)])
    finally:
        system.close(fd)


def forget_renames(system: System, path: str) -> None:
    """Remove the journal of a set, if there is one: all of its subfiles have their names, also on the disk."""
    journal = _journal_path(system, path)
    if exists(system, journal):
        system.fsync_dir(os.path.dirname(journal) or ".")
        with suppress(FileNotFoundError):
            system.unlink(journal)
