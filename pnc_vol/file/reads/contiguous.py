"""Reads of runs of numbers that lie in the file: what most reads are, in few steps, from the file into the result.

Knows: places of variables, indices, runs, drivers. Does not know: fill values, writes that are not flushed; who calls
falls back to `fetch` where these matter: None or False here always means "read it in the general way".

Rules
-----
1. What has to be known of a variable is looked up once for each layout in force (`facts_of`).
2. A small run is one call of the driver and one swap (`read_run`); it takes no selection, no plan, no thread. Nor do
   equal runs at equal distances, which numpy copies from the mapped file as one array (`_read_rows`).
3. All else goes through `read_numbers`, which makes one pass over the memory of the result: a pass costs as much as
   the read of a cached file.
4. What is small follows from the driver's declared cost of a call, and where a run lies from the layout's `Place`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.base import CALL_COST, Driver
from pnc_vol.extents.model import MOST_AXES, Extents, one_extent
from pnc_vol.extents.one_run import FewRuns, few_runs
from pnc_vol.file.session import Session
from pnc_vol.flush.stream import BLOCK, block_of, in_parallel
from pnc_vol.late import late
from pnc_vol.layout.places import Place
from pnc_vol.mapping.tree import DatasetNode

if TYPE_CHECKING:
    from pnc_vol.extents import blocks
    from pnc_vol.file.reads import gathered
else:
    # for sets of subfiles
    gathered = late("pnc_vol.file.reads.gathered")
    blocks = late("pnc_vol.extents.blocks")

__all__ = ["Facts", "facts_of", "read_numbers", "read_run", "read_simply"]

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]


_MAPPED, _MAPPED_PIECES = 16 << 20, 4 << 20
"""Bytes that are converted from a mapped file at a time: of one run, and of several."""

_SHARED = 4 << 20
"""Bytes of the result from which on two threads look at a file; see `hyperslabs`."""


class Facts(NamedTuple):
    """What a read of a variable of numbers needs to know.

    at : Place
    itemsize : int, bytes of an element.
    grows : bool, it has the record dimension.
    dtype : dtype of the result.
    swaps : bool, the file has another byte order than that.
    file_dtype : dtype of an element in the file.
    """

    at: Place
    itemsize: int
    grows: bool
    dtype: np.dtype[Any]
    swaps: bool
    file_dtype: np.dtype[Any]


_make: Any = tuple.__new__


def facts_of(session: Session, node: DatasetNode) -> Facts | None:
    """The facts of a variable that the header in the file has; None if it is no such variable, or no plain numbers."""
    placed = session.disk.layout
    known, uid = placed.facts, node.uid
    found = known.get(uid)
    if found is None and uid not in known:
        element, shape = node.element, node.shape or ()
        # No array has more axes: `fetch` says so, if it comes to that.
        if element.kind == "number" and uid in placed.header_uids and len(shape) <= MOST_AXES:
            at = None if 0 in shape and node.is_placeholder else placed.place_of(uid)
            dtype, file_dtype = element.dtype, element.file_dtype
            if at is not None and at.itemsize == file_dtype.itemsize and node.shape is not None:
                swaps = at.itemsize > 1 and dtype != file_dtype
                found = _make(Facts, (at, at.itemsize, at.inner > 0, dtype, swaps, file_dtype))
        known[uid] = found
    return found


def read_simply(session: Session, node: DatasetNode, args: Any) -> Array | None:
    """What ``ds[args]`` is, if that is a run of numbers in the file that nobody posted to."""
    # What most variables have is looked up here: the calls of a small read cost as much as the system's.
    facts = session.disk.layout.facts.get(node.uid) or facts_of(session, node)
    if facts is None and session.file_set is None:
        return None
    if session.writable and session.posted.queue.has(node.uid):
        return None
    found = few_runs(node.shape or (), args)
    if found is None:
        return None
    if found[3] > 1:
        return None if facts is None else _read_rows(session, node, facts, found)
    if facts is None:
        return gathered.read_gathered(session, node, found[0], found[1], found[2])
    return read_run(session, node, facts, found[0], found[1], found[2])


def read_run(
    session: Session,
    node: DatasetNode,
    facts: Facts,
    start: int,
    nelems: int,
    shape: tuple[int, ...],
    out: Array | None = None,
) -> Array | None:
    """`nelems` elements from `start` on, as an array of `shape`; None if the file does not hold them in one piece.

    out : ndarray of `shape`, C-contiguous, of the variable's numbers in either byte order; a new one by default.
    """
    at, itemsize, grows, dtype, swaps, _ = facts
    if not grows and nelems:
        offset = at.begin + start * itemsize
    else:
        offset = at.offset_of_run(start, nelems) if nelems else -1
        if offset < 0 or start >= session.disk.layout.elements_stored(node, at):
            return None
    if out is None:
        out = np.empty(shape, dtype)
    elif out.dtype != dtype:
        swaps = not swaps
    nbytes = nelems * itemsize
    if nbytes <= BLOCK:
        if session.disk.driver.read_one(out, offset) < nbytes:
            return None
        if swaps:
            out.byteswap(True)
        return out
    whole = read_numbers(session.disk.driver, facts, one_extent(offset, out.nbytes), out.reshape(-1))
    return out if whole else None


def _read_rows(session: Session, node: DatasetNode, facts: Facts, found: FewRuns) -> Array | None:
    """Runs of equal length at equal distances, as one array of the file that numpy copies: a column, a block, a cell
    through time. None if the file's bytes cannot be had as memory, or there are so many that two threads share them.
    """
    start, length, shape, number, step = found
    at, itemsize, grows, dtype, _, file_dtype = facts
    nbytes, stride = number * length * itemsize, step * itemsize
    first = at.offset_of_run(start, length)
    if grows:
        last = start + (number - 1) * step
        if first < 0 or last >= session.disk.layout.elements_stored(node, at):
            return None
        if start // at.inner != last // at.inner:
            if step % at.inner:
                return None
            stride = step // at.inner * at.record_size
        elif at.offset_of_run(last, length) < 0:
            return None
    driver, span = session.disk.driver, (number - 1) * stride + length * itemsize
    if nbytes > _SHARED:
        return None
    out = np.empty(shape, dtype)
    rows = out.reshape(number, length)
    if span <= CALL_COST and span <= driver.capabilities.call_cost:
        memory = np.empty(span, np.uint8)
        if driver.read_one(memory, first) < span:
            return None
        rows[...] = np.ndarray((number, length), file_dtype, memory, 0, (stride, itemsize))
        return out

    def use(file: Bytes) -> None:
        rows[...] = np.ndarray((number, length), file_dtype, file, first, (stride, itemsize))

    return out if driver.look(first + span, nbytes, use) else None


def read_numbers(driver: Driver, facts: Facts, extents: Extents, flat: Array) -> bool:
    """Fill an array with numbers of the file: what all large reads of runs end in.

    Parameters
    ----------
    driver : Driver
    facts : Facts, of the variable.
    extents : Extents, one behind another in `flat`, without gaps.
    flat : ndarray, one-dimensional and contiguous, of the variable's numbers in either byte order.

    Returns
    -------
    bool
        False if the file ended before the data; what `flat` holds is then not known.

    Raises
    ------
    OSError
        The file could not be read.
    """
    return _from_mapping(driver, facts, extents, flat) or _in_blocks(driver, facts, extents, flat)


def _from_mapping(driver: Driver, facts: Facts, extents: Extents, flat: Array) -> bool:
    """Convert from the file's own pages where they can be mapped: one pass over memory, and no copy by the kernel."""
    itemsize, refused = facts.itemsize, [False]

    def task(block: Extents) -> Callable[[Bytes], None]:
        def use(file: Bytes) -> None:
            for offset, length, first in zip(*(column.tolist() for column in block), strict=True):
                part = flat[first // itemsize : (first + length) // itemsize]
                part[...] = np.ndarray(part.shape, facts.file_dtype, file, offset)

        def run(_: Bytes) -> None:
            end = int((block.offset + block.length).max())
            if not refused[0] and not driver.look(end, block.nbytes, use):
                refused[0] = True

        return run

    # Each task asks once whether the file is still as long as the mapping: few tasks, but one for each of two threads.
    step = min(max(BLOCK, flat.nbytes // 2), _MAPPED) if len(extents.offset) == 1 else _MAPPED_PIECES
    in_parallel(driver, (task(block) for block in blocks.rounds(extents, step // itemsize * itemsize)), 0)
    return not refused[0]


def _in_blocks(driver: Driver, facts: Facts, extents: Extents, flat: Array) -> bool:
    """Read blocks where they belong, and swap each while it is in the cache: no second pass over memory."""
    memory: Bytes = flat.view(np.uint8)
    width = facts.itemsize if flat.dtype != facts.file_dtype else 1
    short: list[int] = []

    def task(block: Extents) -> Callable[[Bytes], None]:
        def run(_: Bytes) -> None:
            nbytes, first = block.nbytes, int(block.place[0])
            part = memory[first : first + nbytes]
            one = len(block.offset) == 1
            if (driver.read_one(part, int(block.offset[0])) if one else driver.read(block, memory)) < nbytes:
                short.append(first)
            if width > 1:
                part.view(flat.dtype).byteswap(inplace=True)

        return run

    step = block_of(driver) // facts.itemsize * facts.itemsize
    in_parallel(driver, (task(block) for block in blocks.rounds(extents, step)), 0)
    return not short
