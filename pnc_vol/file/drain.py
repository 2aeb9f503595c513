"""A drain makes room when the queue is full: it writes what has a place in the file before a flush.

Knows: the session's parts. Does not know: users' objects, other ranks: a drain never waits for one.
"""

from __future__ import annotations

import numpy as np

from pnc_vol.errors import FlushError
from pnc_vol.extents.model import Runs
from pnc_vol.file.held_ranges import spans_of
from pnc_vol.file.reads.fetch import complete_posted
from pnc_vol.file.session import Session
from pnc_vol.flush.failures import failures_of
from pnc_vol.queue.batches import NO_ROWS
from pnc_vol.warn import DEBUG, FILE, tell

__all__ = ["drain", "write_out"]


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
    complete_posted(session)
    tree, layout, posted = session.defs.tree, session.disk.layout, session.posted
    batches = posted.queue.batches()
    held = {u for batch in batches if not batch.drains for u in batch.uids()}
    uids = sorted({u for batch in batches for u in batch.uids()} - held)
    places = layout.writable(tree, uids, alone=session.comm.size == 1)
    if places and not session.epochs.may_write_alone(lambda: spans_of(batches, places)):
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
            failures, _ = failures_of(done, tree, layout, session.comm.rank)
            raise FlushError(
                f"the queue is full and could not be written: {failures[0].message} (see .errors); "
                "what was posted stays posted",
                failures,
            )
