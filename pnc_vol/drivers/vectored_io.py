"""From extents to few large moves between memory and a file.

Knows: numpy, extents, memory. Does not know: descriptors, MPI; it calls a function for each move.

Rules
-----
1. Pieces that touch in the file are one move. Long pieces move straight from or to the caller's memory, as a vector of
   buffers; short ones go through a staging block of a few MiB, filled or emptied by numpy.
2. A read may also bridge short gaps between short pieces, because a call costs as much as reading some KiB; a write
   never touches a byte that it was not given.
3. Python loops over moves, never over pieces, but for vectors of long ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.base import CALL_COST
from pnc_vol.extents.model import Extents, Int64
from pnc_vol.late import late

if TYPE_CHECKING:
    from pnc_vol.drivers import byte_copy
    from pnc_vol.drivers.byte_copy import Bytes
else:
    byte_copy = late("pnc_vol.drivers.byte_copy")

__all__ = ["Get", "Put", "get_extents", "put_extents"]

Put = Callable[[memoryview | list[memoryview], int], int]
Get = Callable[[memoryview | list[memoryview], int], int]

#: Bytes of a piece from which on it is never staged.
LONG = 64 << 10
#: Mean bytes of the pieces of a move up to which they are staged.
SHORT = 1024
#: Bytes of a staging block, about; two fit a core's cache.
STAGE = 2 << 20
#: Bytes of a gap that a read bridges at most, where a call costs what it costs in the page cache.
GAP = CALL_COST


class _Moves(NamedTuple):
    """Pieces in file order, cut into moves.

    pieces : Extents, by offset.
    first : int64[m], the first piece of each move.
    many : int64[m], pieces of each move.
    span : int64[m], bytes from its first byte to its last.
    staged : bool[m], whether it goes through a staging block.
    """

    pieces: Extents
    first: Int64
    many: Int64
    span: Int64
    staged: npt.NDArray[np.bool_]


def _moves(extents: Extents, gap: int) -> _Moves:
    """Cut pieces (in order, none empty) into moves; gaps of up to `gap` bytes between short pieces are bridged."""
    offset, length, _ = extents
    end = offset + length
    space = offset[1:] - end[:-1]
    long = length >= LONG
    together = space == 0
    if gap:
        short = length < max(gap, GAP)
        together |= (space > 0) & (space <= gap) & short[1:] & short[:-1]
    together &= ~(long[1:] | long[:-1])
    first = np.flatnonzero(np.concatenate(([True], ~together)))
    if len(first) < len(offset):
        # A move is not longer than a staging block, so that staging never needs more than two of them.
        block = (offset - np.repeat(offset[first], np.diff(first, append=len(offset)))) // STAGE
        together &= block[1:] == block[:-1]
        first = np.flatnonzero(np.concatenate(([True], ~together)))
    count = np.diff(first, append=len(offset))
    span = end[first + count - 1] - offset[first]
    data = np.add.reduceat(length, first)
    staged = (count > 1) & ((data <= SHORT * count) | (data < span))
    return _Moves(extents, first, count, span, staged)


def _singles(moves: _Moves) -> Extents:
    """The moves of one piece."""
    at = moves.first[~moves.staged & (moves.many == 1)]
    return Extents(*(column[at] for column in moves.pieces))


def _vectors(moves: _Moves, memory: Bytes, move: Put | Get) -> tuple[int, int]:
    """Sum of what `move` returned, and calls of it, for the moves of many pieces that need no staging."""
    pieces, view = moves.pieces, memory.data
    result = calls = 0
    for i in np.flatnonzero(~moves.staged & (moves.many > 1)).tolist():
        part = slice(int(moves.first[i]), int(moves.first[i] + moves.many[i]))
        start, stop = pieces.place[part], pieces.place[part] + pieces.length[part]
        buffers = [view[a:b] for a, b in zip(start.tolist(), stop.tolist(), strict=True)]
        result += move(buffers, int(pieces.offset[part.start]))
        calls += 1
    return result, calls


def _got(ranges: Extents, memory: Bytes, get: Get) -> Int64:
    """Bytes that were read of each range, by a call each."""
    view = memory.data
    columns = (column.tolist() for column in ranges)
    return np.array([get(view[p : p + n], o) for o, n, p in zip(*columns, strict=True)], np.int64)


class _Block(NamedTuple):
    """Moves that share one staging block.

    pieces : Extents, their pieces.
    inside : int64[n], where each piece lies in the block.
    moves : Extents, file offset, bytes and place in the block of each move.
    many : int64[m], pieces of each move.
    """

    pieces: Extents
    inside: Int64
    moves: Extents
    many: Int64


def _blocks(moves: _Moves) -> Iterator[tuple[_Block, Bytes]]:
    """The staged moves, a block's worth at a time, with the block's memory: the next one's is the same."""
    first, count, span = (column[moves.staged] for column in (moves.first, moves.many, moves.span))
    reach = np.cumsum(span)
    number = reach // STAGE
    cuts = np.flatnonzero(number[1:] != number[:-1]) + 1
    room = np.empty(min(int(reach[-1]), 2 * STAGE + LONG), np.uint8)
    for f, c, s in zip(np.split(first, cuts), np.split(count, cuts), np.split(span, cuts), strict=True):
        ahead = np.cumsum(c) - c
        at = np.repeat(f - ahead, c) + np.arange(int(c.sum()))
        pieces = Extents(*(column[at] for column in moves.pieces))
        offset, base = moves.pieces.offset[f], np.cumsum(s) - s
        inside = pieces.offset - np.repeat(offset - base, c)
        yield _Block(pieces, inside, Extents(offset, s, base), c), room[: int(base[-1] + s[-1])]


def _one(extents: Extents, memory: Bytes) -> tuple[int, int, int]:
    """Offset, length and place of a single extent, checked."""
    # By plain integers: four calls of numpy take as long as a small write.
    o, n, p = extents.offset.item(), extents.length.item(), extents.place.item()
    if o < 0 or n < 0 or p < 0 or p + n > memory.nbytes:
        byte_copy.check(extents, memory)
    return o, n, p


def put_extents(extents: Extents, memory: Bytes, put: Put) -> int:
    """Write extents by few calls of ``put(view or views, offset)``, which writes all or raises.

    Returns
    -------
    int
        The sum of what `put` returned.

    Raises
    ------
    ValueError
        From `check`.
    """
    if len(extents.offset) == 1:
        o, n, p = _one(extents, memory)
        return put(memory.data[p : p + n], o) if n else 0
    byte_copy.check(extents, memory)
    extents = byte_copy.in_order(extents)
    if not len(extents.offset):
        return 0
    moves = _moves(extents, 0)
    result, _ = _vectors(moves, memory, put)
    view = memory.data
    for o, n, p in zip(*(column.tolist() for column in _singles(moves)), strict=True):
        result += put(view[p : p + n], o)
    if moves.staged.any():
        for block, stage in _blocks(moves):
            byte_copy.copy_pieces(stage, block.inside, memory, block.pieces.place, block.pieces.length)
            view = stage.data
            for o, n, b in zip(*(column.tolist() for column in block.moves), strict=True):
                result += put(view[b : b + n], o)
    return result


def get_extents(extents: Extents, memory: Bytes, get: Get, *, gap: int = GAP) -> tuple[int, int]:
    """Read extents by few calls of ``get(view or views, offset) -> bytes``, short only at the end of the file.

    Returns
    -------
    tuple of int
        Bytes of the extents that were read, and calls of `get`.

    Raises
    ------
    ValueError
        From `check`.
    """
    if len(extents.offset) == 1:
        o, n, p = _one(extents, memory)
        return (get(memory.data[p : p + n], o), 1) if n else (0, 0)
    byte_copy.check(extents, memory)
    extents = byte_copy.in_order(extents)
    if not len(extents.offset):
        return 0, 0
    moves = _moves(extents, gap)
    nbytes, calls = _vectors(moves, memory, get)
    got = _got(_singles(moves), memory, get)
    nbytes, calls = nbytes + int(got.sum()), calls + len(got)
    if moves.staged.any():
        for block, stage in _blocks(moves):
            got = _got(block.moves, stage, get)
            length = block.pieces.length
            if int(got.sum()) < len(stage):
                length = np.clip(np.repeat(got + block.moves.place, block.many) - block.inside, 0, length)
            byte_copy.copy_pieces(memory, block.pieces.place, stage, block.inside, length)
            nbytes, calls = nbytes + int(length.sum()), calls + len(got)
    return nbytes, calls
