"""What ranks may hold of earlier epochs, merged in a tree, against sets of bytes of each rank."""

from __future__ import annotations

from functools import reduce

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pnc_vol.file import held_ranges
from pnc_vol.file.held_ranges import HeldRanges, Spans, joined_owned, owned_by

BYTES = 60
Sets = list[set[int]]
SETS = st.lists(st.sets(st.integers(0, BYTES - 1), max_size=12), min_size=1, max_size=5)


def spans(of: set[int]) -> Spans:
    there = np.array([False, *(byte in of for byte in range(BYTES)), False])
    return np.flatnonzero(np.diff(there)).reshape(-1, 2)


def merged(sets: Sets) -> bytes:
    """What `Comm.combine` makes of what the ranks tell."""
    told = [one for rank, of in enumerate(sets) if (one := owned_by(rank, spans(of)))]
    return reduce(joined_owned, told) if told else b""


@given(SETS, SETS, st.booleans())
def test_a_rank_meets_what_others_hold(earlier: Sets, later: Sets, mixed: bool) -> None:
    ranks = min(len(earlier), len(later))
    earlier, later = earlier[:ranks], later[:ranks]
    for rank, of in enumerate(later):
        known = HeldRanges(rank)
        known.wrote(3, merged(earlier), together=mixed)
        some = mixed and any(earlier)
        others = some or any(of & them for other, them in enumerate(earlier) if other != rank)
        assert known.meets_others(spans(of)) == others
        every = some or any(of & them for them in earlier)
        assert known.met(spans(of)) == ((3 * others, 3 * every) if of else (0, 0))


def test_ranges_of_very_many_ranks_are_joined_and_none_is_lost() -> None:
    ranks = 2 * held_ranges._MOST_OF_ALL
    told = [owned_by(rank, np.array([[100 * rank, 100 * rank + 10 + rank % 3]])) for rank in range(ranks)]
    while len(told) > 1:
        told = [joined_owned(*told[i : i + 2]) for i in range(0, len(told), 2)]
    assert len(told[0]) == 24 * held_ranges._MOST_OF_ALL
    known = HeldRanges(7)
    known.wrote(1, told[0], together=False)
    for rank in range(ranks):
        assert known.met(np.array([[100 * rank, 100 * rank + 1]]))[1] == 1
