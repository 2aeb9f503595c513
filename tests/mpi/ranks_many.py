"""Many ranks post one column each and flush twenty times: ``mpiexec -n N python ranks_many.py FILE [CASE]``.

In the flush number `TROUBLE` one rank is killed (``killed``).
"""

from __future__ import annotations

import os
import resource
import signal
import sys

import numpy as np
from mpi4py import MPI

import pnc_vol as h5py

RECORDS, ROWS = 20, 50
TROUBLE = 10
MOST_MIB = 160

world = MPI.COMM_WORLD
path, case = sys.argv[1], (sys.argv[2:] or ["well"])[0]

with h5py.File(path, "w", comm=world, driver="mpio", transport="aggregate", collective_timeout=60) as f:
    x = f.create_dataset("x", (0, ROWS, world.size), "f4", maxshape=(None, ROWS, world.size))
    for k in range(RECORDS):
        x.resize(k + 1, axis=0)
        x[k, :, world.rank] = k * 100 + world.rank
        if (case, k, world.rank) == ("killed", TROUBLE, world.size // 2 + 5):
            os.kill(os.getpid(), signal.SIGKILL)
        f.flush()
    used = f.statistics()
assert used["transport"] == "aggregate", used
largest = world.reduce(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, op=MPI.MAX)
if world.rank == 0:
    assert largest < MOST_MIB << 10, largest
    with h5py.File(path, "r") as f:
        expected = np.arange(RECORDS)[:, None, None] * 100 + np.arange(world.size)
        assert (f["x"][...] == expected).all()
