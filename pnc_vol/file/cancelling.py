"""Cancelling posted requests that have not been carried out.

Knows: the queue, handles, rows of arrays of varying length. Does not know: the file; other ranks.

Rules
-----
1. Everything that a user posted can be cancelled, with a handle or without. What the library posts to keep stored
   values, when a dataset is laid out anew, cannot: `Session.kept` has the numbers.
2. A request is cancelled in the log first, so that no recovery brings it back. If the log cannot record
   so, nothing is dropped.
3. What reached the file stays there, also the part of a request that failed.
"""

from __future__ import annotations

from collections.abc import Sequence

from pnc_vol.errors import AlreadyDoneError, DefinitionError
from pnc_vol.file.reads import composite_values
from pnc_vol.file.session import Session
from pnc_vol.queue.request import Request

__all__ = ["cancel"]


def cancel(session: Session, requests: Sequence[Request] | None) -> None:
    """See `Session.cancel`."""
    if requests is None:
        numbers = session.posted.cancellable()
    else:
        numbers = _numbers(session, requests)
    session.posted.queue.cancel(numbers)
    session.posted.drop(numbers)
    if requests is None:
        composite_values.restore(session)


def _numbers(session: Session, requests: Sequence[Request]) -> set[int]:
    """The requests that are to be dropped: those that are not cancelled already.

    Raises
    ------
    AlreadyDoneError
        One of them was carried out; none is dropped then.
    DefinitionError
        One of them is another file's.
    """
    for request in requests:
        if not request.of(session):
            raise DefinitionError(f"{request!r} was posted to another file than {session.disk.path}; cancel it there")
        if request.status == "done":
            raise AlreadyDoneError(f"request {request.id} was carried out already and cannot be cancelled")
    return {request.id for request in requests if request.status != "cancelled"}
