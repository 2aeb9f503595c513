"""Blocks cover a shape once, in order, within the budget."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pnc_vol.extents.blocks import CHUNK_EXCESS, block_shape, blocks

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
