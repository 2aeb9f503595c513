"""A hole is a part of the range written together that no rank writes: only holes must be read before the write.

Knows: domains, extents. Does not know: ranks, messages, drivers.

A piece counts as the mark of its end less the mark of its beginning, where a mark is 64 bits that look like drawn for
each position. The sum over all pieces of all ranks tells where their number rises and falls: it is that of one piece
from `low` to `high` if each byte between is given once. So one number of each rank shows that nothing is left open,
however many pieces there are; an accident has a chance of 2**-64. Pieces of two ranks that overlap look like a hole.

Where something is open, the sum is formed once more for each granule, a part of a window. Granules that are open are
read, and those that nobody gives anything for are not written either. Lists of pieces at the aggregator would tell the
exact bytes; but the ranks of its node, which copy their pieces themselves, make none, and to sort them costs more than
the read.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pnc_vol.exchange.domains import Cut, Domains
from pnc_vol.extents.merge import intersect
from pnc_vol.extents.model import Extents, Int64, cut_at

__all__ = ["Granules", "is_whole", "weight", "worth_finding"]

UInt64 = npt.NDArray[np.uint64]

_AT_ONCE = 1 << 15
_LEAST = 64 << 10
"""Bytes of a granule at least: less is not worth a call of its own."""
_MOST = 1 << 15
"""Granules of all windows, unless there are more windows."""
_ALL = (1 << 64) - 1
_LARGE = 2048
"""Bytes of a piece, on average, from which on finding what is open costs less than reading all."""


def weight(extents: Extents) -> int:
    """Return the sum of pieces, below 2**64.

    Examples
    --------
    >>> from pnc_vol.extents.model import one_extent
    >>> parts = [one_extent(0, 3), one_extent(7, 2), one_extent(3, 4)]
    >>> is_whole(sum(map(weight, parts)), 0, 9), is_whole(sum(map(weight, parts[:2])), 0, 9)
    (True, False)
    """
    found = 0
    # In parts: the marks of millions of pieces at once would take as much memory as their list.
    for i in range(0, len(extents.offset), _AT_ONCE):
        offset, length = extents.offset[i : i + _AT_ONCE], extents.length[i : i + _AT_ONCE]
        found += int(_weights(offset, length).sum())
    return found & _ALL


def is_whole(total: int, low: int, high: int) -> bool:
    """Return whether pieces of this sum cover each byte from `low` to `high` once."""
    return total & _ALL == int(_weights(np.array([low]), np.array([high - low]))[0])


def worth_finding(nbytes: int, pieces: int) -> bool:
    """Return whether ranks find out what is open, of so many pieces; otherwise all of each window is read."""
    return nbytes >= _LARGE * pieces


def _weights(at: Int64, length: Int64) -> UInt64:
    found: UInt64 = _marks(at + length) - _marks(at)
    return found


def _marks(at: Int64) -> UInt64:
    # Odd factors and shifts spread each bit of a position over all 64; numpy drops what exceeds these.
    found: UInt64 = (at + 1).astype(np.uint64)
    found *= np.uint64(0x9E3779B97F4A7C15)
    found ^= found >> np.uint64(32)
    found *= np.uint64(0xD6E8FEB86659FD93)
    found ^= found >> np.uint64(29)
    return found


class Granules:
    """Parts of the windows of a collective write, and how far they are given.

    Parameters
    ----------
    domains : Domains
    known : bool, `sums` will be formed; otherwise all counts as open.

    Attributes
    ----------
    sums : uint64[2, granules], of what this rank gives for each, and of what all give.

    Examples
    --------
    >>> domains = Domains.over(0, 1 << 20, 1, buffer=1 << 20, unit=4096)
    >>> one = Granules(domains)
    >>> offset = np.array([0, 300_000])
    >>> one.add(domains.cut(Extents(offset, np.array([200_000, 8]), offset)))
    >>> one.sums[1] = one.sums[0]
    >>> [(part.offset.tolist(), part.length.tolist()) for part in one.of(0)]
    [([196608], [131072]), ([0], [327680])]
    """

    __slots__ = ("_domains", "_each", "_step", "known", "sums")

    def __init__(self, domains: Domains, *, known: bool = True) -> None:
        self._domains = domains
        self.known = known
        self._each, self._step = _granules_of(domains)
        self.sums: UInt64 = np.zeros((2, self.count(domains) if known else 0), np.uint64)

    @staticmethod
    def count(domains: Domains) -> int:
        """Return the number of granules of all windows."""
        return domains.cells * _granules_of(domains)[0]

    def add(self, cut: Cut) -> None:
        """Add what this rank gives."""
        inside, length, count = cut.every_piece()
        # Positions as if all windows lay one behind another, in whole granules: `of` compares with marks of the same.
        start = inside + np.repeat(cut.cells, count) * (self._each * self._step)
        start, length, _ = cut_at(start, length, self._step)
        number = start // self._step
        # The pieces of one granule are neighbours, as they come cell by cell in ascending order.
        heads = np.flatnonzero(np.diff(number, prepend=-1))
        if len(heads):
            self.sums[0, number[heads]] = np.add.reduceat(_weights(start, length), heads)

    def of(self, cell: int) -> tuple[Extents, Extents]:
        """Return what is to be read of a window before it is written, and what is written; places are those in the
        window."""
        part = self._domains.part(cell)
        if not len(part.offset) or not self.known:
            return part, part
        first, last = int(part.place[0]), int(part.place[-1] + part.length[-1])
        edges = np.clip(np.arange(self._each + 1) * self._step, first, last)
        start, length = edges[:-1], np.diff(edges)
        given = self.sums[1, cell * self._each : (cell + 1) * self._each]
        # A sum of 0: nobody gives anything for the granule, so it is neither read nor written.
        touched = (given != 0) & (length > 0)
        left = touched & (given != _weights(start + cell * self._each * self._step, length))
        return self._these(part, start, length, left), self._these(part, start, length, touched)

    def _these(self, part: Extents, start: Int64, length: Int64, chosen: npt.NDArray[np.bool_]) -> Extents:
        """Return what some granules have of a window, those side by side in one piece."""
        change = np.diff(np.concatenate(([False], chosen, [False])).astype(np.int8))
        begin, end = start[np.flatnonzero(change == 1)], np.flatnonzero(change == -1) - 1
        end = start[end] + length[end]
        piece, _, at, nbytes = intersect(part.place, part.length, begin, end - begin)
        return Extents(part.offset[piece] + at - part.place[piece], nbytes, at)


def _granules_of(domains: Domains) -> tuple[int, int]:
    """Return granules of a window, and bytes of one."""
    each = max(1, min(domains.window // _LEAST, _MOST // domains.cells))
    step = -(-domains.window // each)
    return -(-domains.window // step), step
