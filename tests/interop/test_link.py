"""Link files: HDF5 files that show the values of NetCDF files, read by programs that know nothing of this package."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
from other_process import fresh
from run_command import verb

import pnc_vol
from pnc_vol.errors import PncVolError

COLOURS = pnc_vol.enum_dtype({"RED": 0, "GREEN": 1}, "i2")
MANY = 6000


def rich(path: Path) -> dict[str, Any]:
    """A file with an object of every kind, and the values of its datasets by path."""
    values: dict[str, Any] = {
        f"numbers/{code}": np.arange(6).astype(code).reshape(2, 3)
        for code in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", ">i4", "f2", "c8", "c16")
    }
    values |= {
        "flags": np.array([True, False, True]),
        "fixed": np.array([b"abc", b"d", b""], "S5"),
        "scalar": np.float64(42.5),
        "opaque": np.array([b"abc", b"xyz"], "V3"),
        "rows": np.zeros((0, 3)),
    }
    with pnc_vol.File(path, "w") as f:
        f.attrs["title"] = "all: ü"
        f.attrs["matrix"] = np.arange(6.0).reshape(2, 3)
        for name, value in values.items():
            f[name] = value
        f.create_dataset("colours", data=[0, 1, 1], dtype=COLOURS)
        f["texts"] = ["Kiel", "Tromsø"]
        f["obs"] = np.array([(54.3, 7), (69.6, 9)], [("lat", "f4"), ("n", "i2")])
        f["null"] = pnc_vol.Empty("f4")
        f["numbers"].attrs["units"] = "m"
        f["filled"] = f.create_dataset("deep/er/filled", (4,), "i4", fillvalue=-7)
        f["filled"][1:3] = [5, 6]
        f["soft"] = pnc_vol.SoftLink("/numbers/i4")
        f["lat"] = np.linspace(-90, 90, 3)
        f["lat"].make_scale("latitude")
        t = f.create_dataset("t", data=np.arange(12.0).reshape(4, 3), maxshape=(None, 3))
        t.dims[1].attach_scale(f["lat"])
        f.create_dataset("counts", data=np.arange(4, dtype="i2"), maxshape=(None,))
        f.attrs["here"] = t.ref
    return values


def test_h5py_reads_every_kind_of_object(tmp_path: Path) -> None:
    source, target = tmp_path / "a.nc", tmp_path / "a.h5"
    values = rich(source)
    before = source.read_bytes()
    made = pnc_vol.link(source, target)
    assert made.lost == ()
    assert made.written
    assert made.records == 4
    with h5py.File(target, "r") as f:
        for name, value in values.items():
            np.testing.assert_array_equal(f[name][()], value, err_msg=name)
        assert f["numbers/i4"].dtype == ">i4"
        assert f["flags"].dtype == bool
        assert h5py.check_enum_dtype(f["colours"].dtype) == {"RED": 0, "GREEN": 1}
        assert f["colours"][:].tolist() == [0, 1, 1]
        assert f["texts"].asstr()[:].tolist() == ["Kiel", "Tromsø"]
        assert f["obs/n"][:].tolist() == [7, 9]
        assert f["null"].shape == (0,)
        assert f["filled"] == f["deep/er/filled"]
        assert f["filled"][:].tolist() == [-7, 5, 6, -7]
        assert f["filled"].fillvalue == f["filled"].attrs["_FillValue"] == -7
        assert f["soft"] == f["numbers/i4"]
        assert f["t"][:].tolist() == np.arange(12.0).reshape(4, 3).tolist()
        assert f["counts"][:].tolist() == [0, 1, 2, 3]
        assert f["t"].dims[1][0] == f["lat"]
        assert f["t"].dims[0].keys() == f["counts"].dims[0].keys()
        assert f.attrs["title"] == "all: ü"
        assert f.attrs["matrix"].tolist() == list(range(6))
        assert f["numbers"].attrs["units"] == "m"
        assert f[f.attrs["here"]] == f["t"]
    assert source.read_bytes() == before
    assert target.stat().st_size < 60_000


@pytest.mark.filterwarnings("ignore:WARNING. variable 'opaque' has unsupported datatype")
def test_netcdf4_reads_it_with_the_names_of_the_dimensions(tmp_path: Path) -> None:
    rich(tmp_path / "a.nc")
    pnc_vol.link(tmp_path / "a.nc", tmp_path / "a.h5")
    with netCDF4.Dataset(tmp_path / "a.h5") as ds, netCDF4.Dataset(tmp_path / "a.nc") as original:
        assert ds["t"].dimensions == (original["t"].dimensions[0], "lat")
        assert ds["t"][2].tolist() == [6, 7, 8]
        assert ds["numbers/f8"].dimensions == original["numbers_f8"].dimensions
        assert ds["flags"][:].tolist() == [1, 0, 1]
        assert ds["texts"][:].tolist() == ["Kiel", "Tromsø"]
        assert not set(original.dimensions) & set(ds.variables) - {"lat"}
        assert "DIMENSION_LABELS" not in ds["t"].ncattrs()


def test_fill_values_of_every_type(tmp_path: Path) -> None:
    fills: dict[str, tuple[Any, Any]] = {
        "fixed": ("S3", b"zz"),
        "text": (pnc_vol.string_dtype(), "é"),
        "utf8": (pnc_vol.string_dtype("utf-8", 4), "ab"),
        "bool": (bool, True),
        "enum": (COLOURS, 1),
        "complex": ("c8", 1 + 2j),
        "opaque": ("V3", np.void(b"abc")),
        "half": ("f2", 1.5),
        "date": (pnc_vol.opaque_dtype("M8[s]"), np.datetime64(5, "s")),
    }
    with pnc_vol.File(tmp_path / "a.nc", "w") as f:
        for name, (dtype, fill) in fills.items():
            f.create_dataset(name, (2,), dtype, fillvalue=fill)
        f.create_dataset("array", (2,), np.dtype(("i2", (2,))), fillvalue=np.array([1, 2]))
        # its ranges are joined
        f.create_dataset("many", (MANY,), "S3", maxshape=(None,), fillvalue=b"zz")
        f.create_dataset("beside", (MANY,), "i4", maxshape=(None,))
    assert not pnc_vol.link(tmp_path / "a.nc", tmp_path / "a.h5").lost
    with pnc_vol.File(tmp_path / "a.nc") as f, h5py.File(tmp_path / "a.h5") as linked:
        for name in (*fills, "many"):
            assert linked[name].fillvalue == f[name].fillvalue, name
            assert linked[name][:].tolist() == f[name][:].tolist(), name
        assert linked["array"][:].tolist() == [[1, 2], [1, 2]]


def test_many_records_are_joined_and_a_file_that_grew_is_linked_again(tmp_path: Path) -> None:
    source, target = tmp_path / "a.nc", tmp_path / "a.h5"
    with netCDF4.Dataset(source, "w", format="NETCDF3_64BIT_DATA") as ds:
        ds.createDimension("time", None)
        ds.createDimension("x", 3)
        ds.createVariable("time", "f8", ("time",))[:] = np.arange(MANY)
        ds.createVariable("v", "i2", ("time", "x"))[:] = np.arange(3 * MANY).reshape(MANY, 3)
    made = pnc_vol.link(source, target)
    assert made.segments == 2 * MANY
    assert not pnc_vol.link(source, target).written
    with h5py.File(target, "r") as f:
        assert f["v"].is_virtual
        np.testing.assert_array_equal(f["v"][:], np.arange(3 * MANY).reshape(MANY, 3))
        assert f["v"].dims[0][0] == f["time"]
    with pnc_vol.File(source, "r+") as g:
        g["v"].resize(MANY + 1, axis=0)
        g["v"][MANY] = [7, 8, 9]
    assert f"{MANY + 1} records, the link file shows {MANY}" in verb("link", "--check", target, code=1).out
    assert re.search("is stale.*pnc-vol link", verb("ls", target, code=0).err)
    assert pnc_vol.link(source, target).written
    with h5py.File(target, "r") as f:
        assert f["v"][-1].tolist() == [7, 8, 9]
    with pnc_vol.File(source, "r+") as g:
        g.attrs["new"] = 1
    assert "header" in verb("link", "--check", target, code=1).out
    os.unlink(source)
    assert "there is no file" in verb("link", "--check", target, code=1).out


def test_only_records_beside_others_are_ranges_of_their_own(tmp_path: Path) -> None:
    with pnc_vol.File(tmp_path / "a.nc", "w") as f:
        f.create_dataset("v", data=np.arange(2 * MANY, dtype="i4").reshape(MANY, 2), maxshape=(None, 2))
    assert pnc_vol.link(tmp_path / "a.nc", tmp_path / "a.h5").segments == 1
    with h5py.File(tmp_path / "a.h5", "r") as f:
        assert f["v"][-1].tolist() == [2 * MANY - 2, 2 * MANY - 1]


def test_the_verb_says_what_it_did(tmp_path: Path) -> None:
    source, target = tmp_path / "a.nc", tmp_path / "a.h5"
    with pnc_vol.File(source, "w") as f:
        f["x"] = [1]
    assert verb("link", source, target, code=0).out == f"{target}: 1 dataset, 1 range of {source}\n"
    assert "up to date" in verb("link", source, target, code=0).out
    assert "up to date" in verb("link", "--check", target, code=0).out
    assert "EXTFILE" in verb("link", "--relative", source, target, code=0).out
    assert "no link file" in verb("link", "--check", source, code=2).err
    assert "there is no such file" in verb("link", "--check", tmp_path / "none", code=2).err
    assert "name the HDF5 file" in verb("link", source, code=2).err


def values_by_h5py(path: str) -> None:
    with h5py.File(path, "r") as f:
        print(f["x"][:].tolist())


def test_relative_names_are_found_beside_the_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with pnc_vol.File(home / "a.nc", "w") as f:
        f["x"] = [1.5, 2.5]
    pnc_vol.link(home / "a.nc", home / "a.h5", relative=True)
    moved = home.rename(tmp_path / "moved")
    monkeypatch.setenv("HDF5_EXTFILE_PREFIX", "${ORIGIN}")
    assert fresh(values_by_h5py, moved / "a.h5").stdout.strip() == "[1.5, 2.5]"
    assert str(moved / "a.nc") in verb("link", "--check", moved / "a.h5", code=0).out


def test_what_must_not_be_replaced_is_not(tmp_path: Path) -> None:
    source, target = tmp_path / "a.nc", tmp_path / "a.h5"
    with pnc_vol.File(source, "w") as f:
        f["x"] = [1]
    with h5py.File(target, "w") as g:
        g["precious"] = 1
    with pytest.raises(FileExistsError, match="overwrite=True"):
        pnc_vol.link(source, target)
    with pytest.raises(FileExistsError):
        pnc_vol.link(source, source, overwrite=True)
    with pytest.raises(PncVolError, match="HDF5 file already"):
        pnc_vol.link(target, tmp_path / "b.h5")
    assert "no link file" in verb("link", "--check", target, code=2).err
    pnc_vol.link(source, target, overwrite=True)
    with pnc_vol.File(source, "r+") as f:
        f["y"] = [2]
        with pytest.raises(PncVolError, match="flush"):
            pnc_vol.link(source, target)


def test_dimensions_whose_names_are_taken(tmp_path: Path) -> None:
    with netCDF4.Dataset(tmp_path / "a.nc", "w", format="NETCDF3_CLASSIC") as ds:
        ds.createDimension("x", 2)
        ds.createVariable("x", "i4", ())[...] = 5
        ds.createVariable("v", "i4", ("x",))[:] = [1, 2]
    pnc_vol.link(tmp_path / "a.nc", tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5", "r") as f:
        assert f["x"][()] == 5
        assert f["v"].dims[0][0] == f["x_dim"]


@pytest.mark.nightly
def test_h5dump_reads_it_from_any_folder(tmp_path: Path) -> None:
    h5dump = shutil.which("h5dump")
    if h5dump is None:
        pytest.skip("h5dump is Debian's hdf5-tools")
    rich(tmp_path / "a.nc")
    pnc_vol.link(tmp_path / "a.nc", tmp_path / "a.h5")
    done = subprocess.run(
        [h5dump, "-d", "/t", "-d", "/flags", str(tmp_path / "a.h5")],
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
    )
    assert "(3,0): 9, 10, 11" in done.stdout
    assert "TRUE, FALSE, TRUE" in done.stdout


def test_a_damaged_link_file_is_made_anew_or_refused(tmp_path: Path) -> None:
    """The HDF5 library is not asked what stands there: in a damaged file it may look for ever."""
    source, target = tmp_path / "a.nc", tmp_path / "a.h5"
    with pnc_vol.File(source, "w") as f:
        f["x"] = np.arange(30.0)
        f["g/y"] = [1, 2]
    assert pnc_vol.link(source, target).written
    assert not pnc_vol.link(source, target).written, "it is up to date"
    content, refused = target.read_bytes(), 0
    rng = random.Random(2)
    for _ in range(100):
        data = bytearray(content)
        for _ in range(rng.choice([1, 2, 40])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        target.write_bytes(data)
        try:
            pnc_vol.link(source, target)
        except FileExistsError:
            refused += 1
    assert refused < 50
    pnc_vol.link(source, target, overwrite=True)
    with h5py.File(target) as f:
        assert f["x"][...].tolist() == list(range(30))


def test_an_address_is_refused(tmp_path: Path) -> None:
    """HDF5 would look for a file of that name."""
    with pytest.raises(NotImplementedError, match="copy it here, and link the copy"):
        pnc_vol.link("http://127.0.0.1:1/a.nc", tmp_path / "a.h5")
    assert not (tmp_path / "a.h5").exists()


def test_datasets_with_values_in_other_files_are_lost(tmp_path: Path) -> None:
    source, target = tmp_path / "a.nc", tmp_path / "a.h5"
    with pnc_vol.File(source, "w") as f:
        f["x"] = [1, 2]
        f.create_dataset("raw", (2,), "i4", external="raw.bin", data=[3, 4])
        layout = pnc_vol.VirtualLayout((2,), "i8")
        layout[:] = pnc_vol.VirtualSource(f["x"])
        f.create_virtual_dataset("seen", layout)
        f.attrs["to"] = f["seen"].ref
    lost = pnc_vol.link(source, target).lost
    assert {(path, what) for path, what, _ in lost} >= {("/raw", "dataset"), ("/seen", "dataset")}
    with h5py.File(target) as f:
        assert not {"raw", "seen"} & set(f)
        assert f["x"][:].tolist() == [1, 2]
