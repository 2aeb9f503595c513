"""What a flush says of itself, and what a plan says of it beforehand."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pnc_vol
from pnc_vol.testing.faults import HookedSystem


def test_a_plan_and_what_was_done(tmp_path: pathlib.Path) -> None:
    with pnc_vol.File(tmp_path / "x.nc", "w") as f:
        assert f.statistics()["last_flush"] is None
        x = f.create_dataset("x", (100, 8), "f8")
        for i in range(100):
            x[i] = i
        x[10:20] = 7
        x[:, 2] = 1
        plan = f.plan()
        assert plan[1:3] == (102, 201)
        # What was written later stands elsewhere in memory.
        assert plan[3:] == (3 + 2 * 100, 6400, 0, "", {})
        # through another door, as this one shows what is posted
        with pnc_vol.File(tmp_path / "x.nc", system=HookedSystem()) as before:
            assert list(before) == [], "a plan writes nothing"
        f.flush()
        done = f.statistics()["last_flush"]
        assert tuple(done[name] for name in ("requests", "runs", "extents", "nbytes")) == plan[1:5]
        assert done["transport"] == "independent"
        assert done["seconds"].keys() == {"agree", "layout", "fill", "data", "header"}
        assert sum(done["seconds"].values()) == pytest.approx(f.statistics()["seconds_flush"])
        assert f.plan()[1:5] == (0, 0, 0, 0)
        x[0] = 1
        assert f.plan()[1:5] == (1, 1, 1, 64)


@given(data=st.data())
def test_plans_are_what_is_done(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    """Records among fixed variables, strings that grow, lists of runs, arrays that are lent."""
    path = tmp_path_factory.mktemp("plan") / "x.nc"
    with pnc_vol.File(path, "w") as f:
        f.create_dataset("a", (40, 50), "f4")
        f.create_dataset("r", (6, 30), "i2", maxshape=(None, 30))
        f.create_dataset("q", (6,), "f8", maxshape=(None,))
        f.create_dataset("s", (9,), pnc_vol.string_dtype())
        for _ in range(data.draw(st.integers(1, 8))):
            name = data.draw(st.sampled_from("arqs"))
            ds = f[name]
            start = data.draw(st.integers(0, len(ds) - 1))
            stop = data.draw(st.integers(start + 1, len(ds)))
            way = data.draw(st.sampled_from(["set", "iput", "many"]))
            if name == "s":
                ds[start:stop] = "ab" * data.draw(st.integers(0, 9))
            elif way == "many" and name == "a":
                starts = np.array([[start, 0], [start, 20]])
                ds.iput_many(starts, [[1, 10], [1, 10]], np.ones(20))
            else:
                values = np.ones((stop - start, *ds.shape[1:]), ds.dtype)
                (ds.__setitem__ if way == "set" else ds.iput)(np.s_[start:stop], values)
        plan = f.plan()
        f.flush()
        done = f.statistics()["last_flush"]
        assert plan[1:5] == (done["requests"], done["runs"], done["extents"], done["nbytes"])


def test_the_ways_of_a_plan(tmp_path: pathlib.Path) -> None:
    with pnc_vol.File(tmp_path / "x.nc", "w") as f:
        f["x"] = np.arange(6.0)
        s = f.create_dataset("s", (3,), pnc_vol.string_dtype())
        s[0] = "a"
        s[1] = "longer"
        f["big"] = np.zeros(1 << 17)
        f["big"].iput(np.s_[:], np.ones(1 << 17))
        assert {one.way for one in f.plan().writes} == {"widened", "shared", "streamed"}


def test_a_plan_prints_itself(tmp_path: pathlib.Path) -> None:
    with pnc_vol.File(tmp_path / "x.nc", "w") as f:
        f["x"] = np.arange(6.0)
        begin = f.plan().writes[0].extents.offset[0]
        lines = str(f.plan()).splitlines()
        assert lines[0] == f"{tmp_path / 'x.nc'}: 1 requests, 1 runs -> 1 extents, 48 bytes, 1 writes"
        assert lines[1] == "1 runs of 1 variables, 48 bytes -> 1 extents, 48 bytes, shared"
        assert lines[2].split() == ["file", str(begin), "..", str(begin + 48), "from", "memory", "0"]
        f.flush()
        assert f["x"].id.get_offset() == begin
        assert str(f.plan()) == f"{tmp_path / 'x.nc'}: 0 requests, 0 runs -> 0 extents, 0 bytes, 0 writes"
