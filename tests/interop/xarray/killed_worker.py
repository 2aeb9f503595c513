"""A cluster of two processes writes a file; one of them is killed while it computes a block. Run by `test_dask`."""

import os
import signal
import sys
from pathlib import Path

import dask.array as da
import numpy as np
import xarray as xr
from dask.distributed import Client, LocalCluster

import pnc_vol


def dies_once(block: np.ndarray, folder: str) -> np.ndarray:
    """The first worker that computes a block of the records 4 and 5 dies of it."""
    mark = Path(folder) / "dead"
    if 400 in block[:, 0] and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return block


if __name__ == "__main__":
    folder = sys.argv[1]
    t = 100.0 * da.arange(9, chunks=2)[:, None] + da.arange(50, chunks=20)
    t = t.map_blocks(dies_once, folder=folder, dtype="f8", meta=np.empty((0, 0)))
    ds = xr.Dataset({"t": (("time", "y"), t), "fixed": ("y", da.ones(50, chunks=20) * 3)}, {"time": np.arange(9)})
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster):
        pnc_vol.to_netcdf(ds, f"{folder}/a.nc", unlimited_dims="time")
