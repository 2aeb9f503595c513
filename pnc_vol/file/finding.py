"""Rank 0 finds what an opening is about: it finds the session to join, opens the file, or creates one.

Knows: modes, paths, logs that were left, locations. Does not know: drivers' stacks; other ranks.

Rules
-----
1. What is done depends on what exists; if that changes before it is done, the decision is made again.
2. A file that another process made since is never replaced by one that found nothing.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from pnc_vol.disk.locking import Held
from pnc_vol.disk.naming import ATTEMPTS, check_place
from pnc_vol.disk.publish import Location
from pnc_vol.file import combinations, registry
from pnc_vol.file.file_sets import SetSeen, file_sets, matched_set, set_names
from pnc_vol.file.leftovers import look_after
from pnc_vol.file.opening import Opening
from pnc_vol.format.encode import encode, encoded_empty
from pnc_vol.format.model import Header
from pnc_vol.late import late
from pnc_vol.layout.registry import CANONICAL, header_paths, layout_class
from pnc_vol.settings.options import Options

if TYPE_CHECKING:
    from pnc_vol.disk import existing as reading
else:
    reading = late("pnc_vol.disk.existing")

__all__ = ["find"]


def find(opening: Opening, new: Header | None) -> None:
    """Find the session to join, open the file, or make one, which has the header `new`, or nothing yet; on rank 0.

    Raises
    ------
    OSError, ValueError
        As `joining.open_session`; nothing is open then.
    """
    options, path = opening.options, opening.path
    if opening.driver is None and opening.mode in ("r", "r+", "a") and ("*" in path or "?" in path or "[" in path):
        path = matched_set(options.system, path)
    asked = path
    seen: SetSeen | None = None
    for _ in range(ATTEMPTS):
        there: os.stat_result | None = None
        if opening.driver is None:
            path, there = _standing(options, asked, opening.mode)
            # a file that is opened as one of a set is none itself
            seen = None if opening.layout is not None else _set_of(options, asked, path, opening.mode, there)
            if seen is not None and path != (first := file_sets(seen.sets).first_file(seen.base)):
                path, there = first, None
                with suppress(FileNotFoundError):
                    there = options.system.stat(path)
            if opening.token and path != asked:
                opening.real = options.system.realpath(path)
        if opening.token:
            # A session that is open comes first: what is under the name may be older than what it holds.
            joins = registry.finds(opening, there)
            if not joins and there is None and seen is None and opening.mode in ("r", "r+", "a"):
                joins = _finds_unnamed(opening, path)
            if joins:
                opening.way = "join"
                return
        if seen is not None:
            opening.way, opening.sets = "set", seen.sets
            file_sets(seen.sets).find(opening, seen, there)
            return
        way = _way(opening, path, there)
        if way == "open" and opening.driver is not None:
            opening.read(reading.header_of(opening.driver, path))
            return
        real = (opening.real if opening.token else "") or options.system.realpath(path)
        if way == "open":
            _open(opening, path, real)
            return
        if _create(opening, path, real, new, way):
            return
    raise reading.replaced_too_often(path)


def _standing(options: Options, path: str, mode: str) -> tuple[str, os.stat_result | None]:
    """Return the file with the header, and its status: a layout may give it another name than the user's."""
    new = mode in ("w", "w-", "x")
    if not options.layout:
        # A new file of no stated layout has the user's name, whatever other layouts have beside it; and so have most
        # that are there.
        try:
            return path, options.system.stat(path)
        except FileNotFoundError:
            if new:
                return path, None
    names = _header_paths(path, options.layout)
    if not new:
        # a file that is there is opened as what it is
        names = list(dict.fromkeys((*names, path, *_header_paths(path, ""))))
    for name in names:
        with suppress(FileNotFoundError):
            return name, options.system.stat(name)
    return names[0], None


def _header_paths(path: str, asked: str) -> list[str]:
    """Return the names under which the header of `path` may be, in the order in which they are to be tried."""
    sets = () if asked else (file_sets(name).first_file(path) for name in set_names())
    return list(dict.fromkeys((*header_paths(path, asked), *sets)))


def _finds_unnamed(opening: Opening, path: str) -> bool:
    """Return whether this process has a file of the name open that has not got its names yet, as a new set of
    subfiles."""
    own = opening.real
    for name in _header_paths(path, ""):
        opening.real = opening.options.system.realpath(name)
        if registry.finds(opening, None):
            return True
    opening.real = own
    return False


def _several_files(options: Options) -> bool:
    return bool(options.layout) and layout_class(options.layout).several_files


def _set_of(options: Options, asked: str, path: str, mode: str, there: os.stat_result | None) -> SetSeen | None:
    """Return the set of files that is meant, or None.

    asked, path : str, the name that the user gave, and that of the file which is there.
    """
    new = SetSeen(layout_class(options.layout).sets, asked) if _several_files(options) else None
    if mode in ("w", "w-", "x"):
        return new
    # as h5py: an empty file, such as `tempfile` makes, is no file yet
    if there is None or (mode != "r" and there.st_size == 0 and path == asked):
        return new
    if options.layout == CANONICAL and path == asked:
        # one of the files of a set, as the ordinary file that it is
        return None
    # The files of a set end in a number: no plug-in is loaded for any other name.
    for name in set_names() if path[-1:].isdigit() else ():
        if (seen := file_sets(name).seen(name, asked, path, options)) is not None:
            return seen
    return None


def _way(opening: Opening, path: str, there: os.stat_result | None) -> str:
    """Return whether to open the file, to create it where none is, or to put a new one in its place."""
    mode, options = opening.mode, opening.options
    if opening.driver is not None:
        nbytes = opening.driver.size()
        if nbytes and mode in ("w-", "x"):
            raise FileExistsError(errno.EEXIST, f"it holds {nbytes} bytes already; open it with mode 'a' or 'w'", path)
        return "create" if mode not in ("r", "r+", "a") or (mode != "r" and not nbytes) else "open"
    if there is not None:
        check_place(there, path, exclusive=opening.keeps_file and mode in ("w-", "x"))
    if there is None and mode in ("r", "r+", "a"):
        if any(file_sets(name).lacks_first(options.system, path) for name in set_names()):
            text = "the first file of this set of subfiles is missing, and others are there; bring it back beside them"
            raise FileNotFoundError(errno.ENOENT, text, path)
        if mode != "a":
            raise FileNotFoundError(errno.ENOENT, "there is no such file; mode 'w' or 'a' creates one", path)
    if opening.keeps_file and opening.token:
        # A file without a token is a part of something that was looked after as a whole.
        real = opening.real or options.system.realpath(path)
        look_after(path, real, options, writable=mode != "r", replaced=mode in ("w", "w-", "x"))
    if mode in ("w", "w-", "x"):
        return "replace" if mode == "w" and there is not None else "create"
    if there is None:
        return "create"
    # as h5py: an empty file, such as `tempfile` makes, is no file yet
    return "replace" if mode in ("a", "r+") and there.st_size == 0 else "open"


def _open(opening: Opening, path: str, real: str) -> None:
    """Open a file that is there, and read its header."""
    options, writable = opening.options, opening.writable and opening.keeps_file
    held = Held(options.system, path, options.locking if writable else False)
    # It is locked before its header is read: else another process could change what was read.
    existing = reading.open_existing(
        options.system, path, real, writable=writable, hold=held.lock if writable else None
    )
    opening.read(existing)
    opening.location = Location(options.system, real, real, held=held)
    opening.location.key = held.keep(existing.fd, existing.key)


def _create(opening: Opening, path: str, real: str, new: Header | None, way: str) -> bool:
    """Make a file with the header `new`, or with nothing yet; False if another process has changed what is there since
    it was looked at."""
    options, mode = opening.options, opening.mode
    header = encode(new) if new else encoded_empty(options.version)
    if opening.keeps_file:
        if options.layout:
            combinations.check(layout_class(options.layout), options, 1, path=path, new=True)
        held = Held(options.system, path, options.locking)
        try:
            if way == "replace" and mode != "w":
                held.may_replace(real)
                if not held.fds or any(options.system.fstat(fd).st_size for fd in held.fds.values()):
                    # it is no empty file any more
                    held.release()
                    return False
            publish = options.publish == "create"
            opening.location = Location.create(
                options.system,
                path,
                header,
                target=real,
                # A file that another process made meanwhile is not replaced by one that found nothing.
                exclusive=way == "create" and (publish or mode in ("w-", "x")),
                # An older file stays until there is a log, see `joining.open_queue`.
                publish=publish and not options.burst_buf,
                # What a log is to bring back after a crash of the node needs the file.
                durable=options.durable or (options.burst_buf and options.burst_buf_sync != "none"),
                held=held,
            )
        except BaseException as error:
            held.release()
            if isinstance(error, FileExistsError) and mode not in ("w-", "x"):
                # another process made it since, and its data are not to be lost
                return False
            raise
    opening.way, opening.header = "create", new or Header(options.version)
    opening.content, opening.size = header, len(header)
    return True
