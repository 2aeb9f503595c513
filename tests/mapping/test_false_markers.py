"""What markers say is never trusted: a generated catalogue of lies; the engine's mutants draw others from it.

``PNC_VOL_LIES=1 pytest`` goes through all of the catalogue, which takes some minutes; else each 37th or 89th is taken,
prime to the number of lies about a value, so that each kind of lie is met, and each marker.
"""

from __future__ import annotations

import json
import os
import resource
import time
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import everything
import false_markers
import netCDF4
import numpy as np
import pytest

import pnc_vol
from pnc_vol.errors import PncVolWarning

ALL = bool(os.environ.get("PNC_VOL_LIES"))
SLOWEST = 20.0
"""Seconds of processor time that no case may take, on any machine."""
MEMORY = 300 << 20
MARKER = "pnc_vol_hdf5"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lies")


@cache
def original(folder: Path, section: str) -> tuple[bytes, Any, dict[str, Any]]:
    """The file of a section, its header, and by name of a variable its values without any marker."""
    path = folder / f"{section}.nc"
    everything.write(path, section)
    pnc_vol.repack(path, header_reserve=false_markers.ROOM)
    raw = path.read_bytes()
    header = false_markers.header_of(raw)
    plain = header
    for name, _ in list(false_markers.markers(header)):
        plain = false_markers.with_marker(plain, name, None)
    path = path.with_suffix(".plain.nc")
    path.write_bytes(false_markers.content(false_markers.Case("", plain), raw))
    with pnc_vol.File(path) as f:
        return raw, header, {node.cdf_name: f[node.path][()] for node in f.id.node.tree.datasets.values()}


# ------------------------------------------------------------------------------------------------- one file


def assert_harmless(path: Path, plain: dict[str, Any]) -> bool:
    """Look at all of a file; True if something was found to be wrong."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pnc_vol.File(path) as f:
            opened = [warning for warning in caught if warning.category is PncVolWarning]
            assert len(opened) <= 1
            shown = portrait(f)
            for node in list(f.id.node.tree.datasets.values()):
                if node.element.kind == "number" and not node.is_placeholder and node.owner is None and node.parent:
                    # numbers are those of the file, as many of them as there are
                    found, there = np.ravel(f[node.path][()]), np.ravel(plain.get(node.cdf_name, ()))
                    if node.cdf_name in plain and found.dtype.kind == there.dtype.kind:
                        np.testing.assert_array_equal(found, there[: found.size])
    for warning in caught:
        assert issubclass(warning.category, PncVolWarning), warning
    findings = pnc_vol.check(path)
    assert all(finding.severity == "warning" for finding in findings)
    assert len(findings) >= bool(caught)
    if findings:
        return True
    # nothing is wrong with what is said: it is what the library itself writes of what is shown
    with pnc_vol.File(path, "r+") as f:
        f.create_group("made_later")
    assert pnc_vol.check(path) == []
    with pnc_vol.File(path, "r+") as f:
        del f["made_later"]
        assert portrait(f) == shown
    return False


def portrait(f: Any) -> dict[str, Any]:
    """All that is shown of a file; a fill value is an attribute once it was written."""
    return {name: [part for part in told if "_FillValue" not in str(part)] for name, told in everything.seen(f)}


def run(folder: Path, section: str, chosen: list[Any]) -> tuple[int, int]:
    """Cases, and those of them that something was found in."""
    raw, truth, plain = original(folder, section)
    count = found = 0
    path = folder / "lie.nc"
    for case in chosen:
        content = false_markers.content(case, raw)
        if content is None:
            # too long for the room
            continue
        path.write_bytes(content)
        if any(one.severity == "error" for one in pnc_vol.check(path)):
            # no NetCDF file: a name twice, records that overlap
            continue
        started = time.process_time()
        try:
            found += assert_harmless(path, plain if _alike(false_markers.header_of(content), truth) else {})
        except Exception as error:
            raise AssertionError(f"{section}: {case.what}: {type(error).__name__}: {error}") from error
        assert time.process_time() - started < SLOWEST, case.what
        count += 1
    return count, found


def _alike(one: Any, other: Any) -> bool:
    """Whether data lie in the same places: records move when one of their variables goes."""
    return [(var.dims, var.type) for var in one.vars] == [(var.dims, var.type) for var in other.vars]


@pytest.mark.parametrize("section", list(everything.SECTIONS))
def test_the_catalogue(folder: Path, section: str) -> None:
    _, header, _ = original(folder, section)
    cases = list(false_markers.cases(header))
    share = 1 if ALL else 37 if len(cases) < 3000 else 89
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    count, found = run(folder, section, cases[7 % share :: share])
    assert count > 30
    assert found > count / 3
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < MEMORY


@pytest.mark.parametrize("section", list(everything.SECTIONS))
def test_the_truth_has_no_findings(folder: Path, section: str) -> None:
    raw, _, plain = original(folder, section)
    path = folder / "truth.nc"
    path.write_bytes(raw)
    assert not assert_harmless(path, plain)


# -------------------------------------------------------------------------------------- what check says of it


def marked(path: Path, content: Any) -> Path:
    """A file of another program, in whose marker something is said."""
    with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_DATA") as data:
        data.createDimension("n", 3)
        data.createVariable("v", "f4", ("n",))[:] = [1, 2, 3]
        data["v"].a = np.zeros(2, "i4")
        data["v"].setncattr(MARKER, content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"unknown": 1}, "variable 'v': key 'unknown'"),
        ('{"labels":["a"],"labels":["b"]}', "variable 'v': key 'labels' of its marker occurs twice"),
        ({"attrs": {"gone": {"shape": [1]}}}, "variable 'v': attrs of its marker names 'gone'"),
        ({"attrs": {"a": {"odd": 1}}}, "variable 'v': key 'odd' of its marker for attribute 'a'"),
        ({"attrs": {"a": {"shape": [9]}}}, "variable 'v': attribute 'a'"),
        ({"attrs": {"a": {"name": 3}}}, "variable 'v': attribute 'a' cannot have the name 3"),
        ({"attrs": {"a": 3}}, "variable 'v': the marker of attribute 'a'"),
        ({"len": 2}, "variable 'v': len 2"),
        ({"scale": 3}, "variable 'v': scale 3"),
        # half a surrogate pair is a text in JSON, and in no file
        ({"scale": "\ud800"}, "variable 'v': scale '\\ud800'"),
        ({"labels": ["\ud800"]}, "variable 'v': labels ['\\ud800']"),
        ({"own": 3}, "variable 'v': own 3"),
        ({"path": "/a" * 1001}, "variable 'v': cannot be at '/a/a"),
        ({"type": "composite", "dtype": {"enum": [], "base": "<i4"}}, "variable 'v': type 'composite'"),
        ("{", "variable 'v': pnc_vol_hdf5 is not a JSON object"),
    ],
)
def test_a_finding_names_the_object_and_the_key(tmp_path: Path, content: Any, words: str) -> None:
    path = marked(tmp_path / "x.nc", content)
    (finding,) = pnc_vol.check(path)
    assert words in finding.message
    assert (finding.severity, finding.field, finding.offset) == ("warning", MARKER, -1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pnc_vol.File(path, "r+") as f:
            for ds in f.values():
                assert ds[()].tolist() == [1, 2, 3]
                ds.attrs["new"], ds.attrs["a"] = 1, ds.attrs.get("a", 0)
    assert pnc_vol.check(path) == [], "written anew, the header says nothing false any more"


def test_an_attribute_that_lies_is_a_warning_when_it_is_read(tmp_path: Path) -> None:
    """Its marker is not looked at before, so that opening a file decodes no attribute."""
    with pnc_vol.File(tmp_path / "x.nc", "w") as f:
        f.attrs["a"] = np.arange(4).reshape(2, 2)
    raw = (tmp_path / "x.nc").read_bytes()
    assert raw.count(b"[2,2]") == 1
    (tmp_path / "x.nc").write_bytes(raw.replace(b"[2,2]", b"[2,3]"))
    with pnc_vol.File(tmp_path / "x.nc") as f:
        with pytest.warns(PncVolWarning, match=r"x\.nc: group '/': attribute 'a': its marker does not fit"):
            assert f.attrs["a"].tolist() == [0, 1, 2, 3]
        # said once
        assert f.attrs["a"].tolist() == [0, 1, 2, 3]


def test_rows_that_are_not_there_are_found(tmp_path: Path) -> None:
    for lie, words in (([2, -1], "rows take more"), ([2, 9], "rows take more"), ([1 << 62, 1 << 62], "rows take more")):
        with pnc_vol.File(tmp_path / "x.nc", "w") as f:
            f.create_dataset("d", (2,), pnc_vol.vlen_dtype("i4"))[0] = [1, 2, 3]
            f.create_dataset("nested", (1,), [("a", pnc_vol.vlen_dtype("i4"))])
        with netCDF4.Dataset(tmp_path / "x.nc", "a") as data:
            data["d_count"][:] = lie
        (finding,) = pnc_vol.check(tmp_path / "x.nc")
        assert words in finding.message
        assert pnc_vol.check(tmp_path / "x.nc", values=False) == []
        with pnc_vol.File(tmp_path / "x.nc") as f, pytest.raises(pnc_vol.FormatError, match=words):
            f["d"][1]


def test_references_to_nothing_are_found(tmp_path: Path) -> None:
    with pnc_vol.File(tmp_path / "x.nc", "w") as f:
        f["t"], f["gone"] = np.arange(5), 1
        f.create_dataset("refs", (2,), pnc_vol.ref_dtype)[:] = [f["gone"].ref, f["t"].ref]
        f.create_dataset("regions", (3,), pnc_vol.regionref_dtype)[:2] = [
            f["t"].regionref[1:4],
            f["t"].regionref[[0, 4]],
        ]
    assert pnc_vol.check(tmp_path / "x.nc") == []
    with pnc_vol.File(tmp_path / "x.nc", "r+") as f:
        del f["gone"], f["t"]
        f["t"] = np.arange(4)
    messages = [finding.message for finding in pnc_vol.check(tmp_path / "x.nc")]
    assert len(messages) == 2
    assert messages[0] == "dataset '/refs': a reference leads to '/gone', which is not there"
    assert messages[1].startswith("dataset '/regions': a reference does not fit '/t'")


@pytest.mark.parametrize(
    "region",
    [
        '{"select":[[0,9,1]]}', '{"select":[[-1,2,1]]}', '{"select":[[0,2,0]]}', '{"points":[99]}',
        '{"points":[1e400]}', '{"points":[100000000000000000000000]}', '{"select":[[0,1e9,1]]}', '{"select":3}',
        '{"select":[{}]}', "3", "", "[" * 3000,
    ],
)  # fmt: skip
def test_a_region_that_does_not_fit_is_one_clear_error(region: str) -> None:
    with pnc_vol.File("x", "w", driver="memory") as f:
        f["t"] = np.arange(4)
        with pytest.raises(ValueError, match="does not fit"):
            f["t"][pnc_vol.RegionReference("/t", None, region)]


def test_types_that_are_mostly_padding_are_packed(tmp_path: Path) -> None:
    """A file cannot make a reader take memory for padding; what is written is therefore packed beyond a measure."""
    sparse = np.dtype({"names": ["a"], "formats": ["i4"], "offsets": [0], "itemsize": 1 << 20})
    with pnc_vol.File(tmp_path / "x.nc", "w") as f:
        f.create_dataset("d", (2,), sparse)["a"] = [1, 2]
    with pnc_vol.File(tmp_path / "x.nc") as f:
        assert f["d"].dtype == np.dtype([("a", "i4")])
        assert f["d"]["a"].tolist() == [1, 2]
    assert pnc_vol.check(tmp_path / "x.nc") == []


def test_parts_of_another_type_are_not_taken(tmp_path: Path) -> None:
    """numpy calls two types of objects equal, whatever the objects are."""
    with pnc_vol.File(tmp_path / "x.nc", "w") as f:
        f.create_dataset("d", (1,), [("a", pnc_vol.vlen_dtype("i4"))])[0] = (np.array([1, 2], "i4"),)
    raw = (tmp_path / "x.nc").read_bytes()
    lie = rb"{\"vlen\":\"<i4\"},0]".replace(b"\\", b"")
    assert raw.count(lie) == 1
    (tmp_path / "x.nc").write_bytes(raw.replace(lie, lie.replace(b"<i4", b"<f8")))
    with pytest.warns(PncVolWarning, match="its parts do not fit its type"):
        f = pnc_vol.File(tmp_path / "x.nc")
    with f:
        assert f["d"].dtype == np.dtype("i1")
        assert pnc_vol.check_vlen_dtype(f["d_a"].dtype) is not None
        assert f["d_a"][0].tolist() == [1, 2]


def test_a_long_chain_of_parts_takes_linear_time(tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "w") as f:
        for i in range(5000):
            told = {"type": "composite", "part": "/x", "shape": [], "parts": {"a": f"v{i + 1}"}}
            told["dtype"] = {"fields": [["a", "<i4", 0]], "size": 4}
            f.create_dataset(f"v{i}", (), "i1").attrs["pnc_vol_hdfX"] = json.dumps(told)
    path.write_bytes(path.read_bytes().replace(b"pnc_vol_hdfX", MARKER.encode()))
    started = time.process_time()
    with pytest.warns(PncVolWarning), pnc_vol.File(path) as f:
        assert len(f) == 5000
    assert time.process_time() - started < SLOWEST


def test_names_that_are_no_utf8_are_found_again(tmp_path: Path) -> None:
    """Of other programs' files; we and h5py give no such names."""
    path = tmp_path / "x.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC") as data:
        data.setncattr("QQQ", np.int32(0))
        data.createVariable("v", "i4")[...] = 7
        data["v"].setncattr(MARKER, json.dumps({"path": "/g\udcff/d"}))
    path.write_bytes(path.read_bytes().replace(b"QQQ", b"\xfe\xfe\xfe"))
    with pytest.warns(pnc_vol.FormatWarning, match="legal name"):
        f = pnc_vol.File(path, "r+")
    with f:
        (name,), (attr,) = f, f.attrs
        assert f[name]["d"][()] == f["/g\udcff/d"][()] == 7
        assert name in f
        assert attr in f.attrs
        assert f.attrs[attr] == 0
        for give in (lambda: f.create_group("h\udcff"), lambda: f.attrs.create("h\udcff", 1)):
            with pytest.raises(UnicodeEncodeError):
                give()
