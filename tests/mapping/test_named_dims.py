"""Dimensions that a program declares and names."""

import numpy as np
import pytest
from programs import tool

import pnc_vol


def header(path):
    return tool("ncdump", "-h", path)


def test_named_dimensions_are_all_that_the_file_says(tmp_path):
    path = str(tmp_path / "a.nc")
    with pnc_vol.File(path, "w") as f:
        f.create_dimension("time", None)
        f.create_dimension("unused", 5)
        f.create_dimension("chars", 8)
        t = f.create_dataset("t", (0, 3), "f4", maxshape=(None, 3), dims=("time", "lev"))
        date = f.create_dataset("date", (0,), "S8", maxshape=(None,), dims=("time", "chars"))
        time = f.create_dataset("time", (0,), "f8", maxshape=(None,), dims=("time",))
        lev = f.create_dataset("lev", (3,), "f8", dims=("lev",))
        assert time.is_scale
        assert lev.is_scale
        assert t.dims[0][0] == time
        assert t.dims[1][0] == lev
        for ds in (t, date, time):
            ds.resize(2, axis=0)
        t[:] = 1
        date[:] = b"01/02/03"
    text = header(path)
    assert "pnc_vol" not in text
    wanted = ["time = UNLIMITED", "unused = 5", "chars = 8", "lev = 3"]
    assert [line.strip().split(" ;")[0] for line in text.splitlines()[2:6]] == wanted
    assert "float t(time, lev)" in text
    assert "char date(time, chars)" in text
    assert "double time(time)" in text
    with pnc_vol.File(path, "r+") as f:
        assert f["date"][...].tolist() == [b"01/02/03"] * 2
        assert f["t"].dims[1][0] == f["lev"]
        assert f["date"].shape == (2,)
        f["t"].attrs["units"] = "K"
    assert "unused = 5" in header(path)


def test_names_of_a_second_session_meet_the_first_ones(tmp_path):
    path = str(tmp_path / "a.nc")
    with pnc_vol.File(path, "w") as f:
        f.create_dataset("x", data=np.arange(3.0), dims=("x",))
    with pnc_vol.File(path, "a") as f:
        made = f.create_dataset("y", data=np.arange(3), dims=("x",))
        assert made.dims[0][0] == f["x"]
        f.create_dimension("x", 3)
        with pytest.raises(ValueError, match=r"/z: dimension 'x' has length 3, the axis length 4"):
            f.create_dataset("z", (4,), "i4", dims=("x",))
        assert "z" not in f
    assert "int64 y(x)" in header(path)


@pytest.mark.parametrize(
    ("asked", "error", "told"),
    [
        ({"dims": ("x",), "shape": (2, 3)}, ValueError, "dims= has 1 names, the dataset has 2 axes"),
        ({"dims": "x", "shape": (2,)}, TypeError, "a name for each axis is needed"),
        ({"dims": (1,), "shape": (2,)}, TypeError, "a name for each axis is needed"),
        ({"dims": ("a/b",), "shape": (2,)}, ValueError, "cannot be a name in a NetCDF file"),
        ({"dims": ("time",), "shape": (2,)}, ValueError, "dimension 'time' has records, the axis length 2"),
        ({"dims": ("x", "n", "m"), "shape": (2,), "dtype": "S3"}, ValueError, "or one more for the length"),
    ],
)
def test_wrong_names_are_refused_and_nothing_is_made(tmp_path, asked, error, told):
    with pnc_vol.File(tmp_path / "a.nc", "w") as f:
        f.create_dimension("time", None)
        with pytest.raises(error, match=told):
            f.create_dataset("bad", **{"dtype": "f4", **asked})
        assert list(f) == []


@pytest.mark.parametrize(
    ("name", "size", "told"),
    [
        ("time", 4, "has records in this file, length 4 was asked"),
        ("other", None, "has the record dimension 'time' already"),
        ("empty", 0, "its length is 0; give 1 or more"),
        ("a/b", 3, "cannot be a name"),
    ],
)
def test_wrong_dimensions_are_refused(tmp_path, name, size, told):
    with pnc_vol.File(tmp_path / "a.nc", "w") as f:
        f.create_dimension("time", None)
        f.create_dimension("time", None)
        with pytest.raises(ValueError, match=told):
            f.create_dimension(name, size)
    with pnc_vol.File(tmp_path / "a.nc") as f, pytest.raises(ValueError, match="create dimension"):
        f.create_dimension("x", 3)
