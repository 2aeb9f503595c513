"""A model's output by xarray: records appended as they are computed, a region corrected, all read lazily.

    python 11_xarray.py ocean.nc

Needs xarray (pip install "pnc-vol[xarray]").
"""

import sys

import numpy as np
import xarray as xr

import pnc_vol


def step(day: int) -> xr.Dataset:
    """One day of a field on 20 x 30 cells."""
    y, x = np.mgrid[0:20, 0:30]
    field = 280 + 5 * np.sin((x + day) / 5) * np.cos(y / 4)
    return xr.Dataset(
        {"temperature": (("time", "y", "x"), field[None], {"units": "K", "standard_name": "sea_surface_temperature"})},
        {
            "time": [np.datetime64("2001-01-01", "ns") + np.timedelta64(day, "D")],
            "y": np.arange(20.0),
            "x": np.arange(30.0),
        },
    )


def main(path: str) -> None:
    """Write 10 days one by one, correct a corner of three, and say what is in the file."""
    packed = {"temperature": {"dtype": "i2", "scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -32768}}
    pnc_vol.to_netcdf(step(0), path, unlimited_dims="time", encoding=packed)
    for day in range(1, 10):
        pnc_vol.to_netcdf(step(day), path, append_dim="time")
    corner = xr.Dataset({"temperature": (("time", "y", "x"), np.full((3, 2, 2), 270.0))})
    pnc_vol.to_netcdf(corner, path, region={"time": slice(4, 7), "y": slice(0, 2), "x": slice(0, 2)})
    with xr.open_dataset(path, engine="pnc_vol") as ds:
        print(f"{ds.sizes['time']} days, {str(ds['time'].values[-1])[:10]} is the last one")
        print(f"coldest: {float(ds['temperature'].min()):.2f} K, mean: {float(ds['temperature'].mean()):.2f} K")


if __name__ == "__main__":
    main(*sys.argv[1:])
