"""Files of many origins, there and back: what is not the same afterwards is in the reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deep
import h5py
import numpy as np
import pytest
from origins import ORIGINS
from run_command import verb

import pnc_vol
from pnc_vol.convert.hdf5 import convert

pytest.importorskip("netCDF4", reason="netCDF4 is not installed: it writes one of the files")


def there_and_back(source: Path) -> tuple[Path, Path, list[Any]]:
    there, back = source.with_suffix(".nc"), source.with_name("back.h5")
    return there, back, [convert(source, there), convert(there, back)]


@pytest.mark.parametrize("origin", ORIGINS)
def test_what_differs_afterwards_is_in_the_reports(origin: str, tmp_path: Path) -> None:
    ORIGINS[origin](tmp_path / "a.h5")
    _, back, reports = there_and_back(tmp_path / "a.h5")
    told = {entry[0] for report in reports for entry in (*report.lost, *report.dropped, *report.by_convention)}
    with h5py.File(tmp_path / "a.h5") as first, h5py.File(back) as second:
        found = list(deep.differences(first, second))
    assert [(path, what) for path, what in found if path not in told] == []
    assert [loss for report in reports for loss in report.lost] == []
    # what may differ are names and details of types, and what the netCDF-4 library keeps for itself
    content = ("value", "link", "shape", "same", "attribute missing", "missing", "kind", "order", "fill")
    serious = [(path, what) for path, what in found if what.startswith(content)]
    assert origin == "netcdf4" or not serious


@pytest.mark.parametrize("origin", ORIGINS)
def test_diff_agrees_with_the_report(origin: str, tmp_path: Path) -> None:
    ORIGINS[origin](tmp_path / "a.h5")
    there, back, _ = there_and_back(tmp_path / "a.h5")
    assert verb("diff", tmp_path / "a.h5", there, code=0).out == ""
    told = verb("diff", tmp_path / "a.h5", back).out.splitlines()
    assert [line for line in told if line[0] == "/" and "called" not in line and "scale" not in line] == []


def test_references_lead_to_the_same_objects(tmp_path: Path) -> None:
    ORIGINS["nwb"](tmp_path / "a.h5")
    there, back, _ = there_and_back(tmp_path / "a.h5")
    with pnc_vol.File(there) as f, h5py.File(back) as g:
        for file in (f, g):
            data = file["acquisition/ts/data"]
            assert file[file["electrodes/group"][2]] == file["acquisition/ts"]
            assert file[file["electrodes/several"][0][1]] == file["electrodes"]
            assert file[file["electrodes/timeseries"][1]["timeseries"]] == file["acquisition/ts"]
            assert data[file["electrodes/regions"][0]].ravel().tolist() == [9.0, 13.0, 17.0]
            assert data.regionref.selection(file["electrodes/regions"][1]) == (4, 2)
            assert not file["electrodes/regions"][4]
            assert file[file.attrs["objects"][1]] == file["electrodes"]


def test_references_to_what_is_gone_are_null_and_counted(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f["x"], f["gone"] = 1, 2
        refs = f.create_dataset("refs", (3,), h5py.ref_dtype)
        refs[0], refs[1] = f["gone"].ref, f["x"].ref
        f.attrs["gone"] = f["gone"].ref
        del f["gone"]
    report = convert(tmp_path / "a.h5", tmp_path / "a.nc")
    assert [(path, what) for path, what, _ in report.lost] == [("/@gone", "1 reference"), ("/refs", "1 reference")]
    with pnc_vol.File(tmp_path / "a.nc") as f:
        assert [bool(ref) for ref in f["refs"][:]] == [False, True, False]


def test_references_name_the_place_and_not_the_name_that_was_used(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f["z"] = 1
        f["b"] = f["z"]
        f["ref"] = f["z"].ref
    convert(tmp_path / "a.h5", tmp_path / "a.nc")
    with pnc_vol.File(tmp_path / "a.nc") as f:
        assert f[f["ref"][()]] == f["z"] == f["b"]


# --------------------------------------------------------------------------------------------------- other files


def write_external(folder: Path) -> None:
    (folder / "secret").write_bytes(b"a system file's content.")
    with h5py.File(folder / "other.h5", "w") as f:
        f["x"] = np.arange(4)
    with h5py.File(folder / "a.h5", "w") as f:
        f.create_dataset("stored", (24,), "S1", external=[(str(folder / "secret"), 0, 24)])
        layout = h5py.VirtualLayout((4,), "i8")
        layout[:] = h5py.VirtualSource(str(folder / "other.h5"), "x", (4,))
        f.create_virtual_dataset("virtual", layout)
        f["own"] = np.arange(3)
        inside = h5py.VirtualLayout((3,), "i8")
        inside[:] = h5py.VirtualSource(".", "own", (3,))
        f.create_virtual_dataset("inside", inside)
        hidden = h5py.VirtualLayout((24,), "S1")
        hidden[:] = h5py.VirtualSource(".", "stored", (24,), "S1")
        f.create_virtual_dataset("hidden", hidden)
        f["soft"] = h5py.ExternalLink("other.h5", "/x")
        linked = h5py.VirtualLayout((4,), "i8")
        linked[:] = h5py.VirtualSource(".", "soft", (4,))
        f.create_virtual_dataset("linked", linked)


def test_values_of_other_files_are_left_alone_unless_told(tmp_path: Path) -> None:
    write_external(tmp_path)
    report = convert(tmp_path / "a.h5", tmp_path / "a.nc")
    told = {path: why for path, _, why in report.lost}
    assert set(told) == {"/stored", "/virtual", "/hidden", "/linked", "/soft"}
    assert "secret" in told["/stored"]
    assert "other.h5" in told["/virtual"]
    assert "follow_external=True" in told["/virtual"]
    assert b"system file" not in (tmp_path / "a.nc").read_bytes()
    with pnc_vol.File(tmp_path / "a.nc") as f:
        assert sorted(f) == ["inside", "own"]
        assert f["inside"][:].tolist() == [0, 1, 2]


def test_values_of_other_files_are_copied_if_told_and_that_is_in_the_report(tmp_path: Path) -> None:
    write_external(tmp_path)
    report = convert(tmp_path / "a.h5", tmp_path / "a.nc", follow_external=True)
    assert [path for path, _, _ in report.lost] == ["/soft"]
    dropped = dict(report.dropped)
    assert "external storage, in" in dropped["/stored"]
    assert "other.h5" in dropped["/virtual"]
    with pnc_vol.File(tmp_path / "a.nc") as f:
        assert b"".join(f["stored"][:].tolist()) == b"a system file's content."
        assert f["virtual"][:].tolist() == f["linked"][:].tolist() == [0, 1, 2, 3]


def test_diff_does_not_read_other_files_unless_told(tmp_path: Path) -> None:
    write_external(tmp_path)
    (tmp_path / "b.h5").write_bytes((tmp_path / "a.h5").read_bytes())
    told = verb("diff", tmp_path / "a.h5", tmp_path / "b.h5", code=1).out.splitlines()
    assert {line.partition(":")[0] for line in told if line[0] == "/"} == {"/stored", "/virtual", "/hidden", "/linked"}
    assert all("not compared" in line for line in told if line[0] == "/")
    verb("diff", "--follow-external", tmp_path / "a.h5", tmp_path / "b.h5", code=0)


def test_references_are_compared_where_hdf5_files_are_opened_as_they_are(tmp_path: Path) -> None:
    """From then on h5py's classes count as this package's."""
    ORIGINS["matlab"](tmp_path / "a.h5")
    with pnc_vol.File(tmp_path / "a.h5", hdf5="pass"):
        there, _, _ = there_and_back(tmp_path / "a.h5")
    assert verb("diff", tmp_path / "a.h5", there, code=0).out == ""
