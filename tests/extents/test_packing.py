"""Gathering and scattering against slice copies one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pnc_vol.extents.merge import gather, scatter
from pnc_vol.extents.model import Extents


def pieces(length, order, gap, lead):
    """Extents of the given lengths, disjoint in memory, in a given order, and the size of the memory."""
    length = np.array(length, np.int64)
    place = np.cumsum(length + gap) - (length + gap) + lead
    size = int(length.sum() + gap * length.size + lead)
    return Extents(np.zeros(length.size, np.int64), length[order], place[order]), size


@st.composite
def disjoint(draw):
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    n = draw(st.sampled_from([0, 1, 2, 5, 23, 24, 25, 26, 60, 300]))
    kind = draw(st.sampled_from(["equal", "mixed", "aligned", "large"]))
    length = {
        "equal": np.full(n, draw(st.sampled_from([1, 3, 8, 24, 100]))),
        "mixed": rng.integers(0, 40, n),
        "aligned": rng.integers(1, 9, n) * 8,
        "large": np.where(rng.random(n) < 0.1, rng.integers(16000, 20000, n), rng.integers(0, 10, n)),
    }[kind]
    order = rng.permutation(n) if draw(st.booleans()) else np.arange(n)
    extents, size = pieces(length, order, draw(st.sampled_from([0, 0, 1, 7])), draw(st.integers(0, 3)))
    return extents, rng.integers(0, 256, size + draw(st.integers(0, 3))).astype(np.uint8)


@settings(max_examples=300, deadline=None)
@given(disjoint())
def test_gather_collects_the_pieces_in_order(case):
    extents, memory = case
    expected = [memory[p : p + n] for n, p in zip(extents.length, extents.place, strict=True)]
    found = gather(extents, memory)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, np.concatenate([np.empty(0, np.uint8), *expected]))


@settings(max_examples=300, deadline=None)
@given(disjoint())
def test_scatter_puts_back_what_gather_took_and_touches_nothing_else(case):
    extents, memory = case
    expected = np.zeros_like(memory)
    for n, p in zip(extents.length, extents.place, strict=True):
        expected[p : p + n] = memory[p : p + n]
    found = np.zeros_like(memory)
    scatter(extents, gather(extents, memory), found)
    np.testing.assert_array_equal(found, expected)


def test_bytes_that_lie_together_are_not_copied():
    memory = np.arange(100, dtype=np.uint8)
    extents, _ = pieces([5, 7, 9], np.arange(3), 0, 2)
    assert np.shares_memory(gather(extents, memory), memory)


def test_a_memory_that_is_read_only_or_a_slice_can_be_gathered_from():
    whole = np.arange(250, dtype=np.uint8)
    memory = whole[1:]
    memory.flags.writeable = False
    extents, _ = pieces([3] * 40, np.arange(40)[::-1], 1, 0)
    assert gather(extents, memory)[:3].tolist() == memory[156:159].tolist()


@pytest.mark.parametrize(
    ("length", "place"), [([4], [-1]), ([4], [7]), ([4] * 40, [0] * 39 + [7]), ([1] * 40, [-1] + [0] * 39)]
)
def test_places_outside_the_memory_are_refused(length, place):
    extents = Extents(*(np.array(c, np.int64) for c in (length, length, place)))
    with pytest.raises(IndexError, match="of a memory of 10 bytes"):
        gather(extents, np.zeros(10, np.uint8))
    with pytest.raises(IndexError, match="of a memory of 10 bytes"):
        scatter(extents, np.zeros(sum(length), np.uint8), np.zeros(10, np.uint8))


def test_packed_bytes_must_be_as_many_as_the_extents():
    extents, size = pieces([3, 4], np.arange(2), 1, 0)
    with pytest.raises(ValueError, match="6 bytes were given for extents of 7 bytes"):
        scatter(extents, np.zeros(6, np.uint8), np.zeros(size, np.uint8))
