"""Where variables begin, and what moves when definitions change; netCDF4 reads what is there before and after."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs import needed, tool

import pnc_vol
from pnc_vol.errors import DefinitionError

SMALL = {"i1": (1, 2, 5), "S1": (1, 2, 5), "i2": (1, 2, 5), "u1": (5,), "u2": (5,)}
"""Types of less than four bytes, and the versions that have them: their records are padded, but for a lone one."""
TYPES = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"]


def numbers(dtype: str, shape: tuple[int, ...], seed: int = 1) -> Any:
    data = np.random.default_rng(seed).integers(1, 120, shape, np.uint8)
    return data.view("S1") if dtype == "S1" else data.astype(dtype)


def agree(path: Path, values: dict[str, Any]) -> None:
    """A file is valid to PnetCDF without a warning, and netCDF4 and we read these values."""
    done = subprocess.run([needed("ncvalidator"), str(path)], capture_output=True, text=True, timeout=60)
    said = done.stdout + done.stderr
    # what was deleted may leave room behind
    assert done.returncode == 0 or "larger than expected" in said, said
    assert "arning" not in said, said
    with netCDF4.Dataset(path) as theirs, pnc_vol.File(path) as ours:
        theirs.set_auto_maskandscale(False)
        theirs.set_auto_chartostring(False)
        assert set(theirs.variables) == set(ours) == set(values)
        for name, wanted in values.items():
            np.testing.assert_array_equal(ours[name][...], wanted)
            found = theirs[name][...]
            # a dataset with fewer records than others have
            found = found[: len(wanted)] if wanted.ndim else found
            np.testing.assert_array_equal(found.reshape(wanted.shape), wanted)


def moved(f: Any) -> int:
    return f.statistics().get("moves", 0)


def begins(path: Path) -> dict[str, int]:
    """Where fixed variables begin; the record section, as `r` of one element a record has it."""
    with pnc_vol.File(path) as f:
        return {name: f[name].id.get_offset() for name in f if f[name].maxshape == f[name].shape}


@st.composite
def shapes(draw: st.DrawFn) -> tuple[tuple[int, ...], bool]:
    shape = tuple(draw(st.lists(st.integers(1, 5), max_size=3)))
    return shape, bool(shape) and draw(st.booleans())


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    variables=st.lists(st.tuples(shapes(), st.sampled_from(TYPES)), max_size=5),
    steps=st.tuples(*[st.sampled_from([4, 8, 64, 512])] * 2),
    reserve=st.sampled_from([0, 999, 4096]),
)
def test_a_new_file_keeps_all_rules(variables: Any, steps: tuple[int, int], reserve: int, tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "w", var_align=steps[0], record_align=steps[1], header_reserve=reserve) as f:
        for i, ((shape, record), dtype) in enumerate(variables):
            f.create_dataset(f"v{i}", shape, dtype, maxshape=(None, *shape[1:]) if record else None)[...] = i + 1
    agree(path, {f"v{i}": np.full(shape, i + 1, dtype) for i, ((shape, _), dtype) in enumerate(variables)})
    found = list(begins(path).items())
    end = reserve
    for name, begin in found:
        (shape, _), dtype = variables[int(name[1:])]
        assert begin >= end
        assert begin % (8 if np.dtype(dtype).itemsize == 8 else 4) == 0
        end = begin + int(np.prod(shape)) * np.dtype(dtype).itemsize
    assert not found or found[0][1] % steps[0] in (0, 4)


def test_alignment_refuses_nonsense(tmp_path: Path) -> None:
    for name in ("var_align", "header_reserve"):
        with pytest.raises(ValueError, match=name):
            pnc_vol.File(tmp_path / "x.nc", "w", **{name: -1})


@pytest.mark.parametrize("version", [1, 2, 5])
@pytest.mark.parametrize("dtype", SMALL)
def test_a_second_record_variable_joins_a_small_lone_one(dtype: str, version: int, tmp_path: Path) -> None:
    path, options = tmp_path / "x.nc", {"format": f"CDF-{version}", "header_reserve": 400}
    with pnc_vol.File(path, "w", **options) as f:
        if version not in SMALL[dtype]:
            with pytest.raises(DefinitionError, match=f"CDF-{version} has no type .*format='CDF-5'"):
                f.create_dataset("a", (5, 3), dtype, maxshape=(None, 3))
            return
        a = numbers(dtype, (5, 3))
        f.create_dataset("a", data=a, maxshape=(None, 3))
    size = os.path.getsize(path)
    agree(path, {"a": a})
    for rows in (5, 1):
        b = numbers("i2", (rows, 3), 2)
        with pnc_vol.File(path, "r+") as f:
            f["a"].resize(rows, axis=0)
            f.flush()
            f.create_dataset("b", data=b, maxshape=(None, 3))
        agree(path, {"a": a[:rows], "b": b})
        with pnc_vol.File(path, "r+") as f:
            del f["b"]
        agree(path, {"a": a[:rows]})
    lone = 5 * 3 * np.dtype(dtype).itemsize
    assert lone <= size - 400 < lone + 400, "five records without padding"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A fixed and a record variable behind a header region of 1024 bytes, and a gap before the records."""
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "w", header_reserve=1024 - 200, record_align=512) as f:
        f["a"] = np.arange(5, dtype="i4")
        f.create_dataset("r", data=np.arange(10, dtype="i4").reshape(2, 5), maxshape=(None, 5))
    return path


@pytest.mark.parametrize("fixed", [True, False])
def test_no_gap_is_left_where_records_would_begin(tmp_path: Path, fixed: bool) -> None:
    path, values = tmp_path / "x.nc", {"a": np.arange(5, dtype="i4")} if fixed else {}
    values["r"] = np.zeros((0, 3), "i4")
    with pnc_vol.File(path, "w", record_align=1024) as f:
        f.create_dataset("r", (0, 3), "i4", maxshape=(None, 3))
        if fixed:
            f["a"] = values["a"]
    for rows in (0, 2, 0):
        with pnc_vol.File(path, "r+", record_align=1024) as f:
            f["r"].resize(rows, axis=0)
            f["r"][:] = 5
        agree(path, values | {"r": np.full((rows, 3), 5)})
        tool("ncvalidator", "-q", path)


def test_a_file_without_data_ends_with_its_header(tmp_path: Path) -> None:
    path, made = tmp_path / "x.nc", tmp_path / "made.nc"

    def ends() -> None:
        for one in (path, made):
            tool("ncvalidator", "-q", one)
        pnc_vol.repack(path, made, overwrite=True, header_reserve=1000)

    with pnc_vol.File(path, "w") as f:
        f.create_group("group")
        f.attrs["history"] = "h" * 100
        f.create_dataset("r", (0, 3), "i4", maxshape=(None, 3))
    made.write_bytes(path.read_bytes())
    ends()
    for name in ("history", "group", "r"):
        with pnc_vol.File(path, "r+") as f:
            del (f.attrs if name == "history" else f)[name]
        ends()


def test_a_header_that_fits_its_region_moves_nothing_and_one_that_outgrows_it_moves_once(old: Path) -> None:
    region, values = begins(old)["a"], {"a": np.arange(5), "r": np.arange(10).reshape(2, 5)}
    for nbytes, moves in ((region // 2, 0), (region * 3 // 2, 1), (region * 8 // 5, 0)):
        with pnc_vol.File(old, "r+") as f:
            f.attrs["history"] = "h" * nbytes
            f.flush()
            assert moved(f) == moves, nbytes
        agree(old, values)
    # the region was doubled at least
    assert begins(old)["a"] >= 2 * region


def test_new_fixed_variables_use_the_room_before_the_records(old: Path) -> None:
    values = {"a": np.arange(5), "r": np.arange(10).reshape(2, 5)}
    for name, count, moves in (("b", 4, 0), ("large", 1000, 1)):
        with pnc_vol.File(old, "r+") as f:
            f[name] = values[name] = np.arange(float(count))
            f.flush()
            assert moved(f) == moves, name
        agree(old, values)


def test_records_give_way_while_there_are_none(tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "w") as f:
        f["a"] = np.arange(5, dtype="i4")
        f.create_dataset("r", (0, 5), "i4", maxshape=(None, 5))
        f.flush()
        f["b"] = np.arange(500)
        f.flush()
        assert moved(f) == 0
    agree(path, {"a": np.arange(5), "b": np.arange(500), "r": np.zeros((0, 5))})
