"""After a flush a read sees what the caches of the other ranks of this node hold.

Knows: their extent logs and cache files, in whatever folder. Does not know: their queues and threads, MPI.

Rules
-----
1. What epochs that have ended put into their caches counts, and of them what their logs do not tell to be in the file.
2. Where the files of one of them cannot be read, e.g. in a directory that is mounted for each process, none are seen.
3. A process gives space back only after it has recorded that the bytes are in the file. So a log that is the same after
   its cache file was read says that what was read is good; otherwise log and file are read again.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

from pnc_vol.append_log.records import RECORD_BYTES, decode_records
from pnc_vol.cache.cache_file import DATA, read_cached
from pnc_vol.cache.cache_log import decode_cache_log
from pnc_vol.cache.extent_log import FORMAT, SUFFIX, read_log
from pnc_vol.drivers.base import Memory
from pnc_vol.errors import LogError
from pnc_vol.extents.merge import Ranges
from pnc_vol.extents.model import Extents
from pnc_vol.system import System
from pnc_vol.system.full_io import read_at

__all__ = ["NodePeer", "NodePeers"]

_LOG_ID = 48
"""Bytes of the header of a log that tell one log from the next in the same file."""
_PATIENCE, _NAP = 200, 0.001


class NodePeer:
    """The cache of one other rank.

    Parameters
    ----------
    system : System
    stem : str, path of its files without their suffixes.

    Attributes
    ----------
    missing : dict of int to Ranges, by epoch, as of the last look; see `CacheLog`.
    """

    def __init__(self, system: System, stem: str) -> None:
        self._system, self._stem = system, stem
        self.missing: dict[int, Ranges] = {}
        self._seen, self._end = b"", 0

    def look(self) -> None:
        """Read the log.

        Raises
        ------
        OSError
            It cannot be read. A rank that has closed the file has none any more, and holds nothing.
        """
        for _ in range(_PATIENCE):
            self.missing, self._seen, self._end = {}, b"", 0
            with suppress(FileNotFoundError, LogError):
                records, tables_of = read_log(self._system, self._stem)
                if any(records[:_LOG_ID]):
                    log = decode_cache_log(records, tables_of)
                    self.missing, self._seen = log.missing, records[:_LOG_ID]
                    self._end = decode_records(FORMAT, records).end
                    if log.damage and self.changed():
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
            return bool(self._seen)
        try:
            head, more = bytearray(_LOG_ID), bytearray(RECORD_BYTES)
            got = read_at(self._system, fd, head, 0)
            read_at(self._system, fd, more, self._end)
        finally:
            self._system.close(fd)
        if not self._seen:
            return any(head)
        return bytes(head[:got]) != self._seen or any(more)

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
