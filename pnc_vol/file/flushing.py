"""A flush has these steps, in this order: agreement, relocation, fill, data, header, record count.

Knows: the session's parts. Does not know: users' objects.

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

States
------
Of the file, from one flush to the next. A kill, or an error, at any moment leaves what the last column says.

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
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

from pnc_vol.errors import RequestFailure, SyncError
from pnc_vol.file.epochs import fall_back
from pnc_vol.file.filling import LeftToPosts, fill, fill_failed
from pnc_vol.file.flush_data import before_data, check_failures, write_data
from pnc_vol.file.header_update import check_durable, cut_tail, end_flush, order_writes, write_header
from pnc_vol.file.relocation import Copy, complete_copy, copied, replaces_live
from pnc_vol.file.report import FlushReport, watchers
from pnc_vol.file.session import Session, WriteData, Written
from pnc_vol.flush.agree import NO_READS, Agreement, agree, agree_lost_records, agree_widths, digest, transport_code
from pnc_vol.flush.execute import Executed, rounds_of
from pnc_vol.format.encode import encode, header_size
from pnc_vol.format.model import Header
from pnc_vol.late import late
from pnc_vol.layout.base import Layout, LostRecords
from pnc_vol.mapping.flatten import Flat
from pnc_vol.queue.batches import Batch
from pnc_vol.warn import DEBUG, FLUSH, tell

if TYPE_CHECKING:
    from pnc_vol.file import held_ranges
    from pnc_vol.file.reads import completing
    from pnc_vol.flush import differences
    from pnc_vol.flush import failures as failing
else:
    # for posted reads, for several ranks, for what fails
    completing, differences = late("pnc_vol.file.reads.completing"), late("pnc_vol.flush.differences")
    failing = late("pnc_vol.flush.failures")
    # for drivers that hold bytes back
    held_ranges = late("pnc_vol.file.held_ranges")

__all__ = ["flush"]


_ALONE = nullcontext()


class _Phases:
    """The seconds of each phase of a flush."""

    def __init__(self, counts: dict[str, float]) -> None:
        self.counts, self.clock = counts, time.perf_counter()
        self.seconds: dict[str, float] = {}

    def end(self, phase: str) -> None:
        """A phase ends here, and the next one begins."""
        now = time.perf_counter()
        spent = self.seconds[phase] = now - self.clock
        self.counts[f"seconds_{phase}"] += spent
        self.clock = now


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
    phases = _Phases(session.counts)
    comm, defs, disk, epochs = session.comm, session.defs, session.disk, session.epochs
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
    phases.end("agree")
    settled = epochs.settled and (session.file_set is None or session.file_set.settled)
    if not durable and (settled or not carried) and _nothing_to_do(session, flat, agreed):
        _end_unwritten(session, unsafe=unsafe, closing=closing)
        return
    flat = _accept(session, flat, agreed)
    target = defs.next_layout(flat, disk, closing=closing)
    if session.file_set is not None:
        _flush_set(session, target, batches, agreed, phases, durable=durable, carried=carried, closing=closing)
        return
    if epochs.holding:
        carried = before_data(session, target, agreed) or carried
    # What ranks posted, only they know; and data that somebody else writes may leave anything open.
    later, unfilled = _use_layout(session, target, agreed, phases, batches if comm.size == 1 and write is None else ())
    phases.end("fill")
    done, failures, lowest, trouble = write_data(session, [batches], agreed, carried=carried, write=write)
    phases.end("data")
    if failures:
        check_failures(session, target, failures, carried=carried, closing=closing)
        fill_failed(defs.tree, target, disk.driver, unfilled, done.left)
    header = target.header if lowest is None else _counting(session, target.header, lowest)
    gone = disk.uids is not target.uids and replaces_live(disk, target.uids)
    before, takes_away = disk.header, gone or bool(later) or header.numrecs < disk.header.numrecs
    try:
        # what fails is known to all ranks where requests failed as well
        with comm.errors_shared() if failures else _ALONE:
            held = _order(session, trouble, carried=carried)
            write_header(
                comm, defs, disk, header, session.counts, epochs, durable=durable, held=held, takes_away=takes_away
            )
    except BaseException as reason:
        if disk.header is before:
            # else the header was written before an interruption came: what holds it back must not forget it
            disk.driver.unorder()
        if failures and isinstance(reason, Exception):
            # what failed first, and stays pending, says more than the header that met the same full disk
            raise comm.on_all(failing.flush_error(failures, disk.path, closing=closing)) from reason
        raise
    if later:
        order_writes(comm, disk.driver)
        fill(comm, defs.tree, target, target, disk.driver, later, only_lost=True)
        later.clear()
    _end(session, wrote=held and bool(agreed.batches or agreed.drained))
    if not unsafe:
        session.posted.queue.after_flush()
    if closing:
        _agree_on_logs(session)
    _cut(session, agreed, failed=bool(failures), held=held)
    _report(session, phases, done, failures, closing=closing)


def _flush_set(
    session: Session,
    target: Layout,
    batches: list[Batch],
    agreed: Agreement,
    phases: _Phases,
    *,
    durable: bool,
    carried: bool,
    closing: bool,
) -> None:
    """Do what follows the agreement of a flush where data and headers are in a set of files (collective)."""
    comm, disk = session.comm, session.disk
    file_set = session.file_set
    assert file_set is not None
    lost = agree_lost_records(comm, target.uids, disk.layout.lost_records) if agreed.lost else {}
    disk.use_layout(target)
    target.lost_records = lost
    session.defs.note_agreed()
    done, lowest = Executed(), None
    failures: list[RequestFailure] = []

    def write(turns: Sequence[list[Batch]] = (), *, pieces: int) -> Written:
        nonlocal done, failures, lowest
        weighed = agreed._replace(runs=pieces, apart=file_set.holds_back)
        done, failures, lowest, _ = write_data(session, turns or [batches], weighed, carried=False)
        if failures:
            check_failures(session, target, failures, carried=False, closing=closing)
        return done, failures, lowest

    encoded = b""
    if disk.before_header:
        # A log, and one that is replayed, recognizes by the header which definitions the set has.
        encoded = encode(target.header, check=False)
        for tell in disk.before_header:
            tell(encoded)
    try:
        file_set.flush(session, batches, agreed, write, durable=durable, carried=carried, closing=closing)
    except SyncError as reason:
        disk.note_sync_error(reason)
        raise
    phases.end("data")
    if lowest is None:
        header = target.header
    else:
        header = _counting(session, target.header, lowest)
        encoded = encode(header, check=False) if encoded else b""
    disk.begins_with(header, encoded)
    session.defs.flushed(header)
    session.posted.queue.after_flush()
    if closing:
        _agree_on_logs(session)
    _report(session, phases, done, failures, closing=closing)


def _counting(session: Session, header: Header, lowest: int) -> Header:
    """Return a header that counts no record from `lowest` on, which a failed request should have written."""
    return session.defs.with_records(header, min(header.numrecs, max(session.defs.tree.records, lowest)))


def _agreed(session: Session, operation: str, *, writes: bool) -> tuple[list[Batch], Flat, Agreement]:
    """Return what is to be written, the definitions, and what all ranks are about to do (collective).

    writes : bool, somebody else writes data in this flush, too.
    """
    comm, defs, layout, queue = session.comm, session.defs, session.disk.layout, session.posted.queue
    batches = queue.about_to_flush()
    changed = defs.dirty
    holds = session.disk.driver.capabilities.holds_back
    if changed and session.posted.reads:
        # Some may be of datasets that were deleted since.
        completing.complete_posted(session)
    reads = completing.weight_of_reads(session) if session.posted.reads else NO_READS
    if changed:
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
        describe = partial(differences.described, defs.tree, flat)
        agreement, reported, reads = agree(comm, operation, agreement, definitions, describe, reported, reads)
    if holds or reported:
        error: BaseException | None = None
        try:
            session.epochs.meet(reported, partial(held_ranges.spans_of, batches, layout.maps, new=True))
        except OSError as reason:
            if not writes:
                raise
            error = reason
        if writes and reported:
            # what the ranks of one subfile call next are calls of all ranks
            comm.agree("flush held header", error=error)
        agreement = agreement._replace(apart=session.epochs.apart)
    if reads.posts:
        completing.complete_together(session, reads)
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


def _use_layout(
    session: Session, target: Layout, agreed: Agreement, phases: _Phases, batches: Sequence[Batch]
) -> tuple[LostRecords, LeftToPosts]:
    """Bring the next layout into force: move data, fill what nobody wrote and `batches` do not write (collective).

    Returns
    -------
    LostRecords
        The datasets whose lost records the header in the file may still count: they are filled when it does not.
    LeftToPosts
    """
    comm, defs, disk = session.comm, session.defs, session.disk
    placed = disk.layout
    if target is placed and not agreed.changed and not agreed.lost:
        phases.end("layout")
        return {}, {}
    lost = agree_lost_records(comm, target.uids, placed.lost_records) if agreed.lost else {}
    if comm.size > 1 and target.header.vars != placed.header.vars:
        # No rank goes on with another layout than the others.
        comm.agree("flush layout")
    header, same_places = target.header, target.same_places(placed)
    if not (header.numrecs or target.data_end(header)) and header_size(header) < len(disk.header_bytes):
        # Without data the file ends with its header.
        disk.note_longer()
    elif not same_places and target.added_to(placed) is None and placed.has_more_than(target.uids):
        disk.note_longer()
    copy: Copy | None = None
    stays = same_places and disk.uids is target.uids
    if lost or not stays:
        copy = copied(comm, defs.tree, disk, session.options, target, lost)
    phases.end("layout")
    now, later = lost, {}
    if lost and copy is None and disk.at_stake:
        later = {uid: (first, live) for uid, (first, live) in lost.items() if first < live}
        now = {uid: cut for uid, cut in lost.items() if uid not in later}
    whole = session.posted.written_whole
    write_fill = partial(fill, comm, defs.tree, placed, target, lost=now, written_whole=whole)
    unfilled: LeftToPosts = {}
    if copy is not None:
        session.counts["moves"] += 1
        complete_copy(comm, disk, copy, target, write_fill)
    else:
        try:
            unfilled = write_fill(disk.driver, posted=batches)
        except BaseException:
            placed.note_unknown_bytes()
            raise
    # From here on data may lie where the new layout has it, whatever becomes of the header.
    disk.use_layout(target)
    defs.note_agreed()
    target.lost_records = later
    disk.note_filled(lost)
    return later, unfilled


def _order(session: Session, trouble: str, *, carried: bool) -> bool:
    """Let the data come before the header (collective); whether the header is to be held."""
    comm, disk, epochs = session.comm, session.disk, session.epochs
    order_writes(comm, disk.driver, partial(fall_back, disk.driver, trouble) if trouble else None)
    if not epochs.holding:
        return False
    epochs.holding = not trouble
    if carried or not epochs.holding:
        epochs.drained(present=True)
        return False
    return True


def _end(session: Session, *, wrote: bool) -> None:
    """The flush is complete (collective); `wrote`: some rank may hold data of it."""
    trouble = end_flush(session.comm, session.disk.driver)
    if session.epochs.holding:
        session.epochs.end(wrote=wrote, together=session.transport.last != "independent")
        if trouble:
            session.epochs.stop_holding(trouble)


def _end_unwritten(session: Session, *, unsafe: bool, closing: bool) -> None:
    """The file was as it is to be (collective)."""
    _end(session, wrote=False)
    # what a flush that was interrupted at its end has not done
    if session.posted.writes:
        session.posted.note_written(Executed())
    if not unsafe:
        # posts may have been cancelled, which a log remembers
        session.posted.queue.after_flush()
    if closing:
        _agree_on_logs(session)


def _agree_on_logs(session: Session) -> None:
    """No rank removes its log before all have said that theirs are in the file: they are replayed together or not."""
    if session.posted.queue.logged:
        session.comm.agree("close logs")


def _cut(session: Session, agreed: Agreement, *, failed: bool, held: bool) -> None:
    """Cut the file to the length of its data if there may be more (collective)."""
    disk = session.disk
    layout, clean = disk.layout, disk.layout.unwritten
    if agreed.records > disk.header.numrecs:
        # A drain wrote records that were given up before they were counted.
        disk.note_longer()
        layout.unwritten = clean._replace(reads_zero=False)
    if disk.may_be_longer and not failed and not held:
        cut_tail(session.comm, disk)
        layout.unwritten = clean


def _report(
    session: Session, phases: _Phases, done: Executed, failures: list[RequestFailure], *, closing: bool
) -> None:
    """Note what was done, and raise the error of what failed, on all ranks."""
    phases.end("header")
    seconds = phases.seconds
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
        raise session.comm.on_all(failing.flush_error(failures, session.disk.path, closing=closing))
