"""Fill values are written wherever nobody wrote yet and zeros are not what should be read.

Knows: layouts, fill values, the ranks that share the writing, which elements are posted. Does not know: headers.

Rules
-----
1. What one process posted for this flush is not filled: it is written before the header that describes it. Nor is
   what was written before the flush, because the queue was full (`Layout.written`).
2. Ranks do not know of each other's posts, and a copy of a file is complete before its data: there all is filled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

import numpy as np

from pnc_vol.drivers.base import Driver
from pnc_vol.extents.blocks import rounds, runs_between
from pnc_vol.extents.merge import coalesced, within
from pnc_vol.extents.model import Extents, Runs, before
from pnc_vol.extents.place import split_rows
from pnc_vol.layout.base import ElementMap, Layout, LostRecords
from pnc_vol.mapping.tree import DatasetNode, Tree, fillvalue_of
from pnc_vol.queue.batches import Batch
from pnc_vol.ranks.comm import Comm

__all__ = ["LeftToPosts", "fill", "fill_failed"]

_FILL_BYTES = 1 << 20
_ROWS = 1 << 14
"""Records of a variable that are filled together."""

LeftToPosts = dict[int, Runs]
"""By variable, the elements that nobody wrote before, of which those that are posted were not filled."""


def fill(
    comm: Comm,
    tree: Tree,
    placed: Layout,
    target: Layout,
    driver: Driver,
    lost: LostRecords,
    *,
    only_lost: bool = False,
    posted: Sequence[Batch] = (),
    written_whole: Collection[int] = (),
) -> LeftToPosts:
    """Write the fill value wherever nobody wrote yet and zeros are not what should be read (collective).

    Parameters
    ----------
    placed, target : Layout, the one in force and the next one.
    driver : Driver, of the file in which `target` will be in force.
    lost : records that variables were left with, before others came again; see `Layout.lost_records`.
    only_lost : bool, the rest was done before.
    posted : sequence of Batch, what is written next, on the only rank; see `fill_failed`.
    written_whole : collection of int, uids that need no filling; see `Posted`.
    """
    spans: dict[int, tuple[int, int]] = {}
    records, fresh = target.header.numrecs, target.added_to(placed)
    grown = bool(target.record_uids) and records > min(placed.records, placed.header.numrecs)
    if fresh == () and not lost and not grown:
        # Nothing is new.
        return {}
    zeros_left = target.unwritten.reads_zero and not target.unwritten.stale_gaps and not lost
    if fresh == () and zeros_left and not any(target.record_uids.values()):
        # What is new are records, and all that was not written reads as zero, as it should.
        return {}
    asked: Collection[int] = lost if only_lost else fresh or ()
    if not only_lost and (lost or grown or fresh is None):
        # What was there before, and is of fixed shape, is not even looked at.
        new = target.header_uids - placed.header_uids if fresh is None else fresh
        asked = {*new, *target.record_uids, *lost}
    if zeros_left:
        # What reads as zero needs no look, but where something else should be read.
        asked = [uid for uid in asked if fillvalue_of(tree.datasets, uid) is not None]
    tasks: list[Callable[[], None]] = []
    for uid in sorted(asked):
        node = tree.datasets[uid]
        pattern = node.fillvalue
        old = uid in placed.header_uids
        # A new variable may lie where a deleted one was.
        in_gap = target.unwritten.stale_gaps and not old and uid not in target.record_uids
        clean = target.unwritten.reads_zero and not in_gap
        zeros = clean and (pattern is None or not pattern.strip(b"\0"))
        if zeros and uid not in lost:
            continue
        at = target.maps[uid]
        if at.inner:
            # A drain went beyond the records of the header only where zeros are the fill value.
            first = (placed.records if pattern is None else placed.header.numrecs) if old else 0
            if not zeros and first < records:
                spans[uid] = first * at.inner, records * at.inner
            if old and uid in lost:
                first, last = lost[uid][0], min(placed.records if zeros else first, records)
                if first < last:
                    tasks.append(_fill_task(driver, node, at, _one(first * at.inner, last * at.inner)))
        elif zeros:
            continue
        elif not old and not (pattern is None and placed.has_early_place(uid)):
            spans[uid] = 0, 1 if node.is_placeholder else math.prod(node.shape or ())
    left: LeftToPosts = {}
    for uid, span in spans.items():
        if uid in written_whole:
            continue
        left[uid] = free = _between(_cut(placed.written[uid], *span) if uid in placed.written else _NONE, *span)
        taken = _taken(posted, uid, *span)
        if taken.start.size:
            free = within(_between(taken, *span), free)[0]
        if free.start.size:
            tasks.append(_fill_task(driver, tree.datasets[uid], target.maps[uid], free))
    if tasks:
        for task in tasks[comm.rank :: comm.size]:
            task()
        if comm.size > 1 or only_lost:
            # Data of other ranks follow, which must not come to the file first; or nothing follows.
            driver.holder.drain()
        comm.agree("flush fill")
    return left


def fill_failed(tree: Tree, target: Layout, driver: Driver, left: LeftToPosts, failed: Sequence[Batch]) -> None:
    """Fill what `fill` left to posts that could not be written then."""
    for uid, free in left.items():
        if not free.start.size:
            continue
        first, last = int(free.start[0]), int(free.start[-1] + free.length[-1])
        taken = within(_taken(failed, uid, first, last), free)[0]
        if taken.start.size:
            _fill_task(driver, tree.datasets[uid], target.maps[uid], taken)()


_NONE = Runs(np.empty(0, np.int64), np.empty(0, np.int64))


def _one(first: int, last: int) -> Runs:
    return Runs(np.array([first], np.int64), np.array([last - first], np.int64))


def _taken(batches: Sequence[Batch], uid: int, first: int, last: int) -> Runs:
    """Return the elements from `first` to `last` that have rows, as runs in order that do not touch."""
    rows = [batch.rows(uid) for batch in batches]
    start = np.concatenate([np.empty(0, np.int64), *(some[:, 1] for some in rows)])
    return _cut(Runs(start, np.concatenate([start[:0], *(some[:, 2] for some in rows)])), first, last)


def _cut(runs: Runs, first: int, last: int) -> Runs:
    """Return what runs have of the elements from `first` to `last`, as runs in order that do not touch."""
    start = np.maximum(runs.start, first)
    return coalesced(Runs(start, np.minimum(runs.start + runs.length, last) - start))


def _between(taken: Runs, first: int, last: int) -> Runs:
    """Return the elements from `first` to `last` that are not in `taken`."""
    start = np.concatenate(([first], taken.start + taken.length))
    length = np.append(taken.start, last) - start
    return Runs(start[length > 0], length[length > 0])


def _fill_task(driver: Driver, node: DatasetNode, at: ElementMap, wanted: Runs) -> Callable[[], None]:
    """Writes the node's fill value to some elements."""

    def run() -> None:
        width = node.element.itemsize
        pattern = (node.fillvalue or b"").ljust(width, b"\0")[:width]
        ends = np.cumsum(wanted.length)
        total = int(ends[-1])
        block = max(1, min(_FILL_BYTES // width, total))
        memory = np.frombuffer(pattern * block, np.uint8)
        begins, step = before(wanted.length), at.inner * _ROWS or total
        for low in range(0, total, step):
            some = runs_between(wanted, begins, ends, low, min(step, total - low))
            extents = at.extents(split_rows(some, at.inner) if at.inner else some)
            for part in rounds(extents, block * width):
                # All elements are alike, so each extent takes the first ones of the memory.
                driver.write(Extents(part.offset, part.length, np.zeros_like(part.place)), memory)

    return run
