"""What the ranks of a set tell each other of maps: proposals for variables that have none, and lists of runs.

Knows: numbers of variables, runs, a communicator. Does not know: datasets, batches, headers, files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.extents.model import Runs
from pnc_vol.ranks.comm import Comm

__all__ = ["Proposal", "Told", "packed_lists", "unpacked_lists"]


class Proposal(NamedTuple):
    """What ranks say of their parts of a variable that has no map yet; many variables have the same.

    word : int, tells one deal of the elements to the ranks from another: a sum of 128 bits of a hash for each rank.
    posted : int, ranks that posted any.
    whole : bool, each of these posted the whole variable in one run.
    explicit : bool, a rank's are those of a decomposition.
    beyond : bool, a rank posted others, too.
    """

    word: int
    posted: int
    whole: bool
    explicit: bool
    beyond: bool

    @classmethod
    def of(cls, rank: int, digest: str, nelems: int, *, whole: bool, explicit: bool, beyond: bool) -> Proposal:
        """What one rank says.

        digest : str, of its runs.
        nelems : int, elements of these.
        """
        word = hashlib.blake2b(f"{rank} {digest}".encode(), digest_size=16).digest()
        return cls(int.from_bytes(word, "little"), int(nelems > 0), whole or not nelems, explicit, beyond)

    def and_of(self, other: Proposal) -> Proposal:
        """What these ranks say, and others."""
        return Proposal(
            (self.word + other.word) % (1 << 128), self.posted + other.posted, self.whole and other.whole,
            self.explicit or other.explicit, self.beyond or other.beyond,
        )  # fmt: skip


_NOTHING = Proposal(0, 0, whole=True, explicit=False, beyond=False)
"""Of ranks that say nothing of a variable."""


class Told:
    """What ranks tell at a flush; variables by their number in the header.

    kinds : list of Proposal
    maps : dict of int to int, the proposal for each variable that may get a map.
    supplements : set of int
    copies : dict of int to (int, int)
    overlaps : bool, several ranks tell of copies of one variable.
    afar, pieces : see `Agreed`.
    beyond : bool, a rank posted elements that are not its own.
    """

    def __init__(self) -> None:
        self.kinds: list[Proposal] = []
        self.maps: dict[int, int] = {}
        self.supplements: set[int] = set()
        self.copies: dict[int, tuple[int, int]] = {}
        self.overlaps = self.afar = self.beyond = False
        self.pieces = 0
        self._numbers: dict[Proposal, int] = {}

    def propose(self, number: int, proposal: Proposal) -> None:
        kind = self._numbers.setdefault(proposal, len(self.kinds))
        if kind == len(self.kinds):
            self.kinds.append(proposal)
        self.maps[number] = kind

    def of_all(self, comm: Comm) -> Told:
        """What all ranks tell together: one reduction, and a merge in a tree if they have more than numbers to tell."""
        if comm.size == 1:
            return self
        more = bool(self.maps or self.supplements or self.copies)
        (any_more, afar, beyond, pieces), _ = comm.reduce("flush maps", (more, self.afar, self.beyond, self.pieces))
        found = self
        if any_more:
            mine = self._packed(comm.rank) if more else b""
            found = Told._unpacked(comm.combine("flush maps told", mine, _joined))
        found.afar, found.beyond, found.pieces = bool(afar), bool(beyond), pieces
        return found

    def _packed(self, rank: int) -> bytes:
        """As bytes, which are never those of another rank: what two ranks tell alike counts twice."""
        maps, copies = [*self.maps, *self.maps.values()], list(self.copies.items())
        words = [rank, self.kinds, maps, sorted(self.supplements), copies, self.overlaps]
        return json.dumps(words, separators=(",", ":")).encode()

    @classmethod
    def _unpacked(cls, packed: bytes) -> Told:
        told = cls()
        _, kinds, maps, supplements, copies, told.overlaps = json.loads(packed)
        half = len(maps) // 2
        told.kinds, told.maps = [Proposal(*kind) for kind in kinds], dict(zip(maps[:half], maps[half:], strict=True))
        told.supplements, told.copies = set(supplements), {i: (first, last) for i, (first, last) in copies}
        return told

    def add(self, other: Told) -> None:
        """What other ranks tell, too."""
        mine, theirs = self.maps, other.maps
        kinds = [*self.kinds, _NOTHING], [*other.kinds, _NOTHING]
        both = {i: (mine.get(i, -1), theirs.get(i, -1)) for i in (*mine, *(i for i in theirs if i not in mine))}
        merged = {pair: kinds[0][pair[0]].and_of(kinds[1][pair[1]]) for pair in set(both.values())}
        self.kinds, self.maps, self._numbers = [], {}, {}
        for i, pair in both.items():
            self.propose(i, merged[pair])
        self.supplements |= other.supplements
        self.overlaps |= other.overlaps or not self.copies.keys().isdisjoint(other.copies)
        for i, (first, last) in other.copies.items():
            low, high = self.copies.get(i, (first, last))
            self.copies[i] = min(low, first), max(high, last)


def _joined(lower: bytes, higher: bytes) -> bytes:
    one = Told._unpacked(lower)
    one.add(Told._unpacked(higher))
    return one._packed(-1)


def packed_lists(lists: Sequence[Runs]) -> npt.NDArray[np.uint8]:
    """How long the lists are, and then their columns, one after another."""
    columns = [column for one in lists for column in one]
    lengths = np.array([len(one.start) for one in lists], np.int64)
    return np.concatenate((lengths, *columns)).astype("<i8", copy=False).view(np.uint8)


def unpacked_lists(packed: Any, n: int) -> list[Runs]:
    numbers = np.frombuffer(packed, "<i8").astype(np.int64)
    ends = n + np.cumsum(np.repeat(numbers[:n], 2))
    columns = np.split(numbers[n:], ends[:-1] - n)
    return [Runs(*columns[i : i + 2]) for i in range(0, 2 * n, 2)]
