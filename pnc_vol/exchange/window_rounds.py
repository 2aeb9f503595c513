"""One collective write or read goes in rounds: the windows of all domains, one of each aggregator at a time.

Knows: domains, windows in the memory of a node, parcels, a driver. Does not know: requests, who chose this way.

In each round an aggregator has one window in memory that all ranks of its node see. Ranks of its node copy their pieces
there, or from there, themselves. What a node has for windows of other nodes, or wants of them, its ranks put into
shared memory one behind another, sorted by window (`node_parcels`); one rank of the node sends it from there, and gets
the answers. While the window of a round is written, or that of the next one is read, in a thread where the driver
allows it, the pieces of the next round are put together, sent and copied.

Round k     in a write                                            in a read
--------    --------------------------------------------------    ------------------------------------------
before      parcels of k; windows k - 2 are written, k are read   requests of k; windows k are read
all meet
then        begin to write windows k - 1, and to read k + 1       begin to read windows k + 1
            send parcels; copy pieces into windows k              answer requests; copy pieces from windows k
"""

from __future__ import annotations

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.base import Driver
from pnc_vol.drivers.vectored_io import copy_pieces, spread, within, without_overlap
from pnc_vol.exchange.domains import Cut, Domains, rounds_of_cells
from pnc_vol.exchange.holes import Granules, worth_finding
from pnc_vol.exchange.node_parcels import PIECES, Incoming, NodeParcels, Outgoing
from pnc_vol.exchange.team import Guard, Team
from pnc_vol.extents.model import Extents
from pnc_vol.ranks.comm import Comm
from pnc_vol.system.two_threads import Behind

__all__ = ["ReadRounds", "Rounds", "WriteRounds"]

Bytes = npt.NDArray[np.uint8]

_SPARSE = 64
"""How many times the bytes that are given the windows may have, before ranks rather write by themselves."""

_MOST_CELLS = 1 << 20

_NONE = np.empty(0, np.int64)
_NOTHING = Cut(Extents(_NONE, _NONE, _NONE), _NONE, _NONE, _NONE, _NONE, _NONE)
# Made here, not in a constructor: what one rank alone has no memory for there would leave the others waiting.
_NO_BITS = np.empty((2, 0), np.uint8)


class Rounds(ABC):
    """One collective write or read.

    Parameters
    ----------
    comm : Comm
    driver : Driver
    team : Team
    domains : Domains
    extents : Extents, what this rank gives or wants, sorted by offset.
    memory : uint8[...], where it is, or belongs.

    Attributes
    ----------
    rounds : int, the same on all ranks; 0: each rank does it by itself.
    windows : uint8[...], of all aggregators of this node, two of each.
    remote : NodeParcels or None, what goes to or comes from other nodes.
    """

    parcels: ClassVar[type[NodeParcels]]
    verb: ClassVar[str]
    windows: Bytes
    granules: Granules | None = None
    """How far windows are given that are written; None: nothing is left open."""

    def __init__(
        self, comm: Comm, driver: Driver, team: Team, domains: Domains, extents: Extents, memory: Bytes
    ) -> None:
        self.comm = comm
        self.driver = driver
        self.team = team
        self.domains = domains
        self.extents = extents
        self.memory = memory
        self.guard = Guard()
        self.rounds = 0
        self.cut = _NOTHING
        self.turns: dict[int, list[int]] = {}
        """For each round the numbers of this rank's cells in `cut`."""
        self.cells: list[int] = []
        """Those of this rank's domain that any rank has something for."""
        self.bits = _NO_BITS
        """What windows this rank touches, and what any rank touches."""
        self.remote: NodeParcels | None = None

    # --------------------------------------------------------------------------------------------- agreeing

    @property
    def few_cells(self) -> bool:
        """Whether there are so few windows that each rank can note which of them are touched."""
        return self.domains.cells <= _MOST_CELLS

    def look(self, nbytes: int, pieces: int, *, whole: bool) -> None:
        """Find out the rounds (collective); what fails on one rank is raised on all before any of them.

        nbytes, pieces : int, of all ranks.
        whole : bool, nothing is left open between the first and the last byte.
        """
        self.guard.attempt(self._prepare)
        if not self.few_cells:
            return
        if self.domains.windows > 1:
            self.comm.agree("flush windows", error=self.guard.lack)
            # Nothing here takes memory.
            with self.team.levels.call("flush windows"):
                self.team.levels.reduce("flush windows", "any", *self.bits)
        self.guard.attempt(lambda: self._plan(nbytes))
        if not whole:
            self.guard.attempt(lambda: self._note_holes(known=worth_finding(nbytes, pieces)))
        self.comm.agree("flush rounds", error=self.guard.lack)
        self._find_holes()
        self._drain()

    def _note_holes(self, *, known: bool) -> None:
        """Make ready for `_find_holes`."""
        if self.rounds:
            self.granules = Granules(self.domains, known=known)
            if known:
                self.granules.add(self.cut)

    def _find_holes(self) -> None:
        """Find out what is left open of the windows (collective)."""
        granules, levels = self.granules, self.team.levels
        if granules is not None and granules.known:
            with levels.call("flush holes"):
                levels.reduce("flush holes", "sum", *granules.sums)

    def _prepare(self) -> None:
        """Cut this rank's extents, and note what windows they touch."""
        domains, asked = self.domains, self._asked()
        if not self.few_cells:
            return
        self.cut = domains.cut(asked)
        if domains.windows > 1:
            own_cells = np.zeros(domains.cells, bool)
            own_cells[self.cut.cells] = True
            packed = np.packbits(own_cells)
            self.bits = np.stack((packed, packed))

    def _asked(self) -> Extents:
        """Return what is cut: disjoint, within the domains."""
        return self.extents

    @property
    def pieces(self) -> Bytes:
        """Memory of what is cut."""
        return self.memory

    def _plan(self, nbytes: int) -> None:
        """Find out in how many rounds all ranks together move `nbytes`, and what of them is this rank's."""
        domains, team, touched = self.domains, self.team, self._touched()
        # Windows with next to nothing in them take longer to read and write as a whole than calls for the pieces.
        if min(int(touched.sum()) * domains.window, domains.high - domains.low) > _SPARSE * nbytes:
            return
        rounds, number = rounds_of_cells(touched)
        for i, turn in enumerate(number.reshape(-1)[self.cut.cells].tolist()):
            self.turns.setdefault(turn, []).append(i)
        windows = np.flatnonzero(touched[team.own_domain]) if team.own_domain >= 0 else _NONE
        self.cells = (team.own_domain * domains.windows + windows).tolist()
        if team.remote:
            self.remote = self.parcels(team, domains, self.cut, self.turns, self.pieces, self.guard, rounds)
        self.rounds = rounds

    def _touched(self) -> npt.NDArray[np.bool_]:
        """Return bool[domains, windows], whether any rank has something for it."""
        domains = self.domains
        touched = np.ones(domains.cells, bool)
        if domains.windows > 1:
            touched[:] = np.unpackbits(self.bits[1], count=domains.cells)
        return touched.reshape(domains.count, domains.windows)

    def _drain(self) -> None:
        """Bring what ranks hold of the windows to the file before a window is read (collective)."""
        if self.rounds and self.driver.capabilities.holds_back:
            self.guard.attempt(self._drain_own_windows)
            self.comm.agree("flush stripes", error=self.guard.lack)

    def _drain_own_windows(self) -> None:
        """Bring what this rank holds to the file if some of it is in a window."""
        held = self.driver.holder.unsynced()
        low, high = self.domains.low, self.domains.high
        first = np.maximum(held.offset, low)
        length = np.minimum(held.offset + held.length, high) - first
        kept = length > 0
        cells = self.domains.cut(Extents(first[kept], length[kept], first[kept])).cells
        if self._touched().reshape(-1)[cells].any():
            self.driver.holder.drain()

    def end(self) -> OSError | None:
        """Learn how it went everywhere: what this rank, or one that works for it, failed with (collective)."""
        failure, comm = self.guard.failure, self.comm
        # The largest number is that of the lowest rank that failed; 0 if none did.
        number = 0 if failure is None else (comm.size - comm.rank) << 32 | (failure.errno or errno.EIO)
        lowest = comm.agree("flush written", [number], error=self.guard.lack)[0][0]
        if failure is not None:
            return failure
        if lowest and len(self.extents.offset):
            rank, number = comm.size - (lowest >> 32), lowest & 0xFFFFFFFF
            return OSError(number, f"{os.strerror(number)} (rank {rank}, which {self.verb} for others)")
        return None

    # ----------------------------------------------------------------------------------------------- rounds

    @abstractmethod
    def alone(self) -> None:
        """Let this rank do it by itself."""

    @abstractmethod
    def begin(self) -> None:
        """Do what comes before the ranks of a node meet for the first time."""

    @abstractmethod
    def run(self) -> None:
        """Do all rounds (collective)."""

    def window(self, domain: int, k: int) -> Bytes:
        """Return the memory of a window of this node's aggregators."""
        # Two windows of each aggregator: one is filled while the other is written or read.
        number, size = 2 * self.team.here.index(domain) + k % 2, self.domains.window
        return self.windows[number * size : (number + 1) * size]

    def _own_window(self, k: int) -> Bytes | None:
        return self.window(self.team.own_domain, k) if self.team.own_domain >= 0 else None

    def _each(self, meanwhile: Callable[[int], None], copy: Callable[[int], None]) -> None:
        """Do the rounds (collective).

        Parameters
        ----------
        meanwhile : callable
            Is given the round that all ranks of the node have come to, and writes and reads other windows than its own:
            in a thread if this rank has several, and the driver allows it.
        copy : callable
            Copies this rank's pieces into windows of its node in a round, or from there.
        """
        levels, remote, attempt = self.team.levels, self.remote, self.guard.attempt
        with Behind(alone=len(self.cells) < 2 or not self.driver.capabilities.concurrent) as behind:

            def all_here(k: int) -> None:
                attempt(lambda: behind.start(lambda: meanwhile(k)))

            for k in range(self.rounds):
                if remote is not None:
                    attempt(partial(remote.fill, k))
                # Who goes on lets other ranks have the memory of these windows, whatever failed.
                attempt(behind.wait, always=True)
                if remote is not None:
                    remote.exchange(k, self._own_window(k), partial(all_here, k))
                else:
                    levels.meet(PIECES)
                    all_here(k)
                attempt(partial(copy, k))
            attempt(behind.wait, always=True)


class WriteRounds(Rounds):
    """A write. What no rank gives of a window begins as what the file holds."""

    parcels = Outgoing
    verb = "writes"

    def alone(self) -> None:
        self.driver.write(self.extents, self.memory)

    def begin(self) -> None:
        self.guard.attempt(lambda: self._read(0))

    def run(self) -> None:
        levels, attempt = self.team.levels, self.guard.attempt
        with levels.call(PIECES):
            if self.remote is not None:
                attempt(lambda: self._fill(0))
            self._each(self._next, self._copy)
            # Ranks copy into the last window after they have come to its round, and must be done before it is written.
            # With several nodes and one round they copied before they came.
            if self.rounds > 1 or self.remote is None:
                levels.meet(PIECES)
            attempt(lambda: self._write(self.rounds - 1))

    def _copy(self, k: int) -> None:
        # Ranks of several nodes met before the first round, and have filled its windows.
        if k or self.remote is None:
            self._fill(k)

    def _next(self, k: int) -> None:
        """Write the window of the round before `k`, and read that of the round after it: they share memory."""
        self._write(k - 1)
        self._read(k + 1)

    def _open(self, k: int) -> tuple[Extents, Extents]:
        """Return what is to be read of this rank's window before it is written, and what is written."""
        if not 0 <= k < len(self.cells):
            return _NOTHING.extents, _NOTHING.extents
        part = self.domains.part(self.cells[k])
        return (_NOTHING.extents, part) if self.granules is None else self.granules.of(self.cells[k])

    def _read(self, k: int) -> None:
        """Let what is open in this rank's window be what the file holds."""
        part, _ = self._open(k)
        if not len(part.offset):
            return
        room = self.window(self.team.own_domain, k)
        got = self.driver.read(part, room)
        if got < part.nbytes:
            # What lies behind the end of the file is zeros. A short read leaves open which bytes are there, so all are
            # cleared and read once more.
            for place, length in zip(part.place.tolist(), part.length.tolist(), strict=True):
                room[place : place + length] = 0
            if got:
                self.driver.read(part, room)

    def _fill(self, k: int) -> None:
        """Put this rank's pieces for aggregators of its node into their windows."""
        for i in self.turns.get(k, ()):
            domain = int(self.cut.cells[i]) // self.domains.windows
            if domain in self.team.here:
                inside, length, place = self.cut.pieces(i)
                copy_pieces(self.window(domain, k), inside, self.memory, place, length)

    def _write(self, k: int) -> None:
        """Write this rank's window."""
        _, part = self._open(k)
        if len(part.offset):
            self.driver.write(part, self.window(self.team.own_domain, k))


class ReadRounds(Rounds):
    """A read. The domains end where the file does; what is wanted may overlap, and reach beyond.

    extents : Extents, what is wanted and in the file, once `look` was called.
    """

    parcels = Incoming
    verb = "reads"
    _union: tuple[Extents, Bytes] | None = None
    """What overlapping extents cover, and memory for that."""

    def _asked(self) -> Extents:
        wanted = within(self.extents, self.domains.high)
        # Empty pieces lie behind all others.
        n = int(np.count_nonzero(wanted.length))
        self.extents = Extents(*(column[:n] for column in wanted))
        if not n:
            return self.extents
        asked, memory = without_overlap(self.extents, self.memory)
        if memory is not self.memory:
            self._union = asked, memory
        return asked

    @property
    def pieces(self) -> Bytes:
        return self.memory if self._union is None else self._union[1]

    def begin(self) -> None:
        """There is nothing to do."""

    def alone(self) -> None:
        self.driver.read(self.extents, self.memory)

    def run(self) -> None:
        attempt = self.guard.attempt
        with self.team.levels.call(PIECES):
            attempt(lambda: self._look(0))
            self._each(lambda k: self._look(k + 1), self._give)
        if self._union is not None:
            union, memory = self._union
            attempt(lambda: spread(union, memory, self.extents, self.memory))

    def _look(self, k: int) -> None:
        """Read this rank's window."""
        if k < len(self.cells):
            part = self.domains.part(self.cells[k])
            if self.driver.read(part, self.window(self.team.own_domain, k)) < part.nbytes:
                raise OSError(errno.EIO, "the file became shorter while it was read")

    def _give(self, k: int) -> None:
        """Take this rank's pieces from windows of its node."""
        for i in self.turns.get(k, ()):
            domain = int(self.cut.cells[i]) // self.domains.windows
            if domain in self.team.here:
                inside, length, place = self.cut.pieces(i)
                copy_pieces(self.pieces, place, self.window(domain, k), inside, length)
