"""Large writes and reads go in blocks that fit a cache; conversion and system call overlap where a driver allows it.

Knows: extents, drivers, two threads. Does not know: variables, headers, ranks.

The kernel's copy of one block and the byte swap of the next one keep two cores busy; that is how a big-endian file
is written as fast as a native one. Only drivers that say `concurrent` are called from threads: none that uses MPI.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.base import Driver
from pnc_vol.extents.merge import last_wins
from pnc_vol.extents.model import Extents
from pnc_vol.queue.batches import Batch

__all__ = ["BLOCK", "block_of", "in_parallel", "write_streamed"]

Bytes = npt.NDArray[np.uint8]

BLOCK = 1 << 20
"""Bytes of a block: it stays in a core's second-level cache, and a call's cost is small against its copy."""

_LEAST_CALLS = 16
"""Costs of a call that a block is worth at least, on drivers with dear calls."""


def block_of(driver: Driver) -> int:
    """Return the number of bytes of a block that is read or written by one call of a driver; see
    `Capabilities.call_cost`."""
    return max(BLOCK, _LEAST_CALLS * driver.capabilities.call_cost)


def in_parallel(driver: Driver, tasks: Iterable[Callable[[Bytes], Any]], room: int = BLOCK) -> None:
    """Run the tasks, in two threads if `driver` may be called so; see `in_two_threads`."""
    from pnc_vol.system import two_threads

    two_threads.in_two_threads(tasks, room, alone=not driver.capabilities.concurrent)


def write_streamed(batch: Batch, uid: int, extents: Extents, driver: Driver) -> None:
    """Write extents whose ``place`` is an address in a batch, by copies of a block each: a batch that is not loaded."""

    def task(block: Extents) -> Callable[[Bytes], None]:
        def run(room: Bytes) -> None:
            ends = np.cumsum(block.length)
            packed = room[: int(ends[-1])]
            batch.copy(uid, packed, ends - block.length, block.place, block.length)
            driver.write(Extents(block.offset, block.length, ends - block.length), packed)

        return run

    from pnc_vol.extents import blocks

    in_parallel(driver, (task(block) for block in blocks.rounds(last_wins(extents), BLOCK)))
