"""Posts of any blocks, over one another in any order: numpy is the model of what is read and of what a flush writes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pnc_vol

SPACE = 64


@st.composite
def blocks(draw: st.DrawFn) -> tuple[Any, Any]:
    """Starts and counts of blocks of one axis, some of them empty."""
    starts = draw(st.lists(st.integers(0, SPACE), max_size=6))
    counts = [draw(st.sampled_from([0, 1, 2, 3, 8, 30])) for _ in starts]
    return np.array(starts, int).reshape(-1, 1), np.minimum(
        np.array(counts, int), SPACE - np.array(starts, int)
    ).reshape(-1, 1)


def extents_of(f: pnc_vol.File) -> Any:
    """Offset and length of what a flush would write, sorted by offset."""
    found = [np.stack(one.extents[:2], 1) for one in f.plan().writes]
    joined = np.concatenate([np.empty((0, 2), int), *found])
    return joined[np.argsort(joined[:, 0], kind="stable")]


@settings(max_examples=80, deadline=None)
@given(posts=st.lists(blocks(), max_size=5), dtype=st.sampled_from(["u1", "i2", "f4", "f8"]), record=st.booleans())
def test_the_last_one_wins_and_each_byte_is_written_once(posts: Any, dtype: str, record: bool) -> None:
    with pnc_vol.File("x.nc", "w", driver="memory") as f:
        x = f.create_dataset("x", (SPACE,), dtype, maxshape=(None,) if record else None)
        f.create_dataset("y", (2,), "i2", maxshape=(None,))
        f.flush()
        model, said = np.zeros(SPACE, dtype), 0
        for starts, counts in posts:
            values = np.arange(said, said + counts.sum()) % 250 + 1
            said += values.size
            x.iput_many(starts, counts, values)
            for start, count, at in zip(starts[:, 0], counts[:, 0], np.cumsum(counts) - counts[:, 0], strict=True):
                model[start : start + count] = values[at : at + count]
            assert x[...].tolist() == model.tolist()
            assert (
                x.iget_many(starts, counts).wait().tolist()
                == np.concatenate(
                    [np.empty(0, dtype), *(model[s : s + c] for s, c in zip(starts[:, 0], counts[:, 0], strict=True))]
                ).tolist()
            )
        extents = extents_of(f)
        assert (extents[:, 1] > 0).all()
        assert (extents[1:, 0] >= extents[:-1].sum(1)).all()
        assert extents[:, 1].sum() == np.count_nonzero(model) * x.dtype.itemsize
        f.flush()
        assert x[...].tolist() == model.tolist()


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("order", ["forwards", "backwards", "shuffled"])
def test_what_adjoins_in_the_file_and_in_memory_is_one_extent(order: str, times: int) -> None:
    rows = np.arange(100)
    if order != "forwards":
        rows = rows[::-1] if order == "backwards" else np.random.default_rng(0).permutation(rows)
    with pnc_vol.File("x.nc", "w", driver="memory") as f:
        x = f.create_dataset("x", (100, 8), "f8")
        for again in range(times):
            for row in rows:
                x[row] = row + again
        # where a row was posted before the one behind it in the file, a piece ends; what is written again leaves none
        assert len(extents_of(f)) == 1 + np.count_nonzero(np.diff(np.argsort(rows)) != 1)
        f.flush()
        assert (x[...] == np.arange(100)[:, None] + times - 1).all()


@pytest.mark.parametrize("n", [1, 2, 3, 100, 1000])
def test_one_post_over_all_others(n: int) -> None:
    with pnc_vol.File("x.nc", "w", driver="memory") as f:
        for name, cover_first in (("first", True), ("last", False)):
            x = f.create_dataset(name, (4 * n,), "i2")
            if cover_first:
                x[...] = -1
            x.iput_many(np.arange(n)[:, None] * 4, np.full((n, 1), 2), np.arange(2 * n))
            if not cover_first:
                x[...] = -1
            assert len(extents_of(f)) == (2 * n if cover_first else 1)
            f.flush()
        pairs = f["first"][...].reshape(n, 4)
        assert pairs[:, :2].ravel().tolist() == list(range(2 * n))
        assert (pairs[:, 2:] == -1).all()
        assert (f["last"][...] == -1).all()


def test_whole_records_lie_between_those_of_others() -> None:
    """Begin, the size of a record and of an element: where each of them says, in a file larger than memory."""
    with pnc_vol.File("x.nc", "w", driver="memory") as f:
        a = f.create_dataset("a", (3, 2, 2), "i4", maxshape=(None, 2, 2))
        f.create_dataset("b", (3,), "i2", maxshape=(None,))
        one = f.create_dataset("one", (3,), "i2")
        f.flush()
        a[...] = 1
        extents = extents_of(f)
        assert extents[:, 1].tolist() == [16] * 3
        assert np.diff(extents[:, 0]).tolist() == [16 + 4] * 2
        f.flush()
        a[1:, 1, 0] = one[1:2] = 2
        assert extents_of(f)[-2:].tolist() == [[extents[1, 0] + 8, 4], [extents[2, 0] + 8, 4]]
        assert len(extents_of(f)) == 3
