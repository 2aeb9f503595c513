"""What a collective write costs each of many ranks, found by planning it for one rank after another; no data are moved.

Knows: extents of ranks, the planning code of a write, how often ranks talk in it. Does not know: variables, costs in
seconds.

    planned(nodes, extents_of)      rounds, messages and bytes of every rank, bytes that come to every window

What a rank sends and where follows from the code that plans a real write: `Domains`, `rounds_of_cells`, `sizes_of`,
`aggregators`, `Team`. How many calls a write consists of is stated here a second time (`_Ledger`); a test compares the
sums with the counters of ranks that really write (`Comm.traffic`). One rank's extents are in memory at a time, so that
the plan of 21,600 ranks with 180,000 extents each needs one machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pnc_vol.exchange.domains import Cut, Domains, rounds_of_cells
from pnc_vol.exchange.holes import Granules, worth_finding
from pnc_vol.exchange.node_parcels import allowed_here, excess_of
from pnc_vol.exchange.parcels import LARGEST, parcels_of, sizes_of
from pnc_vol.exchange.team import Team
from pnc_vol.exchange.two_phase import TwoPhase
from pnc_vol.extents.model import Extents, Int64
from pnc_vol.flush.agree import Agreement, transport_code
from pnc_vol.flush.transport import Transport
from pnc_vol.ranks import mpi_comm
from pnc_vol.ranks.comm import Comm
from pnc_vol.ranks.places import Nodes
from pnc_vol.settings.options import Options

__all__ = ["Bounds", "Planned", "blocks", "planned", "way_of"]

_PAGE = 4096

ExtentsOf = Callable[[int], Extents]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What all ranks together write.

    low, high : int, bytes of the file; `high` is beyond the last.
    nbytes, pieces : int, of all ranks.
    """

    low: int
    high: int
    nbytes: int
    pieces: int

    @property
    def found_out(self) -> bool:
        """Whether ranks find out what is open; no two ranks write the same."""
        return self.nbytes < self.high - self.low and worth_finding(self.nbytes, self.pieces)

    @classmethod
    def of(cls, size: int, extents_of: ExtentsOf) -> Bounds:
        """From the extents of all ranks."""
        low, high, nbytes, pieces = 1 << 62, 0, 0, 0
        for rank in range(size):
            offset, length, _ = extents_of(rank)
            if len(offset):
                low, high = min(low, int(offset[0])), max(high, int(offset[-1] + length[-1]))
                nbytes, pieces = nbytes + int(length.sum()), pieces + len(offset)
        return cls(low, high, nbytes, pieces)


@dataclass(frozen=True, slots=True)
class Planned:
    """A collective write of many ranks.

    bounds : Bounds
    domains : Domains
    aggregators : list of int, ranks.
    reductions : int, of each rank; the first write has some more, for communicators and shared memory.
    waits, messages, bytes_sent : int64[ranks], as `Comm.traffic` counts them: rounds, messages, bytes_sent.
    between_nodes : int64[nodes, rounds], messages that a node sends to others; 0 of nodes that were left out.
    out : int64[nodes, rounds], bytes of these.
    into : int64[domains, rounds], bytes that come to a window from other nodes.
    own_memory : int64[ranks], bytes that a rank has for its part of the plan and for tables.
    node_memory : int64[nodes], bytes that the ranks of a node share, for windows and parcels.
    windows : int64[domains], those that an aggregator reads and writes.
    parcels : int64[ranks], parcels that a rank makes for other nodes.
    parcels_into : int64[domains, rounds], parcels that come to a window.
    """

    bounds: Bounds
    domains: Domains
    aggregators: list[int]
    reductions: int
    waits: Int64
    messages: Int64
    bytes_sent: Int64
    between_nodes: Int64
    out: Int64
    into: Int64
    own_memory: Int64
    node_memory: Int64
    windows: Int64
    parcels: Int64
    parcels_into: Int64

    @property
    def rounds(self) -> int:
        """The rounds of the write."""
        return int(self.out.shape[1])


def blocks(size: int, nodes: int, cores: int = 64) -> Nodes:
    """Ranks in blocks on the nodes, as a launcher deals them out."""
    starts = tuple(-(-node * size // nodes) for node in range(nodes))
    return Nodes(starts, (cores,) * nodes, starts, tuple(range(nodes)), size)


def planned(
    nodes: Nodes,
    extents_of: ExtentsOf,
    *,
    hints: Mapping[str, str] | None = None,
    bounds: Bounds | None = None,
    block: int = 4096,
    every: int = 1,
) -> Planned:
    """Plan a collective write of ranks on several nodes.

    Parameters
    ----------
    nodes : Nodes
    extents_of : function of a rank
        What it writes, sorted and disjoint.
    hints : mapping, those of `Wanted`.
    bounds : Bounds, optional
        If the caller knows them; otherwise the extents of all ranks are asked for once more.
    block : int, bytes of a block of the file system.
    every : int
        Plan every so many-th node only, and take the others to be alike.

    Examples
    --------
    >>> from pnc_vol.extents.model import Extents
    >>> def one(rank):
    ...     offset = np.arange(rank, 1 << 16, 8) * 64
    ...     return Extents(offset, np.full_like(offset, 64), np.arange(len(offset)) * 64)
    >>> found = planned(blocks(8, 2), one)
    >>> found.rounds, found.messages.tolist()
    (1, [22, 19, 22, 19, 22, 19, 22, 19])
    """
    bounds = bounds or Bounds.of(nodes.size, extents_of)
    of = TwoPhase(_Rank(0, nodes), nodes, hints or {})
    owners = of.owners(of.wanted)
    chosen = range(0, len(nodes.lowest), every)
    ranks_of = {node: nodes.ranks(node) for node in chosen}
    writers = sorted({*owners, *nodes.lowest}) if len(nodes.lowest) > 1 else []
    teams = {rank: Team.of(_Rank(rank, nodes), nodes, owners, apart=False) for rank in writers}
    sending = {rank: team for rank, team in teams.items() if len(team.room)}
    ledger = _Ledger(nodes, len(sending))
    smaller = 1
    while True:
        domains = of.domains(of.wanted, bounds.low, bounds.high, block, bounds.pieces / bounds.nbytes, smaller)
        touched = _touched(domains, [rank for ranks in ranks_of.values() for rank in ranks], extents_of)
        rounds, turn = rounds_of_cells(touched)
        plan = _Nodes(domains, rounds, turn.reshape(-1), nodes)
        for node, ranks in ranks_of.items():
            here = [i for i, rank in enumerate(owners) if nodes.of(rank) == node]
            senders = [sending[rank] for rank in ranks if rank in sending]
            plan.add(node, ranks, here, senders, extents_of, 2 * of.wanted.buffer_size)
        ledger.look(domains, rounds, holes=bounds.found_out)
        if plan.excess <= 1 or domains.window <= _PAGE:
            break
        smaller *= plan.excess
    if every > 1:
        plan.copy_to_others(chosen)
    plan.own_memory += 16 * Granules.count(domains) if bounds.found_out else 0
    ledger.write(domains, rounds, plan)
    most_here = int(np.bincount([nodes.of(rank) for rank in owners]).max())
    return Planned(
        bounds, domains, owners, ledger.reductions, ledger.waits, ledger.messages, ledger.bytes_sent,
        plan.between, plan.out, plan.into, plan.own_memory,
        np.full(len(nodes.lowest), 2 * most_here * domains.window + 2 * plan.half), touched.sum(axis=1),
        plan.parcels, plan.parcels_into,
    )  # fmt: skip


def way_of(nodes: Nodes, runs: int, nbytes: int, options: Options | None = None) -> str:
    """How a flush writes, with so many runs and bytes on the rank that has most: see `Transport.choose`."""
    options = options or Options()
    transport = Transport(_Rank(0, nodes), options, collective=False)
    agreed = Agreement(
        drained=False, widened=False, changed=False, unknown_bytes=False, lost=False, records=0, batches=1,
        runs=runs, nbytes=nbytes, rounds=1, transport=transport_code(options),
    )  # fmt: skip
    return transport.choose(agreed)


def _touched(domains: Domains, ranks: list[int], extents_of: ExtentsOf) -> Any:
    """bool[domains, windows], whether any rank has something for it."""
    found = np.zeros(domains.cells, bool)
    if domains.windows == 1:
        found[:] = True
    there = np.array([domains.part(cell).nbytes > 0 for cell in range(domains.cells)])
    for rank in ranks:
        # With maps that are scattered a few ranks touch all there are.
        if np.array_equal(found, there):
            break
        found[domains.cut(extents_of(rank)).cells] = True
    return found.reshape(domains.count, domains.windows)


class _Rank(Comm):
    """One of many ranks that asks nobody."""

    def __init__(self, rank: int, nodes: Nodes) -> None:
        super().__init__()
        self.rank, self.size, self._nodes = rank, nodes.size, nodes

    def nodes(self) -> Nodes:
        return self._nodes

    def levels(self, node: int | None, *, writes: bool) -> Any:
        return None

    def group(self, number: int) -> Comm:
        return self


class _Ledger:
    """Calls of a write after the first one, for each rank: `TwoPhase.write`, call by call."""

    def __init__(self, nodes: Nodes, writers: int) -> None:
        self.reductions = 0
        self.waits, self.messages, self.bytes_sent = np.zeros((3, nodes.size), np.int64)
        self._size, self._several = nodes.size, len(nodes.lowest) > 1
        lengths = np.diff([*nodes.starts, nodes.size])
        counts = np.bincount(nodes.nodes, lengths).astype(np.int64)
        self._mates = np.repeat(counts[list(nodes.nodes)], lengths)
        self._to_mates = np.array([(n - 1).bit_length() for n in range(int(counts.max()) + 1)])[self._mates]
        self._to_writers = (writers - 1).bit_length() if writers else 0
        self._reduce(sums=True)  # bounds

    def look(self, domains: Domains, rounds: int, *, holes: bool) -> None:
        """The ranks find out the rounds, and what memory the nodes need."""
        if domains.windows > 1:
            self._reduce()
            self._all(-(-domains.cells // 8))
        self._reduce()
        if holes:
            self._all(8 * Granules.count(domains))
        if self._several:
            self._table(8 * (1 + domains.count + rounds))
            self._all(8)

    def write(self, domains: Domains, rounds: int, plan: _Nodes) -> None:
        """The rounds, and how it went."""
        if self._several:
            for _ in range(rounds):
                self._table(8 * (1 + domains.count))
            if rounds > 1:
                self.waits += 1
                self.messages += self._to_mates
            self.waits += rounds * plan.writes
            self.messages += rounds * self._to_writers * plan.writes + plan.sent
            self.bytes_sent += plan.sent_bytes
        else:
            self.waits += rounds + 1
            self.messages += (rounds + 1) * self._to_mates
        self._reduce()

    def _all(self, nbytes: int) -> None:
        steps = (self._size - 1).bit_length()
        self.waits += 1
        self.messages += steps
        self.bytes_sent += steps * nbytes

    def _reduce(self, *, sums: bool = False) -> None:
        self.reductions += 1
        self._all(mpi_comm._VECTOR.size)
        if sums:
            self.reductions += 1
            self._all(mpi_comm._TOTAL.size)

    def _table(self, row: int) -> None:
        self.waits += 1
        self.messages += self._to_mates
        self.bytes_sent += self._to_mates * ((self._mates - 1) * row // np.maximum(1, self._to_mates))


class _Nodes:
    """What the nodes send, added up node by node."""

    def __init__(self, domains: Domains, rounds: int, turn: Any, nodes: Nodes) -> None:
        self.domains, self.rounds, self.turn = domains, rounds, turn
        self.writes, self.sent, self.sent_bytes = np.zeros((3, nodes.size), np.int64)
        self.excess = 0
        self.between, self.out = np.zeros((2, len(nodes.lowest), rounds), np.int64)
        self.into, self.parcels_into = np.zeros((2, domains.count, rounds), np.int64)
        self.parcels = np.zeros(nodes.size, np.int64)
        self.own_memory = np.zeros(nodes.size, np.int64)
        self.half = 0
        self._nodes = nodes

    def add(
        self, node: int, ranks: list[int], here: list[int], senders: list[Team], extents_of: ExtentsOf, each: int
    ) -> None:
        """Plan the ranks of one node; an aggregator may have memory of `each` bytes."""
        domains = self.domains
        sizes = np.zeros((self.rounds, domains.count), np.int64)
        cuts: list[Cut] = []
        tables = 3 * 8 * len(ranks) * (1 + domains.count) + 8 * len(ranks) * self.rounds
        for rank in ranks:
            cut = domains.cut(extents_of(rank))
            domain = cut.cells // domains.windows
            afar = np.isin(domain, here, invert=True)
            turn, domain = self.turn[cut.cells[afar]], domain[afar]
            sizes[turn, domain] += sizes_of(*cut.every_piece())[afar, 0]
            self.parcels_into[domain, turn] += 1
            self.parcels[rank] = len(domain)
            cuts.append(cut)
            kept = sum(column.nbytes for column in (*cut.extents, cut.cells, cut.first, cut.last, cut.begin, cut.size))
            self.own_memory[rank] = kept + 9 * domains.cells + (tables if senders else 0)
        for team in senders:
            rank = int(team.owners[team.own_domain]) if team.own_domain >= 0 else ranks[0]
            self.writes[rank] = 1
            self.own_memory[rank] += LARGEST
            for k in range(self.rounds):
                sent = sizes[k, team.sends]
                number = int(np.count_nonzero(sent))
                for domain in np.array(team.sends)[sent > LARGEST].tolist():
                    number += self._messages(domain, k, cuts) - 1
                self.sent[rank] += number
                self.sent_bytes[rank] += int(sent.sum())
                self.between[node, k] += number
        self.out[node] = sizes.sum(axis=1)
        self.into += sizes.T
        need = int(sizes.sum(axis=1).max(initial=0))
        self.half = max(self.half, need)
        self.excess = max(self.excess, excess_of(need, allowed_here(len(here), each, domains.window)))

    def _messages(self, domain: int, k: int, cuts: list[Cut]) -> int:
        """Messages to one domain in one round, as parcels fit into them."""
        number, filled = 0, LARGEST
        for cut in cuts:
            for i in np.flatnonzero((cut.cells // self.domains.windows == domain) & (self.turn[cut.cells] == k)):
                for parcel in parcels_of(*cut.pieces(int(i))):
                    if filled + parcel.nbytes > LARGEST:
                        number, filled = number + 1, 0
                    filled += parcel.nbytes
        return number

    def copy_to_others(self, chosen: range) -> None:
        """Let the other nodes send what those send that were planned before them."""
        nodes = self._nodes
        every = chosen.step
        for of_all in (self.into, self.parcels_into):
            of_all *= len(nodes.lowest)
            of_all //= len(chosen)
        for node in range(len(nodes.lowest)):
            if node % every:
                like = node - node % every
                self.between[node], self.out[node] = self.between[like], self.out[like]
                theirs, its = nodes.ranks(like), nodes.ranks(node)
                # A node may have a rank more than another.
                theirs = (theirs + theirs[-1:])[: len(its)]
                for column in (self.writes, self.sent, self.sent_bytes, self.own_memory, self.parcels):
                    column[its] = column[theirs]
