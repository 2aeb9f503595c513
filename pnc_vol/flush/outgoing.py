"""What ranks of one node have for aggregators of other nodes: put together in the node, sent, and received.

Knows: parcels, the memory of a node, two levels of ranks. Does not know: drivers, files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from pnc_vol.extents.model import Int64, before
from pnc_vol.flush.domains import Cut, Domains
from pnc_vol.flush.parcels import LARGEST, Parcel, bytes_of, parcels_of, put, sizes_in, take
from pnc_vol.flush.team import Guard, Team

__all__ = ["PIECES", "Announced", "Outgoing"]

Bytes = npt.NDArray[np.uint8]

_NONE = np.empty(0, np.int64)

PIECES = "flush pieces"
"""What the exchange of pieces is called."""


class Announced:
    """What one rank has for aggregators of other nodes, in bytes; the parcels themselves are made when they are sent.

    Parameters
    ----------
    domains : Domains
    cut : Cut, what the rank has.
    turns : mapping of round to the numbers of its cells in `cut`
    here : list of int, domains of the rank's own node.
    """

    __slots__ = ("_cut", "_domain", "_sizes", "_turns")

    def __init__(self, domains: Domains, cut: Cut, turns: Mapping[int, list[int]], here: list[int]) -> None:
        self._cut = cut
        self._domain = cut.cells // domains.windows
        self._sizes = bytes_of(*cut.every_piece())
        afar = np.isin(self._domain, here, invert=True)
        self._turns = {turn: np.array(numbers)[afar[numbers]] for turn, numbers in turns.items()}

    def tell(self, k: int, row: Int64) -> None:
        """Put the bytes for each domain in round `k` into `row`, which is 0."""
        numbers = self._turns.get(k, _NONE)
        row[self._domain[numbers]] = self._sizes[numbers]

    def parcels(self, k: int) -> Iterator[tuple[int, list[Parcel]]]:
        """The parcels of round `k` for each domain."""
        for i in self._turns.get(k, _NONE).tolist():
            yield int(self._domain[i]), parcels_of(*self._cut.pieces(i))


class Outgoing:
    """What ranks of one node send in one write.

    The table of a round has a row for each rank of the node: whether it failed, and the bytes of its parcels for each
    domain. Parcels lie by domain, then by rank.

    Parameters
    ----------
    team : Team
    domains : Domains
    cut : Cut, what this rank has.
    turns : mapping of round to the numbers of its cells in `cut`
    memory : uint8[...], where the pieces are.
    guard : Guard
    rounds : int

    Raises
    ------
    MemoryError
    """

    def __init__(
        self,
        team: Team,
        domains: Domains,
        cut: Cut,
        turns: Mapping[int, list[int]],
        memory: Bytes,
        guard: Guard,
        rounds: int,
    ) -> None:
        self.team = team
        self.levels = team.levels
        self.domains = domains
        self.memory = memory
        self.guard = guard
        self._mine = Announced(domains, cut, turns, team.here)
        # All that is exchanged has its memory before the first message: a rank without memory would not come.
        columns = 1 + domains.count
        self._row: Int64 = np.zeros(columns, np.int64)
        self._tables: Int64 = np.zeros((2, self.levels.size, columns), np.int64)
        self._first: Int64 = np.zeros(columns + rounds, np.int64)
        self._firsts: Int64 = np.zeros((self.levels.size, columns + rounds), np.int64)
        self._need: Int64 = np.zeros(1, np.int64)
        self._most: Int64 = np.zeros(1, np.int64)
        for turn in turns:
            self._mine.tell(turn, self._row[1:])
            self._first[columns + turn] = self._row.sum()
            self._row[:] = 0
        self._tell(0, self._first)
        self._table: Int64 = self._firsts[:, :columns]
        self._half = 0
        self._parcels: Bytes = np.empty(0, np.uint8)

    def _tell(self, k: int, row: Int64) -> None:
        """Put this rank's row of the table of round `k` into the beginning of an array."""
        row[: 1 + self.domains.count] = 0
        row[0] = self.guard.failed
        if not self.guard.failed:
            self._mine.tell(k, row[1 : 1 + self.domains.count])

    def prepare(self, shared: Callable[[int], Bytes | None]) -> bool:
        """Agree on the first round, and on the memory for the parcels of all (collective); False: there is none.

        shared : function of bytes
            Memory that the ranks of this node share; on all ranks or none (collective).
        """
        self.levels.table(PIECES, self._first, self._firsts)
        self.guard.attempt(self._add_up)
        self.levels.largest(PIECES, self._need, self._most)
        self._half = -(-int(self._most[0]) // 8) * 8
        found = shared(2 * self._half)
        # Memory that had to be made was agreed on in a call of its own.
        self.levels.begin(PIECES)
        if found is not None:
            self._parcels = found
        return found is not None

    def _add_up(self) -> None:
        self._need[0] = self._firsts[:, len(self._row) :].sum(axis=0).max()

    def fill(self, k: int) -> None:
        """Put this rank's parcels of a round into the memory of its node."""
        sizes = self._table[:, 1:]
        where = before(sizes.sum(axis=0)) + sizes[: self.levels.rank].sum(axis=0)
        memory = self._memory(k)
        for domain, parcels in self._mine.parcels(k):
            at = int(where[domain])
            for parcel in parcels:
                put(parcel, self.memory, memory[at : at + parcel.nbytes])
                at += parcel.nbytes

    def _memory(self, k: int) -> Bytes:
        return self._parcels[k % 2 * self._half : (k % 2 + 1) * self._half]

    def exchange(self, k: int, window: Bytes | None) -> None:
        """Send what the node has for round `k`, take what comes for this rank's window, and agree on the next round."""
        coming = self._tables[k % 2]
        self._tell(k + 1, self._row)
        self.levels.table(PIECES, self._row, coming)
        if self.levels.writers is not None:
            messages: list[tuple[int, Bytes]] = []
            # What a rank that failed had announced is not there.
            self.guard.attempt(lambda: messages.extend(() if coming[:, 0].any() else self._messages(k)))
            room = self.team.room

            def got(message: Bytes) -> None:
                self.guard.attempt(lambda: take(message, room if window is None else window))

            self.levels.deliver(PIECES, messages, got, room)
        self._table = coming

    def _messages(self, k: int) -> list[tuple[int, Bytes]]:
        """Ranks, and the parcels for them, in messages of `LARGEST` bytes at most."""
        team, memory = self.team, self._memory(k)
        sizes = self._table[:, 1:].sum(axis=0)
        where = before(sizes)
        found: list[tuple[int, Bytes]] = []
        for domain in team.sends:
            first = last = int(where[domain])
            end = first + int(sizes[domain])
            for nbytes in sizes_in(memory[first:end]) if end - first > LARGEST else (end - first,):
                if last + nbytes - first > LARGEST:
                    found.append((team.owners[domain], memory[first:last]))
                    first = last
                last += nbytes
            if last > first:
                found.append((team.owners[domain], memory[first:last]))
        return found
