"""Extents against a model that does what they say byte by byte."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pnc_vol.extents.blocks import rounds
from pnc_vol.extents.merge import coalesce, intersect, last_wins
from pnc_vol.extents.model import Extents

SPACE = 64


def extents_of(offset, length, place) -> Extents:
    return Extents(*(np.array(column, np.int64) for column in (offset, length, place)))


def packed(offset, length) -> Extents:
    """Extents whose bytes lie one after another in memory."""
    length = np.array(length, np.int64)
    return extents_of(offset, length, np.cumsum(length) - length)


def written(extents: Extents) -> dict[int, int]:
    """The twin: byte of the file -> byte of memory, after writing one extent after another."""
    file: dict[int, int] = {}
    for offset, length, place in zip(*(c.tolist() for c in extents), strict=True):
        for i in range(length):
            file[offset + i] = place + i
    return file


def byte_list(extents: Extents) -> list[tuple[int, int]]:
    rows = zip(*(c.tolist() for c in extents), strict=True)
    return [(offset + i, place + i) for offset, length, place in rows for i in range(length)]


@st.composite
def any_extents(draw, bases=(0,)):
    n = draw(st.integers(0, 12))
    far = draw(st.sampled_from(bases))
    offset = [far + draw(st.integers(0, SPACE)) for _ in range(n)]
    length = [draw(st.sampled_from([0, 1, 2, 3, 5, 8, 30])) for _ in range(n)]
    if draw(st.booleans()):
        return packed(offset, length)
    return extents_of(offset, length, [draw(st.integers(0, 40)) for _ in range(n)])


@settings(max_examples=300, deadline=None)
@given(any_extents((0, 2**45, 2**62)))
def test_last_wins_is_what_writing_one_after_another_leaves(extents):
    made = last_wins(extents)
    assert written(made) == written(extents)
    end = made.offset + made.length
    assert (made.length > 0).all()
    assert (made.offset[1:] >= end[:-1]).all()
    adjoin = (made.offset[1:] == end[:-1]) & (made.place[1:] == (made.place + made.length)[:-1])
    assert not adjoin.any(), "a pair could have been joined"


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 400), st.integers(1, 3000), st.sampled_from([2, 20, 300]))
def test_last_wins_on_long_lists(seed, n, space, longest):
    rng = np.random.default_rng(seed)
    extents = packed(rng.integers(0, space, n), rng.integers(0, longest, n))
    owner = np.full(space + longest, -1)
    for offset, length, place in zip(*extents, strict=True):
        owner[offset : offset + length] = np.arange(place, place + length)
    found = np.full(space + longest, -1)
    made = last_wins(extents)
    for offset, length, place in zip(*made, strict=True):
        assert (found[offset : offset + length] == -1).all()
        found[offset : offset + length] = np.arange(place, place + length)
    np.testing.assert_array_equal(found, owner)


@pytest.mark.parametrize("n", [1, 2, 3, 100, 1000])
def test_one_extent_over_all_others(n):
    small = packed(np.arange(n) * 4, np.full(n, 2))
    cover = [np.array([0]), np.array([4 * n]), np.array([10**6])]
    first = last_wins(Extents(*(np.concatenate((c, s)) for c, s in zip(cover, small, strict=True))))
    last = last_wins(Extents(*(np.concatenate((s, c)) for c, s in zip(cover, small, strict=True))))
    assert [c.tolist() for c in last] == [[0], [4 * n], [10**6]]
    assert first.offset.tolist() == list(range(0, 4 * n, 2))
    assert first.place.tolist() == [x for i in range(n) for x in (2 * i, 10**6 + 4 * i + 2)]


def test_what_is_written_again_needs_no_pieces():
    made = last_wins(packed([0, 10, 0, 10, 0], [10] * 5))
    assert [c.tolist() for c in made] == [[0, 10], [10, 10], [40, 30]]


def test_sorted_disjoint_extents_come_back_as_they_are():
    extents = extents_of([0, 8, 20], [4, 4, 4], [0, 4, 8])
    assert last_wins(extents) is extents
    assert coalesce(extents) is extents


def test_a_contiguous_list_is_one_extent():
    extents = packed(np.arange(1000) * 8, np.full(1000, 8))
    assert [c.tolist() for c in last_wins(extents)] == [[0], [8000], [0]]


@settings(max_examples=300, deadline=None)
@given(any_extents())
def test_coalesce_keeps_bytes_and_order(extents):
    made = coalesce(extents)
    assert byte_list(made) == byte_list(extents)
    assert (made.length > 0).all()
    again = coalesce(made)
    assert [c.tolist() for c in again] == [c.tolist() for c in made]
    joins = sum(a != (b[0] - 1, b[1] - 1) for a, b in zip(byte_list(made), byte_list(made)[1:], strict=False))
    assert made.offset.size == (joins + 1 if byte_list(made) else 0)


@settings(max_examples=300, deadline=None)
@given(any_extents(), any_extents())
def test_intersect_finds_every_common_byte_once(a, b):
    b = last_wins(b)
    ia, ib, offset, length = intersect(a.offset, a.length, b.offset, b.length)
    found = [(i, j, o + k) for i, j, o, n in zip(ia, ib, offset, length, strict=True) for k in range(n)]
    expected = [
        (i, j, byte)
        for i in range(a.offset.size)
        for j in range(b.offset.size)
        for byte in sorted(
            set(range(a.offset[i], a.offset[i] + a.length[i])) & set(range(b.offset[j], b.offset[j] + b.length[j]))
        )
    ]
    assert found == expected
    assert (length > 0).all()


def test_intersect_passes_over_empty_ranges():
    ia, ib, offset, length = intersect(*(np.array(c) for c in ([3, 0], [0, 9], [2, 4, 4], [2, 0, 3])))
    assert [c.tolist() for c in (ia, ib, offset, length)] == [[1, 1], [0, 2], [2, 4], [2, 3]]


def test_columns_stay_int64():
    extents = packed([9, 0, 4, 4], [3, 5, 2, 2])
    for made in (coalesce(extents), last_wins(extents), *rounds(extents, 2), last_wins(packed([], []))):
        assert {c.dtype for c in made} == {np.dtype(np.int64)}
    assert {c.dtype for c in intersect(extents.offset, extents.length, np.array([0]), np.array([9]))} == {
        np.dtype("i8")
    }
