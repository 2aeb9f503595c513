"""Ranks that left a file part from each other: what was flushed follows to the file, and no message is left behind.

Knows: sessions that were given up, their epochs, when to ask the other ranks. Does not know: how ranks find each other
(`Comm.part`), what fails in a file.

Rules
-----
1. A rank that left a file waits a moment for the others where a header is held back until the data of all ranks are in
   the file: they are told, and leave, too, if they use the file.
2. If they do not come, the file stays open and locked. The ranks are asked again before another file is opened, and
   when the interpreter exits; then a message says what brings to the file what is in the caches.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from pnc_vol.file.session import Session
from pnc_vol.ranks.comm import Comm
from pnc_vol.warn import warn_outside

__all__ = ["close_left_file", "leaves", "part_from_others"]

_MOMENT, _LAST = 1.0, 5.0
"""Seconds to wait for the other ranks after a file was left, and when the interpreter exits."""
_ROUND = 0.05
"""Seconds in which each of them is asked once."""
_Left = tuple[Comm, Session | None]
_left: list[_Left] = []
"""What ranks left and did not part from; with the session, if something that was flushed is to follow to its file."""
os.register_at_fork(after_in_child=_left.clear)


def leaves(session: Session, *, flushed: bool) -> bool:
    """Leave a file that others may still use; return whether the file stays open until all have left.

    flushed : bool, the flush of the close has returned: the data of all ranks are in the file.
    """
    if session.comm.mpi is None:
        return False
    pending = not flushed and session.epochs.pending
    stays = pending and not _part(session.comm, session, session.epochs.leave(), _MOMENT)
    if not pending or stays:
        _left.append((session.comm, session if stays else None))
    return stays


def close_left_file(session: Session) -> None:
    """Close a file that this rank left."""
    # Closing an MPI file is collective: a rank that leaves alone can only leave it to the end of the job.
    if not session.disk.collective:
        session.disk.driver.close()
    elif not session.epochs.pending:
        session.disk.driver.holder.leave()


def _part(comm: Comm, session: Session | None, state: tuple[int, int], patience: float) -> bool:
    """Part from the ranks that left a file, too; return whether all have. What was flushed follows to the file then.

    state : (int, int), see `Epochs.leave`.
    """
    least = comm.part(state, patience)
    if least is None:
        return False
    if session is not None and least[0]:
        try:
            session.epochs.follow(least[1])
        except OSError as error:
            warn_outside(f"{session.disk.path}: the header could not be written ({error}); {_advice(session)}")
    return True


def _advice(session: Session) -> str:
    return f"'pnc-vol replay {session.disk.path}' brings what was flushed to the file"


def part_from_others(*, last: bool = False) -> None:
    """Part from the ranks of files that were left: before another file is opened, and when the interpreter exits.

    last : bool, the interpreter exits: there is no other time.
    """
    waiting = [one for one in _left if last or one[1] is not None]
    for one in _parted(waiting, _LAST if last else _MOMENT):
        waiting.remove(one)
        _end(*one)
    for comm, session in waiting if last else ():
        if session is not None and comm.rank == 0:
            warn_outside(f"{session.disk.path}: not all ranks have left the file; {_advice(session)}")
        _end(comm, session)


def _parted(waiting: list[_Left], patience: float) -> Iterator[_Left]:
    """Yield those whose ranks have parted, which the caller removes, until no other does within so many seconds.

    They take turns: ranks that waited for one after the other, each for its own time, could miss each other at every
    one of them.
    """
    # once: it carries what is in the caches
    states = {one: (0, 0) if one[1] is None else one[1].epochs.leave() for one in waiting}
    rounds = round(patience / _ROUND)
    more = rounds
    while waiting and more:
        more -= 1
        for one in tuple(waiting):
            if _part(*one, states[one], _ROUND / len(waiting)):
                more = rounds
                yield one


def _end(comm: Comm, session: Session | None) -> None:
    """Nobody is asked any more."""
    _left.remove((comm, session))
    if session is not None:
        try:
            with suppress(OSError):
                close_left_file(session)
        finally:
            session.release_name()
