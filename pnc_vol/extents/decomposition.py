"""A decomposition that many variables share is checked and flattened once.

Knows: shapes, lists of subarrays, runs. Does not know: variables, files, bytes.

Rules
-----
1. Equal lists give the very same `Runs`, so that who keeps them can tell by ``is``, and keeps them once.
2. Lists are compared whole, with a copy: an array that was changed since is another list. A hash takes longer than the
   comparison.
3. Subarrays that all lie at one index of the first axis are those of the other axes, moved: the lists of a variable's
   records, and of a variable without records, are the same decomposition.
"""

from __future__ import annotations

import itertools
import math
import operator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.errors import SelectionIndexError, SelectionTypeError, SelectionValueError
from pnc_vol.extents.model import LEAST_RUNS, Runs
from pnc_vol.extents.place import runs
from pnc_vol.extents.selection import Selection, listed, many
from pnc_vol.extents.subarrays import flatten, join_runs

__all__ = ["Decomposition", "Recent"]

_MOST = 16
"""Lists that are remembered."""

_MOST_RECORDS = 4
"""Records whose runs are remembered with a list."""

Shape = tuple[int, ...]
_numbers = itertools.count()


class _Flattened:
    """The runs of one list in one shape, and of the same list further down a longer axis in front."""

    __slots__ = ("_cells", "_moved", "_size", "runs", "total")

    def __init__(self, shape: Shape, starts: npt.ArrayLike, counts: npt.ArrayLike | None) -> None:
        self.runs, self.total = flatten(shape, starts, counts)
        self._size = math.prod(shape)
        self._moved: dict[int, Runs] = {}
        self._cells: Runs | None = None

    def cells(self, shape: Shape) -> Runs:
        """Return the elements in ascending order, each once; `shape` is for the message if one is there twice."""
        if self._cells is None:
            self._cells = _ascending(self.runs, shape)
        return self._cells

    def at(self, lead: int) -> Runs:
        """Return the runs in the subarray number `lead` of the axis in front."""
        if not lead:
            return self.runs
        found = self._moved.get(lead)
        if found is None:
            # The oldest goes: models write records in order, and seldom come back to one.
            while len(self._moved) >= _MOST_RECORDS:
                del self._moved[next(iter(self._moved))]
            found = self._moved[lead] = Runs(self.runs.start + lead * self._size, self.runs.length)
        return found


def _ascending(runs: Runs, shape: Shape) -> Runs:
    """Return runs in ascending order, neighbours joined; the argument itself if that is what it is."""
    start, length = runs
    if start.size and bool((start[1:] < start[:-1]).any()):
        order = np.argsort(start, kind="stable")
        start, length = start[order], length[order]
    twice = np.flatnonzero(start[1:] < (start + length)[:-1])
    if twice.size:
        index = tuple(int(i) for i in np.unravel_index(int(start[twice[0] + 1]), shape))
        raise SelectionValueError(
            f"the decomposition has the element {index} of the shape {shape} more than once; a map of what each rank "
            "owns has every element once"
        )
    return runs if start is runs.start else join_runs(Runs(start, length))


class Decomposition:
    """A list of subarrays that many datasets, or many records, are written or read by.

    It is checked and flattened when it is first used with a shape, and never again; a post by it takes memory for the
    values alone. Values come in the order of the list, which may be any; subarrays may overlap, unless the list is to
    say what this rank owns of a dataset (``create_dataset(decomposition=)``).

    Parameters
    ----------
    starts, counts : int[n, ndim]
        First index and number of elements along each axis, for each subarray; `counts` None means one element each.
        They are copied.

    Raises
    ------
    ValueError
        The two are not ``(n, ndim)``, or differ in shape.

    Examples
    --------
    >>> columns = Decomposition([[0, 1], [1, 3]], [[1, 2], [1, 1]])
    >>> columns
    <Decomposition of 2 subarrays, 2-D>
    >>> columns.select((4, 6)).result_shape
    (3,)
    """

    def __init__(self, starts: npt.ArrayLike, counts: npt.ArrayLike | None = None) -> None:
        # Copies, and read-only: what is remembered of the list must stay true.
        self._starts = np.array(starts)
        self._counts = np.ones_like(self._starts) if counts is None else np.array(counts)
        if self._starts.ndim != 2 or self._counts.shape != self._starts.shape:
            raise SelectionValueError(
                f"starts and counts of a decomposition must both be (n, ndim), not {self._starts.shape} "
                f"and {self._counts.shape}"
            )
        self._starts.setflags(write=False)
        self._counts.setflags(write=False)
        self._known: dict[Shape, _Flattened] = {}
        self.number = next(_numbers)
        """Tells which decomposition was made first."""
        self._flat = False
        self._shape: Shape | None = None

    @classmethod
    def from_runs(
        cls, offsets: npt.ArrayLike, lengths: npt.ArrayLike | None = None, shape: Shape | None = None
    ) -> Decomposition:
        """Return a decomposition from runs of elements, which are counted in C order, as in E3SM-IO's maps.

        Parameters
        ----------
        offsets : int[n]
            First element of each run, from 0.
        lengths : int[n], optional
            Elements of each run; one each by default. A run may go on in the next row.
        shape : tuple of int, optional
            The dimensions that `offsets` are about, without the record dimension. If it is given, the runs are checked
            at once, and the decomposition fits datasets of this shape alone.

        Raises
        ------
        SelectionTypeError, SelectionValueError, SelectionIndexError
            The two are no integers or differ in length, a length is negative, a run lies outside of `shape`.

        Examples
        --------
        >>> rows = Decomposition.from_runs([0, 4], [2, 3], shape=(2, 4))
        >>> rows
        <Decomposition of 2 runs in (2, 4)>
        >>> rows.select((2, 4)).result_shape
        (5,)
        """
        first = np.asarray(offsets)
        number = np.ones_like(first) if lengths is None else np.asarray(lengths)
        if first.ndim != 1 or number.shape != first.shape:
            raise SelectionValueError(
                f"offsets and lengths of a decomposition must both be (n,), not {first.shape} and {number.shape}"
            )
        made = cls(first[:, None], number[:, None])
        made._flat = True
        if shape is not None:
            made._shape = tuple(map(operator.index, shape))
            made._flattened(made._shape)
        return made

    @property
    def starts(self) -> npt.NDArray[Any]:
        """int[n, ndim], read-only."""
        return self._starts

    @property
    def counts(self) -> npt.NDArray[Any]:
        """int[n, ndim], read-only."""
        return self._counts

    def __len__(self) -> int:
        return len(self._starts)

    def __repr__(self) -> str:
        if self._flat:
            return f"<Decomposition of {len(self)} runs{f' in {self._shape}' if self._shape else ''}>"
        return f"<Decomposition of {len(self)} subarrays, {self._starts.shape[1]}-D>"

    @property
    def shape(self) -> Shape | None:
        """The dimensions that it was made for, or None if it fits all that are large enough."""
        return self._shape

    def _flattened(self, shape: Shape) -> _Flattened:
        """Return what it is in a shape, found once."""
        known = self._known.get(shape)
        if known is None:
            if self._shape not in (None, shape):
                raise SelectionValueError(f"the decomposition is of the shape {self._shape}, not of {shape}")
            within = (math.prod(shape),) if self._flat else shape
            try:
                known = self._known[shape] = _Flattened(within, self._starts, self._counts)
            except SelectionIndexError:
                if self._flat:
                    self._refuse_outside(shape)
                raise
        return known

    def _refuse_outside(self, shape: Shape) -> None:
        """Complain of the first run that lies outside, in the words of `from_runs`."""
        for i, (first, number) in enumerate(zip(self._starts[:, 0].tolist(), self._counts[:, 0].tolist(), strict=True)):
            if not 0 <= first <= math.prod(shape) - number:
                raise SelectionIndexError(
                    f"offsets[{i}] = {first}, lengths[{i}] = {number}: out of range for the {math.prod(shape)} "
                    f"elements of the shape {shape}"
                )

    def owned(self, shape: Shape) -> Runs:
        """Return the elements of a dataset, or of one of its records, of this shape, as what a rank owns of it.

        Returns
        -------
        Runs
            In ascending order, neighbours joined; the same object each time.

        Raises
        ------
        SelectionValueError
            An element is there more than once.
        SelectionTypeError, SelectionValueError, SelectionIndexError
            As of `select`.

        Examples
        --------
        >>> [column.tolist() for column in Decomposition.from_runs([7, 2, 0], [1, 2, 2]).owned((2, 4))]
        [[0, 7], [4, 1]]
        """
        return self._flattened(shape).cells(shape)

    def select(self, shape: Shape, lead: Any = None) -> Selection:
        """Return the elements of a dataset of this shape, one-dimensional, all of one subarray after those of another.

        Parameters
        ----------
        shape : tuple of int
        lead : int, optional
            The index along the first axis, for a dataset with one axis more than the decomposition; negative ones
            count from the end.

        Raises
        ------
        SelectionTypeError, SelectionValueError, SelectionIndexError
            The subarrays do not fit the shape.
        """
        at = 0
        inner = shape
        if lead is not None:
            if not shape:
                raise SelectionTypeError("a dataset without axes has no records")
            index = operator.index(lead)
            at = index + shape[0] if index < 0 else index
            if not 0 <= at < shape[0]:
                raise SelectionIndexError(f"Index ({index}) out of range for (0-{shape[0] - 1})")
            inner = shape[1:]
        known = self._flattened(inner)
        return listed(shape, known.at(at), known.total)

    @staticmethod
    def of_index(shape: Shape, index: Any) -> Selection | None:
        """Return the selection of ``decomposition`` or ``(record, decomposition)`` as an index; None for any other
        index."""
        if isinstance(index, Decomposition):
            return index.select(shape)
        last = index[-1] if isinstance(index, tuple) and index else None
        if isinstance(last, Decomposition):
            if len(index) == 1:
                return last.select(shape)
            if len(index) == 2:
                return last.select(shape, index[0])
            raise SelectionTypeError("a decomposition stands alone in an index, or behind the number of a record")
        return None


class _Kept(NamedTuple):
    """A list of subarrays and what became of it: runs of the axes from `skipped` on, at `lead` of the one before."""

    shape: Shape
    starts: npt.NDArray[Any]
    counts: npt.NDArray[Any]
    flattened: _Flattened
    skipped: int
    lead: int

    def same(self, shape: Shape, starts: npt.NDArray[Any], counts: npt.NDArray[Any], skipped: int = 0) -> bool:
        """Return whether it is this list, but for the first axes."""
        own, number = self.starts[:, skipped:], self.counts[:, skipped:]
        if shape != self.shape[skipped:] or starts.shape != own.shape or starts.dtype != own.dtype:
            return False
        # Most lists that differ do so in their first row already.
        return bool((starts[0] == own[0]).all() and (starts == own).all() and (counts == number).all())

    @property
    def nbytes(self) -> int:
        return int(self.starts.nbytes + self.counts.nbytes)


class Recent:
    """The lists of subarrays that one file met last.

    Parameters
    ----------
    most_bytes : int, of all lists that are remembered together.

    Examples
    --------
    >>> recent, rows = Recent(1 << 20), np.arange(200).reshape(100, 2)
    >>> one, two = (recent.many((300, 300), rows.copy(), np.ones((100, 2), int)) for _ in range(2))
    >>> one.listed is two.listed
    True
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._kept: list[_Kept] = []
        self._cut: list[tuple[Runs, int, Runs]] = []

    def many(self, shape: Shape, starts: Any, counts: Any) -> Selection:
        """Return `selection.many`, once for each list; `starts` may be a `Decomposition`, without `counts`."""
        if isinstance(starts, Decomposition):
            if counts is not None:
                raise SelectionTypeError("a decomposition has counts of its own: give None for them")
            return starts.select(shape)
        if not _plain(starts, len(shape)) or not _plain(counts, len(shape)) or starts.shape != counts.shape:
            return many(shape, starts, counts)
        for i, kept in enumerate(self._kept):
            if kept.same(shape, starts, counts):
                # The list that was used last stands first: it is found at once, and dropped last.
                if i:
                    self._kept.insert(0, self._kept.pop(i))
                return listed(shape, kept.flattened.at(kept.lead), kept.flattened.total)
        # One list must not push all others out.
        if starts.nbytes + counts.nbytes > self._most_bytes // 2:
            return many(shape, starts, counts)
        try:
            found = self._new(shape, starts, counts)
        except (SelectionIndexError, SelectionValueError):
            # Say it of the shape that was meant.
            return many(shape, starts, counts)
        self._kept.insert(0, found)
        while len(self._kept) > _MOST or sum(one.nbytes for one in self._kept) > self._most_bytes:
            self._kept.pop()
        return listed(shape, found.flattened.at(found.lead), found.flattened.total)

    def _new(self, shape: Shape, starts: npt.NDArray[Any], counts: npt.NDArray[Any]) -> _Kept:
        """Remember a list, by the runs of one that is the same but for its place on the first axis, if there is one."""
        lead, skipped, inner, first, number = 0, 0, shape, starts, counts
        # What models post in each record, the same list one further on the first axis, is flattened once.
        if len(shape) > 1 and bool((starts[:, 0] == starts[0, 0]).all()) and bool((counts[:, 0] == 1).all()):
            lead, skipped, inner = int(starts[0, 0]), 1, shape[1:]
            if not 0 <= lead < shape[0]:
                raise SelectionIndexError(f"{lead} is out of range for the first axis of {shape}")
            first, number = starts[:, 1:], counts[:, 1:]
        known = (kept.flattened for kept in self._kept if kept.same(inner, first, number, kept.skipped))
        flattened = next(known, None) or _Flattened(inner, first, number)
        return _Kept(shape, starts.copy(), counts.copy(), flattened, skipped, lead)

    def runs(self, selection: Selection, *, record: bool) -> Runs:
        """Return `place.runs`, once for each list."""
        whole = selection.listed
        # Only records cut runs, and to cut a short list takes no longer than to look for it.
        if whole is None or not record or len(whole.start) < LEAST_RUNS:
            return runs(selection, record=record)
        inner = math.prod(selection.shape[1:])
        for known, of, found in self._cut:
            # By identity: `many` returns the same object for the same list.
            if known is whole and of == inner:
                return found
        found = runs(selection, record=True)
        self._cut = [(whole, inner, found), *self._cut[: _MOST - 1]]
        return found


def _plain(rows: Any, ndim: int) -> bool:
    """Return whether these are subarrays that need no interpretation, and enough of them."""
    return (
        type(rows) is np.ndarray
        and rows.ndim == 2
        and rows.shape[1] == ndim
        and len(rows) >= LEAST_RUNS
        and rows.dtype.kind in "iu"
        and rows.dtype != np.uint64
    )
