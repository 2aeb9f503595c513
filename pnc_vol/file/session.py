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
from pnc_vol.disk.stored_file import StoredFile
from pnc_vol.drivers.base import Driver
from pnc_vol.errors import ClosedFileError, ForkedFileError, NotYetError, RequestPendingError
from pnc_vol.extents.selection import Selection
from pnc_vol.file import post, resizing
from pnc_vol.file.cancelling import cancel
from pnc_vol.file.closing import abort, close
from pnc_vol.file.definitions import Definitions
from pnc_vol.file.drain import drain, write_out
from pnc_vol.file.flushing import flush
from pnc_vol.file.forgotten import close_forgotten
from pnc_vol.file.gc_pause import without_collector
from pnc_vol.file.opening import Opened, open_file, open_queue
from pnc_vol.file.reads import composite, contiguous, fetch
from pnc_vol.file.report import FlushReport
from pnc_vol.file.requests import Posted
from pnc_vol.flush.transport import Transport
from pnc_vol.format.model import Header
from pnc_vol.format.sizes import record_vars
from pnc_vol.layout.base import Layout
from pnc_vol.layout.registry import layout_class
from pnc_vol.log.store import LogQueue
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.options import Options
from pnc_vol.queue.request import Request, as_out

if TYPE_CHECKING:
    from pnc_vol.file.registry import OpenAttempt

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
    claim: OpenAttempt | None = None,
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

    def __init__(self, opened: Opened, options: Options, comm: Comm) -> None:
        self.options = options
        self.comm = comm
        self.lock = threading.RLock()
        self.writable = opened.writable
        self.on_overflow: Any = options.on_overflow
        self.transport = Transport(
            comm, options, collective=opened.collective, call_cost=opened.driver.capabilities.call_cost
        )
        self.counts: defaultdict[str, float] = defaultdict(int)
        self.last_flush: FlushReport | None = None
        self.closed = False
        self.forked = False
        """True in a child of the process that opened the file."""
        self.swmr = False
        """Whether a handle said that others read the file while it is written; see `start_swmr`."""
        tree = opened.tree
        self.defs = Definitions(tree, opened.header.version)
        layout = layout_class(options.layout)(options)
        layout.unwritten_reads_zero, layout.stale_gaps = opened.unwritten_reads_zero, opened.stale_gaps
        layout.adopt(opened.header, tuple(tree.datasets), tree.datasets)
        tree.history.clear()
        driver = layout.over(
            opened.driver, opened.path, writable=self.writable, created=opened.created, system=options.system
        )
        self.disk = disk = StoredFile(opened.path, driver, opened.location, layout)
        disk.created, disk.collective = opened.created, opened.collective
        disk.lasting = not opened.created
        disk.keep_unpublished = options.publish == "close"
        disk.shrunk = opened.writable and not opened.unwritten_reads_zero
        self.adopt_header(opened.header, opened.header_bytes)
        queue = open_queue(disk, options, comm, writable=opened.writable)
        self.posted = Posted(queue, options.buffer_size // 8)
        if isinstance(queue, LogQueue):
            disk.before_header.append(queue.about_to_write)
        _open.add(self)

    # --------------------------------------------------------------------------------------- checks

    @property
    def always_durable(self) -> bool:
        """True if each flush is to be durable; a log on stable storage is begun anew when the file is there too."""
        return self.options.durable or (self.posted.queue.logged and self.options.burst_buf_sync != "none")

    def check_open(self) -> None:
        """Raise if the file cannot be used any more.

        Raises
        ------
        ClosedFileError, ForkedFileError
        """
        if self.closed:
            raise self.closed_error()
        if self.forked:
            raise ForkedFileError(
                f"{self.disk.path}: the file was opened before a fork; open it again in the child process"
            )

    def closed_error(self) -> ClosedFileError:
        """What using the file raises when it is closed."""
        return ClosedFileError(f"{self.disk.path}: the file is closed; open it again to use its objects")

    def start_swmr(self) -> None:
        """Note that others read the file while it is written, which changes nothing; see `File.swmr_mode`."""
        self.swmr = True

    # -------------------------------------------------------------------------------------- requests

    def write(self, node: DatasetNode, selection: Selection, values: Any, fields: tuple[str, ...] = ()) -> int:
        """Post ``node[selection] = values``, copied; returns the request's number. See `post.write`."""
        if node.element.kind == "composite":
            composite.write(self, node, selection, values, fields)
            number = self.posted.next_number
        else:
            number = post.write(self, node, selection, values)
        if self.posted.at_once:
            if self.posted.queue.logged:
                self.drain()
            else:
                write_out(self)
        return number

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

    def read_run(self, node: DatasetNode, args: Any) -> Any:
        """``node[args]`` if that is one run of numbers in the file that nobody posted to; else None."""
        return contiguous.read_simply(self, node, args)

    def iget_run(self, node: DatasetNode, args: Any, out: Any = None) -> Request | None:
        """Post the reading of ``node[args]`` if that is one run of numbers; else None. See `iget`."""
        return contiguous.iget_run(self, node, args, out)

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
        number = self.posted.take_number()
        if node.element.kind == "composite":
            array[...] = composite.read(self, node, selection)
            return self.handle(number, "read", 0, array)
        request = self.handle(number, "read", selection.nelems * node.element.itemsize, array)
        self.posted.reads.append(fetch.PostedRead(request, node, selection, array))
        return request

    def iput_many(self, node: DatasetNode, starts: Any, counts: Any, values: Any) -> Request:
        """Post the writing of many subarrays of one dataset; `values` holds their elements one after another."""
        return self.iput(node, self.posted.decompositions.many(node.shape or (), starts, counts), values)

    def iget_many(self, node: DatasetNode, starts: Any, counts: Any, out: Any = None) -> Request:
        """Post the reading of many subarrays of one dataset into one array, one after another."""
        return self.iget(node, self.posted.decompositions.many(node.shape or (), starts, counts), out)

    def handle(self, number: int, kind: str, nbytes: int, array: Any = None, *, waits: bool = True) -> Request:
        request = Request(self, number, kind, nbytes, array)
        if nbytes and waits:
            self.posted.handles[number] = request
        else:
            request._complete()
        return request

    @property
    def unflushed(self) -> bool:
        """True if something would be lost without a flush."""
        return self.defs.dirty or not self.posted.queue.empty or self.disk.layout.drained

    def uids_posted(self) -> list[int]:
        """Variables that have posted rows."""
        return [uid for batch in self.posted.queue.batches() for uid in batch.uids()]

    def complete_reads(self, requests: Iterable[Request] | None = None) -> None:
        """Fill the arrays of posted reads: all, or those of some requests.

        Raises
        ------
        OSError
            The file could not be read; they stay posted.
        """
        wanted = None if requests is None else {request.id for request in requests}
        mine = [read for read in self.posted.reads if wanted is None or read.request.id in wanted]
        try:
            fetch.complete(self, mine)
        finally:
            self.posted.forget_reads({read.request.id for read in mine if read.request.test()})

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

    def adopt_layout(self, target: Layout) -> None:
        """Data lies where `target` has it from now on."""
        self.disk.layout = target
        self.defs.tree.history.clear()
        self.defs.widened.clear()
        self.defs.ordered_by_place = self.defs.drain_agreed = False

    def adopt_header(self, header: Header, encoded: bytes) -> None:
        """The file now begins with this header."""
        self.disk.begins_with(header, encoded)
        self.defs.tree.records = header.numrecs if record_vars(header) else 0
        self.defs.flushed_version = self.defs.tree.version

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
        return self.posted.queue.hints() if isinstance(self.posted.queue, LogQueue) else {"nc_burst_buf": "disable"}

    def statistics(self) -> dict[str, Any]:
        """Counts of what this file did since it was opened, by name."""
        last = self.last_flush and self.last_flush._asdict()
        told = {
            "bytes_spilled": self.posted.queue.spilled_bytes,
            "driver": self.disk.driver.statistics(),
            "last_flush": last,
        }
        return {**self.counts, **self.transport.statistics(), **told}
