"""Axes and values as CF means them, compared with what xarray makes of the same file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

import pnc_vol
from pnc_vol.viewer.coordinates import Decoding, axes_of, is_numeric, place_of


@pytest.fixture(params=["netcdf", "hdf5"])
def shown(request: Any, air: Path, tmp_path: Path) -> Any:
    """The file, as it is, and as netCDF-4 has it."""
    if request.param == "netcdf":
        with pnc_vol.File(air, "r") as f:
            yield f
        return
    with xr.open_dataset(air, mask_and_scale=False, decode_times=False, decode_coords=False) as ds:
        ds.to_netcdf(tmp_path / "air.h5", engine="netcdf4")
    with h5py.File(tmp_path / "air.h5", "r") as f:
        yield f


def test_axes_are_the_coordinates_of_the_dimensions(shown: Any) -> None:
    axes = axes_of(shown["T"], even=False)
    assert [axis.label for axis in axes] == [
        "time (days since 2000-01-01)", "lev (hPa)", "lat (degrees_north)", "lon (degrees_east)",
    ]  # fmt: skip
    for axis, name in zip(axes, ("time", "lev", "lat", "lon"), strict=True):
        np.testing.assert_array_equal(axis.values, shown[name][()])
    time, lev, lat, lon = axes_of(shown["T"], even=True)
    assert lev.values is None
    assert lev.label == "index of lev (hPa), which is not evenly spaced"
    assert lat.reversed
    np.testing.assert_array_equal(lat.values, np.linspace(-90, 90, 19))
    assert (lat.units, lon.units, time.units) == ("degrees", "degrees", "days since 2000-01-01")
    # a coordinate variable has no coordinates but its index, an observation those that its attribute names
    assert [axis.values for axis in axes_of(shown["lat"], even=False)] == [None]
    assert [axis.label for axis in axes_of(shown["rain"], even=False)] == ["obs_lat (degrees_north)"]
    x, y = place_of(shown["rain"])
    assert (x.label, y.label) == ("obs_lon (degrees_east)", "obs_lat (degrees_north)")
    np.testing.assert_array_equal(x.values, shown["obs_lon"][()])
    assert place_of(shown["T"]) is None


def test_values_are_those_that_xarray_decodes(shown: Any, air: Path) -> None:
    with xr.open_dataset(air, engine="netcdf4", decode_times=False) as ds:
        for name in shown:
            if name not in ds.variables or not is_numeric(shown[name]):
                continue
            expected = ds[name].values
            if name == "p":
                # xarray leaves out what is beyond the valid range
                expected = np.where(shown["p"][()] > 500, np.nan, expected)
                assert np.isnan(expected).sum() > 1
            values = Decoding.of(shown[name])(shown[name][()])
            assert values.dtype == Decoding.of(shown[name]).dtype
            np.testing.assert_allclose(values, expected, rtol=1e-6)


def test_a_map_has_north_at_the_top(air: Path, ask: Any) -> None:
    """Values and latitudes are turned together; a single latitude is chosen by its index in the file."""
    asked = ask(air)
    with pnc_vol.File(air, "r") as f:
        stored = np.where(f["T"][()] == -999, np.nan, f["T"][()])

    def values(selection: str) -> Any:
        return np.frombuffer(asked("data", path="//map/T/values", selection=selection, format="bin"), "<f4")

    np.testing.assert_array_equal(values("1,2"), stored[1, 2, ::-1].ravel())
    np.testing.assert_array_equal(values("1,2,:,:"), stored[1, 2, ::-1].ravel())
    np.testing.assert_array_equal(values("1,:,3,:"), stored[1, :, 3].ravel())
    np.testing.assert_array_equal(values("0,0,1:9:3,5"), stored[0, 0, ::-1, 5][1:9:3])
    members = asked.json("meta", path="//map/T")["children"]
    assert [each["name"] for each in members] == ["values", "axis0", "axis1", "axis2", "axis3"]
    assert asked.json("attr", path="//map/T")["axes"] == ["axis0", "axis1", "axis2", "axis3"]
    assert asked.json("data", path="//map/T/axis2")[0] == -90
    assert [each["name"] for each in asked.json("meta", path="//map/rain")["children"]] == ["values", "axis0", "axis1"]


@pytest.mark.parametrize(
    ("attrs", "stored", "expected"),
    [
        ({"_Unsigned": "true"}, np.array([-1, 5], "i1"), [255, 5]),
        ({"_Unsigned": "true", "_FillValue": np.int8(-1)}, np.array([-1, 5], "i1"), [np.nan, 5]),
        ({"missing_value": [1.0, 3.0]}, np.array([1, 2, 3], "f4"), [np.nan, 2, np.nan]),
        ({"valid_range": np.array([2, 3], "i4")}, np.array([1, 2, 4], "i4"), [np.nan, 2, np.nan]),
        ({"scale_factor": "wrong", "_FillValue": "x"}, np.array([1, 2], "i4"), [1, 2]),
        ({}, np.array([1, 9.969209968386869e36], "f4"), [1, np.nan]),
        ({}, np.array([2**62 + 1], "i8"), [2**62 + 1]),
    ],
)
def test_attributes_of_cf(tmp_path: Path, attrs: dict[str, Any], stored: Any, expected: Any) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as f:
        f["x"] = stored
        f["x"].attrs.update(attrs)
        np.testing.assert_array_equal(Decoding.of(f["x"])(f["x"][()]), expected)
        assert Decoding.of(f["x"])(f["x"][0]) == pytest.approx(expected[0], nan_ok=True)
