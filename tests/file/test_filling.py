"""Fill values where nobody wrote: what is read, and that what is posted is not written twice."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pnc_vol
from pnc_vol.testing.faults import FaultSystem, TraceSystem

FILL = -7
spans = st.tuples(st.integers(0, 19), st.integers(0, 19)).map(lambda ends: slice(min(ends), max(ends) + 1))


@settings(max_examples=60, deadline=None)
@given(
    flushes=st.lists(st.lists(spans, max_size=4), min_size=1, max_size=3),
    growing=st.booleans(),
    holes=st.booleans(),
)
def test_what_nobody_wrote_is_the_fill_value(flushes: list[list[slice]], growing: bool, holes: bool) -> None:
    wanted = np.full((0 if growing else 20, 3), FILL, "i4")
    with pnc_vol.File("fill.nc", "w", driver="memory") as f:
        x = f.create_dataset("x", wanted.shape, "i4", maxshape=(None, 3) if growing else None, fillvalue=FILL)
        other = f.create_dataset("other", (0,), "i2", maxshape=(None,))
        for n, posts in enumerate(flushes):
            for at, rows in enumerate(posts):
                if growing and rows.stop > len(wanted):
                    x.resize(rows.stop, axis=0)
                    wanted = np.concatenate([wanted, np.full((rows.stop - len(wanted), 3), FILL, "i4")])
                part = (rows, slice(0, 2)) if holes else rows
                x[part] = wanted[part] = 10 * n + at
            other.resize(3 * n, axis=0)
            f.flush()
            assert np.array_equal(x[...], wanted)


def written(path: pathlib.Path, nbytes: int, **how: object) -> int:
    """Bytes that a program writes for a variable of `nbytes` bytes with a fill value, all of which it posts."""
    values = np.arange(nbytes // 8, dtype="f8").reshape(64, -1)
    trace = TraceSystem()
    with pnc_vol.File(path, "w", system=trace) as f:
        x = f.create_dataset("x", values.shape, "f8", fillvalue=-1.0, **how)
        for i, row in enumerate(values):
            x[i] = row
    with pnc_vol.File(path) as f:
        assert np.array_equal(f["x"][...], values)
    return sum(call.nbytes for name in ("pwrite", "pwritev") for call in trace.matching(name=name))


@pytest.mark.parametrize("growing", [False, True])
def test_what_is_posted_is_not_filled(tmp_path: pathlib.Path, growing: bool) -> None:
    nbytes = 4 << 20
    how = {"maxshape": (None, nbytes // 8 // 64)} if growing else {}
    assert nbytes < written(tmp_path / "x.nc", nbytes, **how) < 1.01 * nbytes


def test_a_hole_is_filled_and_nothing_else(tmp_path: pathlib.Path) -> None:
    trace = TraceSystem()
    with pnc_vol.File(tmp_path / "x.nc", "w", system=trace) as f:
        x = f.create_dataset("x", (1 << 20,), "f8", fillvalue=-1.0)
        x[: 1 << 19], x[(1 << 19) + 5 :] = 1, 2
    assert sum(call.nbytes for name in ("pwrite", "pwritev") for call in trace.matching(name=name)) < 8.1 * (1 << 20)
    with pnc_vol.File(tmp_path / "x.nc") as f:
        assert f["x"][(1 << 19) - 1 : (1 << 19) + 6].tolist() == [1, -1, -1, -1, -1, -1, 2]


@pytest.mark.parametrize("fail_at", range(2, 7))
def test_a_post_that_failed_and_is_cancelled_leaves_the_fill_value(tmp_path: pathlib.Path, fail_at: int) -> None:
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "w", system=FaultSystem(fail_at=fail_at)) as f:
        x = f.create_dataset("x", (1000,), "f8", fillvalue=-1.0)
        x[100:200] = 3.0
        try:
            f.flush()
        except OSError:
            f.cancel()
            f.flush()
    with pnc_vol.File(path) as f:
        found = f["x"][...]
    # Where the header failed the values were in the file by then, and stay.
    assert set(found[100:200]) in ({-1.0}, {3.0})
    found[100:200] = -1
    assert set(found) == {-1.0}
