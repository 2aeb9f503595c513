"""A flush has these steps, in this order: agreement, relocation, fill, data, header, record count.

Knows: the session's parts. Does not know: users' objects.

A flush goes to one *target*: a file (`_File`), or a set of subfiles (`_Set`). A set's `write` is a flush of each of its
subfiles, which are files; so there is one order of events, in `flush`, and a target says what each event is.

Rules
-----
1. Every step that can fail ends with an exchange, so that an error on one rank is the same error on every rank. All of
   it stands in `Comm.errors_shared`: what fails between two exchanges on one rank is raised on all at the next one.
   What has to be taken back then (`relocation`) is taken back when all ranks know of the failure.
2. The header is written after the data that it describes; the record count never covers a record that failed.
3. A layout that moves data, or would write over data that the header in the file knows, is made in a temporary copy of
   the file (see `relocation`); with the new header in it the copy takes the file's name. Until then the old file is
   whole.
4. If requests fail, the others are done, the header is written, the failed ones stay, and `FlushError` lists them. Only
   if the new header drops a variable of the old one it is not written: what failed may be what should replace it.
5. A step that has nothing to do is left out: where the layout in force stays, nothing is moved or filled.
6. Where drivers hold bytes back, data and header follow to the file later (`epochs`), unless they are to be *carried*:
   the flush is durable, or the last one, or asked to; or the new header does not just add to the one in the file. Such
   a flush begins with all that is held in the file, because what it overwrites may be known there.
   Where older data of other ranks overlap new data, it begins with the older ones.

States
------
Of a target, from one flush to the next. A kill, or an error, at any moment leaves what the last column says.

=========  ====================================  =========  ==========================================================
state      event                                 next       what is on disk
=========  ====================================  =========  ==========================================================
flushed    something is posted or defined        posted     the last flush; with a log, also what was posted
posted     all ranks agree on the definitions    agreed     the same
agreed     the new layout only adds              placed     the old header; fill values where it knows of nothing
agreed     the new layout moves live data        copied     the old file, untouched; its data in a temporary file, too
placed     the data are written                  written    the old header; what it knows has old or new elements
copied     the data are written to the copy      written    the old file, untouched
written    a request fails                       written    the same; the request stays posted (rule 4)
written    in place: the header is written       described  a journal first, so the old header or the new one
written    in a copy: it takes the file's name   described  the old file or the new one, by one rename
written    drivers hold data back                held       the old header; data and header in the caches, to recover
held       all data of all ranks are carried     described  as for a header in place
described  lost records filled, the tail cut     flushed    the new header
any        an error before the header            posted     as in that state; what was posted is written by a later
                                                            flush, or by the close
=========  ====================================  =========  ==========================================================

Of a set, each subfile goes through these states by a flush of its own. All of them are placed before the data are
written; subfile 0, whose header says what the set has, is described when all others are. So a set is:

=========  ====================================  =========  ==========================================================
state      event                                 next       what is on disk
=========  ====================================  =========  ==========================================================
agreed     the layout of the set is in force     placed     the last flush
placed     all subfiles are placed               placed     old headers; in a copy of a subfile, its old file, too
placed     maps and data are written             written    the same; maps say where the new data are, no header does
written    subfiles but the first are described  written    new headers that subfile 0 says nothing of yet
written    subfile 0 is described                described  the new set
=========  ====================================  =========  ==========================================================
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from pnc_vol.drivers.base import Driver
from pnc_vol.drivers.holding import Unwritten
from pnc_vol.errors import RequestFailure, SyncError
from pnc_vol.file.epochs import fall_back
from pnc_vol.file.filling import LeftToPosts, fill, fill_failed
from pnc_vol.file.header_update import check_durable, cut_tail, write_header
from pnc_vol.file.relocation import Copy, complete_copy, copied, replaces_live
from pnc_vol.file.report import FlushReport, watchers
from pnc_vol.file.session import Session, WriteData, Written
from pnc_vol.flush.agree import (
    HELD,
    NO_READS,
    Agreement,
    agree,
    agree_lost_records,
    agree_widths,
    described,
    digest,
    failures_of,
    failures_of_held,
    flush_error,
    share_failures,
    transport_code,
)
from pnc_vol.flush.execute import Executed, rounds_of
from pnc_vol.format.encode import encode, header_size
from pnc_vol.format.model import Header
from pnc_vol.layout.base import Layout, LostRecords
from pnc_vol.mapping.flatten import Flat
from pnc_vol.queue.batches import Batch
from pnc_vol.ranks.comm import Comm, trouble_of
from pnc_vol.warn import DEBUG, FLUSH, tell

__all__ = ["flush"]


_NONE = Executed()
"""Of a flush that writes no data."""


_PHASES = "agree", "layout", "fill", "data", "header"


def flush(
    session: Session,
    *,
    durable: bool,
    carried: bool = False,
    closing: bool = False,
    what: str = "flush",
    write: WriteData | None = None,
) -> None:
    """Write all that was posted on all ranks, and the definitions (collective).

    carried : bool, what drivers hold back is in the file at the end, too.
    what : str, what the ranks call this, which is compared.
    write : callable, optional
        Writes the data of this flush in place of what is posted here; see `Session.flush`.

    Raises
    ------
    FlushError
        Requests failed; the same on all ranks.
    Exception
        Definitions differ, a rank failed before the flush, the header or the layout could not be written.
    """
    began = time.perf_counter()
    disk, epochs, files = session.disk, session.epochs, session.file_set
    unsafe = disk.sync_error is not None and session.always_durable
    if closing and unsafe:
        # The last chance: what was posted goes to the file, and the close says that it may not be on the disk.
        durable = False
    if durable:
        check_durable(disk)
    carried = carried or durable or (closing and not epochs.left_at_close())
    operation = ("close" if closing else what) + (" durable" if durable else "")
    batches, flat, agreed = _agreed(session, operation, writes=write is not None)
    session.counts["flushes"] += 1
    agreed_at = time.perf_counter()
    settled = epochs.settled and (files is None or files.settled)
    if not durable and (settled or not carried) and _nothing_to_do(session, flat, agreed):
        _take_time(session, began, agreed_at)
        _end(session, wrote=False)
        # what a flush that was interrupted at its end has not done
        if session.posted.writes:
            session.posted.note_written(Executed())
        _tell_logs(session, unsafe=unsafe, closing=closing)
        return
    if session.comm.size > 1 or agreed.widened or agreed.drained:
        flat = _accept(session, flat, agreed)
    asked = _Asked(durable, carried, closing, write)
    layout = session.defs.next_layout(flat, disk, closing=closing)
    target = (_File if files is None else _Set)(session, layout, batches, agreed, asked)
    target.place()
    placed_at = time.perf_counter()
    target.fill()
    filled_at = time.perf_counter()
    target.write()
    written_at = time.perf_counter()
    target.describe()
    _tell_logs(session, unsafe=unsafe, closing=closing)
    target.cut()
    described_at = time.perf_counter()
    seconds = _take_time(session, began, agreed_at, placed_at, filled_at, written_at, described_at)
    _report(session, seconds, target.done, target.failures, closing=closing)


# ------------------------------------------------------------------------------------------------- before a target


def _agreed(session: Session, operation: str, *, writes: bool) -> tuple[list[Batch], Flat, Agreement]:
    """Return what is to be written, the definitions, and what all ranks are about to do (collective).

    writes : bool, somebody else writes data in this flush, too.
    """
    comm, defs, layout, queue = session.comm, session.defs, session.disk.layout, session.posted.queue
    batches = queue.about_to_flush()
    changed = defs.dirty
    holds = session.disk.driver.capabilities.holds_back
    reads = NO_READS
    if session.posted.reads:
        from pnc_vol.file.reads.completing import complete_posted, weight_of_reads

        if changed:
            # Some may be of datasets that were deleted since.
            complete_posted(session)
        reads = weight_of_reads(session)
    if changed and batches:
        batches = session.posted.without_deleted(batches, defs.tree.datasets)
    flat = defs.flatten(layout, common=comm.size > 1)
    agreement = Agreement(
        drained=layout.drained,
        widened=bool(defs.widened),
        changed=changed,
        unknown_bytes=not layout.unwritten.reads_zero,
        lost=bool(layout.lost_records),
        records=layout.records,
        batches=len(batches) + writes,
    )
    if comm.size > 1:
        runs, nbytes = queue.weight()
        agreement = agreement._replace(
            runs=runs,
            nbytes=nbytes,
            rounds=rounds_of(batches),
            transport=transport_code(session.options),
            aggregators=session.options.aggrs_per_node,
        )
    reported = holds and session.epochs.reports()
    if comm.size > 1:
        comm.traffic.begin()
        definitions = digest(flat.header)
        describe = partial(described, defs.tree, flat)
        agreement, reported, reads = agree(comm, operation, agreement, definitions, describe, reported, reads)
    if holds or reported:
        from pnc_vol.file.held_ranges import spans_of

        error: BaseException | None = None
        try:
            session.epochs.meet(reported, partial(spans_of, batches, layout.maps, new=True))
        except OSError as reason:
            if not writes:
                raise
            error = reason
        if writes and reported:
            # what the ranks of one subfile call next are calls of all ranks
            comm.agree("flush held header", error=error)
        agreement = agreement._replace(apart=session.epochs.apart)
    if reads.posts:
        from pnc_vol.file.reads.completing import complete_together

        complete_together(session, reads)
    return batches, flat, agreement


def _nothing_to_do(session: Session, flat: Flat, agreed: Agreement) -> bool:
    """Return whether the file is as all ranks want it already; the same on all ranks."""
    if agreed.changed or agreed.widened or agreed.drained or agreed.lost or agreed.batches or session.epochs.failed:
        return False
    disk = session.disk
    if session.file_set is not None and not (session.file_set.begun or disk.keep_unpublished):
        return False
    complete = flat.header.numrecs == disk.header.numrecs and not disk.may_be_longer
    return complete and (disk.named or disk.keep_unpublished)


def _accept(session: Session, flat: Flat, agreed: Agreement) -> Flat:
    """Take over what other ranks know of definitions and of the file; the definitions then (collective)."""
    comm, defs, layout = session.comm, session.defs, session.disk.layout
    if agreed.widened:
        if comm.size > 1:
            agree_widths(comm, defs.tree, defs.widened)
        defs.widen(layout.header_uids)
    if agreed.widened or agreed.drained:
        layout.drained |= agreed.drained
        if agreed.drained:
            defs.note_drain()
        flat = defs.flatten(layout, common=False)
    layout.records = agreed.records
    if agreed.unknown_bytes:
        layout.unwritten = layout.unwritten._replace(reads_zero=False)
    return flat


# ------------------------------------------------------------------------------------------------------- targets


class _Asked(NamedTuple):
    """What a flush was asked for; see `flush`."""

    durable: bool
    carried: bool
    closing: bool
    write: WriteData | None


class _Target:
    """What a flush brings data and a header to. Its public methods are the events, in the order of `flush` (all
    collective).

    layout : Layout, the next one; in force from `fill` on.
    batches : list of Batch, what this rank has posted.
    agreed, asked : what is true of all ranks, and what they were asked for.
    done : Executed, what was written on this rank.
    failures : list of RequestFailure, of all ranks.
    lowest : int or None, the first record that a failed request should have written.
    trouble : str, why a driver of some rank can hold nothing back any more, or "".
    """

    def __init__(
        self, session: Session, layout: Layout, batches: list[Batch], agreed: Agreement, asked: _Asked
    ) -> None:
        self.session, self.layout, self.batches, self.agreed, self.asked = session, layout, batches, agreed, asked
        self.done, self.trouble = _NONE, ""
        self.failures: list[RequestFailure] = []
        self.lowest: int | None = None

    def place(self) -> None:
        """Find out what is to be moved, and move it."""

    def fill(self) -> None:
        """Fill what nobody wrote and nobody is about to write, and bring the layout into force."""

    def write(self) -> None:
        """Write the data.

        Raises
        ------
        FlushError
            What failed keeps the new header out of the file.
        """

    def describe(self) -> None:
        """Write the header."""

    def cut(self) -> None:
        """Cut off what is behind the data."""

    def lost_records(self) -> LostRecords:
        """Return what all ranks know of datasets that lost records, as some rank said."""
        return agree_lost_records(self.session.comm, self.layout.uids, self.session.disk.layout.lost_records)

    def header(self, lowest: int) -> Header:
        """Return the new header, which counts no record from `lowest` on."""
        header, defs = self.layout.header, self.session.defs
        return defs.with_records(header, min(header.numrecs, max(defs.tree.records, lowest)))

    def write_data(self, agreed: Agreement) -> None:
        """Write what is posted, or let `asked.write` do so."""
        session, write = self.session, self.asked.write
        comm, driver, posted = session.comm, session.disk.driver, session.posted
        holding = session.epochs.holding
        if write is None and comm.size == 1 and not (holding or posted.writes or self.batches):
            # Definitions alone: nobody waits for anything here.
            return
        known, failures = list[RequestFailure](), list[RequestFailure]()
        if write is None:
            self._write_posted(agreed)
            if self.done.failed:
                failures, self.lowest = failures_of(self.done, session.defs.tree, session.disk.layout, comm.rank)
        else:
            # these all ranks know
            self.done, known, self.lowest = write()
        if holding and self.asked.carried:
            failures += _carried(session)
        elif holding and session.epochs.failed:
            unwritten, maps = session.epochs.take_unwritten(), session.disk.layout.maps
            failures += failures_of_held(unwritten, session.defs.tree, maps, comm.rank)
        self.trouble = driver.holder.trouble() if holding else ""
        if comm.size > 1:
            failures, self.lowest, self.trouble = share_failures(comm, failures, self.lowest, self.trouble)
        self.failures = known + failures
        if self.failures:
            self._check_failures()

    def _write_posted(self, agreed: Agreement) -> None:
        session, posted, batches = self.session, self.session.posted, self.batches
        comm, ordered, layout, driver = session.comm, session.options.ordered, session.disk.layout, session.disk.driver
        if posted.progress is not None:
            from pnc_vol.drivers.staged import ProgressDriver

            total = sum(batch.table.nbytes for batch in batches)
            driver = ProgressDriver(driver, posted.progress, total)
        # What is written in turns must come to the files in turns.
        held = session.epochs.holding or (session.file_set is not None and session.file_set.holds_back)
        for turn in range(comm.size) if ordered else (comm.rank,):
            if turn == comm.rank:
                maps = layout.maps if batches else {}
                self.done = session.transport.execute(driver, batches, maps, affine=layout.affine, agreed=agreed)
                posted.note_written(self.done)
                if ordered and held:
                    session.disk.driver.holder.drain()
            if ordered:
                comm.agree("flush turn")

    def _check_failures(self) -> None:
        """Raise if what failed keeps the new header out of the file."""
        session, failures, closing = self.session, self.failures, self.asked.closing
        disk, held = session.disk, [failure.request == HELD for failure in self.failures]
        if self.asked.carried and any(held):
            # The header stays held with the data that it describes.
            if closing and all(held):
                # All data are in the caches, and this is the last flush: a replay is to bring them to the file.
                _at_driver(session.comm, "flush end", disk.driver, disk.driver.end_flush)
            raise session.comm.on_all(flush_error(failures, disk.path, closing=closing))
        place = disk.location
        if replaces_live(disk, self.layout.uids) and (place is None or place.kept_as or not place.unseen):
            # The old header stays: the new one lacks data that the old one knows.
            raise session.comm.on_all(flush_error(failures, disk.path, closing=closing, held=True))


class _File(_Target):
    """A file.

    stays : bool, nothing is new but data and records.
    copy : Copy or None, where a layout is made that moves data.
    lost, later : LostRecords
        What datasets lost; of these, those whose records the header in the file may still count: they are filled when
        it does not.
    unfilled : LeftToPosts
    """

    def place(self) -> None:
        session, target, agreed = self.session, self.layout, self.agreed
        comm, disk, placed = session.comm, session.disk, session.disk.layout
        if session.epochs.holding and _before_data(session, target, agreed):
            self.asked = self.asked._replace(carried=True)
        self.copy: Copy | None = None
        self.later: LostRecords = {}
        self.unfilled: LeftToPosts = {}
        self.stays = target is placed and not agreed.changed and not agreed.lost
        if self.stays:
            return
        self.lost: LostRecords = self.lost_records() if agreed.lost else {}
        lost = self.lost
        if comm.size > 1 and target.header.vars != placed.header.vars:
            # No rank goes on with another layout than the others.
            comm.agree("flush layout")
        header, added = target.header, target.added_to(placed)
        if not (header.numrecs or target.data_end(header)) and header_size(header) < len(disk.header_bytes):
            # Without data the file ends with its header.
            disk.note_longer()
        elif not added and target.uids is not placed.uids and placed.has_more_than(target.uids):
            disk.note_longer()
        # Where variables only came or went nothing moves, and nothing that the header in the file knows is overwritten.
        if lost or added is None or disk.uids is not placed.uids:
            self.copy = copied(comm, session.defs.tree, disk, session.options, target, lost)
        if lost and self.copy is None and disk.at_stake:
            self.later = {uid: (first, live) for uid, (first, live) in lost.items() if first < live}

    def fill(self) -> None:
        if self.stays:
            return
        session, target = self.session, self.layout
        comm, defs, disk, placed = session.comm, session.defs, session.disk, session.disk.layout
        now = {uid: cut for uid, cut in self.lost.items() if uid not in self.later} if self.later else self.lost
        whole = session.posted.written_whole
        write_fill = partial(fill, comm, defs.tree, placed, target, lost=now, written_whole=whole)
        if self.copy is not None:
            session.counts["moves"] += 1
            complete_copy(comm, disk, self.copy, target, write_fill)
        else:
            # What ranks posted, only they know; and data that somebody else writes may leave anything open.
            known = comm.size == 1 and self.asked.write is None
            try:
                self.unfilled = write_fill(disk.driver, posted=self.batches if known else ())
            except BaseException:
                placed.note_unknown_bytes()
                raise
        # From here on data may lie where the new layout has it, whatever becomes of the header.
        disk.use_layout(target)
        defs.note_agreed()
        target.lost_records = self.later
        if self.lost:
            disk.note_filled(self.lost)

    def write(self) -> None:
        self.write_data(self.agreed)
        if self.failures:
            fill_failed(self.session.defs.tree, self.layout, self.session.disk.driver, self.unfilled, self.done.left)

    def describe(self) -> None:
        session, target, failures, later = self.session, self.layout, self.failures, self.later
        comm, defs, disk = session.comm, session.defs, session.disk
        header = target.header if self.lowest is None else self.header(self.lowest)
        before, asked = disk.header, self.asked
        gone = disk.uids is not target.uids and replaces_live(disk, target.uids)
        takes_away = gone or bool(later) or header.numrecs < before.numrecs
        try:
            if failures:
                # what fails is known to all ranks where requests failed as well
                with comm.errors_shared():
                    held = self._write_header(header, takes_away=takes_away)
            else:
                held = self._write_header(header, takes_away=takes_away)
        except BaseException as reason:
            if disk.header is before:
                # else the header was held, or written, before an interruption came
                session.epochs.take_back(disk.header_bytes)
            if failures and isinstance(reason, Exception):
                # what failed first, and stays pending, says more than the header that met the same full disk
                raise comm.on_all(flush_error(failures, disk.path, closing=asked.closing)) from reason
            raise
        if later:
            _at_driver(comm, "flush order", disk.driver, disk.driver.order)
            fill(comm, defs.tree, target, target, disk.driver, later, only_lost=True)
            later.clear()
        _end(session, wrote=held and bool(self.agreed.batches or self.agreed.drained))
        self.held = held

    def _write_header(self, header: Header, *, takes_away: bool) -> bool:
        """Write the header behind the data, unless it is to be held (collective); return whether it is."""
        session, trouble = self.session, self.trouble
        driver, epochs = session.disk.driver, session.epochs
        held = epochs.holding and not (self.asked.carried or trouble)

        def order() -> None:
            # what drivers cannot hold back any more is in the file before
            fall_back(driver, trouble)
            driver.order()

        if not held:
            _at_driver(session.comm, "flush order", driver, order if trouble else driver.order)
            if epochs.holding:
                epochs.holding = not trouble
                epochs.drained()
        write_header(session, header, durable=self.asked.durable, held=held, takes_away=takes_away)
        return held

    def cut(self) -> None:
        disk = self.session.disk
        layout, clean = disk.layout, disk.layout.unwritten
        if self.agreed.records > disk.header.numrecs:
            # A drain wrote records that were given up before they were counted.
            disk.note_longer()
            layout.unwritten = clean._replace(reads_zero=False)
        if disk.may_be_longer and not self.failures and not self.held:
            cut_tail(self.session.comm, disk)
            layout.unwritten = clean


class _Set(_Target):
    """A set of subfiles: its data and headers are in them, and it has a layout and a header that are in no file."""

    encoded = b""

    def fill(self) -> None:
        disk, layout, lost = self.session.disk, self.layout, self.lost_records() if self.agreed.lost else {}
        disk.use_layout(layout)
        # The subfiles fill them.
        layout.lost_records = lost
        self.session.defs.note_agreed()

    def write(self) -> None:
        session, disk, files = self.session, self.session.disk, self.session.file_set
        assert files is not None
        if disk.before_header:
            # A log, and one that is replayed, recognizes by the header which definitions the set has.
            self.encoded = encode(self.layout.header, check=False)
            for call in disk.before_header:
                call(self.encoded)

        def write(*, pieces: int) -> Written:
            self.write_data(self.agreed._replace(runs=pieces, apart=files.holds_back))
            return self.done, self.failures, self.lowest

        durable, carried, closing, _ = self.asked
        try:
            files.flush(session, self.batches, self.agreed, write, durable=durable, carried=carried, closing=closing)
        except SyncError as reason:
            disk.note_sync_error(reason)
            raise

    def describe(self) -> None:
        header = self.layout.header
        if self.lowest is not None:
            header = self.header(self.lowest)
            self.encoded = encode(header, check=False) if self.encoded else b""
        self.session.disk.begins_with(header, self.encoded)
        self.session.defs.flushed(header)


def _before_data(session: Session, target: Layout, agreed: Agreement) -> bool:
    """Bring what drivers hold back to the file, if this flush might overwrite it or what it describes (collective).

    Returns
    -------
    bool
        Whether the new header does more than add to the one in the file.
    """
    comm, disk, layout = session.comm, session.disk, session.disk.layout
    adds = (
        disk.location is not None
        and not agreed.lost
        and not replaces_live(disk, target.uids)
        and header_size(target.header) >= len(disk.header_bytes)
        and (target.added_to(layout) is not None or not layout.needs_move(target, session.defs.tree))
    )
    together = comm.size > 1 and session.transport.choose(agreed) != "independent"
    if not adds or session.epochs.must_wait(together=together or agreed.drained):
        failures, _, _ = share_failures(comm, _carried(session), None)
        if failures:
            raise comm.on_all(flush_error(failures, disk.path, closing=False))
        session.epochs.drained()
    return not adds


def _carried(session: Session) -> list[RequestFailure]:
    """Bring what this rank holds back to the file; what could not be written."""
    holder, found = session.disk.driver.holder, session.epochs.take_unwritten()
    try:
        holder.drain()
    except OSError as error:
        found += holder.failures()
        held = holder.unsynced()
        spans = zip(held.offset.tolist(), held.length.tolist(), strict=True)
        found = found or [Unwritten(offset, nbytes, error) for offset, nbytes in spans] or [Unwritten(0, 0, error)]
        return failures_of_held(found, session.defs.tree, session.disk.layout.maps, session.comm.rank)
    return []


# ---------------------------------------------------------------------------------------------------------- the end


def _end(session: Session, *, wrote: bool) -> None:
    """The flush is complete (collective); `wrote`: some rank may hold data of it."""
    driver = session.disk.driver
    trouble = _at_driver(session.comm, "flush end", driver, driver.end_flush)
    if session.epochs.holding:
        session.epochs.end(wrote=wrote, together=session.transport.last != "independent")
        if trouble:
            session.epochs.stop_holding(trouble)


def _at_driver(comm: Comm, operation: str, driver: Driver, call: Callable[[], None]) -> str:
    """Call a verb that does nothing but for drivers that hold bytes back: only there it can fail, on all ranks then.

    Returns
    -------
    str
        `Holder.trouble` of the lowest rank that has any, with the ranks: it can hold nothing back any more; "" if none
        has.
    """
    if not driver.capabilities.holds_back:
        call()
        return ""
    error: BaseException | None = None
    try:
        call()
    except Exception as reason:
        error = reason
    return trouble_of(comm, operation, driver.holder.trouble(), error=error)


def _tell_logs(session: Session, *, unsafe: bool, closing: bool) -> None:
    """A log may forget what is in the file (collective)."""
    queue = session.posted.queue
    if not unsafe:
        # also where nothing was written: posts may have been cancelled, which a log remembers
        queue.after_flush()
    if closing and queue.logged:
        # No rank removes its log before all have said that theirs are in the file: they are replayed together or not.
        session.comm.agree("close logs")


def _take_time(session: Session, *clock: float) -> dict[str, float]:
    """Return the seconds of each phase; they are added to the counts.

    clock : when the first phase began, and each of them ended.
    """
    seconds: dict[str, float] = {}
    for phase, begin, end in zip(_PHASES, clock, clock[1:], strict=False):
        seconds[phase] = end - begin
        session.counts[f"seconds_{phase}"] += end - begin
    return seconds


def _report(
    session: Session, seconds: dict[str, float], done: Executed, failures: list[RequestFailure], *, closing: bool
) -> None:
    """Note what was done, and raise the error of what failed, on all ranks."""
    session.counts["seconds_flush"] += sum(seconds.values())
    transport = session.transport.last if done.requests or done.rounds else ""
    posted = session.posted
    requests = posted.next_number - posted.first_number
    made = FlushReport(
        session.disk.path, requests, done.requests, done.extents, done.nbytes, done.rounds, transport, seconds
    )
    posted.note_flush(made)
    if "logging" in sys.modules:
        # asked here, too: a call would take time in every small flush
        tell(
            FLUSH, DEBUG, "%s: flush of %d requests, %d runs in %d pieces, %d bytes, %s, %.6f s",
            made.path, requests, made.runs, made.extents, made.nbytes, transport or "no write", sum(seconds.values()),
        )  # fmt: skip
    for watcher in watchers:
        watcher(made)
    if failures:
        raise session.comm.on_all(flush_error(failures, session.disk.path, closing=closing))
