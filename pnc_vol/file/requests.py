"""The requests that are posted to an open file and not complete.

Knows: the queue, posted reads, handles. Does not know: definitions, what is on disk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.errors import AlreadyDoneError
from pnc_vol.extents.model import MOST_AXES, Runs, Selection
from pnc_vol.extents.one_run import FewRuns, few_runs
from pnc_vol.extents.place import runs
from pnc_vol.flush.choice import Weight
from pnc_vol.flush.execute import Executed
from pnc_vol.format.own_type import own_type
from pnc_vol.late import late
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.queue.batches import Batch, posted
from pnc_vol.queue.queue import Queue
from pnc_vol.queue.request import Request

if TYPE_CHECKING:
    from pnc_vol.extents import decomposition, selection
else:
    selection = late("pnc_vol.extents.selection")
    decomposition = late("pnc_vol.extents.decomposition")

__all__ = ["LEAST_LENT", "Posted", "PostedRead", "complete_with"]

Array = npt.NDArray[Any]

LEAST_LENT = 1 << 20
"""Bytes from which on an array is lent instead of copied: a batch of its own costs more than copying less."""

_ARRAY = np.ndarray
_new = object.__new__

_FEW = 64
"""Runs of a post that become rows one by one."""


class PostedRead(Request):
    """A read that waits: the handle that the user has, with what there is to be read.

    node : DatasetNode
    wanted : FewRuns or Selection
        What `few_runs` says, if it is known to be one run.
    held : (values, first) or None
        Where the values are when it is done: in memory that it shares with other reads, from element `first` on. They
        go to an array of their own when that is asked for.
    """

    # Reads are kept by the session until they are done, and know for themselves what became of them.
    __slots__ = ("_array", "_error", "_status", "held", "node", "wanted")

    kind = "read"

    def __init__(
        self, session: Any, number: int, nbytes: int, out: Array | None, node: DatasetNode, wanted: Selection
    ) -> None:
        super().__init__(session, number, nbytes)
        self.node, self._array, self._status = node, out, "pending"
        self._error: BaseException | None = None
        self.wanted: Selection | FewRuns = wanted
        self.held: tuple[Array, int] | None = None

    @property
    def array(self) -> Array:
        """The array to fill, of the selection's shape; made when it is first asked for, unless the user gave one."""
        made = self._array
        if made is None:
            held = self.held
            wanted = self.wanted
            shape = wanted.result_shape if isinstance(wanted, Selection) else wanted[2]
            if held is None:
                made = np.empty(shape, self.node.element.dtype)
            else:
                values, first = held
                made = values[first : first + math.prod(shape)].reshape(shape).copy()
            self._array, self.held = made, None
        return made

    @property
    def status(self) -> str:
        return self._status

    @property
    def error(self) -> BaseException | None:
        return self._error

    def become(self, status: str, error: BaseException | None = None) -> None:
        """It is done, or dropped, or could not be read and may be tried again."""
        self._status, self._error = status, error

    @property
    def found(self) -> Runs:
        """The runs of the selection."""
        wanted = self.wanted
        if not isinstance(wanted, Selection):
            one = Runs(np.array([wanted[0]], np.int64), np.array([wanted[1]], np.int64))
            wanted = selection.listed(self.node.shape or (), one, wanted[1])
        return runs(wanted, record=self.node.is_record)

    @property
    def run(self) -> tuple[int, int] | FewRuns | None:
        """First element, elements and perhaps more, if it is one run."""
        return self.wanted.single_run() if isinstance(self.wanted, Selection) else self.wanted


def complete_with(reads: Iterable[PostedRead], values: Array, places: Iterable[int]) -> None:
    """The values of each read are those from its place on, in an array that nobody changes."""
    # one loop over all of them: a call for each would take half of the time
    for read, first in zip(reads, places, strict=True):
        read._status, read._error = "done", None
        out = read._array
        if out is None:
            read.held = values, first
        else:
            out[...] = values[first : first + out.size].reshape(out.shape)


class Posted:
    """The requests of one file.

    Attributes
    ----------
    queue : Queue, the posted writes.
    next_number, first_number : int, of the next request, and of the first one since the last flush.
    reads : dict of int to PostedRead, those that are not complete, by number.
    writes : dict of int to int, the bytes of those writes that are not complete and have a handle, by number.
    failed : dict of int to error, those of `writes` that failed when they were tried last.
    cancelled : set of int, writes that had a handle and were dropped.
    kept : set of int
        Requests that hold stored values and cannot be cancelled.
    ragged : dict of uid to DatasetNode
        Arrays of varying length that were written since the last flush.
    rows_before : dict of uid to (DatasetNode, ...)
        The rows of those that are not in the file yet as it has them, for `cancel`.
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
        self._recent: decomposition.Recent | int = list_bytes
        self.next_number = self.first_number = 1
        self.reads: dict[int, PostedRead] = {}
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
    def decompositions(self) -> decomposition.Recent:
        """The lists of runs that were posted lately."""
        if isinstance(self._recent, int):
            # the bytes that it may take, as long as there is none
            self._recent = decomposition.Recent(self._recent)
        return self._recent

    def tell_progress(self, progress: Callable[[int, int], None] | None) -> None:
        """Let the flush that begins now tell `progress` how far it is; None when it has ended."""
        self.progress = progress

    def write_whole_of(self, uids: Iterable[int]) -> None:
        """Say that every element of these variables is going to be written: none of them is filled."""
        self.written_whole.update(uids)

    def write_run(self, node: DatasetNode, args: Any, values: Any) -> int:
        """Post ``node[args] = values`` in few steps; its bytes in the file, 0 if it is to be posted by `post.write`.

        What most writes of programs are, so that they have a way of their own, which takes a third of the time: one
        run, or a few equal ones, of numbers that can be had in the variable's own type in a few steps (`own_type`).
        What is wrong with a write is found, and told, in `post.write`; and writes that are carried out at once go that
        way, too.
        """
        element, shape = node.element, node.shape
        if element.kind != "number" or self.at_once or not shape:
            return 0
        found = few_runs(shape, args)
        if found is None:
            return 0
        start, nelems, result, number, step = found
        if not nelems:
            return 0
        dtype = element.dtype
        # the same object, mostly: to compare types takes as long as to look for the run
        if (
            type(values) is not _ARRAY
            or (values.dtype is not dtype and values.dtype != dtype)
            or values.shape != result
        ):
            if len(result) > MOST_AXES:
                return 0
            values = own_type(values, dtype, result, nelems * number)
            if values is None:
                return 0
        if node.maxshape is not None and number == 1 and type(args) is not int and node.is_record:
            # What a number selects is one record, or an element of one.
            inner = math.prod(shape[1:])
            if start // inner != (start + nelems - 1) // inner:
                # Whole records; runs of equal length, as a block has.
                number, odd = divmod(nelems, inner)
                if odd or start % inner:
                    return 0
                step = inner
        if number > 1:
            if number > _FEW or not self.queue.put_rows(node, self.next_number, values, start, number, step):
                return 0
            self.next_number += 1
            return values.nbytes  # type: ignore[no-any-return]
        if not self.queue.put_run(node, self.next_number, values, start):
            return 0
        self.next_number += 1
        return values.nbytes  # type: ignore[no-any-return]

    def post_read(self, session: Any, nbytes: int, out: Array | None, node: DatasetNode, wanted: FewRuns) -> PostedRead:
        """Post the reading of one run; `out`, if the user gave one, has its shape."""
        number = self.next_number
        self.next_number = number + 1
        # as `PostedRead(...)`, in half of its time
        made = self.reads[number] = _new(PostedRead)
        made._session, made.id, made.nbytes, made._status, made._error = session, number, nbytes, "pending", None
        made.node, made.wanted, made._array, made.held = node, wanted, out, None
        return made

    def iput_run(self, session: Any, node: DatasetNode, args: Any, values: Any) -> Request | None:
        """As `write_run`, with a handle; None if it is to be posted by `OpenFile.iput`.

        Small values are copied: it costs less than a batch of their own.
        """
        if type(values) is _ARRAY and values.nbytes >= LEAST_LENT:
            return None
        nbytes = self.write_run(node, args, values)
        if not nbytes:
            return None
        # as `Request(...)`, in half of its time
        made = _new(Request)
        made._session, made.id, made.nbytes = session, self.next_number - 1, nbytes
        self.writes[made.id] = nbytes
        return made

    def write_whole(self, node: DatasetNode, values: npt.NDArray[Any]) -> bool:
        """Post all elements of a new variable of numbers of the type of `values`; False if they do not fit in."""
        if node.maxshape is not None:
            # records are runs of their own
            return self.write_run(node, (), values) > 0
        if not self.queue.put_run(node, self.next_number, values, 0):
            return False
        self.next_number += 1
        return True

    def write_at_once(self, value: bool) -> None:
        """Let writes be carried out when they are posted, or when the file is flushed."""
        self.at_once = value

    def waiting(self, session: Any) -> dict[int, Request]:
        """Handles of the requests that are not complete, by number."""
        writes = {number: Request(session, number, nbytes) for number, nbytes in self.writes.items()}
        return dict(sorted((writes | self.reads).items()))

    def status_of(self, number: int) -> str:
        """What became of a write that has a handle."""
        if number in self.writes:
            return "failed" if number in self.failed else "pending"
        return "cancelled" if number in self.cancelled else "done"

    def error_of(self, number: int) -> BaseException | None:
        """Why a write failed, if it did and was not done since."""
        return self.failed.get(number)

    def take_number(self, count: int = 1) -> int:
        """The number of a new request, or the first of several."""
        self.next_number += count
        return self.next_number - count

    def without_deleted(self, batches: list[Batch], datasets: Mapping[int, DatasetNode]) -> list[Batch]:
        """The batches without the rows of variables that are none of `datasets` any more; these are dropped."""
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
            self.note_kept()
        elif self.writes:
            failed = {request: error for (request, _), error in sorted(done.failed.items(), key=lambda item: item[0])}
            waiting = posted(done.left)
            for number in list(self.writes):
                if number in failed:
                    self.failed[number] = failed[number]
                elif number not in waiting:
                    self._forget(number)

    def note_kept(self) -> None:
        """What is posted is in the file, or stays here until the close, copied: its handles are complete."""
        self.writes.clear()
        self.failed.clear()

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
        if requests is not None:
            numbers = {request.id for request in requests if request.status != "cancelled"}
        else:
            waiting = posted(self.queue.batches())
            self.kept &= waiting
            numbers = (waiting | self.writes.keys() | self.reads.keys()) - self.kept
        self.queue.cancel(numbers)
        for number in numbers & self.writes.keys():
            self._forget(number)
            self.cancelled.add(number)
        for number in numbers & self.reads.keys():
            self.reads.pop(number).become("cancelled")

    def keep_rows(self, rows: dict[int, tuple[DatasetNode, Any]]) -> None:
        """What `cancel` gives back to arrays of varying length from now on."""
        self.rows_before = rows

    def weight_of_reads(self, transport: int) -> Weight:
        """What the posted reads are together.

        transport : see `Weight`
        """
        reads = self.reads.values()
        runs = sum(1 if read.run is not None else len(read.found.start) for read in reads)
        return Weight(len(reads), runs, sum(read.nbytes for read in reads), transport)

    def forget_reads(self, reads: Collection[PostedRead]) -> None:
        """Drop posted reads."""
        if len(reads) == len(self.reads):
            self.reads.clear()
            return
        for read in reads:
            self.reads.pop(read.id, None)
