"""The registry lists the files that this process has open: opening one of them again joins its session.

Knows: open sessions, the file of each (its device and inode, or the object that it is), Python's collector of cycles.
Does not know: users' objects, but that they go.

Rules
-----
1. A process has one session for a file, whatever path is used, so that all handles see the same, flushed or not.
   Each opening is a `SessionRef`; the last one that goes closes the session, the last writing one flushes it.
2. What h5py refuses is refused: to replace a file that is open, or to write one that is open only for reading. A
   handle that was opened for reading writes nothing, though its session may.
   (HDF5 knows one intent for each file, so in h5py such a handle writes, too.)
3. The first opening's options are in force; another driver is refused, any other difference is a warning. Two that
   only read, with different options, are two sessions.
4. Rank 0 looks, as it does for files; all ranks then join the session of the same token, or none does. A session is
   shared only by the same ranks in the same order: others may read beside it what is flushed, and not write.
5. A forked child starts with no file open, and closes nothing that its parent opened.
6. A handle that was not closed is closed at once when its last reference goes, as in h5py: that is a known place in a
   program. There is no `ResourceWarning`: h5py gives none, and many scripts rely on such a close.
7. A handle that the collector of cycles finds is not: the collector can run whenever an object is created, in any
   library, and what is done there may neither do I/O nor call MPI. The file stays open and is closed at the next call
   that opens, flushes or closes a file, or when the interpreter exits. Nothing that was posted is lost.
8. With several ranks, a handle that was not closed is released without the other ranks; a warning says what is lost.

CPython's own tables are among what is in the middle of a change when the collector runs: before 3.11.8 and 3.12.1,
``ast.parse`` fails with "AST constructor recursion depth mismatch" if another ``ast.parse`` ran in a collection that it
caused, and to show a traceback is enough for that (https://github.com/python/cpython/issues/106905).
"""

from __future__ import annotations

import atexit
import errno
import gc
import itertools
import os
import sys
import threading
import time
import weakref
from collections import deque
from typing import Any

from pnc_vol.errors import DefinitionError
from pnc_vol.file import deferred
from pnc_vol.file.driver_stack import asked_and_open
from pnc_vol.file.opening_record import Opening
from pnc_vol.file.session import Session, note_time
from pnc_vol.interruptions import is_interruption
from pnc_vol.settings.options import Options
from pnc_vol.warn import warn_outside

__all__ = [
    "Closing", "Entry", "SessionRef", "clash", "close_unreferenced", "enter", "finds", "found", "joined", "lock",
    "new_token", "refuse_open", "unreferenced", "unwatch", "wait_for", "watch",
]  # fmt: skip

_open: dict[bytes, Entry] = {}
"""What is open, by token."""
_places: dict[Any, dict[bytes, None]] = {}
"""Tokens by real path, by device and inode as they were at the opening, and by the id of the object."""
lock = threading.RLock()
"""Held while a file is opened by one process, and while references come and go; never while a session is closed."""
_numbers = itertools.count()
_DEFAULTS = Options()
_SILENT = frozenset(
    ("driver", "system", "collective_timeout", "recover", "burst_buf_overwrite", "deferred_close", "sources", "hdf5")
)
"""Options of a second opening that are compared elsewhere, or have nothing to do any more."""


def _forked() -> None:
    global lock
    lock = threading.RLock()
    _open.clear()
    _places.clear()
    _watched.clear()
    unreferenced.clear()


class Entry:
    """A session, and who uses it.

    Attributes
    ----------
    token : bytes, names the session on all ranks; empty for one that nobody else can join.
    session : Session
    target : object or None, what the file is, if it is an object.
    refs : set of SessionRef
    keys : tuple, what it is found by in `_places`.
    """

    __slots__ = ("keys", "refs", "session", "target", "token")

    def __init__(self, token: bytes, session: Session, target: Any = None) -> None:
        self.token, self.session, self.target = token, session, target
        self.refs: set[SessionRef] = set()
        location = session.disk.standing
        self.keys: tuple[Any, ...] = (id(target),) if location is None else (location.path, location.key)


def enter(entry: Entry) -> None:
    """Let others find a session, until it is closed."""
    with lock:
        _leave(entry.token)
        _open[entry.token] = entry
        for key in entry.keys:
            _places.setdefault(key, {})[entry.token] = None


def found(token: bytes) -> Entry:
    """Return the entry of a session that was joined."""
    return _open[token]


def _leave(token: bytes) -> None:
    with lock:
        entry = _open.pop(token, None)
        for key in () if entry is None else entry.keys:
            tokens = _places.get(key, {})
            tokens.pop(token, None)
            if not tokens:
                _places.pop(key, None)
        if entry is not None:
            # a closed handle keeps its entry; the object that was the file belongs to its owner again
            entry.target = None


def _at(*keys: Any) -> list[Entry]:
    """Return the open sessions that are entered under one of these keys."""
    with lock:
        tokens = {token: None for key in keys if key is not None for token in _places.get(key, ())}
        # of a close that was interrupted a token may be left
        there = [one for one in map(_open.get, tokens) if one is not None]
        return [one for one in there if not (one.session.closed or one.session.forked)]


os.register_at_fork(after_in_child=_forked)


class Closing(Exception):
    """Another thread closes the session that was found."""

    def __init__(self, session: Session) -> None:
        self.session = session


class SessionRef:
    """One opening of a session: the last reference that is released closes it.

    session : Session
    writable : bool, False if it was opened for reading, though the session may write.
    tried : bool, its close has failed, and can be tried again.
    """

    __slots__ = ("_entry", "session", "tried", "writable")

    def __init__(self, entry: Entry, *, writable: bool) -> None:
        self._entry = entry
        self.session = entry.session
        self.writable, self.tried = writable, False
        entry.refs.add(self)

    @property
    def last(self) -> bool:
        """True if nobody else uses the session."""
        return self._entry.refs <= {self}

    @property
    def held(self) -> bool:
        """True until it was released."""
        return self in self._entry.refs

    def release(self, *, last_call: bool = False) -> None:
        """Close the session, or leave it to others, flushed if they only read (collective); see `Session.close`.

        last_call : bool, nobody can call this again, should the session be left open for that.
        """
        if not last_call:
            # else it is one of those, and each would close the next one before it is closed itself
            close_unreferenced()
        session, refs = self.session, self._entry.refs
        if self not in refs:
            return
        try:
            with lock:
                refs.discard(self)
                idle = not (refs and any(ref.writable for ref in refs))
            if refs and not (session.closed or session.forked):
                if self.writable and idle:
                    session.disk.publish_at_flush()
                    session.flush()
                return
            if deferred.wanted(session):
                deferred.hold(session, self._close)
            else:
                self._close(again=not (last_call or self.tried), unheard=last_call)
        except BaseException as error:
            if is_interruption(error):
                if not session.closed:
                    # nobody else would close it, and the next opening of the file would wait for that
                    refs.add(self)
                elif not refs:
                    # which it may have come before
                    _leave(self._entry.token)
            raise
        finally:
            if self not in refs:
                unwatch(self)

    def _close(self, *, again: bool = False, unheard: bool = False) -> None:
        since = time.perf_counter()
        try:
            self.session.close(again=again, unheard=unheard)
        except OSError:
            if not self.session.closed:
                self.tried = True
                self._entry.refs.add(self)
            raise
        finally:
            note_time("close", since)
            if not self._entry.refs:
                _leave(self._entry.token)
                # A handle that is closed keeps this entry, and must not keep the object that was the file.
                self._entry.target = None

    def abandon(self, why: str) -> None:
        """Let go of a session that nobody got, because its opening was interrupted; others may have joined it."""
        self.drop()
        if not self._entry.refs:
            _leave(self._entry.token)
            self.session.abort(why)

    def drop(self) -> None:
        """Leave the session to others as it is."""
        with lock:
            self._entry.refs.discard(self)


def new_token() -> bytes:
    """Return a name for a session that no other one has, on no node."""
    return f"{os.getpid()}.{time.time_ns()}.{next(_numbers)}".encode()


# -------------------------------------------------------------------- whether an opening joins a session that is open


def finds(opening: Opening, there: os.stat_result | None) -> bool:
    """Return whether the file of an opening is open and is to be joined; on rank 0. It gets the token of the session
    then.

    Parameters
    ----------
    there : stat_result or None
        The file that has the path now.

    Raises
    ------
    OSError
        The file is open, and this opening cannot be beside it.
    ValueError
        It asks for another driver.
    """
    if not _open:
        return False
    key = None if there is None else (there.st_dev, there.st_ino)
    for entry in _at(opening.real or None, key, None if opening.target is None else id(opening.target)):
        session = entry.session
        if not _is_of(opening, key, entry):
            continue
        if deferred.holds(session):
            joins = _waits_for(opening, session)
        elif entry.refs:
            joins = _shares(opening, session)
        else:
            # Another thread closes it, and a new opening may look at the file only then.
            if opening.comm.size == 1:
                raise Closing(session)
            wait_for(session)
            joins = False
        if joins:
            opening.token = entry.token
            return True
    return False


def _waits_for(opening: Opening, session: Session) -> bool:
    """Return whether all ranks of an opening can close a file whose close was deferred; False to open it beside."""
    if session.comm.size == 1:
        if opening.comm.size == 1:
            raise Closing(session)
        deferred.close_held([session])
        return False
    if deferred.same_ranks(session.comm, opening.comm):
        return True
    if opening.mode == "r" and not session.disk.driver.capabilities.holds_back:
        return False
    what = f"closed it on {session.comm.size} ranks, and the close is deferred"
    raise _refused(opening, f"{what}; call pnc_vol.finalize() on all first")


def _is_of(opening: Opening, key: tuple[int, int] | None, entry: Entry) -> bool:
    """Return whether a session is of the file of an opening.

    key : device and inode of the file that has the path now.
    """
    session, target = entry.session, entry.target
    location = session.disk.standing
    if session.options.system is not opening.options.system:
        # It stands in for another machine: tests look at the disk beside a session.
        return False
    if location is None or opening.target is not None:
        return target is not None and target is opening.target
    if key is not None and location.key == key:
        return True
    if location.path != opening.real:
        return False
    if location.key is None:
        # Of a file that several ranks share only rank 0 knows more than the name.
        return True
    if location.published and key is not None and session.writable and opening.mode != "r":
        # Its next layout would take the name away from the file that stands there now.
        why = "has a file of this name open that was removed or replaced since; close that first"
        raise _refused(opening, why)
    return not location.published


def _shares(opening: Opening, session: Session) -> bool:
    """Return whether an opening joins a session; False if the file is to be opened beside it.

    Raises
    ------
    OSError, ValueError
        As `finds`.
    """
    path, mode = opening.path, opening.mode
    if mode in ("w-", "x"):
        raise FileExistsError(errno.EEXIST, "the file exists, and this process has it open", path)
    if mode == "w":
        why = "has it open already: unable to truncate a file which is already open; close it first"
        raise _refused(opening, why)
    if not deferred.same_ranks(session.comm, opening.comm):
        if mode == "r":
            return False
        raise _refused(
            opening,
            f"has it open already on {session.comm.size} rank(s), and this is for {opening.comm.size}; close it first "
            "or give both the same communicator",
        )
    if mode != "r" and not session.writable:
        raise _refused(opening, "has it open already for reading only (mode 'r'); close it first")
    asked, spec = asked_and_open(opening.options, session.options, session.comm)
    if mode == "r" and not session.writable and ((asked and asked != spec) or _unheeded(opening, session)):
        # Both only read what is flushed: nothing is lost if each has its own options.
        return False
    if asked and asked != spec:
        raise DefinitionError(
            f"{path!r} is open with the driver {spec!r}, so it cannot be opened with {asked!r}; close it first"
        )
    return True


def _refused(opening: Opening, why: str) -> OSError:
    return OSError(f"Unable to open {opening.path!r} with mode {opening.mode!r}: this process {why}")


def clash(opening: Opening) -> OSError | None:
    """Return the error of an opening by several ranks because of a file that this rank has open by itself, or None."""
    if opening.comm.rank == 0 or opening.mode == "r" or not _open:
        return None
    for entry in _at(os.path.abspath(opening.path)):
        if entry.session.comm.size == 1 and deferred.holds(entry.session):
            try:
                deferred.close_held([entry.session])
            except OSError as error:
                return error
        elif entry.session.comm.size == 1:
            rank = opening.comm.rank
            return _refused(opening, f"has it open already by itself on rank {rank}; close it first")
    return None


def joined(opening: Opening) -> Session:
    """Return the session that was found (collective); if its close was deferred, the opening is not to join it, but to
    begin anew when all ranks have closed it.

    Raises
    ------
    OSError
        A rank has it no more.
    """
    entry, comm = _open.get(opening.token), opening.comm
    session = None if entry is None else entry.session
    error = None
    if session is None or session.closed or not deferred.same_ranks(session.comm, comm):
        why = f"has it open on other ranks, and not on rank {comm.rank}; close it there first"
        error = _refused(opening, why)
    comm.agree("open joined", error=error)
    assert session is not None
    if deferred.holds(session):
        opening.way, opening.token = "", new_token()
    elif comm.rank == 0 and (other := _unheeded(opening, session)):
        options = ", ".join(f"{name}={value!r}" for name, value in other.items())
        warn_outside(
            f"{opening.path}: this process has it open; the options of the first opening stay in force, not {options}"
        )
    return session


def _unheeded(opening: Opening, session: Session) -> dict[str, Any]:
    """Return the options of an opening that are other than those in force."""
    asked = opening.options
    other = {
        name: value
        for name, value, default, present in zip(Options._fields, asked, _DEFAULTS, session.options, strict=True)
        if name not in _SILENT and value not in (default, present)
    }
    if asked.version != _DEFAULTS.version and asked.version != session.defs.version:
        other["format"] = f"CDF-{asked.version}"
    other.pop("version", None)
    return other


def wait_for(session: Session) -> None:
    """Wait until another thread has closed a session that nobody holds any more."""
    while not session.closed:
        with session.lock:
            pass
        time.sleep(0.0005)


def refuse_open(real: str, path: str, *, replaced: bool = False) -> None:
    """Complain if this process has the file open for writing, or at all if it is to be replaced.

    Raises
    ------
    OSError
    """
    close_unreferenced()
    deferred.close_held([entry.session for entry in _at(real) if entry.session.comm.size == 1])
    for entry in _at(real):
        session = entry.session
        if session.writable or replaced:
            mode = "r+" if session.writable else "r"
            raise OSError(
                f"Unable to write to {path!r}: this process has it open already (mode {mode}); close it first"
            )


# ------------------------------------------------------------------------------------------ files that nobody closed

_watched: dict[SessionRef, tuple[str, weakref.ref[Any]]] = {}
"""References that were not released, each with the path for messages, and a weak reference to its owner that runs a
function when the owner goes."""
unreferenced: deque[SessionRef] = deque()
"""References whose owners the collector found."""
_collecting = 0
"""The thread in which the collector runs, or 0."""


def watch(owner: object, ref: SessionRef, path: str) -> None:
    """Release a reference when its owner is gone, at the latest when the interpreter exits."""

    def gone(_: object) -> None:
        try:
            if _collecting == threading.get_ident():
                unreferenced.append(ref)
            else:
                _release(ref)
        except BaseException as error:
            if is_interruption(error) and ref.held:
                # Python prints it and goes on, and nothing else has a reference to the file any more.
                unreferenced.append(ref)
            raise

    if _collector not in gc.callbacks:
        gc.callbacks.append(_collector)
    _watched[ref] = path, weakref.ref(owner, gone)


def unwatch(ref: SessionRef) -> None:
    """Forget a reference that was released: an error that its session keeps may hold the owner in its traceback."""
    _watched.pop(ref, None)


def close_unreferenced() -> None:
    """Close the files that the collector found since the last call."""
    while unreferenced:
        ref = unreferenced.popleft()
        path, _ = _watched.get(ref, ("", None))
        try:
            _release(ref)
        except Exception as error:
            # It is not the fault of who calls: say it, and go on.
            warn_outside(f"{path!r} was not closed before its last object was gone, and could not be: {error}")


def _release(ref: SessionRef) -> None:
    """Release a reference whose owner is gone, or that was left until the interpreter exits."""
    path, _ = _watched.pop(ref, ("", None))
    session = ref.session
    if session.closed or session.comm.size == 1 or deferred.holds(session):
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
    _collecting = threading.get_ident() if phase == "start" else 0


@atexit.register
def _at_exit() -> None:
    close_unreferenced()
    for ref in list(_watched):
        try:
            _release(ref)
        except Exception:
            # One that cannot be closed does not keep the others from it. Who called close() has had its error.
            if not ref.tried:
                sys.excepthook(*sys.exc_info())
    # Later: the ranks of a deferred close may wait in a call of a file that was released above.
    deferred.close_at_exit()
    deferred.part_from_others(last=True)
