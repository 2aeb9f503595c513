"""A session ends with a flush, or is abandoned.

Knows: the session's parts. Does not know: users' objects.

Rules
-----
1. Closing flushes. Whatever fails, the file is closed in the end, and is not longer than its header says. Only a file
   that was flushed and cannot get its name (``publish="close"``) stays open for a second attempt, which closes it in
   any case: a file that can never be closed would keep its lock and descriptors. What was flushed stays under its
   temporary name, and a message says so.
   Ctrl-C, or no memory, may end a close anywhere: what is open then is closed by doing all of it once more, so that
   every close in the package can be called again and finishes what the first one left.
2. A rank that leaves alone tells the others, and waits for no rank. Only where a header is held back until the data of
   all ranks are in the file, it waits a moment for the others (`deferred`).
"""

from __future__ import annotations

from contextlib import suppress

from pnc_vol.errors import FlushError, RankError, SyncError
from pnc_vol.file.deferred import close_left_file, leaves
from pnc_vol.file.flushing import flush
from pnc_vol.file.header_update import check_durable, cut_what_failed
from pnc_vol.file.session import Session
from pnc_vol.interruptions import done_whole, is_interruption
from pnc_vol.system import closing_if_it_fails, exists
from pnc_vol.warn import DEBUG, FILE, tell, warn_outside

__all__ = ["abort", "close", "give_up"]


def close(session: Session, *, again: bool = False, unheard: bool = False) -> None:
    """See `Session.close`."""
    if session.closed or session.forked:
        session.mark_closed()
        return
    done: list[bool] = []
    unheard = unheard and session.comm.size == 1
    closing = closing_if_it_fails(session.options.system, by_any_error=False, alone=session.comm.size == 1)
    with closing:
        try:
            _close(session, again=again, unheard=unheard, done=done)
        except BaseException as error:
            if unheard and is_interruption(error) and not done:
                # Nothing was let go of: the close is called once more, with the files that the flush has opened.
                closing.keep()
                raise
            alone = session.comm.size > 1 and not session.comm.in_step(error)
            # Ranks that met no memory together have released everything together, and must not part once more.
            if is_interruption(error) and (session.comm.size == 1 or alone or not session.closed):
                # What is not released yet, is now.
                try:
                    if alone:
                        session.comm.abandon(f"{type(error).__name__}: {error}")
                    with suppress(Exception):
                        _release(session, orderly=session.comm.size == 1, flushed=bool(done))
                finally:
                    session.mark_closed()
            raise


def _close(session: Session, *, again: bool, unheard: bool, done: list[bool]) -> None:
    """Flush and release; `done` gets an element when the flush has returned."""
    unread = _read_last(session)
    try:
        _last_flush(session)
    except BaseException as error:
        if unheard and is_interruption(error):
            raise
        orderly = session.comm.in_step(error)
        kept = _kept(session, orderly=orderly)
        if kept and isinstance(error, OSError):
            again = again and orderly and not isinstance(error, (FlushError, SyncError))
            _say_where(error, kept, session, again=again)
            if again:
                raise
        if not orderly:
            session.comm.abandon(f"{type(error).__name__}: {error}")
        elif session.file_set is None:
            orderly = _cut(session)
        # A driver that holds bytes back meets the same error once more.
        with suppress(OSError):
            _release(session, orderly=orderly, flushed=False)
        raise
    done.append(True)
    _release(session, orderly=True, flushed=True)
    tell(FILE, DEBUG, "%s: closed", session.disk.path)
    if unread is not None:
        raise unread
    if session.always_durable:
        check_durable(session.disk)


def _last_flush(session: Session) -> None:
    session.disk.publish_at_flush()
    with session.comm.errors_shared():
        if session.writable:
            # datasets without a name go
            session.defs.tree.drop_loose()
            if session.posted.ragged:
                from pnc_vol.file.reads.composite_values import post_rows

                post_rows(session)
            flush(session, durable=session.always_durable, closing=True)
        elif session.posted.reads or session.comm.size > 1:
            from pnc_vol.file.reads.completing import complete_all

            complete_all(session, "close")


def _kept(session: Session, *, orderly: bool) -> str:
    """Return where there is what was flushed to a file that has not got its name; "" if nowhere (collective if
    `orderly`)."""
    if session.file_set is None:
        location = session.disk.location
        return "" if location is None else location.kept_as
    kept = session.file_set.kept_as
    if orderly:
        (anywhere,), _ = session.comm.agree("close kept", (bool(kept),))
        kept = kept or (f"a temporary file of another rank beside {session.disk.path}" if anywhere else "")
    return kept


def _say_where(error: OSError, kept: str, session: Session, *, again: bool) -> None:
    """Say once in the message of an error, which may have been raised more than once, where what was flushed is."""
    removed = session.file_set is None and not exists(session.options.system, kept)
    if kept in str(error) or (removed and not again):
        return
    advice = ("call close() again, or " * again) + "rename that file"
    text = f"what was flushed before is kept in {kept} ({advice})"
    if removed:
        text = f"the temporary file {kept} was removed, with what was flushed"
    if error.strerror:
        error.strerror = f"{error.strerror}; {text}"
    elif error.args:
        error.args = f"{error.args[0]}; {text}", *error.args[1:]


def _read_last(session: Session) -> OSError | None:
    """Complete reads before the close of a file of one rank: a read that fails must not keep what was posted from
    it."""
    if session.comm.size == 1 and session.posted.reads:
        from pnc_vol.file.reads.completing import complete_posted

        try:
            complete_posted(session)
        except OSError as error:
            session.posted.reads.clear()
            return error
    return None


def give_up(session: Session) -> None:
    """See `Session.give_up`."""
    if session.closed or session.forked:
        session.mark_closed()
        return
    orderly = session.comm.size == 1
    try:
        orderly = _cut(session)
    except BaseException as error:
        session.comm.abandon(f"{type(error).__name__}: {error}")
        raise
    finally:
        done_whole(_release)(session, orderly=orderly, flushed=False)


def _cut(session: Session) -> bool:
    """Cut off what a failed flush has written; False if a rank has left, and the others do no more together.

    All ranks of a set may have raised one error, of a rank that has left a subfile of some of them.
    """
    if session.writable:
        try:
            cut_what_failed(session.comm, session.disk)
        except RankError as error:
            session.comm.abandon(str(error))
            return False
        except OSError:
            # the flush has said what is wrong
            pass
    return True


def abort(session: Session, reason: str) -> None:
    """See `Session.abort`."""
    if not session.closed and not session.forked:
        session.comm.abandon(reason)
        kept = _kept(session, orderly=False)
        if kept and session.comm.rank == 0:
            warn_outside(f"{session.disk.path}: it was given up before its close. What was flushed is kept in {kept}")
        done_whole(_release)(session, orderly=session.comm.size == 1, flushed=False)


def _remove_work(session: Session) -> None:
    """Remove the temporary name of a file that gets no other one before its driver is closed (collective)."""
    location = session.disk.location
    if location is not None and not location.at_stake:
        if session.comm.rank == 0:
            location.remove_work()
        with suppress(RankError):
            session.comm.agree("close discard")


def _release(session: Session, *, orderly: bool, flushed: bool) -> None:
    """Release all that the session has open; what is released already stays so."""
    stays = False
    try:
        try:
            # A log is removed only if all ranks' posts are in the file.
            session.posted.queue.close(flushed=flushed)
        finally:
            session.transport.close()
            if session.file_set is not None:
                session.file_set.close(orderly=orderly, flushed=flushed)
            session.disk.release_left(first=session.comm.rank == 0, orderly=orderly)
            stays = not orderly and leaves(session, flushed=flushed)
            if orderly:
                try:
                    if not flushed:
                        _remove_work(session)
                        session.epochs.end_alone()
                finally:
                    session.disk.driver.close()
            elif not stays:
                close_left_file(session)
    finally:
        if not stays:
            session.release_name()
        # Not before: another thread that opens the file waits for this, and finds it unlocked.
        session.mark_closed()
    if orderly:
        session.comm.close()
