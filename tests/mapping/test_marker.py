"""Which files have the marker, and what it says there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from everything import portrait
from plain_header import read_plainly
from programs import tool

import pnc_vol as h5py

MARKER = "pnc_vol_hdf5"


def markers(path: Path) -> dict[str, bytes]:
    """The markers in a header, by the name of the variable, "" of the file."""
    _, _, attrs, variables = read_plainly(path.read_bytes())
    every = [("", attrs), *((name, own) for name, _, own, _ in variables)]
    return {name: data for name, own in every for attr, _, _, data in own if attr == MARKER}


def test_a_user_may_have_an_attribute_of_this_name(tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    with h5py.File(path, "w") as f:
        f["x"] = 1.5
        f.create_group("g")
        for owner in (f, f["x"], f["g"]):
            owner.attrs[MARKER] = "mine"
    with h5py.File(path, "r+") as f:
        f["y"] = 2
    with h5py.File(path) as f:
        for owner in (f, f["x"], f["g"]):
            assert list(owner.attrs) == [MARKER]
            assert owner.attrs[MARKER] == "mine"


def test_what_netcdf_says_has_no_marker(tmp_path: Path) -> None:
    """Coordinate variables, labels, strings, bools, complex numbers, records, fill values and paths say it all."""
    path = tmp_path / "plain.nc"
    with h5py.File(path, "w") as f:
        f["lat"], f["flag"], f["text"] = [1.0, 2.0], [True, False], ["a", "bc"]
        f["lat"].make_scale("lat")
        f.create_dataset("time", (3,), "f8", maxshape=(None,)).make_scale("time")
        t = f.create_dataset("t", (3, 2, 4), "f4", maxshape=(None, 2, 4), fillvalue=-1)
        t.dims[0].attach_scale(f["time"])
        t.dims[1].attach_scale(f["lat"])
        t.dims[2].label = "level"
        f["z"] = np.array([1j])
        f["S"] = np.array([b"abc", b"d"])
    assert markers(path) == {}
    with h5py.File(path) as f:
        assert [dim.keys() for dim in f["t"].dims] == [["time"], ["lat"], []]
        assert f["t"].dims[2].label == "level"
        assert f["t"].dims[1]["lat"] == f["lat"]
    with h5py.File(path, "w") as f:
        f["g/h/x"] = 1
        f["a/y"] = 2
    assert "" not in markers(path), "paths of the variables name all groups"
    whole = portrait(path)
    assert whole["/g"][0] == ["h"]
    with h5py.File(path, "w") as f:
        f.create_group("empty")
    assert b'"groups":["/empty"]' in markers(path)[""]


def test_groups_that_paths_name_in_another_order_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "order.nc"
    with h5py.File(path, "w") as f:
        f.create_group("b")
        f["a/x"] = 1
        f["b/x"] = 1
    assert b'"groups":["/b","/a"]' in markers(path)[""]


def test_a_scale_keeps_a_name_that_is_not_its_own(tmp_path: Path) -> None:
    path = tmp_path / "scales.nc"
    with h5py.File(path, "w") as f:
        for name, scale in {"own": "own", "empty": "", "other": "name"}.items():
            f[name] = [1.0, 2.0]
            f[name].make_scale(scale)
        f["g/deep"] = [1.0, 2.0]
        f["g/deep"].make_scale("deep")
        f["moved"] = [1.0, 2.0]
        f["moved"].make_scale("moved")
        f.move("moved", "there")
    assert markers(path) == {
        "empty": b'{"scale":""}',
        "other": b'{"scale":"name"}',
        "g_deep": b'{"path":"/g/deep"}',
        "there": b'{"scale":"moved"}',
    }
    with h5py.File(path) as f:
        found = {name: f[name].attrs.get("NAME") for name in ("own", "empty", "other", "g/deep", "there")}
    assert found == {"own": b"own", "empty": b"", "other": b"name", "g/deep": b"deep", "there": b"moved"}


def test_other_programs_show_the_marker(tmp_path: Path) -> None:
    path = tmp_path / "half.nc"
    with h5py.File(path, "w") as f:
        f["half"] = np.float16(1)
    assert f"half:{MARKER} = " in tool("ncdump", "-h", path)


@pytest.mark.nightly
def test_compliance_checker_has_no_finding(tmp_path: Path) -> None:
    """What a script writes with groups, types that need a marker, square datasets and scales is what CF asks for."""
    pytest.importorskip("compliance_checker", reason="compliance-checker is not installed (pip, and udunits2)")
    path = tmp_path / "cf.nc"
    with h5py.File(path, "w") as f:
        f["lat"], f["time"] = np.array([-45, 0, 45], "f4"), np.arange(2.0)
        f["sst"] = np.zeros((2, 3), "f4")
        f["run/square"], f["half"] = np.zeros((3, 3)), np.array([1.5], "f2")
        f["names"], f["flag"] = ["a", "bc"], np.array([True, False])
        for name in ("sst", "run/square", "half", "names", "flag"):
            f[name].attrs["long_name"] = name
        for name in ("sst", "run/square", "half"):
            f[name].attrs["units"] = "1"
        f["lat"].attrs.update(units="degrees_north", standard_name="latitude", axis="Y")
        f["time"].attrs.update(units="days since 2020-01-01", standard_name="time", calendar="standard", axis="T")
        for axis, name in enumerate(("time", "lat")):
            f[name].make_scale(name)
            f["sst"].dims[axis].attach_scale(f[name])
        for name in ("title", "history", "institution", "source", "references", "comment"):
            f.attrs[name] = name
        f.attrs["Conventions"] = "CF-1.8"
    program = Path(sys.executable).with_name("compliance-checker")
    command = [str(program), "--test=cf:1.8", "--criteria=strict", "--format=json", "--output=-", str(path)]
    found = subprocess.run(command, capture_output=True, text=True)
    assert '"scored_points"' in found.stdout, found
    report = json.loads(found.stdout[found.stdout.index("{") :])
    if "cf:1.8" in report:
        report = report["cf:1.8"]
    assert report["scored_points"] == report["possible_points"], report
