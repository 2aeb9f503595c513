"""``pnc_vol.to_netcdf``: datasets and trees of xarray, records behind those of a file, regions."""

from __future__ import annotations

import doctest
import importlib
import os
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
from programs import tool

import pnc_vol
from pnc_vol.testing.mpi import missing, run_mpi

xr = pytest.importorskip("xarray", reason="xarray is not installed")


def ours(path: Any, **kwargs: Any) -> Any:
    with xr.open_dataset(path, engine="pnc_vol", **kwargs) as ds:
        return ds.load()


def days(first: int, number: int) -> Any:
    time = np.datetime64("2001-01-01", "ns") + np.arange(first, first + number) * np.timedelta64(1, "D")
    t = 100.0 * np.arange(first, first + number)[:, None] + np.arange(3)
    return xr.Dataset(
        {"t": (("time", "x"), t, {"units": "K"}), "name": ("x", ["a", "ä", "long"]), "on": ("time", t[:, 0] > 100)},
        {"time": time, "x": [1.5, 2.5, 3.5]},
        {"title": "days", "list": ["a", "b"], "matrix": np.eye(2)},
    )


def test_what_is_written_is_read_again_by_other_engines_too(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    ds = days(0, 4).drop_attrs(deep=False).assign_attrs(title="days", levels=np.array([1, 2]))
    encoding = {
        "t": {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1},
        "time": {"units": "hours since 2000-01-01"},
    }
    pnc_vol.to_netcdf(ds, path, unlimited_dims="time", encoding=encoding)
    xr.testing.assert_identical(ours(path), ds)
    with xr.open_dataset(path, engine="netcdf4") as theirs:
        xr.testing.assert_identical(theirs, ds)
    with netCDF4.Dataset(path) as file:
        assert file.dimensions["time"].isunlimited()
        assert file["t"].dtype == "i2"
        assert file["time"].units == "hours since 2000-01-01"
        assert "pnc_vol_hdf5" not in [*file.ncattrs(), *(a for v in file.variables.values() for a in v.ncattrs())]


def test_trees_groups_and_attributes_that_netcdf_lacks(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    other = xr.Dataset({"q": (("y", "x"), np.ones((2, 5)))}, {"x": np.arange(5)})
    tree = xr.DataTree.from_dict({"/": days(0, 2).drop_dims("x"), "/a": other, "/a/b": other.drop_vars("x") * 2,
                                  "/c": xr.Dataset({"q": ("x", [True]), "none": ("z", [])})})  # fmt: skip
    tree.pnc.to_netcdf(path)
    with xr.open_datatree(path, engine="pnc_vol") as again:
        xr.testing.assert_identical(again.load(), tree)
    pnc_vol.to_netcdf(days(0, 2), path, mode="a", group="d/e")
    xr.testing.assert_identical(ours(path, group="d/e"), days(0, 2))
    xr.testing.assert_identical(ours(path, group="a"), other)
    with pnc_vol.File(path) as f:
        assert f["a/q"].dims[1][0] == f["a/x"]
    image = pnc_vol.to_netcdf(days(0, 2))
    xr.testing.assert_identical(ours(image), days(0, 2))


def test_records_are_appended_as_they_are_encoded(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    encoding = {"t": {"dtype": "i4", "add_offset": 10.0, "_FillValue": -1}}
    pnc_vol.to_netcdf(days(0, 2), path, append_dim="time", encoding=encoding)
    size = os.path.getsize(path)
    for first in (2, 3):
        days(first, 1).pnc.to_netcdf(path, append_dim="time")
    xr.testing.assert_identical(ours(path), days(0, 4))
    assert os.path.getsize(path) < size + 200
    with netCDF4.Dataset(path) as file:
        assert file["time"].units == "days since 2001-01-01 00:00:00"
        assert file["t"].dtype == "i4"
    with pytest.raises(ValueError, match="length 3 along axis 1"):
        pnc_vol.to_netcdf(days(4, 1).isel(x=[0]), path, append_dim="time")
    with pytest.raises(ValueError, match="no dimension of the dataset"):
        pnc_vol.to_netcdf(days(4, 1), path, append_dim="y")


def test_regions(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    pnc_vol.to_netcdf(days(0, 4), path, unlimited_dims="time")
    part = (days(0, 2)[["t"]] * -1).isel(x=slice(1, 3)).drop_vars(["x", "time"])
    pnc_vol.to_netcdf(part, path, region={"time": slice(2, 4), "x": slice(1, 3)})
    expected = days(0, 4)["t"].values
    expected[2:4, 1:3] = part["t"]
    assert np.array_equal(ours(path)["t"], expected)
    for wrong, said in (
        ({"x": slice(1, 3)}, "length 4 along axis 0"),
        ({"time": slice(2, 4), "x": slice(2, 4)}, "length 3 along it"),
        ({"time": slice(3, 5), "x": slice(1, 3)}, "length 4 along it.*append_dim"),
        ({"time": slice(1000, 1002), "x": slice(1, 3)}, "length 4 along it.*append_dim"),
        ({"time": slice(2, 5), "x": slice(1, 3)}, "has 2 along it"),
        ({"lev": slice(0, 1)}, "no dimension"),
    ):
        with pytest.raises(ValueError, match=said):
            pnc_vol.to_netcdf(part, path, region=wrong)
    with pytest.raises(ValueError, match="has no 'u'"):
        pnc_vol.to_netcdf(part.rename(t="u"), path, region={"time": slice(2, 4), "x": slice(1, 3)})
    assert np.array_equal(ours(path)["t"], expected)


def test_nothing_tells_in_what_order_the_bytes_were(tmp_path: Path) -> None:
    """Scipy reads NetCDF with the order of bytes that the file has."""
    levels = np.array([0, 9], ">i2")
    t = xr.Variable(("time", "x"), np.array([[1, 2], [3, np.nan]], ">f4"), {"levels": levels})
    t.encoding = {"dtype": np.dtype(">i2"), "_FillValue": -1}
    ds = xr.Dataset({"t": t, "x": np.array([1, 2], ">i4")}, attrs={"levels": levels})
    for chunks in ({}, {"time": 1}):
        pnc_vol.to_netcdf(ds.chunk(chunks) if chunks else ds, tmp_path / "a.nc", unlimited_dims="time")
        assert "pnc_vol" not in tool("ncdump", "-h", tmp_path / "a.nc")
        found = ours(tmp_path / "a.nc")
        assert np.array_equal(found["t"], ds["t"], equal_nan=True)
        assert found["t"].encoding["dtype"].isnative
        assert found.attrs["levels"].tolist() == [0, 9]


def test_arguments_that_do_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    ds = days(0, 1)
    with pytest.raises(ValueError, match="unexpected encoding parameters"):
        pnc_vol.to_netcdf(ds, path, encoding={"t": {"zip": True}})
    with pytest.raises(ValueError, match="Unlimited dimension"):
        pnc_vol.to_netcdf(ds, path, unlimited_dims=["y"])
    with pytest.raises(TypeError, match="Invalid value for attr"):
        pnc_vol.to_netcdf(ds.assign_attrs(x={}), path)
    with pytest.raises(TypeError, match="DataArray or DataTree is needed"):
        pnc_vol.to_netcdf([1], path)
    with pytest.raises(ValueError, match=r"unsupported dtype for a NetCDF variable: \[\('k'"):
        pnc_vol.to_netcdf(xr.Dataset({"pairs": ("x", np.zeros(2, [("k", "i4")]))}), path)
    with pytest.raises(TypeError, match="colour"):
        pnc_vol.to_netcdf(ds, path, colour="red")
    with pytest.warns(pnc_vol.PncVolWarning, match="without compression"):
        pnc_vol.to_netcdf(ds, path, encoding={"t": {"zlib": True}})
    xr.testing.assert_identical(ours(path), ds)
    with pytest.raises(FileExistsError):
        pnc_vol.to_netcdf(ds, path, mode="w-")


def test_addresses_are_for_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for address in ("memory://x.nc", "https://example.org/x.nc"):
        with pytest.raises(pnc_vol.PncVolError, match=r"addresses are open for reading only.*copy it"):
            pnc_vol.to_netcdf(days(0, 1), address)
    assert not list(tmp_path.iterdir())


def test_progress_is_told_in_bytes(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    pnc_vol.to_netcdf(days(0, 4), tmp_path / "a.nc", progress=lambda *step: told.append(step))
    assert told[-1][0] == told[-1][1]
    assert len(told) == len(days(0, 4).variables)


RANKS = """
import sys
import numpy as np, xarray as xr, pnc_vol
from mpi4py import MPI

comm, path = MPI.COMM_WORLD, sys.argv[1]
low, high = comm.rank * 7 // comm.size, (comm.rank + 1) * 7 // comm.size
time = np.datetime64("2001-01-01", "ns") + np.arange(low, high) * np.timedelta64(1, "h")
names = np.array(["n" * (i + 1) for i in range(low, high)])
part = xr.Dataset({"t": (("y", "time"), 10.0 * np.arange(2)[:, None] + np.arange(low, high)), "name": ("time", names)},
                  {"time": time, "y": [1, 2]})
pnc_vol.to_netcdf(part, path, comm=comm, region={"time": slice(low, high)}, mode="w")
pnc_vol.to_netcdf(part[["t"]].drop_vars(["y", "time"]) * 2, path, comm=comm, region={"time": slice(low, high)})
pnc_vol.to_netcdf(xr.Dataset({"same": ("z", np.arange(5))}), path, comm=comm, mode="a", group="all")
"""


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.parametrize("ranks", [1, 3])
def test_each_rank_writes_its_region(tmp_path: Path, ranks: int) -> None:
    program = tmp_path / "program.py"
    program.write_text(RANKS)
    run_mpi(ranks, program, tmp_path / "a.nc")
    ds = ours(tmp_path / "a.nc")
    assert ds["t"].values.tolist() == (2 * (10.0 * np.arange(2)[:, None] + np.arange(7))).tolist()
    assert (np.diff(ds["time"].values) == np.timedelta64(1, "h")).all()
    assert ds["name"].values.tolist() == ["n" * (i + 1) for i in range(7)]
    assert ds["y"].values.tolist() == [1, 2]
    assert ours(tmp_path / "a.nc", group="all")["same"].values.tolist() == [0, 1, 2, 3, 4]
    tool("ncvalidator", "-q", tmp_path / "a.nc")


@pytest.mark.parametrize("module", ["writing", "engine", "jobs", "stores", "stored", "variables"])
def test_examples(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = importlib.import_module(f"pnc_vol.xarray.{module}")
    names = {"pnc_vol": pnc_vol}
    done = doctest.testmod(found, extraglobs=names)
    assert done.attempted
    assert not done.failed


def test_a_second_unlimited_dimension_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    ds = xr.Dataset({"a": (("time", "x"), np.ones((2, 3))), "b": ("y", [1.0]), "c": ("time", [1.0, 2.0])})
    named = r"^'time', 'x' cannot all be unlimited.*one unlimited dimension.*unlimited_dims='time'"
    with pytest.raises(ValueError, match=named):
        pnc_vol.to_netcdf(ds, path, unlimited_dims=["time", "x"])
    # as a file of netCDF-4 is read
    with pytest.raises(ValueError, match=r"'time', 'y' cannot all be unlimited"):
        pnc_vol.to_netcdf(ds.assign().drop_vars("c").pipe(_encoded_as, {"time", "y"}), path)
    assert not path.exists()
    pnc_vol.to_netcdf(ds.pipe(_encoded_as, {"time", "y"}), path, unlimited_dims="time")
    with netCDF4.Dataset(path) as f:
        assert {name: dim.isunlimited() for name, dim in f.dimensions.items()} == {"time": True, "x": False, "y": False}
    more = xr.Dataset({"d": ("z", [1.0, 2.0])})
    named = r"has the unlimited dimension 'time', so 'z' cannot be unlimited.*unlimited_dims='time'"
    with pytest.raises(ValueError, match=named):
        pnc_vol.to_netcdf(more, path, mode="a", unlimited_dims="z")
    # what exists is not defined anew
    pnc_vol.to_netcdf(ds[["a", "c"]].pipe(_encoded_as, {"time", "x"}), path, append_dim="time")
    for engine in ("pnc_vol", "netcdf4"):
        assert dict(xr.load_dataset(path, engine=engine).sizes) == {"time": 4, "x": 3, "y": 1}


def _encoded_as(ds: Any, unlimited: set[str]) -> Any:
    ds = ds.copy()
    ds.encoding["unlimited_dims"] = unlimited
    return ds


def test_variables_of_the_same_records_are_appended_by_several_calls(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    first = xr.Dataset(
        {"t": (("time", "x"), np.ones((1, 2))), "n": ("time", np.array([1], "i4"))}, {"time": [0.0], "x": [5, 6]}
    )
    pnc_vol.to_netcdf(first, path, unlimited_dims="time")
    more = (first + 1).assign_coords(time=[24.0])
    with pytest.raises(ValueError, match=r"\['n'\].*fill_missing=True.*region="):
        pnc_vol.to_netcdf(more[["t"]], path, append_dim="time")
    pnc_vol.to_netcdf(more[["t"]], path, append_dim="time", fill_missing=True)
    assert xr.load_dataset(path, engine="netcdf4")["n"].values.tolist() == [1, 0]
    pnc_vol.to_netcdf(more[["n"]], path, region="auto")
    for engine in ("pnc_vol", "netcdf4"):
        xr.testing.assert_identical(xr.load_dataset(path, engine=engine), xr.concat([first, more], "time"))


def test_one_array_has_the_methods_too(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    one = xr.Dataset({"t": ("x", [1.0, 2.0])}, {"x": [5, 6]})
    one["t"].pnc.to_netcdf(path)
    xr.testing.assert_identical(xr.load_dataset(path, engine="netcdf4"), one)
    one["t"].rename(None).pnc.to_netcdf(path)
    xr.testing.assert_identical(xr.load_dataarray(path, engine="pnc_vol"), one["t"].rename(None))


def test_a_file_that_is_open_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    one = xr.Dataset({"t": ("x", [1.0, 2.0])})
    pnc_vol.to_netcdf(one, path)
    with xr.open_dataset(path, engine="pnc_vol") as ds, pytest.raises(OSError, match="has it open already"):
        pnc_vol.to_netcdf(ds + 1, path)
    xr.testing.assert_identical(xr.load_dataset(path, engine="netcdf4"), one)
    pnc_vol.to_netcdf(xr.load_dataset(path, engine="pnc_vol") + 1, path)
    xr.testing.assert_identical(xr.load_dataset(path, engine="netcdf4"), one + 1)


def test_axes_of_a_ported_program_have_the_names_that_it_gives(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with pnc_vol.File(path, "w") as f:
        f["plain"] = np.zeros((4, 4))
        f.create_dataset("named", data=np.zeros((4, 4)), dims=("y", "x"))
        f["labelled"] = np.zeros((4, 4))
        f["labelled"].dims[0].label, f["labelled"].dims[1].label = "cell", "vertex"
    for engine in ("pnc_vol", "netcdf4"):
        found = xr.load_dataset(path, engine=engine)
        assert found["named"].dims == ("y", "x")
        assert found["plain"].dims == ("dim_4", "dim_4_2")
    assert xr.load_dataset(path, engine="pnc_vol")["labelled"].dims == ("cell", "vertex")


def test_an_unlimited_dimension_that_is_not_the_first_keeps_its_name(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    ds = xr.Dataset({"v": (("x", "time"), np.arange(6.0).reshape(2, 3)), "w": ("time", [1, 2, 3])}, {"time": [5, 6, 7]})
    pnc_vol.to_netcdf(ds, path, unlimited_dims="time")
    xr.testing.assert_identical(ours(path), ds)
    later = ds.assign_coords(time=[8, 9, 10])
    pnc_vol.to_netcdf(later, path, append_dim="time")
    xr.testing.assert_identical(ours(path), xr.concat([ds, later], "time"))


@pytest.mark.parametrize("group", [None, "g"])
def test_a_scale_of_another_length_keeps_its_dimension(tmp_path: Path, group: str | None) -> None:
    with pnc_vol.File(tmp_path / "a.nc", "w") as f:
        g = f.require_group(group or "/")
        g["short"], g["x"] = np.zeros(3), np.arange(5)
        g["x"].make_scale("x")
        g["short"].dims[0].attach_scale(g["x"])
    ds = ours(tmp_path / "a.nc", group=group)
    assert (ds["x"].dims, ds["short"].dims) == (("x",), ("dim_3",))


@pytest.mark.parametrize("version", ["CDF-1", "CDF-2"])
def test_attributes_in_a_format_without_64_bit_integers(tmp_path: Path, version: str) -> None:
    path = tmp_path / "a.nc"
    attrs = {"number": 3, "list": [1, 2], "byte": np.uint8(4), "true": True, "matrix": np.eye(2), "complex": 1j}
    ds = xr.Dataset({"v": ("x", [1.0, 2.0], attrs)}, attrs=attrs)
    pnc_vol.to_netcdf(ds, path, format=version)
    xr.testing.assert_identical(ours(path), ds)
    with netCDF4.Dataset(path) as f:
        assert (f.number, f["v"].number, f["v"].list.dtype) == (3, 3, np.int32)
    with pytest.raises(pnc_vol.DefinitionError, match=r"'big' of '/v': CDF-\d has no type int64"):
        pnc_vol.to_netcdf(ds.assign(v=ds["v"].assign_attrs(big=1 << 40)), path, format=version)


def test_unlimited_dimensions_of_a_tree_are_given_by_group(tmp_path: Path) -> None:
    tree = xr.DataTree.from_dict({"/": xr.Dataset({"t": ("time", [1, 2])})})
    with pytest.raises(TypeError, match=r"unlimited_dims=\['time'\]: .* each group"):
        pnc_vol.to_netcdf(tree, tmp_path / "a.nc", unlimited_dims=["time"])
    assert not (tmp_path / "a.nc").exists()
    pnc_vol.to_netcdf(tree, tmp_path / "a.nc", unlimited_dims={"/": ["time"]})
    with pnc_vol.File(tmp_path / "a.nc") as f:
        assert f["t"].maxshape == (None,)


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize(
    "values", [np.array(["2000-01-02", "NaT"], "M8[ns]"), np.array([86400 * 10**9, "NaT"], "m8[ns]")]
)
def test_a_missing_time_is_never_a_number_that_reads_as_a_time(tmp_path: Path, values: Any, lazy: bool) -> None:
    path, ds = tmp_path / "a.nc", xr.Dataset({"v": ("x", values)})
    if lazy:
        pytest.importorskip("dask")
        ds = ds.chunk(x=1)
    units = "days since 2000-01-01" if values.dtype.kind == "M" else "days"
    for dtype in ("i2", "i4", "u8"):
        with pytest.raises(pnc_vol.RangeError, match=r"'v': a time is missing \(NaT\).*'_FillValue': \d+}}"):
            pnc_vol.to_netcdf(ds, path, encoding={"v": {"dtype": dtype, "units": units}})
        assert not path.exists()
    good = {"dtype": "i4", "_FillValue": -1}, {"dtype": "i4", "missing_value": -1}, {"dtype": "i8"}, {"dtype": "f8"}
    for given in good:
        pnc_vol.to_netcdf(ds, path, encoding={"v": {"units": units, **given}})
        with xr.open_dataset(path, engine="netcdf4", decode_timedelta=True) as found:
            assert np.array_equal(np.isnat(found["v"]), [False, True])
            assert found["v"].values[0] == values[0]
