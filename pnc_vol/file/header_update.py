"""A flush ends by writing the header, the record count, the file's name and its length.

Knows: headers, how they are put in place, what is on disk. Does not know: requests, data.

Rules
-----
1. Rank 0 alone writes; every step ends with an exchange, so that its failure is every rank's.
2. A durable flush has all ranks' data on stable storage before the header, and the header before it returns.
3. Once a file had a durable flush, and from the beginning if it was there before this session, an ordinary flush
   syncs as well before a header is overwritten or a copy takes the file's name: three syncs for a header in place, two
   for a copy. New data, and a record count that grows, need none: they replace nothing that was to last.
4. In such a file, a header that takes away what the one in the file knows (`takes_away`) comes after a sync of the
   data, because some of these may stand for what goes; and it is synced itself before anything uses the space that is
   free then, or cuts it off, however small the difference is.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import numpy as np

from pnc_vol.disk.publish import Location
from pnc_vol.disk.stored_file import StoredFile
from pnc_vol.drivers.base import Driver
from pnc_vol.errors import SyncError
from pnc_vol.file.session import Session
from pnc_vol.format.encode import changed_parts, encode_after, numrecs_bytes
from pnc_vol.format.model import Header, record_vars
from pnc_vol.interruptions import is_interruption
from pnc_vol.ranks.comm import Comm, on_every, on_root

__all__ = ["check_durable", "cut_tail", "cut_what_failed", "write_header"]


def check_durable(disk: StoredFile) -> None:
    """Raise if durability cannot be promised any more.

    Raises
    ------
    SyncError
        An earlier fsync failed.
    """
    if disk.sync_error is not None:
        raise SyncError(
            disk.sync_error.errno,
            f"{disk.path}: an earlier fsync failed, so durability is no longer promised; copy the data elsewhere",
        )


def write_header(session: Session, new: Header, *, durable: bool, held: bool, takes_away: bool) -> None:
    """Write the header behind the data, or the record count alone if that is all that changed (collective).

    held : bool, it is held, and follows to the file when the data of all ranks are there; see `Epochs`.
    takes_away : bool, the header in the file knows variables or records that the new one does not.
    """
    comm, disk, epochs = session.comm, session.disk, session.epochs
    location = disk.location
    unnamed = location is not None and not location.published
    # It gets its name, or, as a new layout, the temporary one of the file that it is made of.
    names = unnamed and not (disk.keep_unpublished and location is not None and not location.takes_over)
    replaces = names and _replaces_lasting(comm, disk)
    # A rename is not held back with the data of the file that gets the name.
    safe = durable or replaces or (names and disk.driver.capabilities.holds_back)
    if takes_away and not (safe or held or location is None):
        safe = disk.lasting and _can_sync(comm, disk)
    if safe:
        sync_before(session, "flush sync", replaces=replaces)
    error: BaseException | None = None
    sure, reach = disk.header_sure, 0
    count_alone = sure and not unnamed and disk.count_alone(new)
    # Without a look at the bytes of the header, which may be many.
    encoded = old = b"" if count_alone else disk.header_bytes
    try:
        if comm.rank == 0 and location is not None and not held:
            location.restore_header(disk.driver)
        # Names were checked when they were made; foreign ones are kept. A copy has no header yet.
        disk.header_sure = comm.rank > 0
        if count_alone:
            count = b"" if new is disk.header else numrecs_bytes(new)
            if comm.rank == 0 and new.numrecs != disk.header.numrecs:
                disk.driver.grow(disk.layout.data_end(new))
                disk.driver.write_one(count, 4)
        elif not old or new is not disk.header:
            encoded = encode_after(disk.header, old, new)
        if encoded is not old or unnamed or not sure:
            for tell in disk.before_header:
                tell(encoded)
            if new.numrecs or len(record_vars(new)) < len(new.vars):
                # Without data a file ends with its header (ncvalidator takes one that ends where records would begin
                # for too long); with data it is as long as the header says, the last padding too.
                reach = disk.layout.data_end(new)
            if comm.rank == 0 and not held:
                old = old if sure else _first_bytes(disk.driver, len(encoded))
                _put(session, new, old, encoded, reach=reach, durable=durable)
    except Exception as reason:
        error = reason
        # after an error of the system the old one is in the file again, or a journal is
        disk.header_sure = sure and not is_interruption(reason)
    try:
        comm.agree("flush header", error=error)
    except Exception as reason:
        _remember(disk, reason)
        disk.layout.note_unknown_bytes()
        raise
    if encoded is not old or unnamed or not sure:
        # A copy that an earlier flush left without a header needs all of it.
        epochs.hold(old if sure else b"", encoded, reach) if held else epochs.wrote_header(encoded)
    if not count_alone:
        disk.begins_with(new, encoded)
    elif count:
        disk.counts(new, count)
    disk.header_sure = True
    session.defs.flushed(new)
    if safe:
        sync_before(session, "flush sync header", replaces=replaces)
    if location is not None and (unnamed or durable):
        named = _keep if unnamed and disk.keep_unpublished else _publish
        named(comm, location, durable=durable)
    if durable:
        disk.note_durable()


def _put(session: Session, new: Header, old: bytes, encoded: bytes, *, reach: int, durable: bool) -> None:
    """Bring the encoded header into the file, where `old` is, as safely as is asked for; on rank 0."""
    disk = session.disk
    driver, location = disk.driver, disk.location
    parts = changed_parts(old, encoded, new)
    if not parts and (location is None or location.at_stake):
        return
    if reach:
        driver.grow(reach)
    if location is None:
        for at, _, end in parts:
            driver.write_one(encoded[at:end], at)
    else:
        # After a failed fsync nothing is promised, and the driver refuses another one.
        lasting = (durable or disk.lasting) and disk.sync_error is None
        sync = partial(_sync_here, session) if lasting else None
        location.replace_header(driver, old, encoded, parts, sync=sync)


def _first_bytes(driver: Driver, n: int) -> bytes:
    """Return what a file begins with: after an interruption, the header before or the one that was being written."""
    found = np.zeros(n, np.uint8)
    return found[: driver.read_one(found, 0)].tobytes()


def _replaces_lasting(comm: Comm, disk: StoredFile) -> bool:
    """Return whether the file that gets its name replaces one that may have been on stable storage (collective)."""
    assert disk.location is not None
    if disk.lasting or not disk.location.unseen or disk.keep_unpublished:
        return disk.lasting
    # Rank 0 alone knows what had the name when this file was made.
    (replaces,), _ = comm.agree("flush replaces", (disk.location.replaces,))
    return bool(replaces)


def _can_sync(comm: Comm, disk: StoredFile) -> bool:
    """Return whether no fsync of the file failed on any rank (collective): after that nothing is promised, and none is
    tried.

    Of a header that followed late, rank 0 alone knows of the error.
    """
    (failed,), _ = comm.agree("flush sync failed", (disk.sync_error is not None,))
    return not failed


def cut_tail(comm: Comm, disk: StoredFile) -> None:
    """Give back the space behind the data that the header in the file knows (collective)."""
    # The header alone is the judge: what another program put behind its data goes, too. Nothing in the file tells it
    # from what a killed flush left, and with such a rest ncvalidator refuses the file.
    error: BaseException | None = None
    try:
        disk.driver.resize(_length(disk))
        disk.note_cut()
    except Exception as reason:
        error = reason
    comm.agree("flush cut", error=error)


def cut_what_failed(comm: Comm, disk: StoredFile) -> None:
    """Cut what was written behind a file's data before it is closed after a flush that failed (collective).

    Until then it stays, since a later flush may count it.
    """
    location, longer = disk.location, False
    if comm.rank == 0 and disk.header_sure and (location is None or (location.at_stake and not location.torn)):
        with suppress(OSError):
            longer = disk.driver.size() > _length(disk)
    held = len(disk.driver.holder.unsynced().offset) > 0
    (any_longer, any_held), _ = comm.agree("close cut", (longer, held))
    if any_longer and not any_held:
        cut_tail(comm, disk)


def _length(disk: StoredFile) -> int:
    """Return the number of bytes that the header in the file says it has."""
    return max(disk.layout.data_end(disk.header), len(disk.header_bytes))


def _publish(comm: Comm, location: Location, *, durable: bool) -> None:
    """Give a file its name, and bring the name to stable storage if asked (collective)."""
    if location.unsynced is not None:
        raise comm.on_all(location.refusal())
    error: BaseException | None = None
    if comm.rank == 0:
        try:
            location.publish(durable=durable)
        except Exception as reason:
            error = reason
    # It may have its name, and an old journal beside it could not be removed: all ranks go on from that.
    named = error is not None and location.published
    (any_named,), _ = comm.agree("flush publish", (named,), error=None if named else error)
    location.note_published()
    if any_named:
        comm.agree("flush journal", error=error)


def _keep(comm: Comm, location: Location, *, durable: bool) -> None:
    """Keep a file that gets its name at the close under its temporary one after a flush (collective)."""
    if location.takes_over or durable:
        if location.unsynced is not None:
            raise comm.on_all(location.refusal())
        on_root(comm, "flush keep", partial(location.keep, durable=durable))
    location.note_kept()


def sync_before(session: Session, operation: str, *, replaces: bool) -> None:
    """Bring the file to stable storage before a step that relies on it (collective).

    A new layout that could not be synced is written to its end all the same: it does not get the name, and `_publish`
    says where it is. It is not tried again, since a second fsync may succeed although pages were lost. Nor is another
    copy made from it: its pages may be read back as zeros.
    """
    disk = session.disk
    location = disk.location
    if replaces and location is not None and location.unsynced is not None:
        return
    session.counts["syncs"] += 1
    try:
        on_every(session.comm, operation, disk.driver.sync)
    except OSError as reason:
        _remember(disk, reason)
        if not replaces or location is None or not isinstance(reason, SyncError):
            raise
        location.note_unsynced(reason)


def _sync_here(session: Session) -> None:
    """Bring the file to stable storage from this rank alone."""
    disk, location = session.disk, session.disk.location
    session.counts["syncs"] += 1
    if session.comm.size == 1 or location is None:
        disk.driver.sync()
        return
    # A driver of several ranks is synced by all of them together; MPI-IO has no other way. Between a journal and its
    # removal that would cost two exchanges for each header, and leave half a header if a rank is lost there.
    location.sync_data()


def _remember(disk: StoredFile, reason: Exception) -> None:
    """Every rank knows, in step, that nothing is durable any more."""
    if isinstance(reason, SyncError):
        disk.note_sync_error(reason)
