"""Pieces of a window as bytes that one rank gives to another: a compact list of where they belong, and their data.

Knows: pieces, bytes. Does not know: files, ranks, how parcels travel.

Rules
-----
1. A parcel is a head of five integers, the gaps between the pieces, their lengths, and their bytes; gaps and lengths
   take as few bytes each as the largest needs, and none if all lengths are one.
2. Each parcel takes a multiple of 8 bytes, so several can lie one behind another.
3. No parcel exceeds `LARGEST`: who receives needs no more memory at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.byte_copy import copy_pieces
from pnc_vol.extents.blocks import groups
from pnc_vol.extents.model import Int64, before

__all__ = ["LARGEST", "Parcel", "bytes_of", "parcels_of", "put", "sizes_in", "take"]

Bytes = npt.NDArray[np.uint8]

LARGEST = 1 << 20
"""Bytes of a parcel, and of a message of several, at most."""

_HEAD = 40
_MOST_OF_A_PIECE = 16
_DATA = LARGEST - _HEAD - _MOST_OF_A_PIECE - 8
_WIDER = np.array([1 << 8, 1 << 16, 1 << 32])
"""Numbers from which on each takes twice the bytes."""


class Parcel(NamedTuple):
    """What will be one parcel.

    inside, length, place : int64[n], see `Cut`; ascending, disjoint.
    gaps : int64[n], from the end of the piece before; the first is 0.
    gap_width, length_width : int, bytes that each of these takes; 0: all lengths are the same.
    data : int, bytes of the pieces.
    nbytes : int, bytes of the parcel.
    """

    inside: Int64
    length: Int64
    place: Int64
    gaps: Int64
    gap_width: int
    length_width: int
    data: int
    nbytes: int


def parcels_of(inside: Int64, length: Int64, place: Int64) -> list[Parcel]:
    """The parcels of the pieces of one cell.

    Examples
    --------
    >>> (one,) = parcels_of(np.array([8, 300]), np.array([4, 4]), np.array([0, 4]))
    >>> one.gap_width, one.length_width, one.nbytes
    (2, 0, 56)
    """
    n = len(length)
    if int(length.sum()) + _MOST_OF_A_PIECE * n <= _DATA:
        return [_parcel(inside, length, place)]
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
    nbytes = -(-(_HEAD + n * (gap_width + length_width) + data) // 8) * 8
    return Parcel(inside, length, place, gaps, gap_width, length_width, data, nbytes)


def _width(largest: int) -> int:
    return 1 if largest < 1 << 8 else 2 if largest < 1 << 16 else 4 if largest < 1 << 32 else 8


def bytes_of(inside: Int64, length: Int64, count: Int64) -> Int64:
    """Bytes that the parcels of each of many cells take, as `parcels_of` would make them.

    Parameters
    ----------
    inside, length : int64[n], the pieces of one cell behind those of another.
    count : int64[cells], pieces of each cell, at least one.

    Examples
    --------
    >>> bytes_of(np.array([8, 300, 0]), np.array([4, 4, 16]), np.array([2, 1])).tolist()
    [56, 64]
    """
    if not len(count):
        return np.empty(0, np.int64)
    begin = before(count)
    gaps = np.zeros(len(inside), np.int64)
    np.subtract(inside[1:], inside[:-1] + length[:-1], out=gaps[1:])
    gaps[begin] = 0
    data, longest = np.add.reduceat(length, begin), np.maximum.reduceat(length, begin)
    same = longest == np.minimum.reduceat(length, begin)
    widths = _widths(np.maximum.reduceat(gaps, begin)) + np.where(same, 0, _widths(longest))
    nbytes = -(-(_HEAD + count * widths + data) // 8) * 8
    for i in np.flatnonzero(data + _MOST_OF_A_PIECE * count > _DATA).tolist():
        part = slice(int(begin[i]), int(begin[i] + count[i]))
        nbytes[i] = sum(parcel.nbytes for parcel in parcels_of(inside[part], length[part], inside[part]))
    return nbytes


def _widths(largest: Int64) -> Int64:
    """`_width` of each."""
    return 1 << np.searchsorted(_WIDER, largest, side="right")


def put(parcel: Parcel, memory: Bytes, into: Bytes) -> None:
    """Write a parcel.

    memory : uint8[...], where the pieces are.
    into : uint8[...], of `Parcel.nbytes` at least; begins at a multiple of 8.
    """
    n = len(parcel.length)
    widths = parcel.gap_width | parcel.length_width << 8
    into[:_HEAD].view(np.int64)[:] = parcel.nbytes, n, parcel.inside[0], widths, parcel.length[0]
    at = _HEAD
    for numbers, width in ((parcel.gaps, parcel.gap_width), (parcel.length, parcel.length_width)):
        if width:
            into[at : at + n * width].view(f"u{width}")[:] = numbers
            at += n * width
    copy_pieces(into[at : at + parcel.data], before(parcel.length), memory, parcel.place, parcel.length)


def take(parcels: Bytes, window: Bytes) -> None:
    """Put the pieces of parcels that lie one behind another into a window, in this order."""
    at = 0
    while at < len(parcels):
        nbytes, n, inside, widths, same = parcels[at : at + _HEAD].view(np.int64).tolist()
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
        copy_pieces(window, target, parcels[begin : at + nbytes], where, length)
        at += nbytes


def sizes_in(parcels: Bytes) -> list[int]:
    """Bytes of each of the parcels that lie one behind another."""
    found, at = [], 0
    while at < len(parcels):
        found.append(int(parcels[at : at + 8].view(np.int64)[0]))
        at += found[-1]
    return found
