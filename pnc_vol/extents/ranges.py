"""Sets of bytes of a file, as sorted and disjoint ranges.

Knows: numpy. Does not know: files, threads, why bytes are in a set.

Rules
-----
1. No Python loop runs over ranges. Ranges that touch are one.
2. A set is never changed: every operation makes another one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pnc_vol.extents.model import Extents, Int64, before

__all__ = ["EMPTY", "Ranges", "ranges_of"]


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
        """Bytes that are in one of two sets."""
        if not self.start.size or not other.start.size:
            return self if self.start.size else other
        if other.start[0] >= self.end[-1]:
            # What a program that appends does: nothing is sorted.
            touch = int(other.start[0] == self.end[-1])
            end = np.concatenate((self.end[: self.end.size - touch], other.end))
            return Ranges(np.concatenate((self.start, other.start[touch:])), end)
        return _joined(np.concatenate((self.start, other.start)), np.concatenate((self.end, other.end)))

    def minus(self, other: Ranges) -> Ranges:
        """Bytes of this set that are not in the other one."""
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
        """Bytes that are in both sets."""
        first = np.searchsorted(other.end, self.start, side="right")
        count = np.searchsorted(other.start, self.end, side="left") - first
        np.maximum(count, 0, out=count)
        mine = np.repeat(np.arange(self.start.size), count)
        theirs = np.arange(mine.size) - before(count)[mine] + first[mine] if mine.size else mine
        start = np.maximum(self.start[mine], other.start[theirs])
        end = np.minimum(self.end[mine], other.end[theirs])
        kept = end > start
        return Ranges(start[kept], end[kept])

    def touches(self, other: Ranges) -> bool:
        """Whether the sets have a byte in common."""
        if not self.start.size or not other.start.size:
            return False
        if self.end[-1] <= other.start[0] or other.end[-1] <= self.start[0]:
            return False
        first = np.searchsorted(other.end, self.start, side="right")
        return bool((np.searchsorted(other.start, self.end, side="left") > first).any())

    def below(self, nbytes: int) -> Ranges:
        """Bytes before byte `nbytes` of the file."""
        if not self.start.size or self.end[-1] <= nbytes:
            return self
        kept = int(np.searchsorted(self.start, nbytes, side="left"))
        return Ranges(self.start[:kept], np.minimum(self.end[:kept], nbytes))

    def split(self, nbytes: int, most: int) -> tuple[Ranges, Ranges]:
        """The first bytes of the set, about `nbytes` in at most `most` ranges, and the rest."""
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
    """The bytes of extents, which may come in any order, overlap, and be empty."""
    end = offset + length
    if offset.size == 1:
        return Ranges(offset.copy(), end) if length[0] > 0 else EMPTY
    if length.size and not bool((length > 0).all()):
        kept = length > 0
        offset, end = offset[kept], end[kept]
    return _joined(offset, end) if offset.size else EMPTY


def _joined(start: Int64, end: Int64) -> Ranges:
    """Ranges in any order made a set."""
    if bool((start[1:] < start[:-1]).any()):
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    first = np.flatnonzero(np.concatenate(([True], start[1:] > reach[:-1])))
    return Ranges(start[first], reach[np.append(first[1:] - 1, start.size - 1)])
