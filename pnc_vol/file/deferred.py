"""A file whose close is deferred is closed later by all ranks together; its `close` returned after a flush.

A hint file names such files (``Guardnames``, see `hint_files`). With a node-local cache the flush returns when the data
are in the cache, so that the program computes while they are carried to the file.

Knows: sessions, the clock. Does not know: users' objects, hint files, caches.

Rules
-----
1. A file is held from its last `close` until a guarded file is opened by the same ranks, its path is opened, `finalize`
   is called, or the interpreter exits. Held files are closed in the order in which they were given up, which is the
   same on all ranks because `close` is collective. It stays in the registry, without references, so whoever looks for
   open files finds it, and closes it before going on. (MPIWRAP keeps the handles of all files that are opened after a
   guarded one, too, and one that is opened again gives old data there.)
2. What fails then is a `DeferredCloseError` of the call that closed it; at exit it is printed.
3. When a rank was lost in one close, nobody waits for it again: the other files of several ranks are abandoned. So a
   job waits for one time limit, not for one for each file.
4. A forked child holds nothing.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pnc_vol.errors import DeferredCloseError, RankError
from pnc_vol.file.session import Session, began, spent
from pnc_vol.interruptions import is_interruption
from pnc_vol.late import late
from pnc_vol.ranks.comm import Comm

if TYPE_CHECKING:
    from pnc_vol.ranks import mpi_comm
else:
    mpi_comm = late("pnc_vol.ranks.mpi_comm")

__all__ = [
    "Times", "close_at_exit", "close_before_open", "close_held", "finalize", "hold", "holds", "same_ranks", "wanted",
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
    ranks = mpi_comm.over(comm)
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
