"""Rank 0 finds a set of subfiles when its name, a pattern, or the name of a subfile is opened.

Knows: names of subfiles, what the first one says. Does not know: how a set is opened (`set_opening`).
"""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import stat
from contextlib import suppress
from typing import Any

from pnc_vol.blob.described import described, is_blob_set
from pnc_vol.blob.renaming import complete_renames, pending_renames
from pnc_vol.disk import existing as reading
from pnc_vol.disk import signature
from pnc_vol.disk.existing import Existing
from pnc_vol.disk.naming import check_place
from pnc_vol.file import combinations
from pnc_vol.file.finding import Found, Mine, SetSeen
from pnc_vol.file.leftovers import look_after
from pnc_vol.file.registry import refuse_open
from pnc_vol.layout.registry import layout_class
from pnc_vol.layout.subfiles import subfile_path, subfiles_of
from pnc_vol.ranks.comm import Comm
from pnc_vol.settings.options import Options
from pnc_vol.system import System

__all__ = ["BlobSets"]

_SUBFILE = r"(?s)(.+)\.\d{4,}"
_SHOWN = 4
"""Sets that are named in a message."""


class BlobSets:
    """See `file.finding.FileSets`."""

    @staticmethod
    def first_file(base: str) -> str:
        return subfile_path(base, 0)

    @staticmethod
    def files(system: System, base: str) -> list[str]:
        return subfiles_of(system, base)

    @staticmethod
    def matched(system: System, path: str) -> str:
        folder, pattern = os.path.split(path)
        if not set("*?[") & set(pattern):
            return path
        try:
            names = fnmatch.filter(system.listdir(folder or "."), pattern)
        except OSError:
            return path
        bases = sorted({named[1] for name in names if (named := re.fullmatch(_SUBFILE, name))})
        if len(bases) > 1:
            shown = ", ".join(map(repr, bases[:_SHOWN])) + (", ..." if len(bases) > _SHOWN else "")
            raise ValueError(f"{path}: the pattern matches subfiles of {len(bases)} sets ({shown}); name one of them")
        return os.path.join(folder, bases[0]) if bases else path

    @staticmethod
    def seen(name: str, asked: str, path: str, options: Options, local: Mine) -> SetSeen | None:
        named = re.fullmatch(_SUBFILE, path)
        if named is None:
            return None
        base = named[1]
        first = subfile_path(base, 0)
        if _is_hdf5(options, pending_renames(options.system, base).get(0, path)):
            return SetSeen(name, base, signature.HDF5_SIGNATURE)
        try:
            found = _first_header(options.system, base)
        except FileNotFoundError:
            found = _header_in(options.system, path)
        if is_blob_set(found.decoded.header):
            local.subfile = found
            return SetSeen(name, base, found.content)
        if path == first == subfile_path(asked, 0):
            # The user named a set: an error reports the missing attribute, because the same bytes opened as an
            # ordinary file would show elements in another order.
            described(found.decoded.header, path)
        return None

    @staticmethod
    def found(
        seen: SetSeen,
        mode: str,
        there: os.stat_result | None,
        token: str,
        options: Options,
        local: Mine,
        *,
        looks: bool,
    ) -> Found:
        base, first, system = seen.base, seen.header, options.system
        if mode != "r":
            complete_renames(system, base)
        plain: os.stat_result | None = None
        with suppress(FileNotFoundError):
            plain = system.stat(base)
        if not first:
            for name, what in ((base, plain), (subfile_path(base, 0), there)):
                if what is not None:
                    check_place(what, name, exclusive=mode in ("w-", "x"))
            if plain is None and mode in ("r", "r+"):
                raise FileNotFoundError(errno.ENOENT, "there is no such file; mode 'w' or 'a' creates one", base)
            combinations.check(layout_class(options.layout), options, 1, path=base, new=True)
            if plain is not None:
                refuse_open(system.realpath(base), base, replaced=True)
        if looks:
            replaced = mode in ("w", "w-", "x")
            names = subfiles_of(system, base) if there is not None else []
            # Subfile 0 comes last: its log is that of the set, and newer than the data in the caches of all subfiles.
            for name in reversed(names or [subfile_path(base, 0)]):
                look_after(name, system.realpath(name), options, writable=mode != "r", replaced=replaced)
            if replaced and plain is not None:
                look_after(base, system.realpath(base), options, writable=True, replaced=True)
            if first and first != signature.HDF5_SIGNATURE:
                # The recovery may have written another header.
                name = subfile_path(base, 0)
                if local.subfile is None or not reading.unchanged(system, name, local.subfile):
                    local.subfile = _first_header(system, base)
                first = local.subfile.content
        inode = there.st_ino if there is not None else 0
        return Found("set", token, base, "", len(first), inode, first, seen.sets)

    @staticmethod
    def open(found: Found, mode: str, options: Options, comm: Comm) -> Any:
        if found.header == signature.HDF5_SIGNATURE or options.layout == "hdf5blob":
            from pnc_vol.blob.hdf5.opening import open_hdf5_set as open_set
        else:
            from pnc_vol.blob.set_opening import open_set
        return open_set(found, mode, options, comm)


def _first_header(system: System, base: str) -> Existing:
    """The header of subfile 0, wherever that is."""
    if work := pending_renames(system, base).get(0):
        with suppress(FileNotFoundError):
            return _header_in(system, work)
    return _header_in(system, subfile_path(base, 0))


def _header_in(system: System, path: str) -> Existing:
    """The header of a file, which is closed again."""
    found = reading.open_existing(system, path, system.realpath(path))
    system.close(found.fd)
    return found


def _is_hdf5(options: Options, path: str) -> bool:
    fd = options.system.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return (
            stat.S_ISREG(options.system.fstat(fd).st_mode) and signature.kind_of(options.system, fd) == signature.HDF5
        )
    finally:
        options.system.close(fd)
