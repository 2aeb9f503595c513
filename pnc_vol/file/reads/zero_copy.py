"""Posted reads of large runs, straight into the user's array.

Knows: places of variables, runs, drivers. Does not know: fill values, posts; where these matter, it says no.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pnc_vol.extents.model import Extents
from pnc_vol.extents.place import place
from pnc_vol.file.reads.contiguous import Facts, PostedRead, facts_of
from pnc_vol.flush.stream import blocks_of, in_parallel
from pnc_vol.format.convert import swap_in_place

if TYPE_CHECKING:
    from pnc_vol.file.session import Session

__all__ = ["LEAST", "read_straight"]

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

LEAST = 256 << 10
"""Bytes of a read from which on it is worth calls of its own."""

_LEAST_RUN = 4096
"""Bytes of its runs, on average, from which on they need not be read together with others'."""


_LOOK = 4 << 20
"""Bytes that are converted from a mapped file at a time."""


def read_straight(session: Session, posted: PostedRead) -> bool:
    """Read where the bytes belong, and swap them there; False if it is not that simple.

    What stands in the array if it turns out not to be is written over afterwards.

    Raises
    ------
    OSError
        The file could not be read.
    """
    node, out = posted.node, posted.out
    if out.nbytes < LEAST or not out.flags.c_contiguous:
        return False
    facts = facts_of(session, node)
    if facts is None or out.dtype not in (facts.dtype, facts.file_dtype) or session.posted.queue.has(node.uid):
        return False
    found = posted.found
    if len(found.start) * _LEAST_RUN > out.nbytes:
        return False
    if facts.inner and int(found.start.max()) >= session.disk.layout.stored_records(node) * facts.inner:
        return False
    extents = place(
        found,
        begin=facts.begin,
        itemsize=facts.itemsize,
        inner=facts.inner or None,
        record_size=facts.record_size,
    )
    flat = out.reshape(-1)
    if not _looked(session, facts, extents, flat) and not _in_blocks(session, facts, extents, flat):
        return False
    posted.request._complete()
    return True


def _looked(session: Session, facts: Facts, extents: Extents, flat: Array) -> bool:
    """Convert straight from the file's own bytes, in one pass, where they can be had."""
    driver, blind, itemsize = session.disk.driver, [False], facts.itemsize

    def task(block: Extents) -> Callable[[Bytes], None]:
        def use(file: Bytes) -> None:
            for offset, length, first in zip(*(column.tolist() for column in block), strict=True):
                part = flat[first // itemsize : (first + length) // itemsize]
                part[...] = np.ndarray(part.shape, facts.file_dtype, file, offset)

        def run(_: Bytes) -> None:
            end = int((block.offset + block.length).max())
            if not blind[0] and not driver.look(end, block.nbytes, use):
                blind[0] = True

        return run

    in_parallel(driver, (task(block) for block in blocks_of(extents, _LOOK)), 0)
    return not blind[0]


def _in_blocks(session: Session, facts: Facts, extents: Extents, flat: Array) -> bool:
    """Read a block where it belongs, and swap it while it is in the cache."""
    memory: Bytes = flat.view(np.uint8)
    swap = facts.itemsize if flat.dtype != facts.file_dtype else 1
    short: list[int] = []

    def task(block: Extents) -> Callable[[Bytes], None]:
        def run(_: Bytes) -> None:
            nbytes, first = block.nbytes, int(block.place[0])
            if session.disk.driver.read(block, memory) < nbytes:
                short.append(first)
            swap_in_place(memory[first : first + nbytes], swap)

        return run

    in_parallel(session.disk.driver, (task(block) for block in blocks_of(extents)), 0)
    return not short
