"""`OpenFile` is the session with its verbs: `api` talks to it.

Knows: all operations, how room is made in a queue that is full. Does not know: how the others are done; the objects
that users hold.

Rules
-----
1. `flush`, `close` and collective reads are the collective calls; nothing else waits for a rank.
2. A drain writes what has a place in the file before a flush.
3. Everything here is called with `lock` held by the caller in `api`, or takes it itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pnc_vol.errors import DefinitionError, FlushError, NotYetError, RequestPendingError
from pnc_vol.extents.model import Runs
from pnc_vol.file import post
from pnc_vol.file.closing import abort, close, give_up
from pnc_vol.file.flushing import flush
from pnc_vol.file.reads import contiguous
from pnc_vol.file.registry import close_unreferenced, unreferenced
from pnc_vol.file.session import CollectorPaused, Session, WriteData, spent
from pnc_vol.late import late
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.queue.batches import NO_ROWS
from pnc_vol.queue.request import Request, as_out
from pnc_vol.warn import DEBUG, FILE, tell

if TYPE_CHECKING:
    from pnc_vol.extents.model import Selection
    from pnc_vol.file import held_ranges, posted_reads, refreshing, resizing
    from pnc_vol.file.reads import completing, composite_values, fetch
    from pnc_vol.flush import failures as failing
else:
    refreshing = late("pnc_vol.file.refreshing")
    resizing, composite_values = late("pnc_vol.file.resizing"), late("pnc_vol.file.reads.composite_values")
    # what the short paths of posts and reads leave to others
    fetch, posted_reads = late("pnc_vol.file.reads.fetch"), late("pnc_vol.file.posted_reads")
    completing = late("pnc_vol.file.reads.completing")
    # for drains
    held_ranges, failing = late("pnc_vol.file.held_ranges"), late("pnc_vol.flush.failures")

__all__ = ["OpenFile"]


class OpenFile(Session):
    """A session with its verbs; see the module."""

    def write(self, node: DatasetNode, selection: Selection, values: Any, fields: tuple[str, ...] = ()) -> int:
        """Post ``node[selection] = values``, copied; returns the request's number. See `post.write`."""
        if node.element.kind == "composite":
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
        with self.lock:
            resizing.resize(self, node, shape)

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
            return composite_values.read(self, node, selection, fields)
        # Alone too, where data are held back: a collective read brings them to the file.
        together = collective and (self.comm.size > 1 or self.epochs.holding)
        return fetch.read(self, node, selection, collective=together, out=out)

    # The short paths are functions of the session already: a call more would take a tenth of a read.
    read_run = contiguous.read_simply
    write_short, iput_short = post.write_short, post.iput_short

    def iput(self, node: DatasetNode, selection: Selection, values: Any) -> Request:
        """Post a write without a copy where that is possible; `values` must not change until it is complete."""
        if node.away is not None:
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
        array = as_out(out, selection.result_shape, node.element.dtype)
        number = self.posted.take_number()
        if node.element.kind == "composite":
            array[...] = composite_values.read(self, node, selection)
        nbytes = 0 if node.element.kind == "composite" else selection.nelems * node.element.itemsize
        request = posted_reads.PostedRead(self, number, nbytes, array, node, selection)
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
            completing.complete_posted(self, requests)
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
        completing.complete_posted(self)
        tree, layout, posted = self.defs.tree, self.disk.layout, self.posted
        batches = posted.queue.batches()
        held = {u for batch in batches if not batch.drains for u in batch.uids()}
        uids = sorted({u for batch in batches for u in batch.uids()} - held)
        places = layout.writable(tree, uids, alone=self.comm.size == 1)
        if places and not self.epochs.may_write_alone(lambda: held_ranges.spans_of(batches, places)):
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
                failures, _ = failing.failures_of(done, tree, layout, self.comm.rank)
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
                    completing.complete_all(self, what)
                    return
                with self.comm.errors_shared():
                    if self.posted.ragged:
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
        return refreshing.go_on(self)

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
