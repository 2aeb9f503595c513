"""Run by test_locks.py: a lock that rank 0 holds for all, and ranks that were given no communicator."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
from mpi4py import MPI

import pnc_vol
from pnc_vol.errors import LockedError

comm = MPI.COMM_WORLD
path = sys.argv[1] + "/x.nc"
ALONE = "import sys, pnc_vol\ntry: pnc_vol.File(sys.argv[1], 'r+')\nexcept BlockingIOError as e: print('refused')"


def another_process() -> str:
    return subprocess.run([sys.executable, "-c", ALONE, path], capture_output=True, text=True, check=True).stdout


with pnc_vol.File(path, "w", driver="mpio", comm=comm) as f:
    x = f.create_dataset("x", (comm.size,), "i4")
    x[comm.rank] = comm.rank
    f.flush()
    f.attrs["needs a new layout"] = np.arange(7000)
    f.flush()
    assert another_process() == "refused\n"
    comm.Barrier()
comm.Barrier()
if comm.rank == 0:
    with pnc_vol.File(path, "r+") as f:
        assert f["x"][:].tolist() == list(range(comm.size))
comm.Barrier()
told = ""
try:
    alone = pnc_vol.File(path, "r+")
    comm.Barrier()
    alone.close()
except LockedError as error:
    told = str(error)
    comm.Barrier()
everyone = comm.allgather(told)
assert everyone.count("") == 1
assert all("pass driver='mpio' and comm=MPI.COMM_WORLD" in text for text in everyone if text)
