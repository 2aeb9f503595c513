"""A NetCDF file of another program, shown as h5py would show it.

    python examples/05_read_foreign.py [some.nc]

Without an argument netCDF4-python first writes a small CDF-5 file. Any CDF-1, CDF-2 or CDF-5 file will do.
"""

import sys

import numpy as np

import pnc_vol as h5py


def write_with_netcdf4(path):
    import netCDF4

    with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_DATA") as data:
        data.title = "written by netCDF4-python"
        data.createDimension("time", None)
        data.createDimension("lat", 3)
        data.createDimension("lon", 4)
        for name, units, values in (
            ("time", "days since 2000-01-01", [0.0, 1.0]),
            ("lat", "degrees_north", [-30, 0, 30]),
            ("lon", "degrees_east", [0, 90, 180, 270]),
        ):
            data.createVariable(name, "f8", (name,)).units = units
            data[name][:] = values
        wind = data.createVariable("wind", "f4", ("time", "lat", "lon"), fill_value=-999.0)
        wind[:] = np.arange(24).reshape(2, 3, 4)


if len(sys.argv) > 1:
    path = sys.argv[1]
else:
    path = "foreign.nc"
    write_with_netcdf4(path)

with h5py.File(path) as f:
    print(f"{path}: {f.format}, {f.numrecs} records;", dict(f.attrs))
    for name, ds in f.items():
        # An axis knows its scales: the coordinate variables of its dimension.
        axes = [next((scale.name for scale in dim.values()), "-") for dim in ds.dims]
        kind = "scale" if ds.is_scale else "data "
        grows = ds.maxshape[:1] == (None,)
        print(f"{kind} {name:6}{ds.shape!s:10} {ds.dtype}  may grow: {grows!s:6}axes: {', '.join(axes)}")
