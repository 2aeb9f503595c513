"""How a session ends: with a flush, or abandoned.

Knows: the session's parts. Does not know: users' objects.

Rules
-----
1. Closing flushes. Whatever fails, the file is closed in the end, and is not longer than its header says.
2. A rank that leaves alone tells the others, and waits for no rank.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pnc_vol.file.flushing import flush
from pnc_vol.file.header_update import check_durable, cut_what_failed
from pnc_vol.file.session import Session
from pnc_vol.late import late
from pnc_vol.warn import DEBUG, FILE, tell

if TYPE_CHECKING:
    from pnc_vol.file.reads import composite_values, fetch
else:
    composite_values, fetch = late("pnc_vol.file.reads.composite_values"), late("pnc_vol.file.reads.fetch")

__all__ = ["abort", "close"]


def close(session: Session) -> None:
    """See `Session.close`."""
    if session.closed or session.forked:
        session.mark_closed()
        return
    unread = _read_last(session)
    try:
        session.disk.publish_at_flush()
        with session.comm.errors_shared():
            if session.writable:
                # datasets without a name go
                session.defs.tree.drop_loose()
                if session.posted.ragged:
                    composite_values.post_rows(session)
                flush(session, durable=session.always_durable, closing=True)
            elif session.posted.reads or session.comm.size > 1:
                fetch.complete_all(session, "close")
    except BaseException as error:
        orderly = session.comm.in_step(error)
        if not orderly:
            session.comm.abandon(f"{type(error).__name__}: {error}")
        elif session.writable and session.file_set is None:
            with suppress(OSError):
                cut_what_failed(session.comm, session.disk)
        # A driver that holds bytes back meets the same error once more.
        with suppress(OSError):
            _let_go(session, orderly=orderly, flushed=False)
        raise
    _let_go(session, orderly=True, flushed=True)
    tell(FILE, DEBUG, "%s: closed", session.disk.path)
    if unread is not None:
        raise unread
    if session.always_durable:
        check_durable(session.disk)


def _read_last(session: Session) -> OSError | None:
    """Before the close of a file of one rank: a read that fails must not keep what was posted from the file."""
    if session.comm.size == 1 and session.posted.reads:
        try:
            fetch.complete_posted(session)
        except OSError as error:
            session.posted.reads.clear()
            return error
    return None


def abort(session: Session, reason: str) -> None:
    """See `Session.abort`."""
    if not session.closed and not session.forked:
        session.comm.abandon(reason)
        _let_go(session, orderly=session.comm.size == 1, flushed=False)


def _let_go(session: Session, *, orderly: bool, flushed: bool) -> None:
    try:
        # A log is removed only if all ranks' posts are in the file.
        session.posted.queue.close(flushed=flushed)
        session.transport.close()
        if session.file_set is not None:
            session.file_set.close(orderly=orderly)
        # Closing an MPI file is collective: a rank that leaves alone can only leave it to the end of the job.
        if orderly or not session.disk.collective:
            session.disk.driver.close()
    finally:
        if session.disk.location is not None:
            if session.comm.rank == 0:
                session.disk.location.discard()
            session.disk.location.held.release()
        # Not before: another thread that opens the file waits for this, and finds it unlocked.
        session.mark_closed()
    if orderly:
        session.comm.close()
