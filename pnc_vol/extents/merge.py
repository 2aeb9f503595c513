"""Extents are made few, disjoint and sorted, and are intersected: this is the hot path of a flush.

Knows: extents, runs. Does not know: variables, requests, files.

Rules
-----
1. No Python loop runs over extents; every step costs O(n log n) at most, however the extents overlap.
2. Sorted and disjoint input, the usual case, is recognised in one pass and not sorted.
3. Where extents overlap, the one that comes later in the input was posted later and wins.
4. No result holds an empty extent.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numpy import count_nonzero

from pnc_vol.extents.model import Extents, Int64, Runs, before, distinct, spread

__all__ = [
    "EMPTY",
    "Ranges",
    "coalesce",
    "coalesced",
    "intersect",
    "last_wins",
    "ranges_of",
    "stable_order",
    "united",
    "within",
]


def coalesce(extents: Extents) -> Extents:
    """Join neighbours in the list that adjoin both in the file and in memory; the order stays.

    Parameters
    ----------
    extents : Extents, in any order.

    Returns
    -------
    Extents
        The same bytes in fewer extents; the argument itself if there is nothing to join.

    Examples
    --------
    >>> coalesce(Extents(*(np.array(c) for c in ([0, 4, 9], [4, 2, 1], [0, 4, 6])))).length.tolist()
    [6, 1]
    """
    return _joined(_without_empty(extents))


def _joined(extents: Extents) -> Extents:
    """Do as `coalesce` does, of extents that are not empty."""
    offset, length, place = extents
    if offset.size < 2:
        return extents
    ahead = length[:-1]
    joined = offset[:-1] + ahead == offset[1:]
    if not count_nonzero(joined):
        return extents
    joined &= place[:-1] + ahead == place[1:]
    number = count_nonzero(joined)
    if not number:
        return extents
    if number == joined.size:
        return Extents(offset[:1], np.add.reduce(length, keepdims=True), place[:1])
    heads = np.concatenate(([0], (~joined).nonzero()[0] + 1))
    return Extents(offset[heads], np.add.reduceat(length, heads), place[heads])


def last_wins(extents: Extents) -> Extents:
    """Return what the file holds after the extents are written one after another, in disjoint extents.

    Parameters
    ----------
    extents : Extents, in posting order.

    Returns
    -------
    Extents
        Sorted by offset, disjoint, joined where both sides adjoin.

    Examples
    --------
    >>> last_wins(Extents(*(np.array(c) for c in ([0, 2], [6, 2], [0, 6]))))._asdict()
    {'offset': array([0, 2, 4]), 'length': array([2, 2, 2]), 'place': array([0, 6, 4])}
    """
    posted = _without_empty(extents)
    if posted.offset.size < 2:
        return posted
    if count_nonzero(posted.offset[1:] == (posted.offset + posted.length)[:-1]) == posted.offset.size - 1:
        # One stretch of the file, as records of variables that are written together: sorted and disjoint.
        return _joined(posted)
    ranks: Int64 | None = None
    made = posted
    if count_nonzero(posted.offset[1:] < posted.offset[:-1]):
        ranks = stable_order(posted.offset)
        made = _taken(posted, ranks)
    if not count_nonzero(_overlaps(made)):
        return _joined(made)
    if ranks is None:
        ranks = np.arange(made.offset.size, dtype=np.int64)
    again = (made.offset[1:] == made.offset[:-1]) & (made.length[1:] == made.length[:-1])
    if again.any():
        # The same extent written once more, the commonest overlap, needs no cutting.
        last = np.concatenate((~again, [True])).nonzero()[0]
        made, ranks = _taken(made, last), ranks[last]
    overlaps = _overlaps(made)
    involved = np.zeros(made.offset.size, bool)
    involved[1:] = overlaps
    involved[:-1] |= overlaps
    members = involved.nonzero()[0]
    if not members.size:
        return _joined(made)
    pieces = _resolve(posted, made.offset[members], (made.offset + made.length)[members], ranks[members])
    if members.size == made.offset.size:
        return coalesce(pieces)
    alone = _taken(made, (~involved).nonzero()[0])
    both = Extents(*(np.concatenate(columns) for columns in zip(alone, pieces, strict=True)))
    # Two sorted lists: a stable sort merges them in linear time.
    return coalesce(_taken(both, np.argsort(both.offset, kind="stable")))


def _taken(extents: Extents, which: npt.NDArray[np.intp]) -> Extents:
    return Extents(extents.offset[which], extents.length[which], extents.place[which])


def _overlaps(extents: Extents) -> npt.NDArray[np.bool_]:
    """Return whether each extent but the first, of a list sorted by offset, overlaps any before it."""
    # A long extent reaches over many that follow, so the end of the one before is not enough.
    reach = np.maximum.accumulate(extents.offset + extents.length)
    return extents.offset[1:] < reach[:-1]


def _without_empty(extents: Extents) -> Extents:
    if count_nonzero(extents.length) == extents.length.size:
        return extents
    return _taken(extents, extents.length.nonzero()[0])


def stable_order(offset: Int64) -> Int64:
    """Return ``argsort(offset, kind="stable")``, in a fraction of its time where offset and number share 63 bits."""
    lowest = int(offset.min())
    bits = int(offset.size - 1).bit_length()
    if (int(offset.max()) - lowest).bit_length() + bits > 63:
        return np.argsort(offset, kind="stable").astype(np.int64, copy=False)
    # The number of each extent in the low bits: plain integers are sorted, and equal offsets stay in their order.
    keys = offset - lowest
    keys <<= bits
    keys |= np.arange(offset.size, dtype=np.int64)
    keys.sort()
    keys &= (1 << bits) - 1
    return keys


def _resolve(posted: Extents, offset: Int64, end: Int64, ranks: Int64) -> Extents:
    """Return disjoint pieces of overlapping extents.

    Parameters
    ----------
    posted : Extents, all of them, in posting order.
    offset, end : int64[m], those that overlap, sorted by offset.
    ranks : int64[m], their numbers in `posted`.

    Returns
    -------
    Extents
        Cut at every boundary; each piece belongs to the highest rank that covers it.
    """
    cuts = distinct(np.concatenate((offset, end)))
    winner = _highest(np.searchsorted(cuts, offset), np.searchsorted(cuts, end), ranks, cuts.size - 1)
    # What remains uncovered are the gaps between clusters.
    covered = (winner >= 0).nonzero()[0]
    winner = winner[covered]
    low = cuts[covered]
    return Extents(low, cuts[covered + 1] - low, posted.place[winner] + (low - posted.offset[winner]))


def _highest(low: Int64, high: Int64, ranks: Int64, ncells: int) -> Int64:
    """Return the highest rank among the ranges [low, high) that cover each cell, -1 where there is none.

    A range is the union of two ranges whose length is a power of two, 2**k. From the largest k down, each table entry
    hands its rank to the two entries of half the length below it (a sparse table, run backwards).
    """
    span = high - low
    # One byte, because numpy sorts small integers in linear time.
    level = (np.frexp(span.astype(np.float64))[1] - 1).astype(np.int8)
    order = np.argsort(level, kind="stable")
    top = int(level[order[-1]])
    bounds = np.searchsorted(level[order], np.arange(top + 2))
    table = np.full(ncells, -1, np.int64)
    for k in range(top, -1, -1):
        these = order[bounds[k] : bounds[k + 1]]
        if these.size:
            # Two ranges of 2**k cover it, from its begin and up to its end; that they overlap changes no maximum.
            np.maximum.at(table, low[these], ranks[these])
            if k:
                np.maximum.at(table, high[these] - (1 << k), ranks[these])
        if k:
            half = 1 << (k - 1)
            below = table.copy()
            np.maximum(below[half:], table[:-half], out=below[half:])
            table = below
    return table


def intersect(a_offset: Int64, a_length: Int64, b_offset: Int64, b_length: Int64) -> tuple[Int64, Int64, Int64, Int64]:
    """Return all that the ranges of two lists have in common, pair by pair.

    Parameters
    ----------
    a_offset, a_length : int64[n], in any order; they may overlap each other.
    b_offset, b_length : int64[m], sorted and disjoint.

    Returns
    -------
    ia, ib : int64[k], which range of a meets which of b; ordered by a, then by b.
    offset, length : int64[k], what both cover, never empty.

    Examples
    --------
    >>> [c.tolist() for c in intersect(*(np.array(c) for c in ([2], [6], [0, 5], [4, 5])))]
    [[0, 0], [0, 1], [2, 5], [2, 3]]
    """
    ia, ib, offset, end = _common(a_offset, a_offset + a_length, b_offset, b_offset + b_length)
    end -= offset
    return ia, ib, offset, end


def _common(a_start: Int64, a_end: Int64, b_start: Int64, b_end: Int64) -> tuple[Int64, Int64, Int64, Int64]:
    """Do as `intersect` does, of ranges from their starts to their ends."""
    # b is sorted and disjoint: what a range of a shares with it are neighbours in b.
    first = np.searchsorted(b_end, a_start, side="right")
    count = np.searchsorted(b_start, a_end, side="left") - first
    np.maximum(count, 0, out=count)
    ia, step = spread(count)
    ib = first[ia] + step
    start, end = np.maximum(a_start[ia], b_start[ib]), np.minimum(a_end[ia], b_end[ib])
    kept = end > start
    if count_nonzero(kept) < kept.size:
        return ia[kept], ib[kept], start[kept], end[kept]
    return ia, ib, start, end


# -------------------------------------------------------------------------------------------------------------- ranges
# Sets of bytes of a file, as sorted and disjoint ranges.
#
# Knows: numpy. Does not know: files, threads, why bytes are in a set.
#
# Rules
# -----
# 1. No Python loop runs over ranges. Ranges that touch are one.
# 2. A set is never changed: every operation makes another one.


class Ranges(NamedTuple):
    """A set of bytes.

    start, end : int64[n], first byte of each range and the one behind its last; sorted, disjoint, none empty.

    Examples
    --------
    >>> a = ranges_of(np.array([0, 10]), np.array([5, 5]))
    >>> b = ranges_of(np.array([4]), np.array([7]))
    >>> [c.tolist() for c in a.plus(b)], [c.tolist() for c in a.minus(b)], [c.tolist() for c in a.meet(b)]
    ([[0], [15]], [[0, 11], [4, 15]], [[4, 10], [5, 11]])
    """

    start: Int64
    end: Int64

    @property
    def nbytes(self) -> int:
        """Bytes of the set."""
        return int((self.end - self.start).sum())

    @property
    def extents(self) -> Extents:
        """The set as extents, one behind another in memory."""
        length = self.end - self.start
        return Extents(self.start, length, before(length))

    def plus(self, other: Ranges) -> Ranges:
        """Return bytes that are in one of two sets."""
        if not self.start.size or not other.start.size:
            return self if self.start.size else other
        if other.start[0] >= self.end[-1]:
            # What a program that appends does: nothing is sorted.
            touch = int(other.start[0] == self.end[-1])
            end = np.concatenate((self.end[: self.end.size - touch], other.end))
            return Ranges(np.concatenate((self.start, other.start[touch:])), end)
        return _disjoint(np.concatenate((self.start, other.start)), np.concatenate((self.end, other.end)))

    def minus(self, other: Ranges) -> Ranges:
        """Return bytes of this set that are not in the other one."""
        if not self.start.size or not other.start.size or not self.touches(other):
            return self
        # What remains is what this set shares with the gaps of the other one, of which only a part may matter.
        near = slice(
            int(np.searchsorted(other.end, self.start[0], side="right")),
            int(np.searchsorted(other.start, self.end[-1], side="left")),
        )
        low, high = np.array([-(1 << 62)]), np.array([1 << 62])
        return self.meet(Ranges(np.concatenate((low, other.end[near])), np.concatenate((other.start[near], high))))

    def meet(self, other: Ranges) -> Ranges:
        """Return bytes that are in both sets."""
        return Ranges(*_common(*self, *other)[2:])

    def touches(self, other: Ranges) -> bool:
        """Return whether the sets have a byte in common."""
        if not self.start.size or not other.start.size:
            return False
        if self.end[-1] <= other.start[0] or other.end[-1] <= self.start[0]:
            return False
        first = np.searchsorted(other.end, self.start, side="right")
        return bool((np.searchsorted(other.start, self.end, side="left") > first).any())

    def below(self, nbytes: int) -> Ranges:
        """Return bytes before byte `nbytes` of the file."""
        if not self.start.size or self.end[-1] <= nbytes:
            return self
        kept = int(np.searchsorted(self.start, nbytes, side="left"))
        return Ranges(self.start[:kept], np.minimum(self.end[:kept], nbytes))

    def split(self, nbytes: int, most: int) -> tuple[Ranges, Ranges]:
        """Return the first bytes of the set, about `nbytes` in at most `most` ranges, and the rest."""
        start, end = self.start[:most], self.end[:most]
        total = np.cumsum(end - start)
        if total.size and total[-1] > nbytes:
            last = int(np.searchsorted(total, nbytes, side="left"))
            cut = int(end[last] - (total[last] - nbytes))
            head = Ranges(start[: last + 1], np.append(end[:last], cut))
            if cut == end[last]:
                return head, Ranges(self.start[last + 1 :], self.end[last + 1 :])
            return head, Ranges(np.append(np.int64(cut), self.start[last + 1 :]), self.end[last:])
        return Ranges(start, end), Ranges(self.start[most:], self.end[most:])


EMPTY = Ranges(*np.zeros((2, 0), np.int64))
"""No bytes."""


def ranges_of(offset: Int64, length: Int64) -> Ranges:
    """Return the bytes of extents, which may come in any order, overlap, and be empty."""
    end = offset + length
    if offset.size == 1:
        return Ranges(offset.copy(), end) if length[0] > 0 else EMPTY
    if length.size and not bool((length > 0).all()):
        kept = length > 0
        offset, end = offset[kept], end[kept]
    return _disjoint(offset, end) if offset.size else EMPTY


def _disjoint(start: Int64, end: Int64) -> Ranges:
    """Return ranges in any order made a set."""
    if bool((start[1:] < start[:-1]).any()):
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    # A range begins where nothing before it reaches; one that touches another one belongs to it.
    reach = np.maximum.accumulate(end)
    first = np.flatnonzero(np.concatenate(([True], start[1:] > reach[:-1])))
    return Ranges(start[first], reach[np.append(first[1:] - 1, start.size - 1)])


# ------------------------------------------------------------------------------------------------- runs


def coalesced(runs: Runs) -> Runs:
    """Return the elements of runs that may overlap and come in any order, each once, in as few ascending runs as
    possible.

    Examples
    --------
    >>> [column.tolist() for column in coalesced(Runs(np.array([4, 0, 1, 9]), np.array([2, 2, 3, 0])))]
    [[0], [6]]
    """
    start, end = ranges_of(*runs)
    return Runs(start, end - start)


def united(one: Runs, other: Runs) -> Runs:
    """Return the elements of both, as `coalesced` has them."""
    return coalesced(Runs(*map(np.concatenate, zip(one, other, strict=True))))


def within(runs: Runs, known: Runs) -> tuple[Runs, Int64]:
    """Return the parts of runs that are in ascending, disjoint ones, and where each begins among the elements of
    `runs`.

    Examples
    --------
    >>> found, first = within(Runs(np.array([8, 0]), np.array([4, 3])), Runs(np.array([1, 9]), np.array([1, 2])))
    >>> found.start.tolist(), found.length.tolist(), first.tolist()
    ([9, 1], [2, 1], [1, 5])
    """
    of, _, start, length = intersect(*runs, *known)
    return Runs(start, length), before(runs.length)[of] + start - runs.start[of]
