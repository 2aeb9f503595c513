"""Every read of numbers is carried out here: from the file into their places in a result.

Knows: places in the file, arrays, drivers. Does not know: variables, selections, who plans a read.

Rules
-----
1. A plan is steps, each of which says what is read and where in the result it goes; `carry_out` makes them, in two
   threads where the driver gains by that. A step is a `look` where the driver maps the file, else a `call`. What both
   refuse, the file does not hold. Reads that all ranks make together are the transport's, see `fetch.read_by_way`.
2. Each makes one pass over the memory of the result: a pass costs as much as the read of a cached file.
3. The short path is in `read_numbers`: what is small is read without steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.base import CALL_COST, Driver
from pnc_vol.extents import blocks
from pnc_vol.extents.model import Extents
from pnc_vol.flush.execute import BLOCK, block_of, in_parallel
from pnc_vol.format.numeric import swap_in_place
from pnc_vol.layout.base import OFFSET, SHIFT

__all__ = ["Step", "call", "carry_out", "look", "read_numbers", "read_strided"]

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

_MAPPED, _MAPPED_PIECES = 16 << 20, 4 << 20
"""Bytes that are converted from a mapped file at a time: of one run, and of several."""

_SMALL = 64 << 10
"""Bytes that are read without blocks, which take as long to cut."""
_FEW = 16
"""Pieces of these up to which each is read by a call of its own, which takes fewer steps, where calls are cheap."""

Step = Callable[[Bytes], bool]
"""A part of a read: it is given memory to work in, and returns False if the file does not hold what it reads."""


def carry_out(driver: Driver, steps: Iterable[Step], room: int = 0) -> bool:
    """Make the steps of a read; False if one of them failed, and those after it are left out.

    Parameters
    ----------
    room : int, bytes that a step is given to work in.
    """
    failed: list[bool] = []

    def task(step: Step) -> Callable[[Bytes], None]:
        def run(memory: Bytes) -> None:
            if not failed and not step(memory):
                failed.append(True)

        return run

    in_parallel(driver, map(task, steps), room)
    return not failed


def look(driver: Driver, end: int, nbytes: int, use: Callable[[Bytes], None]) -> Step:
    """Return the step that takes values from the file's own pages: one pass over memory, and no copy by the kernel.

    end, nbytes, use : see `Driver.look`.
    """
    return lambda _: driver.look(end, nbytes, use)


def call(driver: Driver, extents: Extents, memory: Bytes | None, done: Callable[[Bytes], None]) -> Step:
    """Return the step that reads some extents, and treats them while they are in the cache.

    Parameters
    ----------
    memory : uint8[...], of which the places of `extents` are; None: they are read, one behind another, to the memory
        that the step is given to work in.
    done : callable, is given that memory.
    """

    def step(room: Bytes) -> bool:
        nbytes = extents.nbytes
        target = room[:nbytes] if memory is None else memory
        if len(extents.offset) == 1:
            place = int(extents.place[0])
            got = driver.read_one(target[place : place + nbytes], int(extents.offset[0]))
        else:
            got = driver.read(extents, target)
        done(target)
        return got == nbytes

    return step


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
    if flat.nbytes <= _SMALL:
        if len(extents.offset) <= _FEW and driver.capabilities.call_cost <= CALL_COST:
            pieces = zip(*(column.tolist() for column in extents), strict=True)
            got = sum(driver.read_one(memory[place : place + n], offset) for offset, n, place in pieces)
        else:
            got = driver.read(extents, memory)
        if swaps:
            swap_in_place(memory, itemsize)
        return got == flat.nbytes

    def from_pages(block: Extents) -> Step:
        def use(file: Bytes) -> None:
            for offset, length, first in zip(*(column.tolist() for column in block), strict=True):
                part = flat[first // itemsize : (first + length) // itemsize]
                part[...] = np.ndarray(part.shape, file_dtype, file, offset & OFFSET)

        return look(driver, int((block.offset + block.length).max()), block.nbytes, use)

    def by_call(block: Extents) -> Step:
        first = int(block.place[0])

        def swap(_: Bytes) -> None:
            if swaps:
                swap_in_place(memory[first : first + block.nbytes], itemsize)

        return call(driver, block, memory, swap)

    if len(extents.offset) * driver.capabilities.call_cost <= flat.nbytes:
        # Each look asks whether the file is as long as the mapping still: few of them, but one for each of two threads.
        step = min(max(BLOCK, flat.nbytes // 2), _MAPPED) if len(extents.offset) == 1 else _MAPPED_PIECES
        parts = (block for part in _of_each_file(extents) for block in blocks.rounds(part, step // itemsize * itemsize))
        if carry_out(driver, map(from_pages, parts)):
            return True
    step = block_of(driver) // itemsize * itemsize
    return carry_out(driver, map(by_call, blocks.rounds(extents, step)))


def _of_each_file(extents: Extents) -> Iterator[Extents]:
    """Yield stretches of extents that lie in one file each, as a look is at one file."""
    number = extents.offset >> SHIFT
    cuts = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(number)]
    for first, last in pairwise(cuts):
        yield Extents(*(column[first:last] for column in extents))
