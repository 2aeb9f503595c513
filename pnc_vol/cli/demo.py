"""``pnc-vol demo`` writes one small HDF5 file, moves it to NetCDF, and lets others read it back.

Knows: h5py, and which other readers may be installed. Does not know: how any of it works inside.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import numpy as np

from pnc_vol.cli.arguments import Options, Parser, Verb
from pnc_vol.cli.errors import expected, fail
from pnc_vol.cli.ls import tree
from pnc_vol.convert.either import open_either
from pnc_vol.convert.hdf5 import convert
from pnc_vol.optional import require_h5py
from pnc_vol.system import REAL, exists, is_folder, scratch_folder

__all__ = ["VERBS"]

RECORDS, ROWS, COLUMNS = 3, 4, 6


def _arguments(parser: Parser) -> None:
    parser.add_argument(
        "directory", metavar="DIR", nargs="?", help="Where to write; a new temporary directory by default."
    )


def command(options: Options) -> int:
    """Write a small HDF5 file, convert it to NetCDF, list it, and read it with other programs."""
    directory = options.directory
    where = directory or os.path.join(scratch_folder(), f"pnc-vol-demo-{REAL.token()}")
    with expected(where):
        if not exists(REAL, where):
            REAL.mkdir(where, 0o777 if directory else 0o700)
        elif not is_folder(REAL, where):
            fail(where, "it is a file; name a directory for the files of the demonstration")
        hdf5, netcdf = os.path.join(where, "demo.h5"), os.path.join(where, "demo.nc")
        for path in (hdf5, netcdf):
            if exists(REAL, path):
                fail(path, "it exists already; remove it, or choose another directory")
        for line in _steps(hdf5, netcdf):
            print(line)
    return 0


def write_example(path: str, h5py: Any) -> None:
    """Write the example with h5py, or with anything that looks like it.

    Parameters
    ----------
    path : str
    h5py : module
        h5py or pnc_vol: the code is the same for both.
    """
    with h5py.File(path, "w") as f:
        f.attrs["title"] = "pnc-vol demo"
        time = f.create_dataset("time", data=np.arange(RECORDS) * 6.0, maxshape=(None,))
        time.attrs["units"] = "hours since 2000-01-01"
        x = f.create_dataset("x", data=np.linspace(0, 1, COLUMNS))
        for scale in (time, x):
            scale.make_scale(scale.name[1:])
        ocean = f.create_group("ocean")
        ocean.attrs["institution"] = "demo"
        field = np.arange(RECORDS * ROWS * COLUMNS, dtype="f4").reshape(RECORDS, ROWS, COLUMNS)
        temperature = ocean.create_dataset("temperature", data=field, maxshape=(None, ROWS, COLUMNS), fillvalue=-999)
        temperature.attrs["units"] = "degree_Celsius"
        temperature.dims[0].attach_scale(time)
        temperature.dims[1].label = "y"
        temperature.dims[2].attach_scale(x)
        ocean.create_dataset("station", data=["Kiel", "Tromsø", "Nuuk"], dtype=h5py.string_dtype())


def _steps(hdf5: str, netcdf: str) -> Iterator[str]:
    h5py = require_h5py("The demo, which converts an HDF5 file,")
    write_example(hdf5, h5py)
    yield f"1. h5py wrote {hdf5}: groups, scales, strings, attributes, an unlimited axis"
    report = convert(hdf5, netcdf)
    counts = f"{report.datasets} datasets, {report.attributes} attributes, {len(report.lost)} lost"
    yield f"2. pnc_vol wrote {netcdf}: {counts}"
    yield "   (the same file comes from the same script with: import pnc_vol as h5py)"
    yield "3. seen through pnc_vol, as h5py shows it:"
    with open_either(netcdf) as f:
        for line in tree(f["/"], recursive=True, verbose=False):
            yield f"     {line}"
    yield "4. read back by others:"
    with h5py.File(hdf5) as f:
        expected_sum = float(f["ocean/temperature"][...].sum())
    count = 0
    for reader, total in _readers(netcdf):
        if total != expected_sum:
            fail(netcdf, f"{reader} reads a sum of {total}, and {expected_sum} was written; please report this")
        count += 1
        yield f"     {reader}: ocean_temperature sums up to {total:g}, as written"
    if not count:
        yield "     none is installed; pip install netCDF4 xarray"


def _readers(path: str) -> Iterator[tuple[str, float]]:
    """Yield each independent reader at hand, and the sum of the temperatures that it reads."""
    try:
        import netCDF4
    except ImportError:
        pass
    else:
        with netCDF4.Dataset(path) as data:
            yield f"netCDF4 {netCDF4.__version__}", float(data["ocean_temperature"][...].sum())
    try:
        import netCDF4
        import xarray
    except ImportError:
        pass
    else:
        with xarray.open_dataset(path, engine="netcdf4") as data:
            yield f"xarray {xarray.__version__}", float(data["ocean_temperature"].sum())
            return
    yield from _ncdump(path)


def _ncdump(path: str) -> Iterator[tuple[str, float]]:
    """Yield what the ncdump program reads, if it is installed."""
    program = shutil.which("ncdump")
    if program is None:
        return
    text = subprocess.run([program, "-v", "ocean_temperature", path], capture_output=True, text=True, check=True).stdout
    values = text.partition("data:")[2].partition("=")[2].partition(";")[0]
    yield "ncdump", sum(float(value) for value in values.split(","))


VERBS: dict[str, Verb] = {"demo": (_arguments, command)}
