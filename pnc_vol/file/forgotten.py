"""Files that the program did not close: closed when their last object is gone, or when the interpreter exits.

Knows: references to sessions, Python's collector of cycles. Does not know: users' objects.

Rules
-----
1. A handle is closed at once when its last reference goes, as in h5py: that is a known place in a program. There is no
   `ResourceWarning`: h5py gives none, and many scripts rely on such a close.
2. A handle that the collector of cycles finds is not: the collector can run whenever an object is created, in
   any library, and what is done there may neither do I/O nor call MPI. The file stays open and is closed at the next
   call that opens, flushes or closes a file, or when the interpreter exits. Nothing that was posted is lost.
3. With several ranks, a handle that was not closed is released without the other ranks; a warning says what is lost.
4. A forked child closes nothing that its parent opened.

CPython's own tables are among what is in the middle of a change: before 3.11.8 and 3.12.1, ``ast.parse`` fails with
"AST constructor recursion depth mismatch" if another ``ast.parse`` ran in a collection that it caused, and to show a
traceback is enough for that (https://github.com/python/cpython/issues/106905).
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import weakref
from collections import deque
from threading import get_ident
from typing import TYPE_CHECKING, Any, Protocol

from pnc_vol.file.deferred import close_at_exit, holds
from pnc_vol.file.session import Session
from pnc_vol.interruptions import is_interruption
from pnc_vol.late import late
from pnc_vol.warn import warn_outside

if TYPE_CHECKING:
    from pnc_vol.file import parting
else:
    # for files that ranks left
    parting = late("pnc_vol.file.parting")

__all__ = ["close_forgotten", "unwatch", "watch"]


class SessionRef(Protocol):
    """What is asked of a reference to a session; see `registry.SessionRef`."""

    @property
    def session(self) -> Session: ...

    @property
    def last(self) -> bool: ...

    @property
    def held(self) -> bool: ...

    @property
    def tried(self) -> bool: ...

    def release(self, *, last_call: bool = False) -> None: ...

    def drop(self) -> None: ...


_held: dict[SessionRef, tuple[str, weakref.ref[Any]]] = {}
"""What was opened and is not let go of, with the path for messages and the reference that tells when its owner goes."""
_waiting: deque[SessionRef] = deque()
"""What the collector found."""
_collecting = 0
"""The thread in which the collector runs, or 0."""


def watch(owner: object, ref: SessionRef, path: str) -> None:
    """Release a reference when its owner is gone, at the latest when the interpreter exits."""

    def gone(_: object) -> None:
        try:
            if _collecting == get_ident():
                _waiting.append(ref)
            else:
                _let_go(ref)
        except BaseException as error:
            if is_interruption(error) and ref.held:
                # Python prints it and goes on, and nobody knows of the file any more.
                _waiting.append(ref)
            raise

    if _collector not in gc.callbacks:
        gc.callbacks.append(_collector)
    _held[ref] = path, weakref.ref(owner, gone)


def unwatch(ref: SessionRef) -> None:
    """Forget a reference that was released: an error that its session keeps may hold the owner in its traceback."""
    _held.pop(ref, None)


def close_forgotten() -> None:
    """Close the files that the collector found since the last call."""
    while _waiting:
        ref = _waiting.popleft()
        path, _ = _held.get(ref, ("", None))
        try:
            _let_go(ref)
        except Exception as error:
            # It is not the fault of who calls: say it, and go on.
            warn_outside(f"{path!r} was not closed before its last object was gone, and could not be: {error}")


def _let_go(ref: SessionRef) -> None:
    path, _ = _held.pop(ref, ("", None))
    session = ref.session
    if session.closed or session.comm.size == 1 or holds(session):
        try:
            ref.release(last_call=True)
        except BaseException as caught:
            if is_interruption(caught) and ref.held:
                # Python prints that of a destructor and goes on: nobody would know that what was posted is lost.
                ref.release(last_call=True)
            raise
        return
    if not ref.last:
        ref.drop()
        return
    lost = session.unflushed
    # What nobody caught is printed before the interpreter exits, and kept here.
    error = getattr(sys, "last_value", None)
    why = "" if error is None else f", because of {type(error).__name__}: {error}"
    session.abort(f"{path!r} was not closed{why}")
    if lost:
        warn_outside(
            f"{path!r} was not closed{why}: what rank {session.comm.rank} posted or defined since the last flush is "
            "lost; call close() on every rank, or use a with block"
        )


def _collector(phase: str, _: dict[str, int]) -> None:
    global _collecting
    _collecting = get_ident() if phase == "start" else 0


@atexit.register
def _at_exit() -> None:
    close_forgotten()
    for ref in list(_held):
        try:
            _let_go(ref)
        except Exception:
            # One that cannot be closed does not keep the others from it. Who called close() has had its error.
            if not ref.tried:
                sys.excepthook(*sys.exc_info())
    # Later: the ranks of a deferred close may wait in a call of a file that was let go above.
    close_at_exit()
    if "pnc_vol.file.parting" in sys.modules:
        parting.part_from_others(last=True)


def _forked() -> None:
    _held.clear()
    _waiting.clear()


os.register_at_fork(after_in_child=_forked)
