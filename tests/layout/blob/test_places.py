"""Extents of partitioned variables, against the address of each element."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pnc_vol.extents.model import Runs
from pnc_vol.layout.blob.index import ElementIndex
from pnc_vol.layout.blob.maps import SubfileMap
from pnc_vol.layout.blob.places import BlobPlace, MapLookup
from pnc_vol.layout.places import Place
from pnc_vol.layout.subfiles import SHIFT

NELEMS, ITEMSIZE = 12, 4
BEGINS, RECORDS = np.array([100, 200, 320]), np.array([60, 80, 48])
LISTS = [[0, 1, 4], [2, 9], [5, 6, 11], [10]]
"""Two blobs in subfile 0, one each in 1 and 2; elements 3, 7 and 8 are in none."""
HOLES = [3, 7, 8]


def runs_of(elements) -> Runs:
    return Runs(np.array(elements, np.int64), np.ones(len(elements), np.int64))


PARTS = [
    (0, SubfileMap((NELEMS,), (0,), tuple(runs_of(mine) for mine in LISTS[:2]))),
    *((n, SubfileMap((NELEMS,), (0,), (runs_of(LISTS[n + 1]),))) for n in (1, 2)),
]
INDEX = ElementIndex(NELEMS, PARTS)


def never() -> ElementIndex:
    raise AssertionError("the index of all blobs was not needed")


def address(element: int, *, record: bool, supplement: Place | None) -> int | None:
    """Where an element lies, by the lists above."""
    r, e = divmod(element, NELEMS) if record else (0, element)
    for number, lists in ((0, LISTS[0] + LISTS[1]), (1, LISTS[2]), (2, LISTS[3])):
        if e in lists:
            return (number << SHIFT) + int(BEGINS[number]) + r * int(RECORDS[number]) + lists.index(e) * ITEMSIZE
    if supplement is None:
        return None
    return supplement.begin + r * supplement.record_size + HOLES.index(e) * ITEMSIZE


@settings(max_examples=300, deadline=None)
@given(st.data(), st.booleans(), st.booleans(), st.sampled_from([None, 0, 1, 2, 3]))
def test_each_element_has_its_address(data, record: bool, supplemented: bool, own: int | None) -> None:
    supplement = Place(5000, ITEMSIZE, 3 if record else 0, 60 if record else 0) if supplemented else None
    mine = None
    if own is not None:
        subfile = max(0, own - 1)
        mine = runs_of(LISTS[own]), subfile, len(LISTS[0]) if own == 1 else 0
    lookup = MapLookup(NELEMS, lambda: INDEX, mine)
    place = BlobPlace(lookup, ITEMSIZE, record=record, begins=BEGINS, record_sizes=RECORDS, supplement=supplement)
    assert (place.itemsize, place.inner) == (ITEMSIZE, NELEMS if record else 0)
    start, length = [], []
    for _ in range(data.draw(st.integers(0, 5))):
        r, s = data.draw(st.integers(0, 3)) if record else 0, data.draw(st.integers(0, NELEMS - 1))
        start.append(r * NELEMS + s)
        length.append(data.draw(st.integers(1, NELEMS - s)))
    if own is not None and data.draw(st.booleans()):
        # what the rank itself writes, whole or in part
        records = data.draw(st.lists(st.integers(0, 3), max_size=3)) if record else [0]
        start, length = [r * NELEMS + e for r in records for e in LISTS[own]], [1] * len(LISTS[own]) * len(records)
        lookup = MapLookup(NELEMS, never, mine)
        place = BlobPlace(lookup, ITEMSIZE, record=record, begins=BEGINS, record_sizes=RECORDS, supplement=supplement)
        keep = data.draw(st.integers(0, len(start)))
        start, length = start[keep:], length[keep:]
    extents = place.extents(Runs(np.array(start, np.int64), np.array(length, np.int64)))
    told: dict[int, int] = {}
    bounds = np.cumsum([0, *length]) * ITEMSIZE
    for offset, nbytes, at in zip(*(c.tolist() for c in extents), strict=True):
        assert np.searchsorted(bounds, at, "right") == np.searchsorted(bounds, at + nbytes - 1, "right")
        for i in range(0, nbytes, ITEMSIZE):
            assert (at + i) // ITEMSIZE not in told
            told[(at + i) // ITEMSIZE] = offset + i
    wanted = [address(s + i, record=record, supplement=supplement)
              for s, n in zip(start, length, strict=True) for i in range(n)]  # fmt: skip
    assert told == {i: where for i, where in enumerate(wanted) if where is not None}


def test_the_index_is_made_once_and_when_it_is_needed() -> None:
    made = []
    lookup = MapLookup(NELEMS, lambda: made.append(1) or INDEX, (runs_of(LISTS[2]), 1, 0))
    place = BlobPlace(lookup, ITEMSIZE, record=False, begins=BEGINS, record_sizes=RECORDS)
    place.extents(runs_of(LISTS[2]))
    place.extents(runs_of(LISTS[2][1:]))
    assert not made
    for _ in range(2):
        place.extents(runs_of(LISTS[0]))
    assert made == [1]


def test_a_rank_that_owns_nothing_asks_the_index() -> None:
    lookup = MapLookup(NELEMS, lambda: INDEX, (runs_of([]), 0, 0))
    assert lookup.locate(runs_of(LISTS[2])).subfile.tolist() == [1, 1, 1]


@pytest.mark.parametrize("supplement", [None, Place(5000, ITEMSIZE, 0, 0)])
def test_elements_without_a_home_are_left_out_unless_there_is_a_supplement(supplement: Place | None) -> None:
    place = BlobPlace(
        MapLookup(NELEMS, lambda: INDEX),
        ITEMSIZE,
        record=False,
        begins=BEGINS,
        record_sizes=RECORDS,
        supplement=supplement,
    )
    found = place.extents(Runs(np.array([6]), np.array([3])))
    assert found.place.tolist() == ([0] if supplement is None else [0, 4])
    assert found.nbytes == (4 if supplement is None else 12)
