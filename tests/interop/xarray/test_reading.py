"""The engine of xarray: what it gives of files of other programs, and of those with groups and types of HDF5."""

from __future__ import annotations

import multiprocessing
import pickle
import threading
from io import BytesIO
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest

import pnc_vol

xr = pytest.importorskip("xarray", reason="xarray is not installed")


def ours(path: Any, **kwargs: Any) -> Any:
    return xr.open_dataset(path, engine="pnc_vol", **kwargs)


@pytest.mark.parametrize("version", ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"])
@pytest.mark.parametrize("decode", [True, False])
def test_the_same_as_netcdf4(tmp_path: Path, version: str, decode: bool) -> None:
    """Values, names, attributes and encodings of a file of another program."""
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w", format=version) as f:
        f.createDimension("time", None)
        f.createDimension("x", 3)
        f.createDimension("width", 4)
        f.createDimension("spare", 7)
        f.title, f.levels, f.one, f.empty = "a file", np.array([1, 2], "i2"), np.float32(2.5), ""
        time = f.createVariable("time", "f8", ("time",))
        time.units, time.calendar = "hours since 2001-02-03", "standard"
        time[:] = [0, 6, 12, 18]
        t = f.createVariable("t", "i2", ("time", "x"), fill_value=-99)
        t.scale_factor, t.add_offset, t.coordinates = 0.5, 10.0, "place"
        t[:] = np.ma.masked_equal(np.arange(12).reshape(4, 3), 5)
        place = f.createVariable("place", "S1", ("x", "width"))
        place._Encoding = "utf-8"
        place[:] = np.array([b"ab", "ä".encode(), b"abcd"], "S4").view("S1").reshape(3, 4)
        f.createVariable("raw", "S1", ("x", "width"))[:] = np.array([b"a", b"bc", b""], "S4").view("S1").reshape(3, 4)
        flag = f.createVariable("flag", "i1", ("x",))
        flag.setncattr("dtype", "bool")
        flag[:] = [1, 0, 1]
        f.createVariable("scalar", "f4", ())[...] = 4
    kwargs = {} if decode else {"decode_cf": False}
    with ours(path, **kwargs) as mine, xr.open_dataset(path, engine="netcdf4", **kwargs) as theirs:
        xr.testing.assert_identical(mine, theirs)
        assert list(mine.variables) == list(theirs.variables)
        assert mine.encoding == theirs.encoding
        for name, variable in theirs.variables.items():
            assert str(mine[name].encoding) == str(variable.encoding), name
            assert {key: type(value) for key, value in mine[name].attrs.items()} == {
                key: type(value) for key, value in variable.attrs.items()
            }
        xr.testing.assert_identical(mine.isel(time=[3, 0, 0], x=slice(None, None, -1)), theirs.isel(
            time=[3, 0, 0], x=slice(None, None, -1)))  # fmt: skip


def hdf5_file(path: Path) -> Path:
    with pnc_vol.File(path, "w") as f:
        f.attrs["matrix"] = np.arange(4).reshape(2, 2)
        f.attrs["names"] = ["a", "b, c"]
        f["lat"] = [1.0, 2.0]
        f["lat"].make_scale("lat")
        group = f.create_group("ocean")
        group.attrs["units"] = "m"
        group["depth"] = [5.0, 6.0, 7.0]
        group["depth"].make_scale("depth")
        t = group.create_dataset("t", data=np.arange(6.0).reshape(2, 3), fillvalue=4.0)
        t.dims[0].attach_scale(f["lat"])
        t.dims[1].attach_scale(group["depth"])
        group["z"] = np.array([1 + 2j, 3j])
        group["on"] = [True, False]
        group["kind"] = np.array([1, 0], pnc_vol.enum_dtype({"RED": 0, "DARK GREEN": 1}, "i1"))
        group["text"] = ["ä", "longer"]
        group["half"] = np.array([0.5, 1.5], "f2")
        group["triple"] = np.zeros(2, "(3,)i2")
        group["row"] = np.array([(1, 2.5), (3, 4.5)], [("n", "i4"), ("v", "f8")])
        group["none"] = np.zeros((0, 3))
        f.create_dataset("short", (2,), "i4", maxshape=(None,), fillvalue=-1)[:] = [7, 8]
        f.create_dataset("long", (4,), "i4", maxshape=(None,))[:] = 1
        f.create_dataset("deep/er/x", data=np.int16(3))
    return path


def test_groups_and_types_of_hdf5(tmp_path: Path) -> None:
    path = hdf5_file(tmp_path / "a.nc")
    with ours(path, group="/ocean", mask_and_scale=False) as ds:
        assert ds.attrs == {"units": "m"}
        assert ds["t"].dims == ("lat", "depth")
        assert list(ds.coords) == ["depth"]
        assert ds["z"].values.tolist() == [1 + 2j, 3j]
        assert ds["on"].dtype == bool
        assert ds["on"].values.tolist() == [True, False]
        assert ds["kind"].values.tolist() == [1, 0]
        assert ds["kind"].encoding["dtype"].metadata["enum"] == {"RED": 0, "DARK GREEN": 1}
        assert ds["text"].values.tolist() == ["ä", "longer"]
        assert ds["half"].dtype == np.float16
        assert ds["triple"].shape == (2, 3)
        assert ds["row_n"].values.tolist() == [1, 3]
        assert ds["row_v"].values.tolist() == [2.5, 4.5]
        assert ds["none"].shape == (0, 3)
    with ours(path) as ds:
        assert ds.attrs["matrix"].tolist() == [[0, 1], [2, 3]]
        assert ds.attrs["names"] == ["a", "b, c"]
        assert ds["short"].encoding["_FillValue"] == -1
        assert ds["short"][::-1].fillna(-5).values.tolist() == [-5, -5, 8, 7]
        assert ds["short"].isel(record=3).isnull()
    tree = xr.open_datatree(path, engine="pnc_vol")
    assert set(tree.groups) == {"/", "/ocean", "/deep", "/deep/er"}
    assert tree["deep/er/x"].item() == 3
    assert tree["ocean/t"].coords["lat"].values.tolist() == [1, 2]
    tree.close()
    assert set(xr.open_groups(path, engine="pnc_vol", group="deep")) == {"/", "/er"}
    with pytest.raises(OSError, match="group not found: '/land'"):
        ours(path, group="land")
    with pytest.raises(OSError, match="is a dataset"):
        ours(path, group="lat")


def test_lazy_pickled_and_read_by_threads(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    values = np.arange(200_000.0).reshape(200, 1000)
    with pnc_vol.File(path, "w") as f:
        f["x"] = values
    with ours(path) as ds, pickle.loads(pickle.dumps(ds)) as again:
        assert not ds["x"].variable._in_memory
        wrong: list[int] = []

        def read(seed: int) -> None:
            random = np.random.default_rng(seed)
            for _ in range(100):
                rows, columns = random.integers(0, 200, 3), slice(*sorted(random.integers(0, 1000, 2)))
                part = (ds if seed % 2 else again)["x"].isel(dim_200=rows, dim_1000=columns)
                if not np.array_equal(part.values, values[rows][:, columns]):
                    wrong.append(seed)

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
    content = path.read_bytes()
    with ours(content) as one, ours(BytesIO(content)) as two, path.open("rb") as file, ours(file) as three:
        for ds in (one, pickle.loads(pickle.dumps(one)), two, three):
            assert ds["x"][3, 4] == 3004


def test_a_file_at_an_address(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
    path = hdf5_file(tmp_path / "a.nc")
    with fsspec.open("memory://engine/a.nc", "wb") as file:
        file.write(path.read_bytes())
    with ours("memory://engine/a.nc", group="ocean", storage_options={"skip_instance_cache": False}) as ds:
        xr.testing.assert_identical(pickle.loads(pickle.dumps(ds)).load(), ours(path, group="ocean").load())


def test_what_the_engine_says_that_it_opens(tmp_path: Path) -> None:
    can = xr.backends.list_engines()["pnc_vol"].guess_can_open
    for version in ("CDF-1", "CDF-2", "CDF-5"):
        with pnc_vol.File(tmp_path / "a.nc", "w", format=version) as f:
            f["x"] = np.float32(1)
        assert can(tmp_path / "a.nc")
        assert can(str(tmp_path / "a.nc"))
        content = (tmp_path / "a.nc").read_bytes()
        stream = BytesIO(content)
        stream.seek(7)
        assert can(content)
        assert can(memoryview(content))
        assert can(stream)
        assert stream.tell() == 7
    with pnc_vol.File(tmp_path / "set.nc", "w", layout="blob") as f:
        f["x"] = [1.0, 2.0]
    assert not (tmp_path / "set.nc").exists()
    assert can(tmp_path / "set.nc")
    with ours(tmp_path / "set.nc") as ds:
        assert ds["x"].values.tolist() == [1, 2]
    with ours(tmp_path / "a.nc", options={"driver": "trace | posix", "hints": {"pnc_strict": "true"}}) as ds:
        assert pickle.loads(pickle.dumps(ds))["x"] == 1
    with netCDF4.Dataset(tmp_path / "four.nc", "w"):
        pass
    (tmp_path / "empty.nc").touch()
    for other in ("four.nc", "empty.nc", "missing.nc", ""):
        assert not can(tmp_path / other)
    assert not can(b"")
    assert not can(object())


def test_other_engines_come_first(tmp_path: Path) -> None:
    """Without ``engine=`` a file is read by what read it before this package was installed."""
    engines = xr.backends.list_engines()
    assert list(engines).index("netcdf4") < list(engines).index("pnc_vol")
    with pnc_vol.File(tmp_path / "a.nc", "w") as f:
        f["x"] = 1
    assert xr.backends.plugins.guess_engine(str(tmp_path / "a.nc")) == "netcdf4"


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system has no fork")
def test_forked_workers_read_what_their_parent_opened(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    values = np.arange(24.0).reshape(4, 6)
    pnc_vol.to_netcdf(xr.Dataset({"t": (("time", "x"), values)}), path)
    with xr.open_dataset(path, engine="pnc_vol", cache=False) as ds:
        assert ds["t"][0].values.tolist() == values[0].tolist()
        _inherited.append(ds)
        try:
            with multiprocessing.get_context("fork").Pool(2) as pool:
                assert pool.map(_row, range(4)) == values.tolist()
        finally:
            _inherited.clear()
        assert ds["t"][3].values.tolist() == values[3].tolist()


_inherited: list[Any] = []


def _row(number: int) -> Any:
    return _inherited[0]["t"][number].values.tolist()
