"""Posted reads of runs of numbers are completed together, from the file into their arrays.

Knows: facts of variables, drivers. Does not know: posting, fill values, writes that are not flushed; what it returns,
or says False to, is read in the general way (`fetch`).

Rules
-----
1. Small reads are read some MiB at a time, those of all variables of one type together: a call costs more than the
   copy out of its memory, and programs read one piece each of many variables. (Large ones are read by `fetch`.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.base import Driver
from pnc_vol.extents.blocks import groups
from pnc_vol.extents.model import Extents, Int64
from pnc_vol.file.posted_reads import FEW, PostedRead, ShortReads, complete_with
from pnc_vol.file.reads.contiguous import Facts, facts_of
from pnc_vol.file.session import Session
from pnc_vol.flush.stream import block_of
from pnc_vol.mapping.tree import DatasetNode

__all__ = ["complete_runs", "complete_short"]

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

_GROUP, _STEP = 8 << 20, 1 << 20
"""Bytes of posted reads that are read together: of large ones, and of small ones, which stay in the cache meanwhile."""


def complete_runs(session: Session, reads: list[PostedRead]) -> list[PostedRead]:
    """Fill the arrays of those reads that are one run each of numbers in the file; return the others.

    Raises
    ------
    OSError
        The file could not be read.
    """
    wanted = [(posted.wanted if type(posted.wanted) is tuple else posted.run) or _NO_RUN for posted in reads]
    listed = [(posted.node.uid, one[0], one[1]) for posted, one in zip(reads, wanted, strict=True)]
    nodes = {posted.node.uid: posted.node for posted in reads}
    kinds, left = _placed(session, nodes, np.array(listed, np.int64).reshape(-1, 3))
    others = [reads[i] for i in left]
    for facts, rows, offsets, nbytes in kinds:
        several = [reads[i] for i in rows.tolist()]
        for first, last, values, place in _parts(session.disk.driver, facts, offsets, nbytes, _GROUP):
            if values is None:
                others += several[first:last]
            else:
                complete_with(several[first:last], _swapped(values, facts), place.tolist())
    return others


def complete_short(session: Session, reads: ShortReads) -> list[PostedRead]:
    """Fill the arrays of small posted reads, or keep the values; return those that are to be completed by themselves.

    What the system says of a file that cannot be read, it says again when these are completed.
    """
    if len(reads.targets) < FEW:
        return reads.single(range(len(reads.targets)))
    table = reads.table
    kinds, left = _placed(session, reads.nodes, table)
    kept: list[Array] = []
    kept_at = np.zeros(len(table), np.int64)
    for facts, rows, offsets, nbytes in kinds:
        memory = np.empty(int(nbytes.sum()), np.uint8) if reads.kept else None
        if memory is not None:
            kept.append(memory.view(facts.dtype))
            kept_at[rows] = (np.cumsum(nbytes) - nbytes) // facts.itemsize
        try:
            for first, last, values, place in _parts(session.disk.driver, facts, offsets, nbytes, _STEP, memory):
                if values is None:
                    left += rows[first:last].tolist()
                else:
                    if reads.given:
                        # the byte order is changed by the copy
                        reads.hand_out(rows[first:last], values, place)
                    if reads.kept:
                        _swapped(values, facts)
                rows[first:last] = -1
        except Exception:
            left += rows[rows >= 0].tolist()
    own = reads.single(left)
    reads.become_done(kept, kept_at.tolist())
    return own


_Kind = tuple[Facts, Int64, Int64, Int64]
"""Facts of the first variable, rows of a table, and where in the file these are, in bytes, and how long."""


def _placed(session: Session, nodes: dict[int, DatasetNode], table: Int64) -> tuple[list[_Kind], list[int]]:
    """Return where the runs of numbers lie that the file has, those of variables of one type together; and the other
    rows.

    Parameters
    ----------
    nodes : dict of uid to DatasetNode
    table : int64[n, 3], see `ShortReads.table`.
    """
    left: list[int] = []
    kinds: dict[tuple[Any, bool], tuple[Facts, list[tuple[int, int, int]], list[Int64]]] = {}
    layout, queue = session.disk.layout, session.posted.queue
    for uid, rows in _by_variable(table, len(nodes)).items():
        node = nodes[uid]
        facts = layout.facts.get(uid) or facts_of(session, node)
        if facts is None or queue.has(uid):
            left += rows
            continue
        at, stored, itemsize = facts.at, layout.elements_stored(node, facts.at), facts.itemsize
        _, few, many = kinds.setdefault((facts.dtype, facts.swaps), (facts, [], []))
        if len(rows) < _FEW:
            for row in rows:
                _, start, length = table[row].tolist()
                offset = at.offset_of_run(start, length) if length and start < stored else -1
                if offset < 0:
                    left.append(row)
                else:
                    few.append((row, offset, length * itemsize))
        else:
            whole = len(rows) == len(table)
            chosen = np.arange(len(table)) if whole else np.array(rows, np.int64)
            start, length = (table if whole else table[chosen]).T[1:]
            offset = at.offsets_of_runs(start, length)
            good = (offset >= 0) & (length > 0) & (start < stored)
            if not good.all():
                left += chosen[~good].tolist()
            many.append(np.stack((chosen, offset, length * itemsize))[:, good])
    found = []
    for facts, few, many in kinds.values():
        if few:
            many.append(np.array(few, np.int64).T)
        if many:
            found.append((facts, *(many[0] if len(many) == 1 else np.concatenate(many, axis=1))))
    return found, left


def _by_variable(table: Int64, variables: int) -> dict[int, list[int] | range]:
    """Return the rows of each variable."""
    if variables == 1:
        return {int(table[0, 0]): range(len(table))}
    found: dict[int, list[int] | range] = defaultdict(list)
    for row, uid in enumerate(table[:, 0].tolist()):
        found[uid].append(row)  # type: ignore[union-attr]
    return found


_FEW = 16
"""Posted reads of a variable below which each is placed by itself."""

_NO_RUN = (-1, 0)


def _parts(
    driver: Driver, facts: Facts, offsets: Int64, nbytes: Int64, limit: int, memory: Bytes | None = None
) -> Iterator[tuple[int, int, Array | None, Int64]]:
    """Read some of many runs at a time.

    Parameters
    ----------
    limit : int, bytes that are read at once, about.
    memory : uint8[...], where all of them go, one behind another; new memory for each part by default.

    Yields
    ------
    first, last : int, of the runs, as in a slice.
    values : array of numbers as they are in the file; None if it does not hold all of them.
    place : int64[last - first], at which element of `values` each run begins.
    """
    ends = np.cumsum(nbytes)
    begins = ends - nbytes
    for first, last in groups(begins, ends, max(limit, block_of(driver))):
        low, high = int(begins[first]), int(ends[last - 1])
        into = np.empty(high - low, np.uint8) if memory is None else memory[low:high]
        place, offset = begins[first:last] - low, offsets[first:last]
        # neighbours in the file, one after another, are one piece
        heads = np.flatnonzero(np.diff(offset - place, prepend=-1))
        got = driver.read(Extents(offset[heads], np.diff(place[heads], append=high - low), place[heads]), into)
        yield first, last, into.view(facts.file_dtype) if got == high - low else None, place // facts.itemsize


def _swapped(values: Array, facts: Facts) -> Array:
    """Return the values in the machine's byte order, in the memory that they have."""
    made = values.view(facts.dtype)
    return made.byteswap(inplace=True) if facts.swaps else made
