"""The files that this process has open: opening one of them again joins its session.

Knows: open sessions, the file of each (its device and inode, or the object that it is). Does not know: users' objects.

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
5. A forked child starts with no file open.
"""

from __future__ import annotations

import errno
import itertools
import os
import threading
import time
from typing import Any

from pnc_vol.errors import DefinitionError
from pnc_vol.file import deferred
from pnc_vol.file.driver_stack import asked_and_open
from pnc_vol.file.forgotten import close_forgotten, unwatch
from pnc_vol.file.session import Session
from pnc_vol.interruptions import is_interruption
from pnc_vol.ranks.comm import Comm
from pnc_vol.settings.options import Options
from pnc_vol.warn import warn_outside

__all__ = ["Closing", "Entry", "OpenAttempt", "SessionRef", "enter", "found", "lock", "refuse_open", "wait_for"]

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


def _forget() -> None:
    global lock
    lock = threading.RLock()
    _open.clear()
    _places.clear()


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
    """The entry of a session that was joined."""
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
    """The open sessions that are entered under one of these keys."""
    with lock:
        tokens = {token: None for key in keys if key is not None for token in _places.get(key, ())}
        # of a close that was interrupted a token may be left
        there = [one for one in map(_open.get, tokens) if one is not None]
        return [one for one in there if not (one.session.closed or one.session.forked)]


os.register_at_fork(after_in_child=_forget)


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
            close_forgotten()
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
            deferred.note_time("close", since)
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


class OpenAttempt:
    """One opening, until it is known whether the file is open already.

    Parameters
    ----------
    path : str, as given
    real : str, the same without links
    mode : str
    options : Options
    comm : Comm
    target : object, optional
        The object that is the file.
    """

    def __init__(
        self,
        path: str,
        real: str,
        mode: str,
        options: Options,
        comm: Comm,
        target: Any = None,
    ) -> None:
        self.path, self.real, self.mode = path, real, mode
        self.options, self.comm, self.target = options, comm, target
        self.token = _new_token()
        self.key: tuple[int, int] | None = None
        self.joins = False

    def finds(self, there: os.stat_result | None) -> bool:
        """Whether the file is open and is to be joined; on rank 0.

        Parameters
        ----------
        there : stat_result or None
            What stands under the path now.

        Raises
        ------
        OSError
            The file is open, and this opening cannot be beside it.
        ValueError
            It asks for another driver.
        """
        if there is not None:
            self.key = there.st_dev, there.st_ino
        keys = self.real or None, self.key, None if self.target is None else id(self.target)
        for entry in _at(*keys) if _open else ():
            session = entry.session
            if self._is_of(session, entry.target):
                if deferred.holds(session):
                    if self._waits_for(session):
                        self.token = entry.token
                        return True
                elif not entry.refs:
                    if self.comm.size == 1:
                        raise Closing(session)
                    wait_for(session)
                elif not self._shares(session):
                    continue
                else:
                    self.token = entry.token
                    return True
        return False

    def _waits_for(self, session: Session) -> bool:
        """Whether all ranks of this opening can close a file whose close was deferred; False to open it beside."""
        if session.comm.size == 1:
            if self.comm.size == 1:
                raise Closing(session)
            deferred.close_held([session])
            return False
        if deferred.same_ranks(session.comm, self.comm):
            return True
        if self.mode == "r" and not session.disk.driver.capabilities.holds_back:
            return False
        what = f"closed it on {session.comm.size} ranks, and the close is deferred"
        raise self._refused(f"{what}; call pnc_vol.finalize() on all first")

    def _is_of(self, session: Session, target: Any) -> bool:
        location = session.disk.standing
        if session.options.system is not self.options.system:
            # It stands in for another machine: tests look at the disk beside a session.
            return False
        if location is None or self.target is not None:
            return target is not None and target is self.target
        if self.key is not None and location.key == self.key:
            return True
        if location.path != self.real:
            return False
        if location.key is None:
            # Of a file that several ranks share only rank 0 knows more than the name.
            return True
        if location.published and self.key is not None and session.writable and self.mode != "r":
            # Its next layout would take the name away from the file that stands there now.
            raise self._refused("has a file of this name open that was removed or replaced since; close that first")
        return not location.published

    def _shares(self, session: Session) -> bool:
        """False if the file is to be opened beside the session."""
        if self.mode in ("w-", "x"):
            raise FileExistsError(errno.EEXIST, "the file exists, and this process has it open", self.path)
        if self.mode == "w":
            raise self._refused("has it open already: unable to truncate a file which is already open; close it first")
        if not deferred.same_ranks(session.comm, self.comm):
            if self.mode == "r":
                return False
            raise self._refused(
                f"has it open already on {session.comm.size} rank(s), and this is for {self.comm.size}; close it first "
                "or give both the same communicator"
            )
        if self.mode != "r" and not session.writable:
            raise self._refused("has it open already for reading only (mode 'r'); close it first")
        asked, spec = asked_and_open(self.options, session.options, session.comm)
        if self.mode == "r" and not session.writable and ((asked and asked != spec) or self._unheeded(session)):
            # Both only read what is flushed: nothing is lost if each has its own options.
            return False
        if asked and asked != spec:
            raise DefinitionError(
                f"{self.path!r} is open with the driver {spec!r}, so it cannot be opened with {asked!r}; close it first"
            )
        return True

    def _refused(self, why: str) -> OSError:
        return OSError(f"Unable to open {self.path!r} with mode {self.mode!r}: this process {why}")

    def clash(self) -> OSError | None:
        """What is wrong with this opening by several ranks because of a file that this rank has open by itself."""
        if self.comm.rank == 0 or self.mode == "r" or not _open:
            return None
        for entry in _at(os.path.abspath(self.path)):
            if entry.session.comm.size == 1 and deferred.holds(entry.session):
                try:
                    deferred.close_held([entry.session])
                except OSError as error:
                    return error
            elif entry.session.comm.size == 1:
                return self._refused(f"has it open already by itself on rank {self.comm.rank}; close it first")
        return None

    def joined(self) -> Session:
        """The session that was found (collective).

        Raises
        ------
        OSError
            A rank has it no more.
        """
        entry = _open.get(self.token)
        session = None if entry is None else entry.session
        error = None
        if session is None or session.closed or not deferred.same_ranks(session.comm, self.comm):
            error = self._refused(f"has it open on other ranks, and not on rank {self.comm.rank}; close it there first")
        self.comm.agree("open joined", error=error)
        assert session is not None
        if deferred.holds(session):
            # all ranks close it; then this attempt begins anew
            self.token = _new_token()
            return session
        self.joins = True
        if self.comm.rank == 0:
            self._warn(session)
        return session

    def _unheeded(self, session: Session) -> dict[str, Any]:
        """The options that are other than those in force."""
        asked = self.options
        other = {
            name: value
            for name, value, default, present in zip(Options._fields, asked, _DEFAULTS, session.options, strict=True)
            if name not in _SILENT and value not in (default, present)
        }
        if asked.version != _DEFAULTS.version and asked.version != session.defs.version:
            other["format"] = f"CDF-{asked.version}"
        other.pop("version", None)
        return other

    def _warn(self, session: Session) -> None:
        other = self._unheeded(session)
        if other:
            told = ", ".join(f"{name}={value!r}" for name, value in other.items())
            warn_outside(
                f"{self.path}: this process has it open; the options of the first opening stay in force, not {told}"
            )


def _new_token() -> bytes:
    return f"{os.getpid()}.{time.time_ns()}.{next(_numbers)}".encode()


def wait_for(session: Session) -> None:
    """Until another thread has closed a session that nobody holds any more."""
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
    close_forgotten()
    deferred.close_held([entry.session for entry in _at(real) if entry.session.comm.size == 1])
    for entry in _at(real):
        session = entry.session
        if session.writable or replaced:
            mode = "r+" if session.writable else "r"
            raise OSError(
                f"Unable to write to {path!r}: this process has it open already (mode {mode}); close it first"
            )
