"""The files that this process has open: who opens one of them again joins its session.

Knows: open sessions, the file of each (its device and inode, or the object that it is). Does not know: users' objects.

Rules
-----
1. A process has one session for a file, however its path is spelled, so that all handles see the same, flushed or not.
   Each opening is a `Hold`; the last one that goes closes the session, the last writing one flushes it.
2. What h5py refuses is refused: to replace a file that is open, or to write one that is open for reading alone. A hold
   that was taken for reading writes nothing, though the session under it may.
3. The first opening's options are in force; another driver is refused, any other difference is a warning. Two that
   only read, with different options, are two sessions.
4. Rank 0 looks, as it does for files; all ranks then join the session of the same token, or none does. A session is
   shared only by the same ranks in the same order: others may read beside it what is flushed, and not write.
5. A child of a fork begins with nothing open.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import threading
import time
from dataclasses import fields
from typing import Any

from pnc_vol.comm import Comm
from pnc_vol.drivers.base import Driver
from pnc_vol.errors import DefinitionError, warn_outside
from pnc_vol.file.forgotten import close_forgotten
from pnc_vol.file.session import Session, open_session
from pnc_vol.options import Options

__all__ = ["Claim", "Hold", "open_shared", "refuse_open"]

_open: dict[bytes, tuple[Session, Any, tuple[Any, ...]]] = {}
"""Sessions by token, each with the object that its file is, if it is one, and its keys in `_places`."""
_places: dict[Any, dict[bytes, None]] = {}
"""Tokens by real path, by device and inode as they were at the opening, and by the id of the object."""
_lock = threading.RLock()
"""Held while a file is opened by one process, and while holds come and go; never while a session is closed."""
_numbers = itertools.count()
_DEFAULTS = Options()
_SILENT = frozenset(("driver", "system", "collective_timeout", "recover", "burst_buf_overwrite"))
"""Options of a second opening that are compared elsewhere, or have nothing to do any more."""


def _forget() -> None:
    global _lock
    _lock = threading.RLock()
    _open.clear()
    _places.clear()


def enter(token: bytes, session: Session, target: Any = None) -> None:
    """Let others find a session, until it is closed."""
    location = session.disk.location
    keys = (id(target),) if location is None else (location.path, location.key)
    with _lock:
        _leave(token)
        _open[token] = session, target, keys
        for key in keys:
            _places.setdefault(key, {})[token] = None


def _leave(token: bytes) -> None:
    with _lock:
        _, _, keys = _open.pop(token, (None, None, ()))
        for key in keys:
            tokens = _places.get(key, {})
            tokens.pop(token, None)
            if not tokens:
                _places.pop(key, None)


def _at(*keys: Any) -> list[tuple[bytes, Session, Any]]:
    """The open sessions that are entered under one of these keys."""
    with _lock:
        tokens = {token: None for key in keys if key is not None for token in _places.get(key, ())}
        found = [(token, *_open[token][:2]) for token in tokens]
    return [one for one in found if not (one[1].closed or one[1].forked)]


os.register_at_fork(after_in_child=_forget)


class _Closing(Exception):
    """Another thread closes the session that was found."""

    def __init__(self, session: Session) -> None:
        self.session = session


class Hold:
    """One opening of a session.

    session : Session, as this opening may use it.
    writable : bool
    """

    __slots__ = ("_shared", "_token", "session", "writable")

    def __init__(self, session: Session, token: bytes, *, writable: bool) -> None:
        self._shared = session
        self._token = token
        self.writable = writable
        self.session = session if writable or not session.writable else _Reading(session)
        session.holds.add(self)

    @property
    def last(self) -> bool:
        """True if nobody else holds the session."""
        return self._shared.holds <= {self}

    def release(self) -> None:
        """Close the session, or leave it to others, flushed if they only read (collective); see `Session.close`."""
        close_forgotten()
        session = self._shared
        with _lock:
            if self not in session.holds:
                return
            session.holds.discard(self)
            idle = not any(hold.writable for hold in session.holds)
        if session.holds and not (session.closed or session.forked):
            if self.writable and idle:
                session.disk.keep_unpublished = False
                session.flush()
            return
        try:
            session.close()
        finally:
            _leave(self._token)

    def drop(self) -> None:
        """Leave the session to others as it is."""
        with _lock:
            self._shared.holds.discard(self)

    def left(self) -> Session:
        """What stands for the session when this opening is over and others go on: it is closed."""
        made = object.__new__(Session)
        made.__dict__.update(self._shared.__dict__, closed=True)
        return made


class _Reading(Session):
    """A session that others write, as one sees it who opened the file for reading: the same state, of another class."""

    __slots__ = ("_whole",)

    def __init__(self, whole: Session) -> None:
        self._whole = whole
        self.__dict__ = whole.__dict__

    @property
    def writable(self) -> bool:  # type: ignore[override]
        return False

    def flush(self, *, durable: bool | None = None, what: str = "flush") -> None:
        self._whole.flush(durable=durable, what=what)

    def wait(self, requests: Any = None) -> None:
        self._whole.wait(requests)

    def abort(self, reason: str) -> None:
        self._whole.abort(reason)


class Claim:
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

    def __init__(self, path: str, real: str, mode: str, options: Options, comm: Comm, target: Any = None) -> None:
        self.path, self.real, self.mode = path, real, mode
        self.options, self.comm, self.target = options, comm, target
        self.token = f"{os.getpid()}.{time.time_ns()}.{next(_numbers)}".encode()
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
        for token, session, target in _at(
            self.real or None, self.key, None if self.target is None else id(self.target)
        ):
            if self._is_of(session, target):
                if not session.holds:
                    if self.comm.size == 1:
                        raise _Closing(session)
                    _wait_for(session)
                elif not self._shares(session):
                    continue
                else:
                    self.token = token
                    return True
        return False

    def _is_of(self, session: Session, target: Any) -> bool:
        location = session.disk.location
        if session.options.system is not self.options.system:
            # It stands in for another machine.
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
        if not _same_ranks(session.comm, self.comm):
            if self.mode == "r":
                return False
            raise self._refused(
                f"has it open already on {session.comm.size} rank(s), and this is for {self.comm.size}; close it first "
                "or give both the same communicator"
            )
        if self.mode != "r" and not session.writable:
            raise self._refused("has it open already for reading only (mode 'r'); close it first")
        asked, spec = self.options.driver, session.options.driver or ("mpio" if session.comm.mpi else "posix")
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
        for _, session, _ in _at(os.path.abspath(self.path)):
            if session.comm.size == 1:
                return self._refused(f"has it open already by itself on rank {self.comm.rank}; close it first")
        return None

    def joined(self) -> Session:
        """The session that was found (collective).

        Raises
        ------
        OSError
            A rank has it no more.
        """
        session = _open.get(self.token, (None,))[0]
        error = None
        if session is None or session.closed or not _same_ranks(session.comm, self.comm):
            error = self._refused(f"has it open on other ranks, and not on rank {self.comm.rank}; close it there first")
        self.comm.exchange("open joined", error=error)
        assert session is not None
        self.joins = True
        if self.comm.rank == 0:
            self._warn(session)
        return session

    def _unheeded(self, session: Session) -> dict[str, Any]:
        """The options that are other than those in force."""
        asked = self.options
        other = {
            field.name: getattr(asked, field.name)
            for field in fields(Options)
            if field.name not in _SILENT
            and getattr(asked, field.name) not in (getattr(_DEFAULTS, field.name), getattr(session.options, field.name))
        }
        if asked.version != _DEFAULTS.version and asked.version != session.defs.version:
            other["format"] = f"CDF-{asked.version}"
        other.pop("version", None)
        return other

    def _warn(self, session: Session) -> None:
        other = self._unheeded(session)
        if other:
            told = ", ".join(f"{name}={value!r}" for name, value in other.items())
            warn_outside(f"{self.path}: this process has it open; the options of then are in force, not {told}")


def _wait_for(session: Session) -> None:
    """Until another thread has closed a session that nobody holds any more."""
    while not session.closed:
        with session.lock:
            pass
        time.sleep(0.0005)


def _same_ranks(one: Comm, other: Comm) -> bool:
    # If this is so on each of them they are the same, since a token stands for one session.
    return one.size == other.size and one.rank == other.rank


def open_shared(
    path: str, real: str, mode: str, *, options: Options, comm: Comm, root: Driver | None = None, target: Any = None
) -> Hold:
    """Open or create a file, or join the session that has it open (collective).

    Parameters
    ----------
    path, mode, options, comm, root
        As for `open_session`; of `comm` a join needs nothing and closes it.
    real : str
        The path without links; "" where there is no file that others could open.
    target : object, optional
        The object that `root` writes to.

    Raises
    ------
    OSError
        As `open_session`; or the file is open and cannot be opened in this way beside.
    ValueError
        It is open with another driver.
    """
    close_forgotten()
    claim = Claim(path, real, mode, options, comm, target) if real or target is not None else None
    while True:
        try:
            # Ranks that wait for each other must hold nothing that their other threads may wait for.
            with _lock if comm.size == 1 else contextlib.nullcontext():
                session = open_session(path, mode, options=options, comm=comm, root=root, claim=claim)
                token = claim.token if claim is not None else b""
                hold = Hold(session, token, writable=mode != "r")
                if claim is not None and not claim.joins:
                    enter(token, session, target)
                return hold
        except _Closing as found:
            _wait_for(found.session)


def refuse_open(real: str, path: str, *, replaced: bool = False) -> None:
    """Complain if this process has the file open for writing, or at all if it is to be replaced.

    Raises
    ------
    OSError
    """
    close_forgotten()
    for _, session, _ in _at(real):
        if session.writable or replaced:
            mode = "r+" if session.writable else "r"
            raise OSError(
                f"Unable to write to {path!r}: this process has it open already (mode {mode}); close it first"
            )
