"""Every read of numbers is carried out here: from the file into their places in a result.

Knows: places in the file, arrays, drivers. Does not know: variables, selections, who plans a read.

Rules
-----
1. A plan says what is read and where in the result it goes; two functions carry plans out: `by_looks` where the driver
   maps the file, else `by_calls`. What both refuse, the file does not hold.
2. Each makes one pass over the memory of the result: a pass costs as much as the read of a cached file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.base import Driver
from pnc_vol.extents import blocks
from pnc_vol.extents.model import Extents
from pnc_vol.flush.execute import BLOCK, block_of, in_parallel
from pnc_vol.layout.base import OFFSET

__all__ = ["Call", "Look", "by_calls", "by_looks", "read_numbers", "read_strided"]

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

_MAPPED, _MAPPED_PIECES = 16 << 20, 4 << 20
"""Bytes that are converted from a mapped file at a time: of one run, and of several."""

Look = tuple[int, int, Callable[[Bytes], None]]
"""The byte of the file up to which it is looked at, the bytes that are taken, and what takes them from the file."""

Call = tuple[Extents, Bytes | None, Callable[[Bytes], None]]
"""What is read by one call, into which memory, which its places are of, and what is done with that then; without
memory of its own it is read, one extent behind another, to a room that the next call uses again."""


def by_looks(driver: Driver, looks: Iterable[Look]) -> bool:
    """Take values from the file's own pages, which makes one pass over memory, and no copy by the kernel.

    Returns
    -------
    bool
        False if the driver does not map the file, or it is shorter: then it is to be read by calls.
    """
    refused: list[int] = []

    def task(end: int, nbytes: int, use: Callable[[Bytes], None]) -> Callable[[Bytes], None]:
        def run(_: Bytes) -> None:
            if not refused and not driver.look(end, nbytes, use):
                refused.append(end)

        return run

    in_parallel(driver, (task(*look) for look in looks), 0)
    return not refused


def by_calls(driver: Driver, calls: Iterable[Call], room: int = 0) -> bool:
    """Read values by calls, and treat each block while it is in the cache.

    Parameters
    ----------
    room : int, bytes of the largest call without memory of its own.

    Returns
    -------
    bool
        False if the file ended before the data.
    """
    short: list[int] = []

    def task(extents: Extents, memory: Bytes | None, done: Callable[[Bytes], None]) -> Callable[[Bytes], None]:
        def run(own: Bytes) -> None:
            nbytes = extents.nbytes
            target = own[:nbytes] if memory is None else memory
            if len(extents.offset) == 1:
                place = int(extents.place[0])
                got = driver.read_one(target[place : place + nbytes], int(extents.offset[0]))
            else:
                got = driver.read(extents, target)
            if got < nbytes:
                short.append(got)
            done(target)

        return run

    in_parallel(driver, (task(*call) for call in calls), room)
    return not short


def read_strided(
    driver: Driver,
    first: int,
    counts: Sequence[int],
    strides: Sequence[int],
    file_dtype: np.dtype[Any],
    out: Array,
    small: int,
) -> bool:
    """Fill an array with elements at equal distances along each axis, in one call or one look; False: it cannot be so.

    Parameters
    ----------
    first : int, the byte where the first element begins.
    counts, strides : elements along each axis, and bytes from one to the next.
    out : ndarray of that shape; the values are converted to its dtype.
    small : int, bytes from the first element to the last up to which all between them is read.
    """
    span = file_dtype.itemsize + sum((n - 1) * step for n, step in zip(counts, strides, strict=True))
    if span > small:

        def use(file: Bytes) -> None:
            out[...] = np.ndarray(counts, file_dtype, file, first, strides)

        return driver.look(first + span, out.nbytes, use)
    memory = np.empty(span, np.uint8)
    if driver.read_one(memory, first) < span:
        return False
    out[...] = np.ndarray(counts, file_dtype, memory, 0, strides)
    return True


def read_numbers(driver: Driver, file_dtype: np.dtype[Any], extents: Extents, flat: Array) -> bool:
    """Fill an array with numbers of the file: what all large reads of runs end in.

    Parameters
    ----------
    driver : Driver
    file_dtype : dtype of an element in the file.
    extents : Extents, one behind another in `flat`, without gaps.
    flat : ndarray, one-dimensional and contiguous, of numbers of that type in either byte order.

    Returns
    -------
    bool
        False if the file ended before the data; what `flat` holds is then not known.

    Raises
    ------
    OSError
        The file could not be read.
    """
    itemsize, memory = file_dtype.itemsize, flat.view(np.uint8)
    swaps = itemsize > 1 and flat.dtype != file_dtype

    def look(block: Extents) -> Look:
        def use(file: Bytes) -> None:
            for offset, length, first in zip(*(column.tolist() for column in block), strict=True):
                part = flat[first // itemsize : (first + length) // itemsize]
                part[...] = np.ndarray(part.shape, file_dtype, file, offset & OFFSET)

        return int((block.offset + block.length).max()), block.nbytes, use

    def call(block: Extents) -> Call:
        first = int(block.place[0])
        part = memory[first : first + block.nbytes].view(flat.dtype)

        def swap(_: Bytes) -> None:
            if swaps:
                part.byteswap(inplace=True)

        return block, memory, swap

    # Each look asks whether the file is as long as the mapping still: few of them, but one for each of two threads.
    step = min(max(BLOCK, flat.nbytes // 2), _MAPPED) if len(extents.offset) == 1 else _MAPPED_PIECES
    if by_looks(driver, map(look, blocks.rounds(extents, step // itemsize * itemsize))):
        return True
    step = block_of(driver) // itemsize * itemsize
    return by_calls(driver, map(call, blocks.rounds(extents, step)))
