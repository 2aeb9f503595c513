"""The end of a flush: the header, the record count, the file's name, its length.

Knows: headers, how they are put in place, the session. Does not know: requests, data.

Rules
-----
1. Rank 0 alone writes; every step ends with an exchange, so that its failure is every rank's.
2. A durable flush has all ranks' data on stable storage before the header, and the header before it returns.
3. Once a file had a durable flush, and from the beginning if it was there before this session, an ordinary flush
   syncs as well before a header is overwritten or a copy takes the file's name: three syncs for a header in place, two
   for a copy. Data, and the record count by itself, need none: they replace nothing that was to last.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from pnc_vol.disk.publish import write_bytes
from pnc_vol.errors import SyncError
from pnc_vol.file.session import Session
from pnc_vol.format.encode import encode, numrecs_bytes
from pnc_vol.format.model import Header
from pnc_vol.format.sizes import record_vars
from pnc_vol.mapping.flatten import to_header

__all__ = [
    "check_durable",
    "cut_tail",
    "cut_what_failed",
    "end_flush",
    "order_writes",
    "with_records",
    "write_header",
]


def check_durable(session: Session) -> None:
    """Raise if durability cannot be promised any more.

    Raises
    ------
    SyncError
        An earlier fsync failed.
    """
    if session.disk.sync_error is not None:
        raise SyncError(
            session.disk.sync_error.errno,
            f"{session.disk.path}: an earlier fsync failed, so durability is no longer promised; "
            "copy the data elsewhere",
        )


def write_header(session: Session, new: Header, *, durable: bool) -> None:
    """Write the header, or the record count alone if that is all that changed (collective)."""
    comm, location = session.comm, session.disk.location
    takes_place = _takes_place(session)
    # A rename is not held back with the data of the file that gets the name.
    named = location is not None and not (location.published or session.disk.keep_unpublished)
    safe = durable or takes_place or (named and session.disk.driver.capabilities.holds_back)
    if safe:
        _sync_before(session, "flush sync", takes_place=takes_place)
    error: BaseException | None = None
    old = session.disk.header_bytes
    encoded = old
    try:
        if comm.rank == 0 and location is not None:
            location.restore_header(session.disk.driver)
        count = numrecs_bytes(new)
        if not old or not _same_but_numrecs(session.disk.header, new):
            # a copy has no header yet, though what is to be in it may be the same
            encoded = encode(new, check=False)  # names were checked when they were made; foreign ones are kept
        elif new.numrecs != session.disk.numrecs:
            encoded = old[:4] + count + old[4 + len(count) :]
        unnamed = location is not None and not location.published
        for tell in session.disk.before_header if encoded is not old or unnamed else ():
            tell(encoded)
        if comm.rank == 0 and (encoded != old or unnamed):
            if new.numrecs or len(record_vars(new)) < len(new.vars):
                # Without data a file ends with its header.
                session.disk.driver.grow(session.disk.layout.data_end(new))
            if location is None:
                write_bytes(session.disk.driver, 0, encoded)
            elif location.published and len(encoded) == len(old) and encoded[4 + len(count) :] == old[4 + len(count) :]:
                write_bytes(session.disk.driver, 4, count)
            else:
                # After a failed fsync nothing is promised, and the driver refuses another one.
                lasting = (durable or session.disk.lasting) and session.disk.sync_error is None
                sync = partial(_sync_here, session) if lasting else None
                location.replace_header(session.disk.driver, old, encoded, sync=sync)
    except Exception as reason:
        error = reason
    try:
        comm.exchange("flush header", error=error)
    except Exception as reason:
        _remember(session, reason)
        session.disk.layout.note_unknown_bytes()
        raise
    session.disk.begins_with(new, encoded)
    session.defs.flushed(new)
    if safe:
        _sync_before(session, "flush sync header", takes_place=takes_place)
    _publish(session, durable=durable)
    if durable:
        session.disk.note_durable()


def order_writes(session: Session) -> None:
    """What the ranks wrote so far reaches the file before what they write from now on (collective)."""
    _on_driver(session, "flush order", session.disk.driver.order)


def end_flush(session: Session) -> None:
    """Tell the driver that the flush is complete (collective)."""
    _on_driver(session, "flush end", session.disk.driver.end_flush)


def _on_driver(session: Session, operation: str, call: Callable[[], None]) -> None:
    """A verb that does nothing but for drivers that hold bytes back: only there it can fail, on all ranks then."""
    if session.comm.size == 1 or not session.disk.driver.capabilities.holds_back:
        call()
        return
    error: BaseException | None = None
    try:
        call()
    except Exception as reason:
        error = reason
    session.comm.exchange(operation, error=error)


def _takes_place(session: Session) -> bool:
    """Whether this flush puts another file in the place of one that may have been on stable storage (collective)."""
    location = session.disk.location
    if location is None or location.published or session.disk.keep_unpublished:
        return False
    if not location.unseen:
        return session.disk.lasting
    # Rank 0 alone knows what had the name when this file was made.
    return b"replaces" in session.comm.exchange("flush replaces", b"replaces" if location.replaces else b"")


def cut_tail(session: Session) -> None:
    """Give back the space behind the data that the header in the file knows (collective)."""
    error: BaseException | None = None
    try:
        session.disk.driver.resize(_length(session))
        session.disk.note_cut()
    except Exception as reason:
        error = reason
    session.comm.exchange("flush cut", error=error)


def cut_what_failed(session: Session) -> None:
    """Before the file is closed after a flush that failed: cut what was written behind its data (collective).

    Until then it stays, since a later flush may count it.
    """
    location, longer = session.disk.location, b""
    if session.comm.rank == 0 and (location is None or (location.published and not location.torn)):
        with suppress(OSError):
            longer = b"longer" if session.disk.driver.size() > _length(session) else b""
    if b"longer" in session.comm.exchange("close cut", longer):
        cut_tail(session)


def _length(session: Session) -> int:
    """Bytes that the header in the file says it has."""
    return max(session.disk.layout.data_end(session.disk.header), len(session.disk.header_bytes))


def _publish(session: Session, *, durable: bool) -> None:
    """Give a moved file its name, and bring the name to stable storage if asked (collective)."""
    location = session.disk.location
    if location is None:
        return
    if session.disk.keep_unpublished or (location.published and not durable):
        return
    if location.unsynced is not None:
        raise session.comm.on_all(location.refusal())
    error: BaseException | None = None
    if session.comm.rank == 0:
        try:
            location.publish(durable=durable)
        except Exception as reason:
            error = reason
    session.comm.exchange("flush publish", error=error)
    location.note_published()


def with_records(session: Session, header: Header, numrecs: int) -> Header:
    """`header` with a record count; if that is smaller than wanted, no dataset says that it is longer."""
    if numrecs < header.numrecs:
        longer = {node: node.shape for node in session.defs.tree.datasets.values() if node.is_record and node.shape}
        for node, shape in longer.items():
            node.shape = (min(shape[0], numrecs), *shape[1:])
        flat = to_header(session.defs.tree, version=session.defs.version).header
        for node, shape in longer.items():
            node.shape = shape
        placed = zip(flat.vars, header.vars, strict=True)
        header = replace(flat, vars=tuple(var._replace(begin=at.begin) for var, at in placed))
    return header.with_numrecs(numrecs)


def _same_but_numrecs(one: Header, other: Header) -> bool:
    return one is other or (
        one.vars == other.vars and one.dims == other.dims and one.attrs == other.attrs and one.version == other.version
    )


def _sync(session: Session, operation: str) -> None:
    error: BaseException | None = None
    try:
        session.disk.driver.sync()
    except Exception as reason:
        error = reason
    session.counts["syncs"] += 1
    try:
        session.comm.exchange(operation, error=error)
    except OSError as reason:
        _remember(session, reason)
        raise


def _sync_before(session: Session, operation: str, *, takes_place: bool) -> None:
    """Bring the file to stable storage before a step that relies on it (collective).

    A new layout that could not be synced is written to its end all the same: it does not get the name, and `_publish`
    says where it is. It is not tried again, since a second fsync may succeed although pages were lost.
    """
    location = session.disk.location
    if location is None or not takes_place:
        _sync(session, operation)
    elif location.unsynced is None:
        try:
            _sync(session, operation)
        except SyncError as reason:
            location.note_unsynced(reason)


def _sync_here(session: Session) -> None:
    """Bring the file to stable storage from this rank alone."""
    session.counts["syncs"] += 1
    location = session.disk.location
    if session.comm.size == 1 or location is None:
        session.disk.driver.sync()
        return
    # A driver of several ranks is synced by all of them together.
    system = session.options.system
    # the descriptor that rank 0 holds, which stands for the file whatever its name has become
    fd = location.held.fds.get(location.key, -1) if location.key is not None else -1
    try:
        system.fdatasync(fd)
    except OSError as error:
        raise SyncError(error.errno, f"{location.path}: {error.strerror}") from error


def _remember(session: Session, reason: Exception) -> None:
    """Every rank knows, in step, that nothing is durable any more."""
    if isinstance(reason, SyncError):
        session.disk.note_sync_error(reason)
