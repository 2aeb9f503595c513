"""Which files have the marker, and what it says there."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from everything import portrait

import pnc_vol as h5py
from pnc_vol.format.decode import decode
from pnc_vol.format.model import Header
from pnc_vol.mapping.names import MARKER


def header_of(path: Path) -> Header:
    data = path.read_bytes()
    return decode(data, file_size=len(data)).header


def marker_names(header: Header) -> set[str]:
    every = (header.attrs, *(var.attrs for var in header.vars))
    return {attr.name for attrs in every for attr in attrs} & {MARKER}


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


def test_the_name_of_the_marker_is_allowed_by_cf() -> None:
    """CF 2.3: a letter, then letters, digits and underscores."""
    assert MARKER[0].isalpha()
    assert MARKER.isidentifier()
    assert MARKER.isascii()


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
    assert marker_names(header_of(path)) == set()
    with h5py.File(path) as f:
        assert [dim.keys() for dim in f["t"].dims] == [["time"], ["lat"], []]
        assert f["t"].dims[2].label == "level"
        assert f["t"].dims[1]["lat"] == f["lat"]
    with h5py.File(path, "w") as f:
        f["g/h/x"] = 1
        f["a/y"] = 2
    assert not header_of(path).attrs, "paths of the variables name all groups"
    whole = portrait(path)
    assert whole["/g"][0] == ["h"]
    with h5py.File(path, "w") as f:
        f.create_group("empty")
    assert b'"groups":["/empty"]' in header_of(path).attrs[0].data


def test_groups_that_paths_name_in_another_order_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "order.nc"
    with h5py.File(path, "w") as f:
        f.create_group("b")
        f["a/x"] = 1
        f["b/x"] = 1
    assert b'"groups":["/b","/a"]' in header_of(path).attrs[0].data


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
    names = {var.name: [attr.data for attr in var.attrs] for var in header_of(path).vars}
    assert names == {
        "own": [],
        "empty": [b'{"scale":""}'],
        "other": [b'{"scale":"name"}'],
        "g_deep": [b'{"path":"/g/deep"}'],
        "there": [b'{"scale":"moved"}'],
    }
    with h5py.File(path) as f:
        found = {name: f[name].id.node.scale for name in ("own", "empty", "other", "g/deep", "there")}
    assert found == {"own": "own", "empty": "", "other": "name", "g/deep": "deep", "there": "moved"}


@pytest.mark.skipif(shutil.which("ncdump") is None, reason="ncdump is not installed (Debian: netcdf-bin)")
def test_other_programs_show_the_marker(tmp_path: Path) -> None:
    path = tmp_path / "half.nc"
    with h5py.File(path, "w") as f:
        f["half"] = np.float16(1)
    text = subprocess.run(["ncdump", "-h", str(path)], check=True, capture_output=True, text=True).stdout
    assert f"half:{MARKER} = " in text


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
