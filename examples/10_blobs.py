"""A model on an unstructured mesh writes blobs: each rank's cells of each variable in one piece; then view and replay.

mpiexec -n 4 python 10_blobs.py ocean.nc 2      # 2 subfiles: ocean.nc.0000, ocean.nc.0001; then whole.nc and ocean.png
"""

import sys

import numpy as np
from mpi4py import MPI

import pnc_vol as h5py

CELLS, LEVELS, RECORDS = 3000, 5, 4

comm = MPI.COMM_WORLD
path = sys.argv[1] if len(sys.argv) > 1 else "ocean.nc"
subfiles = int(sys.argv[2]) if len(sys.argv) > 2 else min(2, comm.size)

# A decomposition of the kind that mesh partitioners make: cells in no order, and each rank owns some of them.
lon, lat = np.random.default_rng(0).uniform([0, -90], [360, 90], (CELLS, 2)).T
owner = ((lon // 30 + lat // 20) % comm.size).astype(int)
cells = np.flatnonzero(owner == comm.rank)
columns = h5py.Decomposition.from_runs(cells, shape=(CELLS,))
# the same cells in each level
levels = (np.arange(LEVELS)[:, None] * CELLS + cells).ravel()
volume = h5py.Decomposition.from_runs(levels, shape=(LEVELS, CELLS))

with h5py.File(path, "w", comm=comm, layout="blob", subfiles=min(subfiles, comm.size)) as f:
    f.attrs["title"] = "a made-up ocean"
    f.create_dataset("lon", (CELLS,), "f8", decomposition=columns)[columns] = lon[cells]
    f.create_dataset("lat", (CELLS,), "f8", decomposition=columns)[columns] = lat[cells]
    shape = (0, LEVELS, CELLS)
    heat = f.create_dataset("heat", shape, "f4", maxshape=(None, *shape[1:]), decomposition=volume)
    for t in range(RECORDS):
        heat.resize(t + 1, axis=0)
        depth = np.arange(LEVELS)[:, None]
        values = 20 * np.cos(np.radians(lat[cells])) - depth + np.sin(np.radians(lon[cells] + 40 * t))
        heat.iput((t, volume), values.ravel())
        f.flush()

# The view: the shapes that the program defined, on any number of ranks.
with h5py.File(path, comm=comm) as f:
    heat = f["heat"]
    mean = float(heat[-1].mean())
    if comm.rank == 0:
        print(f"{path}: {len(f)} variables, heat {heat.shape}, mean of the last record {mean:.3f}")

# The replay: one ordinary file, and a proof that each element is in one blob.
report = h5py.replay(path, output="whole.nc", comm=comm, overwrite=True)
if comm.rank == 0:
    print(f"whole.nc: {report.variables} variables, complete: {report.whole}")
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with h5py.File("whole.nc") as f:
        figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
        left.scatter(f["lon"], f["lat"], c=owner, s=4, cmap="tab10")
        left.set(title="rank that owns each cell", xlabel="longitude", ylabel="latitude")
        drawn = right.scatter(f["lon"], f["lat"], c=f["heat"][-1, 0], s=4)
        right.set(title="heat, last record, top level", xlabel="longitude")
        figure.colorbar(drawn)
        figure.savefig("ocean.png", dpi=80)
