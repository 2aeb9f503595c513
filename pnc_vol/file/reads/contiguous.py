"""Reads of runs of numbers that lie in the file: what most reads are, in few steps, from the file into the result.

Knows: places of variables, indices, runs, drivers. Does not know: fill values, writes that are not flushed; who calls
falls back to `fetch` where these matter: None or False here always means "read it in the general way".

Rules
-----
1. What has to be known of a variable is looked up once for each layout in force (`facts_of`).
2. The short path: a small run is one call of the driver and one swap (`read_run`); it takes no selection, no plan, no
   thread. Nor do equal runs at equal distances, which numpy picks from one call, or one look (`read_strided`).
3. What is small follows from the driver's declared cost of a call, and where a run lies from the layout's `Place`.
4. Hyperslabs are apart (`hyperslabs`): what is read between their elements follows from strides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.base import CALL_COST
from pnc_vol.extents.model import MOST_AXES, one_extent
from pnc_vol.extents.place import FewRuns, few_runs
from pnc_vol.file.reads.execute import read_numbers, read_strided
from pnc_vol.file.session import Session
from pnc_vol.flush.stream import BLOCK
from pnc_vol.late import late
from pnc_vol.layout.places import Place
from pnc_vol.mapping.tree import DatasetNode

if TYPE_CHECKING:
    from pnc_vol.file.reads import gathered
else:
    # for sets of subfiles
    gathered = late("pnc_vol.file.reads.gathered")

__all__ = ["Facts", "facts_of", "read_run", "read_simply"]

Array = npt.NDArray[Any]


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
    if out.nbytes <= BLOCK:
        if session.disk.driver.read_one(out, offset) < out.nbytes:
            return None
        if swaps:
            out.byteswap(True)
        return out
    extents = one_extent(offset, out.nbytes)
    return out if read_numbers(session.disk.driver, facts.file_dtype, extents, out.reshape(-1)) else None


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
    if nbytes > _SHARED:
        return None
    out, driver = np.empty(shape, dtype), session.disk.driver
    small, rows = min(CALL_COST, driver.capabilities.call_cost), out.reshape(number, length)
    return out if read_strided(driver, first, rows.shape, (stride, itemsize), file_dtype, rows, small) else None
