"""Arrays of dask: read without a lock, written block by block by threads, later, or by the workers of a cluster."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pnc_vol

xr = pytest.importorskip("xarray", reason="xarray is not installed")
dask = pytest.importorskip("dask", reason="dask is not installed (pip install pnc-vol[dask])")
import dask.array as da  # noqa: E402


def ours(path: Any, **kwargs: Any) -> Any:
    with xr.open_dataset(path, engine="pnc_vol", **kwargs) as ds:
        return ds.load()


def chunked(first: int, records: int) -> Any:
    t = 100.0 * da.arange(first, first + records, chunks=2)[:, None] + da.arange(50, chunks=20)
    names = xr.DataArray(np.array(["a", "bc", "d" * 5] * 10), dims="x").chunk({"x": 7})
    return xr.Dataset(
        {
            "t": (("time", "y"), t),
            "name": names,
            "fixed": ("y", da.ones(50, chunks=20) * 3),
            "on": ("time", t[:, 0] > 0),
        },
        {"time": np.arange(first, first + records)},
    )


def test_threads_write_blocks_into_a_bounded_buffer(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    told: list[tuple[int, int]] = []
    ds = chunked(0, 9)
    pnc_vol.to_netcdf(ds, path, unlimited_dims="time", buffer_size=4096, progress=lambda *step: told.append(step))
    xr.testing.assert_identical(ours(path), ds.compute())
    assert told[-1][0] == told[-1][1] == sum(v.nbytes for v in ds.variables.values()) - ds["name"].nbytes + 30 * 5
    pnc_vol.to_netcdf(chunked(9, 3).drop_vars(["name", "fixed"]), path, append_dim="time")
    xr.testing.assert_identical(ours(path), chunked(0, 12).compute())


def test_written_later_records_count_last(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    ds = chunked(0, 9)
    rest = pnc_vol.to_netcdf(ds, path, unlimited_dims="time", compute=False)
    assert ours(path).sizes["time"] == 0
    rest = pickle.loads(pickle.dumps(rest))
    rest.compute()
    xr.testing.assert_identical(ours(path), ds.compute())
    # done again, it does no harm; and it can go behind what is there
    rest.compute()
    more = pnc_vol.to_netcdf(chunked(9, 3).drop_vars(["name", "fixed"]), path, append_dim="time", compute=False)
    xr.testing.assert_identical(ours(path), ds.compute())
    more.compute()
    xr.testing.assert_identical(ours(path), chunked(0, 12).compute())
    assert not pnc_vol.check(path)
    with pytest.raises(pnc_vol.NotYetError, match="ordinary NetCDF file"):
        pnc_vol.to_netcdf(ds, tmp_path / "b.nc", compute=False, layout="blob")


def test_small_variables_are_one_chunk_and_large_ones_some_mebibytes(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with pnc_vol.File(path, "w") as f:
        f.create_dimension("time", None)
        f.create_dimension("x", 100_000)
        f.create_dimension("y", 20)
        for name, dims in {"large": ("time", "x"), "small": ("time", "y"), "fixed": ("x",)}.items():
            shape = tuple({"time": 50, "x": 100_000, "y": 20}[dim] for dim in dims)
            limits = (None, *shape[1:]) if dims[0] == "time" else None
            f.create_dataset(name, shape, "f8", maxshape=limits, dims=dims, fillvalue=1.0)
    with xr.open_dataset(path, engine="pnc_vol", chunks={}) as ds:
        # records of 0.8 MB: 16 of them are below 16 MiB
        assert ds["large"].chunks == ((16, 16, 16, 2), (100_000,))
        assert ds["small"].chunks == ((50,), (20,))
        assert ds["fixed"].chunks == ((100_000,),)
        assert ds["large"].encoding["preferred_chunks"] == {"time": 16, "x": 100_000}
        assert "preferred_chunks" not in ds["small"].encoding


def test_arrays_of_a_file_need_no_lock(tmp_path: Path) -> None:
    values = np.arange(600.0 * 50).reshape(600, 50)
    with pnc_vol.File(tmp_path / "a.nc", "w") as f:
        f.create_dataset("x", data=values, maxshape=(None, 50))
    with pnc_vol.File(tmp_path / "a.nc") as f:
        assert np.array_equal(da.from_array(f["x"], chunks=(7, 20), lock=False).compute(num_workers=4), values)
    with xr.open_dataset(tmp_path / "a.nc", engine="pnc_vol", chunks={}) as ds:
        assert ds["x"].chunks == ((600,), (50,))
    files = [tmp_path / f"{number}.nc" for number in range(3)]
    for number, path in enumerate(files):
        pnc_vol.to_netcdf(chunked(4 * number, 4)[["t"]], path)
    with xr.open_mfdataset(files, engine="pnc_vol", parallel=True) as ds:
        xr.testing.assert_equal(ds.compute(), chunked(0, 12)[["t"]].compute())


@pytest.mark.timeout(300)
def test_a_cluster_writes_one_file_though_a_worker_is_killed(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="dask is not installed (pip install pnc-vol[dask])")
    program = Path(__file__).with_name("killed_worker.py")
    subprocess.run([sys.executable, program, tmp_path], check=True, timeout=280, capture_output=True)
    assert (tmp_path / "dead").exists()
    ds = ours(tmp_path / "a.nc")
    assert np.array_equal(ds["t"], 100.0 * np.arange(9)[:, None] + np.arange(50))
    assert np.array_equal(ds["fixed"], np.full(50, 3.0))
    assert ds["time"].values.tolist() == list(range(9))
    assert not pnc_vol.check(tmp_path / "a.nc")
