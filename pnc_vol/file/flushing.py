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
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

from pnc_vol.errors import RequestFailure
from pnc_vol.file.filling import fill
from pnc_vol.file.header_update import check_durable, cut_tail, end_flush, order_writes, with_records, write_header
from pnc_vol.file.reads.fetch import complete_posted
from pnc_vol.file.relocation import Copy, complete_copy, copied, replaces_live
from pnc_vol.file.report import FlushReport, watchers
from pnc_vol.file.session import Session
from pnc_vol.flush.agree import Agreement, agree, agree_lost_records, agree_widths, digest
from pnc_vol.flush.differences import described
from pnc_vol.flush.execute import Executed, rounds_of
from pnc_vol.flush.failures import failures_of, flush_error, share_failures
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


def flush(session: Session, *, durable: bool, closing: bool = False, what: str = "flush") -> None:
    """Write all that was posted on all ranks, and the definitions (collective).

    what : str, what the ranks call this, which is compared.

    Raises
    ------
    FlushError
        Requests failed; the same on all ranks.
    Exception
        Definitions differ, a rank failed before the flush, the header or the layout could not be written.
    """
    phases = _Phases(session.counts)
    comm, defs, disk, posted = session.comm, session.defs, session.disk, session.posted
    unsafe = disk.sync_error is not None and session.always_durable
    if closing and unsafe:
        # The last chance: what was posted goes to the file, and the close says that it may not be on the disk.
        durable = False
    if durable:
        check_durable(disk)
    batches, flat, agreed = _agreed(session, ("close" if closing else what) + (" durable" if durable else ""))
    session.counts["flushes"] += 1
    phases.end("agree")
    if not durable and _nothing_to_do(session, flat, agreed):
        end_flush(comm, disk.driver)
        return
    flat = _accept(session, flat, agreed)
    target = defs.next_layout(flat, disk, closing=closing)
    later = _use_layout(session, target, agreed, phases)
    phases.end("fill")
    done, failures, lowest = _write(session, batches, agreed)
    phases.end("data")
    if failures and replaces_live(disk, target.uids) and (disk.location is None or not disk.location.unseen):
        # The old header stays: the new one lacks data that the old one knows.
        raise comm.on_all(flush_error(failures, disk.path, closing=closing, held=True))
    header = target.header
    if lowest is not None:
        header = with_records(defs, header, min(header.numrecs, max(defs.tree.records, lowest)))
    try:
        # what fails is known to all ranks where requests failed as well
        with comm.errors_shared() if failures else nullcontext():
            write_header(comm, defs, disk, header, session.counts, durable=durable)
    except Exception as reason:
        if failures:
            # what failed first, and stays pending, says more than the header that met the same full disk
            raise comm.on_all(flush_error(failures, disk.path, closing=closing)) from reason
        raise
    if later:
        order_writes(comm, disk.driver)
        fill(comm, defs.tree, target, target, disk.driver, later, only_lost=True)
        later.clear()
    end_flush(comm, disk.driver)
    if not unsafe:
        posted.queue.after_flush()
    if closing and posted.queue.logged:
        # No rank removes its log before all have said that theirs are in the file: they are replayed together or not.
        comm.exchange("close logs")
    _cut(session, agreed, failed=bool(failures))
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
        mine = agree(comm, operation, mine, digest(flat.header), lambda: described(defs.tree, flat))
    return batches, flat, mine


def _nothing_to_do(session: Session, flat: Flat, agreed: Agreement) -> bool:
    """Whether the file is as all ranks want it already; the same on all ranks."""
    if agreed.changed or agreed.widened or agreed.drained or agreed.lost or agreed.batches:
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


def _write(
    session: Session, batches: list[Batch], agreed: Agreement
) -> tuple[Executed, list[RequestFailure], int | None]:
    """Write what is posted (collective).

    Returns
    -------
    done : Executed, on this rank.
    failures : list of RequestFailure, of all ranks.
    lowest : int or None, the first record that a failed request should have written.
    """
    comm, disk, ordered = session.comm, session.disk, session.options.ordered
    layout = disk.layout
    done = Executed()
    for turn in range(comm.size) if ordered else [comm.rank]:
        if turn == comm.rank:
            maps = layout.maps if batches else {}
            done = session.transport.execute(disk.driver, batches, maps, affine=layout.affine, agreed=agreed)
            session.posted.note_written(done)
        if ordered:
            comm.exchange("flush turn")
    failures, lowest = failures_of(done, session.defs.tree, layout, comm.rank) if done.failed else ([], None)
    if comm.size > 1:
        failures, lowest = share_failures(comm, failures, lowest)
    return done, failures, lowest


def _cut(session: Session, agreed: Agreement, *, failed: bool) -> None:
    """Cut the file to the length of its data if there may be more (collective)."""
    disk = session.disk
    layout, clean = disk.layout, disk.layout.unwritten_reads_zero
    if agreed.records > disk.header.numrecs:
        # A drain wrote records that were given up before they were counted.
        disk.note_longer()
        layout.unwritten_reads_zero = False
    if disk.may_be_longer and not failed:
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
