"""Arithmetic on extents and the bytes they name: what all roots share.

Knows: numpy, extents, memory. Does not know: files; it moves bytes from memory to memory only.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pnc_vol.extents.model import Extents, Int64

__all__ = [
    "Bytes",
    "check",
    "copy_pieces",
    "in_order",
    "joined",
    "spread",
    "touching",
    "within",
    "without_overlap",
]

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
    """The same pieces without empty ones, by file offset; no copy if that is how they came."""
    offset, length, place = extents
    if len(offset) > 1 and not bool((offset[1:] >= offset[:-1]).all()):
        order = np.argsort(offset, kind="stable")
        offset, length, place = offset[order], length[order], place[order]
    if not length.all():
        kept = length > 0
        offset, length, place = offset[kept], length[kept], place[kept]
    return Extents(offset, length, place)


def joined(start: Int64, length: Int64) -> tuple[Int64, Int64]:
    """The same bytes with neighbours made one: where each ends and the next begins.

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
    """``target[t:t+n] = source[s:s+n]`` for each ``(t, s, n)``; pieces of one side do not overlap on the target.

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
    """Pieces of `n` bytes that lie one behind another, as items of that size; None if they do not."""
    first, last = int(place[0]), int(place[-1])
    if last - first != (len(place) - 1) * n or not bool((place[1:] - place[:-1] == n).all()):
        return None
    return memory[first : last + n].view(np.dtype((np.void, n)))


def _windows(memory: Bytes, n: int) -> npt.NDArray[np.void]:
    """Element i is the `n` bytes from byte i on; copying elements is then numpy's memcpy of `n` bytes."""
    return np.ndarray((memory.nbytes - n + 1,), np.dtype((np.void, n)), memory, 0, (1,))


def _elements(memory: Bytes, unit: int) -> npt.NDArray[np.unsignedinteger]:
    return memory[: memory.nbytes // unit * unit].view(f"u{unit}")


def within(extents: Extents, nbytes: int) -> Extents:
    """The parts of extents that lie in a file of `nbytes` bytes."""
    return extents._replace(length=np.clip(nbytes - extents.offset, 0, extents.length))


def without_overlap(extents: Extents, memory: Bytes) -> tuple[Extents, Bytes]:
    """Extents in order, and their memory; where some overlap, what they cover and a memory for that.

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
    """From what the extents cover to their places in memory."""
    of = np.searchsorted(union.offset, extents.offset, side="right") - 1
    inside = union.place[of] + extents.offset - union.offset[of]
    copy_pieces(memory, extents.place, stage, inside, extents.length)


def touching(part: Extents) -> list[Extents]:
    """Cut extents (in order) where they do not touch in the file."""
    cuts = np.flatnonzero(part.offset[1:] != part.offset[:-1] + part.length[:-1]) + 1
    return [Extents(*columns) for columns in zip(*(np.split(column, cuts) for column in part), strict=True)]
