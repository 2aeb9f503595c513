"""Lists of subarrays that come again mean the same as the first time; decompositions as indices, lists and runs."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pnc_vol
from pnc_vol import Decomposition


def listing(seed: int, shape: tuple[int, ...], n: int) -> tuple[Any, Any]:
    """Subarrays of any size."""
    rng = np.random.default_rng(seed)
    starts = np.stack([rng.integers(0, length, n) for length in shape], axis=1)
    counts = np.stack([rng.integers(1, length - starts[:, i] + 1) for i, length in enumerate(shape)], axis=1)
    return starts, counts


def elements(shape: tuple[int, ...], starts: Any, counts: Any) -> Any:
    """The numbers of the elements of subarrays, one subarray after another."""
    every = np.arange(int(np.prod(shape))).reshape(shape)
    parts = (every[tuple(map(slice, s, s + c))].ravel() for s, c in zip(starts, counts, strict=True))
    return np.concatenate([np.empty(0, int), *parts])


def made(f: Any, name: str, shape: tuple[int, ...], record: bool = False) -> Any:
    data = np.arange(int(np.prod(shape))).reshape(shape)
    return f.create_dataset(name, data=data, maxshape=(None, *shape[1:]) if record else None)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1 << 20),
    shape=st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple),
    n=st.integers(1, 130),
    record=st.booleans(),
)
def test_a_list_that_comes_again_means_what_it_meant(seed: int, shape: Any, n: int, record: bool) -> None:
    starts, counts = listing(seed, shape, n)
    wanted = elements(shape, starts, counts)
    with pnc_vol.File("x.nc", "w", driver="memory") as f:
        x, deeper = made(f, "x", shape, record), made(f, "deeper", (3, *shape), record)
        ahead = np.full((n, 1), 2), np.ones((n, 1), int)
        for _ in range(2):
            assert x.iget_many(starts.copy(), counts.copy()).wait().tolist() == wanted.tolist()
            # the same list behind one index more: of a record
            found = deeper.iget_many(np.hstack([ahead[0], starts]), np.hstack([ahead[1], counts])).wait()
            assert found.tolist() == (wanted + 2 * int(np.prod(shape))).tolist()
        # changed in place it is another list
        starts[-1], counts[-1] = 0, 1
        assert x.iget_many(starts, counts).wait().tolist() == elements(shape, starts, counts).tolist()
        x.iput_many(starts, counts, np.arange(counts.prod(1).sum()) + 1000)
        model = np.arange(int(np.prod(shape)))
        model[elements(shape, starts, counts)] = np.arange(counts.prod(1).sum()) + 1000
        assert x[...].ravel().tolist() == model.tolist()


@pytest.mark.parametrize("row", [(0, 50), (3, -1), (60, 0)])
def test_errors_are_those_of_the_shape_that_was_meant(row: tuple[int, int]) -> None:
    with pnc_vol.File("x.nc", "w", driver="memory") as f:
        x = made(f, "x", (50, 50))
        for n in (1, 100):
            with pytest.raises(IndexError, match=rf"starts\[0\] = \({row[0]}, {row[1]}\).*shape \(50, 50\)"):
                x.iget_many(np.tile(row, (n, 1)), np.ones((n, 2), int))


@pytest.mark.parametrize("by", ["subarrays", "runs"])
def test_a_decomposition_is_its_own_list_and_an_index(by: str) -> None:
    starts, counts = listing(3, (7, 9), 20)
    counts[:, 0] = 1
    wanted = elements((7, 9), starts, counts)
    one = Decomposition(starts, counts)
    if by == "runs":
        one = Decomposition.from_runs(starts @ [9, 1], counts[:, 1], shape=(7, 9))
        assert "20 runs" in repr(one)
    else:
        assert not one.starts.flags.writeable
    assert (len(one), one.shape) == (20, (7, 9) if by == "runs" else None)
    starts[:] = 0
    with pnc_vol.File("x.nc", "w", driver="memory") as f:
        x, r = made(f, "x", (7, 9)), made(f, "r", (4, 7, 9), record=True)
        for _ in range(2):
            assert x[one].tolist() == x[(one,)].tolist() == wanted.tolist()
            assert x.iget_many(one, None).wait().tolist() == wanted.tolist()
            assert r[2, one].tolist() == (wanted + 2 * 63).tolist()
            assert r[-1, one].tolist() == (wanted + 3 * 63).tolist()
        with pytest.raises(IndexError, match=r"\(0-3\)"):
            r[4, one]
        with pytest.raises(TypeError, match="None"):
            x.iget_many(one, counts)
        with pytest.raises(TypeError):
            made(f, "deep", (4, 3, 7, 9))[0, 0, one]
        other = made(f, "other", (2, 9))
        with pytest.raises((IndexError, ValueError), match=r"out of range|\(7, 9\), not of \(2, 9\)"):
            other[one]
        with pytest.raises(ValueError, match=r"\(n, 3\)|\(7, 9\), not of \(4, 7, 9\)"):
            r[one]


def test_runs_may_go_on_in_the_next_row() -> None:
    with pnc_vol.File("x.nc", "w", driver="memory") as f:
        assert made(f, "x", (3, 4))[Decomposition.from_runs([2], [5])].tolist() == [2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("offsets", "lengths", "shape", "said"),
    [
        ([0, 11], [1, 2], (3, 4), r"offsets\[1\] = 11, lengths\[1\] = 2: out of range for the 12 elements"),
        ([-1], [1], (3, 4), "out of range"),
        ([0], [-1], (3, 4), "negative"),
        ([0, 1], [1], (3, 4), r"\(2,\) and \(1,\)"),
        ([[0]], [[1]], (3, 4), r"must both be \(n,\)"),
        ([0.5], [1], (3, 4), "integers"),
        ([2**63], None, (3, 4), "out of range"),
    ],
)
def test_runs_that_are_wrong_are_refused_at_once(offsets, lengths, shape, said) -> None:
    with pytest.raises((ValueError, IndexError, TypeError), match=said):
        Decomposition.from_runs(np.array(offsets), lengths, shape)
    with pytest.raises(ValueError):
        Decomposition([1, 2])


def test_what_a_rank_owns_is_in_order_and_each_element_once() -> None:
    one = Decomposition([[2, 1], [0, 0], [1, 0]], [[1, 2], [1, 4], [1, 1]])
    owned = one.owned((3, 4))
    assert (owned.start.tolist(), owned.length.tolist()) == ([0, 9], [5, 2])
    for twice in (Decomposition([[0, 1], [0, 2]], [[1, 2], [1, 2]]), Decomposition.from_runs([2, 0], [2, 3])):
        with pytest.raises(ValueError, match=r"\(0, 2\) of the shape \(3, 4\) more than once"):
            twice.owned((3, 4))


def test_lists_are_remembered_within_a_part_of_the_buffer() -> None:
    with pnc_vol.File("x.nc", "w", driver="memory", buffer_size=1 << 20) as f:
        x = made(f, "x", (50, 50))
        f.flush()
        held = []
        for seed in range(60):
            starts, _ = listing(seed, (50, 50), 5000)
            x.iget_many(starts, np.ones_like(starts)).wait()
            if not seed:
                tracemalloc.start()
            held.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
    # sixty lists and their runs would be 10 MB
    assert max(held) - held[0] < 3 << 20
