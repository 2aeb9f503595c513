"""Bytes collected from many places of a memory, and put back.

Knows: extents' places and lengths. Does not know: offsets, files.

Rules
-----
1. Few or large pieces are copied one by one, at the speed of memory.
2. Many small pieces are copied by numpy, a piece of n bytes as one item of the type ``V{n}``: about 25 ns a piece.
   Pieces of unequal length are taken apart into powers of two, so a handful of calls does all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.extents.model import Extents, Int64
from pnc_vol.extents.ragged import before

__all__ = ["gather", "scatter"]

Bytes = npt.NDArray[np.uint8]

# Below this number of pieces the calls of the vectorised way cost more than a loop of slice copies.
_FEW = 24
# From this length on, copying is all that takes time.
_LARGE_BITS = 14
_LARGE = 1 << _LARGE_BITS


def gather(extents: Extents, memory: Bytes) -> Bytes:
    """The extents' bytes, one after another in the order of the list.

    Parameters
    ----------
    extents : Extents
    memory : uint8[m], contiguous.

    Returns
    -------
    uint8[extents.nbytes]
        A view of `memory` where the bytes lie together already, so it is for reading only; else a new array.

    Examples
    --------
    >>> memory = np.arange(10, dtype=np.uint8)
    >>> gather(Extents(*(np.array(c) for c in ([0, 50], [2, 3], [7, 0]))), memory).tolist()
    [7, 8, 0, 1, 2]
    """
    _, length, place = extents
    _check(length, place, memory)
    together = _together(length, place)
    if together is not None:
        first, nbytes = together
        return memory[first : first + nbytes]
    size = _equal(length)
    if size and length.size > _FEW:
        return _items(memory, size)[place].view(np.uint8)
    packed = np.empty(int(length.sum()), np.uint8)
    _move(packed, before(length), memory, place, length)
    return packed


def scatter(extents: Extents, packed: Bytes, memory: Bytes) -> None:
    """Put packed bytes, in the order of the list, at the extents' places: the inverse of `gather`.

    Parameters
    ----------
    extents : Extents
        Their places must not overlap.
    packed : uint8[extents.nbytes], contiguous.
    memory : uint8[m], contiguous and writable; it must not share bytes with `packed`.

    Raises
    ------
    ValueError
        `packed` does not have as many bytes as the extents.
    IndexError
        A place lies outside `memory`.

    Examples
    --------
    >>> memory = np.zeros(5, np.uint8)
    >>> scatter(Extents(*(np.array(c) for c in ([0, 9], [1, 2], [4, 0]))), np.array([7, 8, 9], np.uint8), memory)
    >>> memory.tolist()
    [8, 9, 0, 0, 7]
    """
    _, length, place = extents
    if packed.size != int(length.sum()):
        raise ValueError(f"{packed.size} bytes were given for extents of {int(length.sum())} bytes")
    _check(length, place, memory)
    together = _together(length, place)
    size = _equal(length)
    if together is not None:
        first, nbytes = together
        memory[first : first + nbytes] = packed
    elif size and length.size > _FEW:
        _items(memory, size)[place] = packed.view(f"V{size}")
    else:
        _move(memory, place, packed, before(length), length)


def _check(length: Int64, place: Int64, memory: Bytes) -> None:
    """Places are numbers of others: a wrong one must not read or write beyond the memory."""
    if length.size and (int(place.min()) < 0 or int((place + length).max()) > memory.size):
        reached = f"byte {int(place.min())} to {int((place + length).max())}"
        raise IndexError(f"extents reach from {reached} of a memory of {memory.size} bytes")


def _together(length: Int64, place: Int64) -> tuple[int, int] | None:
    """(first, nbytes) if each piece begins where the one before it ends."""
    if length.size == 0:
        return 0, 0
    if length.size > 1 and not bool((place[1:] == place[:-1] + length[:-1]).all()):
        return None
    return int(place[0]), int(place[-1] + length[-1] - place[0])


def _equal(length: Int64) -> int:
    """The length of all pieces, or 0 if they differ, are empty or large."""
    size = int(length[0]) if length.size else 0
    return size if size < _LARGE and bool((length == size).all()) else 0


def _items(memory: Bytes, size: int) -> npt.NDArray[Any]:
    """`memory` as items of `size` bytes, one beginning at every byte."""
    return np.ndarray((memory.size - size + 1,), f"V{size}", memory.data, strides=(1,))


def _move(target: Bytes, target_at: Int64, source: Bytes, source_at: Int64, length: Int64) -> None:
    """``target[target_at:+length] = source[source_at:+length]`` for each piece."""
    if length.size > _FEW:
        one_by_one = np.flatnonzero(length >= _LARGE)
        small = np.flatnonzero(length < _LARGE) if one_by_one.size else slice(None)
        _move_small(target, target_at[small], source, source_at[small], length[small])
        target_at, source_at, length = target_at[one_by_one], source_at[one_by_one], length[one_by_one]
    for to, at, nbytes in zip(target_at.tolist(), source_at.tolist(), length.tolist(), strict=True):
        target[to : to + nbytes] = source[at : at + nbytes]


def _move_small(target: Bytes, target_at: Int64, source: Bytes, source_at: Int64, length: Int64) -> None:
    """`_move` for pieces below `_LARGE` bytes: one call a binary digit of the length."""
    used = int(np.bitwise_or.reduce(length)) if length.size else 0
    for bit in range(_LARGE_BITS):
        size = 1 << bit
        if not used & size:
            continue
        these = np.flatnonzero(length & size)
        # The lower digits' bytes are done and lie before.
        done = length[these] & (size - 1)
        _items(target, size)[target_at[these] + done] = _items(source, size)[source_at[these] + done]
