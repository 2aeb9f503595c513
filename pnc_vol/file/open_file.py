"""`OpenFile` is the session with its verbs: `api` talks to it. `session_of` makes it of an opening.

Knows: all operations, how room is made in a queue that is full, the parts of a session. Does not know: how operations
are done; how a file was opened; the objects that users hold.

Rules
-----
1. `flush`, `close` and collective reads are the collective calls; nothing else waits for a rank.
2. A drain writes what has a place in the file before a flush.
3. Everything here is called with `lock` held by the caller in `api`, or takes it itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pnc_vol.disk.publish import Location
from pnc_vol.disk.stored_file import StoredFile
from pnc_vol.drivers.base import Driver
from pnc_vol.errors import DefinitionError, FlushError, NotYetError, RequestPendingError
from pnc_vol.extents.model import Runs
from pnc_vol.file import post
from pnc_vol.file.closing import abort, close, give_up
from pnc_vol.file.definitions import Definitions
from pnc_vol.file.driver_stack import context_of, open_spill, stack_of
from pnc_vol.file.flushing import flush
from pnc_vol.file.opening_record import Opening
from pnc_vol.file.reads import contiguous
from pnc_vol.file.registry import close_unreferenced, unreferenced
from pnc_vol.file.requests import Posted
from pnc_vol.file.session import CollectorPaused, FileSet, Session, WriteData, spent
from pnc_vol.flush.agree import failures_of
from pnc_vol.format.model import Header, begin_rec, data_end, inner_bytes, is_record
from pnc_vol.layout.base import Layout, NeverWritten
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.queue.batches import NO_ROWS
from pnc_vol.queue.queue import Queue
from pnc_vol.queue.request import Request, as_out
from pnc_vol.queue.stores import MEMORY, StoreContext, open_store
from pnc_vol.ranks.comm import Comm, on_root
from pnc_vol.settings.options import Options
from pnc_vol.warn import DEBUG, FILE, tell

if TYPE_CHECKING:
    from pnc_vol.extents.model import Selection
    from pnc_vol.file.held_ranges import Spans
    from pnc_vol.layout.base import ElementMap
    from pnc_vol.queue.batches import Batch

__all__ = ["OpenFile", "open_queue", "session_of"]


class OpenFile(Session):
    """A session with its verbs; see the module."""

    def write(self, node: DatasetNode, selection: Selection, values: Any, fields: tuple[str, ...] = ()) -> int:
        """Post ``node[selection] = values``, copied; returns the request's number. See `post.write`."""
        if node.element.kind == "composite":
            from pnc_vol.file.reads import composite_values

            composite_values.write(self, node, selection, values, fields)
            number = self.posted.next_number
        else:
            number = post.write(self, node, selection, values)
        if self.posted.at_once:
            if self.posted.queue.logged:
                self.drain()
            else:
                self._write_out()
            # A driver that holds bytes back must not do so here.
            self.disk.driver.holder.drain()
        return number

    def resize(self, node: DatasetNode, shape: tuple[int, ...]) -> None:
        """Give a dataset another shape. See `resizing.resize`."""
        from pnc_vol.file.resizing import resize

        with self.lock:
            resize(self, node, shape)

    def read(
        self,
        node: DatasetNode,
        selection: Selection,
        *,
        collective: bool = False,
        fields: tuple[str, ...] = (),
        out: Any = None,
    ) -> Any:
        """Return the values of a selection, own posts included. See `fetch.read`."""
        if node.element.kind == "composite":
            if collective and self.epochs.holding:
                self.epochs.drain("read")
            from pnc_vol.file.reads import composite_values

            return composite_values.read(self, node, selection, fields)
        # Alone too, where data are held back: a collective read brings them to the file.
        together = collective and (self.comm.size > 1 or self.epochs.holding)
        # what the short path leaves to others
        from pnc_vol.file.reads.fetch import read

        return read(self, node, selection, collective=together, out=out)

    # The short paths are functions of the session already: a call more would take a tenth of a read.
    read_run = contiguous.read_simply
    write_short, iput_short = post.write_short, post.iput_short

    def iput(self, node: DatasetNode, selection: Selection, values: Any) -> Request:
        """Post a write without a copy where that is possible; `values` must not change until it is complete."""
        if node.away is not None:
            from pnc_vol.file.reads import composite_values

            raise composite_values.elsewhere(node, "written")
        if node.element.kind == "composite":
            raise NotYetError(
                f"iput: the elements of {node.path!r} are stored in several variables, which one request cannot write; "
                "post it with ds[...] = x, a compound also field by field: ds['name', ...] = x"
            )
        number, queue = post.write(self, node, selection, values, lend=True), self.posted.queue
        # What is too large for the queue may be in the file already.
        waits = queue.in_blocks != number or queue.holds(number)
        return self.handle(Request(self, number, selection.nelems * node.element.itemsize), waits=waits)

    def iget(self, node: DatasetNode, selection: Selection, out: Any = None) -> Request:
        """Post a read, to be completed by `wait` or a flush.

        Raises
        ------
        TypeError
            `out` is no writable array of the selection's shape.
        """
        from pnc_vol.file.posted_reads import PostedRead

        array = as_out(out, selection.result_shape, node.element.dtype)
        number = self.posted.take_number()
        if node.element.kind == "composite":
            from pnc_vol.file.reads import composite_values

            array[...] = composite_values.read(self, node, selection)
        nbytes = 0 if node.element.kind == "composite" else selection.nelems * node.element.itemsize
        request = PostedRead(self, number, nbytes, array, node, selection)
        if nbytes:
            self.posted.add_read(request)
        else:
            request.become("done")
        return request

    def iput_many(self, node: DatasetNode, starts: Any, counts: Any, values: Any) -> Request:
        """Post the writing of many subarrays of one dataset; `values` holds their elements one after another."""
        return self.iput(node, self.posted.decompositions.many(node.shape or (), starts, counts), values)

    def iget_many(self, node: DatasetNode, starts: Any, counts: Any, out: Any = None) -> Request:
        """Post the reading of many subarrays of one dataset into one array, one after another."""
        return self.iget(node, self.posted.decompositions.many(node.shape or (), starts, counts), out)

    def wait(self, requests: Sequence[Request] | None = None) -> None:
        """Complete requests: all of them with a flush (collective), or some, without any other rank.

        Raises
        ------
        RequestPendingError
            Under MPI, a write to a variable that has no place in the file before the next flush.
        """
        with self.lock:
            self.check_open()
            # PnetCDF has two functions for this, and modes that say which may be called; here the arguments say it.
            if requests is None:
                self.flush()
                return
            self._complete_reads(requests)
            late = [request for request in requests if not request.test()]
            if late:
                self._write_out()
                late = [request for request in late if not request.test()]
            if late and self.comm.size == 1:
                self.flush()
            elif late:
                raise RequestPendingError(
                    f"request {late[0].id} writes to a variable that has no place in the file yet: "
                    "flush the file (all ranks), then the request is done"
                )

    def _complete_reads(self, requests: Sequence[Request] | None = None) -> None:
        """Fill the arrays of posted reads. See `completing.complete_posted`."""
        if self.posted.reads is not None:
            from pnc_vol.file.reads.completing import complete_posted

            complete_posted(self, requests)

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
            wanted = None if requests is None else list(requests)
            for request in wanted or ():
                if not request.of(self):
                    text = f"{request!r} was posted to another file than {self.disk.path}; cancel it there"
                    raise DefinitionError(text)
            self.posted.cancel(wanted)
            if wanted is None:
                from pnc_vol.file.reads import composite_values

                composite_values.restore(self)

    # ---------------------------------------------------------------------------------- carrying out

    def drain(self) -> None:
        """Make room: write what has a place in the file, spill the rest. Never waits for a rank.

        Raises
        ------
        FlushError
            Something could not be written; it stays posted.
        OSError
            The spill file could not be written.
        """
        queue = self.posted.queue
        if queue.logged and self.comm.size == 1:
            # A log is emptied only when the header is written, and one process may do that at any time.
            self.flush()
            return
        self._write_out()
        queue.fall_back()
        queue.spill()

    def _write_out(self) -> None:
        """Write what has a place in the file. Never waits for a rank.

        Raises
        ------
        FlushError
            Something could not be written; it stays posted.
        """
        self._complete_reads()
        tree, layout, posted = self.defs.tree, self.disk.layout, self.posted
        batches = posted.queue.batches()
        held = {u for batch in batches if not batch.drains for u in batch.uids()}
        uids = sorted({u for batch in batches for u in batch.uids()} - held)
        places = layout.writable(tree, uids, alone=self.comm.size == 1)
        if places and not self.epochs.may_write_alone(lambda: _spans(batches, places)):
            # Another rank may hold earlier data of these elements: the next flush waits for them.
            return
        if places:
            # Asked before: rows that were written are forgotten.
            filled = [uid for uid in places if tree.datasets[uid].fillvalue is not None]
            rows = {uid: np.concatenate([batch.rows(uid) for batch in batches]) for uid in filled}
            done = self.transport.execute(self.disk.driver, batches, places, affine=layout.affine)
            layout.note_written(tree, list(places))
            for uid, own in rows.items():
                left = np.concatenate([NO_ROWS[:, 0], *(batch.rows(uid)[:, 0] for batch in done.left)])
                there = own[~np.isin(own[:, 0], left)] if len(left) else own
                layout.note_elements(tree.datasets[uid], Runs(there[:, 1], there[:, 2]))
            posted.note_written(done)
            self.counts["drains"] += 1
            tell(FILE, DEBUG, "%s: the queue was full: %d bytes were written", self.disk.path, done.nbytes)
            if done.failed:
                failures, _ = failures_of(done, tree, layout, self.comm.rank)
                raise FlushError(
                    f"the queue is full and could not be written: {failures[0].message} (see .errors); "
                    "what was posted stays posted",
                    failures,
                )

    def flush(
        self,
        *,
        durable: bool | None = None,
        carried: bool = False,
        what: str = "flush",
        write: WriteData | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Carry out all that is posted (collective). See `flushing.flush`, and `File.flush` for `progress`."""
        if unreferenced:
            close_unreferenced()
        with CollectorPaused(), self.lock:
            since = time.perf_counter()
            try:
                if self.closed or self.forked:
                    self.check_open()
                if not self.writable:
                    from pnc_vol.file.reads.completing import complete_all

                    complete_all(self, what)
                    return
                with self.comm.errors_shared():
                    if self.posted.ragged:
                        from pnc_vol.file.reads import composite_values

                        composite_values.post_rows(self)
                    if progress is not None:
                        self.posted.tell_progress(progress)
                    try:
                        durable = self.always_durable if durable is None else durable
                        flush(self, durable=durable, carried=carried, what=what, write=write)
                    finally:
                        if progress is not None:
                            self.posted.tell_progress(None)
                        if self.posted.rows_before:
                            from pnc_vol.file.reads import composite_values

                            composite_values.keep_unflushed(self)
            finally:
                spent["close" if what == "close" else "write"] += time.perf_counter() - since

    # --------------------------------------------------------------------------------------- closing

    def close(self, *, again: bool = False, unheard: bool = False) -> None:
        """Flush and let go of the file (collective); a second call does nothing.

        again : bool, leave a file that was flushed and cannot get its name (``publish="close"``) open: the caller calls
            this once more.
        unheard : bool, nobody can be told of an interruption, as in a destructor: one that comes before
            the flush has returned lets go of nothing, and this is to be called once more.

        Raises
        ------
        FlushError
            Requests failed. The file is closed nevertheless: what they should have written is lost, unless it is
            in a log (``nc_burst_buf``), which is kept.
        SyncError
            The file was to be durable and an earlier fsync failed. What was posted was written nevertheless, and a log
            is kept.
        """
        with CollectorPaused(), self.lock:
            close(self, again=again, unheard=unheard)

    def give_up(self) -> None:
        """Let go of the file without a flush (collective): it stays as the last flush has left it."""
        with self.lock:
            give_up(self)

    def abort(self, reason: str) -> None:
        """Let go of the file without a flush and without waiting; the other ranks are told why."""
        with self.lock:
            abort(self, reason)

    def go_on_in_child(self) -> str:
        """Open a file that is read again, in a forked child; why that cannot be, or "". See `refreshing.go_on`."""
        from pnc_vol.file.refreshing import go_on

        return go_on(self)

    def log_hints(self) -> dict[str, str]:
        """Return PnetCDF's hints of the burst buffer, as they are in force."""
        return self.posted.queue.hints()

    def statistics(self) -> dict[str, Any]:
        """Return the counts of what this file did since it was opened, by name."""
        last = self.posted.last_flush
        parts = {
            "bytes_spilled": self.posted.queue.spilled_bytes,
            "driver": self.disk.driver.statistics(),
            "last_flush": None if last is None else last._asdict(),
        }
        return {**self.counts, **self.transport.statistics(), **self.comm.traffic.statistics(), **parts}


def _spans(batches: Sequence[Batch], places: Mapping[int, ElementMap]) -> Spans:
    """Return the bytes that a drain writes, for drivers that hold bytes back."""
    from pnc_vol.file.held_ranges import spans_of

    return spans_of(batches, places)


# ------------------------------------------------------------------------------------ made of what an opening found


def session_of(opening: Opening, *, defs: Definitions | None = None, file_set: FileSet | None = None) -> OpenFile:
    """Return the session of a file that was just opened (collective).

    defs : Definitions, optional, those of a subfile; the tree of `opening` is theirs.
    file_set : FileSet, optional, the files of which the session is, instead of one file.
    """
    tree, header, comm, created = opening.tree, opening.header, opening.comm, opening.way == "create"
    assert opening.layout is not None
    assert opening.driver is not None
    options = _with_layout(opening.options, opening.layout.name)
    # Several ranks compare what they define, which each may have made in another way.
    as_read = opening.writable and not created and comm.size == 1 and defs is None and file_set is None
    defs = defs or Definitions(tree, header.version)
    layout = opening.layout(options) if file_set is None else file_set.layout(options)
    if file_set is None:
        layout.unwritten = _never_written(header, len(opening.content), opening.size)
    layout.adopt(header, tuple(tree.datasets), tree.datasets)
    tree.history.clear()
    driver = _over(opening, layout, options)
    disk = StoredFile(
        opening.path,
        driver,
        opening.location,
        layout,
        created=created,
        collective=file_set is None and comm.size > 1 and opening.driver.capabilities.collective,
        # A file that has its name already keeps it: what a flush promised must be under it.
        keep_unpublished=options.publish == "close" and created,
        may_be_longer=opening.writable and not layout.unwritten.reads_zero,
        named_by=None if file_set is None else lambda: file_set.location,
    )
    disk.begins_with(header, opening.content)
    defs.flushed(header)
    if as_read:
        defs.begin_as_read(layout, opening.content)
    queue = open_queue(disk, options, comm, writable=opening.writable)
    if len(queue.stores) > 1:
        # Stores beside memory find by the header which definitions the file has.
        disk.before_header.append(queue.about_to_write)
    posted = Posted(queue, options.buffer_size // 8)
    return OpenFile(options, comm, defs=defs, disk=disk, posted=posted, writable=opening.writable, file_set=file_set)


_LEAST_GAP = 4
"""Bytes of the smallest variable: less is padding."""


def _never_written(header: Header, nbytes: int, size: int) -> NeverWritten:
    """Return what is known of bytes without data, in a file of `size` bytes whose header takes `nbytes`."""
    if not header.vars:
        return NeverWritten(reads_zero=size <= nbytes)
    gaps, records = False, begin_rec(header)
    if records is not None:
        # whether a variable would find room before the records
        ends = [var.begin + inner_bytes(header, var) for var in header.vars if not is_record(header, var)]
        gaps = records - max(ends, default=nbytes) >= _LEAST_GAP
    return NeverWritten(reads_zero=size <= max(data_end(header), nbytes), stale_gaps=gaps)


def _with_layout(options: Options, layout: str) -> Options:
    """Return the options with the layout that the file has."""
    if _last[0] is not options or _last[1].layout != layout:
        # The options of most files are one object.
        _last[:] = options, options._replace(layout=layout)
    return _last[1]


_last = [Options()] * 2
"""Options of the last file, as asked for and with its layout."""


def _over(opening: Opening, layout: Layout, options: Options) -> Driver:
    """Return the driver of the layout's addresses; if it cannot be had, nothing of the file stays open."""
    assert opening.driver is not None
    if layout.self_contained:
        return opening.driver
    context = context_of(options, opening.comm, writable=opening.writable)
    spec = stack_of(options, opening.comm)
    try:
        return layout.over(opening.driver, opening.path, spec, context, created=opening.way == "create")
    except BaseException:
        if not opening.driver.capabilities.collective:
            opening.driver.close()
        if opening.location is not None:
            if opening.way == "create" and opening.comm.rank == 0:
                opening.location.discard()
            opening.location.held.release()
        raise


def open_queue(disk: StoredFile, options: Options, comm: Comm, *, writable: bool) -> Queue:
    """Return the queue, with the store in front that the options ask for (collective)."""
    queue = Queue(options.buffer_size, lambda: open_spill(disk, options.system))
    name = "log" if options.burst_buf else options.store
    location = disk.location
    if name == MEMORY or not writable or disk.standing is None:
        return queue
    try:
        queue.put_in_front(open_store(name, StoreContext(queue.backlog, options, comm, disk)))
        if location is not None and not disk.keep_unpublished:
            _publish_new(location, options, comm)
        return queue
    except BaseException as error:
        if comm.in_step(error):
            queue.close(flushed=True)
            disk.driver.close()
            if location is not None and comm.rank == 0:
                location.discard()
            if location is not None:
                location.held.release()
        raise


def _publish_new(location: Location, options: Options, comm: Comm) -> None:
    """Give a file that waited for its log its name (collective)."""
    if location.published:
        return

    def publish() -> None:
        if location.replaces:
            location.sync_data()
        location.publish(durable=options.durable or options.burst_buf_sync != "none")

    on_root(comm, "open publish", publish)
    location.note_published()
