"""Extents are moved between memory and a file in few large calls.

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
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.base import CALL_COST
from pnc_vol.extents.model import Extents, Int64

__all__ = [
    "Bytes",
    "Get",
    "Put",
    "check",
    "copy_pieces",
    "get_extents",
    "in_order",
    "joined",
    "put_extents",
    "spread",
    "touching",
    "within",
    "without_overlap",
]


# ----------------------------------------------------------------------------------------------------------- byte copy
# Arithmetic on extents and the bytes they name: what all roots share.
#
# Knows: numpy, extents, memory. Does not know: files; it moves bytes from memory to memory only.


Bytes = npt.NDArray[np.uint8]

#: Bytes up to which equal pieces are copied as elements of that size, and not one by one.
ELEMENT = 4096

_FEW = 32
"""Pieces up to which copying one after another takes less time than the operations of arrays that copy them at once."""
_PIECES_OF_A_SIZE = 256


def check(extents: Extents, memory: Bytes) -> None:
    """Raise before anything moves if the extents ask for what is not there.

    Raises
    ------
    ValueError
        An extent starts before the file or lies outside of `memory`, which would be silently cut.
    """
    offset, length, place = extents
    if not len(offset):
        return
    lowest = min(int(offset.min()), int(length.min()), int(place.min()))
    end = int((place + length).max())
    if lowest < 0:
        raise ValueError("An extent has a negative offset, length or place")
    if end > memory.nbytes:
        raise ValueError(f"An extent ends at byte {end} of a memory of {memory.nbytes} bytes")


def in_order(extents: Extents) -> Extents:
    """Return the same pieces without empty ones, by file offset; no copy if that is how they came."""
    offset, length, place = extents
    if len(offset) > 1 and not bool((offset[1:] >= offset[:-1]).all()):
        order = np.argsort(offset, kind="stable")
        offset, length, place = offset[order], length[order], place[order]
    if not length.all():
        kept = length > 0
        offset, length, place = offset[kept], length[kept], place[kept]
    return Extents(offset, length, place)


def joined(start: Int64, length: Int64) -> tuple[Int64, Int64]:
    """Return the same bytes with neighbours made one: where each ends and the next begins.

    Examples
    --------
    >>> [column.tolist() for column in joined(np.array([0, 4, 9]), np.array([4, 4, 1]))]
    [[0, 9], [8, 1]]
    """
    if not len(start):
        return start, length
    first = np.flatnonzero(np.concatenate(([True], start[1:] != start[:-1] + length[:-1])))
    return start[first], np.add.reduceat(length, first)


def copy_pieces(target: Bytes, target_place: Int64, source: Bytes, source_place: Int64, length: Int64) -> None:
    """Do ``target[t:t+n] = source[s:s+n]`` for each ``(t, s, n)``; pieces of one side do not overlap on the target.

    Parameters
    ----------
    target, source : uint8[...]
        One-dimensional, contiguous.
    target_place, source_place, length : int64[n]
        Bytes.
    """
    if len(length) <= _FEW:
        _one_by_one(target, target_place, source, source_place, length)
        return
    n = int(length[0])
    if n <= ELEMENT and bool((length == n).all()):
        if n:
            # Pieces that lie one behind another on a side are not indexed there, which halves the time of small ones.
            values, into_row = _row(source, source_place, n), _row(target, target_place, n)
            if values is None:
                values = _windows(source, n)[source_place]
            if into_row is None:
                _windows(target, n)[target_place] = values
            else:
                into_row[...] = values
        return
    if int(length.max()) <= ELEMENT:
        sizes = np.flatnonzero(np.bincount(length)).tolist()
        # Each size takes a few passes over all lengths, which is little beside copying if there are many pieces of it.
        if len(sizes) * _PIECES_OF_A_SIZE <= len(length):
            for size in sizes:
                these = np.flatnonzero(length == size)
                if size:
                    _windows(target, size)[target_place[these]] = _windows(source, size)[source_place[these]]
            return
    total = int(length.sum())
    # The largest power of two, up to 8, that divides all places and lengths: fewer, wider elements to index.
    bits = int(np.bitwise_or.reduce(target_place | source_place | length)) | 8
    unit = bits & -bits
    if total // unit <= 32 * len(length):
        count = length // unit
        step = np.arange(total // unit, dtype=np.int64)
        first = np.cumsum(count) - count
        to = np.repeat(target_place // unit - first, count) + step
        of = np.repeat(source_place // unit - first, count) + step
        _elements(target, unit)[to] = _elements(source, unit)[of]
        return
    _one_by_one(target, target_place, source, source_place, length)


def _one_by_one(target: Bytes, target_place: Int64, source: Bytes, source_place: Int64, length: Int64) -> None:
    into, out = target.data, source.data
    for t, s, m in zip(target_place.tolist(), source_place.tolist(), length.tolist(), strict=True):
        into[t : t + m] = out[s : s + m]


def _row(memory: Bytes, place: Int64, n: int) -> npt.NDArray[np.void] | None:
    """Return pieces of `n` bytes that lie one behind another, as items of that size; None if they do not."""
    first, last = int(place[0]), int(place[-1])
    if last - first != (len(place) - 1) * n or not bool((place[1:] - place[:-1] == n).all()):
        return None
    return memory[first : last + n].view(np.dtype((np.void, n)))


def _windows(memory: Bytes, n: int) -> npt.NDArray[np.void]:
    """Return windows of `n` bytes, of which item i begins at byte i; copying them is then numpy's memcpy."""
    return np.ndarray((memory.nbytes - n + 1,), np.dtype((np.void, n)), memory, 0, (1,))


def _elements(memory: Bytes, unit: int) -> npt.NDArray[np.unsignedinteger]:
    return memory[: memory.nbytes // unit * unit].view(f"u{unit}")


def within(extents: Extents, nbytes: int) -> Extents:
    """Return the parts of extents that lie in a file of `nbytes` bytes."""
    return extents._replace(length=np.clip(nbytes - extents.offset, 0, extents.length))


def without_overlap(extents: Extents, memory: Bytes) -> tuple[Extents, Bytes]:
    """Return extents in order, and their memory; where some overlap, what they cover and a memory for that.

    A view of a file that is open for writing must not show a byte twice.
    """
    offset, length, _ = extents
    end = np.maximum.accumulate(offset + length)
    if not bool((offset[1:] < end[:-1]).any()):
        return extents, memory
    first = np.flatnonzero(np.concatenate(([True], offset[1:] > end[:-1])))
    covered = np.append(end[first[1:] - 1], end[-1]) - offset[first]
    union = Extents(offset[first], covered, np.cumsum(covered) - covered)
    return union, np.empty(union.nbytes, np.uint8)


def spread(union: Extents, stage: Bytes, extents: Extents, memory: Bytes) -> None:
    """Copy from what the extents cover to their places in memory."""
    of = np.searchsorted(union.offset, extents.offset, side="right") - 1
    inside = union.place[of] + extents.offset - union.offset[of]
    copy_pieces(memory, extents.place, stage, inside, extents.length)


def touching(part: Extents) -> list[Extents]:
    """Cut extents (in order) where they do not touch in the file."""
    cuts = np.flatnonzero(part.offset[1:] != part.offset[:-1] + part.length[:-1]) + 1
    return [Extents(*columns) for columns in zip(*(np.split(column, cuts) for column in part), strict=True)]


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
    """Return the moves of one piece."""
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
    """Return bytes that were read of each range, by a call each."""
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
    """Yield the staged moves, a block's worth at a time, with the block's memory: the next one's is the same."""
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
    """Return the offset, length and place of a single extent, checked."""
    # By plain integers: four calls of numpy take as long as a small write.
    o, n, p = extents.offset.item(), extents.length.item(), extents.place.item()
    if o < 0 or n < 0 or p < 0 or p + n > memory.nbytes:
        check(extents, memory)
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
    check(extents, memory)
    extents = in_order(extents)
    if not len(extents.offset):
        return 0
    moves = _moves(extents, 0)
    result, _ = _vectors(moves, memory, put)
    view = memory.data
    for o, n, p in zip(*(column.tolist() for column in _singles(moves)), strict=True):
        result += put(view[p : p + n], o)
    if moves.staged.any():
        for block, stage in _blocks(moves):
            copy_pieces(stage, block.inside, memory, block.pieces.place, block.pieces.length)
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
    check(extents, memory)
    extents = in_order(extents)
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
            copy_pieces(memory, block.pieces.place, stage, block.inside, length)
            nbytes, calls = nbytes + int(length.sum()), calls + len(got)
    return nbytes, calls
