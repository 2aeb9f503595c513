"""A parcel holds pieces of a window that one rank gives to another: a list of where they belong, and their data.

Knows: pieces, bytes. Does not know: files, ranks, how parcels travel.

Rules
-----
1. A parcel is a head of six integers, the gaps between the pieces, their lengths, and their bytes; gaps and lengths
   take as few bytes each as the largest needs, and none if all lengths are one. A request for pieces is the same
   without the bytes; the answer is the bytes alone.
2. Parcels, requests and answers take a multiple of 8 bytes each, so several can lie one behind another.
3. No parcel exceeds `LARGEST`, nor does a request with its answer: who receives needs no more memory at a time.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.vectored_io import copy_pieces
from pnc_vol.extents.blocks import groups
from pnc_vol.extents.model import Int64, before, distinct, spread

__all__ = [
    "LARGEST",
    "Parcel",
    "answer",
    "answer_size",
    "parcels_of",
    "put",
    "request",
    "sizes_in",
    "sizes_of",
    "take",
]

Bytes = npt.NDArray[np.uint8]

LARGEST = 1 << 20
"""Bytes of a parcel, and of a message of several, at most."""

_HEADS = struct.Struct("=6q")
"""Bytes of the parcel or request, pieces, place of the first, widths of gaps and lengths, the first length, data."""
_HEAD = _HEADS.size
_MOST_OF_A_PIECE = 16
_FEW = 4
"""Parcels up to which taking one after another is faster than all at once."""
_DATA = LARGEST - _HEAD - _MOST_OF_A_PIECE - 8
_WIDER = np.array([1 << 8, 1 << 16, 1 << 32])
"""Numbers from which on each takes twice the bytes."""


class Parcel(NamedTuple):
    """What will be one parcel.

    inside, length, place : int64[n], see `Cut`; ascending, disjoint.
    gaps : int64[n], from the end of the piece before; the first is 0.
    gap_width, length_width : int, bytes that each of these takes; 0: all lengths are the same.
    data : int, bytes of the pieces.
    index_size : int, bytes of the parcel without these.
    """

    inside: Int64
    length: Int64
    place: Int64
    gaps: Int64
    gap_width: int
    length_width: int
    data: int
    index_size: int

    @property
    def nbytes(self) -> int:
        """Bytes of the parcel."""
        return _eights(self.index_size + self.data)

    @property
    def request(self) -> int:
        """Bytes of the request for these pieces."""
        return _eights(self.index_size)

    @property
    def answer(self) -> int:
        """Bytes of the answer."""
        return _eights(self.data)


def parcels_of(inside: Int64, length: Int64, place: Int64) -> list[Parcel]:
    """Return the parcels of the pieces of one cell.

    Examples
    --------
    >>> (one,) = parcels_of(np.array([8, 300]), np.array([4, 4]), np.array([0, 4]))
    >>> one.gap_width, one.length_width, one.nbytes
    (2, 0, 64)
    """
    n = len(length)
    # Mostly what a rank has for one window is one parcel.
    if int(length.sum()) + _MOST_OF_A_PIECE * n <= _DATA:
        return [_parcel(inside, length, place)]
    # Pieces of half a parcel at most: so no parcel but the last is less than half full.
    if int(length.max()) > _DATA // 2:
        cuts = -(-length // (_DATA // 2))
        owner = np.repeat(np.arange(n), cuts)
        skip = (np.arange(len(owner)) - before(cuts)[owner]) * (_DATA // 2)
        inside, place = inside[owner] + skip, place[owner] + skip
        length = np.minimum(length[owner] - skip, _DATA // 2)
    end = np.cumsum(length + _MOST_OF_A_PIECE)
    parts = groups(end - length - _MOST_OF_A_PIECE, end, _DATA)
    return [_parcel(inside[i:j], length[i:j], place[i:j]) for i, j in parts]


def _parcel(inside: Int64, length: Int64, place: Int64) -> Parcel:
    n = len(length)
    gaps = np.zeros(n, np.int64)
    np.subtract(inside[1:], inside[:-1] + length[:-1], out=gaps[1:])
    longest = int(length.max())
    gap_width = _width(int(gaps.max()))
    length_width = 0 if longest == int(length.min()) else _width(longest)
    data = int(length.sum())
    return Parcel(inside, length, place, gaps, gap_width, length_width, data, _HEAD + n * (gap_width + length_width))


def _eights(nbytes: int) -> int:
    return -(-nbytes // 8) * 8


def _width(largest: int) -> int:
    return 1 if largest < 1 << 8 else 2 if largest < 1 << 16 else 4 if largest < 1 << 32 else 8


def sizes_of(inside: Int64, length: Int64, count: Int64) -> Int64:
    """Return what each of many cells takes, as `parcels_of` would make its parcels.

    Parameters
    ----------
    inside, length : int64[n], the pieces of one cell behind those of another.
    count : int64[cells], pieces of each cell, at least one.

    Returns
    -------
    int64[cells, 3]
        Bytes of the parcels, of the requests for them, and of the answers.

    Examples
    --------
    >>> sizes_of(np.array([8, 300, 0]), np.array([4, 4, 16]), np.array([2, 1])).tolist()
    [[64, 56, 8], [72, 56, 16]]
    """
    if not len(count):
        return np.empty((0, 3), np.int64)
    begin = before(count)
    gaps = np.zeros(len(inside), np.int64)
    np.subtract(inside[1:], inside[:-1] + length[:-1], out=gaps[1:])
    # The difference to the last piece of another cell is no gap.
    gaps[begin] = 0
    data, longest = np.add.reduceat(length, begin), np.maximum.reduceat(length, begin)
    same = longest == np.minimum.reduceat(length, begin)
    widths = _widths(np.maximum.reduceat(gaps, begin)) + np.where(same, 0, _widths(longest))
    index = _HEAD + count * widths
    sizes = -(-np.stack((index + data, index, data), axis=1) // 8) * 8
    # Few cells need several parcels; these are made, as their number depends on where the pieces are cut.
    for i in np.flatnonzero(data + _MOST_OF_A_PIECE * count > _DATA).tolist():
        part = slice(int(begin[i]), int(begin[i] + count[i]))
        parcels = parcels_of(inside[part], length[part], inside[part])
        sizes[i] = np.sum([(one.nbytes, one.request, one.answer) for one in parcels], axis=0)
    return sizes


def _widths(largest: Int64) -> Int64:
    """Return `_width` of each."""
    return 1 << np.searchsorted(_WIDER, largest, side="right")


def put(parcel: Parcel, memory: Bytes, into: Bytes) -> None:
    """Write a parcel.

    memory : uint8[...], where the pieces are.
    into : uint8[...], of `Parcel.nbytes` at least; begins at a multiple of 8.
    """
    _put_index(parcel, parcel.nbytes, into)
    data = into[parcel.index_size : parcel.index_size + parcel.data]
    copy_pieces(data, before(parcel.length), memory, parcel.place, parcel.length)


def request(parcel: Parcel, into: Bytes) -> None:
    """Write the request for the pieces of a parcel; `into` as in `put`, of `Parcel.request` bytes."""
    _put_index(parcel, parcel.request, into)


def _put_index(parcel: Parcel, nbytes: int, into: Bytes) -> None:
    n = len(parcel.length)
    widths = parcel.gap_width | parcel.length_width << 8
    into[:_HEAD].view(np.int64)[:] = nbytes, n, parcel.inside[0], widths, parcel.length[0], parcel.data
    at = _HEAD
    for numbers, width in ((parcel.gaps, parcel.gap_width), (parcel.length, parcel.length_width)):
        if width:
            into[at : at + n * width].view(f"u{width}")[:] = numbers
            at += n * width


def take(parcels: Bytes, window: Bytes) -> None:
    """Put the pieces of parcels that lie one behind another into a window, in this order."""
    sizes = sizes_in(parcels)
    if len(sizes) > _FEW:
        # Where thousands of ranks have a few pieces each for a window, a loop over parcels takes longer than all else.
        target, where, length = _every_piece(parcels, sizes)
        order = np.argsort(target, kind="stable")
        if bool((target[order[:-1]] + length[order[:-1]] <= target[order[1:]]).all()):
            copy_pieces(window, target, parcels, where, length)
            return
    at = 0
    for nbytes in sizes:
        target, where, length, begin = _pieces(parcels, at)
        copy_pieces(window, target, parcels[begin : at + nbytes], where, length)
        at += nbytes


def answer(requests: Bytes, window: Bytes, into: Bytes) -> None:
    """Put the bytes that requests ask of a window one behind another; `into` is of `answer_size` bytes."""
    at = done = 0
    while at < len(requests):
        source, where, length, _ = _pieces(requests, at)
        nbytes, *_, data = _HEADS.unpack_from(requests.data, at)
        copy_pieces(into[done : done + data], where, window, source, length)
        at, done = at + nbytes, done + _eights(data)


def answer_size(requests: Bytes) -> int:
    """Return the number of bytes of the answers to requests that lie one behind another."""
    found = at = 0
    while at < len(requests):
        nbytes, *_, data = _HEADS.unpack_from(requests.data, at)
        at, found = at + nbytes, found + _eights(data)
    return found


def _pieces(parcels: Bytes, at: int) -> tuple[Int64, Int64, Int64, int]:
    """Return, for the pieces of the parcel at a byte, places in the window and in the data, lengths; where the data
    begin."""
    _, n, inside, widths, same, _ = _HEADS.unpack_from(parcels.data, at)
    begin = at + _HEAD
    gap_width, length_width = widths & 255, widths >> 8
    gaps = parcels[begin : begin + n * gap_width].view(f"u{gap_width}")
    begin += n * gap_width
    length = np.full(n, same, np.int64)
    if length_width:
        length[:] = parcels[begin : begin + n * length_width].view(f"u{length_width}")
        begin += n * length_width
    where = before(length)
    target = np.cumsum(gaps, dtype=np.int64)
    target += where
    target += inside
    return target, where, length, begin


def _every_piece(parcels: Bytes, sizes: list[int]) -> tuple[Int64, Int64, Int64]:
    """Return, for pieces of parcels of these sizes, places in the window, places of their data in `parcels`, and
    lengths."""
    starts = before(np.array(sizes, np.int64))
    # Parcels begin at multiples of 8, so each head is six of the numbers of one array.
    heads: Int64 = parcels[: len(parcels) // 8 * 8].view(np.int64)[(starts // 8)[:, None] + np.arange(6)]
    count = heads[:, 1]
    owner, number = spread(count)
    first = before(count)
    gap_width, length_width = heads[:, 3] & 255, heads[:, 3] >> 8
    begin = starts + _HEAD
    gaps = _numbers(parcels, begin, gap_width, owner, number)
    begin = begin + count * gap_width
    length = np.where(length_width > 0, 0, heads[:, 4])[owner] + _numbers(parcels, begin, length_width, owner, number)
    begin = begin + count * length_width
    passed = before(length)
    place = passed + (begin - passed[first])[owner]
    # One running sum for all parcels, less what it is at the first piece of each.
    inside = np.cumsum(gaps) + passed
    inside += (heads[:, 2] - inside[first])[owner]
    return inside, place, length


def _numbers(parcels: Bytes, begin: Int64, width: Int64, owner: Int64, number: Int64) -> Int64:
    """Return the numbers of lists that begin at these bytes; 0 where a list has no bytes.

    Parameters
    ----------
    begin, width : int64[parcels], of each list, and of each number in it.
    owner, number : int64[n], the list of each number, and which it is.
    """
    found = np.zeros(len(owner), np.int64)
    for size in distinct(width[width > 0]).tolist():
        these = width[owner] == size
        at = begin[owner[these]] + number[these] * size
        # A view with a number at each byte: lists begin anywhere, and numpy reads numbers that are not aligned.
        found[these] = np.ndarray((len(parcels) - size + 1,), f"<u{size}", parcels, 0, (1,))[at]
    return found


def sizes_in(parcels: Bytes) -> list[int]:
    """Return bytes of each of the parcels, or requests, that lie one behind another."""
    found, at = [], 0
    while at < len(parcels):
        found.append(_HEADS.unpack_from(parcels.data, at)[0])
        at += found[-1]
    return found
