"""A read lays what is held on this node, by this rank and by the others, over what the global file has.

Knows: ranges, the cache files of the node and their logs. Does not know: how bytes get to the global
file, the queues and threads of other ranks, MPI.

Rules
-----
1. What is held was asked for before the file is read: a byte that is carried meanwhile is read from the cache file,
   which is not emptied while somebody reads.
2. A hole that the file does not reach yet reads as zeros; what lies behind the end is left as it was.
3. Of other ranks, what epochs that have ended put into their caches counts, and of that what their logs do not tell to
   be in the file. Where the files of one of them cannot be read, e.g. in a directory that is mounted for each process,
   none are seen.
4. A process gives space back only after it has recorded that the bytes are in the file. So a log that is the same after
   its cache file was read says that what was read is good; otherwise log and file are read again.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from pnc_vol.append_log.records import RECORD_BYTES
from pnc_vol.cache.extent_log import LOG_ID, SUFFIX, CacheLog, read_cache_log
from pnc_vol.cache.files import DATA, CacheFile, read_cached
from pnc_vol.cache.sync_threads import Pending
from pnc_vol.drivers.base import Driver, Memory
from pnc_vol.drivers.vectored_io import copy_pieces
from pnc_vol.errors import LogError, NotSyncedError
from pnc_vol.extents.merge import EMPTY, Ranges, intersect
from pnc_vol.extents.model import Extents
from pnc_vol.system import System
from pnc_vol.system.full_io import read_at

__all__ = ["HeldByOthers", "NodePeer", "NodePeers", "View", "read_over"]

_PATIENCE, _NAP = 200, 0.001


class NodePeer:
    """The cache of one other rank.

    Parameters
    ----------
    system : System
    stem : str, path of its files without their suffixes.
    """

    def __init__(self, system: System, stem: str) -> None:
        self._system, self._stem, self._log = system, stem, CacheLog()

    @property
    def missing(self) -> dict[int, Ranges]:
        """What the file may lack, by epoch, as of the last look; see `CacheLog`."""
        return self._log.missing

    def look(self) -> None:
        """Read the log.

        Raises
        ------
        OSError
            It cannot be read. A rank that has closed the file has none any more, and holds nothing.
        """
        for _ in range(_PATIENCE):
            self._log = CacheLog()
            with suppress(FileNotFoundError, LogError):
                self._log = read_cache_log(self._system, self._stem)
                if self._log.damage and self.changed():
                    continue
                return
            if not self.is_there():
                return
            # It was begun anew while it was read.
            time.sleep(_NAP)

    def is_there(self) -> bool:
        """Return whether its log can be read here."""
        try:
            self._system.close(self._system.open(self._stem + SUFFIX, os.O_RDONLY | os.O_NOFOLLOW))
        except OSError:
            return False
        return True

    def changed(self) -> bool:
        """Return whether the log has another record now, or is another one."""
        try:
            fd = self._system.open(self._stem + SUFFIX, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            return bool(self._log.head)
        try:
            head, more = bytearray(LOG_ID), bytearray(RECORD_BYTES)
            got = read_at(self._system, fd, head, 0)
            read_at(self._system, fd, more, self._log.end)
        finally:
            self._system.close(fd)
        if not self._log.head:
            return any(head)
        return bytes(head[:got]) != self._log.head or any(more)

    def read(self, extents: Extents, memory: Memory) -> None:
        """Read from the cache file, as far as it goes."""
        with suppress(FileNotFoundError):
            read_cached(self._system, self._stem + DATA, extents, memory)


class NodePeers:
    """The caches of all other ranks of the node.

    Parameters
    ----------
    peers : list of NodePeer
    """

    def __init__(self, peers: list[NodePeer]) -> None:
        self._peers = peers
        self._looked = 0
        self._seen: bool | None = None

    @property
    def seen(self) -> bool:
        """Whether this process can read the caches of all of them; asked after all have made theirs."""
        if self._seen is None:
            self._seen = all(peer.is_there() for peer in self._peers)
        return self._seen

    def held(self, ended: int) -> list[tuple[int, NodePeer, Ranges]]:
        """Return what they hold of epochs up to `ended`, the oldest epoch first."""
        if ended > self._looked:
            for peer in self._peers:
                peer.look()
            self._looked = ended
        return sorted(
            ((epoch, peer, ranges) for peer in self._peers for epoch, ranges in peer.missing.items() if epoch <= ended),
            key=lambda found: found[0],
        )

    def still(self, held: list[tuple[int, NodePeer, Ranges]]) -> bool:
        """Return whether what was read of them is good; what has changed is looked at again."""
        changed = [peer for peer in dict.fromkeys(peer for _, peer, _ in held) if peer.changed()]
        for peer in changed:
            peer.look()
        return not changed


class HeldByOthers:
    """What other ranks hold back: in caches of this node, or where it cannot be seen here, as far as that is known.

    Attributes
    ----------
    peers : NodePeers or None, what the other ranks of the node hold; None if there are no other ranks at all.
    reason : str, why a read has to wait for what cannot be seen.
    """

    def __init__(self) -> None:
        self.peers: NodePeers | None = None
        self.reason = ""
        self._ranges: dict[int, Ranges] = {}
        self._own, self._own_of_last = Pending(), EMPTY

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def wrote(self, ranges: Ranges) -> None:
        """Note what this process writes in the present epoch, held or not."""
        self._own.add(ranges)

    def cut(self, nbytes: int) -> None:
        """The file is cut."""
        own, self._own = self._own.all().below(nbytes), Pending()
        self._own.add(own)

    def end_epoch(self) -> None:
        """The epoch ends."""
        self._own_of_last, self._own = self._own.all(), Pending()

    def note(self, epoch: int, reason: str, ranges: Ranges) -> None:
        """Note where others wrote in the epoch that has ended; see `Holder.note_elsewhere`."""
        self.reason = reason
        found = self._ranges | {epoch: ranges} if reason else {}
        self._ranges = {of: left for of, one in found.items() if (left := one.minus(self._own_of_last)).start.size}

    def release(self, epoch: int) -> None:
        """All data of epochs up to this one are in the file."""
        self._ranges = {of: ranges for of, ranges in self._ranges.items() if of > epoch}

    def hidden(self) -> Ranges:
        """Return where a read has to wait, unless it finds the bytes here."""
        hidden = EMPTY
        for ranges in self._ranges.values():
            hidden = hidden.plus(ranges)
        return hidden.minus(self._own.all()) if self._ranges else EMPTY


@dataclass(frozen=True, slots=True)
class View:
    """What a read is made of.

    inner : Driver
    source : CacheFile or None, of this process.
    peers : NodePeers or None, the caches of the other ranks of the node.
    ended : int, the last epoch that has ended.
    reach : int, bytes that the file has at least when the held headers are in it.
    hidden : Ranges, where others may hold what cannot be seen here.
    reason : str, why they do.
    """

    inner: Driver
    source: CacheFile | None
    peers: NodePeers | None
    ended: int
    reach: int
    hidden: Ranges
    reason: str


def read_over(view: View, extents: Extents, memory: Memory, ranges: Ranges, *, collective: bool) -> int:
    """Do as `Driver.read` does.

    Parameters
    ----------
    ranges : Ranges, what this process has in its cache file that may not be in the global file.

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
        got = _below(view, extents, memory, here, collective=collective)
        for _, peer, theirs in others:
            peer.read(_parts(extents, theirs), memory)
        own = _parts(extents, ranges)
        if own.length.size:
            assert view.source is not None
            view.source.read(own, memory)
        if view.peers is None or view.peers.still(others):
            return got
        # A collective read is not made again: all ranks would have to.
        collective = False


def _below(view: View, extents: Extents, memory: Memory, here: Ranges, *, collective: bool) -> int:
    """Read what the global file has, unless all of it is held here; bytes, as of `Driver.read`."""
    file_end = view.inner.size()
    end = max(file_end, view.reach, *here.end[-1:].tolist())
    got = _parts(extents, here).nbytes
    if got < extents.nbytes or collective:
        if end > file_end:
            _clear(extents, memory, file_end, end)
        got = view.inner.read(extents, memory, collective=collective)
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
