"""What the ranks of a set tell each other of maps: proposals for variables that have none, and lists of runs.

Knows: numbers of variables, runs, a communicator. Does not know: datasets, batches, headers, files.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.comm import Comm
from pnc_vol.extents.model import Runs

__all__ = ["NOTHING", "Proposal", "Told", "packed_lists", "unpacked_lists"]


class Proposal(NamedTuple):
    """What one rank says of its part of a variable that has no map yet; many variables have the same.

    digest : str, of its runs.
    nelems : int, elements of them.
    whole : bool, they are the whole variable in one run.
    explicit : bool, they are those of a decomposition.
    beyond : bool, the rank posted others, too.
    """

    digest: str
    nelems: int
    whole: bool
    explicit: bool
    beyond: bool


NOTHING = Proposal("", 0, whole=False, explicit=False, beyond=False)
"""Of a rank that says nothing of a variable."""


class Told:
    """What a rank tells at a flush; variables by their number in the header.

    kinds : list of Proposal
    maps : dict of int to int, the proposal for each variable that may get a map.
    supplements, copies, afar, pieces : see `Agreed`, of this rank.
    """

    def __init__(self) -> None:
        self.kinds: list[Proposal] = []
        self.maps: dict[int, int] = {}
        self.supplements: list[int] = []
        self.copies: dict[int, tuple[int, int]] = {}
        self.afar = False
        self.pieces = 0
        self._numbers: dict[Proposal, int] = {}

    def propose(self, number: int, proposal: Proposal) -> None:
        kind = self._numbers.setdefault(proposal, len(self.kinds))
        if kind == len(self.kinds):
            self.kinds.append(proposal)
        self.maps[number] = kind

    def exchanged(self, comm: Comm) -> list[Told]:
        if comm.size == 1:
            return [self]
        maps, copies = [*self.maps, *self.maps.values()], list(self.copies.items())
        words = json.dumps([self.kinds, maps, self.supplements, copies, self.afar, self.pieces], separators=(",", ":"))
        found = []
        for one in comm.exchange("flush maps", words.encode()):
            told = Told()
            kinds, maps, told.supplements, copies, told.afar, told.pieces = json.loads(one)
            told.kinds = [Proposal(*kind) for kind in kinds]
            half = len(maps) // 2
            told.maps = dict(zip(maps[:half], maps[half:], strict=True))
            told.copies = {i: (first, last) for i, (first, last) in copies}
            found.append(told)
        return found


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
