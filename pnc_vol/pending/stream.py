"""Large writes and reads in blocks that fit a cache, conversion and system call overlapped where a driver allows it.

Knows: extents, drivers, two threads. Does not know: variables, headers, ranks.

The kernel's copy of one block and the byte swap of the next one keep two cores busy; that is how a big-endian file
is written as fast as a native one. Only drivers that say `concurrent` are called from threads: none that uses MPI.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.base import Driver
from pnc_vol.extents.merge import last_wins, split
from pnc_vol.extents.model import Extents
from pnc_vol.format.convert import swap_in_place
from pnc_vol.pending.batches import LentBatch

__all__ = ["BLOCK", "blocks_of", "in_parallel", "write_lent"]

Bytes = npt.NDArray[np.uint8]

BLOCK = 2 << 20
"""Bytes of a block: two of them fit a core's second-level cache and a call's cost is small against its copy."""

_THREADS = 2


def in_parallel(driver: Driver, tasks: Iterable[Callable[[], Any]]) -> None:
    """Run the tasks, in two threads if `driver` may be called so; at most a few are under way at once.

    Raises
    ------
    Exception
        The first task's that failed; those not begun are left out.
    """
    if not driver.concurrent:
        for task in tasks:
            task()
        return
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="pnc_vol") as pool:
        under_way: list[Future[Any]] = []
        try:
            for task in tasks:
                under_way.append(pool.submit(task))
                if len(under_way) > _THREADS:
                    under_way.pop(0).result()
        finally:
            errors = [future.exception() for future in under_way]
        for error in errors:
            if error is not None:
                raise error


def blocks_of(extents: Extents, limit: int = BLOCK) -> Iterator[Extents]:
    """The extents in groups of at most `limit` bytes; longer ones are cut."""
    cut = split(extents, limit)
    ends = np.cumsum(cut.length)
    first = 0
    while first < len(ends):
        base = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, base + limit, side="right")))
        yield Extents(cut.offset[first:last], cut.length[first:last], cut.place[first:last])
        first = last


def write_lent(batch: LentBatch, extents: Extents, driver: Driver) -> None:
    """Write extents whose ``place`` is an address in a lent array."""

    def task(block: Extents) -> Callable[[], None]:
        def run() -> None:
            length = block.length
            ends = np.cumsum(length)
            packed = np.empty(int(ends[-1]), np.uint8)
            if len(length) == 1:
                at = int(block.place[0])
                packed[:] = batch.array[at : at + len(packed)]
                swap_in_place(packed, batch.swap)
            else:
                batch.copy(packed, ends - length, block.place, length)
            driver.write(Extents(block.offset, length, ends - length), packed)

        return run

    in_parallel(driver, (task(block) for block in blocks_of(last_wins(extents))))
