"""Where variables lie after a flush, and that nothing of what lay there before shines through.

Every file is read back by pnc_vol and by netCDF4, and ncvalidator has nothing to say of it.
"""

from __future__ import annotations

import pathlib
import shutil
import subprocess
from typing import Any

import netCDF4
import numpy as np
import pytest
from file_format import decode

import pnc_vol

SMALL = ("i1", "u1", "S1", "i2", "u2")
VERSIONS = {"CDF-1": ("i1", "S1", "i2"), "CDF-2": ("i1", "S1", "i2"), "CDF-5": SMALL}


def header_size(path: pathlib.Path) -> int:
    content = path.read_bytes()
    return decode(content, file_size=len(content)).nbytes


def begins(path: pathlib.Path) -> dict[str, int]:
    content = path.read_bytes()
    return {var.name: var.begin for var in decode(content, file_size=len(content)).header.vars}


def validated(path: pathlib.Path) -> None:
    """Let ncvalidator look at a file."""
    if shutil.which("ncvalidator") is None:
        pytest.skip("ncvalidator is not installed (Debian: pnetcdf-bin)")
    told = subprocess.run(["ncvalidator", str(path)], capture_output=True, text=True)
    assert told.returncode == 0, told.stdout + told.stderr
    assert "is a valid NetCDF classic" in told.stdout + told.stderr
    assert "arning" not in told.stdout + told.stderr


def holds(path: pathlib.Path, wanted: dict[str, Any]) -> None:
    """The file, closed, holds these arrays for us and for netCDF4, and ncvalidator accepts it."""
    with pnc_vol.File(path) as f:
        assert set(f) == set(wanted)
        for name, values in wanted.items():
            np.testing.assert_array_equal(f[name][...], values)
    with netCDF4.Dataset(path) as nc:
        nc.set_auto_mask(False)
        for name, values in wanted.items():
            # Text has an axis of characters more.
            np.testing.assert_array_equal(nc[name][: len(values)].reshape(np.shape(values)), values)
    validated(path)


# ------------------------------------------------------------------------------------ what was there


def test_posts_beyond_a_cut_are_dropped(path: pathlib.Path) -> None:
    with pnc_vol.File(path, "w") as f:
        r = f.create_dataset("r", (4, 2), "i2", maxshape=(None, 2))
        gone = r.iput(slice(2, 4), [[1, 2], [3, 4]])
        kept = r.iput((slice(None), 1), [5, 6, 7, 8])
        r.resize(1, axis=0)
        r.resize(3, axis=0)
        assert r[:].tolist() == [[0, 5], [0, 0], [0, 0]]
        f.flush()
        assert gone.status == kept.status == "done"
    holds(path, {"r": [[0, 5], [0, 0], [0, 0]]})


def test_bytes_behind_the_data_are_no_cause_for_a_warning_and_do_not_shine_through(path: pathlib.Path) -> None:
    with pnc_vol.File(path, "w") as f:
        f["a"] = [1, 2, 3]
    with path.open("ab") as raw:
        raw.write(b"\xff" * 500_000)
    with pnc_vol.File(path, "r+", buffer_size=64 << 10) as f:
        f.create_dataset("b", (5,), "i4")
        f.create_dataset("c", (20_000,), "i8")[1:] = 7
        assert f["c"][0] == 0
        f.create_dataset("d", (2,), "i8")
    with pnc_vol.File(path) as f:
        assert f["b"][:].tolist() == [0] * 5
        assert f["c"][0] == 0
        assert (f["c"][1:] == 7).all()
        assert f["d"][:].tolist() == [0, 0]


# -------------------------------------------------------------------------------------- where things lie


def test_a_file_is_packed_if_its_first_flush_is_the_close(path: pathlib.Path) -> None:
    with pnc_vol.File(path, "w") as f:
        f["a"] = np.arange(3.0)
        f["b"] = np.arange(5, dtype="i2")
        f.create_dataset("r", data=np.ones((2, 3), "i1"), maxshape=(None, 3))
        f.attrs["text"] = "some words"
    assert begins(path)["a"] == -(-header_size(path) // 8) * 8
    assert begins(path)["b"] == begins(path)["a"] + 24
    assert begins(path)["r"] == begins(path)["b"] + 12
    assert path.stat().st_size == begins(path)["r"] + 6
    holds(path, {"a": np.arange(3.0), "b": np.arange(5), "r": np.ones((2, 3))})


def test_begins_stay_while_the_header_grows_inside_its_reserve(path: pathlib.Path) -> None:
    with pnc_vol.File(path, "w") as f:
        f["a"] = [1.0, 2.0]
        f.create_dataset("r", data=[1, 2], maxshape=(None,))
        f.flush()
        before, inode = begins(path), path.stat().st_ino
        for i in range(40):
            f.attrs[f"attribute{i}"] = np.arange(i, dtype="i2")
            f.flush()
            assert begins(path) == before
        f.create_group("g").attrs["x"] = 1
        f["a"].attrs["units"] = "m"
        f["r"].resize(3, axis=0)
        f.flush()
        assert begins(path) == before
        assert f.statistics().get("moves", 0) == 0
    assert path.stat().st_ino == inode
    with pnc_vol.File(path) as f:
        assert f["a"][:].tolist() == [1, 2]
        assert f["r"][:].tolist() == [1, 2, 0]
        assert f.attrs["attribute39"].tolist() == list(range(39))
    validated(path)


def test_a_header_beyond_its_reserve_moves_the_data_and_doubles_the_region(path: pathlib.Path) -> None:
    fixed = np.arange(30_000.0).reshape(300, 100)
    records = np.arange(7 * 11, dtype="i2").reshape(7, 11)
    other = np.arange(7, dtype="i1")
    with pnc_vol.File(path, "w") as f:
        f["fixed"] = fixed
        f.create_dataset("records", data=records, maxshape=(None, 11))
        f.create_dataset("other", data=other, maxshape=(None,))
        f.flush()
        before = begins(path)
        f.attrs["long"] = np.arange(3000, dtype="i4")
        f["fixed"][3] = fixed[3] = -1
        f.flush()
        after = begins(path)
        assert f.statistics()["moves"] == 1
        assert after["fixed"] >= 2 * before["fixed"]
        np.testing.assert_array_equal(f["fixed"][:], fixed)
        f.attrs["short"] = 1
        f.flush()
        assert begins(path) == after
    holds(path, {"fixed": fixed, "records": records, "other": other})
    with pnc_vol.File(path, "r+") as f:
        f.attrs["longer"] = np.arange(20_000, dtype="i4")
    holds(path, {"fixed": fixed, "records": records, "other": other})


@pytest.mark.parametrize("ways", [{}, {"fillvalue": 7}])
@pytest.mark.parametrize("fixed_before", [True, False])
def test_datasets_that_come_one_by_one_before_records_move_these_once(
    path: pathlib.Path, ways: dict[str, int], fixed_before: bool
) -> None:
    """Each lies in front of the records, whose place the first one takes, with space for those that follow."""
    records, wanted = np.arange(30_000.0).reshape(3000, 10), {}
    with pnc_vol.File(path, "w", header_reserve=1 << 14) as f:
        if fixed_before:
            f["fixed"] = wanted["fixed"] = np.arange(5.0)
        f.create_dataset("r", data=records, maxshape=(None, 10), **ways)
        f.flush()
        for i in range(60):
            f.create_dataset(f"x{i}", (4,), "i2", **ways)
            if i % 2:
                f[f"x{i}"][1] = 3
            if i == 40:
                f["r"].resize(3002, axis=0)
            f.flush()
        assert f.statistics()["moves"] == 1
    for i in range(60, 63):
        with pnc_vol.File(path, "r+") as f:
            f.create_dataset(f"x{i}", (4,), "i2", **ways)[1:2] = 3
            f.flush()
            assert f.statistics().get("moves", 0) == 0
    for i in range(63):
        wanted[f"x{i}"] = np.full(4, ways.get("fillvalue", 0))
        wanted[f"x{i}"][1] = 3 if i % 2 or i >= 60 else wanted[f"x{i}"][1]
    wanted["r"] = np.concatenate([records, np.full((2, 10), ways.get("fillvalue", 0))])
    holds(path, wanted)


def test_the_space_before_records_is_a_small_part_of_the_file(path: pathlib.Path) -> None:
    with pnc_vol.File(path, "w") as f:
        f.create_dataset("r", data=np.zeros((1000, 1000)), maxshape=(None, 1000))
        f.flush()
        before = path.stat().st_size
        f["x"] = np.zeros(1000)
        f.flush()
        assert before < path.stat().st_size < 1.07 * before
        # what is larger than the space moves the records again
        f["y"] = np.zeros(125_000)
        f.flush()
        assert f.statistics()["moves"] == 2
    holds(path, {"r": np.zeros((1000, 1000)), "x": np.zeros(1000), "y": np.zeros(125_000)})


def test_strings_that_grow_byte_by_byte_are_moved_a_few_times(path: pathlib.Path) -> None:
    """A string beyond the width of its variable makes this a quarter wider at least."""
    kind = pnc_vol.string_dtype()
    with pnc_vol.File(path, "w", header_reserve=1 << 14) as f:
        f.create_dataset("one", data="a" * 8, dtype=kind)
        f.create_dataset("many", data=["b"] * 3, dtype=kind)
        f["behind"] = np.arange(1000.0)
        f.create_dataset("r", (0,), kind, maxshape=(None,))
        f.flush()
        for i in range(9, 60):
            f["one"][()] = f["many"][1] = "c" * i
            f["r"].resize(i, axis=0)
            f["r"][i - 1] = "d" * i
            f.flush()
        assert 1 < f.statistics()["moves"] <= 20
        f["many"][0] = "e" * 200
    with pnc_vol.File(path) as f:
        assert f["one"][()] == b"c" * 59
        assert f["many"][:].tolist() == [b"e" * 200, b"c" * 59, b"b"]
        assert f["r"][:].tolist() == [b""] * 8 + [b"d" * i for i in range(9, 60)]
        assert f["behind"][:].tolist() == list(range(1000))
    with netCDF4.Dataset(path) as nc:
        # one that grows by more than a quarter is as wide as it has to be
        assert nc["many"].shape == (3, 200)
    validated(path)


@pytest.mark.parametrize(("version", "kind"), [(v, kind) for v, kinds in VERSIONS.items() for kind in kinds])
@pytest.mark.parametrize("inner", [(), (3,), (5,)])
def test_a_second_record_variable_beside_a_lone_small_one(
    path: pathlib.Path, version: str, kind: str, inner: tuple[int, ...]
) -> None:
    """The records of a lone variable have no padding; a second variable brings it."""
    values = np.arange(1, 7 * int(np.prod(inner, dtype=int)) + 1).reshape(7, *inner)
    values = (values + 48).astype("u1").view("S1") if kind == "S1" else values.astype(kind)
    with pnc_vol.File(path, "w", format=version) as f:
        f.create_dataset("lone", data=values, maxshape=(None, *inner))
        f.flush()
        validated(path)
        f.create_dataset("second", data=np.arange(4.0), maxshape=(None,))
        np.testing.assert_array_equal(f["lone"][...], values)
        f.flush()
        np.testing.assert_array_equal(f["lone"][...], values)
    with pnc_vol.File(path) as f:
        assert f["second"][:].tolist() == [0, 1, 2, 3]
        np.testing.assert_array_equal(f["lone"][...], values)
    validated(path)
    with pnc_vol.File(path, "r+") as f:
        del f["second"]
    holds(path, {"lone": values})
    assert path.stat().st_size == begins(path)["lone"] + values.nbytes


# -------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize("reserve", [0, 1000, 100_000])
def test_header_reserve(path: pathlib.Path, reserve: int) -> None:
    with pnc_vol.File(path, "w", header_reserve=reserve) as f:
        f["a"] = np.arange(10, dtype="i2")
    free = begins(path)["a"] - header_size(path)
    assert reserve <= free < reserve + 4
    holds(path, {"a": np.arange(10)})


def test_alignment(path: pathlib.Path) -> None:
    with pnc_vol.File(path, "w", var_align=512, record_align=4096) as f:
        f["a"] = np.arange(10, dtype="i2")
        f.create_dataset("r", data=[1, 2], maxshape=(None,))
    assert begins(path)["a"] % 512 == 0
    assert begins(path)["r"] % 4096 == 0
    holds(path, {"a": np.arange(10), "r": [1, 2]})


@pytest.mark.parametrize("version", ["CDF-1", "CDF-2", "CDF-5"])
def test_a_file_that_was_drained_keeps_what_went_ahead_where_it_is(path: pathlib.Path, version: str) -> None:
    big, small = np.arange(40_000.0), np.arange(3, dtype="i2")
    with pnc_vol.File(path, "w", buffer_size=64 << 10, format=version) as f:
        f["small"] = small
        f["big"] = big
        assert f.statistics()["bytes_drained"] >= big.nbytes
        f.create_dataset("r", data=small, maxshape=(None,))
        f.create_dataset("filled", (4,), "i4", fillvalue=9)
        f["late"] = small
        f.flush()
        assert f.statistics().get("moves", 0) == 0
    holds(path, {"small": small, "big": big, "r": small, "filled": [9] * 4, "late": small})


def test_a_file_without_variables_ends_with_its_header(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "short.nc"
    with pnc_vol.File(path, "w") as f:
        f.create_group("a group").attrs["about"] = "much " * 100
    with pnc_vol.File(path, "r+") as f:
        del f["a group"]
        f.attrs["a"] = 1
    assert path.stat().st_size == header_size(path)
    validated(path)
    with pnc_vol.File(path) as f:
        assert (list(f), dict(f.attrs)) == ([], {"a": 1})
