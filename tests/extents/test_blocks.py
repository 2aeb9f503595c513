"""Rounds and blocks cover the whole once, in order, within the budget."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pnc_vol.extents.blocks import CHUNK_EXCESS, block_shape, blocks, groups, rounds, runs_between
from pnc_vol.extents.model import Extents, Runs

shapes = st.lists(st.integers(1, 9), max_size=4).map(tuple)


@given(shapes, st.integers(1, 16), st.integers(1, 4000), st.data())
def test_blocks_cover_every_element_once_within_the_budget(shape, itemsize, budget, data):
    chunks = data.draw(st.none() | st.tuples(*(st.integers(1, 12) for _ in shape)))
    seen = np.zeros(shape, int)
    allowed = max(itemsize, budget if chunks is None else CHUNK_EXCESS * max(budget, itemsize))
    firsts = []
    for block in blocks(shape, itemsize, budget, chunks):
        assert seen[block].size * itemsize <= allowed
        seen[block] += 1
        firsts.append(tuple(axis.start for axis in block))
    assert (seen == 1).all()
    assert firsts == sorted(firsts)


def test_a_scalar_is_one_block_and_a_shape_with_zero_is_none():
    assert list(blocks((), 8, 100)) == [()]
    assert list(blocks((3, 0, 2), 8, 100)) == []


@given(shapes, st.integers(1, 8), st.integers(1, 4000))
def test_without_chunks_a_block_is_contiguous(shape, itemsize, budget):
    block = block_shape(shape, itemsize, budget)
    cut = [axis for axis, (b, n) in enumerate(zip(block, shape, strict=True)) if b < n]
    # Before the first axis that is not whole there is one index at a time.
    assert all(block[axis] == 1 for axis in range(max(cut, default=0)))


def test_blocks_are_whole_chunks_where_a_chunk_fits():
    step = block_shape((1000, 1000), 8, 1_000_000, chunks=(100, 70))
    assert step[0] % 100 == 0
    assert step[1] % 70 == 0 or step[1] == 1000


def test_a_chunk_far_beyond_the_budget_is_cut():
    step = block_shape((10_000, 1000), 8, 80_000, chunks=(10_000, 1000))
    assert step == (10, 1000)


@st.composite
def any_extents(draw):
    rows = draw(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12), st.integers(0, 90)), max_size=20))
    return Extents(*np.array(rows, np.int64).reshape(-1, 3).T)


def bytes_of(extents):
    """Every byte: its offset and its place."""
    return [(o + i, p + i) for o, n, p in zip(*(column.tolist() for column in extents), strict=True) for i in range(n)]


@given(any_extents(), st.integers(1, 40))
def test_rounds_keep_bytes_and_order_and_are_full_but_for_the_last(extents, nbytes):
    parts = list(rounds(extents, nbytes))
    assert [byte for part in parts for byte in bytes_of(part)] == bytes_of(extents)
    assert [part.nbytes for part in parts[:-1]] == [nbytes] * (len(parts) - 1)
    assert all(0 < part.nbytes <= nbytes for part in parts)


def test_rounds_refuse_less_than_a_byte():
    with pytest.raises(ValueError, match="at least 1"):
        list(rounds(Extents(*np.array([[0], [4], [0]])), 0))


@given(st.lists(st.tuples(st.integers(0, 90), st.integers(1, 9)), min_size=1, max_size=12), st.data())
def test_runs_between_are_those_elements(rows, data):
    runs = Runs(*np.array(rows, np.int64).T)
    end = np.cumsum(runs.length)
    first = data.draw(st.integers(0, int(end[-1]) - 1))
    count = data.draw(st.integers(1, int(end[-1]) - first))
    found = runs_between(runs, end - runs.length, end, first, count)
    every = [s + i for s, n in zip(*(c.tolist() for c in runs), strict=True) for i in range(n)]
    assert [s + i for s, n in zip(*(c.tolist() for c in found), strict=True) for i in range(n)] == every[first:][:count]


@given(st.lists(st.integers(0, 12), max_size=20), st.integers(1, 20))
def test_groups_take_as_many_as_fit_and_at_least_one(sizes, limit):
    end = np.cumsum(np.array(sizes, np.int64))
    found = list(groups(end - sizes, end, limit))
    assert [i for first, last in found for i in range(first, last)] == list(range(len(sizes)))
    for first, last in found:
        assert sum(sizes[first:last]) <= limit or last == first + 1
        assert last == len(sizes) or sum(sizes[first : last + 1]) > limit
