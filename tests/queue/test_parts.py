"""The parts of a write, put together again, are the write."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pnc_vol.extents.place import runs
from pnc_vol.extents.selection import many, select
from pnc_vol.queue.parts import parts, pieces, run_elements
from pnc_vol.testing.strategies import dataset_shapes, selections


def elements(start: Any, length: Any) -> list[int]:
    return [e for s, n in zip(start.tolist(), length.tolist(), strict=True) for e in range(s, s + n)]


@given(
    data=st.data(),
    shape=dataset_shapes(),
    record=st.booleans(),
    most_elements=st.integers(1, 40),
    most_runs=st.integers(1, 10),
)
def test_parts(data: Any, shape: tuple[int, ...], record: bool, most_elements: int, most_runs: int) -> None:
    selection = select(shape, data.draw(selections(shape)))
    if not selection.nelems:
        return
    record = record and bool(shape)
    values = np.arange(selection.nelems).reshape(selection.result_shape)
    whole = runs(selection, record=record)
    found, seen = [], []
    inner = int(np.prod(shape[1:], dtype=int))
    for some, part in parts(selection, values, record=record, most_elements=most_elements, most_runs=most_runs):
        assert 0 < part.size <= most_elements
        assert int(some.length.sum()) == part.size
        assert len(some.start) <= max(1, most_runs) + (2 if record else 0)
        assert not record or (some.start // inner == (some.start + some.length - 1) // inner).all()
        assert not part.size or np.shares_memory(part, values)
        found += elements(*some)
        seen += part.ravel().tolist()
    assert found == elements(*whole)
    assert seen == list(range(selection.nelems))


def test_parts_of_lists_of_subarrays() -> None:
    selection = many((9, 9), [[0, 0], [4, 4], [8, 0]], [[2, 9], [3, 3], [1, 9]])
    values = np.arange(selection.nelems)
    found = [
        (elements(*some), part.tolist())
        for some, part in parts(selection, values, record=True, most_elements=7, most_runs=2)
    ]
    assert [e for some, _ in found for e in some] == elements(*runs(selection, record=True))
    assert [v for _, part in found for v in part] == values.tolist()
    assert max(len(p) for _, p in found) <= 7


@given(st.data(), dataset_shapes())
def test_run_elements_is_what_runs_have(data: Any, shape: tuple[int, ...]) -> None:
    selection = select(shape, data.draw(selections(shape)))
    if selection.nelems:
        count = len(runs(selection, record=False).start)
        assert count <= selection.nelems // run_elements(selection) or selection.listed is not None


def test_pieces_are_views_in_order() -> None:
    values = np.arange(60).reshape(3, 4, 5)[:, ::2]
    for limit in (1, 3, 5, 10, 11, 100):
        found = list(pieces(values, limit))
        assert [part.size <= limit for _, part in found]
        assert [first for first, _ in found] == np.cumsum([0, *(part.size for _, part in found)])[:-1].tolist()
        assert np.concatenate([part.ravel() for _, part in found]).tolist() == values.ravel().tolist()
        assert all(np.shares_memory(part, values) for _, part in found)
    assert list(pieces(np.empty((0, 3)), 4)) == []
