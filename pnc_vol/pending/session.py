"""One open file: its definitions, its queue, its place on disk. What `api` talks to.

Knows: all that is below it. Does not know: the objects that users hold.

Rules
-----
1. `open_session`, `flush`, `close` and collective reads are the collective calls; nothing else waits for a rank.
2. Everything here is called with `lock` held by the caller in `api`, or takes it itself.
3. A forked child cannot use the file, and its exit does not touch it.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from pnc_vol.comm import Comm
from pnc_vol.drivers.base import Driver
from pnc_vol.errors import ClosedFileError, ForkedFileError, NotYetError, ReadOnlyError, RequestPendingError
from pnc_vol.extents.decomposition import Recent
from pnc_vol.extents.selection import Selection
from pnc_vol.format.model import Header
from pnc_vol.format.sizes import record_vars
from pnc_vol.mapping.index import Flat, numrecs_of
from pnc_vol.mapping.tree import DatasetNode, Tree
from pnc_vol.options import Options
from pnc_vol.pending import composite, direct, fetch, post, resizing
from pnc_vol.pending.cancelling import cancel
from pnc_vol.pending.closing import abort, close
from pnc_vol.pending.collector import without_collector
from pnc_vol.pending.commit import Location
from pnc_vol.pending.drain import drain, write_out
from pnc_vol.pending.flush import flush
from pnc_vol.pending.forgotten import close_forgotten
from pnc_vol.pending.log.queue import LogQueue
from pnc_vol.pending.opened import Opened, open_file, open_queue
from pnc_vol.pending.placed import Placed
from pnc_vol.pending.report import FlushReport
from pnc_vol.pending.request import Request, as_out
from pnc_vol.pending.transport import Transport

if TYPE_CHECKING:
    from pnc_vol.pending.sharing import Claim, Hold

__all__ = ["Session", "open_session"]

_NO_RECORD = 1 << 62

_open: WeakSet[Session] = WeakSet()
"""All sessions, so that a forked child finds those of its parent: to ask the system, or to count, at every call would
cost as much as a post."""


def _forked() -> None:
    for session in _open:
        session.forked = True


os.register_at_fork(after_in_child=_forked)


@without_collector
def open_session(
    path: str | None,
    mode: str,
    *,
    options: Options,
    comm: Comm,
    root: Driver | None = None,
    claim: Claim | None = None,
) -> Session:
    """Open or create a file, or join the session of it that `claim` finds (collective).

    Parameters
    ----------
    path : str, or None for a driver that keeps no file
    mode : {"r", "r+", "w", "w-", "x", "a"}
    options : Options
    comm : Comm, owned by the session from now on
    root : Driver, optional
        What holds the bytes, where that is no file: `path` is then only what the file is called.

    Raises
    ------
    OSError
        FileNotFoundError, FileExistsError, IsADirectoryError, PermissionError, `FormatError`...; the same on all ranks.
    """
    try:
        opened = open_file(path, mode, options=options, comm=comm, root=root, claim=claim)
        if opened is not None:
            return Session(opened, options, comm)
        assert claim is not None
        session = claim.joined()
        comm.close()
        return session
    except BaseException as error:
        if comm.in_step(error):
            comm.close()
        else:
            comm.abandon(f"{type(error).__name__}: {error}")
        raise


class Session:
    """An open file; see the module."""

    read_simply, iget_run = direct.read_simply, direct.iget_run
    write_simply = post.write_simply

    def __init__(self, opened: Opened, options: Options, comm: Comm) -> None:
        self.options = options
        self.comm = comm
        self.lock = threading.RLock()
        self.path = opened.path
        self.driver: Driver = opened.driver
        self.location: Location | None = opened.location
        self.writable = opened.writable
        self.created = opened.created
        self.lasting = not opened.created
        """Whether the file may hold what is to outlast a power failure: of a durable flush, or of another process."""
        self.tree: Tree = opened.tree
        self.version = opened.header.version
        self.strict = options.strict
        self.on_overflow: Any = options.on_overflow
        self.keep_unpublished = options.publish == "close"
        self.collective_driver = opened.collective
        self.transport = Transport(comm, options, collective=opened.collective)
        self.lists = Recent(options.buffer_size // 8)
        self.placed = Placed(options)
        self.placed.virgin, self.placed.gaps = opened.virgin, opened.gaps
        self.placed.adopt(opened.header, tuple(self.tree.datasets), self.tree.datasets)
        self.tree.history.clear()
        self.queue = open_queue(self)
        self.next_request = self.first_request = 1
        self.last_flush: FlushReport | None = None
        self.widened: dict[int, int] = {}
        """Strings that grew, here or elsewhere, by uid: the width in bytes that all ranks know."""
        self.flat_version = -1
        self.flat: Flat | None = None
        self.laid_out: tuple[Flat, Header] | None = None
        self.ordered_by_place = self.drain_agreed = self.closed = False
        self.counts: defaultdict[str, float] = defaultdict(int)
        self.swept: set[int] = set()
        """Record variables that are known to hold their fill value behind their last record."""
        self.shrunk = opened.writable and not opened.virgin
        """Whether the file may be longer than its data: variables were deleted, or a process was killed in a flush."""
        self.handles: dict[int, Request] = {}
        self.reads: list[fetch.PostedRead] = []
        self.ragged: dict[int, DatasetNode] = {}
        """Arrays of varying length that were written since the last flush."""
        self.rows_before: dict[int, tuple[DatasetNode, composite.Array]] = {}
        """The rows of those that are not in the file yet as it has them, for `cancel`."""
        self.kept: set[int] = set()
        """Requests that hold stored values and cannot be cancelled."""
        self.poison: OSError | None = None
        """The error of an fsync: what it could not write may be dropped, and a second one would not tell."""
        self.room_used = -1
        """Bytes of what is defined, or was; below 0 until they are counted, for `room.check_room`."""
        self.before_header = [self.queue.about_to_write] if isinstance(self.queue, LogQueue) else []
        """Told of a header before it is written."""
        self.forked = False
        """True in a child of the process that opened the file."""
        _open.add(self)
        self.holds: set[Hold] = set()
        """Who has the file open: none if that is not `sharing`'s business."""
        self.atomic = self.swmr = False
        """What handles were told: that writes are carried out at once (`api.atomic`); that others read meanwhile."""
        self.copy: Location | None = None
        """Where the copy is that a new layout is made in."""
        self.adopt_header(opened.header, opened.header_bytes)

    # --------------------------------------------------------------------------------------- checks

    @property
    def dirty(self) -> bool:
        """True if definitions changed since the last flush."""
        return self.tree.version != self._flushed_version

    @property
    def numrecs(self) -> int:
        """Records of the file, those not flushed yet included."""
        return numrecs_of(self.tree)

    @property
    def disk_numrecs(self) -> int:
        """Records that the header in the file counts."""
        return self.disk_header.numrecs

    @property
    def header(self) -> Header:
        """The header as it is in the file."""
        return self.disk_header

    @property
    def at_stake(self) -> bool:
        """True if somebody could need what the header in the file knows: the file has its name, or has none at all."""
        return self.location is None or self.location.published

    @property
    def always_durable(self) -> bool:
        """True if each flush is to be durable; a log on stable storage is begun anew when the file is there too."""
        return self.options.durable or (self.queue.logged and self.options.burst_buf_sync != "none")

    def check_open(self) -> None:
        """Raise if the file cannot be used any more.

        Raises
        ------
        ClosedFileError, ForkedFileError
        """
        if self.closed:
            raise ClosedFileError(f"{self.path}: the file is closed; open it again to use its objects")
        if self.forked:
            raise ForkedFileError(f"{self.path}: the file was opened before a fork; open it again in the child process")

    def check_writable(self, what: str) -> None:
        """Raise if the file is open for reading.

        Raises
        ------
        ReadOnlyError
        """
        if not self.writable:
            raise ReadOnlyError(
                f"Unable to {what} (no write intent on file {self.path}); open it with mode 'r+' or 'a'"
            )

    # -------------------------------------------------------------------------------------- requests

    def write(self, node: DatasetNode, selection: Selection, values: Any, fields: tuple[str, ...] = ()) -> int:
        """Post ``node[selection] = values``, copied; returns the request's number. See `post.write`."""
        if node.element.kind == "composite":
            composite.write(self, node, selection, values, fields)
            return self.next_request
        return post.write(self, node, selection, values)

    def resize(self, node: DatasetNode, shape: tuple[int, ...]) -> None:
        """Give a dataset another shape. See `resizing.resize`."""
        with self.lock:
            resizing.resize(self, node, shape)

    def read(
        self, node: DatasetNode, selection: Selection, *, collective: bool = False, fields: tuple[str, ...] = ()
    ) -> Any:
        """The values of a selection, own posts included. See `fetch.read`."""
        if node.element.kind == "composite":
            return composite.read(self, node, selection, fields)
        return fetch.read(self, node, selection, collective=collective and self.comm.size > 1)

    def iput(self, node: DatasetNode, selection: Selection, values: Any) -> Request:
        """Post a write without a copy where that is possible; `values` must not change until it is complete."""
        if node.element.kind == "composite":
            raise NotYetError(
                f"iput: the elements of {node.path!r} are stored in several variables, which one request cannot write; "
                "post it with ds[...] = x, a compound also field by field: ds['name', ...] = x"
            )
        number, nbytes, waits = post.lend(self, node, selection, values)
        return self.handle(number, "write", nbytes, waits=waits)

    def iget(self, node: DatasetNode, selection: Selection, out: Any = None) -> Request:
        """Post a read, to be completed by `wait` or a flush.

        Raises
        ------
        TypeError
            `out` is no writable array of the selection's shape.
        """
        array = as_out(out, selection.result_shape, node.element.dtype)
        number = self.next_number()
        if node.element.kind == "composite":
            array[...] = composite.read(self, node, selection)
            return self.handle(number, "read", 0, array)
        request = self.handle(number, "read", selection.nelems * node.element.itemsize, array)
        self.reads.append(fetch.PostedRead(request, node, selection, array))
        return request

    def iput_many(self, node: DatasetNode, starts: Any, counts: Any, values: Any) -> Request:
        """Post the writing of many subarrays of one dataset; `values` holds their elements one after another."""
        return self.iput(node, self.lists.many(node.shape or (), starts, counts), values)

    def iget_many(self, node: DatasetNode, starts: Any, counts: Any, out: Any = None) -> Request:
        """Post the reading of many subarrays of one dataset into one array, one after another."""
        return self.iget(node, self.lists.many(node.shape or (), starts, counts), out)

    def next_number(self) -> int:
        self.next_request += 1
        return self.next_request - 1

    def handle(self, number: int, kind: str, nbytes: int, array: Any = None, *, waits: bool = True) -> Request:
        request = Request(self, number, kind, nbytes, array)
        if nbytes and waits:
            self.handles[number] = request
        else:
            request._complete()
        return request

    @property
    def requests(self) -> dict[int, Request]:
        """The handles that are not complete, by number."""
        return dict(self.handles)

    @property
    def unflushed(self) -> bool:
        """True if something would be lost without a flush."""
        return self.dirty or not self.queue.empty or self.placed.drained

    def uids_posted(self) -> list[int]:
        """Variables that have posted rows."""
        return [uid for batch in self.queue.batches() for uid in batch.uids()]

    def complete_reads(self, requests: Iterable[Request] | None = None) -> None:
        """Fill the arrays of posted reads: all, or those of some requests.

        Raises
        ------
        OSError
            The file could not be read; they stay posted.
        """
        wanted = None if requests is None else {request.id for request in requests}
        mine = [read for read in self.reads if wanted is None or read.request.id in wanted]
        try:
            fetch.complete(self, mine)
        finally:
            self.forget_reads({read.request.id for read in mine if read.request.test()})

    def forget_reads(self, numbers: set[int]) -> None:
        """Drop posted reads."""
        if len(numbers) == len(self.reads) and numbers == self.handles.keys():
            self.reads = []
            self.handles.clear()
            return
        self.reads = [read for read in self.reads if read.request.id not in numbers]
        for number in numbers:
            self.handles.pop(number, None)

    def wait(self, requests: Sequence[Request] | None = None) -> None:
        """Complete requests: all of them with a flush (collective), or some, without any other rank.

        Raises
        ------
        RequestPendingError
            Under MPI, a write to a variable that has no place in the file before the next flush.
        """
        with self.lock:
            self.check_open()
            if requests is None:
                self.flush()
                return
            self.complete_reads(requests)
            if any(not request.test() for request in requests):
                write_out(self)
            late = [request for request in requests if not request.test()]
            if late and self.comm.size == 1:
                self.flush()
            elif late:
                raise RequestPendingError(
                    f"request {late[0].id} writes to a variable that has no place in the file yet: "
                    "flush the file (all ranks), then the request is done"
                )

    def cancel(self, requests: Iterable[Request] | None = None) -> None:
        """Drop some requests, or all that is posted, with a handle or without; never waits for a rank.

        Raises
        ------
        AlreadyDoneError
            One of them was carried out already; nothing is dropped then.
        DefinitionError
            One of them is another file's.
        """
        with self.lock:
            self.check_open()
            cancel(self, None if requests is None else list(requests))

    # ---------------------------------------------------------------------------------- carrying out

    def drain(self) -> None:
        """Make room in memory; never waits for a rank. See `drain.drain`."""
        drain(self)

    def flush(self, *, durable: bool | None = None, what: str = "flush") -> None:
        """Carry out all that is posted (collective). See `flush.flush`."""
        close_forgotten()
        with self.lock:
            self.check_open()
            if self.writable:
                with self.comm.errors_shared():
                    composite.settle(self)
                try:
                    with self.comm.errors_shared():
                        flush(self, durable=self.always_durable if durable is None else durable, what=what)
                finally:
                    composite.settled(self)
            else:
                self.complete_reads()

    def adopt_layout(self, target: Placed) -> None:
        """Data lies where `target` has it from now on."""
        self.placed = target
        self.tree.history.clear()
        self.widened.clear()
        self.ordered_by_place = self.drain_agreed = False

    def adopt_header(self, header: Header, encoded: bytes) -> None:
        """The file now begins with this header."""
        self.disk_header, self.disk_bytes, self.disk_uids = header, encoded, self.placed.uids
        self.tree.records = header.numrecs if record_vars(header) else 0
        self._flushed_version = self.tree.version

    # --------------------------------------------------------------------------------------- closing

    def close(self) -> None:
        """Flush and let go of the file (collective); a second call does nothing.

        Raises
        ------
        FlushError
            Requests failed. The file is closed nevertheless: what they should have written is lost, unless it is
            in a log (``nc_burst_buf``), which is kept.
        SyncError
            The file was to be durable and an earlier fsync failed. What was posted was written nevertheless, and a log
            is kept.
        """
        with self.lock:
            close(self)

    def abort(self, reason: str) -> None:
        """Let go of the file without a flush and without waiting; the other ranks are told why."""
        with self.lock:
            abort(self, reason)

    def log_hints(self) -> dict[str, str]:
        """PnetCDF's hints of the burst buffer, as they are in force."""
        return self.queue.hints() if isinstance(self.queue, LogQueue) else {"nc_burst_buf": "disable"}

    def statistics(self) -> dict[str, Any]:
        """Counts of what this file did since it was opened, by name."""
        last = self.last_flush and self.last_flush._asdict()
        told = {"bytes_spilled": self.queue.spilled_bytes, "driver": self.driver.statistics(), "last_flush": last}
        return {**self.counts, **self.transport.statistics(), **told}
