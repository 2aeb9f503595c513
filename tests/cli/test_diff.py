"""diff finds every difference, and only those; its exit code tells."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

import pnc_vol


@pytest.fixture
def pair(tmp_path):
    """The same content as HDF5 and as NetCDF."""

    def write(library, path):
        with library.File(path, "w") as f:
            f.attrs["title"] = "pair"
            f["x"] = np.arange(3.0)
            f["x"].make_scale("x")
            ds = f.create_dataset("g/v", data=np.arange(30, dtype="f4").reshape(10, 3), maxshape=(None, 3))
            ds.dims[1].attach_scale(f["x"])
            ds.attrs["range"] = np.array([0, 30], "i2")
            f["g/nan"] = [1.0, np.nan, np.inf]
            f["s"] = ["a", "bc"]
            f["flag"] = np.array([True, False])
            f.create_dataset("null", data=library.Empty("f4"))
            f["scalar"] = 4
        return path

    return write(h5py, tmp_path / "a.h5"), write(pnc_vol, tmp_path / "a.nc")


def test_equal_files_of_either_kind(pair, verb):
    for a in pair:
        for b in pair:
            assert verb("diff", a, b, code=0).out == ""


def set_range(code):
    return lambda f: f["g/v"].attrs.__setitem__("range", np.array([0, 30 + (code == "i2")], code))


def change_type(f):
    del f["scalar"]
    f["scalar"] = np.int32(4)


CHANGES = {
    "/g/v: 1 of 30 values differ, the first at [7, 1]: 22.0 and 99.0, at most 77 apart": (
        lambda f: f["g/v"].__setitem__((7, 1), 99)
    ),
    "/g/nan: 1 of 3 values differ, the first at [1]: nan and 0.0": lambda f: f["g/nan"].__setitem__(1, 0),
    "/s: 1 of 2 values differ, the first at [1]: b'bc' and b'bd'": lambda f: f["s"].__setitem__(1, "bd"),
    "/g/v@range: [0, 30] in the first file, [0, 31] in the second": set_range("i2"),
    "/g/v@range: type i2 in the first file, i4 in the second": set_range("i4"),
    "/@title: only in the first file": lambda f: f.attrs.__delitem__("title"),
    "/flag: only in the first file": lambda f: f.__delitem__("flag"),
    "/new: only in the second file": lambda f: f.create_group("new"),
    "/g/v: shape (10, 3) in the first file, (11, 3) in the second": lambda f: f["g/v"].resize(11, axis=0),
    "/scalar: 1 of 1 values differ, 4 and 5, at most 1 apart": lambda f: f["scalar"].__setitem__((), 5),
    "/scalar: type i8 in the first file, i4 in the second": change_type,
    "/g/v: axis 1 has the scales ['/x'] in the first file, [] in the second": (
        lambda f: f["g/v"].dims[1].detach_scale(f["x"])
    ),
}


@pytest.mark.parametrize("sentence", CHANGES)
def test_each_kind_of_difference(pair, tmp_path, verb, sentence):
    hdf5, netcdf = pair
    for first, library, other in ((netcdf, h5py, "b.h5"), (hdf5, pnc_vol, "b.nc")):
        source = hdf5 if library is h5py else netcdf
        (tmp_path / other).write_bytes(source.read_bytes())
        with library.File(tmp_path / other, "r+") as f:
            CHANGES[sentence](f)
        done = verb("diff", first, tmp_path / other, code=1)
        assert sentence in done.out.splitlines()
        assert verb("diff", "-q", first, tmp_path / other, code=1).out == ""


def test_the_header_alone(pair, tmp_path, verb):
    hdf5, netcdf = pair
    with h5py.File(hdf5, "r+") as f:
        f["g/v"][7, 1] = 99
    verb("diff", "-h", hdf5, netcdf, code=0)
    with h5py.File(hdf5, "r+") as f:
        del f.attrs["title"]
    verb("diff", "-h", hdf5, netcdf, code=1)


def test_tolerances(tmp_path, verb):
    many = {"a": [1.0, 100.0, np.nan, np.inf], "b": [1.001, 100.1, np.nan, np.inf], "c": [1, 100, np.nan, -np.inf]}
    for name, values in many.items():
        with pnc_vol.File(tmp_path / f"{name}.nc", "w") as f:
            f["x"] = np.array(values, "f8")
    a, b, c = (tmp_path / f"{name}.nc" for name in "abc")
    verb("diff", a, b, code=1)
    verb("diff", "-t", "0.2,0", a, b, code=0)
    verb("diff", "-t", "0.01,0", a, b, code=1)
    verb("diff", "-t", "0,0.01", a, b, code=0)
    verb("diff", "-t", "1e9,1e9", a, c, code=1)
    for wrong in ("1", "-1,0", "a,b", "1,2,3", "nan,0"):
        assert "is not a tolerance" in verb("diff", "-t", wrong, a, b, code=2).err


def test_large_integers_are_compared_without_loss(tmp_path, verb):
    for name, library, value in (("a.nc", pnc_vol, 2**63 - 1), ("b.h5", h5py, 2**63 - 2)):
        with library.File(tmp_path / name, "w") as f:
            f["x"] = np.array([value], "i8")
    verb("diff", tmp_path / "a.nc", tmp_path / "b.h5", code=1)


def test_netcdf4_files_equal_their_conversion(tmp_path, verb):
    netCDF4 = pytest.importorskip("netCDF4", reason="netCDF4 is not installed")
    with netCDF4.Dataset(tmp_path / "n.h5", "w") as data:
        data.createDimension("bare", 3)
        kind = data.createEnumType("i1", "answer", {"NO": 0, "YES": 1})
        data.createVariable("v", kind, ("bare",))[:] = 1
    verb("convert", "-q", tmp_path / "n.h5", tmp_path / "n.nc", code=0)
    assert verb("diff", tmp_path / "n.h5", tmp_path / "n.nc", code=0).out == ""


@pytest.mark.parametrize("shape", [(3, 700, 900), (2_000_000,), (1_300_000, 2), (1, 1, 1_500_000)])
def test_more_than_a_block_is_compared_whole(tmp_path, verb, shape):
    rng = np.random.default_rng(5)
    base = rng.integers(0, 9, shape).astype("i4")
    changed = np.where(rng.random(base.shape) < 1e-5, base + 1, base)
    changed[(-1,) * len(shape)] += 1
    for name, values in (("a.nc", base), ("b.nc", changed)):
        with pnc_vol.File(tmp_path / name, "w") as f:
            f["x"] = values
    first = np.argwhere(base != changed)[0].tolist()
    out = verb("diff", tmp_path / "a.nc", tmp_path / "b.nc", code=1).out
    assert f"/x: {np.count_nonzero(base != changed)} of {base.size} values differ, the first at {first}" in out


def test_values_of_several_variables(tmp_path, verb):
    for name in ("a.nc", "b.nc"):
        with pnc_vol.File(tmp_path / name, "w") as f:
            f["c"] = np.array([(1, (2.5, np.nan)), (2, (3.5, 4))], [("p", "i4"), ("q", "f8", (2,))])
            rows = f.create_dataset("rows", (2,), pnc_vol.vlen_dtype("i4"))
            rows[1] = [1, 2]
            f.create_dataset("refs", data=[f["c"].ref])
            f["soft"] = pnc_vol.SoftLink("/c")
    verb("diff", tmp_path / "a.nc", tmp_path / "b.nc", code=0)
    with pnc_vol.File(tmp_path / "b.nc", "r+") as f:
        f["rows"][1] = [1, 3]
        f["c"]["p", 0] = 7
    done = verb("diff", tmp_path / "a.nc", tmp_path / "b.nc", code=1)
    assert "/rows: 1 of 2 values differ" in done.out
    assert "/c: 1 of 2 values differ" in done.out


ROW, PAIR = h5py.vlen_dtype("i4"), np.dtype([("x", "f8"), ("y", "i4", (2,))])
VALUES = {
    "an array type": (np.dtype(("i4", (3,))), "i4", (2,), [[1, 2, 3], [4, 5, 6]], [[1, 2, 3], [4, 0, 6]]),
    "a row that is a scalar": (ROW, "i4", (), [1, 2], [1, 2, 3]),
    "a NaN in the other part of a complex number": ("c16", "c16", (1,), [complex(1, np.nan)], [complex(np.nan, 1)]),
    "an array in a compound": (PAIR, PAIR, (1,), [(1.0, [2, 3])], [(1.0, [2, 4])]),
}


@pytest.mark.parametrize("case", VALUES)
def test_values_of_each_type(case, tmp_path, verb):
    dtype, stored, shape, *both = VALUES[case]
    for name, library, values in zip("abc", (h5py, pnc_vol, pnc_vol), (both[0], *both), strict=True):
        with library.File(tmp_path / name, "w") as f:
            f.create_dataset("x", shape, dtype)[...] = np.array(values, stored)
    verb("diff", tmp_path / "a", tmp_path / "b", code=0)
    for first in "ab":
        assert " values differ, " in verb("diff", tmp_path / first, tmp_path / "c", code=1).out


def test_the_tolerance_is_that_of_floats_in_compounds_and_rows_too(tmp_path, verb):
    for name, more in (("a", 0), ("b", 0.001)):
        with pnc_vol.File(tmp_path / name, "w") as f:
            f["pair"] = np.array([(1.0 + more, 2)], [("x", "f8"), ("n", "i4")])
            f.create_dataset("rows", (1,), pnc_vol.vlen_dtype("f8"))[0] = [1.0 + more, np.nan]
    verb("diff", "-t", "0.01,0", tmp_path / "a", tmp_path / "b", code=0)
    assert "2 differences" in verb("diff", "-t", "0.0001,0", tmp_path / "a", tmp_path / "b", code=1).out


@pytest.mark.parametrize("library", [h5py, pnc_vol])
def test_types_of_rows_references_and_arrays_are_told_apart(library, tmp_path, verb):
    types = [library.vlen_dtype("i4"), library.vlen_dtype("f8"), library.ref_dtype, library.regionref_dtype,
             np.dtype(("f8", (3,))), np.dtype(("f4", (6,)))]  # fmt: skip
    for at, dtype in enumerate(types):
        with library.File(tmp_path / str(at), "w") as f:
            f.create_dataset("x", (2,), dtype)
    for at in range(len(types)):
        for other in range(at):
            assert "/x: type " in verb("diff", tmp_path / str(at), tmp_path / str(other), code=1).out


def test_a_dataset_without_a_fill_value_is_compared(tmp_path, verb):
    """E3SM-IO writes such; h5py cannot, so the message in the header says that there is none."""
    for name, value in (("a.h5", 1), ("b.h5", 2)):
        with h5py.File(tmp_path / name, "w") as f:
            f["x"] = np.full(3, value, "i4")
            f["x"].attrs["_FillValue"] = np.int32(-9)
        content = (tmp_path / name).read_bytes()
        assert content.count(bytes([2, 2, 2, 1, 0, 0, 0, 0])) == 1
        (tmp_path / name).write_bytes(content.replace(bytes([2, 2, 2, 1, 0, 0, 0, 0]), bytes([2, 2, 2, 0, 0, 0, 0, 0])))
    with pnc_vol.File(tmp_path / "c.nc", "w") as f:
        f["x"] = np.full(3, 1, "i4")
    assert "3 of 3 values differ" in verb("diff", tmp_path / "a.h5", tmp_path / "b.h5", code=1).out
    assert "/x@_FillValue: only in the first file" in verb("diff", tmp_path / "a.h5", tmp_path / "c.nc", code=1).out
    verb("convert", "-q", tmp_path / "a.h5", tmp_path / "d.nc", code=0)
    verb("diff", tmp_path / "a.h5", tmp_path / "d.nc", code=0)
