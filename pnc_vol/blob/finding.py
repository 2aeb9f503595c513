"""Rank 0 finds a set of subfiles when its name, a pattern, or the name of a subfile is opened.

Knows: the header of the first one. Does not know: how a set is opened (`set_opening`).
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import Any

from pnc_vol.blob.header import described, is_blob_set
from pnc_vol.blob.names import matched_set, set_of_subfile, subfile_path, subfiles_of
from pnc_vol.blob.renaming import complete_renames, pending_renames
from pnc_vol.blob.set_opening import open_set
from pnc_vol.disk import existing as reading
from pnc_vol.disk.existing import Existing
from pnc_vol.disk.naming import check_place
from pnc_vol.file import combinations
from pnc_vol.file.file_sets import SetSeen
from pnc_vol.file.leftovers import look_after
from pnc_vol.file.opening import Opening
from pnc_vol.file.registry import refuse_open
from pnc_vol.layout.registry import layout_class
from pnc_vol.settings.options import Options
from pnc_vol.system import System, exists
from pnc_vol.warn import warn_outside

__all__ = ["BlobSets"]


class BlobSets:
    """See `file.file_sets.FileSets`."""

    @staticmethod
    def first_file(base: str) -> str:
        return subfile_path(base, 0)

    @staticmethod
    def lacks_first(system: System, base: str) -> bool:
        return exists(system, subfile_path(base, 1)) and not exists(system, subfile_path(base, 0))

    @staticmethod
    def files(system: System, base: str) -> list[str]:
        return subfiles_of(system, base)

    @staticmethod
    def matched(system: System, path: str) -> str:
        return matched_set(system, path)

    @staticmethod
    def seen(name: str, asked: str, path: str, options: Options) -> SetSeen | None:
        base = set_of_subfile(path)
        if not base:
            return None
        first = subfile_path(base, 0)
        if _is_hdf5(options.system, pending_renames(options.system, base).get(0, path)):
            return SetSeen(name, base, reading.HDF5_SIGNATURE)
        try:
            found = _first_header(options.system, base)
        except FileNotFoundError:
            found = _header_in(options.system, path)
        if is_blob_set(found.decoded.header):
            return SetSeen(name, base, found.content, found)
        if path == first == subfile_path(asked, 0):
            # The user named a set: an error reports the missing attribute, because the same bytes opened as an
            # ordinary file would show elements in another order.
            described(found.decoded.header, path)
        return None

    @staticmethod
    def find(opening: Opening, seen: SetSeen, there: os.stat_result | None) -> None:
        base, mode, options = seen.base, opening.mode, opening.options
        opening.path, opening.content, opening.existing = base, seen.header, seen.first
        system = options.system
        if opening.writable:
            complete_renames(system, base)
        plain: os.stat_result | None = None
        with suppress(FileNotFoundError):
            plain = system.stat(base)
        if not seen.header:
            for name, what in ((base, plain), (subfile_path(base, 0), there)):
                if what is not None:
                    check_place(what, name, exclusive=mode in ("w-", "x"))
            if mode != "w" and not exists(system, subfile_path(base, 0)) and _others_than_first(system, base):
                text = "the first file of this set of subfiles is missing, and others are there; bring it back"
                raise FileNotFoundError(errno.ENOENT, text, subfile_path(base, 0))
            if plain is None and mode in ("r", "r+"):
                raise FileNotFoundError(errno.ENOENT, "there is no such file; mode 'w' or 'a' creates one", base)
            combinations.check(layout_class(options.layout), options, 1, path=base, new=True)
            if plain is not None:
                refuse_open(system.realpath(base), base, replaced=True)
        elif plain is not None and plain.st_size:
            warn_outside(
                f"{base}: an ordinary file has this name, too, and is what the name leads to; what is opened here is "
                f"the set of subfiles beside it, {subfile_path(base, 0)!r}. Remove what is not needed of the two"
            )
        if opening.token:
            _look_after(opening, base, there=there is not None, plain=plain is not None)

    @staticmethod
    def open(opening: Opening) -> Any:
        return open_set(opening)


def _others_than_first(system: System, base: str) -> bool:
    """Return whether other files of a set than its first one are there, whichever their numbers are."""
    folder, name = os.path.split(base)
    with suppress(OSError):
        for other in system.listdir(folder or "."):
            # a file of another kind may have such a name
            with suppress(OSError):
                path = os.path.join(folder, other)
                if set_of_subfile(other) == name and (
                    _is_hdf5(system, path) or is_blob_set(_header_in(system, path).decoded.header)
                ):
                    return True
    return False


def _look_after(opening: Opening, base: str, *, there: bool, plain: bool) -> None:
    """Let plug-ins take care of what jobs left of a set's files, and read the first header again.

    there, plain : bool, whether the first subfile exists, and whether a file with the name of the set does.
    """
    options, system, first = opening.options, opening.options.system, subfile_path(base, 0)
    replaced = opening.mode in ("w", "w-", "x")
    names = subfiles_of(system, base) if there else []
    # Subfile 0 comes last: its log is that of the set, and newer than the data in the caches of all subfiles.
    for name in reversed(names or [first]):
        look_after(name, system.realpath(name), options, writable=opening.writable, replaced=replaced)
    if replaced and plain:
        look_after(base, system.realpath(base), options, writable=True, replaced=True)
    if opening.content and opening.content != reading.HDF5_SIGNATURE:
        # The recovery may have written another header.
        if opening.existing is None or not reading.unchanged(system, first, opening.existing):
            opening.existing = _first_header(system, base)
        opening.content = opening.existing.content


def _first_header(system: System, base: str) -> Existing:
    """Return the header of subfile 0, wherever that is."""
    if work := pending_renames(system, base).get(0):
        with suppress(FileNotFoundError):
            return _header_in(system, work)
    return _header_in(system, subfile_path(base, 0))


def _header_in(system: System, path: str) -> Existing:
    """Return the header of a file, which is closed again."""
    found = reading.open_existing(system, path, system.realpath(path))
    system.close(found.fd)
    return found


def _is_hdf5(system: System, path: str) -> bool:
    fd = system.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return stat.S_ISREG(system.fstat(fd).st_mode) and reading.kind_of(system, fd) == reading.HDF5
    finally:
        system.close(fd)
