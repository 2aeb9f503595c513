"""Ranks of one node put together what they give to, or want of, aggregators of other nodes, round by round.

Knows: parcels, the memory of a node, two levels of ranks. Does not know: drivers, files.

Rules
-----
1. All that is exchanged has its memory before the first message: a rank without memory would not come.
2. The memory of a node for parcels, with that of its windows, stays within two buffers of each of its ranks that send
   for others; if some node would need more, all ranks take smaller windows.
3. The parcels of a node, or its requests, are not merged into one list: that takes a sort of all pieces on one rank,
   and saves little of what is sent. What several ranks of a node want to read is sent to each of them; large pieces,
   which they share more often, each rank reads by itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.vectored_io import copy_pieces
from pnc_vol.exchange.domains import Cut, Domains
from pnc_vol.exchange.parcels import (
    LARGEST,
    Parcel,
    answer,
    answer_size,
    parcels_of,
    put,
    request,
    sizes_in,
    sizes_of,
    take,
)
from pnc_vol.exchange.team import Guard, Team
from pnc_vol.extents.model import Int64, before
from pnc_vol.ranks.levels import Levels, Message

__all__ = ["PIECES", "Announced", "Incoming", "NodeParcels", "Outgoing", "allowed_here", "excess_of"]

Bytes = npt.NDArray[np.uint8]

_NONE = np.empty(0, np.int64)

PIECES = "flush pieces"
"""What the exchange of pieces is called."""
_EXCESS = 1 << 48
"""So many times is the excess in the number that ranks compare: it counts for more than any need."""


def allowed_here(aggregators: int, each: int, window: int) -> int:
    """Return the number of bytes that a node may have for parcels: what the windows leave of the buffers, and room for
    a message at least.

    aggregators : int, of the node; each : int, bytes that one may have in all; window : int, bytes, two for each.
    """
    return max(max(1, aggregators) * each - 2 * aggregators * window, 2 * LARGEST)


def excess_of(need: int, allowed: int) -> int:
    """Return how many times the allowed memory two rounds of `need` bytes take; up to 1 they fit."""
    return -(-2 * need // allowed)


class Announced:
    """What one rank has for, or wants of, aggregators of other nodes, in bytes; parcels are made when they are used.

    Parameters
    ----------
    domains : Domains
    cut : Cut, what the rank has or wants.
    turns : mapping of round to the numbers of its cells in `cut`
    here : list of int, domains of the rank's own node.
    columns : list of int, which of `sizes_of` count.
    """

    __slots__ = ("_cut", "_domain", "_sizes", "_turns")

    def __init__(
        self, domains: Domains, cut: Cut, turns: Mapping[int, list[int]], here: list[int], columns: list[int]
    ) -> None:
        self._cut = cut
        self._domain = cut.cells // domains.windows
        self._sizes = sizes_of(*cut.every_piece())[:, columns]
        remote = np.isin(self._domain, here, invert=True)
        self._turns = {turn: np.array(numbers)[remote[numbers]] for turn, numbers in turns.items()}

    def tell(self, k: int, row: Int64) -> None:
        """Put the bytes for each domain in round `k` into `row`, which is 0; those of its parts one behind another."""
        numbers = self._turns.get(k, _NONE)
        row.reshape(-1, self._sizes.shape[1])[self._domain[numbers]] = self._sizes[numbers]

    def total(self, k: int) -> int:
        """Return the number of bytes of round `k`."""
        return int(self._sizes[self._turns.get(k, _NONE)].sum())

    def parcels(self, k: int) -> Iterator[tuple[int, list[Parcel]]]:
        """Yield the parcels of round `k` for each domain."""
        for i in self._turns.get(k, _NONE).tolist():
            yield int(self._domain[i]), parcels_of(*self._cut.pieces(i))


class NodeParcels(ABC):
    """Parcels of the ranks of one node, in one collective write or read.

    The table of a round has a row for each rank of the node: whether it failed, and for each domain the bytes of its
    parcels, by part (`columns` of `sizes_of`). In memory they lie by domain, then by part, then by rank.

    Parameters
    ----------
    team : Team
    domains : Domains
    cut : Cut, what this rank has or wants.
    turns : mapping of round to the numbers of its cells in `cut`
    memory : uint8[...], where the pieces are, or belong.
    guard : Guard
    rounds : int

    Attributes
    ----------
    excess : int, how many times the memory that a node may have is needed on some node, if it is not enough; known
        after `prepare`.

    Raises
    ------
    MemoryError
    """

    columns: ClassVar[list[int]]

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
        self.domains = domains
        self.memory = memory
        self.guard = guard
        self._announced = Announced(domains, cut, turns, team.here, self.columns)
        columns = 1 + domains.count * len(self.columns)
        self._row: Int64 = np.zeros(columns, np.int64)
        self._tables: Int64 = np.zeros((2, team.levels.size, columns), np.int64)
        self._first: Int64 = np.zeros(columns + rounds, np.int64)
        self._firsts: Int64 = np.zeros((team.levels.size, columns + rounds), np.int64)
        self._need: Int64 = np.zeros((2, 1), np.int64)
        for turn in turns:
            self._first[columns + turn] = self._announced.total(turn)
        self._tell(0, self._first)
        self._table: Int64 = self._firsts[:, :columns]
        self._half = 0
        self._parcels: Bytes = np.empty(0, np.uint8)
        self.excess = 0

    @property
    def levels(self) -> Levels:
        """The communicators of both levels."""
        return self.team.levels

    def _tell(self, k: int, row: Int64) -> None:
        """Put this rank's row of the table of round `k` into the beginning of an array."""
        columns = 1 + self.domains.count * len(self.columns)
        row[:columns] = 0
        self.guard.attempt(lambda: self._announced.tell(k, row[1:columns]))
        row[0] = self.guard.failed

    def prepare(self, allowed: int, shared: Callable[[int], Bytes | None]) -> bool:
        """Agree on the first round, and on the memory for the parcels of all (collective); False: there is none.

        allowed : int, bytes that this node may have for parcels.
        shared : function of bytes
            Memory that the ranks of this node share; on all ranks or none (collective).
        """
        with self.levels.call(PIECES):
            self.levels.table(PIECES, self._first, self._firsts)
            self.guard.attempt(lambda: self._add_up(allowed))
            self.levels.reduce(PIECES, "largest", *self._need)
        self.excess, most = divmod(int(self._need[1, 0]), _EXCESS)
        if self.excess:
            return False
        # The largest need of any node, on all: memory that is kept is then large enough, or too small, on all of them.
        # One half has the parcels of this round, the other one those of the next.
        self._half = -(-most // 8) * 8
        found = shared(2 * self._half)
        if found is not None:
            self._parcels = found
        return found is not None

    def release(self) -> None:
        """Give the memory for the parcels back."""
        # A view of no bytes would keep the shared memory mapped.
        self._parcels = self._parcels[:0].copy()

    def _add_up(self, allowed: int) -> None:
        need = int(self._firsts[:, len(self._row) :].sum(axis=0).max())
        times = excess_of(need, allowed)
        # One number of each node, of which the largest counts: its need, or an excess, which outweighs every need.
        self._need[0] = need if times <= 1 else times * _EXCESS

    def _where(self) -> Int64:
        """Return where this rank's parcels of the round are in the memory, int64[domains, parts]."""
        sizes = self._table[:, 1:]
        where = before(sizes.sum(axis=0)) + sizes[: self.levels.rank].sum(axis=0)
        found: Int64 = where.reshape(-1, len(self.columns))
        return found

    def _regions(self) -> tuple[list[list[int]], list[list[int]]]:
        """Return where the parts of all ranks are, by domain and part, and their bytes."""
        sizes = self._table[:, 1:].sum(axis=0)
        return before(sizes).reshape(-1, len(self.columns)).tolist(), sizes.reshape(-1, len(self.columns)).tolist()

    def _memory(self, k: int) -> Bytes:
        return self._parcels[k % 2 * self._half : (k % 2 + 1) * self._half]

    def _next_table(self, k: int) -> Int64:
        """Let the ranks of the node tell each other what they have in the round after `k`, or that they failed."""
        # Two tables in turn, as that of round `k` is in use until its end.
        coming: Int64 = self._tables[k % 2]
        self._tell(k + 1, self._row)
        self.levels.table(PIECES, self._row, coming)
        return coming

    def fill(self, k: int) -> None:
        """Put this rank's parcels of a round, or the requests for them, into the memory of its node."""
        where, memory = self._where(), self._memory(k)
        for domain, parcels in self._announced.parcels(k):
            at = int(where[domain, 0])
            for parcel in parcels:
                at += self._put(parcel, memory[at:])

    def exchange(self, k: int, window: Bytes | None, meanwhile: Callable[[], None]) -> None:
        """Exchange the parcels of round `k` with other nodes, and agree on the next round.

        window : uint8[...] or None, this rank's.
        meanwhile : callable, is called when all ranks of the node are there, before anything is sent.
        """
        # Exchanging the table shows that all ranks of the node have put their parcels into its memory.
        coming = self._next_table(k)
        meanwhile()
        if self.levels.writers is not None:
            messages: list[Message] = []
            # What a rank that failed had announced is not there.
            self.guard.attempt(lambda: messages.extend(() if coming[:, 0].any() else self._messages(k)))
            self.levels.exchange(PIECES, messages, partial(self._arrived, window), self.team.room)
        self._end(k)
        self._table = coming

    def _messages(self, k: int) -> Iterator[Message]:
        """Yield ranks, what goes to them, and where their answers go; `LARGEST` bytes of both at most."""
        team, memory = self.team, self._memory(k)
        where, sizes = self._regions()
        for domain in team.sends:
            rank, (first, *behind), (nbytes, *answers) = team.owners[domain], where[domain], sizes[domain]
            into, size, last, end = sum(behind), sum(answers), first, first + nbytes
            if nbytes + size > LARGEST:
                size = 0
                for part in sizes_in(memory[first:end]):
                    more = answer_size(memory[last : last + part]) if answers else 0
                    # Cut between parcels; each fits into a message with its answer.
                    if last > first and last + part - first + size + more > LARGEST:
                        yield rank, memory[first:last], memory[into : into + size]
                        first, into, size = last, into + size, 0
                    last, size = last + part, size + more
            if end > first:
                yield rank, memory[first:end], memory[into : into + size]

    @abstractmethod
    def _put(self, parcel: Parcel, into: Bytes) -> int:
        """Write a parcel, or the request for it; return the bytes that it takes."""

    @abstractmethod
    def _arrived(self, window: Bytes | None, message: Bytes) -> Bytes | None:
        """Treat what another node sent; return the answer."""

    @abstractmethod
    def _end(self, k: int) -> None:
        """Do what is left of a round when all messages have come."""


class Outgoing(NodeParcels):
    """What ranks of one node give in a write."""

    columns: ClassVar = [0]

    def _put(self, parcel: Parcel, into: Bytes) -> int:
        put(parcel, self.memory, into[: parcel.nbytes])
        return parcel.nbytes

    def _arrived(self, window: Bytes | None, message: Bytes) -> None:
        self.guard.attempt(lambda: take(message, self.team.room if window is None else window))

    def _end(self, k: int) -> None:
        """All is in the windows."""


class Incoming(NodeParcels):
    """What ranks of one node want in a read: requests, and behind those of a domain room for the answers."""

    columns: ClassVar = [1, 2]

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
        super().__init__(team, domains, cut, turns, memory, guard, rounds)
        self._answer: Bytes = np.empty(LARGEST if team.own_domain >= 0 else 0, np.uint8)

    def _put(self, parcel: Parcel, into: Bytes) -> int:
        request(parcel, into[: parcel.request])
        return parcel.request

    def _arrived(self, window: Bytes | None, message: Bytes) -> Bytes:
        # Whoever asked waits for it, whatever is in it: what fails here is reported to all in the end.
        found = self._answer[: answer_size(message)]
        self.guard.attempt(lambda: answer(message, found if window is None else window, found))
        return found

    def _end(self, k: int) -> None:
        """Put what came for this rank where it belongs."""
        # All answers are there when all ranks of the node have come so far.
        self.levels.meet(PIECES)
        self.guard.attempt(lambda: self._take(k))

    def _take(self, k: int) -> None:
        where, memory = self._where(), self._memory(k)
        for domain, parcels in self._announced.parcels(k):
            at = int(where[domain, 1])
            for parcel in parcels:
                pieces = memory[at : at + parcel.data]
                copy_pieces(self.memory, parcel.place, pieces, before(parcel.length), parcel.length)
                at += parcel.answer
