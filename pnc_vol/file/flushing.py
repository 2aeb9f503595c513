"""A flush: agreement, relocation, fill, data, header, record count, in this order.

Knows: the session's parts. Does not know: users' objects.

Rules
-----
1. Every step that can fail ends with an exchange, so that an error on one rank is the same error on every rank. All of
   it stands in `Comm.errors_shared`: what fails between two exchanges on one rank is raised on all at the next one.
   What has to be taken back then (`drop_copy`) is taken back when all ranks know of the failure.
2. The header is written after the data that it describes; the record count never covers a record that failed.
3. A layout that moves data, or would write over data that the header in the file knows, is made in a temporary copy of
   the file (see `moved`); with the new header in it the copy takes the file's name. Until then the old file is whole.
4. If requests fail, the others are done, the header is written, the failed ones stay, and `FlushError` lists them. Only
   if the new header drops a variable of the old one it is not written: what failed may be what should replace it.
"""

from __future__ import annotations

import time

import numpy as np

from pnc_vol.errors import FlushError, PncVolError, RequestFailure
from pnc_vol.file.changed_attributes import with_changed_attributes
from pnc_vol.file.drain import settle, writer
from pnc_vol.file.filling import fill
from pnc_vol.file.gc_pause import without_collector
from pnc_vol.file.header_update import check_durable, cut_tail, end_flush, order_writes, with_records, write_header
from pnc_vol.file.reads.fetch import complete_posted
from pnc_vol.file.relocation import drop_copy, moved, replaces_live, use_copy
from pnc_vol.file.report import FlushReport, watchers
from pnc_vol.file.session import Session
from pnc_vol.flush.agree import Agreement, agree, agree_lost_records, agree_widths, digest, share_failures
from pnc_vol.flush.differences import described
from pnc_vol.flush.execute import Carried, carry, rounds_of
from pnc_vol.flush.transport import transport_code
from pnc_vol.format.encode import header_size
from pnc_vol.format.limits import check_limits
from pnc_vol.format.model import Header
from pnc_vol.layout.base import Layout, LostRecords
from pnc_vol.mapping.flatten import Flat, numrecs_of, to_header

__all__ = ["flush", "laid_out"]

_NO_RECORD = 1 << 62
_LEAST_RESERVE = 4096


class _Phases:
    """The seconds of each phase of a flush, and what it wrote."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._before = self._written()
        self._clock = time.perf_counter()
        self.seconds: dict[str, float] = {}

    def _written(self) -> tuple[int, int, int, int]:
        counts = self._session.counts
        runs, extents, nbytes = (int(counts[f"{what}_written"]) for what in ("requests", "extents", "bytes"))
        return runs, extents, nbytes, self._session.transport.rounds

    def end(self, phase: str) -> None:
        """A phase ends here, and the next one begins."""
        now = time.perf_counter()
        self.seconds[phase] = now - self._clock
        self._session.counts[f"seconds_{phase}"] += now - self._clock
        self._clock = now

    def report(self) -> None:
        """Note what was done."""
        session = self._session
        runs, extents, nbytes, rounds = (n - old for n, old in zip(self._written(), self._before, strict=True))
        transport = session.transport.last if runs or rounds else ""
        requests = session.posted.count_flushed()
        done = FlushReport(session.disk.path, requests, runs, extents, nbytes, rounds, transport, self.seconds)
        session.note_flush(done._asdict())
        for watcher in watchers:
            watcher(done)


@without_collector
def flush(session: Session, *, durable: bool, closing: bool = False, what: str = "flush") -> None:
    """Carry out all that was posted on all ranks (collective).

    what : str, what the ranks call this, which is compared.

    Raises
    ------
    FlushError
        Requests failed; the same on all ranks.
    Exception
        Definitions differ, a rank failed before the flush, the header or the layout could not be written.
    """
    phases = _Phases(session)
    comm = session.comm
    unsafe = session.disk.sync_error is not None and session.always_durable
    if closing and unsafe:
        # The last chance: what was posted goes to the file, and the close says that it may not be on the disk.
        durable = False
    agreed, flat = _begin(session, ("close" if closing else what) + (" durable" if durable else ""), durable=durable)
    session.counts["flushes"] += 1
    phases.end("agree")
    if not durable and _nothing_to_do(session, agreed):
        end_flush(session)
        return
    if agreed.widened and comm.size > 1:
        agree_widths(comm, session.defs.tree, session.defs.widened)
    if agreed.widened or agreed.drained:
        session.disk.layout.drained |= agreed.drained
        if agreed.drained:
            session.defs.note_drain()
        flat = _definitions(session, common=False)
    session.disk.layout.records = agreed.records
    session.disk.layout.unwritten_reads_zero &= not agreed.unknown_bytes
    target = _target(session, laid_out(session, flat, closing=closing), flat.uids)
    lost = agree_lost_records(comm, target.uids, session.disk.layout.lost_records) if agreed.lost else {}
    if target.header.vars != session.disk.layout.header.vars:
        # No rank goes on with another layout than the others.
        comm.exchange("flush layout")
    copy = moved(session, target, lost)
    phases.end("layout")
    later = _live_lost(session, lost) if copy is None and session.disk.at_stake else {}
    try:
        filled = {uid: cut for uid, cut in lost.items() if uid not in later}
        with comm.errors_shared():
            fill(session, target, session.disk.driver if copy is None else copy.driver, filled)
    except BaseException:
        if copy is not None:
            drop_copy(comm, copy)
        else:
            session.disk.layout.note_unknown_bytes()
        raise
    if copy is not None:
        use_copy(session.disk, comm, copy)
    # From here on data may lie where the new layout has it, whatever becomes of the header.
    session.disk.use_layout(target)
    session.defs.settle_order()
    target.lost_records = later
    if lost:
        session.disk.note_filled(lost.keys())
    phases.end("fill")
    failures, lowest = _data(session, agreed)
    phases.end("data")
    if failures and _all_or_nothing(session, target):
        raise comm.on_all(_flush_error(failures, session.disk.path, closing=closing, held=True))
    _header(session, target, lowest, failures, durable=durable, closing=closing)
    if later:
        order_writes(session)
        fill(session, target, session.disk.driver, later, only_lost=True)
        later.clear()
    end_flush(session)
    if not unsafe:
        session.posted.queue.settled()
    if closing and session.posted.queue.logged:
        # No rank removes its log before all have said that theirs are in the file: they are replayed together or not.
        comm.exchange("close logs")
    _give_back(session, agreed, failed=bool(failures))
    phases.end("header")
    session.counts["seconds_flush"] += sum(phases.seconds.values())
    phases.report()
    if failures:
        raise comm.on_all(_flush_error(failures, session.disk.path, closing=closing))


def _header(
    session: Session,
    target: Layout,
    lowest: int,
    failures: list[RequestFailure],
    *,
    durable: bool,
    closing: bool,
) -> None:
    """Write the header, with the records that are whole (collective)."""
    comm = session.comm
    numrecs = min(numrecs_of(session.defs.tree), max(session.defs.tree.records, lowest))
    try:
        with comm.errors_shared():
            order_writes(session)
            write_header(session, with_records(session, target.header, numrecs), durable=durable)
    except Exception as reason:
        if failures:
            # what failed first, and stays pending, says more than the header that met the same full disk
            raise comm.on_all(_flush_error(failures, session.disk.path, closing=closing)) from reason
        raise


def _live_lost(session: Session, lost: LostRecords) -> LostRecords:
    """The datasets whose lost records the header in the file may still count: they are filled when it does not."""
    return {uid: (first, live) for uid, (first, live) in lost.items() if first < live}


def _all_or_nothing(session: Session, target: Layout) -> bool:
    """Whether the old header has to stay after a failure, since the new one lacks data that the old one knows."""
    location = session.disk.location
    return replaces_live(session, target.uids) and (location is None or not location.unseen)


def _give_back(session: Session, agreed: Agreement, *, failed: bool) -> None:
    """Cut the file to the length of its data if there may be more (collective)."""
    clean = session.disk.layout.unwritten_reads_zero
    if agreed.records > session.disk.numrecs:
        # A drain wrote records that were given up before they were counted.
        session.disk.note_longer()
        session.disk.layout.unwritten_reads_zero = False
    if session.disk.may_be_longer and not failed:
        cut_tail(session)
        session.disk.layout.unwritten_reads_zero = clean


def _begin(session: Session, operation: str, *, durable: bool) -> tuple[Agreement, Flat]:
    """What all ranks are about to do, and the definitions (collective)."""
    comm = session.comm
    if durable:
        check_durable(session)
    session.posted.queue.about_to_flush()
    if session.posted.reads:
        complete_posted(session)
    gone = session.posted.uids() - session.defs.tree.datasets.keys()
    if gone:
        session.posted.queue.forget(gone)
    flat = _definitions(session, common=comm.size > 1)
    mine = _mine(session)
    if comm.size == 1:
        return mine, flat
    return agree(comm, operation, mine, digest(flat.header), lambda: described(session.defs.tree, flat)), flat


def _mine(session: Session) -> Agreement:
    placed, queue = session.disk.layout, session.posted.queue
    batches = queue.batches()
    runs, nbytes = queue.weight()
    return Agreement(
        drained=placed.drained,
        widened=bool(session.defs.widened),
        changed=session.defs.dirty,
        unknown_bytes=not placed.unwritten_reads_zero,
        lost=bool(placed.lost_records),
        records=placed.records,
        runs=runs,
        nbytes=nbytes,
        batches=len(batches),
        rounds=rounds_of(batches),
        transport=transport_code(session.options),
        aggregators=session.options.aggrs_per_node,
    )


def _nothing_to_do(session: Session, agreed: Agreement) -> bool:
    """Whether the file is as all ranks want it already; the same on all ranks."""
    location = session.disk.location
    named = location is None or location.published or session.disk.keep_unpublished
    settled = numrecs_of(session.defs.tree) == session.disk.numrecs and not session.disk.may_be_longer
    return (
        named and settled and not (agreed.changed or agreed.widened or agreed.drained or agreed.lost or agreed.batches)
    )


# ------------------------------------------------------------------------------------- definitions


def _definitions(session: Session, *, common: bool) -> Flat:
    """The definitions as a header without begins; kept until something changes.

    With `common`, as all ranks know them before they agreed, because the digest of the definitions must not depend
    on what one rank posted: strings that grew here count with their old width, and what was drained here keeps
    its turn, until all ranks know of the drain.
    """
    tree, placed = session.defs.tree, session.disk.layout
    if placed.drained and not session.defs.ordered_by_place and (not common or session.defs.drain_agreed):
        _, uids = placed.with_early_places(tree)
        first = {uid: tree.datasets[uid] for uid in uids if uid in tree.datasets}
        ordered = first | tree.datasets
        if list(ordered) != list(tree.datasets):
            tree.datasets = ordered
            tree.touch()
        session.defs.note_order()
    if (
        session.defs.flat is not None
        and session.defs.flat_version == tree.version
        and not (common and session.defs.widened)
    ):
        return session.defs.flat
    flat = None if common and session.defs.widened else with_changed_attributes(session)
    if flat is None:
        flat = _anew(session, common=common)
        if common and session.defs.widened:
            return flat
    session.defs.keep_flat(flat)
    return flat


def _anew(session: Session, *, common: bool) -> Flat:
    """The definitions made of the whole tree; see `_definitions`."""
    tree = session.defs.tree
    grown = {uid: tree.datasets[uid].element for uid in session.defs.widened if uid in tree.datasets} if common else {}
    try:
        for uid, element in grown.items():
            tree.datasets[uid].element = element.widened(session.defs.widened[uid])
        flat = to_header(tree, version=session.defs.version)
    finally:
        for uid, element in grown.items():
            tree.datasets[uid].element = element
    flat = flat._replace(header=flat.header.with_numrecs(numrecs_of(tree)))
    check_limits(flat.header)
    return flat


def _target(session: Session, header: Header, uids: tuple[int, ...]) -> Layout:
    """The layout of `header`; the one in force if that is the same."""
    placed = session.disk.layout
    made = placed.successor(header, uids, session.defs.tree.datasets)
    if not made.same_places(placed):
        # Without variables the file ends with its header.
        shorter = not header.vars and header_size(header) < len(session.disk.header_bytes)
        if shorter or not placed.maps.keys() <= set(uids):
            session.disk.note_longer()
    return made


def laid_out(session: Session, flat: Flat, *, closing: bool) -> Header:
    """The definitions with begins: what the file's header will be."""
    if session.defs.laid_out is not None and session.defs.laid_out[0] is flat and not session.disk.layout.drained:
        return session.defs.laid_out[1]
    size, reserve = header_size(flat.header), session.options.header_reserve
    if reserve is None:
        reserve = 0 if closing else max(_LEAST_RESERVE, size)
    # Never where a longer header was: its bytes would be read as data.
    least = max(size + reserve, len(session.disk.header_bytes))
    layout, tree = session.disk.layout, session.defs.tree
    new = layout.with_begins(flat.header, flat.uids, tree, reserve=max(reserve, size), least=least)
    new = new.with_numrecs(numrecs_of(session.defs.tree))
    session.defs.keep_header(flat, new)
    return new


# -------------------------------------------------------------------------------------------- data


def _data(session: Session, agreed: Agreement) -> tuple[list[RequestFailure], int]:
    """Write what is posted (collective); all failures of all ranks and the lowest record among them."""
    queue, comm, target = session.posted.queue, session.comm, session.disk.layout
    transport = session.transport
    done: Carried | None = None
    turns = range(comm.size) if session.options.ordered else [comm.rank]
    for turn in turns:
        if turn == comm.rank:
            with transport.writing(session.disk.driver, agreed, writer(session)) as write:
                batches = queue.batches()
                room = np.empty(max((batch.size for batch in batches), default=0), np.uint8)
                maps = target.maps if batches else {}
                done = carry(batches, maps, session.disk.driver, room, write=write, affine=target.affine)
            queue.replace(done.left)
        if session.options.ordered:
            comm.exchange("flush turn")
    assert done is not None
    return share_failures(comm, *settle(session, done))


def _flush_error(failures: list[RequestFailure], path: str, *, closing: bool, held: bool = False) -> PncVolError:
    first = failures[0]
    more = f" and {len(failures) - 1} more" if len(failures) > 1 else ""
    now = (
        "The file is closed without the data of these requests"
        if closing
        else "They stay pending: remove the cause and flush again, or cancel them"
    )
    if held:
        now += ". Datasets were to be replaced or deleted, so the file still has the definitions of the flush before"
    return FlushError(
        f"{path}: {len(failures)} request(s) failed: {first.variable}{first.selection} on rank {first.rank}: "
        f"{first.message}{more} (see .errors). {now}",
        failures,
    )
