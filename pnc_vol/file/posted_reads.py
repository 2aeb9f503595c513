"""`PostedReads` keeps reads that are not complete: large ones one by one, small runs of numbers in columns.

Knows: datasets, runs, arrays. Does not know: places in the file, how anything is read (`reads.completing`).

Rules
-----
1. Of a small read of one run two integers are kept, and where its values go; its handle is a number and its row. So a
   program may post 100,000 of them: there is nothing for the garbage collector to look through.
2. `ShortReads` are completed together, some MiB at a time. Where one of them is to be treated by itself (it is waited
   for, cancelled, not in the file, or could not be read), it becomes a `PostedRead`, to which its handle refers then.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.extents.model import Int64, Runs, Selection
from pnc_vol.extents.place import FewRuns, runs, split_rows
from pnc_vol.flush.agree import Weight
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.queue.request import Request

__all__ = ["FEW", "PostedRead", "PostedReads", "ShortReads"]

Array = npt.NDArray[Any]

_SHORT = 64 << 10
"""Bytes of a read that is kept in columns, at most."""

_GROUP = 8 << 20
"""Bytes of those that are completed together, and whose values are in memory together."""

FEW = 16
"""Reads below which columns are not worth while: a read that is waited for as soon as it is posted takes 14 µs in
columns, and 10 as an object. So where the last columns had fewer, the next reads are objects until so many wait."""

_new = object.__new__


class PostedRead(Request):
    """A read that waits: the handle that the user has, with what there is to be read.

    node : DatasetNode
    wanted : FewRuns or Selection
        What `few_runs` says, if it is known to be one run.
    """

    # Reads are kept by the session until they are done, and know for themselves what became of them.
    __slots__ = ("_array", "_error", "_status", "node", "wanted")

    kind = "read"

    def __init__(
        self,
        session: Any,
        number: int,
        nbytes: int,
        out: Array | None,
        node: DatasetNode,
        wanted: Selection | FewRuns,
    ) -> None:
        super().__init__(session, number, nbytes)
        self.node, self._array, self._status = node, out, "pending"
        self._error: BaseException | None = None
        self.wanted: Selection | FewRuns = wanted

    @property
    def array(self) -> Array:
        """The array to fill, of the selection's shape; made when it is first asked for, unless the user gave one."""
        made = self._array
        if made is None:
            wanted = self.wanted
            shape = wanted.result_shape if isinstance(wanted, Selection) else wanted[2]
            made = self._array = np.empty(shape, self.node.element.dtype)
        return made

    @property
    def status(self) -> str:
        return self._status

    @property
    def error(self) -> BaseException | None:
        return self._error

    @property
    def given(self) -> Array | None:
        """The array to fill, if there is one already."""
        return self._array

    def take(self, values: Array) -> None:
        """It is done, and these are its values, in an array that is nobody else's or the one that is to be filled."""
        if self._array is None:
            self._array = values
        elif self._array is not values:
            self._array[...] = values
        self.become("done")

    def become(self, status: str, error: BaseException | None = None) -> None:
        """It is done, or dropped, or could not be read and may be tried again."""
        self._status, self._error = status, error

    @property
    def found(self) -> Runs:
        """The runs of the selection."""
        wanted = self.wanted
        if isinstance(wanted, Selection):
            return runs(wanted, record=self.node.is_record)
        one = Runs(np.array([wanted[0]], np.int64), np.array([wanted[1]], np.int64))
        return split_rows(one, math.prod((self.node.shape or ())[1:])) if self.node.is_record else one


class ShortReads:
    """Small reads of one run each that were posted one after another, and their values when they are done.

    session : Session
    numbers, starts : list of int, the number and the first element of each read.
    targets : list of ndarray or tuple
        The array to fill, or the shape of the one that will be made when it is asked for.
    left : int, bytes that may still be added.
    node, shape, nbytes : of the last one.
    values : list of array, one of each type, of those that are done and were to be kept.
    place : list of int, at which element of these the values of each begin.
    done : bool
    own : dict of int to PostedRead, those that are treated by themselves, by row.
    """

    __slots__ = (
        "_alike", "done", "left", "nbytes", "node", "numbers", "own", "place", "session", "shape",
        "starts", "targets", "values",
    )  # fmt: skip

    def __init__(self, session: Any) -> None:
        self.session = session
        self.numbers: list[int] = []
        self.starts: list[int] = []
        self.targets: list[Any] = []
        # of those from a row on: variable, elements and shape of the result
        self._alike: list[tuple[int, DatasetNode, int, tuple[int, ...]]] = []
        self.left = _GROUP
        self.done = False
        self.values: list[Array] = []
        self.place: list[int] = []
        self.own: dict[int, PostedRead] = {}
        self.node: DatasetNode | None = None
        self.shape: tuple[int, ...] = ()
        self.nbytes = 0

    def begin(self, node: DatasetNode, nelems: int, shape: tuple[int, ...], nbytes: int) -> None:
        """The next ones are of another variable, or have another shape."""
        self.node, self.shape, self.nbytes = node, shape, nbytes
        self._alike.append((len(self.targets), node, nelems, shape))

    def handle(self, number: int) -> Request:
        """Return the handle of the read that was posted last."""
        # as a call of the class, in half of its time
        made = _new(_ShortRead)
        made._session, made.id, made.nbytes = self.session, number, self.nbytes
        made._reads, made._row = self, len(self.starts) - 1
        return made

    @property
    def wants(self) -> tuple[bool, bool]:
        """Whether there are arrays to be filled, and values to be kept until they are asked for."""
        kinds = set(map(type, self.targets))
        return len(kinds) > (tuple in kinds), tuple in kinds

    @property
    def nodes(self) -> dict[int, DatasetNode]:
        """The variables, by uid."""
        return {node.uid: node for _, node, _, _ in self._alike}

    @property
    def table(self) -> Int64:
        """int64[n, 3], of each read: variable, first element, elements."""
        made = np.empty((len(self.targets), 3), np.int64)
        made[:, 1] = self.starts
        firsts, nodes, nelems, _ = zip(*self._alike, strict=True)
        counts = np.diff(firsts, append=len(made))
        made[:, 0] = np.repeat([node.uid for node in nodes], counts)
        made[:, 2] = np.repeat(nelems, counts)
        return made

    def _of(self, row: int) -> tuple[DatasetNode, int, tuple[int, ...]]:
        """Return the variable, elements and shape of the result of a read."""
        alike = self._alike
        return (alike[0] if len(alike) == 1 else alike[bisect_right(alike, row, key=itemgetter(0)) - 1])[1:]

    def single(self, chosen: Iterable[int]) -> list[PostedRead]:
        """Let some be treated by themselves from now on.

        chosen : rows
        """
        made = []
        for row in chosen:
            node, nelems, shape = self._of(row)
            target = self.targets[row]
            nbytes = nelems * node.element.file_dtype.itemsize
            out = None if type(target) is tuple else target
            one = PostedRead(
                self.session, self.numbers[row], nbytes, out, node, (self.starts[row], nelems, shape, 1, 0)
            )
            self.own[row] = one
            # the array is that one's, and gone with it
            self.targets[row] = shape
            made.append(one)
        return made

    def hand_out(self, chosen: Int64, values: Array, place: Int64) -> None:
        """Put values into the arrays that are there for them.

        Parameters
        ----------
        chosen : int64[n], rows
        values : array of numbers
        place : int64[n], at which of them those of each row begin.
        """
        targets = self.targets
        asked = targets if len(chosen) == len(targets) else [targets[row] for row in chosen.tolist()]
        if len(self._alike) == 1 and tuple not in set(map(type, asked)):
            # Rows of one array: numpy makes them in half of the time that slices take.
            for target, part in zip(asked, values.reshape(len(asked), *asked[0].shape), strict=True):
                target[...] = part
            return
        for target, first in zip(asked, place.tolist(), strict=True):
            if type(target) is not tuple:
                target[...] = values[first : first + target.size].reshape(target.shape)

    def become_done(self, values: list[Array], place: list[int]) -> None:
        """All but those that are treated by themselves are done; their values are there, or where the user said."""
        self.values, self.place, self.done = values, place, True

    def array_of(self, row: int) -> Array:
        """Return the array of a read that is not treated by itself."""
        shape = self.targets[row]
        if type(shape) is not tuple:
            return shape  # type: ignore[no-any-return]
        if not self.done:
            # to be filled
            made = np.empty(shape, self._of(row)[0].element.dtype)
        else:
            values, first = self.values[0], self.place[row]
            if len(self.values) > 1:
                dtype = self._of(row)[0].element.dtype
                values = next(one for one in self.values if one.dtype == dtype)
            if len(shape) == 1:
                made = values[first : first + shape[0]].copy()
            else:
                made = values[first : first + math.prod(shape)].reshape(shape).copy()
        self.targets[row] = made
        return made


class _ShortRead(Request):
    """The handle of one of `ShortReads`."""

    __slots__ = ("_reads", "_row")

    kind = "read"

    _reads: ShortReads
    _row: int

    @property
    def array(self) -> Array:
        """As of `PostedRead`."""
        reads, row = self._reads, self._row
        own = reads.own.get(row)
        return reads.array_of(row) if own is None else own.array

    @property
    def status(self) -> str:
        reads = self._reads
        own = reads.own.get(self._row)
        return own._status if own is not None else "done" if reads.done else "pending"

    @property
    def error(self) -> BaseException | None:
        own = self._reads.own.get(self._row)
        return None if own is None else own._error


class PostedReads:
    """The posted reads of one file that are not complete.

    Attributes
    ----------
    short : list of ShortReads
    open : ShortReads or None, the last of them, which may get more.
    """

    __slots__ = ("_few", "_own", "open", "short")

    def __init__(self) -> None:
        self._own: dict[int, PostedRead] = {}
        self.short: list[ShortReads] = []
        self.open: ShortReads | None = None
        # the last columns were of few reads: a program that waits for each does better without
        self._few = False

    def __len__(self) -> int:
        return len(self._own) + sum(len(reads.targets) for reads in self.short)

    def columns(self, session: Any, node: DatasetNode, nelems: int, shape: tuple[int, ...]) -> ShortReads | None:
        """Return the columns for a read of some elements of a variable of numbers; None if it is to be kept by
        itself."""
        nbytes, reads = nelems * node.element.file_dtype.itemsize, self.open
        if nbytes > _SHORT or (reads is None and self._few and len(self._own) < FEW):
            return None
        if reads is None or reads.left < nbytes:
            self.open = reads = ShortReads(session)
            self.short.append(reads)
        reads.begin(node, nelems, shape, nbytes)
        return reads

    def post(self, session: Any, number: int, out: Array | None, node: DatasetNode, found: FewRuns) -> PostedRead:
        """Keep a read of one run of numbers by itself."""
        # as `PostedRead(...)`, in half of its time
        made = self._own[number] = _new(PostedRead)
        made._session, made.id, made.nbytes = session, number, found[1] * node.element.file_dtype.itemsize
        made.node, made.wanted, made._array = node, found, out
        made._status, made._error = "pending", None
        return made

    def add(self, read: PostedRead) -> PostedRead:
        """Keep a read until it is complete."""
        self._own[read.id] = read
        return read

    def settle(self, reads: ShortReads, own: Iterable[PostedRead]) -> None:
        """Small ones are done, or treated by themselves; later ones go to other columns."""
        for one in own:
            self.add(one)
        self.short.remove(reads)
        self.open, self._few = None, len(reads.targets) < FEW

    def single(self) -> dict[int, PostedRead]:
        """Return all of them one by one, by number."""
        for reads in list(self.short):
            self.settle(reads, reads.single(range(len(reads.targets))))
        return self._own

    def are_among(self, numbers: set[int]) -> bool:
        """Return whether all that are in columns are among these."""
        return all(numbers.issuperset(reads.numbers) for reads in self.short)

    def forget(self, numbers: Iterable[int]) -> None:
        """Drop those of some numbers, which were treated one by one."""
        for number in numbers:
            self._own.pop(number, None)

    def clear(self) -> None:
        """Drop all."""
        self.single().clear()

    def weight(self, transport: int) -> Weight:
        """Return what they are together.

        transport : see `Weight`
        """
        own = self._own.values()
        runs = sum(len(read.found.start) if isinstance(read.wanted, Selection) else 1 for read in own)
        nbytes = sum(read.nbytes for read in own) + sum(_GROUP - reads.left for reads in self.short)
        return Weight(len(self), len(self) - len(own) + runs, nbytes, transport)
