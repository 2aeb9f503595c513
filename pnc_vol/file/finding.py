"""What rank 0 does when a file is opened: it finds the session to join, opens the file, or creates one.

Knows: modes, paths, logs that were left, locations. Does not know: drivers' stacks; other ranks, but what to tell them.

Rules
-----
1. What is done depends on what exists; if that changes before it is done, the decision is made again.
2. A file that another process made since is never replaced by one that found nothing.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pnc_vol.disk.locking import Held, Key
from pnc_vol.disk.naming import ATTEMPTS, check_place
from pnc_vol.disk.publish import Location
from pnc_vol.drivers.base import Driver
from pnc_vol.file import combinations
from pnc_vol.file.leftovers import look_after
from pnc_vol.file.registry import OpenAttempt
from pnc_vol.format.encode import encode, encoded_empty
from pnc_vol.format.model import Header
from pnc_vol.late import late
from pnc_vol.layout.registry import header_paths, layout_class
from pnc_vol.plugins import Registry
from pnc_vol.settings.options import Options
from pnc_vol.system import System, exists

if TYPE_CHECKING:
    from pnc_vol.disk import existing as reading
    from pnc_vol.disk.existing import Existing
    from pnc_vol.format.decode import Decoded
    from pnc_vol.ranks.comm import Comm
else:
    reading = late("pnc_vol.disk.existing")

__all__ = ["FileSets", "Found", "Mine", "SetSeen", "file_sets", "file_with_header", "files_of", "find", "is_set"]


class SetSeen(NamedTuple):
    """A set of files that is there, or is to be made.

    sets : str, the plug-in that has it.
    base : str, the name that a user gives it.
    header : bytes, of its first file; empty if it is to be made.
    """

    sets: str
    base: str
    header: bytes = b""


class FileSets(Protocol):
    """A plug-in that finds and opens files which consist of several files.

    A layout with `several_files` names the plug-in in its attribute `sets`.
    """

    def first_file(self, base: str) -> str:
        """The name of the file of a set that has its first header."""

    def files(self, system: System, base: str) -> list[str]:
        """The files of a set that are there, from the first one to the last before one that is not."""

    def matched(self, system: System, path: str) -> str:
        """The name of the set whose files a pattern matches; any other path as it is.

        Raises
        ------
        ValueError
            The pattern matches files of several sets.
        """

    def seen(self, name: str, asked: str, path: str, options: Options, mine: Mine) -> SetSeen | None:
        """The set of which `path`, which is there, is a file; None if it is an ordinary file.

        Raises
        ------
        OSError, FormatError
        """

    def found(
        self,
        seen: SetSeen,
        mode: str,
        there: os.stat_result | None,
        token: str,
        options: Options,
        mine: Mine,
        *,
        looks: bool,
    ) -> Found:
        """What rank 0 tells the others of a set.

        Parameters
        ----------
        there : os.stat_result or None, of its first file.
        looks : bool, whether `leftovers.look_after` is to be called for its files.

        Raises
        ------
        OSError, ValueError
            It cannot be opened or made in this way.
        """

    def open(self, found: Found, mode: str, options: Options, comm: Comm) -> Any:
        """Open or create the set (collective): an `OpenFile`.

        Raises
        ------
        OSError, ValueError
        """


_sets = Registry[FileSets]("pnc_vol.sets", "set of files")
file_sets = _sets.find


class Mine:
    """What rank 0 has in its hands besides what it tells the others.

    decoded : Decoded or None, of a file that was there.
    held, key : the descriptor of the file, or None of what is no file.
    location : Location or None, if the driver keeps a file.
    subfile : Existing or None, the first subfile of a set, which is closed again.
    """

    __slots__ = ("decoded", "held", "key", "location", "subfile")

    def __init__(self) -> None:
        self.decoded: Decoded | None = None
        self.held: Held | None = None
        self.key: Key = 0, 0
        self.location: Location | None = None
        self.subfile: Existing | None = None

    @property
    def fd(self) -> int:
        return self.held.fds.get(self.key, -1) if self.held is not None else -1

    def release(self) -> None:
        """Let go of the file."""
        if self.held is not None:
            self.held.release()


class Found(NamedTuple):
    """What rank 0 found, or made.

    way : "join", "open", "create", or "set": the file consists of several files.
    token : str, of the session to join, or of the new one.
    path, work : str, as of `Location`.
    size : int, bytes of the file.
    inode : int, of a file that was opened; 0 of a new one.
    header : bytes
    sets : str, the plug-in that has the set.
    subfile : Existing or None, on rank 0: see `Mine`.
    """

    way: str
    token: str = ""
    path: str = ""
    work: str = ""
    size: int = 0
    inode: int = 0
    header: bytes = b""
    sets: str = ""
    subfile: Existing | None = None

    @property
    def created(self) -> bool:
        return self.way == "create"

    def value(self) -> tuple[Any, ...]:
        """What other ranks need of it; see `pnc_vol.ranks.codec`."""
        return self[:-1]


def find(
    options: Options,
    path: str | None,
    mode: str,
    keeps_file: bool,
    root: Driver | None,
    claim: OpenAttempt | None,
    mine: Mine,
    new: Header,
) -> Found:
    """Find the session to join, open the file, or make one, which has the header `new`; on rank 0."""
    if root is None and path is not None and mode in ("r", "r+", "a"):
        path = _matched(options.system, path)
    token, asked = "", path
    seen: SetSeen | None = None
    for _ in range(ATTEMPTS):
        there: os.stat_result | None = None
        if root is None and path is not None:
            path, there = _standing(options, asked or path, mode)
            seen = _set_of(options, asked or path, path, mode, there, mine)
            if seen is not None and path != (first := file_sets(seen.sets).first_file(seen.base)):
                path, there = first, None
                with suppress(FileNotFoundError):
                    there = options.system.stat(path)
            if claim is not None and path != asked:
                claim.real = options.system.realpath(path)
        if claim is not None:
            joins = claim.finds(there)
            if not joins and there is None and seen is None and mode in ("r", "r+", "a"):
                joins = _finds_unnamed(options, path or "", claim)
            token = claim.token.decode()
            if joins:
                return Found("join", token)
        if seen is not None:
            return file_sets(seen.sets).found(seen, mode, there, token, options, mine, looks=claim is not None)
        way = _way(options, path, mode, keeps_file, root, there, claim)
        if way == "open" and root is not None:
            existing = reading.header_of(root, path or "")
            mine.decoded = existing.decoded
            return Found("open", token, "", "", existing.size, 0, existing.content)
        real = claim.real if claim is not None and claim.real else options.system.realpath(path or "")
        writable = mode != "r" and keeps_file
        mine.held = Held(options.system, path or "", options.locking if writable else False)
        if way == "open":
            return _open(options, path or "", real, writable, token, mine)
        header = encode(new) if new.vars or new.dims or new.attrs else encoded_empty(new.version)
        if keeps_file:
            try:
                location = _create(path or "", real, header, mode, options, mine.held, way)
            except BaseException as error:
                mine.release()
                if isinstance(error, FileExistsError) and mode not in ("w-", "x"):
                    # Somebody made it since; it is not ours to replace unseen.
                    continue
                raise
            if location is None:
                mine.release()
                continue
            mine.location, mine.key = location, location.key or mine.key
            return Found("create", token, location.path, location.work, len(header), 0, header)
        return Found("create", token, real, real, len(header), 0, header)
    raise reading.replaced_too_often(path or "")


def _standing(options: Options, path: str, mode: str) -> tuple[str, os.stat_result | None]:
    """The file with the header, and what stands there: a layout may give it another name than the user's."""
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
    if not new and _several_files(options) and names[-1] != path:
        # a file that is there is opened as what it is
        names.append(path)
    for name in names:
        with suppress(FileNotFoundError):
            return name, options.system.stat(name)
    return names[0], None


def _matched(system: System, path: str) -> str:
    """The name of the set whose files a pattern matches, such as ``out.nc.*``; any other path as it is."""
    if ("*" in path or "?" in path or "[" in path) and not exists(system, path):
        for name in _sets.own():
            path = file_sets(name).matched(system, path)
    return path


def _header_paths(path: str, asked: str) -> list[str]:
    """Names under which the header of `path` may be, in the order in which they are to be tried."""
    sets = () if asked else (file_sets(name).first_file(path) for name in _sets.own())
    return list(dict.fromkeys((*header_paths(path, asked), *sets)))


def file_with_header(system: System, path: str) -> str:
    """The file in which the header of `path` is: that itself, or the first file of a set of that name."""
    return files_of(system, path)[0]


def files_of(system: System, path: str) -> list[str]:
    """The files in which the data under a name are: that itself, or those of a set that are there."""
    if not exists(system, path):
        for name in _sets.own():
            if found := file_sets(name).files(system, path):
                return found
    return [path]


def is_set(system: System, path: str) -> bool:
    """Whether a path is the name of a set of files: nothing stands there, but its first file does."""
    return files_of(system, path) != [path]


def _finds_unnamed(options: Options, path: str, claim: OpenAttempt) -> bool:
    """Whether this process has a file of the name open that has not got its names yet, as a new set of subfiles."""
    own = claim.real
    for name in _header_paths(path, ""):
        claim.real = options.system.realpath(name)
        if claim.finds(None):
            return True
    claim.real = own
    return False


def _several_files(options: Options) -> bool:
    return bool(options.layout) and layout_class(options.layout).several_files


def _set_of(
    options: Options, asked: str, path: str, mode: str, there: os.stat_result | None, mine: Mine
) -> SetSeen | None:
    """The set of files that is meant, or None.

    asked, path : str, what the user said, and what stands there.
    """
    new = SetSeen(layout_class(options.layout).sets, asked) if _several_files(options) else None
    if mode in ("w", "w-", "x"):
        return new
    # as h5py: an empty file, such as `tempfile` makes, is no file yet
    if there is None or (mode != "r" and there.st_size == 0 and path == asked):
        return new
    if options.layout and new is None:
        return None
    for name in _sets.own() if path[-1:].isdigit() else ():
        if (seen := _sets.find(name).seen(name, asked, path, options, mine)) is not None:
            return seen
    return None


def _open(options: Options, path: str, real: str, writable: bool, token: str, mine: Mine) -> Found:
    """Open what is there."""
    assert mine.held is not None
    existing = reading.open_existing(
        options.system, path, real, writable=writable, hold=mine.held.lock if writable else None
    )
    mine.key, mine.decoded = mine.held.keep(existing.fd, existing.key), existing.decoded
    mine.location = Location(options.system, real, real, held=mine.held)
    mine.location.key = mine.key
    return Found("open", token, real, real, existing.size, existing.key[1], existing.content)


def _way(
    options: Options,
    path: str | None,
    mode: str,
    keeps_file: bool,
    root: Driver | None,
    there: os.stat_result | None,
    claim: OpenAttempt | None,
) -> str:
    """Whether to open the file, to create it where none is, or to put a new one in its place."""
    if root is not None:
        nbytes = root.size()
        if nbytes and mode in ("w-", "x"):
            raise FileExistsError(errno.EEXIST, f"it holds {nbytes} bytes already; open it with mode 'a' or 'w'", path)
        return "create" if mode not in ("r", "r+", "a") or (mode != "r" and not nbytes) else "open"
    if there is not None:
        check_place(there, path or "", exclusive=keeps_file and mode in ("w-", "x"))
    if mode in ("r", "r+") and there is None:
        raise FileNotFoundError(errno.ENOENT, "there is no such file; mode 'w' or 'a' creates one", path)
    if path is not None and keeps_file and claim is not None:
        real = claim.real or options.system.realpath(path)
        look_after(path, real, options, writable=mode != "r", replaced=mode in ("w", "w-", "x"))
    if mode in ("w", "w-", "x"):
        return "replace" if mode == "w" and there is not None else "create"
    if there is None:
        return "create"
    # as h5py: an empty file, such as `tempfile` makes, is no file yet
    return "replace" if mode in ("a", "r+") and there.st_size == 0 else "open"


def _create(path: str, real: str, header: bytes, mode: str, options: Options, held: Held, way: str) -> Location | None:
    """Make the file on rank 0; None if what was there is no empty file any more."""
    if way == "replace" and mode != "w":
        held.may_replace(real)
        if not held.fds or any(options.system.fstat(fd).st_size for fd in held.fds.values()):
            return None
    if options.layout:
        combinations.check(layout_class(options.layout), options, 1, path=path, new=True)
    publish = options.publish == "create"
    return Location.create(
        options.system,
        path,
        header,
        target=real,
        # What another process made meanwhile is not replaced by one that found nothing.
        exclusive=way == "create" and (publish or mode in ("w-", "x")),
        # What there was stays until there is a log, see `open_queue`.
        publish=publish and not options.burst_buf,
        # What a log is to bring back after a crash of the node needs the file.
        durable=options.durable or (options.burst_buf and options.burst_buf_sync != "none"),
        held=held,
    )
