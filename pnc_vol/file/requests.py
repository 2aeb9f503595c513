"""`Posted` holds the requests that are posted to an open file and not complete.

Knows: the queue, posted reads, handles. Does not know: definitions, what is on disk.

Rule
----
Of a posted write its number and bytes are kept, and no handle, which asks for its status by the number: the garbage
collector would look through 100,000 handles again and again, in a third of the time of the posts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.errors import AlreadyDoneError
from pnc_vol.extents.model import MOST_AXES
from pnc_vol.extents.place import few_runs
from pnc_vol.flush.execute import Executed
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.queue.batches import Batch, posted
from pnc_vol.queue.queue import Queue
from pnc_vol.queue.request import Request, as_out

if TYPE_CHECKING:
    from pnc_vol.extents.decomposition import Recent
    from pnc_vol.file.posted_reads import PostedRead, PostedReads

__all__ = ["Posted"]

Array = npt.NDArray[Any]

_ARRAY = np.ndarray


class Posted:
    """The requests of one file.

    Attributes
    ----------
    queue : Queue, the posted writes.
    next_number, first_number : int, of the next request, and of the first one since the last flush.
    writes : dict of int to int, the bytes of those writes that are not complete and have a handle, by number.
    failed : dict of int to error, those of `writes` that failed when they were tried last.
    cancelled : set of int, writes that had a handle and were dropped.
    kept : set of int
        Requests that hold stored values and cannot be cancelled.
    ragged : dict of uid to DatasetNode
        Arrays of varying length that were written since the last flush.
    rows_before : dict of uid to (DatasetNode, ...)
        The rows of those that are not in the file yet as it has them, for `cancel`.
    reads : PostedReads or None, those that are not complete.
    at_once : bool, writes are carried out when they are posted: MPI's atomic mode.
    written_whole : set of int
        The uids of variables of which whoever posts is going to write every element, so that none is filled.
    last_flush : FlushReport or None, of the last flush that did something.
    progress : callable or None, what the flush under way tells how far it is; see `File.flush`.
    """

    __slots__ = (
        "_recent",
        "at_once",
        "cancelled",
        "failed",
        "first_number",
        "kept",
        "last_flush",
        "next_number",
        "progress",
        "queue",
        "ragged",
        "reads",
        "rows_before",
        "writes",
        "written_whole",
    )

    def __init__(self, queue: Queue, list_bytes: int) -> None:
        self.queue = queue
        self._recent: Recent | int = list_bytes
        self.reads: PostedReads | None = None
        self.next_number = self.first_number = 1
        self.writes: dict[int, int] = {}
        self.failed: dict[int, BaseException] = {}
        self.cancelled: set[int] = set()
        self.kept: set[int] = set()
        self.at_once = False
        self.written_whole: set[int] = set()
        self.last_flush: NamedTuple | None = None
        self.progress: Callable[[int, int], None] | None = None
        self.ragged: dict[int, DatasetNode] = {}
        self.rows_before: dict[int, tuple[DatasetNode, Any]] = {}

    @property
    def decompositions(self) -> Recent:
        """The lists of runs that were posted lately."""
        if isinstance(self._recent, int):
            from pnc_vol.extents.decomposition import Recent

            # the bytes that it may take, as long as there is none
            self._recent = Recent(self._recent)
        return self._recent

    def tell_progress(self, progress: Callable[[int, int], None] | None) -> None:
        """Let the flush that begins now tell `progress` how far it is; None when it has ended."""
        self.progress = progress

    def write_whole_of(self, uids: Iterable[int]) -> None:
        """Say that every element of these variables is going to be written: none of them is filled."""
        self.written_whole.update(uids)

    def iget_run(self, session: Any, node: DatasetNode, args: Any, out: Array | None) -> Request | None:
        """Post the reading of one run of numbers; None if `args`, which is what the user said, is something else.

        See `OpenFile.iget`. It fills the columns of `ShortReads`: a call more would take a tenth of it.
        """
        found = few_runs(node.shape, args) if node.shape else None
        if found is None or found[3] > 1 or not found[1]:
            return None
        shape, waiting = found[2], self.reads
        reads = None if waiting is None else waiting.open
        if reads is None or node is not reads.node or shape != reads.shape or reads.left < reads.nbytes:
            if node.element.kind != "number" or len(shape) > MOST_AXES:
                return None
            if waiting is None:
                # few programs post reads
                from pnc_vol.file.posted_reads import PostedReads

                self.reads = waiting = PostedReads()
            reads = waiting.columns(session, node, found[1], shape)
        if out is not None and (type(out) is not _ARRAY or out.shape != shape or not out.flags.writeable):
            as_out(out, shape, node.element.dtype)
        number = self.next_number
        self.next_number = number + 1
        if reads is None:
            return waiting.post(session, number, out, node, found)  # type: ignore[union-attr]
        reads.targets.append(reads.shape if out is None else out)
        reads.numbers.append(number)
        reads.starts.append(found[0])
        reads.left -= reads.nbytes
        return reads.handle(number)

    def add_read(self, read: PostedRead) -> None:
        """Keep a posted read until it is complete."""
        if self.reads is None:
            from pnc_vol.file.posted_reads import PostedReads

            self.reads = PostedReads()
        self.reads.add(read)

    def write_at_once(self, value: bool) -> None:
        """Let writes be carried out when they are posted, or when the file is flushed."""
        self.at_once = value

    def waiting(self, session: Any) -> dict[int, Request]:
        """Return handles of the requests that are not complete, by number."""
        writes = {number: Request(session, number, nbytes) for number, nbytes in self.writes.items()}
        return dict(sorted((writes | (self.reads.single() if self.reads else {})).items()))

    def status_of(self, number: int) -> str:
        """Return what became of a write that has a handle."""
        if number in self.writes:
            return "failed" if number in self.failed else "pending"
        return "cancelled" if number in self.cancelled else "done"

    def error_of(self, number: int) -> BaseException | None:
        """Return why a write failed, if it did and was not done since."""
        return self.failed.get(number)

    def take_number(self, count: int = 1) -> int:
        """Return the number of a new request, or the first of several."""
        self.next_number += count
        return self.next_number - count

    def without_deleted(self, batches: list[Batch], datasets: Mapping[int, DatasetNode]) -> list[Batch]:
        """Return the batches without the rows of variables that are none of `datasets` any more; these are dropped."""
        deleted = {uid for batch in batches for uid in batch.uids() if uid not in datasets}
        if not deleted:
            return batches
        self.queue.forget(deleted)
        return self.queue.batches()

    def note_written(self, done: Executed) -> None:
        """Keep what was not written, and tell the handles of writes what became of them."""
        self.queue.replace(done.left)
        if not done.failed and self.queue.empty:
            # nothing is left: no request is looked for
            self.writes.clear()
            self.failed.clear()
        elif self.writes:
            failed = {request: error for (request, _), error in sorted(done.failed.items(), key=lambda item: item[0])}
            waiting = posted(done.left)
            for number in list(self.writes):
                if number in failed:
                    self.failed[number] = failed[number]
                elif number not in waiting:
                    self._forget(number)

    def _forget(self, number: int) -> None:
        del self.writes[number]
        self.failed.pop(number, None)

    def note_flush(self, report: NamedTuple) -> None:
        """A flush was done; keep the report of it."""
        self.last_flush = report
        self.first_number = self.next_number

    def cancel(self, requests: Sequence[Request] | None) -> None:
        """Drop some requests, or all that a user posted, with a handle or without.

        What reached the file stays there, also the part of a request that failed. What the library posts to keep stored
        values, when a dataset is laid out anew, is not dropped (`kept`).

        Raises
        ------
        AlreadyDoneError
            One of them was carried out; none is dropped then.
        OSError
            A log cannot record it, so that a recovery would bring it back; nothing is dropped then.
        """
        for request in requests or ():
            if request.status == "done":
                raise AlreadyDoneError(f"request {request.id} was carried out already and cannot be cancelled")
        reads = self.reads.single() if self.reads else {}
        if requests is not None:
            numbers = {request.id for request in requests if request.status != "cancelled"}
        else:
            waiting = posted(self.queue.batches())
            self.kept &= waiting
            numbers = (waiting | self.writes.keys() | reads.keys()) - self.kept
        self.queue.cancel(numbers)
        for number in numbers & self.writes.keys():
            self._forget(number)
            self.cancelled.add(number)
        for number in numbers & reads.keys():
            reads.pop(number).become("cancelled")

    def keep_rows(self, rows: dict[int, tuple[DatasetNode, Any]]) -> None:
        """Keep what `cancel` gives back to arrays of varying length from now on."""
        self.rows_before = rows
