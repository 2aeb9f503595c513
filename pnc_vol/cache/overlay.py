"""A read lays what is held on this node over what the global file has.

Knows: ranges, the cache file, what is held. Does not know: how bytes get to the global file.

Rules
-----
1. What is held was asked for before the file is read: a byte that is carried meanwhile is read from the cache file,
   which is not emptied while somebody reads.
2. A hole that the file does not reach yet reads as zeros; what lies behind the end is left as it was.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pnc_vol.cache.cache_file import CacheFile
from pnc_vol.cache.node_peers import NodePeers
from pnc_vol.cache.queues import PendingHeader
from pnc_vol.drivers.base import Driver, Memory
from pnc_vol.drivers.vectored_io import copy_pieces
from pnc_vol.errors import NotSyncedError
from pnc_vol.extents.merge import Ranges, intersect
from pnc_vol.extents.model import Extents

__all__ = ["View", "read_over"]


@dataclass(frozen=True, slots=True)
class View:
    """What a read is made of.

    inner : Driver
    source : CacheFile or None, of this process.
    peers : NodePeers or None, the caches of the other ranks of the node.
    ended : int, the last epoch that has ended.
    hidden : Ranges, where others may hold what cannot be seen here.
    reason : str, why they do.
    """

    inner: Driver
    source: CacheFile | None
    peers: NodePeers | None
    ended: int
    hidden: Ranges
    reason: str


def read_over(
    view: View, extents: Extents, memory: Memory, ranges: Ranges, held: list[PendingHeader], *, collective: bool
) -> int:
    """Do as `Driver.read` does.

    Parameters
    ----------
    ranges : Ranges, what this process has in its cache file that may not be in the global file.
    held : list of PendingHeader, oldest first; newer than what is in the cache file.

    Raises
    ------
    NotSyncedError
        Others may hold some of the bytes asked for, and these are not held here.
    """
    while True:
        others = [] if view.peers is None else view.peers.held(view.ended)
        others = [(epoch, peer, theirs) for epoch, peer, theirs in others if _parts(extents, theirs).length.size]
        here = ranges
        for _, _, theirs in others:
            here = here.plus(theirs)
        if not collective and _parts(extents, view.hidden.minus(here)).length.size:
            raise NotSyncedError(view.reason)
        got = _below(view.inner, extents, memory, here, held, collective=collective)
        for _, peer, theirs in others:
            peer.read(_parts(extents, theirs), memory)
        own = _parts(extents, ranges)
        if own.length.size:
            assert view.source is not None
            view.source.read(own, memory)
        for one in held:
            _lay(extents, memory, one)
        if view.peers is None or view.peers.still(others):
            return got
        # A collective read is not made again: all ranks would have to.
        collective = False


def _below(
    inner: Driver, extents: Extents, memory: Memory, here: Ranges, held: list[PendingHeader], *, collective: bool
) -> int:
    """Read what the global file has, unless all of it is held here; bytes, as of `Driver.read`."""
    file_end = inner.size()
    end = max((file_end, *here.end[-1:].tolist(), *(one.end for one in held)))
    got = _parts(extents, here).nbytes
    if got < extents.nbytes or collective:
        if end > file_end:
            _clear(extents, memory, file_end, end)
        got = inner.read(extents, memory, collective=collective)
    if end > file_end:
        got = max(got, int(np.clip(end - extents.offset, 0, extents.length).sum()))
    return got


def _parts(extents: Extents, ranges: Ranges) -> Extents:
    """Return the parts of extents that are in a set; `offset` in the file, `place` in the memory of the extents."""
    if not ranges.start.size:
        return Extents(*np.zeros((3, 0), np.int64))
    which, _, offset, length = intersect(extents.offset, extents.length, ranges.start, ranges.end - ranges.start)
    return Extents(offset, length, extents.place[which] + offset - extents.offset[which])


def _clear(extents: Extents, memory: Memory, first: int, end: int) -> None:
    """Put zeros for what lies between the end of the file and that of what is held."""
    hole = _parts(extents, Ranges(np.array([first]), np.array([end])))
    if hole.length.size:
        zeros = np.zeros(int(hole.length.max()), np.uint8)
        copy_pieces(memory, hole.place, zeros, np.zeros_like(hole.place), hole.length)


def _lay(extents: Extents, memory: Memory, held: PendingHeader) -> None:
    """Lay what is held over what was read."""
    order = np.argsort(held.extents.offset, kind="stable")
    offset, length, place = (column[order] for column in held.extents)
    which, of, start, many = intersect(extents.offset, extents.length, offset, length)
    if many.size:
        into = extents.place[which] + start - extents.offset[which]
        copy_pieces(memory, into, held.data, place[of] + start - offset[of], many)
