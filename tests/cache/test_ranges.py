"""Sets of bytes, against Python's sets."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pnc_vol.extents.merge import EMPTY, Ranges, ranges_of

extents = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=8)


def made(pairs: list[tuple[int, int]]) -> Ranges:
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return ranges_of(table[:, 0].copy(), table[:, 1].copy())


def bytes_of(ranges: Ranges) -> set[int]:
    start, end = ranges.start.tolist(), ranges.end.tolist()
    assert all(a < b for a, b in zip(start, end, strict=True))
    assert all(b < a for a, b in zip(start[1:], end[:-1], strict=True)), "sorted, disjoint, and none touches the next"
    return {byte for a, b in zip(start, end, strict=True) for byte in range(a, b)}


def named(pairs: list[tuple[int, int]]) -> set[int]:
    return {byte for offset, length in pairs for byte in range(offset, offset + length)}


@given(extents, extents, st.integers(0, 70), st.integers(1, 30), st.integers(1, 4))
def test_they_are_sets(a: list[tuple[int, int]], b: list[tuple[int, int]], cut: int, nbytes: int, most: int) -> None:
    one, other, first, second = made(a), made(b), named(a), named(b)
    assert bytes_of(one) == first
    assert one.nbytes == len(first)
    assert bytes_of(one.plus(other)) == first | second
    assert bytes_of(one.meet(other)) == first & second
    assert bytes_of(one.minus(other)) == first - second
    assert one.touches(other) == bool(first & second)
    assert bytes_of(one.below(cut)) == {byte for byte in first if byte < cut}
    head, rest = one.split(nbytes, most)
    assert len(head.start) <= most
    assert head.nbytes <= nbytes
    assert bytes_of(head) | bytes_of(rest) == first
    assert head.nbytes + rest.nbytes == one.nbytes
    assert head.nbytes or not first


def test_nothing_is_a_set_too() -> None:
    assert EMPTY.plus(EMPTY).nbytes == EMPTY.minus(EMPTY).nbytes == EMPTY.meet(EMPTY).nbytes == 0
