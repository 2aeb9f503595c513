"""Lists of subarrays that come again mean the same as the first time, and are the same runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pnc_vol.errors import SelectionIndexError, SelectionTypeError, SelectionValueError
from pnc_vol.extents.decomposition import LEAST_RUNS, Decomposition, Recent
from pnc_vol.extents.place import runs
from pnc_vol.extents.selection import many

Array = npt.NDArray[Any]


def listing(seed: int, shape: tuple[int, ...], n: int, record: int | None = None) -> tuple[Array, Array]:
    """Subarrays of any size, or single elements of one record."""
    rng = np.random.default_rng(seed)
    starts = np.stack([rng.integers(0, length, n) for length in shape], axis=1)
    counts = np.stack([rng.integers(1, length - starts[:, i] + 1) for i, length in enumerate(shape)], axis=1)
    if record is not None:
        starts[:, 0], counts[:, 0] = record, 1
    return starts, counts


@given(
    seed=st.integers(0, 1 << 20),
    shape=st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple),
    record=st.none() | st.integers(0, 5),
    n=st.integers(1, 2 * LEAST_RUNS),
)
def test_a_list_that_comes_again_means_what_it_meant(
    seed: int, shape: tuple[int, ...], record: int | None, n: int
) -> None:
    recent = Recent(1 << 20)
    record = None if record is None else record % shape[0]
    starts, counts = listing(seed, shape, n, record)
    expected = many(shape, starts, counts)
    for _ in range(2):
        got = recent.many(shape, starts.copy(), counts.copy())
        assert got.result_shape == expected.result_shape
        assert got.shape == shape
        assert got.listed is not None
        assert expected.listed is not None
        assert got.listed.start.tolist() == expected.listed.start.tolist()
        assert got.listed.length.tolist() == expected.listed.length.tolist()
        for is_record in (False, True):
            cut, twin = recent.runs(got, record=is_record), runs(expected, record=is_record)
            assert [column.tolist() for column in cut] == [column.tolist() for column in twin]


def test_equal_lists_are_the_same_runs_whatever_axis_stands_before_them() -> None:
    recent = Recent(1 << 20)
    starts, counts = listing(1, (30, 40), 200)
    one = recent.many((30, 40), starts, counts).listed
    assert recent.many((30, 40), starts.copy(), counts.copy()).listed is one
    ahead = np.zeros((200, 1), np.int64)
    record = np.hstack([ahead, starts]), np.hstack([ahead + 1, counts])
    assert recent.many((5, 30, 40), *record).listed is one
    record[0][:, 0] = 3
    third = recent.many((5, 30, 40), *record).listed
    assert third is not None
    assert one is not None
    assert (third.start == one.start + 3 * 1200).all()
    assert recent.many((5, 30, 40), record[0].copy(), record[1]).listed is third


def test_a_list_that_was_changed_in_place_is_another_one() -> None:
    recent = Recent(1 << 20)
    starts, counts = listing(2, (50, 50), 100)
    before = recent.many((50, 50), starts, counts).listed
    starts[-1], counts[-1] = 0, 1
    after = recent.many((50, 50), starts, counts).listed
    assert after is not before
    assert after is not None
    expected = many((50, 50), starts, counts).listed
    assert expected is not None
    assert after.start.tolist() == expected.start.tolist()


def test_lists_are_remembered_within_their_bytes() -> None:
    recent = Recent(40_000)
    lists = [listing(seed, (50, 50), 100) for seed in range(30)]
    for starts, counts in lists:
        recent.many((50, 50), starts, counts)
    assert sum(kept.nbytes for kept in recent._kept) <= 40_000
    large = listing(99, (50, 50), 2000)
    assert recent.many((50, 50), *large).listed is not recent.many((50, 50), *large).listed


@pytest.mark.parametrize(
    ("row", "error"), [((0, 50), SelectionIndexError), ((3, -1), SelectionIndexError), ((60, 0), SelectionIndexError)]
)
def test_errors_are_those_of_the_shape_that_was_meant(row: tuple[int, int], error: type[Exception]) -> None:
    starts = np.tile(row, (100, 1))
    ones = np.ones_like(starts)
    with pytest.raises(error) as expected:
        many((50, 50), starts, ones)
    with pytest.raises(error) as got:
        Recent(1 << 20).many((50, 50), starts, ones)
    assert str(got.value) == str(expected.value)


def test_a_decomposition_is_its_own_list() -> None:
    starts, counts = listing(3, (7, 9), 20)
    one = Decomposition(starts, counts)
    expected = many((7, 9), starts, counts).listed
    starts[:] = 0
    got = one.select((7, 9)).listed
    assert got is one.select((7, 9)).listed
    assert got is not None
    assert expected is not None
    assert got.start.tolist() == expected.start.tolist()
    moved = one.select((4, 7, 9), -1)
    assert moved.listed is not None
    assert (moved.listed.start == expected.start + 3 * 63).all()
    assert Recent(1 << 20).many((7, 9), one, None).listed is got
    assert len(one) == 20
    assert not one.starts.flags.writeable


def test_a_decomposition_in_an_index() -> None:
    one = Decomposition([[1], [3]])
    whole = Decomposition.of_index((5,), one)
    assert whole is not None
    assert whole.result_shape == (2,)
    assert Decomposition.of_index((5,), (one,)) == whole
    record = Decomposition.of_index((2, 5), (1, one))
    assert record is not None
    assert record.listed is not None
    assert record.listed.start.tolist() == [6, 8]
    for other in (3, slice(None), (1, 2), [0, 1], ()):
        assert Decomposition.of_index((5, 5), other) is None


def test_what_does_not_fit_is_said() -> None:
    one = Decomposition([[1, 1]])
    with pytest.raises(SelectionValueError, match=r"\(n, 3\)"):
        one.select((3, 3, 3))
    with pytest.raises(SelectionIndexError, match="out of range"):
        one.select((1, 3))
    with pytest.raises(SelectionIndexError, match=r"\(0-3\)"):
        one.select((4, 3, 3), 4)
    with pytest.raises(SelectionTypeError):
        Decomposition.of_index((4, 3, 3, 3), (0, 0, one))
    with pytest.raises(SelectionTypeError, match="None"):
        Recent(1 << 20).many((3, 3), one, [[1, 1]])
    with pytest.raises(SelectionValueError):
        Decomposition([1, 2])


def test_runs_are_the_subarrays_that_have_the_same_elements() -> None:
    starts, counts = listing(3, (7, 9), 20)
    counts[:, 0] = 1
    boxes = Decomposition(starts, counts)
    runs = Decomposition.from_runs(starts @ [9, 1], counts[:, 1], shape=(7, 9))
    for shape, lead in (((7, 9), None), ((4, 7, 9), 2), ((4, 7, 9), -1)):
        mine, theirs = runs.select(shape, lead), boxes.select(shape, lead)
        assert mine.result_shape == theirs.result_shape
        np.testing.assert_array_equal(mine.listed, theirs.listed)
    assert runs.select((7, 9)).listed is runs.select((7, 9)).listed
    assert (runs.shape, boxes.shape) == ((7, 9), None)
    assert "20 runs" in repr(runs)


def test_runs_may_go_on_in_the_next_row() -> None:
    one = Decomposition.from_runs([2], [5])
    got = one.select((3, 4)).listed
    assert got is not None
    assert (got.start.tolist(), got.length.tolist()) == ([2], [5])


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
    with pytest.raises((SelectionValueError, SelectionIndexError, SelectionTypeError), match=said):
        Decomposition.from_runs(np.array(offsets), lengths, shape)


def test_runs_of_another_shape_are_refused() -> None:
    one = Decomposition.from_runs([0], [3], (3, 4))
    with pytest.raises(SelectionValueError, match=r"\(3, 4\), not of \(4, 3\)"):
        one.select((4, 3))
    with pytest.raises(SelectionValueError, match=r"\(3, 4\), not of \(2, 4, 3\)"):
        one.select((5, 2, 4, 3), 0)


def test_what_a_rank_owns_is_in_order_and_each_element_once() -> None:
    one = Decomposition([[2, 1], [0, 0], [1, 0]], [[1, 2], [1, 4], [1, 1]])
    owned = one.owned((3, 4))
    assert (owned.start.tolist(), owned.length.tolist()) == ([0, 9], [5, 2])
    assert one.owned((3, 4)) is owned
    for twice in (Decomposition([[0, 1], [0, 2]], [[1, 2], [1, 2]]), Decomposition.from_runs([2, 0], [2, 3])):
        with pytest.raises(SelectionValueError, match=r"\(0, 2\) of the shape \(3, 4\) more than once"):
            twice.owned((3, 4))
