"""Many ranks post one column each and flush twenty times: ``mpiexec -n N python ranks_many.py FILE``."""

from __future__ import annotations

import resource
import sys

import numpy as np
from mpi4py import MPI

import pnc_vol as h5py

RECORDS, ROWS = 20, 50
MOST_MIB = 160

world = MPI.COMM_WORLD
with h5py.File(sys.argv[1], "w", driver="mpio", comm=world, transport="aggregate") as f:
    x = f.create_dataset("x", (0, ROWS, world.size), "f4", maxshape=(None, ROWS, world.size))
    for k in range(RECORDS):
        x.resize(k + 1, axis=0)
        x[k, :, world.rank] = k * 100 + world.rank
        f.flush()
    used = f.statistics()
assert used["transport"] == "aggregate", used
largest = world.reduce(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, op=MPI.MAX)
if world.rank == 0:
    assert largest < MOST_MIB << 10, largest
    with h5py.File(sys.argv[1], "r") as f:
        expected = np.arange(RECORDS)[:, None, None] * 100 + np.arange(world.size)
        assert (f["x"][...] == expected).all()
