"""How a file is opened or made, on all ranks together.

Knows: modes, paths, headers, driver stacks, ranks. Does not know: requests.

Rules
-----
1. Rank 0 alone looks at the file system and reads the header; the others get the bytes, and decode them themselves.
2. Nothing that is wrong on one rank leaves another one waiting, and nothing half-made stays behind.
3. What is odd about a file, but readable, is one warning, on rank 0.
"""

from __future__ import annotations

import errno
import json
import os
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pnc_vol.comm import Comm, on_root, ranks_text
from pnc_vol.drivers.base import Driver
from pnc_vol.drivers.posix import PosixDriver
from pnc_vol.drivers.stack import open_stack, parse_stack, root_keeps_file
from pnc_vol.errors import (
    CollectiveMismatchError,
    FormatError,
    FormatWarning,
    NeedBytes,
    NotCDFError,
    ShortFileWarning,
    warn_outside,
)
from pnc_vol.format.check import short_data
from pnc_vol.format.decode import MAX_HEADER_BYTES, Decoded, decode
from pnc_vol.format.encode import encode
from pnc_vol.format.model import Finding, Header
from pnc_vol.format.sizes import begin_rec, data_end, inner_bytes, is_record
from pnc_vol.mapping.index import from_header
from pnc_vol.mapping.markers import Findings
from pnc_vol.mapping.tree import Tree
from pnc_vol.options import Options
from pnc_vol.pending.collector import without_collector
from pnc_vol.pending.commit import Location, check_place, recover, write_bytes
from pnc_vol.pending.log.opening import begin_log, look_after_leftovers, missing_folder
from pnc_vol.pending.queue import Queue
from pnc_vol.pending.recognise import Read, kind_by, says_what
from pnc_vol.system import read_at, scratch_folder

if TYPE_CHECKING:
    from pnc_vol.pending.session import Session
    from pnc_vol.pending.sharing import Claim

__all__ = ["SIZE_BYTES", "Opened", "open_copy", "open_driver", "open_file", "open_queue", "open_spill", "read_header"]

_FIRST_READ = 64 << 10
_LEAST_GAP = 4
"""Bytes of the smallest variable: less is padding."""
_SIZE = struct.Struct("<q")
SIZE_BYTES = _SIZE.size
"""Bytes before the header in what `read_header` gives."""
_SHOWN = 4
# Options that decide where data lie, or which calls are collective.
_SHARED = (
    "version",
    "buffer_size",
    "var_align",
    "record_align",
    "header_reserve",
    "publish",
    "ordered",
    "durable",
    "separator",
    "transport",
    "burst_buf",
    "burst_buf_shared_logs",
    "burst_buf_sync",
    "recover",
)


@dataclass(frozen=True, slots=True)
class Opened:
    """A file that was just opened.

    location : Location or None
        None for a driver that keeps no file.
    virgin : bool, nothing lies behind the data that the header knows of.
    gaps : bool, there is space between variables, of which nobody knows what is in it.
    collective : bool, the driver's calls may be collective.
    """

    path: str
    driver: Driver
    location: Location | None
    writable: bool
    created: bool
    header: Header
    header_bytes: bytes
    tree: Tree
    virgin: bool
    gaps: bool
    collective: bool


@without_collector
def open_file(
    path: str | None,
    mode: str,
    *,
    options: Options,
    comm: Comm,
    root: Driver | None = None,
    claim: Claim | None = None,
) -> Opened | None:
    """Open or create a file (collective), or None if there is a session to join; see `session.open_session`."""
    spec = options.driver or ("mpio" if comm.mpi is not None else "posix")
    wishes = {"name": path, "mode": mode, "driver": spec} | {key: getattr(options, key) for key in _SHARED}
    _same_on_all(comm, wishes, claim)
    keeps_file = root is None and root_keeps_file(spec)
    if not keeps_file and comm.size > 1:
        raise ValueError(f"driver {spec!r} keeps the file in one process's memory; {comm.size} ranks cannot share it")
    if options.burst_buf and mode != "r" and comm.size > 1:
        comm.exchange("open log folders", error=missing_folder(options))
    decided = on_root(comm, "open", lambda: _decide(options, path, mode, keeps_file, root, claim))
    if claim is not None:
        decided, _, claim.token = decided.partition(b" ")
        if decided == b"join":
            return None
    create = decided != b"open"
    location: Location | None = None
    findings: tuple[Finding, ...] = ()
    if create:
        header = Header(options.version)
        first = encode(header)
        size = len(first)
        if keeps_file:
            location = _create(path or "", first, decided == b"create", options, comm)
    else:
        seen: list[Decoded] = []
        told = on_root(comm, "open header", lambda: read_header(path or "", mode, options, seen, root))
        (size,) = _SIZE.unpack_from(told)
        decoded = seen[0] if seen else decode(told[_SIZE.size :], file_size=size)
        header, findings = decoded.header, decoded.findings
        first = told[_SIZE.size : _SIZE.size + decoded.nbytes]
        if keeps_file:
            target = options.system.realpath(path or "")
            location = Location(options.system, target, target)
            location.key = claim.key if claim is not None else None
    writable = create or mode != "r"
    opened_path = None if create and not keeps_file else location.work if location else path
    driver = root or _driver(spec, opened_path, writable, options, comm, location)
    if create and not keeps_file:
        driver.resize(0)
        write_bytes(driver, 0, first)
    tree = from_header(header)
    tree.separator = options.separator
    if comm.rank == 0 and not create:
        _warn(path or "", header, size, findings, tree)
    return Opened(
        path=path if path is not None else "<memory>",
        driver=driver,
        location=location,
        writable=writable,
        created=create,
        header=header,
        header_bytes=first,
        tree=tree,
        virgin=size <= max(data_end(header), len(first)),
        gaps=_has_gaps(header, len(first)),
        collective=comm.size > 1 and parse_stack(spec)[-1].name == "mpio",
    )


def _has_gaps(header: Header, nbytes: int) -> bool:
    """Whether a variable would find room before the records."""
    records = begin_rec(header)
    if records is None:
        return False
    ends = [var.begin + inner_bytes(header, var) for var in header.vars if not is_record(header, var)]
    return records - max(ends, default=nbytes) >= _LEAST_GAP


def _same_on_all(comm: Comm, wishes: dict[str, Any], claim: Claim | None) -> None:
    """Compare what ranks ask for, and whether it clashes with what they have open (collective).

    Raises
    ------
    CollectiveMismatchError
        They ask for different things.
    """
    if comm.size == 1:
        return
    clash = claim.clash() if claim is not None else None
    everyone = [json.loads(told) for told in comm.exchange("open", json.dumps(wishes).encode(), error=clash)]
    for key in wishes:
        by_value: dict[str, list[int]] = {}
        for rank, told in enumerate(everyone):
            by_value.setdefault(repr(told[key]), []).append(rank)
        if len(by_value) > 1:
            what = "; ".join(f"{value} on {ranks_text(ranks)}" for value, ranks in by_value.items())
            text = f"ranks open the file with different {key}: {what}. Give the same on every rank"
            raise comm.on_all(CollectiveMismatchError(text, min(by_value.values(), key=len)))


def _decide(
    options: Options, path: str | None, mode: str, keeps_file: bool, root: Driver | None, claim: Claim | None
) -> bytes:
    """What is to be done; with a claim its token follows, behind a space."""
    there: os.stat_result | None = None
    if root is None and path is not None:
        with suppress(FileNotFoundError):
            there = options.system.stat(path)
    if claim is None:
        return _way(options, path, mode, keeps_file, root, there)
    joins = claim.finds(there)
    return (b"join" if joins else _way(options, path, mode, keeps_file, root, there)) + b" " + claim.token


def _way(
    options: Options,
    path: str | None,
    mode: str,
    keeps_file: bool,
    root: Driver | None,
    there: os.stat_result | None,
) -> bytes:
    """Whether to open the file, to create it where none is, or to put a new one in its place."""
    if root is not None:
        nbytes = root.size()
        if nbytes and mode in ("w-", "x"):
            raise FileExistsError(errno.EEXIST, f"it holds {nbytes} bytes already; open it with mode 'a' or 'w'", path)
        return b"create" if mode not in ("r", "r+", "a") or (mode != "r" and not nbytes) else b"open"
    if there is not None:
        check_place(there, path or "", exclusive=keeps_file and mode in ("w-", "x"))
    if mode in ("r", "r+") and there is None:
        raise FileNotFoundError(errno.ENOENT, "there is no such file; mode 'w' or 'a' makes one", path)
    if path is not None and keeps_file:
        look_after_leftovers(path, options, writable=mode != "r", replaced=mode in ("w", "w-", "x"))
    if mode in ("w", "w-", "x"):
        return b"replace" if mode == "w" else b"create"
    if there is None:
        return b"create"
    # as h5py: an empty file, such as `tempfile` makes, is no file yet
    return b"replace" if mode == "a" and there.st_size == 0 else b"open"


def _create(path: str, header: bytes, exclusive: bool, options: Options, comm: Comm) -> Location:
    """Make the file on rank 0 (collective)."""
    made: list[Location] = []

    def do() -> bytes:
        publish = options.publish == "create"
        # What a log is to bring back after a crash of the node needs the file.
        durable = options.burst_buf and options.burst_buf_sync != "none"
        made.append(
            Location.create(options.system, path, header, exclusive=exclusive, publish=publish, durable=durable)
        )
        return json.dumps([made[0].path, made[0].work]).encode()

    target, work = json.loads(on_root(comm, "create", do))
    return made[0] if made else Location(options.system, target, work)


def read_header(path: str, mode: str, options: Options, seen: list[Decoded], root: Driver | None = None) -> bytes:
    """The file's size and the bytes of its header, after completing a header replacement that was cut short.

    What the bytes say is added to `seen`, so that the rank that looked does not decode them again.

    Raises
    ------
    FormatError
        It is no CDF file, or its header is wrong; the path is named.
    OSError
        It cannot be read.
    """
    if root is not None:
        return _decoded(path, root.size(), partial(_read_of, root), None, seen)
    system = options.system
    instead = recover(system, path, writable=mode != "r")
    fd = system.open(path, (os.O_RDONLY if mode == "r" else os.O_RDWR) | os.O_CLOEXEC)
    try:
        return _decoded(path, system.fstat(fd).st_size, partial(read_at, system, fd), instead, seen)
    finally:
        system.close(fd)


def _read_of(root: Driver, buffer: bytearray | memoryview, offset: int) -> int:
    """As `system.read_at`, of a driver."""
    memory = np.frombuffer(buffer, np.uint8)
    return root.read_one(memory, offset) if len(memory) else 0


def _decoded(path: str, size: int, read: Read, instead: bytes | None, seen: list[Decoded]) -> bytes:
    """The size and the header's bytes; `instead` is the header where the file's own was not replaced in full."""
    wanted = min(size, _FIRST_READ)
    while True:
        data = bytearray(wanted)
        del data[read(memoryview(data), 0) :]
        if instead is not None:
            data[: len(instead)] = instead
        try:
            decoded = decode(data, file_size=size)
        except NeedBytes as need:
            # Reading costs less than decoding anew what is known already.
            wanted = min(size, max(need.nbytes, min(16 * wanted, MAX_HEADER_BYTES)))
            continue
        except NotCDFError as error:
            raise NotCDFError(
                f"{path}: {says_what(kind_by(read, size)) or error}",
                offset=error.offset,
                field=error.field,
                value=error.value,
            ) from None
        except FormatError as error:
            raise type(error)(f"{path}: {error}", offset=error.offset, field=error.field, value=error.value) from None
        seen.append(decoded)
        return _SIZE.pack(size) + bytes(data[: decoded.nbytes])


def _driver(
    spec: str, path: str | None, writable: bool, options: Options, comm: Comm, location: Location | None
) -> Driver:
    """Open the stack on all ranks (collective)."""
    driver: Driver | None = None
    error: BaseException | None = None
    try:
        driver = open_stack(
            spec, path, writable=writable, system=options.system, comm=comm if comm.mpi else None, hints=options.hints
        )
    except Exception as reason:
        error = reason
    try:
        comm.exchange("open driver", error=error)
    except BaseException:
        if driver is not None and parse_stack(spec)[-1].name != "mpio":
            driver.close()
        if location is not None and comm.rank == 0:
            location.discard()
        raise
    assert driver is not None
    return driver


def open_driver(path: str, *, options: Options, comm: Comm) -> Driver:
    """The driver of a file that is there, for reading (collective)."""
    return _driver(options.driver or ("mpio" if comm.mpi is not None else "posix"), path, False, options, comm, None)


def open_copy(session: Session) -> tuple[Location, Driver]:
    """A new file beside the session's, and a driver on it (collective)."""
    options, comm, old = session.options, session.comm, session.location
    spec = options.driver or ("mpio" if comm.mpi is not None else "posix")
    if old is None:
        raise AssertionError("a file in memory is laid out anew by memory_copy")
    made: list[Location] = []

    def do() -> bytes:
        made.append(old.copy())
        return made[0].work.encode()

    work = on_root(comm, "copy", do).decode()
    location = made[0] if made else Location(options.system, old.path, work)
    return location, _driver(spec, work, True, options, comm, location)


def memory_copy(session: Session) -> Driver:
    """A driver that holds nothing, for the new layout of a file that has no name: of the same stack, or in a file."""
    if session.options.driver == "fileobj":
        return open_spill(session)
    return open_stack(session.options.driver, None, writable=True, system=session.options.system)


def open_spill(session: Session) -> Driver:
    """A private file without a name, beside the file or where temporary files go."""
    system = session.options.system
    folder = os.path.dirname(session.location.path) if session.location else scratch_folder()
    name = os.path.join(folder or ".", f".pnc_vol.{system.token()}.spill")
    fd = system.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        system.unlink(name)
    except OSError:
        system.close(fd)
        raise
    return PosixDriver(fd, name, writable=True, system=system)


def open_queue(session: Session) -> Queue:
    """The queue that the options ask for: in memory, or in a log (collective)."""
    options = session.options
    if not options.burst_buf or not session.writable or session.location is None:
        return Queue(options.buffer_size, lambda: open_spill(session))
    location = session.location

    def stored() -> dict[int, str]:
        there = {var.name for var in session.disk_header.vars}
        placed = session.placed
        named = zip(placed.uids, placed.header.vars, strict=True)
        return {uid: var.name for uid, var in named if var.name in there}

    try:
        return begin_log(
            location.path, options, session.comm, lambda: open_spill(session), work=location.work, stored=stored
        )
    except BaseException as error:
        if session.comm.in_step(error):
            session.driver.close()
            if session.comm.rank == 0:
                location.discard()
        raise


def _warn(path: str, header: Header, size: int, findings: Sequence[Finding], tree: Tree) -> None:
    missing = short_data(header, size)
    if missing:
        total = sum(nbytes for _, nbytes in missing)
        names = ", ".join(f"{name} ({nbytes} bytes)" for name, nbytes in missing[:_SHOWN])
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        warn_outside(
            ShortFileWarning(
                f"{path}: {total} bytes of data are missing at the end of the file, of {names}{more}; "
                "they read as the fill value (strict=True makes reading them an error)",
                offset=size,
                field="file_size",
                value=size,
            ),
        )
    odd = [finding for finding in findings if finding.severity == "warning" and finding.field != "file_size"]
    if odd:
        first = odd[0]
        more = f" (and {len(odd) - 1} more: 'pnc-vol check' lists them)" if len(odd) > 1 else ""
        warn_outside(
            FormatWarning(f"{path}: {first.message}{more}", offset=first.offset, field=first.field, value=first.value),
        )
    if tree.findings:
        more = f" (and {len(tree.findings) - 1} more)" if len(tree.findings) > 1 else ""
        warn_outside(f"{path}: {tree.findings[0]}{more}")
    if isinstance(tree.findings, Findings):
        tree.findings.path = path
