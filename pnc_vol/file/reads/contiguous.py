"""Most reads are of runs of numbers that lie in the file: they go in few steps from the file into the result.

Knows: places of variables, indices, runs, drivers, what is posted of a run. Does not know: fill values; who calls
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

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.base import CALL_COST
from pnc_vol.errors import NotSyncedError
from pnc_vol.extents.model import MOST_AXES, one_extent
from pnc_vol.extents.place import FewRuns, few_runs
from pnc_vol.file.reads.execute import read_numbers, read_strided
from pnc_vol.file.session import Session
from pnc_vol.flush.execute import BLOCK
from pnc_vol.format.numeric import TURNED, swap_in_place
from pnc_vol.layout.base import Place
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.queue.batches import Batch, Rows
from pnc_vol.queue.stores import lay_last, lay_over

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
    """Return the facts of a variable that the header in the file has; None if it is no such variable, or no plain
    numbers."""
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
    """Return what ``ds[args]`` is, if that is a run of numbers of which all is in the file, or the last that was
    posted."""
    # What most variables have is looked up here: the calls of a small read cost as much as the system's.
    facts = session.disk.layout.facts.get(node.uid) or facts_of(session, node)
    posted = session.writable and session.posted.queue.has(node.uid)
    if facts is None and session.file_set is None and not posted:
        return None
    found = few_runs(node.shape or (), args)
    if found is None:
        return None
    if posted:
        start, nelems, _, number, step = found
        reaching = session.posted.queue.reaching(node.uid, start, start + (number - 1) * step + nelems)
        if reaching:
            return _read_posted(session, node, facts, found, reaching) if number == 1 else None
    if found[3] > 1:
        return None if facts is None else _read_rows(session, node, facts, found)
    if facts is None:
        if session.file_set is None:
            return None
        from pnc_vol.file.reads.gathered import read_gathered

        return read_gathered(session, node, found[0], found[1], found[2])
    return read_run(session, node, facts, found[0], found[1], found[2])


def _read_posted(
    session: Session, node: DatasetNode, facts: Facts | None, found: FewRuns, reaching: list[tuple[Batch, Rows]]
) -> Array | None:
    """Return one run of elements of which some, or all, were posted; None if the others are not in the file in one
    piece."""
    start, nelems, shape, _, _ = found
    element, uid, last = node.element, node.uid, reaching[-1]
    if element.kind != "number" or not nelems or len(shape) > MOST_AXES:
        return None
    out, itemsize = np.empty(shape, element.dtype), element.itemsize
    in_file_form = out.reshape(-1).view(element.file_dtype)
    raw = in_file_form.view(np.uint8)
    # Mostly one post has all of it: then the file is not asked.
    if not lay_last(last[0], uid, last[1], start, start + nelems, raw, itemsize):
        try:
            if facts is None or read_run(session, node, facts, start, nelems, in_file_form.shape, in_file_form) is None:
                return None
        except NotSyncedError:
            return None
        for batch, rows in reaching:
            lay_over(batch, uid, rows, one_extent(start * itemsize, raw.nbytes), raw, itemsize)
    if out.dtype != element.file_dtype:
        swap_in_place(raw, itemsize)
    return out


def read_run(
    session: Session,
    node: DatasetNode,
    facts: Facts,
    start: int,
    nelems: int,
    shape: tuple[int, ...],
    out: Array | None = None,
) -> Array | None:
    """Return `nelems` elements from `start` on, as an array of `shape`; None if the file does not hold them in one
    piece.

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
        if swaps and out.nbytes < TURNED:
            # as below, without the calls that a small read would notice
            out.byteswap(True)
        elif swaps:
            swap_in_place(out.reshape(-1).view(np.uint8), itemsize)
        return out
    extents = one_extent(offset, out.nbytes)
    return out if read_numbers(session.disk.driver, facts.file_dtype, extents, out.reshape(-1)) else None


def _read_rows(session: Session, node: DatasetNode, facts: Facts, found: FewRuns) -> Array | None:
    """Return runs of equal length at equal distances, as one array of the file that numpy copies: a column, a block, a
    cell through time. None if the file's bytes cannot be had as memory, or there are so many that two threads share
    them.
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
