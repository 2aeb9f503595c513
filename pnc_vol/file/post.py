"""Posting writes: from an array and a selection to rows in the queue.

Knows: selections, elements, the queue. Does not know: headers, other ranks.

Rules
-----
1. When `write` returns, the values were copied in file form; `lend` keeps a reference to the caller's array instead.
2. A post that does not fit the budget makes the session drain first; one that never fits goes through in blocks,
   straight to the file where the variable has a place, else through the queue.
3. If there is an error, nothing is posted.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.errors import FlushError
from pnc_vol.extents.decomposition import LEAST_RUNS
from pnc_vol.extents.model import MOST_AXES, Extents, Runs, Selection, before, refuse_axes
from pnc_vol.extents.place import runs, split_rows
from pnc_vol.file.held_ranges import span_of
from pnc_vol.file.requests import LEAST_LENT
from pnc_vol.file.session import Session
from pnc_vol.flush.stream import BLOCK, in_parallel
from pnc_vol.format.convert import to_file
from pnc_vol.layout.base import MOST_WRITTEN
from pnc_vol.layout.places import ElementMap
from pnc_vol.mapping.encoding import decode, encode
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.queue.backlog import ROW_COST
from pnc_vol.queue.parts import parts, pieces, run_elements
from pnc_vol.queue.queue import Queue
from pnc_vol.queue.run_lists import LIST_COST, MOST_RUNS, RUN_COST

__all__ = ["lend", "write", "write_stored"]

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

LEAST_RUN = 512
"""Bytes of a run, on average, from which on an array is lent."""

_STORED = 512 << 10
"""Bytes of a block that is brought in file form: two of them, and the kernel's own, stay in a core's cache."""

_STREAM_RUNS = 1 << 15
"""Runs of a block that goes straight to the file, at most: planning one takes about 100 bytes for a moment."""


def write(session: Session, node: DatasetNode, selection: Selection, values: Any) -> int:
    """Post ``node[selection] = values``; returns the request's number.

    Raises
    ------
    TypeError
        `values` cannot be broadcast to the selection, or does not convert.
    RangeError
        A value does not fit the stored type.
    FlushError, OSError
        The queue was full and could not be written out; nothing of this request was posted.
    """
    return _write_prepared(session, node, selection, prepared(session, node, selection, values))


def _write_prepared(session: Session, node: DatasetNode, selection: Selection, values: Array) -> int:
    """As `write`, with what `prepared` made of the values."""
    number = session.posted.take_number()
    nelems = values.size
    if not nelems:
        return number
    one = selection.single_run()
    if one is not None and node.is_record:
        inner = math.prod(selection.shape[1:])
        if one[0] // inner != (one[0] + nelems - 1) // inner:
            one = None
    queue = session.posted.queue
    many = 0 if one is not None else _many_runs(queue, node, selection, nelems)
    if many:
        cost = nelems * node.element.itemsize + many * RUN_COST + (many // MOST_RUNS + 2) * LIST_COST
        for again in (False, True):
            if again:
                session.drain()
            most = {"most_elements": nelems, "most_runs": MOST_RUNS}
            found_parts = parts(selection, values, record=node.is_record, **most)
            if cost <= queue.budget and queue.put_parts(node, number, found_parts, cost, session.options.on_overflow):
                return number
    elif one is not None or not _too_many(queue, node, selection, nelems):
        found = None if one is not None else session.posted.decompositions.runs(selection, record=node.is_record)
        if queue.put(node, number, values, selection, one, found, session.options.on_overflow):
            return number
        session.drain()
        if queue.put(node, number, values, selection, one, found, session.options.on_overflow):
            return number
    else:
        session.drain()
    _post_blocks(session, node, number, selection, values)
    queue.in_blocks = number
    if queue.logged and session.comm.size == 1:
        # What went by the log is to outlive the process as the log does: the header counts it before the post returns.
        session.flush()
    return number


def _many_runs(queue: Queue, node: DatasetNode, selection: Selection, nelems: int) -> int:
    """The runs of a hyperslab that has so many that its lists are made part by part; else 0."""
    if not queue.shares_lists or selection.listed is not None or nelems <= MOST_RUNS:
        return 0
    count = -(-nelems // run_elements(selection))
    return count if count > MOST_RUNS else 0


def _too_many(queue: Queue, node: DatasetNode, selection: Selection, nelems: int) -> bool:
    """Whether a selection's runs are so many that they are better made part by part."""
    if queue.logged or nelems * (node.element.itemsize + ROW_COST) <= queue.budget // 2:
        return False
    count = nelems // run_elements(selection)
    if queue.shares_lists and count >= LEAST_RUNS:
        return nelems * node.element.itemsize + count * RUN_COST > queue.budget - LIST_COST * (2 + count // MOST_RUNS)
    return nelems * node.element.itemsize + count * ROW_COST > queue.budget // 2


def prepared(session: Session, node: DatasetNode, selection: Selection, values: Any) -> Array:
    """The values as an array of the selection's shape, ready for `to_file`; a string variable grows if need be."""
    element = node.element
    # What most posts are need not be looked at: an array of the variable's own type.
    own = type(values) is np.ndarray and element.kind == "number" and values.dtype == element.dtype
    array = values if own else encode(values, element)
    shape = selection.result_shape
    if array.shape != shape:
        if len(shape) > MOST_AXES:
            refuse_axes(len(shape))
        array = np.broadcast_to(array.reshape(selection.broadcast(array.shape)), shape)
    if element.kind == "vlen_string" and array.dtype.itemsize > element.itemsize:
        node.element = element.widened(array.dtype.itemsize)
        session.defs.widened.setdefault(node.uid, element.itemsize)
        node.tree.touch()
    return array


def _post_blocks(session: Session, node: DatasetNode, number: int, selection: Selection, values: Array) -> None:
    """Let a request that is larger than the budget through in blocks; the queue was drained."""
    element, queue = node.element, session.posted.queue
    if session.options.on_overflow == "raise" and not np.can_cast(values.dtype, element.dtype, "safe"):
        _check_all(session, node, selection, values)
    at = session.disk.layout.writable(node.tree, [node.uid], alone=session.comm.size == 1).get(node.uid)
    # Of a variable with a fill value the runs are noted, which must be few beside the values.
    noted = node.fillvalue is None or values.size // run_elements(selection) <= MOST_WRITTEN
    if at is not None and noted and not queue.has(node.uid) and _disjoint(selection):
        nelems = math.prod(node.shape or ())
        if session.epochs.may_write_alone(lambda: span_of(at, nelems)):
            _stream(session, node, at, selection, values)
            return
    quarter = queue.budget // 4
    elements, most_runs = max(1, quarter // element.itemsize), max(1, quarter // ROW_COST)
    for found, part in parts(selection, values, record=node.is_record, most_elements=elements, most_runs=most_runs):
        if queue.put(node, number, part, None, None, found, session.options.on_overflow):
            continue
        session.drain()
        # A log without room for a block is no reason not to hold it in memory.
        queue.fall_back()
        if not queue.put(node, number, part, None, None, found, session.options.on_overflow):
            raise AssertionError("a block of half the budget fits after a drain")
    if at is not None:
        # All of it or nothing: what is partly in the file could not be cancelled, and is not done.
        with suppress(FlushError):
            # It stays posted, and the next flush says so.
            session.drain()


def _disjoint(selection: Selection) -> bool:
    """Whether no element is selected twice, so that blocks may be written in any order; only a list of runs may."""
    listed = selection.listed
    return listed is None or bool((listed.start[1:] >= listed.start[:-1] + listed.length[:-1]).all())


def _check_all(session: Session, node: DatasetNode, selection: Selection, values: Array) -> None:
    """Raise if any value cannot be stored, before the first one is."""
    limit = max(1, BLOCK // node.element.itemsize)
    room = np.empty(limit * node.element.itemsize, np.uint8)
    for _, part in pieces(values, limit):
        to_file(part, node.element.file_dtype, room[: part.size * node.element.itemsize], what=node.name)


def _stream(session: Session, node: DatasetNode, at: ElementMap, selection: Selection, values: Array) -> None:
    """Convert and write block by block, without the queue."""
    element = node.element

    def task(found: Runs, part: Array) -> Callable[[Bytes], None]:
        def run(memory: Bytes) -> None:
            room = memory[: part.size * element.itemsize]
            to_file(part, element.file_dtype, room, on_overflow=session.options.on_overflow, what=node.name)
            session.disk.driver.write(at.extents(found), room)

        return run

    session.disk.layout.note_written(node.tree, [node.uid])
    limit = max(1, BLOCK // element.itemsize)
    blocks = parts(selection, values, record=node.is_record, most_elements=limit, most_runs=_STREAM_RUNS)
    in_parallel(session.disk.driver, (task(*block) for block in blocks), limit * element.itemsize)
    if node.fillvalue is not None:
        session.disk.layout.note_elements(node, runs(selection, record=node.is_record))
    session.counts["bytes_drained"] += values.size * element.itemsize


def write_stored(
    session: Session, node: DatasetNode, first: int, count: int, read: Callable[[Bytes, int], None]
) -> bool:
    """Write elements of a variable, which `read` brings in file form, to their place in the file, past the queue.

    Parameters
    ----------
    first, count : int, the elements, in C order.
    read : callable
        ``read(memory, nbytes)`` fills `memory` with what is `nbytes` behind the first of these elements; two threads
        may call it at once.

    Returns
    -------
    bool
        False if the variable has no place yet, or posts that are not in it; nothing was read then.
    """
    at = session.disk.layout.writable(node.tree, [node.uid], alone=session.comm.size == 1).get(node.uid)
    if at is None or session.posted.queue.has(node.uid):
        return False
    nelems, driver, width = math.prod(node.shape or ()), session.disk.driver, at.itemsize
    if not session.epochs.may_write_alone(lambda: span_of(at, nelems)):
        return False
    step = max(1, _STORED // width)

    def task(low: int) -> Callable[[Bytes], None]:
        def run(room: Bytes) -> None:
            n = min(step, count - low)
            read(room[: n * width], low * width)
            one = Runs(np.array([first + low], np.int64), np.array([n], np.int64))
            driver.write(at.extents(split_rows(one, at.inner) if at.inner else one), room[: n * width])

        return run

    session.disk.layout.note_written(node.tree, [node.uid])
    in_parallel(driver, map(task, range(0, count, step)), min(step, count) * width)
    session.disk.layout.note_elements(node, Runs(np.array([first], np.int64), np.array([count], np.int64)))
    return True


def lend(session: Session, node: DatasetNode, selection: Selection, values: Any) -> tuple[int, int, bool]:
    """Post without a copy if the array's bytes can go to the file as they are, or swapped; else as `write`.

    Returns
    -------
    number : int, the request's.
    nbytes : int, bytes in the file.
    waits : bool, False if it is in the file already, because it was too large for the queue.
    """
    array = prepared(session, node, selection, values)
    nbytes = array.size * node.element.itemsize
    dtype, wanted = array.dtype, node.element.file_dtype
    plain = (
        node.element.kind == "number"
        and nbytes >= LEAST_LENT
        and array.flags.c_contiguous
        and dtype.kind == wanted.kind
        and dtype.itemsize == wanted.itemsize
    )
    # Rows are kept in memory until the flush: they must be little beside the array.
    few = nbytes // max(1, array.size // run_elements(selection)) >= LEAST_RUN
    if not plain or not few or not session.posted.queue.declared.user_arrays:
        queue = session.posted.queue
        number = _write_prepared(session, node, selection, array)
        return number, nbytes, queue.in_blocks != number or queue.holds(number)
    number = session.posted.take_number()
    native = (dtype.byteorder == "=" and sys.byteorder == "little") or dtype.byteorder == "<"
    found = runs(selection, record=node.is_record)
    data = array.reshape(-1).view(np.uint8)
    session.posted.queue.put_user_array(node.uid, number, found, data, dtype.itemsize if native else 1, dtype.itemsize)
    return number, nbytes, True


def fill_of(node: DatasetNode) -> Array:
    """The fill value as an array that `write` takes."""
    element = node.element
    raw = np.frombuffer((node.fillvalue or b"").ljust(element.itemsize, b"\0"), np.uint8)
    return decode(raw, element, ())


def whole_extents(node: DatasetNode, found: Runs) -> Extents:
    """Runs as bytes of elements, counted from the variable's first element, and where they lie in memory."""
    itemsize = node.element.itemsize
    length = found.length * itemsize
    return Extents(found.start * itemsize, length, before(length))
