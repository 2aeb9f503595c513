"""A write is posted from values and an index to rows in the queue, in one of two ways: `write_short`, else `write`.

Knows: indices, selections, elements, the queue. Does not know: headers, other ranks.

Rules
-----
1. The short path posts one run, or some equal ones, of numbers that can be had in the variable's own type in a few
   steps: what most writes of programs are, in a third of the time. It refuses all else by returning 0 and posts nothing
   then; what is wrong with a write is found, and told, by the general path. `tests/test_paths.py` compares the two.
2. When `write` returns, the values were copied in file form; with ``lend=True`` the queue may keep the caller's array.
3. A post that does not fit the budget makes the session drain first; one that never fits goes through in blocks,
   straight to the file where the variable has a place, else through the queue.
4. If there is an error, nothing is posted.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pnc_vol.errors import FlushError
from pnc_vol.extents.blocks import parts, pieces, run_elements
from pnc_vol.extents.model import LEAST_RUNS, MOST_AXES, Runs, Selection, refuse_axes
from pnc_vol.extents.place import few_runs, picked_runs, runs, split_rows
from pnc_vol.file.session import Session
from pnc_vol.flush.execute import BLOCK, in_parallel
from pnc_vol.format import numeric
from pnc_vol.format.numeric import own_type
from pnc_vol.layout.base import MOST_WRITTEN, ElementMap
from pnc_vol.mapping.encoding import encode
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.queue.batches import MOST_RUNS, RUN_COST
from pnc_vol.queue.queue import Queue
from pnc_vol.queue.request import Request
from pnc_vol.queue.stores import ROW_COST

if TYPE_CHECKING:
    from pnc_vol.file.held_ranges import Spans

__all__ = ["iput_short", "write", "write_short", "write_stored"]

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

LEAST_LENT = 1 << 20
"""Bytes from which on an array is lent instead of copied: a batch of its own costs more than copying less. It is no
promise to users, who may change no array before its request is complete."""

LEAST_RUN = 512
"""Bytes of a run, on average, from which on an array is lent."""

_FEW = 64
"""Runs of a post that become rows, where ranks share the file."""

_MORE = 1024
"""Runs of a post that become rows, where none do: a list of runs is planned by itself, for 20 to 30 µs more, but rows
take more of the budget, and what is beyond it goes past the ranks that write for others."""

_STORED = 1 << 20
"""Bytes of a block that is copied from another file: it stays in a processor's cache, and its calls of Python take
little beside it; a file system may want larger pieces of free memory for larger ones, which take longer to find. One
thread does it: writes to one file wait for each other, so that a second thread gained nothing and spun."""

_STREAM_RUNS = 1 << 15
"""Runs of a block that goes straight to the file, at most: planning one takes about 100 bytes for a moment."""

_ARRAY = np.ndarray
_new = object.__new__

# ------------------------------------------------------------------------------------- the short path


def write_short(session: Session, node: DatasetNode, args: Any, values: Any) -> int:
    """Post ``node[args] = values``, copied; its bytes in the file, 0 if it is to be posted by `write`."""
    element, shape, posted = node.element, node.shape, session.posted
    # writes that are carried out when they are posted go the general way
    if element.kind != "number" or posted.at_once or shape is None:
        return 0
    found: Any = few_runs(shape, args) or picked_runs(shape, args)
    if found is None:
        return 0
    start, nelems, result, number, step = found
    if not nelems:
        return 0
    dtype = element.dtype
    # the same object, mostly: to compare types takes as long as to look for the run
    if type(values) is not _ARRAY or (values.dtype is not dtype and values.dtype != dtype) or values.shape != result:
        if len(result) > MOST_AXES:
            return 0
        values = own_type(values, dtype, result, nelems * number)
        if values is None:
            return 0
    if node.maxshape is not None and number == 1 and type(args) is not int and node.is_record:
        # What a number selects is one record, or an element of one.
        inner = math.prod(shape[1:])
        if start // inner != (start + nelems - 1) // inner:
            # Whole records; runs of equal length, as a block has.
            number, odd = divmod(nelems, inner)
            if odd or start % inner:
                return 0
            step = inner
    if number == 1:
        if not posted.queue.put_run(node, posted.next_number, values, start):
            return 0
    else:
        few = number <= _FEW or (number <= _MORE and session.comm.size == 1)
        if not few or not posted.queue.put_run(node, posted.next_number, values, start, number, step):
            return 0
    posted.next_number += 1
    return values.nbytes  # type: ignore[no-any-return]


def iput_short(session: Session, node: DatasetNode, args: Any, values: Any) -> Request | None:
    """Do as `write_short` does, with a handle; None if it is to be posted by `OpenFile.iput`.

    Small values are copied: it costs less than a batch of their own.
    """
    if type(values) is _ARRAY and values.nbytes >= LEAST_LENT:
        return None
    nbytes = write_short(session, node, args, values)
    if not nbytes:
        return None
    # as `Request(...)`, in half of its time
    made, posted = _new(Request), session.posted
    made._session, made.id, made.nbytes = session, posted.next_number - 1, nbytes
    posted.writes[made.id] = nbytes
    return made


# ----------------------------------------------------------------------------------- the general path


def write(session: Session, node: DatasetNode, selection: Selection, values: Any, *, lend: bool = False) -> int:
    """Post ``node[selection] = values``; returns the request's number.

    lend : bool
        Keep the array instead of a copy, if its bytes can go to the file as they are, or swapped.

    Raises
    ------
    TypeError
        `values` cannot be broadcast to the selection, or does not convert.
    RangeError
        A value does not fit the stored type.
    FlushError, OSError
        The queue was full and could not be written out; nothing of this request was posted.
    """
    values = prepared(session, node, selection, values)
    posted = session.posted
    queue, number, nelems, on_overflow = posted.queue, posted.take_number(), values.size, session.options.on_overflow
    if not nelems:
        return number
    if lend and _lendable(queue, node, selection, values):
        dtype, lent = values.dtype, runs(selection, record=node.is_record)
        native = (dtype.byteorder == "=" and sys.byteorder == "little") or dtype.byteorder == "<"
        swap = dtype.itemsize if native else 1
        queue.put_user_array(node.uid, number, lent, values.reshape(-1).view(np.uint8), swap, dtype.itemsize)
        return number
    if not _too_many(queue, node, selection, nelems):
        found = posted.decompositions.runs(selection, record=node.is_record)
        if queue.put(node, number, values, selection, found, on_overflow):
            return number
        session.drain()
        if queue.put(node, number, values, selection, found, on_overflow):
            return number
    else:
        session.drain()
    _post_blocks(session, node, number, selection, values)
    queue.in_blocks = number
    if queue.logged and session.comm.size == 1:
        # What went by the log is to outlive the process as the log does: the header counts it before the post returns.
        session.flush()
    return number


def _lendable(queue: Queue, node: DatasetNode, selection: Selection, values: Array) -> bool:
    """Return whether the queue may keep an array: its elements have the bytes that the file has, in either order."""
    wanted = node.element.file_dtype
    return (
        values.nbytes >= LEAST_LENT
        and queue.declared.user_arrays
        and node.element.kind == "number"
        and values.flags.c_contiguous
        and values.dtype.kind == wanted.kind
        and values.dtype.itemsize == wanted.itemsize
        # Rows are kept in memory until the flush: they must be little beside the array.
        and values.nbytes // max(1, values.size // run_elements(selection)) >= LEAST_RUN
    )


def _too_many(queue: Queue, node: DatasetNode, selection: Selection, nelems: int) -> bool:
    """Return whether a selection's runs are so many that they are better made part by part."""
    if queue.logged or nelems * (node.element.itemsize + ROW_COST) <= queue.budget // 2:
        return False
    one, inner = selection.single_run(), math.prod(selection.shape[1:])
    if one is not None and (not node.is_record or one[0] // inner == (one[0] + nelems - 1) // inner):
        return False
    # What is too much goes to the file at once, past the ranks that write for others, as a post waits for no rank; many
    # runs took 60 times as long so. Therefore runs in lists are charged with what they take, and not with a row each.
    count = nelems // run_elements(selection)
    if queue.declared.shares_lists and count >= LEAST_RUNS:
        return nelems * node.element.itemsize + count * RUN_COST > queue.budget - ROW_COST * (2 + count // MOST_RUNS)
    return nelems * node.element.itemsize + count * ROW_COST > queue.budget // 2


def prepared(session: Session, node: DatasetNode, selection: Selection, values: Any) -> Array:
    """Return the values as an array of the selection's shape, ready for `to_file`; a string variable grows if need
    be."""
    element = node.element
    # What most posts are need not be looked at: an array of the variable's own type.
    own = type(values) is np.ndarray and element.kind == "number" and values.dtype == element.dtype
    array = values if own else encode(values, element, session.options.on_overflow)
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
    # Of a variable with a fill value the runs are noted, which must be few beside the values.
    noted = node.fillvalue is None or values.size // run_elements(selection) <= MOST_WRITTEN
    at = _place_in_file(session, node)
    if at is not None and noted and _disjoint(selection) and _may_write_now(session, node, at):
        limit = max(1, BLOCK // element.itemsize)
        cut = parts(selection, values, record=node.is_record, most_elements=limit, most_runs=_STREAM_RUNS)
        _stream(session, node, at, ((found, _in_file_form(session, node, part)) for found, part in cut), limit)
        if node.fillvalue is not None:
            session.disk.layout.note_elements(node, runs(selection, record=node.is_record))
        session.counts["bytes_drained"] += values.size * element.itemsize
        return
    quarter = queue.budget // 4
    elements, most_runs = max(1, quarter // element.itemsize), max(1, quarter // ROW_COST)
    for found, part in parts(selection, values, record=node.is_record, most_elements=elements, most_runs=most_runs):
        if queue.put(node, number, part, None, found, session.options.on_overflow):
            continue
        session.drain()
        # A log without room for a block is no reason not to hold it in memory.
        queue.fall_back()
        if not queue.put(node, number, part, None, found, session.options.on_overflow):
            raise AssertionError("a block of half the budget fits after a drain")
    if at is not None:
        # All of it or nothing: what is partly in the file could not be cancelled, and is not done.
        with suppress(FlushError):
            # It stays posted, and the next flush says so.
            session.drain()


def _disjoint(selection: Selection) -> bool:
    """Return whether no element is selected twice, so that blocks may be written in any order; only a list of runs
    may."""
    listed = selection.listed
    return listed is None or bool((listed.start[1:] >= listed.start[:-1] + listed.length[:-1]).all())


def _check_all(session: Session, node: DatasetNode, selection: Selection, values: Array) -> None:
    """Raise if any value cannot be stored, before the first one is."""
    limit = max(1, BLOCK // node.element.itemsize)
    room = np.empty(limit * node.element.itemsize, np.uint8)
    for _, part in pieces(values, limit):
        numeric.to_file(part, node.element.file_dtype, room[: part.size * node.element.itemsize], what=node.name)


def _place_in_file(session: Session, node: DatasetNode) -> ElementMap | None:
    """Return where a variable lies in the file, if it may be written to before a flush."""
    return session.disk.layout.writable(node.tree, [node.uid], alone=session.comm.size == 1).get(node.uid)


def _may_write_now(session: Session, node: DatasetNode, at: ElementMap) -> bool:
    """Return whether elements may go past the queue: nothing earlier waits for the variable, here or on another
    rank."""

    def span() -> Spans:
        # few drivers hold bytes back
        from pnc_vol.file.held_ranges import span_of

        return span_of(at, math.prod(node.shape or ()))

    return not session.posted.queue.has(node.uid) and session.epochs.may_write_alone(span)


def _in_file_form(session: Session, node: DatasetNode, values: Array) -> Callable[[Bytes], None]:
    """Return a function that puts values into memory as the file has them."""

    def fill(room: Bytes) -> None:
        numeric.to_file(values, node.element.file_dtype, room, on_overflow=session.options.on_overflow, what=node.name)

    return fill


def _stream(
    session: Session,
    node: DatasetNode,
    at: ElementMap,
    blocks: Iterable[tuple[Runs, Callable[[Bytes], None]]],
    most: int,
    *,
    alone: bool = False,
) -> None:
    """Write blocks straight to the file, each as soon as a function has filled its memory.

    most : int, elements of a block.
    alone : bool, in this thread only.
    """
    driver, width = session.disk.driver, at.itemsize

    def task(found: Runs, fill: Callable[[Bytes], None]) -> Callable[[Bytes], None]:
        def run(memory: Bytes) -> None:
            room = memory[: int(found.length.sum()) * width]
            fill(room)
            driver.write(at.extents(found), room)

        return run

    session.disk.layout.note_written(node.tree, [node.uid])
    in_parallel(driver, (task(*block) for block in blocks), most * width, alone=alone)


def write_stored(
    session: Session, node: DatasetNode, first: int, count: int, read: Callable[[Bytes, int], None]
) -> bool:
    """Write elements of a variable, which `read` brings in file form, to their place in the file, past the queue.

    Parameters
    ----------
    first, count : int, the elements, in C order.
    read : callable
        ``read(memory, behind)`` fills `memory` with what is `behind` bytes behind the first of these elements.

    Returns
    -------
    bool
        False if the variable has no place yet, or posts that are not in it; nothing was read then.
    """
    at = _place_in_file(session, node)
    if at is None or not _may_write_now(session, node, at):
        return False
    width, inner = at.itemsize, at.inner
    step = min(count, max(1, _STORED // width))

    def block(low: int) -> tuple[Runs, Callable[[Bytes], None]]:
        one = Runs(np.array([first + low], np.int64), np.array([min(step, count - low)], np.int64))
        return split_rows(one, inner) if inner else one, lambda room: read(room, low * width)

    _stream(session, node, at, map(block, range(0, count, step)), step, alone=True)
    session.disk.layout.note_elements(node, Runs(np.array([first], np.int64), np.array([count], np.int64)))
    return True
