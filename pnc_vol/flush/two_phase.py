"""Small pieces of many ranks, written by few ranks in few large pieces: put together within a node, then between nodes.

Knows: ranks, extents, a driver. Does not know: requests, variables, which transport is chosen.

The part of the file that any rank writes to is cut into domains, one for each aggregator, and these into windows
(`domains`). In each round an aggregator puts together one window in memory that all ranks of its node see. Ranks of its
node put their pieces there themselves. What a node has for windows of other nodes its ranks put into shared memory
one behind another, as parcels, sorted by window; one rank of the node sends it from there. While a round is sent and
written, the pieces of the next one are put together.

Rules
-----
1. A window begins as what the file holds, so bytes that nobody gave stay. Nobody else writes meanwhile: no window is
   read before all ranks are there, and none goes on before all windows are written. What drivers hold back of them, in
   any rank's cache, is brought to the file before.
2. If a window cannot be read or written, all ranks that gave something get an error; who gave what to it is not known
   there. They then write what is theirs by themselves, and find out.
3. Where the pieces are too far apart for this, all ranks write by themselves.
4. A rank that fails in between takes part in all rounds to the end, with nothing. What is no error of the file, such as
   a lack of memory, is raised on all ranks at the last exchange, and all that was posted stays posted.
5. Ranks that cannot share memory count as nodes of their own.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from pnc_vol.comm import Comm
from pnc_vol.drivers.base import Driver
from pnc_vol.drivers.byte_copy import copy_pieces
from pnc_vol.extents.model import Extents
from pnc_vol.flush.aggregators import Wanted, aggregators
from pnc_vol.flush.domains import Cut, Domains, rounds_of_cells
from pnc_vol.flush.node_shared_memory import shared_memory
from pnc_vol.flush.outgoing import PIECES, Outgoing
from pnc_vol.flush.team import Guard, Team
from pnc_vol.rank_places import Nodes
from pnc_vol.system import REAL

__all__ = ["TwoPhase"]

Bytes = npt.NDArray[np.uint8]

_PAGE = 4096
_LARGEST_UNIT = 64 << 20
_SPARSE = 64
"""How many times the bytes that are given the windows may have, before ranks rather write by themselves."""

_MOST_CELLS = 1 << 20
_BEYOND = 1 << 62
_OF_AN_INDEX = 5
"""Bytes that a piece takes in a parcel besides its data, on average."""

_NONE = np.empty(0, np.int64)
_NOTHING = Cut(Extents(_NONE, _NONE, _NONE), _NONE, _NONE, _NONE, _NONE, _NONE)

# Made here, not in a constructor: what one rank alone has no memory for there would leave the others waiting.
_UNTOUCHED = np.empty((0, 0), bool)
_NO_BITS = np.empty(0, np.uint8)


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
    """

    driver: Driver

    def __init__(self, comm: Comm, nodes: Nodes, hints: Mapping[str, str], per_node: int = 0) -> None:
        self.comm = comm
        self.nodes = nodes
        self.wanted = Wanted.by(hints, per_node)
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
        with self.comm.errors_shared():
            work = self._agreed(extents, memory)
            if work is None:
                return
            if work.rounds:
                work.run()
            else:
                work.guard.attempt(lambda: self.driver.write(extents, memory))
            failure = work.end()
        if failure is not None:
            raise failure

    def _agreed(self, extents: Extents, memory: Bytes) -> _Write | None:
        """What all ranks are about to write; None: nothing. Without rounds each writes by itself."""
        n = len(extents.offset)
        low, high = (int(extents.offset[0]), int(extents.offset[-1] + extents.length[-1])) if n else (_BEYOND, 0)
        most = [~low, high, *self.wanted, self._block()]
        (beyond, high, *asked, block), (nbytes, pieces) = self.comm.reduce("flush bounds", most, [extents.nbytes, n])
        low = ~beyond
        if not nbytes:
            return None
        wanted = Wanted(*asked)
        while True:
            domains = self.domains(wanted, low, high, block, pieces / nbytes)
            work = self._looked(_Write(self, self._team(wanted), domains, extents, memory), nbytes)
            if not work.rounds or self._shared_windows(work):
                return work
            # From now on as if each rank had a node of its own.
            self._apart = True

    def _looked(self, work: _Write, nbytes: int) -> _Write:
        """Let a write find out its rounds (collective); what fails on one rank is raised on all before any of them."""
        if work.domains.cells > _MOST_CELLS:
            # 0 rounds
            return work
        work.guard.attempt(work.prepare)
        if work.domains.windows > 1:
            self.comm.agree("flush windows", error=work.guard.lack)
            work.touch()
        work.guard.attempt(lambda: work.plan(nbytes))
        self.comm.agree("flush rounds", error=work.guard.lack)
        work.drain()
        return work

    def _block(self) -> int:
        """What the file system says of its blocks, on rank 0."""
        if self.comm.rank or self.driver.path is None:
            return 0
        try:
            return int(REAL.stat(self.driver.path).st_blksize)
        except OSError:
            return 0

    def domains(self, wanted: Wanted, low: int, high: int, block: int, density: float) -> Domains:
        """The domains of a write, from agreed numbers alone."""
        unit = wanted.unit or block
        unit = unit if _PAGE <= unit <= _LARGEST_UNIT else _PAGE
        window = wanted.buffer_size // 2
        if self._apart or not self.nodes.single:
            # Of two buffers, three eighths each are two windows and two rounds of parcels, with their lists of pieces.
            window = int(window * 3 / 4 / (1 + _OF_AN_INDEX * density))
        window = max(_PAGE, window // _PAGE * _PAGE)
        cyclic = wanted.stripes > 1 and wanted.unit > 0
        return Domains.over(low, high, len(self.owners(wanted)), buffer=window, unit=unit, cyclic=cyclic)

    def owners(self, wanted: Wanted) -> list[int]:
        if wanted not in self._aggregators:
            self._aggregators[wanted] = aggregators(self.nodes, wanted)
        return self._aggregators[wanted]

    def _team(self, wanted: Wanted) -> Team:
        """Who does what (collective when it is asked first)."""
        if (wanted, self._apart) not in self._teams:
            self._teams[wanted, self._apart] = Team.of(self.comm, self.nodes, self.owners(wanted), apart=self._apart)
        return self._teams[wanted, self._apart]

    def _shared_windows(self, work: _Write) -> bool:
        """Give a write the memory of its windows (collective); whether there is some."""
        self._windows = self._shared(work.team, self._windows, 2 * work.team.most_here * work.domains.window)
        if self._windows is not None:
            work.windows = self._windows
        return self._windows is not None

    def parcel_memory(self, team: Team, nbytes: int) -> Bytes | None:
        """Where parcels are put together (collective); None: there is no such memory."""
        self._parcels = self._shared(team, self._parcels, nbytes)
        return self._parcels

    def _shared(self, team: Team, kept: Bytes | None, nbytes: int) -> Bytes | None:
        """Memory that all ranks of a node see, of this size at least on all nodes (collective); None: there is none."""
        if kept is not None and kept.nbytes >= nbytes:
            return kept
        found: Bytes | None = None
        lack: Exception | None = None
        try:
            found = np.empty(nbytes, np.uint8) if team.node is None else shared_memory(team.node, nbytes)
        except Exception as error:
            lack = error
        missing = self.comm.reduce("flush memory", [found is None], error=lack)[0][0]
        return None if missing else found

    def close(self) -> None:
        """Give the memory back."""
        self._windows = self._parcels = None
        for team in self._teams.values():
            team.free()
        self._teams.clear()


class _Write:
    """One collective write.

    rounds : int, the same on all ranks; 0: each rank writes by itself.
    """

    windows: Bytes

    def __init__(self, of: TwoPhase, team: Team, domains: Domains, extents: Extents, memory: Bytes) -> None:
        self.of = of
        self.team = team
        self.domains = domains
        self.extents = extents
        self.memory = memory
        self.guard = Guard()
        self.rounds = 0
        self.cut = _NOTHING
        self.turns: dict[int, list[int]] = {}
        """For each round the numbers of this rank's cells in `cut`."""
        self.touched: npt.NDArray[np.bool_] = _UNTOUCHED
        self.cells: list[int] = []
        """Those of this rank's domain that any rank has something for."""
        self.bits = self.any_bits = _NO_BITS
        self.afar: Outgoing | None = None

    # --------------------------------------------------------------------------------------------- agreeing

    def prepare(self) -> None:
        """Cut this rank's extents, and note what windows they touch."""
        domains = self.domains
        self.cut = domains.cut(self.extents)
        if domains.windows > 1:
            mine = np.zeros(domains.cells, bool)
            mine[self.cut.cells] = True
            self.bits = np.packbits(mine)
            self.any_bits = np.empty_like(self.bits)

    def touch(self) -> None:
        """Learn what windows any rank touches (collective); nothing here takes memory."""
        levels = self.team.levels
        levels.begin("flush windows")
        levels.any_of("flush windows", self.bits, self.any_bits)
        levels.completed()

    def plan(self, nbytes: int) -> None:
        """Find out in how many rounds all ranks together write `nbytes`, and what of them is this rank's."""
        domains, team = self.domains, self.team
        if domains.windows > 1:
            touched = np.unpackbits(self.any_bits, count=domains.cells).astype(bool)
        else:
            touched = np.ones(domains.cells, bool)
        if min(int(touched.sum()) * domains.window, domains.high - domains.low) > _SPARSE * nbytes:
            return
        self.touched = touched.reshape(domains.count, domains.windows)
        rounds, number = rounds_of_cells(self.touched)
        for i, turn in enumerate(number.reshape(-1)[self.cut.cells].tolist()):
            self.turns.setdefault(turn, []).append(i)
        windows = np.flatnonzero(self.touched[team.mine]) if team.mine >= 0 else _NONE
        self.cells = (team.mine * domains.windows + windows).tolist()
        if team.afar:
            self.afar = Outgoing(team, domains, self.cut, self.turns, self.memory, self.guard, rounds)
        self.rounds = rounds

    def drain(self) -> None:
        """Bring what ranks hold of the windows to the file before a window is read (collective)."""
        if self.rounds and self.of.driver.capabilities.holds_back:
            self.guard.attempt(self._drain)
            self.of.comm.agree("flush stripes", error=self.guard.lack)

    def _drain(self) -> None:
        """Bring what this rank holds to the file if some of it is in a window."""
        held = self.of.driver.unsynced()
        low, high = self.domains.low, self.domains.high
        first = np.maximum(held.offset, low)
        length = np.minimum(held.offset + held.length, high) - first
        kept = length > 0
        cells = self.domains.cut(Extents(first[kept], length[kept], first[kept])).cells
        if self.touched.reshape(-1)[cells].any():
            self.of.driver.drain()

    def end(self) -> OSError | None:
        """Learn how it went everywhere: what this rank, or one that writes for it, failed with (collective)."""
        failure, comm = self.guard.failure, self.of.comm
        number = 0 if failure is None else (comm.size - comm.rank) << 32 | (failure.errno or errno.EIO)
        lowest = comm.reduce("flush written", [number], error=self.guard.lack)[0][0]
        if failure is not None:
            return failure
        if lowest and len(self.extents.offset):
            rank, number = comm.size - (lowest >> 32), lowest & 0xFFFFFFFF
            return OSError(number, f"{os.strerror(number)} (rank {rank}, which writes for others)")
        return None

    # ----------------------------------------------------------------------------------------------- rounds

    def run(self) -> None:
        """Write all windows (collective)."""
        team, of, attempt = self.team, self.of, self.guard.attempt
        levels, afar = team.levels, self.afar
        levels.begin(PIECES)
        self._begin(0)
        if afar is None:
            levels.meet(PIECES)
        elif not afar.prepare(lambda nbytes: of.parcel_memory(team, nbytes)):
            levels.completed()
            attempt(lambda: of.driver.write(self.extents, self.memory))
            return
        for k in range(self.rounds):
            attempt(lambda k=k: self._fill(k))  # type: ignore[misc]
            if afar is not None:
                attempt(lambda k=k: afar.fill(k))  # type: ignore[misc]
            self._begin(k + 1)
            if afar is not None:
                afar.exchange(k, self.window(team.mine, k) if team.mine >= 0 else None)
            else:
                levels.meet(PIECES)
            self._finish(k)
        levels.completed()

    def window(self, domain: int, k: int) -> Bytes:
        """The memory of a window of this node's aggregators."""
        number, size = 2 * self.team.here.index(domain) + k % 2, self.domains.window
        return self.windows[number * size : (number + 1) * size]

    def _begin(self, k: int) -> None:
        """Let this rank's window be what the file holds."""
        if k < len(self.cells):
            part, room = self.domains.part(self.cells[k]), self.window(self.team.mine, k)

            def do() -> None:
                got = self.of.driver.read(part, room)
                if got < part.nbytes:
                    if len(part.offset) > 1:
                        room[:] = 0
                        self.of.driver.read(part, room)
                    else:
                        begin = int(part.place[0])
                        room[begin + got : begin + part.nbytes] = 0

            self.guard.attempt(do)

    def _fill(self, k: int) -> None:
        """Put this rank's pieces for aggregators of its node into their windows."""
        for i in self.turns.get(k, ()):
            domain = int(self.cut.cells[i]) // self.domains.windows
            if domain in self.team.here:
                inside, length, place = self.cut.pieces(i)
                copy_pieces(self.window(domain, k), inside, self.memory, place, length)

    def _finish(self, k: int) -> None:
        """Write this rank's window."""
        if k < len(self.cells):
            part = self.domains.part(self.cells[k])
            self.guard.attempt(lambda: self.of.driver.write(part, self.window(self.team.mine, k)))
