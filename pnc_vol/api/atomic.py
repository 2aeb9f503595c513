"""``f.atomic``: writes that are in the file when they return.

Knows: sessions, what a drain does. Does not know: requests (`iput` stays a request until somebody waits for it).

Rules
-----
1. Setting it is collective, as in MPI, and flushes: from then on everything that is defined has a place in the file.
2. A write is carried out by its rank alone; no rank waits for another one. What has no place without a flush waits for
   one as ever: variables defined since, records beyond those of the file, strings that grow.
3. A file that is not atomic pays nothing: the session's own methods are covered only while it is.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from pnc_vol.api.ids import Handle
from pnc_vol.file.drain import write_out
from pnc_vol.file.session import Session

__all__ = ["set_atomic"]

_COVERED = ("write", "write_simply")


def set_atomic(handle: Handle, value: bool) -> None:
    """Let writes be carried out at once, or when the file is flushed (collective)."""
    session = handle.session
    with session.lock:
        # Compared between ranks: one that sets it differently, or flushes instead, is noticed.
        session.flush(what=f"atomic {value}")
        for name in _COVERED:
            vars(session).pop(name, None)
            if value:
                setattr(session, name, _at_once(session, getattr(session, name)))
        session.atomic = value


def _at_once(session: Session, post: Any) -> Any:
    def posted(*args: Any, **kwds: Any) -> Any:
        done = post(*args, **kwds)
        if done:
            (session.drain if session.posted.queue.logged else partial(write_out, session))()
        return done

    return posted
