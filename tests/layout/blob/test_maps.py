"""Lists of runs against sets of elements; the bytes of map variables, and what is wrong with some."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pnc_vol.errors import FormatError
from pnc_vol.extents.model import Runs
from pnc_vol.extents.subarrays import coalesced
from pnc_vol.layout.blob.maps import MapSizes, SubfileMap, content, derived, from_content, split_rows

SPACE = 60


@st.composite
def any_runs(draw) -> Runs:
    n = draw(st.integers(0, 10))
    start = [draw(st.integers(0, SPACE - 1)) for _ in range(n)]
    length = [min(draw(st.sampled_from([0, 1, 1, 2, 5, 20])), SPACE - s) for s in start]
    return Runs(np.array(start, np.int64), np.array(length, np.int64))


def elements(runs: Runs) -> list[int]:
    return [s + i for s, n in zip(*(c.tolist() for c in runs), strict=True) for i in range(n)]


def is_tidy(runs: Runs) -> bool:
    return bool((runs.length > 0).all() and (runs.start[1:] > (runs.start + runs.length)[:-1]).all())


@settings(max_examples=300, deadline=None)
@given(any_runs())
def test_coalesced_runs_hold_each_element_once(runs: Runs) -> None:
    made = coalesced(runs)
    assert is_tidy(made)
    assert elements(made) == sorted(set(elements(runs)))


@settings(max_examples=300, deadline=None)
@given(st.lists(any_runs(), max_size=5))
def test_the_highest_rank_keeps_what_several_posted(lists: list[Runs]) -> None:
    made = derived(lists)
    owner = {e: rank for rank, runs in enumerate(lists) for e in elements(runs)}
    assert len(made) == len(lists)
    for rank, runs in enumerate(made):
        assert is_tidy(runs)
        assert elements(runs) == sorted(e for e in owner if owner[e] == rank)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 4), st.integers(1, 12), st.lists(any_runs(), min_size=1, max_size=4))
def test_a_map_comes_back_from_the_bytes_of_its_variables(rows: int, row: int, lists: list[Runs]) -> None:
    nelems = rows * row
    inside = [Runs(runs.start[runs.start + runs.length <= nelems], runs.length[runs.start + runs.length <= nelems])
              for runs in lists]  # fmt: skip
    blobs = tuple(split_rows(runs, row) for runs in derived(inside))
    one = SubfileMap((rows, row), (0, 1), blobs)
    for runs in blobs:
        assert (runs.start // row == (runs.start + runs.length - 1) // row).all()
    codes, shapes = (">i4", ">i8", ">i8", ">i4", ">i4"), [(len(blobs),)] * 3 + [(len(blobs), one.max_nreqs)] * 2
    columns = [b.view(code).reshape(shape) for b, code, shape in zip(content([one]), codes, shapes, strict=True)]
    read = from_content(one, columns, "x", [np.zeros(one.nblobs, np.int64)] * 5)
    for mine, theirs in zip(read.blobs, blobs, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_offsets_beyond_int32_take_int64() -> None:
    far = SubfileMap((1 << 20, 1 << 20), (0, 1), (Runs(np.array([1 << 39]), np.array([5])),))
    sizes = [column.size for column in content([far])]
    assert sizes == [4, 8, 8, 8, 8]
    assert content([far])[3].view(">i8")[0] == 1 << 39


def test_a_node_that_owns_nothing_has_dimensions_of_one() -> None:
    none = SubfileMap((6,), (0,), (Runs(np.empty(0, np.int64), np.empty(0, np.int64)),) * 2)
    assert (none.nelems, none.max_nreqs) == (1, 1)
    assert not any(column.any() for column in content([none]))


COLUMNS = {
    "nreqs": [2, 1],
    "blob_start": [0, 4],
    "blob_count": [4, 3],
    "offsets": [[0, 8], [5, 0]],
    "lengths": [[3, 1], [3, 0]],
}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("nreqs", [3, 1], r"nreqs\[0\] is 3"),
        ("nreqs", [2, -1], r"nreqs\[1\] is -1"),
        ("blob_start", [0, 5], r"blob_start\[1\] is 5"),
        ("blob_count", [4, 2], r"blob_count\[1\] is 2"),
        ("offsets", [[0, 12], [5, 0]], r"offsets\[0\] is 12: run 1"),
        ("offsets", [[0, 8], [-1, 0]], r"offsets\[1\] is -1"),
        ("lengths", [[3, -1], [3, 0]], r"lengths\[0\] is -1"),
        ("lengths", [[3, 2**62], [3, 0]], r"offsets\[0\] is 8"),
        ("nelems", 8, "nelems is 8"),
    ],
)
def test_map_variables_that_contradict_each_other_are_refused(name: str, value: object, said: str) -> None:
    columns = {**COLUMNS, "nelems": 7}
    runs = Runs(np.array([0, 8]), np.array([3, 1])), Runs(np.array([5]), np.array([3]))
    sizes = SubfileMap((3, 4), (0, 1), runs)

    def read() -> SubfileMap:
        arrays = [np.array(columns[key], np.int64) for key in COLUMNS]
        fitting = MapSizes((3, 4), (0, 1), 2, columns["nelems"], 2)
        return from_content(fitting, arrays, "out.nc.0001: D2", [np.zeros(fitting.nblobs, np.int64)] * 5)

    assert read().counts.tolist() == sizes.counts.tolist()
    columns[name] = value
    with pytest.raises(FormatError, match=said) as caught:
        read()
    assert str(caught.value).startswith("out.nc.0001: D2.")
