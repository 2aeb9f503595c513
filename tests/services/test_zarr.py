"""References read by zarr through xarray, from a disk and from a web server, and by VirtualiZarr."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pnc_vol
from pnc_vol.convert.zarr_refs import write_references

pytestmark = [pytest.mark.services, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    made = tmp_path / "a.nc"
    with pnc_vol.File(made, "w") as f:
        f["lat"] = np.linspace(-90, 90, 40)
        f["lat"].make_scale("lat")
        time = f.create_dataset("time", data=np.arange(6.0), maxshape=(None,))
        time.make_scale("time")
        time.attrs["units"] = "days since 2000-01-01"
        x = f.create_dataset("temp", data=rng.random((6, 40, 30), "f4"), maxshape=(None, 40, 30), fillvalue=1e20)
        x[2, 3] = 1e20
        x.dims[0].attach_scale(time)
        x.dims[1].attach_scale(f["lat"])
        f["large"] = rng.integers(0, 1000, (3000, 1000))
        f["names"] = ["one", "three"]
        f["ok"] = np.array([True, False])
        f["g/h/v"] = np.arange(5, dtype="u2")
        f.attrs["Conventions"] = "CF-1.8"
    return made


def opened(refs: Path, *, far: bool = False, **keywords: Any) -> Any:
    import xarray as xr

    # The protocol is always named: fsspec otherwise looks for it in the references, in an order that changes from one
    # process to the next, and in parquet that fails at the first group (docs/howto/remote-files.md).
    options: dict[str, Any] = {"fo": str(refs), "remote_protocol": "http" if far else "file"}
    if far:
        options["remote_options"] = {"asynchronous": True}
    return xr.open_dataset("reference://", engine="zarr", backend_kwargs={"storage_options": options}, **keywords)


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_xarray_sees_what_the_netcdf_library_sees(path: Path, tmp_path: Path, kind: str) -> None:
    import xarray as xr

    write_references(str(path), str(tmp_path / f"refs.{kind}"))
    found, wanted = opened(tmp_path / f"refs.{kind}"), xr.open_dataset(path, engine="netcdf4")
    xr.testing.assert_identical(found, wanted.drop_vars("g_h_v").drop_attrs(deep=False).assign_attrs(found.attrs))
    assert found.attrs == {"Conventions": "CF-1.8"}
    assert np.isnan(found["temp"][2, 3]).all()
    assert opened(tmp_path / f"refs.{kind}", group="g/h")["v"].values.tolist() == [0, 1, 2, 3, 4]


def test_from_a_web_server(path: Path, tmp_path: Path, server: Any) -> None:
    write_references(f"{server.url}/a.nc", str(tmp_path / "far.json"))
    found = opened(tmp_path / "far.json", far=True)
    with pnc_vol.File(path) as f:
        assert (found["large"][2999].values == f["large"][2999]).all()
        assert server.sent < 20 << 20, "one chunk, not the file"


def test_virtualizarr(path: Path, tmp_path: Path) -> None:
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr import open_virtual_dataset
    from virtualizarr.parsers import KerchunkJSONParser

    write_references(str(path), str(tmp_path / "refs.json"), inline=0)
    stores = ObjectStoreRegistry({"file://": LocalStore()})
    with warnings.catch_warnings():
        found = open_virtual_dataset(f"file://{tmp_path}/refs.json", registry=stores, parser=KerchunkJSONParser())
    assert found["temp"].shape == (6, 40, 30)
    assert found["temp"].data.chunks == (1, 40, 30)
