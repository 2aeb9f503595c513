"""The cache of blocks: what it asks for, what it keeps, threads."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pnc_vol.remote.driver import BlockCache, Range, joined_blocks

FILE = np.random.default_rng(0).integers(0, 256, 1003, np.uint8).tobytes()


class Store:
    """A file in memory that notes what is asked of it."""

    def __init__(self, *, limit: int = 200, gap: int = 20, longest: int = 100) -> None:
        self.asked: list[list[Range]] = []
        self.wait: threading.Event | None = None
        self.fails = 0
        self.cache = BlockCache(self.fetch, len(FILE), block=10, limit=limit, gap=gap, longest=longest)

    def fetch(self, ranges: list[Range]) -> list[bytes]:
        self.asked.append(ranges)
        if self.wait is not None:
            assert self.wait.wait(20)
        if self.fails:
            self.fails -= 1
            raise OSError("gone")
        return [FILE[first:end] for first, end in ranges]


@given(
    st.lists(st.lists(st.integers(0, 100), min_size=1, max_size=12, unique=True).map(sorted), max_size=12),
    st.integers(0, 400),
    st.integers(0, 50),
)
def test_blocks_are_those_of_the_file_within_the_limit(reads: list[list[int]], limit: int, gap: int) -> None:
    store = Store(limit=limit, gap=gap)
    for numbers in reads:
        found = store.cache.get(numbers)
        assert {n: found[n].tobytes() for n in numbers} == {n: FILE[10 * n : 10 * n + 10] for n in numbers}
        assert store.cache.held_bytes <= limit
    for ranges in store.asked:
        assert all(0 <= first < end <= len(FILE) and end - first <= 100 for first, end in ranges)
        assert all(b[0] - a[1] > gap // 10 * 10 or b[1] - a[0] > 100 for a, b in itertools.pairwise(ranges))


def test_what_is_held_is_not_asked_for_again() -> None:
    store = Store()
    store.cache.get([0, 1, 3])
    store.cache.get([1, 2, 3])
    assert store.asked == [[(0, 40)]], "with the block between them"
    store.cache.get([100])
    assert store.asked[1:] == [[(1000, 1003)]], "the last block is shorter"
    store.cache.clear()
    store.cache.get([0])
    assert store.asked[2:] == [[(0, 10)]]


def test_going_through_more_than_fits_finds_most_of_it() -> None:
    store = Store(limit=900)
    for _ in range(10):
        for n in range(100):
            store.cache.get([n])
    assert sum(len(ranges) for ranges in store.asked) < 450, "with the oldest going first it would be a thousand"


def test_threads_ask_once_and_go_on_after_a_failure() -> None:
    store = Store()
    store.wait, store.fails = threading.Event(), 1
    got: list[bytes] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            got.append(store.cache.get([4])[4].tobytes())
        except OSError as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    store.wait.set()
    for thread in threads:
        thread.join()
    assert len(failed) == 1, "the one that asked; the others ask again"
    assert got == [FILE[40:50]] * 5
    assert len(store.asked) == 2


@pytest.mark.parametrize("numbers", [[], [5], [0, 1, 2, 3]])
def test_runs_of_few_blocks(numbers: list[int]) -> None:
    assert joined_blocks(numbers, 0, 2) == {0: [], 1: [(5, 6)], 4: [(0, 2), (2, 4)]}[len(numbers)]
