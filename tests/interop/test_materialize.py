"""Ordinary datasets of virtual ones and of those in raw files: by ``repack --materialize``, and by a conversion."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

import pnc_vol
from pnc_vol.convert.hdf5 import convert
from pnc_vol.errors import PncVolWarning, SourceError


@pytest.fixture
def shown(tmp_path: Path) -> Path:
    """A file that shows another one, itself, and a raw file."""
    (tmp_path / "in").mkdir()
    with pnc_vol.File(tmp_path / "in/source.nc", "w") as f:
        f["x"] = np.arange(12.0).reshape(3, 4)
    path = tmp_path / "in/shown.nc"
    with pnc_vol.File(path, "w") as f:
        f["own"] = np.arange(4.0)
        layout = pnc_vol.VirtualLayout((5, 4), "f4", maxshape=(None, 4))
        layout[:3], layout[3] = pnc_vol.VirtualSource("source.nc", "x", (3, 4)), pnc_vol.VirtualSource(f["own"])
        v = f.create_virtual_dataset("g/v", layout, fillvalue=-1)
        v.attrs["units"] = "K"
        f["hard"] = v
        raw = f.create_dataset("raw", data=np.arange(5, dtype=">i2"), external="values.raw")
        raw.make_scale("raw")
        f["t"] = np.zeros(5)
        f["t"].dims[0].attach_scale(raw)
        f["g/v"].dims[0].label = "row"
    return path


def values() -> list[list[float]]:
    return [*np.arange(12.0).reshape(3, 4).tolist(), [0, 1, 2, 3], [-1] * 4]


def check_ordinary(path: Path) -> None:
    with pnc_vol.File(path) as f:
        v, raw = f["g/v"], f["raw"]
        assert not v.is_virtual
        assert raw.external is None
        assert (v.shape, v.maxshape, v.dtype.str, v.fillvalue) == ((5, 4), (None, 4), "<f4", -1)
        assert v[()].tolist() == values()
        assert v.attrs["units"] == "K"
        assert v.dims[0].label == "row"
        assert f["hard"] == v
        assert raw[()].tolist() == [0, 1, 2, 3, 4]
        assert raw.dtype.str == ">i2"
        assert raw.is_scale
        assert f["t"].dims[0][0] == raw
        assert sorted(f) == ["g", "hard", "own", "raw", "t"]
    assert pnc_vol.check(path) == []


@pytest.mark.parametrize("in_place", [False, True])
def test_repack_makes_ordinary_datasets(shown: Path, tmp_path: Path, in_place: bool) -> None:
    other = shown if in_place else tmp_path / "all.nc"
    assert pnc_vol.repack(shown, None if in_place else other, materialize=True).written
    if not in_place:
        with pnc_vol.File(shown) as f:
            assert f["g/v"].is_virtual, "the source is as it was"
    (shown.parent / "source.nc").unlink()
    (shown.parent / "values.raw").unlink()
    check_ordinary(other)


def test_missing_sources_are_named(tmp_path: Path) -> None:
    layout = pnc_vol.VirtualLayout((13, 2), "i4")
    for number in range(13):
        layout[number] = pnc_vol.VirtualSource(f"s{number}.nc", "x", (2,))
    with pnc_vol.File(tmp_path / "s0.nc", "w") as f:
        f["x"] = [1, 2]
    with pnc_vol.File(tmp_path / "v.nc", "w") as f:
        f.create_virtual_dataset("v", layout, fillvalue=-1)
    with pytest.warns(PncVolWarning, match=r"/v: the fill value .* 'x' in 's1\.nc', .* and 2 more"):
        pnc_vol.repack(tmp_path / "v.nc", tmp_path / "all.nc", materialize=True)
    with pnc_vol.File(tmp_path / "all.nc") as f:
        assert f["v"][:2].tolist() == [[1, 2], [-1, -1]]
    report = convert(tmp_path / "v.nc", tmp_path / "all.h5")
    assert [(one.path, one.what) for one in report.lost] == [("/v", "some values")]
    assert "'x' in 's10.nc'" in report.lost[0].why


def test_other_programs_see_the_values(shown: Path, tmp_path: Path) -> None:
    netCDF4 = pytest.importorskip("netCDF4")
    pnc_vol.repack(shown, tmp_path / "all.nc", materialize=True)
    with netCDF4.Dataset(tmp_path / "all.nc") as ds:
        assert ds["g_v"][:4].tolist() == values()[:4]
        assert ds["g_v"][4].mask.all(), "what no source has is the fill value"


def test_repack_alone_keeps_what_is_shown(shown: Path) -> None:
    pnc_vol.repack(shown, shown.parent / "again.nc")
    with pnc_vol.File(shown.parent / "again.nc") as f:
        assert f["g/v"].is_virtual
        assert f["g/v"][()].tolist() == values()


def test_a_source_that_cannot_be_read_leaves_everything(shown: Path, tmp_path: Path) -> None:
    (shown.parent / "source.nc").write_bytes(b"nothing of NetCDF")
    for target in (None, tmp_path / "all.nc"):
        with pytest.raises(SourceError):
            pnc_vol.repack(shown, target, materialize=True)
    assert not (tmp_path / "all.nc").exists()
    with pnc_vol.File(shown) as f:
        assert f["g/v"].is_virtual
        assert sorted(f) == ["g", "hard", "own", "raw", "t"]


def test_a_conversion_has_the_values(shown: Path, tmp_path: Path) -> None:
    convert(shown, tmp_path / "all.h5")
    with h5py.File(tmp_path / "all.h5") as f:
        assert not f["g/v"].is_virtual
        assert f["g/v"][()].tolist() == values()
        assert f["raw"][()].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("base", ["f8", "i8", "i1"])
def test_rows_that_are_shown_have_the_type_of_the_virtual_dataset(tmp_path: Path, base: str) -> None:
    for lib, name in ((h5py, "v.h5"), (pnc_vol, "v.nc")):
        row = lib.vlen_dtype("i4")
        with lib.File(tmp_path / name, "w") as f:
            rows = f.create_dataset("rows", (3,), row)
            rows[0], rows[1] = [1, 2], [-300, 300]
            layout = lib.VirtualLayout((3,), lib.vlen_dtype(base))
            layout[:] = lib.VirtualSource(rows)
            f.create_virtual_dataset("v", layout)
    pnc_vol.repack(tmp_path / "v.nc", tmp_path / "all.nc", materialize=True)
    convert(tmp_path / "v.nc", tmp_path / "all.h5")
    with h5py.File(tmp_path / "v.h5") as theirs:
        for name, lib in (("v.nc", pnc_vol), ("all.nc", pnc_vol), ("all.h5", h5py)):
            with lib.File(tmp_path / name) as f:
                for found, wanted in zip(f["v"][:], theirs["v"][:], strict=True):
                    assert found.dtype == wanted.dtype == base
                    assert found.tolist() == wanted.tolist()
