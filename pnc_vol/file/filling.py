"""Fill values: written wherever nobody wrote yet and zeros are not what should be read.

Knows: layouts, fill values, the ranks that share the writing. Does not know: requests, headers.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from pnc_vol.comm import Comm
from pnc_vol.drivers.base import Driver
from pnc_vol.extents.model import Extents, Runs
from pnc_vol.layout.base import Layout, LostRecords
from pnc_vol.layout.places import ElementMap
from pnc_vol.mapping.tree import DatasetNode, Tree

__all__ = ["fill"]

_FILL_BYTES = 1 << 20


def fill(
    comm: Comm,
    tree: Tree,
    placed: Layout,
    target: Layout,
    driver: Driver,
    lost: LostRecords,
    *,
    only_lost: bool = False,
) -> None:
    """Write the fill value wherever nobody wrote yet and zeros are not what should be read (collective).

    Parameters
    ----------
    placed, target : Layout, the one in force and the next one.
    driver : Driver, of the file in which `target` will be in force.
    lost : records that variables were left with, before others came again; see `Layout.lost_records`.
    only_lost : bool, the rest was done before.
    """
    records = target.header.numrecs
    if (
        target.unwritten_reads_zero
        and not target.stale_gaps
        and not lost
        and all(n.fillvalue is None for n in tree.datasets.values())
    ):
        # All that was not written reads as zero, as it should.
        return
    tasks: list[Callable[[], None]] = []
    for uid in lost if only_lost else target.uids:
        node = tree.datasets[uid]
        pattern = node.fillvalue
        old = uid in placed.header_uids
        # A new variable may lie where a deleted one was.
        clean = target.unwritten_reads_zero and not (target.stale_gaps and not old and uid not in target.record_uids)
        zeros = clean and (pattern is None or not pattern.strip(b"\0"))
        if zeros and uid not in lost:
            continue
        at = target.maps[uid]
        if at.inner:
            # A drain went beyond the records of the header only where zeros are the fill value.
            first = (placed.records if pattern is None else placed.header.numrecs) if old else 0
            spans = [] if zeros else [(first, records)]
            if old and uid in lost:
                there = placed.records if zeros else first
                spans.append((lost[uid][0], min(there, records)))
            tasks += [_fill_task(driver, node, at, at.inner, *span) for span in spans if span[0] < span[1]]
        elif zeros:
            continue
        elif not old and not (pattern is None and placed.has_early_place(uid)):
            nelems = 1 if node.is_placeholder else math.prod(node.shape or ())
            tasks.append(_fill_task(driver, node, at, nelems, 0, 1))
    if tasks:
        for task in tasks[comm.rank :: comm.size]:
            task()
        if comm.size > 1:
            # Data of other ranks follow, which must not come to the file first.
            driver.drain()
        comm.exchange("flush fill")


def _fill_task(
    driver: Driver, node: DatasetNode, at: ElementMap, nelems: int, first: int, last: int
) -> Callable[[], None]:
    """Writes the node's fill value to the `nelems` elements of each record from `first` to `last`."""

    def run() -> None:
        width = node.element.itemsize
        pattern = (node.fillvalue or b"").ljust(width, b"\0")[:width]
        block = max(1, min(_FILL_BYTES // width, nelems))
        memory = np.frombuffer(pattern * block, np.uint8)
        begins = np.arange(first, last, dtype=np.int64) * nelems
        for low in range(0, nelems, block):
            n = min(block, nelems - low)
            for some in range(0, len(begins), _FILL_BYTES // 64):
                starts = begins[some : some + _FILL_BYTES // 64] + low
                offset, length, place = at.extents(Runs(starts, np.full_like(starts, n)))
                # All elements are alike, so each extent takes the first ones of the memory.
                driver.write(Extents(offset, length, np.zeros_like(place)), memory)

    return run
