"""Conversion of files, both ways: content, reports, failures, memory."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from other_process import fresh, status
from programs import tool

import pnc_vol
from pnc_vol.convert.hdf5 import LossError, convert
from pnc_vol.errors import NotCDFError
from pnc_vol.testing.faults import HookedSystem

netCDF4 = pytest.importorskip("netCDF4", reason="netCDF4 is not installed: it is the independent reader")

MAPS = Path(__file__).parents[2] / "../shared/data/e3sm"


def write_rich(path):
    """Everything that is to survive."""
    with h5py.File(path, "w", track_order=True) as f:
        f.attrs["title"] = "everything: ü"
        f.attrs["vector"] = np.arange(3, dtype="i2")
        f.attrs["matrix"] = np.arange(6.0).reshape(2, 3)
        f.attrs["empty"] = h5py.Empty("f4")
        f.attrs["texts"] = ["a", "bcd", ""]
        f.attrs["bytes"] = np.bytes_(b"xyz")
        f.attrs["flag"] = True
        f.attrs.create("choice", 1, dtype=h5py.enum_dtype({"NO": 0, "YES": 1}, "i1"))
        zeta = f.create_group("zeta", track_order=True)
        zeta.attrs["units"] = "m"
        for code in ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", ">i4", "<f8", "f2", "c8", "c16"]:
            ds = zeta.create_dataset(f"n_{code}", data=np.arange(6).astype(code).reshape(2, 3))
            ds.attrs["code"] = code
        alpha = zeta.create_group("alpha/deep")
        alpha["flags"] = np.array([True, False, True])
        alpha.create_dataset("enum", data=[0, 2, 1], dtype=h5py.enum_dtype({"RED": 0, "GREEN": 1, "BLUE": 2}, "u1"))
        alpha["scalar"] = 42.5
        f["vlen"] = ["Kiel", "Tromsø", "", "a much longer string than the others"]
        f.create_dataset("fixed", data=np.array([b"abc", b"d", b""], "S5"))
        f.create_dataset("text", data="one scalar string")
        f.create_dataset("null", data=h5py.Empty("i4"))
        f.create_dataset("zero", shape=(0, 3), dtype="f8")
        f.create_dataset("later", shape=(0, 2), maxshape=(None, 2), dtype="i4")
        grown = f.create_dataset("grown", data=np.arange(12.0).reshape(4, 3), maxshape=(None, 3))
        grown.attrs["units"] = "K"
        f.create_dataset("filled", shape=(4,), dtype="i4", fillvalue=-7)[1:3] = [5, 6]
        f.create_dataset("sparse", shape=(100, 100), dtype="f4", chunks=(10, 10), compression="gzip", shuffle=True)
        f["sparse"][20:30, 5:8] = 3.5
        f["compound"] = np.array([(1, 2.5, b"x"), (3, 4.5, b"yz")], [("a", "i4"), ("b", ">f8"), ("c", "S2")])
        f["opaque"] = np.array([b"abc", b"xyz"], "V3")
        f["array"] = np.zeros(2, [("v", "f4", (3,))])
        f.create_dataset("several", (2, 3), "i4", maxshape=(None, 5))[...] = 4
        f.attrs["struct"] = np.array((1, 2.5), [("p", "i2"), ("q", "f8")])
        f["lat"] = np.linspace(-90, 90, 3)
        f["lat"].make_scale("latitude")
        f["grown"].dims[1].attach_scale(f["lat"])
        f["filled"].dims[0].label = "station"


def everything(path, opener):
    """All objects of a file by path, with all that both formats can say."""
    found = {}

    def attributes(obj):
        kept = {}
        for name in obj.attrs:
            # NetCDF keeps a fill value as an attribute, and so does netCDF-4.
            if name not in ("_FillValue", "CLASS", "NAME", "REFERENCE_LIST", "DIMENSION_LIST", "DIMENSION_LABELS"):
                value = obj.attrs[name]
                kept[name] = value if type(value).__name__ != "Empty" else ("empty", value.dtype)
        return kept

    def visit(name, obj):
        if isinstance(obj, (h5py.Group, pnc_vol.Group)):
            found[name] = ("group", attributes(obj))
            return
        said = {
            "dtype": obj.dtype.newbyteorder("="),
            "enum": h5py.check_enum_dtype(obj.dtype),
            "string": h5py.check_string_dtype(obj.dtype),
            "shape": obj.shape,
            "maxshape": obj.maxshape,
            "scale": obj.is_scale,
            "scales": [[s.name for s in dim.values()] for dim in obj.dims] if obj.shape else [],
            "labels": [dim.label for dim in obj.dims] if obj.shape else [],
            "fill": obj.fillvalue if obj.dtype.kind != "O" else None,
        }
        found[name] = ("dataset", attributes(obj), said, None if obj.shape is None else obj[()])

    with opener(path) as f:
        found["/"] = ("group", attributes(f))
        f.visititems(visit)
    return found


def assert_same(one, other):
    assert one.keys() == other.keys()
    for path in one:
        mine, its = one[path], other[path]
        assert mine[0] == its[0], path
        assert mine[1].keys() == its[1].keys(), path
        for name in mine[1]:
            np.testing.assert_array_equal(mine[1][name], its[1][name], err_msg=f"{path}@{name}")
            assert np.asarray(mine[1][name]).dtype == np.asarray(its[1][name]).dtype, f"{path}@{name}"
            assert np.shape(mine[1][name]) == np.shape(its[1][name]), f"{path}@{name}"
        if mine[0] == "dataset":
            for key, value in mine[2].items():
                np.testing.assert_equal(its[2][key], value, err_msg=f"{path}: {key}")
            np.testing.assert_array_equal(mine[3], its[3], err_msg=path)


@pytest.fixture
def rich(tmp_path):
    path = tmp_path / "rich.h5"
    write_rich(path)
    return path


def test_everything_survives_to_netcdf_and_back(rich, tmp_path):
    netcdf, back = tmp_path / "rich.nc", tmp_path / "back.h5"
    report = convert(rich, netcdf)
    assert report.lost == ()
    assert report.direction == "HDF5 -> NetCDF"
    original = everything(rich, h5py.File)
    assert_same(original, everything(netcdf, pnc_vol.File))
    again = convert(netcdf, back)
    assert again.lost == ()
    assert again.direction == "NetCDF -> HDF5"
    assert_same(original, everything(back, h5py.File))
    with h5py.File(back) as f:
        assert f["filled"].attrs["_FillValue"] == f["filled"].fillvalue == -7
    assert (report.groups, report.datasets) == (again.groups, again.datasets) == (3, len(original) - 4)


def test_the_report_tells_what_is_spelled_otherwise_and_what_is_dropped(rich, tmp_path):
    report = convert(rich, tmp_path / "rich.nc")
    said = {(path, what.partition(" ->")[0]) for path, what in report.by_convention}
    assert ("/vlen", "string") in said
    assert ("/zeta/alpha/deep/flags", "bool") in said
    assert ("/zeta/alpha/deep/enum", "enum") in said
    assert ("/zeta/n_c16", "complex") in said
    assert ("/zeta/n_f2", "float16") in said
    names = dict(entry for entry in report.by_convention if "variable name" in entry.what)
    assert names["/zeta/n_i4"].endswith("zeta_n_i4")
    dropped = dict(report.dropped)
    assert "gzip" in dropped["/sparse"]
    assert "(10, 10)" in dropped["/sparse"]
    assert report.bytes > 40_000
    assert report.peak_bytes > 1 << 20


def test_an_independent_reader_sees_the_values(rich, tmp_path):
    convert(rich, tmp_path / "rich.nc")
    with netCDF4.Dataset(tmp_path / "rich.nc") as data:
        assert data.title == "everything: ü"
        np.testing.assert_array_equal(data["zeta_n_u8"][...], np.arange(6).reshape(2, 3))
        np.testing.assert_array_equal(data["grown"][...], np.arange(12.0).reshape(4, 3))
        assert data["grown"].units == "K"
        assert data["grown"].get_dims()[0].isunlimited()
        assert list(data["vlen"][...]) == ["Kiel", "Tromsø", "", "a much longer string than the others"]


def test_variables_keep_the_order_of_creation(tmp_path):
    with h5py.File(tmp_path / "o.h5", "w", track_order=True) as f:
        for name in "zyxab":
            f.create_dataset(name, data=1, track_order=True)
            for attr in "qpr":
                f[name].attrs[attr] = 1
    convert(tmp_path / "o.h5", tmp_path / "o.nc")
    with netCDF4.Dataset(tmp_path / "o.nc") as data:
        assert list(data.variables) == list("zyxab")
        assert [a for a in data["z"].ncattrs() if a != "pnc_vol_hdf5"] == list("qpr")
    convert(tmp_path / "o.nc", tmp_path / "back.h5")
    with h5py.File(tmp_path / "back.h5") as f:
        assert list(f) == list("zyxab")
        assert list(f["z"].attrs) == list("qpr")


def test_small_blocks_give_the_same_file(rich, tmp_path):
    calls = []
    convert(rich, tmp_path / "a.nc", block_bytes=100, progress=lambda *said: calls.append(said))
    convert(rich, tmp_path / "b.nc")
    assert_same(everything(tmp_path / "a.nc", pnc_vol.File), everything(tmp_path / "b.nc", pnc_vol.File))
    assert len(calls) > 100
    assert [done for done, _, _ in calls] == sorted(done for done, _, _ in calls)
    assert calls[-1][0] == calls[-1][1]


# ----------------------------------------------------------------------------------------------- what cannot be kept


def write_losses(path):
    with h5py.File(path, "w") as f:
        f["kept"] = [1, 2, 3]
        f["soft"] = h5py.SoftLink("/kept")
        f["dangling"] = h5py.SoftLink("/nowhere")
        f["external"] = h5py.ExternalLink("/etc/hostname", "/x")
        f["second"] = f["kept"]
        f["compound"] = np.zeros(3, [("a", "i4"), ("b", "f8")])
        f["ragged"] = np.array([np.arange(2), np.arange(3)], dtype=object).astype(h5py.vlen_dtype("i4"))
        f.create_dataset("refs", data=[f["kept"].ref], dtype=h5py.ref_dtype)
        f["opaque"] = np.zeros(2, "V5")
        f["type"] = np.dtype("f8")
        f.attrs["reference"] = f["kept"].ref
        f.attrs["struct"] = np.zeros((), [("a", "i4")])
        f.create_dataset("two", shape=(2, 2), maxshape=(None, None), dtype="i4")
        f.create_group("loop")["up"] = f["/"]
        f["loop/again"] = f["loop"]


def test_losses_are_reported_and_nothing_else_is_lost(tmp_path):
    write_losses(tmp_path / "l.h5")
    report = convert(tmp_path / "l.h5", tmp_path / "l.nc")
    lost = {path for path, _, _ in report.lost}
    assert lost == {"/external"}
    assert all(what and why and "\n" not in why for _, what, why in report.lost)
    with pnc_vol.File(tmp_path / "l.nc") as f:
        assert f["kept"][:].tolist() == [1, 2, 3]
        assert f["two"].maxshape == (None, None)
        assert f["compound"].dtype.names == ("a", "b")
        assert [row.tolist() for row in f["ragged"][:]] == [[0, 1], [0, 1, 2]]
        assert "external" not in f
        assert f[f["refs"][0]] == f[f.attrs["reference"]] == f["kept"]
        assert f.get("dangling", getlink=True).path == "/nowhere"
        assert f["second"] == f["soft"] == f["kept"]
        assert f["type"].dtype == "f8"
        assert f["loop/up"] == f["/"]
        assert f["loop/again"] == f["loop"]
    again = convert(tmp_path / "l.nc", tmp_path / "back.h5")
    assert again.lost == ()
    with h5py.File(tmp_path / "back.h5") as f:
        assert f["second"] == f["soft"] == f["kept"]
        assert f["type"].dtype == "f8"
        assert f["loop/again"] == f["loop"]
        assert f[f["refs"][0]] == f[f.attrs["reference"]] == f["kept"]
        assert [row.tolist() for row in f["ragged"][:]] == [[0, 1], [0, 1, 2]]


def test_strict_writes_nothing_and_hands_over_the_report(tmp_path):
    write_losses(tmp_path / "l.h5")
    with pytest.raises(LossError, match="1 thing cannot") as caught:
        convert(tmp_path / "l.h5", tmp_path / "l.nc", strict=True)
    assert len(caught.value.report.lost) == 1
    assert os.listdir(tmp_path) == ["l.h5"]


def test_strict_is_content_with_a_file_that_is_kept_whole(rich, tmp_path):
    assert convert(rich, tmp_path / "r.nc", strict=True).complete


# ------------------------------------------------------------------------------------------------------- failures


def test_an_existing_target_is_left_alone_unless_told(rich, tmp_path):
    target = tmp_path / "t.nc"
    target.write_bytes(b"precious")
    with pytest.raises(FileExistsError):
        convert(rich, target)
    assert target.read_bytes() == b"precious"
    convert(rich, target, overwrite=True)
    assert target.read_bytes()[:3] == b"CDF"


@pytest.mark.parametrize("overwrite", [True, False])
def test_the_source_is_never_its_own_target(rich, overwrite):
    before = rich.read_bytes()
    with pytest.raises(FileExistsError, match="source itself"):
        convert(rich, rich, overwrite=overwrite)
    assert rich.read_bytes() == before


@pytest.mark.parametrize("to_netcdf", [True, False])
def test_a_failure_midway_leaves_no_target(rich, tmp_path, to_netcdf):
    if not to_netcdf:
        convert(rich, tmp_path / "rich.nc")
        rich = tmp_path / "rich.nc"
    before = sorted(os.listdir(tmp_path))

    def fail(done, total, path):
        if done > 2000:
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        convert(rich, tmp_path / "new", progress=fail, block_bytes=256)
    assert sorted(os.listdir(tmp_path)) == before


def test_values_that_cannot_be_read_are_named(tmp_path):
    with h5py.File(tmp_path / "c.h5", "w") as f:
        f.create_dataset("g/sums", data=np.arange(1000), chunks=(1000,), fletcher32=True)
        at = f["g/sums"].id.get_chunk_info(0).byte_offset
    data = bytearray((tmp_path / "c.h5").read_bytes())
    data[at + 100] ^= 0xFF
    (tmp_path / "c.h5").write_bytes(data)
    with pytest.raises(OSError, match="/g/sums cannot be read"):
        convert(tmp_path / "c.h5", tmp_path / "c.nc")
    assert os.listdir(tmp_path) == ["c.h5"]


@pytest.mark.parametrize("content", [b"", b"CD", b"PK\x03\x04 and so on"])
def test_other_files_are_refused(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(NotCDFError):
        convert(tmp_path / "x", tmp_path / "y")
    assert os.listdir(tmp_path) == ["x"]


def test_hdf5_behind_a_user_block_is_found(tmp_path):
    with h5py.File(tmp_path / "u.h5", "w", userblock_size=1024) as f:
        f["x"] = 1
    assert convert(tmp_path / "u.h5", tmp_path / "u.nc").direction == "HDF5 -> NetCDF"


def test_options_go_to_the_right_side(rich, tmp_path):
    with h5py.File(tmp_path / "s.h5", "w") as f:
        f["g/x"] = np.arange(3, dtype="i4")
    convert(tmp_path / "s.h5", tmp_path / "s.nc", format="CDF-2", separator=".")
    assert (tmp_path / "s.nc").read_bytes()[:4] == b"CDF\x02"
    with netCDF4.Dataset(tmp_path / "s.nc") as data:
        assert list(data.variables) == ["g.x"]
    convert(tmp_path / "s.nc", tmp_path / "z.h5", compression="gzip")
    with h5py.File(tmp_path / "z.h5") as f:
        assert f["g/x"].compression == "gzip"
    with pytest.raises(TypeError, match="compress"):
        convert(rich, tmp_path / "no.nc", compression="gzip")
    with pytest.raises(TypeError, match="format"):
        convert(tmp_path / "s.nc", tmp_path / "no.h5", format="CDF-5")


# ------------------------------------------------------------------------------------------------- others' files


def test_netcdf4_files_give_their_dimensions(tmp_path):
    with netCDF4.Dataset(tmp_path / "n.h5", "w", format="NETCDF4") as data:
        data.createDimension("time", None)
        data.createDimension("x", 3)
        data.createDimension("bare", 2)
        data.createVariable("time", "f8", ("time",))[:] = [1, 2]
        data.createVariable("v", "f4", ("time", "x", "bare"), fill_value=-1)[:] = np.arange(12).reshape(2, 3, 2)
        data["v"].units = "m"
        data["v"].valid_max = np.float32(100)
        data.version = np.int32(3)
        data.title = "made by netCDF4"
    report = convert(tmp_path / "n.h5", tmp_path / "n.nc")
    assert report.lost == ()
    # what comes from NetCDF needs nothing of ours
    assert b"pnc_vol_hdf5" not in (tmp_path / "n.nc").read_bytes()
    with netCDF4.Dataset(tmp_path / "n.nc") as data:
        assert data["v"].dimensions == ("time", "x", "bare")
        assert data.dimensions["time"].isunlimited()
        assert list(data.variables) == ["time", "v"]
        assert data.title == "made by netCDF4"
        assert data["v"].units == "m"
        assert data["v"]._FillValue == -1
        np.testing.assert_array_equal(data["v"][...], np.arange(12).reshape(2, 3, 2))


@pytest.mark.parametrize("fmt", ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"])
def test_classic_files_of_netcdf4_become_hdf5(tmp_path, fmt):
    with netCDF4.Dataset(tmp_path / "c.nc", "w", format=fmt) as data:
        data.createDimension("t", None)
        data.createDimension("x", 3)
        data.createVariable("x", "f8", ("x",))[:] = [1, 2, 3]
        data.createVariable("r", "i2", ("t", "x"))[:] = np.arange(9).reshape(3, 3)
        data["r"].valid_range = np.array([0, 99], "i2")
    assert convert(tmp_path / "c.nc", tmp_path / "c.h5").lost == ()
    with h5py.File(tmp_path / "c.h5") as f:
        assert f["r"].dtype == "i2"
        assert f["r"].maxshape == (None, 3)
        np.testing.assert_array_equal(f["r"][...], np.arange(9).reshape(3, 3))
        np.testing.assert_array_equal(f["r"].attrs["valid_range"], [0, 99])
        assert f["r"].dims[1][0].name == "/x"
        assert f["r"].dims[0].label == "t"


@pytest.mark.parametrize("case", ["f", "g", "i"])
def test_e3sm_maps_convert_whole_and_equal_their_pnetcdf_twin(tmp_path, case):
    source, twin = MAPS / f"map_{case}_case_16p.h5", MAPS / f"map_{case}_case_16p.nc"
    if not source.exists():
        pytest.skip("the E3SM map files of ../shared are not here")
    target = tmp_path / "map.nc"
    assert convert(source, target).lost == ()
    with h5py.File(source) as original, pnc_vol.File(target) as ours:
        assert set(original.attrs) == set(ours.attrs)
        for name, value in original.attrs.items():
            np.testing.assert_array_equal(ours.attrs[name], value)
        for name in original:
            for attr, value in original[name].attrs.items():
                np.testing.assert_array_equal(ours[name].attrs[attr], value)
    with netCDF4.Dataset(twin) as theirs, netCDF4.Dataset(target) as mine:
        assert set(theirs.variables) == set(mine.variables)
        for name in theirs.variables:
            assert mine[name].dtype == theirs[name].dtype
            np.testing.assert_array_equal(mine[name][...], theirs[name][...])


def test_awkward_things_survive(tmp_path):
    """What broke converters before: many tracked attributes, odd texts, names that meet, two scales on an axis."""
    with h5py.File(tmp_path / "a.h5", "w", track_order=True, libver=("v108", "latest")) as f:
        many = f.create_dataset("many", data=1, track_order=True)
        for i in range(20):
            many.attrs[f"a{20 - i:02}"] = i
        f.attrs["large"] = np.arange(10_000.0)
        f.attrs["nul"] = np.bytes_(b"a\0b")
        f.attrs["nothing"] = ""
        f.attrs.create("-DIM_x", 5)
        f["a/b_c"], f["a_b/c"], f["a_b_c"] = 1, 2, 3
        f["weird name/-x.y"] = np.arange(3)
        f["invalid"] = np.array([b"\xff\xfe", b"ok"], "S4")
        f.create_dataset("loose", (2,), h5py.string_dtype())[0] = b"\xff\xc3"
        f.create_dataset("ascii", data=np.array([b"a", b"bcd"], object), dtype=h5py.string_dtype("ascii"))
        table = np.array([["a", "bb"], ["", "cccc"]], object)
        f.create_dataset("texts", data=table, dtype=h5py.string_dtype(), maxshape=(None, 2))
        f.create_dataset("fill_s", (3,), "S3", fillvalue=b"xyz")
        f.create_dataset("fill_c", (2,), "c16", fillvalue=1 + 2j)
        f.create_dataset("fill_e", (3,), h5py.enum_dtype({"A": 1, "B": 2}, "i2"), fillvalue=2)
        f.create_dataset("holes", (3, 0, 2), "i4")
        f["plane"], f["line"] = np.zeros((2, 3)), np.arange(2.0)
        f["used"] = np.zeros(2)
        for name in ("plane", "line"):
            f[name].make_scale(name.upper())
            f["used"].dims[0].attach_scale(f[name])
        f["used"].dims[0].label = "both"
    assert convert(tmp_path / "a.h5", tmp_path / "a.nc").lost == ()
    assert convert(tmp_path / "a.nc", tmp_path / "b.h5").lost == ()
    original = everything(tmp_path / "a.h5", h5py.File)
    assert_same(original, everything(tmp_path / "a.nc", pnc_vol.File))
    assert_same(original, everything(tmp_path / "b.h5", h5py.File))


def test_groups_of_netcdf4_with_dimensions_of_one_name(tmp_path):
    with netCDF4.Dataset(tmp_path / "g.h5", "w") as data:
        data.createDimension("x", 3)
        group = data.createGroup("g")
        group.createDimension("x", 5)
        data.createVariable("v", "f4", ("x",))[:] = 1
        group.createVariable("w", "f4", ("x",))[:] = 2
    assert convert(tmp_path / "g.h5", tmp_path / "g.nc").lost == ()
    with pnc_vol.File(tmp_path / "g.nc") as f:
        assert f["v"].shape == (3,)
        assert f["g/w"].shape == (5,)
        assert f["v"].dims[0].label == f["g/w"].dims[0].label == "x"


def test_a_type_that_the_version_lacks_is_told_and_costs_nothing_else(tmp_path):
    with h5py.File(tmp_path / "i.h5", "w") as f:
        f["x"] = np.arange(3, dtype="i8")
        f["y"] = np.arange(3, dtype="i4")
        f["y"].attrs["n"] = np.uint8(3)
    with pytest.raises(LossError):
        convert(tmp_path / "i.h5", tmp_path / "i.nc", format="CDF-1", strict=True)
    assert os.listdir(tmp_path) == ["i.h5"]
    report = convert(tmp_path / "i.h5", tmp_path / "i.nc", format="CDF-1")
    assert [("CDF-1 has no type int64" in note.why, "CDF-1 has no type ubyte" in note.why) for note in report.lost] == [
        (True, False),
        (False, True),
    ]
    with pnc_vol.File(tmp_path / "i.nc") as f:
        assert f["y"][()].tolist() == [0, 1, 2]


# ------------------------------------------------------------------------------------------------- anything at all

NAMES = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=8).filter(
    lambda name: "/" not in name and name != "." and len(name.encode()) < 60
)
DTYPES = ["i1", "u2", ">i4", "i8", "u8", "f2", "f4", ">f8", "c8", "c16", "?", "S3"]


@st.composite
def arrays(draw):
    """An array of any type, or an object array of texts."""
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    if draw(st.booleans()):
        count = int(np.prod(shape, dtype=int))
        texts = draw(st.lists(st.text(st.characters(exclude_categories=("Cs", "Cc"))), min_size=count, max_size=count))
        found = np.empty(count, h5py.string_dtype())
        found[:] = texts
        return found.reshape(shape)
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    size = int(np.prod(shape, dtype=int)) * dtype.itemsize
    raw = np.frombuffer(draw(st.binary(min_size=size, max_size=size)), "u1")
    return (raw & 1 if dtype.kind == "b" else raw).view(dtype).reshape(shape).copy()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.lists(NAMES, min_size=1, max_size=3).map("/".join), arrays(), max_size=5), st.data())
def test_any_tree_survives_both_ways(tmp_path, tree, data):
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    with h5py.File(folder / "a.h5", "w", track_order=True) as f:
        for path, values in tree.items():
            with contextlib.suppress(ValueError):  # a name that is taken, or below a dataset
                limits = (None, *values.shape[1:]) if values.shape and data.draw(st.booleans()) else values.shape
                ds = f.create_dataset(path, data=values, maxshape=limits)
                ds.attrs["same"] = values
    assert convert(folder / "a.h5", folder / "a.nc", block_bytes=16).lost == ()
    assert convert(folder / "a.nc", folder / "b.h5", block_bytes=16).lost == ()
    original = everything(folder / "a.h5", h5py.File)
    assert_same(original, everything(folder / "a.nc", pnc_vol.File))
    assert_same(original, everything(folder / "b.h5", h5py.File))


# -------------------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize("length", [5, 100_000])
def test_long_strings_go_through_in_smaller_blocks(tmp_path, length):
    with h5py.File(tmp_path / "s.h5", "w") as f:
        ds = f.create_dataset("s", (40,), h5py.string_dtype())
        for i in range(40):
            ds[i] = chr(65 + i) * length
    calls = []
    convert(tmp_path / "s.h5", tmp_path / "s.nc", block_bytes=1 << 20, progress=lambda *said: calls.append(said))
    assert len(calls) >= 40 * length // (1 << 20)
    with pnc_vol.File(tmp_path / "s.nc") as f:
        assert [len(text) for text in f["s"][:]] == [length] * 40
        assert f["s"][39][:3] == b"hhh"


def converted(source: str, target: str) -> None:
    """In a process of its own; getrusage would count the memory of the process that started this one."""
    before = status("VmRSS")
    assert convert(source, target).bytes == 200 << 20
    print((status("VmHWM") - before) >> 20)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")
def test_memory_does_not_grow_with_the_dataset(tmp_path):
    """200 MiB through at most 100 MiB, both ways."""
    with h5py.File(tmp_path / "big.h5", "w") as f:
        ds = f.create_dataset("x", (100, 1 << 19), "i4")
        for i in range(0, 100, 10):
            ds[i : i + 10] = i
    for source, target in (("big.h5", "big.nc"), ("big.nc", "back.h5")):
        done = fresh(converted, tmp_path / source, tmp_path / target)
        assert done.returncode == 0, done.stderr
        assert int(done.stdout) < 100
    with h5py.File(tmp_path / "back.h5") as f:
        assert f["x"][99, 5] == f["x"][90, -1] == 90


def test_a_pipe_is_neither_source_nor_target(rich: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # somebody at the other end, so that a reader that opens the pipe does not wait for ever
    other_end = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    try:
        with pytest.raises(OSError, match="a pipe"):
            convert(pipe, tmp_path / "x.nc")
        with pytest.raises(OSError, match="a pipe"):
            convert(rich, pipe, overwrite=True)
    finally:
        os.close(other_end)
    assert pipe.is_fifo()
    assert "x.nc" not in os.listdir(tmp_path)


def test_a_link_stays_and_a_file_that_may_not_be_written_stays_too(rich: Path, tmp_path: Path) -> None:
    (tmp_path / "true.nc").write_bytes(b"old")
    (tmp_path / "link.nc").symlink_to("true.nc")

    class Refusing(HookedSystem):
        def open(self, path: Any, flags: int, mode: int = 0o666, *, dir_fd: int | None = None) -> int:
            if flags & os.O_ACCMODE != os.O_RDONLY and os.path.basename(path) == "true.nc":
                raise PermissionError(errno.EACCES, "Permission denied", path)
            return super().open(path, flags, mode, dir_fd=dir_fd)

    with pytest.raises(PermissionError, match="may not be written"):
        convert(rich, tmp_path / "true.nc", overwrite=True, system=Refusing())
    assert (tmp_path / "true.nc").read_bytes() == b"old"
    convert(rich, tmp_path / "link.nc", overwrite=True)
    assert (tmp_path / "link.nc").is_symlink()
    assert (tmp_path / "true.nc").read_bytes()[:3] == b"CDF"


def test_what_is_missing_is_named(rich: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="folder does not exist") as caught:
        convert(rich, tmp_path / "nodir/x.nc")
    assert caught.value.filename == str(tmp_path / "nodir")
    with pytest.raises(FileNotFoundError):
        convert(tmp_path / "absent.h5", tmp_path / "x.nc")


@pytest.mark.parametrize("mode", ["r", "r+", "w", "a"])
def test_addresses_are_not_written_and_never_taken_for_paths(mode: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s3:/bucket").mkdir(parents=True)
    # one that no server has (s3fs is installed or not), and one where no server is
    for address in ("s3://bucket/x.nc", "http://127.0.0.1:9/x.nc"):
        refused = pnc_vol.NotYetError if mode == "r" else pnc_vol.ReadOnlyError
        with pytest.raises(refused, match=address):
            pnc_vol.File(address, mode, **({"driver": "posix"} if mode == "r" else {}))
        with pytest.raises(pnc_vol.NotYetError, match="write the file here"):
            convert(tmp_path / "x.nc", address)
    with pytest.raises(OSError, match="cannot be reached"):
        convert("http://127.0.0.1:9/x.nc", tmp_path / "x.nc")
    assert os.listdir(tmp_path / "s3:/bucket") == []
    assert os.listdir(tmp_path) == ["s3:"]


@pytest.mark.parametrize("wrong", ["zip", "", 99, "gzip "])
def test_a_compression_that_h5py_does_not_have_is_refused_first(tmp_path: Path, wrong: Any) -> None:
    with pnc_vol.File(tmp_path / "a.nc", "w") as f:
        f["x"] = [1, 2, 3]
    with pytest.raises(ValueError, match="h5py here has gzip"):
        convert(tmp_path / "a.nc", tmp_path / "a.h5", compression=wrong)
    assert sorted(os.listdir(tmp_path)) == ["a.nc"]


@pytest.mark.parametrize("strict", [False, True])
def test_values_that_a_cut_file_does_not_have_are_lost(tmp_path: Path, strict: bool) -> None:
    path = tmp_path / "cut.nc"
    with pnc_vol.File(path, "w") as f:
        f["g/a"] = np.arange(100.0)
        f.create_dataset("t", (5, 100), "f8", maxshape=(None, 100))[...] = 1
    os.truncate(path, os.path.getsize(path) - 3000)
    (finding,) = pnc_vol.check(path)
    assert finding.message.endswith("3000 bytes are missing.")
    if strict:
        with pytest.raises(LossError, match="values of /t"):
            convert(path, tmp_path / "out.h5", strict=True)
        assert not (tmp_path / "out.h5").exists()
    else:
        (lost,) = convert(path, tmp_path / "out.h5").lost
        assert (lost.path, lost.what) == ("/t", "values")
        assert lost.why.startswith("3000 bytes are missing")


def test_damaged_hdf5_files_are_one_clear_error(tmp_path: Path) -> None:
    """What the HDF5 library raises for them has many types."""
    good, path = tmp_path / "good.h5", tmp_path / "bad.h5"
    with h5py.File(good, "w") as f:
        f["a"] = np.arange(40)
        f["g/b"] = np.arange(12.0).reshape(3, 4)
        f["g"].attrs["u"] = "metre"
        f["r"] = np.array([(1, 2.0)], dtype=[("x", "i4"), ("y", "f8")])
    content, told = good.read_bytes(), 0
    rng = random.Random(1)
    for number in range(150):
        data = bytearray(content)
        for _ in range(rng.choice([1, 1, 2, 4])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(data)
        try:
            # a new file is not synced, which one that replaces another is
            convert(path, tmp_path / f"{number}.nc")
        except OSError as error:
            told += "damaged: use another copy" in str(error)
    assert told


STRANGE = {
    "CLASS": ("text", 5, ["a", "b"]),
    "NAME": ("text", 5, ["a", "b"]),
    "DIMENSION_LIST": ("text", 5, ["a", "b"]),
    "DIMENSION_LABELS": ("text", 5, np.array([b"abc"], "S3")),
    "REFERENCE_LIST": ("text", 5, [1, 2]),
}


@pytest.mark.parametrize("name", STRANGE)
def test_attributes_that_only_look_like_those_of_scales_are_kept(tmp_path: Path, name: str) -> None:
    """HDF5's library ends the process when it is asked for scales or labels then."""
    source, target = tmp_path / "a.h5", tmp_path / "a.nc"
    with h5py.File(source, "w") as f:
        for number, value in enumerate(STRANGE[name]):
            f.create_dataset(str(number), data=[1.0, 2.0]).attrs[name] = value
    assert not convert(source, target).lost
    with pnc_vol.File(target) as f, pnc_vol.File(tmp_path / "b.nc", "w") as other:
        for number, value in enumerate(STRANGE[name]):
            assert np.array_equal(f[str(number)].attrs[name], value)
        with pnc_vol.File(source, hdf5="pass") as theirs:
            other.copy(theirs, other, "all")
        assert other["all/0"][:].tolist() == [1, 2]
        for number, value in enumerate(STRANGE[name]):
            assert np.array_equal(other[f"all/{number}"].attrs[name], value)
    convert(target, tmp_path / "b.h5")
    with h5py.File(tmp_path / "b.h5") as f:
        assert f["0"].attrs[name] == "text"


def test_an_axis_without_a_label_gets_none_from_the_dataset_that_names_the_records(tmp_path: Path) -> None:
    source, netcdf, back = tmp_path / "a.h5", tmp_path / "a.nc", tmp_path / "b.h5"
    with h5py.File(source, "w") as f:
        f.create_dataset("named", data=[1, 2], maxshape=(None,)).dims[0].label = "time"
        f.create_dataset("plain", data=[1, 2], maxshape=(None,))
        f.create_dataset("pair", data=np.zeros(2, [("x", "i4")]), maxshape=(None,))
    convert(source, netcdf)
    convert(netcdf, back)
    with h5py.File(back) as f:
        assert {name: (f[name].dims[0].label, len(f[name].dims[0])) for name in f} == {
            "named": ("time", 0), "plain": ("", 0), "pair": ("", 0),
        }  # fmt: skip


def test_the_report_lists_attributes_of_array_types(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f.attrs.create("a", np.array([1.0, 2.0]), dtype=np.dtype(("f8", (2,))))
    assert convert(tmp_path / "a.h5", tmp_path / "a.nc").by_convention == (("/@a", "array type -> more axes"),)


@pytest.mark.parametrize("fmt", ["NETCDF3_64BIT_DATA", "NETCDF4"])
def test_dimensions_that_no_variable_uses_are_kept(tmp_path: Path, fmt: str) -> None:
    with netCDF4.Dataset(tmp_path / "a", "w", format=fmt) as f:
        f.createDimension("time", None)
        f.createDimension("spare", 7)
        f.createVariable("x", "f4", ())
    netcdf = [tmp_path / "b.nc", tmp_path / "c.nc"]
    source = tmp_path / "a"
    for at, target in enumerate(netcdf):
        if fmt != "NETCDF4" or at:
            assert convert(source, tmp_path / f"{at}.h5").lost == ()
            source = tmp_path / f"{at}.h5"
            with netCDF4.Dataset(source) as f:
                assert (len(f.dimensions["spare"]), f.dimensions["time"].isunlimited()) == (7, True)
        assert convert(source, target).lost == ()
        with netCDF4.Dataset(target) as f:
            assert (len(f.dimensions["spare"]), f.dimensions["time"].isunlimited()) == (7, True)
        source = target


def test_strings_with_a_nul_are_kept_up_to_it_and_reported(tmp_path: Path) -> None:
    with netCDF4.Dataset(tmp_path / "a.nc", "w", format="NETCDF3_CLASSIC") as f:
        f.createDimension("n", 2)
        f.createDimension("strlen", 3)
        f.createVariable("s", "S1", ("n", "strlen"))._Encoding = "utf-8"
        f["s"].set_auto_chartostring(False)
        f["s"][:] = [[b"a", b"\0", b"b"], [b"c", b"d", b"e"]]
    report = convert(tmp_path / "a.nc", tmp_path / "a.h5")
    assert [(path, what) for path, what, _ in report.lost] == [("/s", "1 string from the first NUL on")]
    assert ("/s", "dimension strlen -> length of its strings, 3") in report.by_convention
    with h5py.File(tmp_path / "a.h5") as f:
        assert f["s"][:].tolist() == [b"a", b"cde"]


@pytest.mark.parametrize("order", ["<", ">"])
def test_rows_of_numbers_of_either_byte_order_have_the_right_values(tmp_path: Path, order: str) -> None:
    number = np.dtype(f"{order}i4")
    row = h5py.vlen_dtype(number)
    fields = np.dtype([("row", row), ("two", row, (2,))])
    source, target, copy = (str(tmp_path / name) for name in ("in.h5", "out.nc", "copy.nc"))
    with h5py.File(source, "w") as f:
        f.create_dataset("scalar", (), row)[()] = np.array([0x11223344], number)
        f.create_dataset("rows", (2,), row)[1] = [0x11223344, 1]
        written = np.zeros(1, fields)
        written["row"][0] = np.array([7], number)
        written["two"][0] = [np.array([8], number), np.array([9, 10], number)]
        f.create_dataset("fields", data=written)
        f["rows"].attrs.create("attr", [np.array([5], number), np.array([6, 6], number)], (2,), row)
    assert convert(source, target).complete
    with h5py.File(source) as f, pnc_vol.File(copy, "w") as g:
        g.copy(f["/"], g, "all")
        layout = pnc_vol.VirtualLayout((2,), row)
        layout[:] = pnc_vol.VirtualSource(source, "rows", (2,), row)
        g.create_virtual_dataset("all/seen", layout)
    with pnc_vol.File(target) as f, pnc_vol.File(copy) as g:
        for found in (f, g["all"]):
            assert found["scalar"][()].tolist() == [0x11223344]
            assert [each.tolist() for each in found["rows"][:]] == [[], [0x11223344, 1]]
            assert found["fields"]["row"][0].tolist() == [7]
            assert [each.tolist() for each in found["fields"]["two"][0]] == [[8], [9, 10]]
            assert [each.tolist() for each in found["rows"].attrs["attr"]] == [[5], [6, 6]]
        assert g["all/seen"][1].tolist() == [0x11223344, 1]


def write_shown_elsewhere(folder: Path, lib: Any) -> Path:
    """A file with datasets whose values are in other files, some of which cannot be read; between two of its own."""
    for name in ("in/good", "in/bad", "in/gone", "away"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with lib.File(path, "w") as f:
            f["x"] = np.arange(4.0)
    (folder / "in/bad").write_bytes((folder / "in/bad").read_bytes()[:30])
    (folder / "in/gone").unlink()
    (folder / "in/raw").write_bytes(np.arange(4.0).tobytes())
    with lib.File(folder / "in/all", "w") as f:
        f["first"] = [1, 2]
        for name, source in (("good", "good"), ("bad", "bad"), ("gone", "gone"), ("away", "../away")):
            layout = lib.VirtualLayout((4,), "f8")
            layout[:] = lib.VirtualSource(source, "x", (4,), "f8")
            f.create_virtual_dataset(name, layout, fillvalue=-1)
        f.create_dataset("raw", (4,), "f8", external=[("raw", 0, 32)])
        f.create_dataset("no_raw", (4,), "f8", external=[("nothing", 0, 32)])
        f["last"] = [3, 4]
    return folder / "in/all"


@pytest.mark.parametrize(("lib", "other"), [(pnc_vol, h5py), (h5py, pnc_vol)])
def test_sources_that_cannot_be_read_are_losses_and_the_rest_is_converted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lib: Any, other: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    source = write_shown_elsewhere(tmp_path, lib)
    monkeypatch.chdir(source.parent)
    report = convert(source, tmp_path / "out", follow_external=True)
    # to HDF5 a source that is not there is nothing wrong
    of_ours = {"/bad": "dataset", "/away": "dataset", "/gone": "some values"}
    lost = {"/no_raw": "values"} | (of_ours if lib is pnc_vol else {"/bad": "values"})
    assert {one.path: one.what for one in report.lost} == lost
    assert all("\n" not in one.why for one in report.lost)
    with other.File(tmp_path / "out") as f:
        assert f["first"][:].tolist() == [1, 2]
        assert f["last"][:].tolist() == [3, 4]
        assert f["good"][:].tolist() == f["raw"][:].tolist() == [0, 1, 2, 3]
        assert f["gone"][:].tolist() == [-1] * 4
        assert f["no_raw"][:].tolist() == [0] * 4
    with pytest.raises(LossError):
        convert(source, tmp_path / "strict", follow_external=True, strict=True)
    assert not (tmp_path / "strict").exists()


def write_names_that_meet(path: Path) -> dict[str, tuple[str, ...]]:
    """A classic file whose variables have the names of dimensions, and are not their coordinates."""
    variables: dict[str, tuple[str, ...]] = {
        "x": ("y",), "z": ("x", "y"), "t": (), "r": ("t", "x"), "spare": ("x",), "y": ("y", "x"),
    }  # fmt: skip
    with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_DATA") as f:
        for name, size in {"x": 3, "y": 2, "t": None, "spare": 4}.items():
            f.createDimension(name, size)
        for number, (name, dims) in enumerate(variables.items()):
            f.createVariable(name, "i4", dims)[...] = np.full((2, 3), number) if name == "r" else number
    return variables


def test_variables_with_names_of_dimensions_are_called_as_netcdf4_calls_them(tmp_path: Path) -> None:
    source, target, copy = tmp_path / "a.nc", tmp_path / "a.h5", tmp_path / "copy.h5"
    variables = write_names_that_meet(source)
    report = convert(source, target)
    assert report.lost == ()
    assert {path for path, what in report.by_convention if "_nc4_non_coord_" in what} == {"/x", "/t", "/spare", "/y"}
    tool("nccopy", "-k", "nc4", source, copy)
    with h5py.File(target) as f, h5py.File(copy) as theirs:
        # netCDF-4 makes a scale of y(y, x), which HDF5 has for one axis
        assert set(f) == set(theirs) | {"_nc4_non_coord_y"}
        assert [dim[0].name for dim in f["r"].dims] == [dim[0].name for dim in theirs["r"].dims] == ["/t", "/x"]
    convert(target, tmp_path / "back.nc")
    convert(copy, tmp_path / "theirs.nc")
    for path in (target, tmp_path / "back.nc", tmp_path / "theirs.nc"):
        with netCDF4.Dataset(path) as f:
            assert {name: variable.dimensions for name, variable in f.variables.items()} == variables
            assert {name: (len(dim), dim.isunlimited()) for name, dim in f.dimensions.items()} == {
                "x": (3, False), "y": (2, False), "t": (2, True), "spare": (4, False),
            }  # fmt: skip
            assert all((f[name][...] == number).all() for number, name in enumerate(variables))
            # the netCDF-4 library lists what it finds in an HDF5 file with its scales first
            assert path == target or list(f.variables) == list(variables)


def test_a_variable_called_like_one_of_its_two_dimensions_keeps_both_beside_groups(tmp_path: Path) -> None:
    source, target = tmp_path / "a.nc", tmp_path / "a.h5"
    with netCDF4.Dataset(source, "w", format="NETCDF3_64BIT_DATA") as f:
        for name, size in {"y": 2, "x": 3}.items():
            f.createDimension(name, size)
        f.createVariable("y", "i4", ("y", "x"))[...] = 1
    with pnc_vol.File(source, "r+") as f:
        f["g/z"] = [1.0, 2.0]
    convert(source, target)
    convert(target, tmp_path / "back.nc")
    with netCDF4.Dataset(target) as f:
        assert f["y"].dimensions == ("y", "x")
        assert set(f.dimensions) == {"y", "x"}
    with pnc_vol.File(tmp_path / "back.nc") as f:
        assert (set(f), [dim.label for dim in f["y"].dims]) == ({"y", "g"}, ["y", "x"])


def test_characters_and_coordinates_of_two_axes_are_those_that_nccopy_makes(tmp_path: Path) -> None:
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as f:
        for name, size in {"t": None, "y": 3, "x": 2, "strlen": 5}.items():
            f.createDimension(name, size)
        f.createVariable("y", "f4", ("y", "y"))[:] = np.arange(9).reshape(3, 3)
        f.createVariable("x", "f4", ("y", "x"))[:] = np.arange(6).reshape(3, 2)
        f.createVariable("v", "i4", ("t", "y", "x"))[:] = np.arange(12).reshape(2, 3, 2)
        f.createVariable("name", "S1", ("t", "strlen"))[:] = [[b"a", b"b", b"", b"", b""], [b"c"] * 5]
        f.createVariable("utf8", "S1", ("y", "strlen"))._Encoding = "utf-8"
        f["utf8"][:] = np.array(["ä", "bc", "d"])
        f.createVariable("letter", "S1", ("t",), fill_value=b"z")[:] = [b"p", b"q"]
        f.createVariable("map", "S1", ("y", "x"))[:] = np.array([b"a", b"b", b"c", b"d", b"e", b"f"]).reshape(3, 2)
    ours, theirs, back = tmp_path / "ours.nc", tmp_path / "theirs.nc", tmp_path / "back.h5"
    tool("nccopy", "-k", "cdf5", tmp_path / "a.nc", theirs)
    assert convert(tmp_path / "a.nc", ours).lost == convert(ours, back).lost == ()
    with netCDF4.Dataset(theirs) as expected:
        for path in (ours, back):
            with netCDF4.Dataset(path) as f:
                # the record dimension is where it was, and a dimension without a variable is no scale
                assert {name: (len(dim), dim.isunlimited()) for name, dim in f.dimensions.items()} == {
                    name: (len(dim), dim.isunlimited()) for name, dim in expected.dimensions.items()
                }
                for name, variable in expected.variables.items():
                    assert (f[name].dimensions, f[name].dtype) == (variable.dimensions, variable.dtype), (path, name)
                    assert np.array_equal(f[name][...], variable[...]), (path, name)
    with h5py.File(tmp_path / "a.nc") as f, pnc_vol.File(ours) as g:
        for name in ("name", "utf8", "letter", "map"):
            assert (g[name].shape, g[name].maxshape, g[name].dtype) == (f[name].shape, f[name].maxshape, f[name].dtype)
            assert np.array_equal(g[name][...], f[name][...])


def test_what_a_way_through_hdf5_adds_is_in_the_report(tmp_path: Path) -> None:
    source, back = tmp_path / "a.nc", tmp_path / "back.nc"
    with netCDF4.Dataset(source, "w", format="NETCDF3_64BIT_DATA") as f:
        f.createDimension("x", 3)
        f.createVariable("a", "f4", ("x",))
        f.createVariable("scalar", "i4", ())
    convert(source, tmp_path / "a.h5")
    told = convert(tmp_path / "a.h5", back).by_convention
    with netCDF4.Dataset(back) as f:
        marked = {f"/{name}" for name, one in [("", f), *f.variables.items()] if "pnc_vol_hdf5" in one.ncattrs()}
    assert marked == {path for path, what in told if what.endswith("-> pnc_vol_hdf5")} == {"/", "/a", "/scalar"}
