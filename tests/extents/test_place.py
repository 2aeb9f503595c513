"""Runs and their bytes, against element-by-element enumeration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pnc_vol.extents.model import Runs
from pnc_vol.extents.place import place, place_many, runs
from pnc_vol.extents.selection import hyperslab, many, select


def longest_runs(elements, inner=None):
    """Scalar twin: join one element after another."""
    found: list[list[int]] = []
    for e in elements:
        if found and e == found[-1][0] + found[-1][1] and (inner is None or e % inner):
            found[-1][1] += 1
        else:
            found.append([int(e), 1])
    return found


def as_lists(made: Runs):
    return [list(pair) for pair in zip(made.start.tolist(), made.length.tolist(), strict=True)]


@st.composite
def selections(draw):
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    size = int(np.prod(shape))
    array = np.arange(size).reshape(shape)
    kind = draw(st.sampled_from(["slices", "index", "mask", "many"]))
    if kind == "mask":
        mask = np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)), bool).reshape(shape)
        return select(shape, mask), array[mask]
    if kind == "many":
        starts = [[draw(st.integers(0, n - 1)) for n in shape] for _ in range(draw(st.integers(0, 6)))]
        return many(shape, np.array(starts, int).reshape(-1, len(shape))), np.array(
            [array[tuple(s)] for s in starts], int
        )
    index = []
    for n in shape:
        start = draw(st.integers(0, n - 1))
        index.append(slice(start, draw(st.integers(start, n)), draw(st.integers(1, 3))))
    if kind == "index":
        axis = draw(st.integers(0, len(shape) - 1))
        index[axis] = sorted(draw(st.sets(st.integers(0, shape[axis] - 1), max_size=shape[axis])))
        index[axis] = np.array(index[axis], int)
    return select(shape, tuple(index)), array[tuple(index)]


@settings(max_examples=250, deadline=None)
@given(selections())
def test_runs_are_the_elements_and_as_long_as_can_be(case):
    selection, elements = case
    assert as_lists(runs(selection, record=False)) == longest_runs(elements.ravel())


@settings(max_examples=250, deadline=None)
@given(selections())
def test_runs_of_a_record_variable_stop_at_the_end_of_a_record(case):
    selection, elements = case
    inner = int(np.prod(selection.shape[1:]))
    assert as_lists(runs(selection, record=True)) == longest_runs(elements.ravel(), inner)


def test_whole_records_are_one_run_each():
    assert as_lists(runs(select((3, 2, 2), ...), record=True)) == [[0, 4], [4, 4], [8, 4]]
    assert as_lists(runs(select((3,), slice(1, 3)), record=True)) == [[1, 1], [2, 1]]


@settings(max_examples=150, deadline=None)
@given(selections(), st.integers(0, 1000), st.sampled_from([1, 2, 4, 8]), st.integers(0, 64), st.booleans())
def test_every_element_lies_where_the_format_says(case, begin, itemsize, more, record):
    selection, elements = case
    inner = int(np.prod(selection.shape[1:]))
    record_size = inner * itemsize + more
    made = runs(selection, record=record)
    extents = place(made, begin=begin, itemsize=itemsize, inner=inner if record else None, record_size=record_size)
    found = [o + np.arange(n) for o, n in zip(extents.offset, extents.length, strict=True)]
    found = np.concatenate([np.empty(0, int), *found])
    expected = []
    for e in elements.ravel().tolist():
        first = begin + ((e // inner) * record_size + (e % inner) * itemsize if record else e * itemsize)
        expected += range(first, first + itemsize)
    assert found.tolist() == expected
    assert extents.place.tolist() == (np.cumsum(extents.length) - extents.length).tolist()
    assert extents.nbytes == elements.size * itemsize


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(selections(), st.integers(0, 500), st.sampled_from([1, 2, 4, 8]), st.booleans()), max_size=4))
def test_many_variables_are_placed_as_one_by_one(cases):
    record_size = 4096
    columns: list[list[np.ndarray]] = [[np.empty(0, "i8")] for _ in range(7)]
    for (selection, _), begin, itemsize, record in cases:
        inner = int(np.prod(selection.shape[1:]))
        made = runs(selection, record=record)
        each = place(made, begin=begin, itemsize=itemsize, inner=inner if record else None, record_size=record_size)
        full = [np.full(made.start.size, x) for x in (begin, itemsize, inner if record else 0)]
        for column, values in zip(columns, [*full, *made, each.offset, each.length], strict=True):
            column.append(values)
    begin, itemsize, inner, start, length, offset, nbytes = map(np.concatenate, columns)
    found = place_many(begin, itemsize, inner, np.full_like(begin, record_size), start, length)
    np.testing.assert_array_equal(found[0], offset)
    np.testing.assert_array_equal(found[1], nbytes)


def test_a_variable_beyond_four_gigabytes():
    extents = place(
        runs(hyperslab((2**33, 4), (2**33 - 1, 1), (1, 2)), record=True),
        begin=2**40,
        itemsize=8,
        inner=4,
        record_size=4096,
    )
    assert extents.offset.tolist() == [2**40 + (2**33 - 1) * 4096 + 8]
    assert extents.length.tolist() == [16]


def test_columns_are_int64():
    for args in [(), (1,), ([0, 2],), (slice(0, 3, 2), 1), (0, slice(0, 0))]:
        made = runs(select((3, 4), args), record=True)
        extents = place(made, begin=0, itemsize=4, inner=4, record_size=16)
        assert {c.dtype for c in (*made, *extents)} == {np.dtype(np.int64)}


@pytest.mark.parametrize("record", [False, True])
def test_nothing_selected_is_no_runs(record):
    assert runs(select((0, 4), ...), record=record).start.size == 0
    assert runs(select((3, 4), np.zeros((3, 4), bool)), record=record).start.size == 0
