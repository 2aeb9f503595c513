"""A flush: agreement, relocation, fill, data, header, record count, in this order.

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
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

from pnc_vol.drivers.holding import Unwritten
from pnc_vol.errors import RequestFailure
from pnc_vol.file.epochs import fall_back
from pnc_vol.file.filling import fill
from pnc_vol.file.header_update import check_durable, cut_tail, end_flush, order_writes, with_records, write_header
from pnc_vol.file.held_ranges import NO_SPANS, spans_of
from pnc_vol.file.reads.fetch import complete_posted
from pnc_vol.file.relocation import Copy, complete_copy, copied, replaces_live
from pnc_vol.file.report import FlushReport, watchers
from pnc_vol.file.session import Session
from pnc_vol.flush.agree import Agreement, agree, agree_lost_records, agree_widths, digest
from pnc_vol.flush.differences import described
from pnc_vol.flush.execute import Executed, rounds_of
from pnc_vol.flush.failures import HELD, failures_of, failures_of_held, flush_error, share_failures
from pnc_vol.flush.transport import transport_code
from pnc_vol.format.encode import header_size
from pnc_vol.layout.base import Layout, LostRecords
from pnc_vol.mapping.flatten import Flat
from pnc_vol.queue.batches import Batch

__all__ = ["flush"]


class _Phases:
    """The seconds of each phase of a flush."""

    def __init__(self, counts: dict[str, float]) -> None:
        self.counts, self.clock = counts, time.perf_counter()
        self.seconds: dict[str, float] = {}

    def end(self, phase: str) -> None:
        """A phase ends here, and the next one begins."""
        now = time.perf_counter()
        self.seconds[phase] = now - self.clock
        self.counts[f"seconds_{phase}"] += now - self.clock
        self.clock = now


def flush(
    session: Session, *, durable: bool, carried: bool = False, closing: bool = False, what: str = "flush"
) -> None:
    """Write all that was posted on all ranks, and the definitions (collective).

    carried : bool, what drivers hold back is in the file at the end, too.
    what : str, what the ranks call this, which is compared.

    Raises
    ------
    FlushError
        Requests failed; the same on all ranks.
    Exception
        Definitions differ, a rank failed before the flush, the header or the layout could not be written.
    """
    phases = _Phases(session.counts)
    comm, defs, disk, posted, epochs = session.comm, session.defs, session.disk, session.posted, session.epochs
    unsafe = disk.sync_error is not None and session.always_durable
    if closing and unsafe:
        # The last chance: what was posted goes to the file, and the close says that it may not be on the disk.
        durable = False
    if durable:
        check_durable(disk)
    carried = carried or durable or (closing and not epochs.left_at_close())
    batches, flat, agreed = _agreed(session, ("close" if closing else what) + (" durable" if durable else ""))
    session.counts["flushes"] += 1
    phases.end("agree")
    if not durable and (epochs.settled or not carried) and _nothing_to_do(session, flat, agreed):
        _end(session, wrote=False)
        return
    flat = _accept(session, flat, agreed)
    target = defs.next_layout(flat, disk, closing=closing)
    if epochs.holding:
        carried = _before_data(session, target, agreed) or carried
    later = _use_layout(session, target, agreed, phases)
    phases.end("fill")
    done, failures, lowest, troubles = _write(session, batches, agreed, carried=carried)
    phases.end("data")
    if carried and any(failure.request == HELD for failure in failures):
        # The header stays held with the data that it describes.
        raise comm.on_all(flush_error(failures, disk.path, closing=closing))
    if failures and replaces_live(disk, target.uids) and (disk.location is None or not disk.location.unseen):
        # The old header stays: the new one lacks data that the old one knows.
        raise comm.on_all(flush_error(failures, disk.path, closing=closing, held=True))
    header = target.header
    if lowest is not None:
        header = with_records(defs, header, min(header.numrecs, max(defs.tree.records, lowest)))
    try:
        # what fails is known to all ranks where requests failed as well
        with comm.errors_shared() if failures else nullcontext():
            held = _order(session, troubles, carried=carried)
            write_header(comm, defs, disk, header, session.counts, epochs, durable=durable, held=held)
    except BaseException as reason:
        disk.driver.unorder()
        if failures and isinstance(reason, Exception):
            # what failed first, and stays pending, says more than the header that met the same full disk
            raise comm.on_all(flush_error(failures, disk.path, closing=closing)) from reason
        raise
    if later:
        order_writes(comm, disk.driver)
        fill(comm, defs.tree, target, target, disk.driver, later, only_lost=True)
        later.clear()
    _end(session, wrote=held and bool(agreed.batches or agreed.drained))
    if not unsafe:
        posted.queue.after_flush()
    if closing and posted.queue.logged:
        # No rank removes its log before all have said that theirs are in the file: they are replayed together or not.
        comm.exchange("close logs")
    _cut(session, agreed, failed=bool(failures), held=held)
    phases.end("header")
    _report(session, phases.seconds, done)
    if failures:
        raise comm.on_all(flush_error(failures, disk.path, closing=closing))


def _agreed(session: Session, operation: str) -> tuple[list[Batch], Flat, Agreement]:
    """What is to be written, the definitions, and what all ranks are about to do (collective)."""
    comm, defs, layout, queue = session.comm, session.defs, session.disk.layout, session.posted.queue
    batches = queue.about_to_flush()
    if session.posted.reads:
        complete_posted(session)
    changed = defs.dirty
    if changed:
        batches = session.posted.without_deleted(batches, defs.tree.datasets)
    flat = defs.flatten(layout, common=comm.size > 1)
    mine = Agreement(
        drained=layout.drained,
        widened=bool(defs.widened),
        changed=changed,
        unknown_bytes=not layout.unwritten_reads_zero,
        lost=bool(layout.lost_records),
        records=layout.records,
        batches=len(batches),
    )
    if comm.size > 1:
        runs, nbytes = queue.weight()
        mine = replace(
            mine,
            runs=runs,
            nbytes=nbytes,
            rounds=rounds_of(batches),
            transport=transport_code(session.options),
            aggregators=session.options.aggrs_per_node,
        )
    epochs, reports = session.epochs, [b""]
    holds = session.disk.driver.capabilities.holds_back
    if holds:
        reports = [epochs.report(spans_of(batches, layout.maps) if epochs.holding and comm.size > 1 else NO_SPANS)]
    if comm.size > 1:
        definitions = digest(flat.header)
        mine, reports = agree(comm, operation, mine, definitions, lambda: described(defs.tree, flat), reports[0])
    if holds:
        epochs.heard(reports)
    return batches, flat, mine


def _nothing_to_do(session: Session, flat: Flat, agreed: Agreement) -> bool:
    """Whether the file is as all ranks want it already; the same on all ranks."""
    if agreed.changed or agreed.widened or agreed.drained or agreed.lost or agreed.batches or session.epochs.failed:
        return False
    disk = session.disk
    complete = flat.header.numrecs == disk.header.numrecs and not disk.may_be_longer
    return complete and (disk.at_stake or disk.keep_unpublished)


def _accept(session: Session, flat: Flat, agreed: Agreement) -> Flat:
    """Take over what other ranks know of definitions and of the file; the definitions then (collective)."""
    comm, defs, layout = session.comm, session.defs, session.disk.layout
    if agreed.widened and comm.size > 1:
        agree_widths(comm, defs.tree, defs.widened)
    if agreed.widened or agreed.drained:
        layout.drained |= agreed.drained
        if agreed.drained:
            defs.note_drain()
        flat = defs.flatten(layout, common=False)
    layout.records = agreed.records
    layout.unwritten_reads_zero &= not agreed.unknown_bytes
    return flat


def _use_layout(session: Session, target: Layout, agreed: Agreement, phases: _Phases) -> LostRecords:
    """Bring the next layout into force: move data, fill what nobody wrote (collective).

    Returns
    -------
    LostRecords
        The datasets whose lost records the header in the file may still count: they are filled when it does not.
    """
    comm, defs, disk = session.comm, session.defs, session.disk
    placed = disk.layout
    if target is placed and not agreed.changed and not agreed.lost:
        phases.end("layout")
        return {}
    lost = agree_lost_records(comm, target.uids, placed.lost_records) if agreed.lost else {}
    if target.header.vars != placed.header.vars:
        # No rank goes on with another layout than the others.
        comm.exchange("flush layout")
    if not target.same_places(placed):
        # Without variables the file ends with its header.
        shorter = not target.header.vars and header_size(target.header) < len(disk.header_bytes)
        if shorter or not placed.maps.keys() <= set(target.uids):
            disk.note_longer()
    copy: Copy | None = None
    if target is not placed or lost:
        copy = copied(comm, defs.tree, disk, session.options, target, lost)
    phases.end("layout")
    later: LostRecords = {}
    if lost and copy is None and disk.at_stake:
        later = {uid: (first, live) for uid, (first, live) in lost.items() if first < live}
    now = {uid: cut for uid, cut in lost.items() if uid not in later}
    write_fill = partial(fill, comm, defs.tree, placed, target, lost=now)
    if copy is not None:
        session.counts["moves"] += 1
        complete_copy(comm, disk, copy, write_fill)
    else:
        try:
            write_fill(disk.driver)
        except BaseException:
            placed.note_unknown_bytes()
            raise
    # From here on data may lie where the new layout has it, whatever becomes of the header.
    disk.use_layout(target)
    defs.note_agreed()
    target.lost_records = later
    disk.note_filled(lost)
    return later


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
        and (layout.same_places(target) or not layout.needs_move(target, session.defs.tree))
    )
    together = comm.size > 1 and session.transport.choose(agreed) != "independent"
    if not adds or session.epochs.must_wait(together=together or agreed.drained):
        failures, _, _ = share_failures(comm, _carried(session), None)
        if failures:
            raise comm.on_all(flush_error(failures, disk.path, closing=False))
        session.epochs.drained(present=False)
    return not adds


def _carried(session: Session) -> list[RequestFailure]:
    """Bring what this rank holds back to the file; what could not be written."""
    driver, found = session.disk.driver, session.epochs.take_unwritten()
    try:
        driver.drain()
    except OSError as error:
        found += driver.failures()
        held = driver.unsynced()
        spans = zip(held.offset.tolist(), held.length.tolist(), strict=True)
        found = found or [Unwritten(offset, nbytes, error) for offset, nbytes in spans] or [Unwritten(0, 0, error)]
        return failures_of_held(found, session.defs.tree, session.disk.layout.maps, session.comm.rank)
    return []


def _order(session: Session, troubles: list[str], *, carried: bool) -> bool:
    """Let the data come before the header (collective); whether the header is to be held."""
    comm, disk, epochs = session.comm, session.disk, session.epochs
    order_writes(comm, disk.driver, partial(fall_back, comm, disk.driver, troubles) if any(troubles) else None)
    if not epochs.holding:
        return False
    epochs.holding = not any(troubles)
    if carried or not epochs.holding:
        epochs.drained(present=True)
        return False
    return True


def _write(
    session: Session, batches: list[Batch], agreed: Agreement, *, carried: bool
) -> tuple[Executed, list[RequestFailure], int | None, list[str]]:
    """Write what is posted (collective).

    carried : bool, what drivers hold back is to be in the file, too.

    Returns
    -------
    done : Executed, on this rank.
    failures : list of RequestFailure, of all ranks.
    lowest : int or None, the first record that a failed request should have written.
    troubles : list of str, why a driver can hold nothing back any more, of all ranks.
    """
    comm, disk, ordered = session.comm, session.disk, session.options.ordered
    layout = disk.layout
    done = Executed()
    for turn in range(comm.size) if ordered else [comm.rank]:
        if turn == comm.rank:
            maps = layout.maps if batches else {}
            done = session.transport.execute(disk.driver, batches, maps, affine=layout.affine, agreed=agreed)
            session.posted.note_written(done)
            if ordered and session.epochs.holding:
                # What the next rank writes must come to the file later.
                disk.driver.drain()
        if ordered:
            comm.exchange("flush turn")
    failures, lowest = failures_of(done, session.defs.tree, layout, comm.rank) if done.failed else ([], None)
    if session.epochs.holding:
        if carried:
            failures += _carried(session)
        elif session.epochs.failed:
            failures += failures_of_held(session.epochs.take_unwritten(), session.defs.tree, layout.maps, comm.rank)
    troubles = [disk.driver.trouble() if session.epochs.holding else ""]
    if comm.size > 1:
        failures, lowest, troubles = share_failures(comm, failures, lowest, troubles[0])
    return done, failures, lowest, troubles


def _end(session: Session, *, wrote: bool) -> None:
    """The flush is complete (collective); `wrote`: some rank may hold data of it."""
    troubles = end_flush(session.comm, session.disk.driver)
    if session.epochs.holding:
        session.epochs.end(wrote=wrote, together=session.transport.last != "independent")
        if any(troubles):
            session.epochs.stop_holding(troubles)


def _cut(session: Session, agreed: Agreement, *, failed: bool, held: bool) -> None:
    """Cut the file to the length of its data if there may be more (collective)."""
    disk = session.disk
    layout, clean = disk.layout, disk.layout.unwritten_reads_zero
    if agreed.records > disk.header.numrecs:
        # A drain wrote records that were given up before they were counted.
        disk.note_longer()
        layout.unwritten_reads_zero = False
    if disk.may_be_longer and not failed and not held:
        cut_tail(session.comm, disk)
        layout.unwritten_reads_zero = clean


def _report(session: Session, seconds: dict[str, float], done: Executed) -> None:
    """Note what was done."""
    session.counts["seconds_flush"] += sum(seconds.values())
    transport = session.transport.last if done.requests or done.rounds else ""
    posted = session.posted
    requests = posted.next_number - posted.first_number
    told = FlushReport(
        session.disk.path, requests, done.requests, done.extents, done.nbytes, done.rounds, transport, seconds
    )
    posted.note_flush(told._asdict())
    for watcher in watchers:
        watcher(told)
