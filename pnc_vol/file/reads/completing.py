"""Posted reads of runs of numbers are completed together, from the file into their arrays.

Knows: facts of variables, drivers. Does not know: posting, fill values, writes that are not flushed; what it returns,
or says False to, is read in the general way (`fetch`).

Rules
-----
1. A read that is large enough is read where it belongs. Small ones are read some MiB at a time, those of all variables
   of one type together: a call costs more than the copy out of its memory, and programs read one piece each of many
   variables.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pnc_vol.drivers.base import Driver
from pnc_vol.extents.blocks import groups
from pnc_vol.extents.model import Extents, Int64
from pnc_vol.file.reads.contiguous import Facts, facts_of, read_numbers, read_run
from pnc_vol.file.requests import PostedRead, complete_with
from pnc_vol.file.session import Session
from pnc_vol.flush.stream import block_of

__all__ = ["complete_one", "complete_runs", "read_in_place", "worth_alone"]

_GROUP = 8 << 20
"""Bytes of posted reads that are read together."""

_ALONE = 64
"""Bytes of a posted read from which on it is worth calls of its own, in costs of a call (`Capabilities.call_cost`)."""


def worth_alone(driver: Driver) -> int:
    """Bytes of a posted read from which on it is read by itself, where it belongs."""
    return _ALONE * driver.capabilities.call_cost


def read_in_place(session: Session, posted: PostedRead) -> bool:
    """Fill the array of a large posted read without memory between file and array; False if that cannot be done.

    What stands in the array if the file turns out to be short is written over afterwards.

    Raises
    ------
    OSError
        The file could not be read.
    """
    node, out, driver = posted.node, posted.array, session.disk.driver
    cost = driver.capabilities.call_cost
    if not out.flags.c_contiguous:
        return False
    facts = facts_of(session, node)
    if facts is None or out.dtype not in (facts.dtype, facts.file_dtype) or session.posted.queue.has(node.uid):
        return False
    found = posted.found
    if len(found.start) * cost > out.nbytes:
        # shorter runs are better read together with those of other reads
        return False
    if facts.grows and int(found.start.max()) >= session.disk.layout.elements_stored(node, facts.at):
        return False
    if not read_numbers(driver, facts, facts.at.extents(found), out.reshape(-1)):
        return False
    posted.become("done")
    return True


def complete_one(session: Session, posted: PostedRead) -> bool:
    """Read what one posted read asks for as ``ds[...]`` does; False if that is to be done in another way.

    Raises
    ------
    OSError
        The file could not be read.
    """
    node, run = posted.node, posted.run
    facts = session.disk.layout.facts.get(node.uid) or facts_of(session, node)
    if facts is None or run is None or session.posted.queue.has(node.uid):
        return False
    got = read_run(session, node, facts, run[0], run[1], (run[1],))
    if got is None:
        return False
    complete_with([posted], got, [0])
    return True


def complete_runs(session: Session, reads: list[PostedRead]) -> list[PostedRead]:
    """Fill the arrays of those reads that are one run each of numbers in the file; return the others.

    Raises
    ------
    OSError
        The file could not be read.
    """
    left: list[PostedRead] = []
    by_variable: dict[int, list[PostedRead]] = {}
    uid, mine = -1, left
    for posted in reads:
        if posted.node.uid != uid:
            uid = posted.node.uid
            mine = by_variable.setdefault(uid, [])
        mine.append(posted)
    # Reads of several variables are read together if their numbers are of one type.
    kinds: dict[tuple[Any, bool], tuple[Facts, list[PostedRead], list[int], list[int]]] = {}
    layout, queue = session.disk.layout, session.posted.queue
    for uid, mine in by_variable.items():
        node = mine[0].node
        facts = layout.facts.get(uid) or facts_of(session, node)
        if facts is None or queue.has(uid):
            left += mine
            continue
        at, stored = facts.at, layout.elements_stored(node, facts.at)
        _, able, offsets, counts = kinds.setdefault((facts.dtype, facts.swaps), (facts, [], [], []))
        wanted = [posted.wanted if type(posted.wanted) is tuple else posted.run for posted in mine]
        found: list[Any] = [one or _NO_RUN for one in wanted]
        if len(mine) < _FEW:
            begins = [at.offset_of_run(one[0], one[1]) if one[1] and one[0] < stored else -1 for one in found]
        else:
            first = np.array([one[0] for one in found], np.int64)
            length = np.array([one[1] for one in found], np.int64)
            begin = at.offsets_of_runs(first, length)
            begin[(length == 0) | (first >= stored)] = -1
            begins = begin.tolist()
        if min(begins) < 0:
            left += [posted for posted, offset in zip(mine, begins, strict=True) if offset < 0]
            chosen = [i for i, offset in enumerate(begins) if offset >= 0]
            mine, found, begins = [mine[i] for i in chosen], [found[i] for i in chosen], [begins[i] for i in chosen]
        able += mine
        offsets += begins
        counts += [one[1] for one in found]
    for facts, able, offsets, counts in kinds.values():
        left += _in_groups(session, facts, able, np.array(offsets, np.int64), np.array(counts, np.int64))
    return left


_FEW = 16
"""Posted reads of a variable below which each is placed by itself."""

_NO_RUN = (-1, 0)


def _in_groups(
    session: Session, facts: Facts, reads: list[PostedRead], offsets: Int64, counts: Int64
) -> list[PostedRead]:
    """Read some MiB at a time and hand them out; return the reads that the file does not hold whole."""
    driver, nbytes = session.disk.driver, counts * facts.itemsize
    ends = np.cumsum(nbytes)
    left: list[PostedRead] = []
    for first, last in groups(ends - nbytes, ends, max(_GROUP, block_of(driver))):
        group, mine = reads[first:last], slice(first, last)
        place = ends[mine] - nbytes[mine] - int(ends[first] - nbytes[first])
        total = int(nbytes[mine].sum())
        memory = np.empty(total, np.uint8)
        if driver.read(Extents(offsets[mine], nbytes[mine], place), memory) < total:
            left += group
            continue
        values = memory.view(facts.dtype)
        if facts.swaps:
            values.byteswap(inplace=True)
        complete_with(group, values, (place // facts.itemsize).tolist())
    return left
