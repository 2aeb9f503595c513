"""A file domain is the part of the file that one rank writes; it is divided into rounds.

Knows: extents, numbers that all ranks agreed on. Does not know: ranks' messages, drivers, memory of pieces.

All functions are pure: who gives the same numbers gets the same domains, so ranks need not tell each other.

Rules
-----
1. The part of the file that is written is cut at multiples of the unit (a stripe of the file system): into one
   contiguous domain for each aggregator, or, where striping is given, into domains that take the stripes in turn. Each
   aggregator has a buffer of its own, so that more of them need fewer rounds.
2. A domain is written window by window. A window that no rank has data for takes no round.
3. A cell is one window of one domain; cells are numbered ``domain * windows + window``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pnc_vol.extents.model import Extents, Int64, cut_at, one_extent, spread

__all__ = ["Cut", "Domains", "rounds_of_cells"]


@dataclass(frozen=True, slots=True)
class Cut:
    """Extents of one rank, and the cells that they have something for.

    extents : Extents, those of a cell one after another.
    cells : int64[k], cells that have something, ascending.
    first, last : int64[k], which extents reach into each cell; the first and the last of them perhaps beyond it.
    begin : int64[k], what is to be taken from the offsets, so that they count from the beginning of a window's memory.
    size : int64[k], bytes of a cell.
    """

    extents: Extents
    cells: Int64
    first: Int64
    last: Int64
    begin: Int64
    size: Int64

    def pieces(self, i: int) -> tuple[Int64, Int64, Int64]:
        """Return what there is for the i-th of `cells`: bytes from the beginning of the window's memory, lengths,
        places."""
        offset, length, place = (column[self.first[i] : self.last[i]] for column in self.extents)
        inside, size = offset - self.begin[i], int(self.size[i])
        # Extents are not cut at windows beforehand: the first and the last may reach into the windows beside this one.
        before, beyond = max(0, -int(inside[0])), max(0, int(inside[-1] + length[-1]) - size)
        if before or beyond:
            # These two are views of the rank's extents, which the windows beside this one use as well.
            length, place = length.copy(), place.copy()
            inside[0] += before
            place[0] += before
            length[0] -= before
            length[-1] -= beyond
        return inside, length, place

    def every_piece(self) -> tuple[Int64, Int64, Int64]:
        """Return the pieces of all cells, one cell's behind the other's, without places, and how many each cell has."""
        count = self.last - self.first
        cell, number = spread(count)
        which = self.first[cell] + number
        offset, length = self.extents.offset[which], self.extents.length[which]
        inside = offset - self.begin[cell]
        end = np.minimum(inside + length, self.size[cell])
        np.maximum(inside, 0, out=inside)
        return inside, end - inside, count


@dataclass(frozen=True, slots=True)
class Domains:
    """The domains of one collective write.

    low, high : int, the part of the file that any rank writes to.
    base : int, where the first domain begins; a multiple of `unit`.
    count : int, domains.
    unit : int, bytes of a stripe.
    window : int, bytes of a window.
    windows : int, windows of a domain.
    each : int, bytes of a contiguous domain; 0: domains take the stripes in turn.

    Examples
    --------
    >>> two = Domains.over(100, 9000, 2, buffer=4096, unit=1024)
    >>> two.each, two.window, two.windows
    (5120, 4096, 2)
    >>> two.part(1).offset.tolist(), two.part(1).length.tolist()
    ([4096], [1024])
    """

    low: int
    high: int
    base: int
    count: int
    unit: int
    window: int
    windows: int
    each: int

    @classmethod
    def over(cls, low: int, high: int, count: int, *, buffer: int, unit: int, cyclic: bool = False) -> Domains:
        """Cut a part of a file.

        Parameters
        ----------
        low, high : int, bytes; `high` is beyond the last.
        count : int, aggregators.
        buffer : int, bytes of a window at most.
        unit : int, bytes of a stripe.
        cyclic : bool, aggregators take the stripes in turn; only where a window has room for one.
        """
        # Domains begin at multiples of a stripe: two aggregators that write to one stripe wait for its lock in turn.
        base = low // unit * unit
        stripes = -(-(high - base) // unit)
        most = -(-stripes // count)
        if cyclic and unit <= buffer:
            held = min(buffer // unit, most)
            return cls(low, high, base, count, unit, held * unit, -(-most // held), 0)
        each = most * unit
        window = min(each, buffer // unit * unit or buffer)
        return cls(low, high, base, count, unit, window, -(-each // window), each)

    @property
    def cells(self) -> int:
        """Windows of all domains."""
        return self.count * self.windows

    def cut(self, extents: Extents) -> Cut:
        """Find the cells of extents, sorted by offset, disjoint, and within `low` and `high`."""
        offset, length, _ = extents
        if not len(offset):
            return Cut(extents, *np.empty((5, 0), np.int64))
        if not self.each:
            return self._cut_in_turn(extents)
        end = offset + length
        # All cells between the first byte and the last; those without data are dropped at the end.
        cells = np.arange(self._cell(int(offset[0])), self._cell(int(end[-1]) - 1) + 1)
        domain, number = np.divmod(cells, self.windows)
        begin = self.base + domain * self.each + number * self.window
        size = np.minimum(self.window, self.each - number * self.window)
        # Extents are sorted and disjoint, so those that reach into one cell are neighbours in the list.
        first, last = np.searchsorted(end, begin, side="right"), np.searchsorted(offset, begin + size, side="left")
        kept = last > first
        return Cut(extents, *(column[kept] for column in (cells, first, last, begin, size)))

    def _cell(self, offset: int) -> int:
        domain, within = divmod(offset - self.base, self.each)
        return domain * self.windows + within // self.window

    def _cut_in_turn(self, extents: Extents) -> Cut:
        whole, place = extents.offset - self.base, extents.place
        position, length, owner = cut_at(whole, extents.length, self.unit)
        if owner is not None:
            place = place[owner] + position - whole[owner]
        stripe = position // self.unit
        turn, domain = np.divmod(stripe, self.count)
        number, slot = np.divmod(turn, self.window // self.unit)
        cell = domain * self.windows + number
        # Stripes of one domain lie apart in the file; stable, so that the pieces of a cell stay in ascending order.
        order = np.argsort(cell, kind="stable")
        # In the memory of a window its stripes lie one behind another.
        inside = (slot - stripe) * self.unit + position
        found = Extents(inside[order], length[order], place[order])
        cell = cell[order]
        heads = np.flatnonzero(np.concatenate(([True], cell[1:] != cell[:-1])))
        nothing = np.zeros_like(heads)
        return Cut(found, cell[heads], heads, np.append(heads[1:], len(cell)), nothing, nothing + self.window)

    def part(self, cell: int) -> Extents:
        """Return where a cell lies in the file, and in the memory of a window; perhaps nowhere."""
        domain, number = divmod(cell, self.windows)
        if self.each:
            start = self.base + domain * self.each
            begin = start + number * self.window
            first = max(self.low, begin)
            last = min(self.high, start + min((number + 1) * self.window, self.each))
            return one_extent(first, max(0, last - first), first - begin if last > first else 0)
        held = self.window // self.unit
        slot = np.arange(held, dtype=np.int64)
        begin_of = self.base + ((number * held + slot) * self.count + domain) * self.unit
        first_of = np.maximum(begin_of, self.low)
        length = np.minimum(begin_of + self.unit, self.high) - first_of
        kept = length > 0
        return Extents(first_of[kept], length[kept], (slot * self.unit + first_of - begin_of)[kept])


def rounds_of_cells(touched: npt.NDArray[np.bool_]) -> tuple[int, npt.NDArray[np.int32]]:
    """Return rounds of a write, and the round of each cell.

    Parameters
    ----------
    touched : bool[domains, windows], whether any rank has data for it.

    Examples
    --------
    >>> rounds, number = rounds_of_cells(np.array([[True, False, True], [False, False, True]]))
    >>> rounds, number[0, 2], number[1, 2]
    (2, np.int32(1), np.int32(0))
    """
    # The k-th window of a domain that any rank has data for has its turn in round k; the others take none.
    number = np.cumsum(touched, axis=1, dtype=np.int32)
    return int(number[:, -1].max(initial=0)), number - 1
