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
import re
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from pnc_vol.disk.locking import Held, Key
from pnc_vol.disk.naming import ATTEMPTS, check_place
from pnc_vol.disk.publish import Location
from pnc_vol.drivers.base import Driver
from pnc_vol.file.registry import OpenAttempt, refuse_open
from pnc_vol.format.encode import encode, encoded_empty
from pnc_vol.format.model import Header
from pnc_vol.late import late
from pnc_vol.layout.registry import header_paths, layout_class
from pnc_vol.settings.options import Options
from pnc_vol.system import System, exists

if TYPE_CHECKING:
    import json

    from pnc_vol.blob import subfiles
    from pnc_vol.disk import existing as reading
    from pnc_vol.disk import signature
    from pnc_vol.disk.existing import Existing
    from pnc_vol.file import combinations
    from pnc_vol.format.decode import Decoded
else:
    json = late("json")
    signature = late("pnc_vol.disk.signature")
    combinations = late("pnc_vol.file.combinations")
    subfiles = late("pnc_vol.blob.subfiles")
    reading = late("pnc_vol.disk.existing")

__all__ = ["Found", "Mine", "find"]


_SUBFILE = r"(?s)(.+)\.\d{4,}"
_SHOWN = 4
"""Sets that are named in a message."""


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

    way : "join", "open", "create", or "set": the file is a set of subfiles.
    token : str, of the session to join, or of the new one.
    path, work : str, as of `Location`.
    size : int, bytes of the file.
    inode : int, of a file that was opened; 0 of a new one.
    header : bytes; of subfiles that are HDF5 files the signature of these.
    subfile : Existing or None, on rank 0: see `Mine`.
    """

    way: str
    token: str = ""
    path: str = ""
    work: str = ""
    size: int = 0
    inode: int = 0
    header: bytes = b""
    subfile: Existing | None = None

    @property
    def hdf5(self) -> bool:
        """Whether the subfiles that are there are HDF5 files."""
        return self.header == signature.HDF5_SIGNATURE

    @property
    def created(self) -> bool:
        return self.way == "create"

    def packed(self) -> bytes:
        words = [self.way, self.token, self.path, self.work, self.size, self.inode]
        return json.dumps(words).encode() + b"\n" + self.header

    @classmethod
    def unpacked(cls, told: bytes) -> Found:
        words, _, header = told.partition(b"\n")
        way, token, path, work, size, inode = json.loads(words)
        return cls(way, token, path, work, size, inode, header)


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
    token, asked, base, first = "", path, None, b""
    for _ in range(ATTEMPTS):
        there: os.stat_result | None = None
        if root is None and path is not None:
            path, there = _standing(options, asked or path, mode)
            base, first = _set_of(options, asked or path, path, mode, there, mine)
            if base is not None and path != subfiles.subfile_path(base, 0):
                path, there = subfiles.subfile_path(base, 0), None
                with suppress(FileNotFoundError):
                    there = options.system.stat(path)
            if claim is not None and path != asked:
                claim.real = options.system.realpath(path)
        if claim is not None:
            joins = claim.finds(there)
            if not joins and there is None and base is None and mode in ("r", "r+", "a"):
                joins = _finds_unnamed(options, path or "", claim)
            token = claim.token.decode()
            if joins:
                return Found("join", token)
        if base is not None:
            return _found_set(base, first, mode, there, token, claim, options, mine)
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


def _matched(system: System, path: str) -> str:
    """The name of the set whose subfiles a pattern matches, such as ``out.nc.*``; any other path as it is.

    Raises
    ------
    ValueError
        The pattern matches subfiles of several sets.
    """
    if not ("*" in path or "?" in path or "[" in path):
        return path
    folder, pattern = os.path.split(path)
    if not set("*?[") & set(pattern) or exists(system, path):
        return path
    try:
        import fnmatch

        names = fnmatch.filter(system.listdir(folder or "."), pattern)
    except OSError:
        return path
    bases = sorted({named[1] for name in names if (named := re.fullmatch(_SUBFILE, name))})
    if len(bases) > 1:
        shown = ", ".join(map(repr, bases[:_SHOWN])) + (", ..." if len(bases) > _SHOWN else "")
        raise ValueError(f"{path}: the pattern matches subfiles of {len(bases)} sets ({shown}); name one of them")
    return os.path.join(folder, bases[0]) if bases else path


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
    names = header_paths(path, options.layout)
    if not new and _several_files(options) and names[-1] != path:
        # a file that is there is opened as what it is
        names.append(path)
    for name in names:
        with suppress(FileNotFoundError):
            return name, options.system.stat(name)
    return names[0], None


def _finds_unnamed(options: Options, path: str, claim: OpenAttempt) -> bool:
    """Whether this process has a file of the name open that has not got its names yet, as a new set of subfiles."""
    own = claim.real
    for name in header_paths(path, ""):
        claim.real = options.system.realpath(name)
        if claim.finds(None):
            return True
    claim.real = own
    return False


def _several_files(options: Options) -> bool:
    return bool(options.layout) and layout_class(options.layout).several_files


def _set_of(
    options: Options, asked: str, path: str, mode: str, there: os.stat_result | None, mine: Mine
) -> tuple[str | None, bytes]:
    """The name of the set of subfiles that is meant, or None; and the header of its first subfile, if there is one.

    asked, path : str, what the user said, and what stands there.
    """
    sets = _several_files(options)
    if mode in ("w", "w-", "x"):
        return (asked, b"") if sets else (None, b"")
    # as h5py: an empty file, such as `tempfile` makes, is no file yet
    if there is None or (mode != "r" and there.st_size == 0 and path == asked):
        return (asked, b"") if sets else (None, b"")
    named = re.fullmatch(_SUBFILE, path) if path[-4:].isdigit() else None
    if named is None or (options.layout and not sets):
        return None, b""
    # Few files have such names, and what knows of blobs takes long to load.
    from pnc_vol.blob.described import described, is_blob_set

    base = named[1]
    first = subfiles.subfile_path(base, 0)
    if _is_hdf5(options, path):
        return base, signature.HDF5_SIGNATURE
    try:
        found = _header_in(options.system, first)
    except FileNotFoundError:
        found = _header_in(options.system, path)
    if is_blob_set(found.decoded.header):
        mine.subfile = found
        return base, found.content
    if path == first == subfiles.subfile_path(asked, 0):
        # The user named a set. What is missing is told; as an ordinary file it would show other values.
        described(found.decoded.header, path)
    return None, b""


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


def _found_set(
    base: str,
    first: bytes,
    mode: str,
    there: os.stat_result | None,
    token: str,
    claim: OpenAttempt | None,
    options: Options,
    mine: Mine,
) -> Found:
    """A set of subfiles that is there, or is to be made."""
    plain: os.stat_result | None = None
    with suppress(FileNotFoundError):
        plain = options.system.stat(base)
    if not first:
        for name, what in ((base, plain), (subfiles.subfile_path(base, 0), there)):
            if what is not None:
                check_place(what, name, exclusive=mode in ("w-", "x"))
        if plain is None and mode in ("r", "r+"):
            raise FileNotFoundError(errno.ENOENT, "there is no such file; mode 'w' or 'a' creates one", base)
        combinations.check(layout_class(options.layout), options, 1, path=base, new=True)
        if plain is not None:
            refuse_open(options.system.realpath(base), base, replaced=True)
    if claim is not None and claim.look_after is not None:
        replaced = mode in ("w", "w-", "x")
        names = subfiles.subfiles_of(options.system, base) if there is not None else []
        # The first one last: a log of the set, which is its, is replayed upon what the caches of all hold.
        for name in reversed(names or [subfiles.subfile_path(base, 0)]):
            claim.look_after(name, options.system.realpath(name), options, writable=mode != "r", replaced=replaced)
        if replaced and plain is not None:
            claim.look_after(base, options.system.realpath(base), options, writable=True, replaced=True)
        if first and first != signature.HDF5_SIGNATURE:
            # What was recovered may have brought another header.
            name = subfiles.subfile_path(base, 0)
            if mine.subfile is None or not reading.unchanged(options.system, name, mine.subfile):
                mine.subfile = _header_in(options.system, name)
            first = mine.subfile.content
    inode = there.st_ino if there is not None else 0
    return Found("set", token, base, "", len(first), inode, first)


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
    if path is not None and keeps_file and claim is not None and claim.look_after is not None:
        real = claim.real or options.system.realpath(path)
        claim.look_after(path, real, options, writable=mode != "r", replaced=mode in ("w", "w-", "x"))
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
