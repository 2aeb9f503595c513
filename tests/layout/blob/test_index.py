"""Where elements are, against an array that says it of each one."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pnc_vol.errors import FormatError
from pnc_vol.extents.model import Runs
from pnc_vol.layout.blob.index import BoundedIndex, ElementIndex, coverage
from pnc_vol.layout.blob.maps import SubfileMap

SPACE = 50


def runs_of(elements) -> Runs:
    """Elements in any order, as runs; neighbours are joined now and then."""
    start, length = [], []
    for e in elements:
        if start and start[-1] + length[-1] == e and e % 3:
            length[-1] += 1
        else:
            start.append(e)
            length.append(1)
    return Runs(np.array(start, np.int64), np.array(length, np.int64))


def elements(runs: Runs) -> list[int]:
    return [s + i for s, n in zip(*(c.tolist() for c in runs), strict=True) for i in range(n)]


@st.composite
def any_parts(draw, overlaps=False):
    """Subfiles with some blobs each; the runs of a blob may come in any order, and some are empty."""
    nelems = draw(st.integers(1, SPACE))
    numbers = draw(st.lists(st.integers(0, 4), unique=True, max_size=3))
    blobs = [(number, draw(st.integers(1, 3))) for number in numbers]
    owners = [[] for _ in range(sum(n for _, n in blobs))]
    for e in range(nelems) if owners else ():
        owner = draw(st.integers(0 if overlaps else -1, len(owners) - 1))
        for at in {owner, draw(st.integers(-1, len(owners) - 1))} if overlaps else {owner}:
            if at >= 0:
                owners[at].append(e)
    parts, at = [], 0
    for number, n in blobs:
        lists = [mine if draw(st.booleans()) else draw(st.permutations(mine)) for mine in owners[at : at + n]]
        runs = [runs_of(mine) for mine in lists]
        if draw(st.booleans()):
            runs[0] = Runs(np.append(runs[0].start, 1), np.append(runs[0].length, 0))
        parts.append((number, SubfileMap((nelems,), (0,), tuple(runs))))
        at += n
    return nelems, parts


def model(nelems: int, parts) -> list[tuple[int, int]]:
    """For each element its subfile and its position there."""
    at = [(-1, 0)] * nelems
    for number, one in parts:
        for position, e in enumerate(e for runs in one.blobs for e in elements(runs)):
            at[e] = number, position
    holes = [e for e in range(nelems) if at[e][0] < 0]
    for position, e in enumerate(holes):
        at[e] = -1, position
    return at


@settings(max_examples=300, deadline=None)
@given(st.data(), st.sampled_from([None, 1, 2, 7, 1000]))
def test_elements_are_found_where_the_blobs_say(data, most: int | None) -> None:
    nelems, parts = data.draw(any_parts())
    index = ElementIndex(nelems, iter(parts)) if most is None else BoundedIndex(nelems, lambda: iter(parts), most=most)
    at = model(nelems, parts)
    asked = [(s, data.draw(st.integers(0, nelems - s)))
             for s in data.draw(st.lists(st.integers(0, nelems - 1), max_size=5))]  # fmt: skip
    runs = Runs(*(np.array([a[i] for a in asked], np.int64) for i in (0, 1)))
    found = index.locate(runs)
    assert (found.length > 0).all()
    told = {}
    for start, length, place, subfile, position, run in zip(*(c.tolist() for c in found), strict=True):
        for i in range(length):
            assert place + i not in told
            told[place + i] = (start + i, subfile, position + i, run)
    wanted = [(e, *at[e], n) for n, (s, length) in enumerate(asked) for e in range(s, s + length)]
    assert [told[i] for i in range(len(told))] == wanted
    assert elements(index.holes()) == [e for e in range(nelems) if at[e][0] < 0]
    counts = coverage(nelems, parts)
    assert counts == index.coverage()
    assert (counts.covered, counts.none) == (nelems - len(elements(index.holes())), len(elements(index.holes())))


@settings(max_examples=300, deadline=None)
@given(any_parts(overlaps=True))
def test_elements_in_several_blobs_are_counted_and_refused(case) -> None:
    nelems, parts = case
    times = np.zeros(nelems, int)
    for _, one in parts:
        for runs in one.blobs:
            np.add.at(times, elements(runs), 1)
    found = coverage(nelems, parts, "out.nc: D2")
    assert found[:4] == (nelems, (times > 0).sum(), (times == 0).sum(), (times > 1).sum())
    assert bool(found.conflicts) == bool((times > 1).any())
    if found.conflicts:
        with pytest.raises(FormatError) as caught:
            ElementIndex(nelems, parts, "out.nc: D2")
        assert str(caught.value).startswith(found.conflicts[0])
        assert str(caught.value).endswith(f", {found.none} in none, {found.several} in several")
        first = int(np.flatnonzero(times > 1)[0])
        assert f"both have element {first}" in str(caught.value) or f"both have elements {first} to" in str(
            caught.value
        )


def part(*blobs: tuple[list[int], list[int]]) -> SubfileMap:
    return SubfileMap((10,), (0,), tuple(Runs(np.array(s, np.int64), np.array(n, np.int64)) for s, n in blobs))


def test_an_overlap_names_both_blobs_and_the_elements() -> None:
    parts = [(0, part(([0], [2]), ([2], [4]))), (3, part(([9], [1]), ([8], [1]), ([4], [3])))]
    with pytest.raises(FormatError) as caught:
        ElementIndex(10, parts, "out.nc: D2")
    told = "out.nc: D2: subfile 0003, blob 2 and subfile 0000, blob 1 both have elements 4 to 5"
    assert str(caught.value) == f"{told}; of 10 elements 9 are in blobs, 1 in none, 2 in several"
    assert coverage(10, parts, "out.nc: D2").conflicts == (told,)


@pytest.mark.parametrize("run", [(9, 2), (-1, 1), (10, 1)])
def test_a_run_outside_names_the_blob_and_the_elements(run: tuple[int, int]) -> None:
    parts = [(0, part(([0], [1]))), (1, part(([2], [1]), ([4, run[0]], [1, run[1]])))]
    with pytest.raises(FormatError, match=rf"out.nc: D2: subfile 0001, blob 1: elements? {run[0]}.* of 10 elements"):
        ElementIndex(10, parts, "out.nc: D2")


def test_pieces_that_adjoin_are_one_whichever_blobs_they_come_from() -> None:
    one = part(([0, 1, 2], [1, 1, 1]), ([3, 4], [1, 1]), ([5], [5]))
    index = ElementIndex(10, [(2, one)])
    assert index.locate(Runs(np.array([0]), np.array([10]))).length.tolist() == [10]
    assert index.nbytes == 24


def test_two_million_runs_take_32_bytes_each_and_are_found_within_a_second() -> None:
    n = 2_000_000
    owner = np.random.default_rng(0).integers(0, 64, n)
    ones = np.ones(n, np.int64)
    lists = [np.flatnonzero(owner == p) * 2 for p in range(64)]
    parts = [
        (s, SubfileMap((2 * n,), (0,), tuple(Runs(mine, ones[: mine.size]) for mine in lists[16 * s : 16 * s + 16])))
        for s in range(4)
    ]
    began = time.process_time()
    index = ElementIndex(2 * n, parts)
    made = time.process_time()
    found = index.locate(Runs(np.arange(n) * 2, ones))
    ended = time.process_time()
    # a hole stands behind each run
    assert index.nbytes <= 32 * n + 8
    assert (found.subfile == owner // 16).all()
    assert made - began < 5
    assert ended - made < 5


def test_a_bounded_index_holds_one_window_and_finds_overlaps_there() -> None:
    n = 100_000
    calls = []

    def parts():
        calls.append(1)
        mine = np.arange(n // 2)
        yield 0, SubfileMap((n,), (0,), (Runs(2 * mine, np.ones(n // 2, np.int64)),))
        yield 1, SubfileMap((n,), (0,), (Runs(np.array([n - 1, n - 2]), np.array([1, 1])),))

    index = BoundedIndex(n, parts, "out.nc: D1", most=1000)
    assert len(calls) == 1
    assert index.windows.size > 40
    for start in (0, 10, 99_000 - 3_000):
        found = index.locate(Runs(np.array([start]), np.array([2])))
        assert found.position[found.subfile == 0].tolist() == [start // 2]
    assert len(calls) == 3, "the second is in the window of the first"
    assert index.nbytes < 60_000
    with pytest.raises(FormatError, match=r"subfile 0001, blob 0 and subfile 0000, blob 0 both have"):
        index.locate(Runs(np.array([n - 1]), np.array([1])))
