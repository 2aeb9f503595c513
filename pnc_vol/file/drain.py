"""Making room when the queue is full, and setting the status of requests.

Knows: the session's parts. Does not know: users' objects, other ranks: a drain never waits for one.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from pnc_vol.errors import FlushError, RequestFailure
from pnc_vol.file.reads.fetch import complete_posted
from pnc_vol.file.session import Session
from pnc_vol.flush.data_sieving import write_sieved
from pnc_vol.flush.execute import Carried, Write, carry
from pnc_vol.queue.rows import Rows

__all__ = ["drain", "settle", "write_out", "writer"]

_NO_RECORD = 1 << 62


def drain(session: Session) -> None:
    """Make room: write what has a place in the file, spill the rest. Never waits for a rank.

    Raises
    ------
    FlushError
        Something could not be written; it stays posted.
    OSError
        The spill file could not be written.
    """
    if session.posted.queue.logged and session.comm.size == 1:
        # A log is emptied only when the header is written, and one process may do that at any time.
        session.flush()
        return
    write_out(session)
    session.posted.queue.fall_back()
    session.posted.queue.spill()


def write_out(session: Session) -> None:
    """Write what has a place in the file. Never waits for a rank.

    Raises
    ------
    FlushError
        Something could not be written; it stays posted.
    """
    complete_posted(session)
    batches = session.posted.queue.batches()
    held = {u for batch in batches if not batch.drains for u in batch.uids()}
    uids = sorted({u for batch in batches for u in batch.uids()} - held)
    places = session.disk.layout.writable(session.defs.tree, uids)
    if places:
        room = np.empty(max((batch.size for batch in batches if batch.drains), default=0), np.uint8)
        layout = session.disk.layout
        done = carry(batches, places, session.disk.driver, room, write=writer(session), affine=layout.affine)
        layout.note_written(session.defs.tree, list(places))
        session.posted.queue.replace(done.left)
        session.counts["drains"] += 1
        failures, _ = settle(session, done)
        if failures:
            raise FlushError(
                f"the queue is full and could not be written: {failures[0].message} (see .errors); "
                "what was posted stays posted",
                failures,
            )


def writer(session: Session) -> Write:
    """How extents are written: what lies between small ones is touched only in a file that no other rank shares."""
    if session.comm.size > 1:
        return session.disk.driver.write
    return partial(write_sieved, driver=session.disk.driver)


def settle(session: Session, done: Carried) -> tuple[list[RequestFailure], int]:
    """Tell the handles what became of their requests; the failures, and the lowest record among them."""
    session.counts["requests_written"] += done.requests
    session.counts["extents_written"] += done.extents
    session.counts["bytes_written"] += done.nbytes
    left: set[int] = set()
    rows_left: dict[tuple[int, int], Rows] = {}
    for batch in done.left:
        for uid in batch.uids():
            rows = batch.rows(uid)
            left.update(rows[:, 0].tolist())
            for request, of in done.failed:
                if of == uid:
                    rows_left[request, uid] = rows[rows[:, 0] == request]
    failed = {request for request, _ in done.failed}
    for number in [n for n in session.posted.handles if n not in failed]:
        if session.posted.handles[number].kind == "write" and number not in left:
            session.posted.handles.pop(number)._complete()
    failures, lowest = [], _NO_RECORD
    for (request, uid), error in sorted(done.failed.items()):
        node = session.defs.tree.datasets[uid]
        if request in session.posted.handles:
            session.posted.handles[request]._fail(error)
        lost = rows_left.get((request, uid))
        if lost is not None and len(lost):
            record = session.disk.layout.record_of(uid, int(lost[:, 1].min()))
            lowest = lowest if record is None else min(lowest, record)
        text = error.strerror or str(error)
        failures.append(RequestFailure(request, session.comm.rank, node.path, described(lost), error.errno or 0, text))
    return failures, lowest


def described(rows: Rows | None) -> str:
    """Which elements some rows are, for messages."""
    if rows is None or not len(rows):
        return ""
    first, count = int(rows[0, 1]), int(rows[:, 2].sum())
    return f" ({count} elements from element {first})"
