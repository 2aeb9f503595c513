"""Posted data are written by a flush, and before it by a drain, which makes room when the queue is full.

Knows: the session's parts, batches. Does not know: headers in the file, definitions.

Rules
-----
1. Where drivers hold bytes back, a flush first writes older data where they overlap new data; one that does more than
   add to the file begins with all that is held in the file, because what it overwrites may be known there. To keep what
   each held header knows would be more to get wrong.
2. A drain never waits for another rank: it writes what has a place in the file before a flush.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pnc_vol.drivers.holding import Unwritten
from pnc_vol.errors import FlushError, RequestFailure
from pnc_vol.extents.model import Runs
from pnc_vol.file.header_update import end_flush
from pnc_vol.file.relocation import replaces_live
from pnc_vol.file.session import Session, WriteData
from pnc_vol.flush.execute import Executed
from pnc_vol.format.encode import header_size
from pnc_vol.late import late
from pnc_vol.layout.base import Layout
from pnc_vol.queue.batches import NO_ROWS, Batch
from pnc_vol.warn import DEBUG, FILE, tell

if TYPE_CHECKING:
    from pnc_vol.drivers import staged
    from pnc_vol.file import held_ranges
    from pnc_vol.file.reads import completing
    from pnc_vol.flush import failures as failing
    from pnc_vol.flush.agree import Agreement
else:
    # for what fails, for who asks how far a flush is, for drains
    staged, failing = late("pnc_vol.drivers.staged"), late("pnc_vol.flush.failures")
    held_ranges, completing = late("pnc_vol.file.held_ranges"), late("pnc_vol.file.reads.completing")

__all__ = ["before_data", "check_failures", "drain", "write_data", "write_out"]


def before_data(session: Session, target: Layout, agreed: Agreement) -> bool:
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
        failures, _, _ = failing.share_failures(comm, _carried(session), None)
        if failures:
            raise comm.on_all(failing.flush_error(failures, disk.path, closing=False))
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
        return failing.failures_of_held(found, session.defs.tree, session.disk.layout.maps, session.comm.rank)
    return []


def write_data(
    session: Session,
    batches: Sequence[list[Batch]],
    agreed: Agreement,
    *,
    carried: bool,
    write: WriteData | None = None,
) -> tuple[Executed, list[RequestFailure], int | None, str]:
    """Write what is posted (collective).

    batches : as many lists on all ranks, at least one, written one after another.
    carried : bool, what drivers hold back is to be in the file, too.
    write : see `flush`; the failures that it returns are known to all ranks.

    Returns
    -------
    done : Executed, on this rank.
    failures : list of RequestFailure, of all ranks.
    lowest : int or None, the first record that a failed request should have written.
    trouble : str, why a driver of some rank can hold nothing back any more, or "".
    """
    comm, disk, ordered = session.comm, session.disk, session.options.ordered
    layout, driver = disk.layout, disk.driver
    if session.posted.progress is not None:
        tables = (batch.rows(uid) for some in batches for batch in some for uid in batch.uids())
        total = sum(int(rows[:, 2] @ rows[:, 4]) for rows in tables)
        driver = staged.ProgressDriver(driver, session.posted.progress, total)
    known, least, posted = list[RequestFailure](), None, session.posted
    # What is written in turns must come to the files in turns.
    held = session.epochs.holding or (session.file_set is not None and session.file_set.holds_back)
    if write is None and comm.size == 1 and not (session.epochs.holding or posted.writes or any(batches)):
        # Definitions alone: nobody waits for anything here.
        return Executed(), known, least, ""
    if write is not None:
        done, known, least = write()
    for n, some in enumerate(batches if write is None else ()):
        if n:
            if held:
                disk.driver.drain()
            comm.agree("flush next")
        for turn in range(comm.size) if ordered else (comm.rank,):
            if turn == comm.rank:
                maps = layout.maps if some else {}
                executed = session.transport.execute(driver, some, maps, affine=layout.affine, agreed=agreed)
                if n:
                    done.add(executed)
                else:
                    done = executed
                if n + 1 == len(batches):
                    posted.note_written(done)
                if ordered and held:
                    disk.driver.drain()
            if ordered:
                comm.agree("flush turn")
    failures: list[RequestFailure] = []
    lowest = least
    if done.failed and write is None:
        failures, lowest = failing.failures_of(done, session.defs.tree, layout, comm.rank)
    if session.epochs.holding:
        if carried:
            failures += _carried(session)
        elif session.epochs.failed:
            failures += failing.failures_of_held(
                session.epochs.take_unwritten(), session.defs.tree, layout.maps, comm.rank
            )
    trouble = disk.driver.trouble() if session.epochs.holding else ""
    if comm.size > 1:
        failures, lowest, trouble = failing.share_failures(comm, failures, lowest, trouble)
    return done, known + failures, lowest, trouble


def check_failures(
    session: Session, target: Layout, failures: list[RequestFailure], *, carried: bool, closing: bool
) -> None:
    """Raise if what failed keeps the new header out of the file.

    Raises
    ------
    FlushError
    """
    disk = session.disk
    if carried and any(failure.request == failing.HELD for failure in failures):
        # The header stays held with the data that it describes.
        if closing and all(failure.request == failing.HELD for failure in failures):
            # All data are in the caches, and this is the last flush: a replay is to bring them to the file.
            end_flush(session.comm, disk.driver)
        raise session.comm.on_all(failing.flush_error(failures, disk.path, closing=closing))
    place = disk.location
    if replaces_live(disk, target.uids) and (place is None or place.kept_as or not place.unseen):
        # The old header stays: the new one lacks data that the old one knows.
        raise session.comm.on_all(failing.flush_error(failures, disk.path, closing=closing, held=True))


def drain(session: Session) -> None:
    """Make room: write what has a place in the file, spill the rest. Never waits for a rank.

    Raises
    ------
    FlushError
        Something could not be written; it stays posted.
    OSError
        The spill file could not be written.
    """
    queue = session.posted.queue
    if queue.logged and session.comm.size == 1:
        # A log is emptied only when the header is written, and one process may do that at any time.
        session.flush()
        return
    write_out(session)
    queue.fall_back()
    queue.spill()


def write_out(session: Session) -> None:
    """Write what has a place in the file. Never waits for a rank.

    Raises
    ------
    FlushError
        Something could not be written; it stays posted.
    """
    completing.complete_posted(session)
    tree, layout, posted = session.defs.tree, session.disk.layout, session.posted
    batches = posted.queue.batches()
    held = {u for batch in batches if not batch.drains for u in batch.uids()}
    uids = sorted({u for batch in batches for u in batch.uids()} - held)
    places = layout.writable(tree, uids, alone=session.comm.size == 1)
    if places and not session.epochs.may_write_alone(lambda: held_ranges.spans_of(batches, places)):
        # Another rank may hold earlier data of these elements: the next flush waits for them.
        return
    if places:
        # Asked before: rows that were written are forgotten.
        filled = [uid for uid in places if tree.datasets[uid].fillvalue is not None]
        rows = {uid: np.concatenate([batch.rows(uid) for batch in batches]) for uid in filled}
        done = session.transport.execute(session.disk.driver, batches, places, affine=layout.affine)
        layout.note_written(tree, list(places))
        for uid, own in rows.items():
            left = np.concatenate([NO_ROWS[:, 0], *(batch.rows(uid)[:, 0] for batch in done.left)])
            there = own[~np.isin(own[:, 0], left)] if len(left) else own
            layout.note_elements(tree.datasets[uid], Runs(there[:, 1], there[:, 2]))
        posted.note_written(done)
        session.counts["drains"] += 1
        tell(FILE, DEBUG, "%s: the queue was full: %d bytes were written", session.disk.path, done.nbytes)
        if done.failed:
            failures, _ = failing.failures_of(done, tree, layout, session.comm.rank)
            raise FlushError(
                f"the queue is full and could not be written: {failures[0].message} (see .errors); "
                "what was posted stays posted",
                failures,
            )
