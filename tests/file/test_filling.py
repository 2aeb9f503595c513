"""Fill values where nobody wrote: what is posted is not written twice, what failed is filled.

What is read is compared by random programs (`tests/engine`).
"""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

import pnc_vol
from pnc_vol.testing.faults import FaultSystem, TraceSystem


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


@pytest.mark.parametrize("how", ["one", "rows", "chunks", "records"])
def test_more_than_the_budget_is_written_once(tmp_path: pathlib.Path, how: str) -> None:
    values, trace = np.arange(1 << 18, dtype="f8").reshape(256, -1), TraceSystem()
    with pnc_vol.File(tmp_path / "x.nc", "w", system=trace, buffer_size=1 << 18) as f:
        shape, limit = ((0, 1024), (None, 1024)) if how == "records" else (values.shape, values.shape)
        x = f.create_dataset("x", shape, "f8", maxshape=limit, fillvalue=-1.0)
        if how == "records":
            f.flush()
            x.resize(256, axis=0)
        step = {"one": 256, "rows": 1, "chunks": 20, "records": 7}[how]
        for low in range(0, 250, step):
            x[low : min(low + step, 250)] = values[low : min(low + step, 250)]
            if low == step * 3:
                assert np.array_equal(x[: low + step], values[: low + step])
                assert (x[250:] == -1).all()
        assert f.statistics()["bytes_spilled"] == 0
    nbytes = sum(call.nbytes for name in ("pwrite", "pwritev") for call in trace.matching(name=name))
    assert values.nbytes < nbytes < 1.01 * values.nbytes
    with pnc_vol.File(tmp_path / "x.nc") as f:
        assert np.array_equal(f["x"][:250], values[:250])
        assert (f["x"][250:] == -1).all()
