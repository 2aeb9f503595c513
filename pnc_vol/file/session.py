"""A session has what operations on an open file work with: its three parts, its lock, its ranks.

Knows: the parts. Does not know: how anything is done with them (`open_file`); the objects that users hold.

Rules
-----
1. The definitions (`defs`), what is on disk (`disk`) and what is posted (`posted`) change only by their own methods.
2. The verbs here are those that operations need of each other: a post that finds the queue full drains it, for one.
   They are abstract, so that each operation is a module that imports none of those that it calls in this way.
3. A forked child goes on with a file that is read (`refreshing`), cannot use one that is written, and touches neither
   at its exit.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar
from weakref import WeakSet

from pnc_vol.disk.publish import Location
from pnc_vol.disk.stored_file import StoredFile
from pnc_vol.errors import ClosedFileError, ForkedFileError, RequestFailure
from pnc_vol.file.definitions import FEW_RECORDS, Definitions
from pnc_vol.file.epochs import Epochs
from pnc_vol.file.requests import Posted
from pnc_vol.flush.execute import Executed
from pnc_vol.flush.transport import Transport
from pnc_vol.layout.base import Layout
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.queue.batches import Batch
from pnc_vol.queue.request import Request
from pnc_vol.ranks.comm import Comm
from pnc_vol.settings.options import Options
from pnc_vol.warn import DEBUG, FILE, tell

if TYPE_CHECKING:
    from pnc_vol.extents.model import Selection
    from pnc_vol.flush.agree import Agreement

__all__ = ["CollectorPaused", "FileSet", "Session", "WriteData", "Written", "began", "note_time", "spent"]

P = ParamSpec("P")
R = TypeVar("R")

Written = tuple[Executed, list[RequestFailure], "int | None"]
"""What a flush wrote on this rank, what failed on all ranks, and the first record that a failed request should have
written, or None."""

WriteData = Callable[..., Written]
"""Writes the data of a flush (collective). ``pieces=`` is the most runs that any rank has to write where data lie: what
is posted as many may lie there as one."""


began = time.perf_counter()
spent = {"open": 0.0, "write": 0.0, "close": 0.0}
"""Seconds that this process spent in files since then; see `deferred.Times`."""


def note_time(kind: str, since: float) -> None:
    """Add what passed since then, by `time.perf_counter`, to the `Times` of this process."""
    spent[kind] += time.perf_counter() - since


class CollectorPaused:
    """Pause Python's collector of cycles, which looks at all objects again and again while their number grows.

    Reading and writing definitions, in opening and flushing, makes very many small objects, all live, and no cycles:
    for headers of 10^5 variables the collector takes a third of the time.
    """

    __slots__ = ("_was",)

    def __enter__(self) -> None:
        self._was = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        # One that the program has switched off, or that an outer call has paused, stays so.
        if self._was:
            gc.enable()


class FileSet(Protocol):
    """The files of a session whose data are in several, each with a header; see `subfile_set`."""

    def flush(
        self,
        session: Session,
        batches: list[Batch],
        agreed: Agreement,
        write: WriteData,
        *,
        durable: bool,
        carried: bool,
        closing: bool,
    ) -> None:
        """Bring headers and data to the files (collective); `write` writes the data."""

    def close(self, *, orderly: bool, flushed: bool) -> None:
        """Let go of the files (collective if `orderly`).

        flushed : bool, the last flush of the set succeeded; else the files keep what they were before it.
        """

    def layout(self, options: Options) -> Layout:
        """Return a layout of the session."""

    @property
    def kept_as(self) -> str:
        """The temporary name of a file of this rank that was flushed and has not got its own; see `Location`."""
        return ""

    def drain(self, operation: str) -> None:
        """Bring what drivers hold back to the files (collective)."""

    @property
    def holds_back(self) -> bool:
        """Whether drivers of files may hold back what ranks write; the same on all ranks."""
        return False

    @property
    def settled(self) -> bool:
        """Whether drivers hold nothing back, as of the last flush; the same on all ranks."""

    def refresh(self, session: Session) -> bool:
        """Take over what is in the files now (collective); see `refreshing.refresh`."""

    @property
    def begun(self) -> bool:
        """Whether the files say what they are and have their names, so that a flush may have nothing to do."""

    @property
    def location(self) -> Location | None:
        """The file by which the process finds the session when it opens it again."""


_open: WeakSet[Session] = WeakSet()
"""All sessions, so that a forked child finds those of its parent: to ask the system, or to count, at every call would
cost as much as a post."""


def _forked() -> None:
    for session in _open:
        session.mark_forked()


os.register_at_fork(after_in_child=_forked)


class Session(ABC):
    """An open file.

    Attributes
    ----------
    options : Options
    comm : Comm, the ranks that share the file.
    lock : RLock, held by whoever calls an operation; reads may do without, see `reading`.
    defs : Definitions
    disk : StoredFile
    posted : Posted
    transport : Transport, how ranks write together.
    epochs : Epochs, what the ranks know of bytes that their drivers hold back.
    file_set : FileSet or None, if data and headers are in several files, each with a life of its own.
    writable : bool
        Whether the session writes; a handle that was opened for reading does not, see `registry`.
    counts : dict of str to float, what was done since the file was opened, by name.
    closed : bool
    forked : bool, True in a child of the process that opened the file, until the child has opened it again.
    always_durable : bool
        Whether each flush is to be durable; a log on stable storage is begun anew when the file is there too.
    swmr : bool, whether a handle said that others read the file while it is written; see `start_swmr`.
    """

    def __init__(
        self,
        options: Options,
        comm: Comm,
        *,
        defs: Definitions,
        disk: StoredFile,
        posted: Posted,
        writable: bool,
        file_set: FileSet | None = None,
    ) -> None:
        self.options = options
        self.comm = comm
        self.lock = threading.RLock()
        self.defs = defs
        self.disk = disk
        self.posted = posted
        self.transport = Transport(
            comm, options, collective=disk.collective, call_cost=disk.driver.capabilities.call_cost
        )
        self.epochs = Epochs(comm, disk)
        self.file_set = file_set
        self.writable = writable
        self.always_durable = options.durable or (posted.queue.logged and options.burst_buf_sync != "none")
        self.counts: defaultdict[str, float] = defaultdict(int)
        self.closed = self.forked = self.swmr = False
        if not writable and comm.mpi is None and file_set is None:
            # What is posted, other ranks, and subfiles that are opened when they are first read, need the lock.
            disk.read_without_lock()
        _open.add(self)
        tell(
            FILE, DEBUG, "%s: opened for %s, %d ranks, layout %s",
            disk.path, "writing" if writable else "reading", comm.size, disk.layout.name,
        )  # fmt: skip

    def reading(self, read: Callable[P, R], /, *args: P.args, **keywords: P.kwargs) -> R:
        """Return what `read`, which changes nothing, returns; with the lock held only where the file may change under
        it."""
        # Readers that are counted would cost two turns of a lock for each read: a small one takes what it took.
        disk = self.disk
        before = disk.version
        if not before & 1:
            try:
                found = read(*args, **keywords)
            except Exception:
                # What a refresh took away may have been met in the middle.
                if disk.version == before:
                    self.check_open()
                    raise
            else:
                if disk.version == before:
                    return found
        with self.lock:
            # Another thread may have closed the file while this one waited.
            self.check_open()
            return read(*args, **keywords)

    def release_name(self) -> None:
        """Release the lock; remove the file if it has no name and nothing was flushed to it."""
        if self.disk.location is not None:
            if self.comm.rank == 0:
                self.disk.location.discard()
            self.disk.location.held.release()

    def check_open(self) -> None:
        """Raise if the file cannot be used any more.

        Raises
        ------
        ClosedFileError, ForkedFileError
        """
        if self.closed:
            raise self.closed_error()
        if self.forked and (why := self.go_on_in_child()):
            raise ForkedFileError(f"{self.disk.path}: {why}; open it again in the child process")

    def closed_error(self) -> ClosedFileError:
        """Return what using the file raises when it is closed."""
        return ClosedFileError(f"{self.disk.path}: the file is closed; open it again to use its objects")

    def mark_closed(self) -> None:
        """The file cannot be used any more."""
        self.closed = True

    def mark_forked(self) -> None:
        """This is a copy of the session in a forked child."""
        self.forked = True
        # a thread that is not in the child may have held it
        self.lock = threading.RLock()

    def mark_reopened(self) -> None:
        """The child has opened the file again."""
        self.forked = False

    def start_swmr(self) -> None:
        """Note that others read the file while it is written, which changes nothing; see `File.swmr_mode`."""
        self.swmr = True

    @property
    def unflushed(self) -> bool:
        """True if something would be lost without a flush."""
        return self.defs.dirty or not self.posted.queue.empty or self.disk.layout.drained

    def handle(self, request: Request, *, waits: bool = True) -> Request:
        """Note that a write has a handle; it is complete at once if nothing of it waits."""
        if request.nbytes and waits:
            self.posted.writes[request.id] = request.nbytes
        return request

    def add_records(self, node: DatasetNode, records: int) -> None:
        """Give a dataset whose first axis is the record dimension more records; the caller holds the lock.

        Raises
        ------
        DefinitionError
            The file's version cannot count them, or no file can hold them.
        """
        shape, disk, defs = node.shape, self.disk, self.defs
        assert shape
        if records > FEW_RECORDS:
            defs.check_records(node, records)
        if not disk.created and shape[0] < disk.layout.header.numrecs and node.uid not in disk.filled:
            # A process that was killed, or another program, may have left anything in the records that it had not.
            disk.layout.lose_records(node.uid, shape[0], shape[0])
        node.shape = (records, *shape[1:])
        node.tree.touch_records(node, shape[0])

    # ------------------------------------------------------------------- what operations ask of each other

    @abstractmethod
    def write(self, node: DatasetNode, selection: Selection, values: Any, fields: tuple[str, ...] = ()) -> int:
        """Post ``node[selection] = values``, copied; returns the request's number."""

    @abstractmethod
    def read(
        self,
        node: DatasetNode,
        selection: Selection,
        *,
        collective: bool = False,
        fields: tuple[str, ...] = (),
        out: Any = None,
    ) -> Any:
        """Return the values of a selection, own posts included."""

    @abstractmethod
    def wait(self, requests: Sequence[Request] | None = None) -> None:
        """Complete requests: all of them with a flush (collective), or some, without any other rank."""

    @abstractmethod
    def cancel(self, requests: Iterable[Request] | None = None) -> None:
        """Drop some requests, or all that is posted; never waits for a rank."""

    @abstractmethod
    def drain(self) -> None:
        """Make room in memory; never waits for a rank."""

    @abstractmethod
    def flush(
        self,
        *,
        durable: bool | None = None,
        carried: bool = False,
        what: str = "flush",
        write: WriteData | None = None,
    ) -> None:
        """Carry out all that is posted (collective).

        carried : bool, bring what drivers hold to the file, too.
        write : callable, optional
            Writes the data of this flush: it is called on all ranks when variables have their places, and the header
            follows what it wrote.
        """

    @abstractmethod
    def close(self, *, again: bool = False, unheard: bool = False) -> None:
        """Flush and let go of the file (collective)."""

    @abstractmethod
    def go_on_in_child(self) -> str:
        """Open a file that is read again, in a forked child; why that cannot be, or "" if it is open."""

    @abstractmethod
    def give_up(self) -> None:
        """Let go of the file without a flush (collective): it stays as the last flush has left it."""

    @abstractmethod
    def abort(self, reason: str) -> None:
        """Let go of the file without a flush and without waiting; the other ranks are told why."""
