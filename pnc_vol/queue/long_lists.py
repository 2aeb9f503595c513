"""Posting very many runs, which are created part by part, because all of them would take more memory than the data.

Knows: the queue, runs, arrays. Does not know: selections, where variables are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy.typing as npt

from pnc_vol.extents.model import Runs
from pnc_vol.format.convert import Overflow, to_file
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.queue.queue import Queue
from pnc_vol.queue.run_lists import compact

__all__ = ["put_parts"]

Parts = Iterator[tuple[Runs, npt.NDArray[Any]]]


def put_parts(queue: Queue, node: DatasetNode, request: int, parts: Parts, cost: int, on_overflow: Overflow) -> bool:
    """Take in a write as lists of runs: all of it, or nothing.

    Parameters
    ----------
    parts : iterator of (Runs, array)
        Runs, and the values that belong there, ready for `to_file`.
    cost : int, bytes that all of it will be charged with at most.

    Returns
    -------
    bool
        False if there is no room within the budget.

    Raises
    ------
    RangeError, DefinitionError
        See `to_file`; nothing was posted.
    """
    if queue.used + cost > queue.budget:
        return False
    uid, lists = node.uid, queue.lists
    if uid in queue.tables:
        queue.close_batch()
    position, count, charged = queue.position, len(lists.open.get(uid, ())), lists.nbytes
    whole = False
    try:
        whole = all(_put(queue, node, request, compact(found), values, on_overflow) for found, values in parts)
    finally:
        if not whole:
            queue.position = position
            lists.take_back(uid, count, charged)
    return whole


def _put(
    queue: Queue, node: DatasetNode, request: int, found: Runs, values: npt.NDArray[Any], on_overflow: Overflow
) -> bool:
    element, itemsize = node.element, node.element.itemsize
    nbytes = values.size * itemsize
    address = queue.take(nbytes, 0, itemsize, queue.lists.cost(found))
    if address < 0:
        return False
    room = queue.arena[address : address + nbytes]
    to_file(values, element.file_dtype, room, on_overflow=on_overflow, what=node.name)
    queue.lists.add(node.uid, request, found, address, itemsize)
    return True
