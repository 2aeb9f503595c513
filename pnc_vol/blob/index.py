"""`ElementIndex` finds the elements of one map in all subfiles.

Knows: runs, maps, numbers of parts. Does not know: variables, bytes, files.

Rules
-----
1. One index serves all variables of a map. It takes 16 bytes for each piece: elements in ascending order that lie one
   behind the other in one *part*, or in none. A part is what lies together of every variable of the map: of a subfile
   of PnetCDF blobs all of it, of HDF5 blobs each blob. Neighbours are joined, whichever blobs of a part they come from.
2. An element is in one blob at most: an index of blobs that overlap is refused, by an error that says where they do.
3. No Python loop runs over runs: an index of 2,000,000 runs of one element is made in 0.4 s, and gives all places in
   0.3 s. A place is found by a binary search and an addition, also where elements are in no blob.
4. Memory is bounded: the index of a map with many runs is made for one *window* of its elements at a time, the one that
   is asked for (`BoundedIndex`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.blob.maps import SubfileMap
from pnc_vol.errors import FormatError, LimitError
from pnc_vol.extents.merge import coalesced
from pnc_vol.extents.model import Int64, Runs, before, distinct, spread

__all__ = ["BoundedIndex", "ElementIndex", "Pieces", "index_of"]

_MOST_RUNS = 1 << 21  # of a window: at most 64 MiB of index, and 220 MiB while it is made
_BUCKETS = 1 << 16
_SHIFT = 42  # 2,097,152 parts of 4,398,046,511,103 elements
_POSITION = (1 << _SHIFT) - 1


class Pieces(NamedTuple):
    """Runs of elements, cut where they lie in different places.

    start, length : int64[n], elements.
    place : int64[n], elements of the caller's runs before this piece.
    part : int64[n], the number of the part; -1 where the elements are in no blob.
    position : int64[n]
        Elements from the beginning of the part; of a piece in no blob its number among the
        elements that are in none.
    run : int64[n], which of the caller's runs it is of.
    """

    start: Int64
    length: Int64
    place: Int64
    part: Int64
    position: Int64
    run: Int64


class _Gathered:
    """The runs of all blobs within a window, sorted by their first elements, and which blob each is of.

    below : int, elements in blobs below the window.
    """

    def __init__(self, nelems: int, parts: Iterable[tuple[int, SubfileMap]], name: str, low: int, high: int) -> None:
        self.name, self.below = name, 0
        self.names: dict[int, tuple[str, Int64]] = {}
        columns: tuple[list[Int64], list[Int64], list[Int64]] = [], [], []
        for part, one in parts:
            if one.nelems > _POSITION:
                text = f"{name}: {one.nelems} elements lie together, and no more than {_POSITION} can be found"
                raise LimitError(text, field="nelems", value=one.nelems)
            self.names[part] = one.name, one.starts
            start, length = (np.concatenate([np.empty(0, np.int64), *(r[i] for r in one.blobs)]) for i in (0, 1))
            home = before(length) + (part << _SHIFT)
            outside = np.flatnonzero((start < 0) | (start > nelems - length))
            if outside.size:
                i = int(outside[0])
                text = f"{self.blob(int(home[i]))}: {_range(int(start[i]), int(length[i]))} of {nelems} elements"
                raise FormatError(f"{text}: the run lies outside", field="offsets", value=int(start[i]))
            if low > 0 or high < nelems:
                self.below += int((np.minimum(start + length, low) - np.minimum(start, low)).sum())
                cut = np.maximum(low - start, 0)
                start, home, length = start + cut, home + cut, np.minimum(start + length, high) - start - cut
            # an empty run would look like an overlap with the run that has its first element
            there = length > 0
            for column, values in zip(columns, (start, length, home), strict=True):
                column.append(values if there.all() else values[there])
        self.start, self.length, self.home = map(_joined, columns)
        if bool((self.start[1:] < self.start[:-1]).any()):
            order = np.argsort(self.start, kind="stable")
            # column by column: only one of them is in memory twice
            self.start = self.start[order]
            self.length = self.length[order]
            self.home = self.home[order]

    def blob(self, home: int) -> str:
        """Return what a blob is called in messages."""
        part, position = home >> _SHIFT, home & _POSITION
        name, starts = self.names[part]
        number = int(np.searchsorted(starts, position, side="right")) - 1
        return f"{self.name}: {name or f'subfile {part:04d}, blob {number}'}"

    def overlaps(self) -> npt.NDArray[np.intp]:
        """Return the runs that begin within one before."""
        reach = np.maximum.accumulate(self.start + self.length)
        return np.flatnonzero(self.start[1:] < reach[:-1]) + 1

    def refusal(self, nelems: int, overlaps: npt.NDArray[np.intp]) -> FormatError:
        """Return the error of blobs that overlap: two pairs of them, and how many of `nelems` elements, those of the
        window, are in blobs, in none, and in several."""
        covered = int(coalesced(Runs(self.start, self.length)).length.sum())
        # The blobs that hold the elements between two bounds are those that began less those that ended.
        ends = np.sort(self.start + self.length)
        bounds = distinct(np.concatenate((self.start, ends)))
        depth = np.searchsorted(self.start, bounds, side="right") - np.searchsorted(ends, bounds, side="right")
        several = int(np.diff(bounds)[depth[:-1] > 1].sum())
        named = [self.conflict(int(i)) for i in overlaps[:2]] + ["and others"] * (overlaps.size > 2)
        counts = f"of {nelems} elements {covered} are in blobs, {nelems - covered} in none, {several} in several"
        return FormatError("; ".join((*named, counts)), field="offsets", value=int(self.start[overlaps[0]]))

    def conflict(self, i: int) -> str:
        """Run `i` and one before it that has its first element."""
        at = int(self.start[i])
        j = int(np.flatnonzero((self.start + self.length)[:i] > at)[-1])
        end = min(int((self.start + self.length)[n]) for n in (i, j))
        other = self.blob(int(self.home[j])).removeprefix(f"{self.name}: ")
        return f"{self.blob(int(self.home[i]))} and {other} both have {_range(at, end - at)}"


def _joined(columns: list[Int64]) -> Int64:
    """Return one array; the list is emptied, so that no more is held than needed."""
    made = np.concatenate([np.empty(0, np.int64), *columns])
    columns.clear()
    return made


_NO_PIECES = Pieces(*(np.empty(0, np.int64) for _ in Pieces._fields))


def _range(start: int, length: int) -> str:
    return f"element {start}" if length == 1 else f"elements {start} to {start + length - 1}"


class ElementIndex:
    """An index that finds the elements of a map in the subfiles.

    Parameters
    ----------
    nelems : int, elements of the map's dimensions.
    parts : iterable of (int, SubfileMap), the number of each part and what it holds; taken one after another.
    name : str, of the set of files and the map, for messages, such as ``"out.nc: D2"``.
    window : (int, int), optional
        The elements that it is for, and that it can locate.

    Raises
    ------
    FormatError
        Blobs overlap, or one has elements outside; it names the subfiles, the blobs and the elements.

    Examples
    --------
    >>> halves = [Runs(np.array(start), np.array(length)) for start, length in (([0, 6], [3, 2]), ([3], [2]))]
    >>> index = ElementIndex(10, [(n, SubfileMap((10,), (0,), (halves[n],))) for n in (0, 1)])
    >>> found = index.locate(Runs(np.array([2]), np.array([5])))
    >>> found.start.tolist(), found.part.tolist(), found.position.tolist()
    ([2, 3, 5, 6], [0, 1, -1, 0], [2, 0, 0, 3])
    >>> index.uncovered()
    3
    """

    __slots__ = ("_home", "_start", "nelems")

    def __init__(
        self,
        nelems: int,
        parts: Iterable[tuple[int, SubfileMap]],
        name: str = "the map",
        window: tuple[int, int] | None = None,
    ) -> None:
        low, high = window or (0, nelems)
        found = _Gathered(nelems, parts, name, low, high)
        overlaps = found.overlaps()
        if overlaps.size:
            raise found.refusal(high - low, overlaps)
        self._take(Runs(found.start, found.length), found.home, low, high, low - found.below)
        self.nelems = nelems

    @classmethod
    def of_blob(cls, nelems: int, runs: Runs, part: int, position: int) -> ElementIndex:
        """Return the index of a single blob, whose runs are sorted and disjoint, at a position in its part."""
        made = cls.__new__(cls)
        made._take(runs, before(runs.length) + (part << _SHIFT) + position, 0, nelems, 0)
        made.nelems = nelems
        return made

    def _take(self, runs: Runs, home: Int64, first: int, last: int, holes_before: int) -> None:
        """Keep sorted, disjoint runs from `first` to `last`, and what lies between them.

        A piece ends where the next one begins. Its home is part and position in one number; that of a piece in no
        blob is negative, and says how many such elements are before it.
        """
        start, length = runs
        end = start + length
        apart = (start[1:] != end[:-1]) | (home[1:] != home[:-1] + length[:-1])
        heads = np.flatnonzero(np.concatenate((np.ones(min(1, start.size), bool), apart)))
        tails = np.append(heads[1:] - 1, start.size - 1)[: heads.size]
        start, end, home = start[heads], end[tails], home[heads]
        # at most one hole before each piece, and one behind the last
        low, high = np.concatenate(([first], end)), np.append(start, last)
        holes = np.flatnonzero(low < high)
        into = np.arange(start.size) + np.cumsum((low < high)[:-1])
        at = holes + np.arange(holes.size)
        self._start = np.empty(start.size + holes.size + 1, np.int64)
        self._home = np.empty(start.size + holes.size, np.int64)
        self._start[into], self._home[into] = start, home
        self._start[at], self._home[at] = low[holes], ~(before(high[holes] - low[holes]) + holes_before)
        self._start[-1] = last

    def locate(self, runs: Runs) -> Pieces:
        """Locate runs of elements.

        Parameters
        ----------
        runs : Runs, in any order, within ``nelems``; they may overlap.

        Returns
        -------
        Pieces
            In the order of the runs.
        """
        start, length = runs
        end = start + length
        first = np.searchsorted(self._start, start, side="right") - 1
        count = np.searchsorted(self._start, end, side="left") - first
        count[length <= 0] = 0
        if count.size and int(count.min()) == 1 == int(count.max()):
            run, piece, low, high = np.arange(start.size, dtype=np.int64), first, start, end
        else:
            run, step = spread(count)
            piece = first[run] + step
            low = np.maximum(self._start[piece], start[run])
            high = np.minimum(self._start[piece + 1], end[run])
        home = self._home[piece]
        # a negative home (in no blob) gives the part -1, because the shift keeps the sign
        part = home >> _SHIFT
        position = np.where(home < 0, ~home, home & _POSITION) + (low - self._start[piece])
        return Pieces(low, high - low, low - start[run] + before(length)[run], part, position, run)

    def uncovered(self) -> int:
        """Return the number of elements that are in no blob."""
        at = np.flatnonzero(self._home < 0)
        return int((self._start[at + 1] - self._start[at]).sum())


class BoundedIndex(ElementIndex):
    """An index that takes no more memory than a window of the map's elements needs.

    Parameters
    ----------
    nelems : int, elements of the map's dimensions.
    parts : function
        Gives what `ElementIndex` takes, from the beginning, each time it is called: it reads the maps of the subfiles
        again for each window. What it gives one by one is never held together.
    name : str, as of `ElementIndex`.
    most : int, runs in a window.

    Raises
    ------
    FormatError
        A blob has elements outside. That blobs overlap is found when their window is needed.

    Examples
    --------
    >>> two = SubfileMap((10,), (0,), (Runs(np.array([0, 6]), np.array([3, 2])), Runs(np.array([3]), np.array([2]))))
    >>> index = BoundedIndex(10, lambda: [(0, two)], most=2)
    >>> index.windows.tolist(), index.uncovered()
    ([0, 6, 10], 3)
    >>> index.locate(Runs(np.array([4]), np.array([3]))).position.tolist()
    [6, 0, 3]
    """

    __slots__ = ("_held", "_name", "_parts", "windows")

    def __init__(
        self,
        nelems: int,
        parts: Callable[[], Iterable[tuple[int, SubfileMap]]],
        name: str = "the map",
        *,
        most: int,
    ) -> None:
        self.nelems, self._parts, self._name = nelems, parts, name
        self._held: tuple[int, ElementIndex] | None = None
        step = -(-nelems // _BUCKETS)
        buckets = np.zeros(_BUCKETS, np.int64)
        for _, one in parts():
            for runs in one.blobs:
                buckets += np.bincount(np.clip(runs.start // step, 0, _BUCKETS - 1), minlength=_BUCKETS)
        # A window ends where the next bucket would make it too large.
        number = (np.cumsum(buckets) - 1) // most
        cuts = (np.flatnonzero(number[1:] > number[:-1]) + 1) * step
        self.windows = np.concatenate(([0], cuts[cuts < nelems], [nelems]))

    def _window(self, number: int) -> ElementIndex:
        if self._held is None or self._held[0] != number:
            self._held = None
            within = int(self.windows[number]), int(self.windows[number + 1])
            self._held = number, ElementIndex(self.nelems, self._parts(), self._name, within)
        return self._held[1]

    def locate(self, runs: Runs) -> Pieces:
        """See `ElementIndex.locate`."""
        start, end = runs.start, runs.start + runs.length
        first = np.searchsorted(self.windows, start, side="right") - 1
        count = np.searchsorted(self.windows, end, side="left") - first
        count[runs.length <= 0] = 0
        run, step = spread(count)
        window = first[run] + step
        low = np.maximum(self.windows[window], start[run])
        high = np.minimum(self.windows[window + 1], end[run])
        place = low - start[run] + before(runs.length)[run]
        parts = []
        for number in distinct(window).tolist():
            at = np.flatnonzero(window == number)
            found = self._window(number).locate(Runs(low[at], high[at] - low[at]))
            of = at[found.run]
            parts.append(found._replace(place=place[of] + (found.start - low[of]), run=run[of]))
        if len(parts) == 1:
            return parts[0]
        made = Pieces(*(_joined(list(columns)) for columns in zip(*parts, strict=True))) if parts else _NO_PIECES
        order = np.argsort(made.place, kind="stable")
        return Pieces(*(column[order] for column in made))

    def uncovered(self) -> int:
        """See `ElementIndex.uncovered`."""
        return sum(self._window(number).uncovered() for number in range(self.windows.size - 1))


def index_of(
    nelems: int, parts: Callable[[], Iterable[tuple[int, SubfileMap]]], name: str, *, most: int
) -> ElementIndex:
    """Return the index of a map: all of it at once if it has few runs, else a `BoundedIndex`; parameters as of these.

    most : int, the number of runs is not larger, as the headers say.
    """
    if most <= _MOST_RUNS:
        return ElementIndex(nelems, parts(), name)
    return BoundedIndex(nelems, parts, name, most=_MOST_RUNS)
