"""Files that are closed later: those whose close is deferred, and those that ranks left one by one.

A file whose close is deferred is closed later by all ranks together; its `close` returned after a flush. A hint file
names such files (``Guardnames``, see `hint_files`). With a node-local cache the flush returns when the data are in the
cache, so that the program computes while they are carried to the file.

Ranks that left a file part from each other: what was flushed follows to the file, and no message is left behind.

Knows: sessions, their epochs, when to ask the other ranks, the clock. Does not know: users' objects, hint files,
caches; how ranks find each other (`Comm.part`).

Rules of deferred closes
------------------------
1. A file is held from its last `close` until a guarded file is opened by the same ranks, its path is opened, `finalize`
   is called, or the interpreter exits. Held files are closed in the order in which they were given up, which is the
   same on all ranks because `close` is collective. It stays in the registry, without references, so whoever looks for
   open files finds it, and closes it before going on. (MPIWRAP keeps the handles of all files that are opened after a
   guarded one, too, and one that is opened again gives old data there.)
2. What fails then is a `DeferredCloseError` of the call that closed it; at exit it is printed.
3. When a rank was lost in one close, nobody waits for it again: the other files of several ranks are abandoned. So a
   job waits for one time limit, not for one for each file.
4. A forked child holds nothing.

Rules of parting
----------------
1. A rank that left a file waits a moment for the others where a header is held back until the data of all ranks are in
   the file: they are told, and leave, too, if they use the file.
2. If they do not come, the file stays open and locked. The ranks are asked again before another file is opened, and
   when the interpreter exits; then a message says what brings to the file what is in the caches.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from pnc_vol.errors import DeferredCloseError, RankError
from pnc_vol.file.session import Session, began, spent
from pnc_vol.interruptions import is_interruption
from pnc_vol.ranks.comm import Comm
from pnc_vol.warn import warn_outside

__all__ = [
    "Times", "close_at_exit", "close_before_open", "close_held", "close_left_file", "finalize", "hold", "holds",
    "leaves", "part_from_others", "same_ranks", "wanted",
]  # fmt: skip

_held: dict[Session, Callable[[], None]] = {}
"""What was closed by its users and is open, with the function that closes it."""

os.register_at_fork(after_in_child=_held.clear)


class Times(NamedTuple):
    """Seconds that this process spent in files, all of them together; of several ranks, of the slowest one in each.

    open, close : float, in opening and in closing them, deferred closes included.
    write : float, in `flush` and `wait_all`.
    run : float, since the first file was opened.

    Examples
    --------
    >>> print(Times(0.5, 2, 0.25, 60))
    open,write,close,run
    0.500000,2.000000,0.250000,60.000000
    """

    open: float
    write: float
    close: float
    run: float

    def __str__(self) -> str:
        return f"{','.join(self._fields)}\n" + ",".join(f"{seconds:.6f}" for seconds in self)


def same_ranks(one: Comm, other: Comm) -> bool:
    """Return whether two communicators have the same ranks, if this is so on each of them."""
    return one.size == other.size and one.rank == other.rank


def wanted(session: Session) -> bool:
    """Return whether the close of an open file is to be deferred."""
    named = session.options.deferred_close and session.writable and session.disk.location is not None
    return named and not (session.closed or session.forked)


def hold(session: Session, close: Callable[[], None]) -> None:
    """Flush a file and keep it open for a later close (collective).

    Parameters
    ----------
    close : callable
        Closes it, whatever happens; may raise.
    """
    try:
        session.disk.publish_at_flush()
        session.flush(what="close")
    except Exception:
        # as an ordinary close: it tries again, and the file is closed in the end
        close()
        return
    _held[session] = close


def holds(session: Session) -> bool:
    """Return whether the close of a file is deferred."""
    return session in _held


def close_held(sessions: Iterable[Session] | None = None) -> None:
    """Close held files: these, or all (collective).

    Raises
    ------
    DeferredCloseError
        Some could not be closed without an error; they are closed nevertheless.
    """
    failed: list[tuple[str, Exception]] = []
    lost = False
    for session in list(_held if sessions is None else sessions):
        close = _held.get(session)
        if close is None:
            continue
        path = session.disk.path
        try:
            if lost and session.comm.size > 1:
                session.abort("a rank was lost when another file was closed")
                text = "it was abandoned, because a rank was lost when another file was closed"
                failed.append((path, RankError(text)))
            _held.pop(session, None)
            close()
        except BaseException as error:
            if is_interruption(error) and not session.closed:
                # nobody else would close it
                _held[session] = close
                raise
            if not isinstance(error, Exception):
                raise
            lost |= isinstance(error, RankError)
            failed.append((path, error))
    if failed:
        raise _error(failed) from failed[0][1]


def _error(failed: list[tuple[str, Exception]]) -> DeferredCloseError:
    text = "; ".join(f"{path!r}: {type(error).__name__}: {error}" for path, error in failed)
    made = DeferredCloseError(f"files that were closed before could not be completed: {text}")
    made.errno = getattr(failed[0][1], "errno", None)
    made.paths = [path for path, _ in failed]
    return made


def close_before_open(comm: Comm, sessions: Iterable[Session] | None = None) -> None:
    """Close held files before one is opened on `comm`: these, or all that have its ranks, or one rank (collective).

    Raises
    ------
    DeferredCloseError
        As of `close_held`, on all ranks.
    """
    if sessions is None:
        sessions = [one for one in _held if one.comm.size == 1 or same_ranks(one.comm, comm)]
    error = None
    try:
        close_held(sessions)
    except DeferredCloseError as reason:
        error = reason
    # an exchange more than another open makes: what fails on one rank has to fail on all
    _agree(comm, "open deferred", error)


def _agree(comm: Comm, operation: str, error: DeferredCloseError | None, times: Sequence[float] = ()) -> list[float]:
    """Return the longest times of all ranks; what one of them could not close is raised on all, with the paths."""
    own = [list(times), None if error is None else [str(error), error.errno, error.paths]]
    longest, trouble = comm.merge(operation, own, _longest)
    if trouble is not None and error is None:
        error = DeferredCloseError(trouble[0])
        error.errno, error.paths = trouble[1:]
    if error is not None:
        raise error
    return list(longest)


def _longest(one: list[Any], other: list[Any]) -> list[Any]:
    (times, trouble), (more, other_trouble) = one, other
    return [list(map(max, times, more)), trouble or other_trouble]


def finalize(comm: Any = None) -> Times:
    """Close the files whose close is deferred, on all ranks; files that are open stay open.

    Without hint files that name such files (``Guardnames``) there is nothing to close. At the exit of the interpreter
    it is done if it was not before.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm, optional
        The ranks whose times count; each calls this. By default this process alone.

    Returns
    -------
    Times
        Seconds spent in opening, writing and closing files, and of the run; of the slowest rank of `comm`. As text it
        is two lines of CSV.

    Raises
    ------
    DeferredCloseError
        Some files could not be completed.

    Examples
    --------
    >>> times = pnc_vol.finalize()
    >>> times.run >= times.open + times.write + times.close
    True
    """
    error = None
    try:
        close_held()
    except DeferredCloseError as reason:
        error = reason
    own = Times(**spent, run=time.perf_counter() - began)
    if comm is None:
        if error is not None:
            raise error
        return own
    from pnc_vol.ranks.mpi_comm import over

    ranks = over(comm)
    try:
        longest = _agree(ranks, "finalize", error, own)
    finally:
        ranks.close()
    return Times(*longest)


def close_at_exit() -> None:
    """Close what is held; what fails is printed."""
    try:
        close_held()
    except DeferredCloseError:
        sys.excepthook(*sys.exc_info())


# ---------------------------------------------------------------------------------------- files that ranks left

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
