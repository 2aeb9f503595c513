"""Few ranks write or read the small pieces of many ranks in large pieces, which are brought together in nodes first.

Knows: ranks, extents, a driver. Does not know: requests, variables, which transport is chosen.

The part of the file that any rank writes to, or reads, is cut into domains, one for each aggregator, and these into
windows (`domains`), which are written or read in rounds (`window_rounds`).

Rules
-----
1. What nobody gives of a window is read before it is written (`holes`), so these bytes stay. Nobody else writes
   meanwhile: no window is read before all ranks are there, and none goes on before all windows are written. What
   drivers hold back of them, in any rank's cache, is brought to the file before.
2. If a window cannot be read or written, all ranks that gave or want something get an error; who gave what to it is not
   known there. They then write or read what is theirs by themselves, and find out.
3. Where the pieces are too far apart for this, or a node would need too much memory, all ranks do it by themselves.
4. A rank that fails in between takes part in all rounds to the end, with nothing: waits within a node and between nodes
   could not end otherwise. What is no error of the file, such as a lack of memory, is raised on all ranks
   at the last exchange, and all that was posted stays posted.
5. Ranks that cannot share memory count as nodes of their own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.base import Driver
from pnc_vol.drivers.vectored_io import in_order
from pnc_vol.exchange.domains import Domains
from pnc_vol.exchange.holes import is_whole, weight
from pnc_vol.exchange.node_parcels import allowed_here
from pnc_vol.exchange.team import Team, Wanted, aggregators
from pnc_vol.exchange.window_rounds import ReadRounds, Rounds, WriteRounds
from pnc_vol.extents.model import Extents
from pnc_vol.ranks.comm import Comm
from pnc_vol.ranks.places import Nodes
from pnc_vol.system import REAL

__all__ = ["Sizes", "TwoPhase", "shared_memory"]

Bytes = npt.NDArray[np.uint8]
_Rounds = TypeVar("_Rounds", bound=Rounds)

_PAGE = 4096
_LARGEST_UNIT = 64 << 20
_BEYOND = 1 << 62
_OF_AN_INDEX = 5
"""Bytes that a piece takes in a parcel besides its data, on average."""


class Sizes(NamedTuple):
    """What ranks agreed on for one collective write or read.

    levels : int, 1 if all ranks are on one node, else 2.
    aggregators : int, ranks that write or read for others: each has one domain of the file.
    window : int, bytes of a domain that are written or read in one round.
    windows : int, windows of a domain.
    rounds : int, those that the fullest domain takes; 0: each rank worked by itself after all.
    """

    levels: int
    aggregators: int
    window: int
    windows: int
    rounds: int


class TwoPhase:
    """Collective writes of one file; every rank makes the same calls.

    Parameters
    ----------
    comm : Comm
    nodes : Nodes
    hints : mapping of str to str, those of this rank; see `Wanted`.
    per_node : int, aggregators of a node that are asked for; 0: as useful.

    Attributes
    ----------
    driver : Driver, what is written to; set before the first write.
    last : dict of "writes" or "reads" to Sizes, those of the last ones.
    """

    driver: Driver

    def __init__(self, comm: Comm, nodes: Nodes, hints: Mapping[str, str], per_node: int = 0) -> None:
        self.comm = comm
        self.nodes = nodes
        self.wanted = Wanted.by(hints, per_node)
        self.last: dict[str, Sizes] = {}
        self._apart = False
        self._aggregators: dict[Wanted, list[int]] = {}
        self._teams: dict[tuple[Wanted, bool], Team] = {}
        self._windows: Bytes | None = None
        self._parcels: Bytes | None = None

    def write(self, extents: Extents, memory: Bytes) -> None:
        """Write this rank's extents, sorted and disjoint, perhaps none; all ranks together.

        Raises
        ------
        OSError
            Something of what all ranks gave could not be written; which pieces are in the file is not known.
        """
        self._together(WriteRounds, extents, memory)

    def read(self, extents: Extents, memory: Bytes) -> int:
        """Read this rank's extents, in any order, perhaps overlapping, perhaps none; all ranks together.

        Memory of what lies beyond the end of the file stays as it is.

        Returns
        -------
        int
            Bytes that were in the file.

        Raises
        ------
        OSError
            Something of what all ranks want could not be read.
        """
        work = self._together(ReadRounds, extents, memory)
        return 0 if work is None else work.extents.nbytes

    def _together(self, kind: type[_Rounds], extents: Extents, memory: Bytes) -> _Rounds | None:
        """Return a write or read of all ranks; None: there was nothing to do."""
        with self.comm.errors_shared():
            work = self._agreed(kind, extents, memory)
            failure = None if work is None else self._done(work)
        if failure is not None:
            raise failure
        return work

    def _agreed(self, kind: type[_Rounds], extents: Extents, memory: Bytes) -> _Rounds | None:
        """Return what all ranks are about to do; None: nothing. Without rounds each does it by itself."""
        reads = kind is ReadRounds
        if reads:
            extents = in_order(extents)
        n = len(extents.offset)
        low, high = (int(extents.offset[0]), int((extents.offset + extents.length).max())) if n else (_BEYOND, 0)
        size = self.driver.size() if reads and self.comm.rank == 0 else 0
        # The complement of `low`, since the reduction forms maxima.
        most = [~low, high, size, *self.wanted, self._block()]
        local = 0 if reads else weight(extents)
        # Halves, whose sums over all ranks do not exceed 63 bits.
        (beyond, high, size, *asked, block), (nbytes, pieces, lower, upper) = self.comm.agree(
            "flush bounds", most, [extents.nbytes, n, local & 0xFFFFFFFF, local >> 32]
        )
        low = ~beyond
        if reads:
            high = min(high, size)
        if not nbytes or high <= low:
            return None
        whole = reads or is_whole(lower + (upper << 32), low, high)
        wanted, smaller = Wanted(*asked), 1
        # Each decision in this loop follows from numbers that all ranks have, so they leave it together.
        while True:
            team = self._team(wanted)
            domains = self.domains(wanted, low, high, block, pieces / nbytes, smaller)
            work = kind(self.comm, self.driver, team, domains, extents, memory)
            work.look(nbytes, pieces, whole=whole)
            if not work.rounds:
                return work
            if not self._shared_windows(work):
                # From now on as if each rank had a node of its own.
                self._apart = True
                continue
            work.begin()
            if self._shared_parcels(work, 2 * wanted.buffer_size):
                return work
            if work.remote is not None and work.remote.excess > 1 and domains.window > _PAGE:
                # Some node has much more than its share of a round.
                smaller *= work.remote.excess
            else:
                work.rounds = 0
                return work

    def _done(self, work: Rounds) -> OSError | None:
        """Carry out what was agreed on (collective); what failed."""
        domains, levels = work.domains, 2 if work.team.remote else 1
        self.last[work.verb] = Sizes(levels, domains.count, domains.window, domains.windows, work.rounds)
        try:
            if work.rounds:
                work.run()
            else:
                work.guard.attempt(work.alone)
            return work.end()
        finally:
            # Shared memory is given back with the last array of it.
            work.windows = np.empty(0, np.uint8)
            if work.remote is not None:
                work.remote.release()

    def _block(self) -> int:
        """Return what the file system says of its blocks, on rank 0."""
        if self.comm.rank or self.driver.path is None:
            return 0
        try:
            return int(REAL.stat(self.driver.path).st_blksize)
        except OSError:
            return 0

    def domains(self, wanted: Wanted, low: int, high: int, block: int, density: float, smaller: int = 1) -> Domains:
        """Return the domains of a write or read, from agreed numbers alone; windows are `smaller` times smaller."""
        unit = wanted.unit or block
        unit = unit if _PAGE <= unit <= _LARGEST_UNIT else _PAGE
        window = wanted.buffer_size // 2
        if self._apart or not self.nodes.single:
            # Of two buffers, three eighths each are two windows and two rounds of parcels, with their lists of pieces.
            window = int(window * 3 / 4 / (1 + _OF_AN_INDEX * density))
        window = max(_PAGE, window // smaller // _PAGE * _PAGE)
        cyclic = wanted.stripes > 1 and wanted.unit > 0
        return Domains.over(low, high, len(self.owners(wanted)), buffer=window, unit=unit, cyclic=cyclic)

    def owners(self, wanted: Wanted) -> list[int]:
        if wanted not in self._aggregators:
            self._aggregators[wanted] = aggregators(self.nodes, wanted)
        return self._aggregators[wanted]

    def _team(self, wanted: Wanted) -> Team:
        """Return who does what (collective when it is asked first)."""
        if (wanted, self._apart) not in self._teams:
            self._teams[wanted, self._apart] = Team.of(self.comm, self.nodes, self.owners(wanted), apart=self._apart)
        return self._teams[wanted, self._apart]

    def _shared_windows(self, work: Rounds) -> bool:
        """Give a write or read the memory of its windows (collective); whether there is some."""
        self._windows = self._shared(work.team, self._windows, 2 * work.team.most_here * work.domains.window)
        if self._windows is not None:
            work.windows = self._windows
        return self._windows is not None

    def _shared_parcels(self, work: Rounds, each: int) -> bool:
        """Give it the memory for what goes between nodes (collective); whether there is some, or none is needed.

        each : int, bytes that an aggregator may have in all.
        """
        remote, team = work.remote, work.team
        if not team.remote or remote is None:
            return not team.remote

        def shared(nbytes: int) -> Bytes | None:
            self._parcels = self._shared(team, self._parcels, nbytes)
            return self._parcels

        return remote.prepare(allowed_here(len(team.here), each, work.domains.window), shared)

    def _shared(self, team: Team, kept: Bytes | None, nbytes: int) -> Bytes | None:
        """Return the memory that all ranks of a node see, of this size at least on all nodes (collective); None: there
        is none."""
        if kept is not None and kept.nbytes >= nbytes:
            return kept
        found: Bytes | None = None
        lack: Exception | None = None
        try:
            found = np.empty(nbytes, np.uint8) if team.node is None else shared_memory(team.node, nbytes)
        except Exception as error:
            lack = error
        missing = self.comm.agree("flush memory", [found is None], error=lack)[0][0]
        return None if missing else found

    def close(self) -> None:
        """Give the memory back."""
        self._windows = self._parcels = None
        for team in self._teams.values():
            team.free()
        self._teams.clear()


def shared_memory(comm: Comm, nbytes: int) -> npt.NDArray[np.uint8] | None:
    """Return uint8[nbytes] that all ranks have in common, or None on all of them (collective).

    It is given back when the last array of it is gone. Ask only for ranks of one node. The file has no name, and is
    opened through ``/proc``: a killed job leaves nothing behind, which MPI's shared windows do not promise.
    """
    fd, found, place = -1, None, None
    token = os.urandom(16)
    if comm.rank == 0:
        try:
            fd = REAL.memory_file()
            # To store into memory that the system does not have is a SIGBUS; here its lack is an error.
            REAL.fallocate(fd, 0, nbytes)
            found = _mapped(fd, nbytes)
            found[:16] = np.frombuffer(token, np.uint8)
            place = [REAL.getpid(), fd, nbytes, token]
        except (OSError, ValueError, MemoryError):
            found = None
    try:
        place = comm.broadcast("flush memory", place)
        if comm.rank and place is not None:
            found = _opened(*place)
        # Until all have it open, the one who made it keeps it.
        missing = comm.agree("flush memory", [found is None])[0][0]
    finally:
        if fd >= 0:
            REAL.close(fd)
    return None if missing else found


def _mapped(fd: int, nbytes: int) -> npt.NDArray[np.uint8]:
    return np.frombuffer(REAL.mmap(fd, nbytes), np.uint8)


def _opened(pid: int, number: int, nbytes: int, token: bytes) -> npt.NDArray[np.uint8] | None:
    """Return the memory that another process made; None if it cannot be had or is another one's."""
    try:
        # In another container the number may be another process's, and the file a pipe, whose opening would wait.
        fd = REAL.open(f"/proc/{pid}/fd/{number}", os.O_RDWR | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        if REAL.fstat(fd).st_size != nbytes:
            return None
        found = _mapped(fd, nbytes)
        # The token shows that it is the memory that was made, and no other file of the same size.
        return found if found[:16].tobytes() == token else None
    except (OSError, ValueError, MemoryError):
        return None
    finally:
        REAL.close(fd)
