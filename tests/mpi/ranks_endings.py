"""Ranks whose interpreters end with a shared file open: ``ranks_endings.py CASE DRIVER PATH``."""

import os
import signal
import sys
import time

from mpi4py import MPI

import pnc_vol as h5py
from pnc_vol.file import deferred

case, driver, path = sys.argv[1:]
rank = MPI.COMM_WORLD.rank

f = h5py.File(path, "w", driver=driver, comm=MPI.COMM_WORLD, collective_timeout=5)
f.create_dataset("x", (MPI.COMM_WORLD.size,), "i4")[rank] = rank + 1
f.flush()
f.create_dataset("y", (MPI.COMM_WORLD.size,), "i4")[rank] = 7


def others() -> None:
    """What the rank sees that goes on."""
    try:
        f.close()
    except h5py.RankError as error:
        print("RankError", list(error.ranks), flush=True)


if case == "all_open":
    pass
elif case == "one_open":
    if rank == 0:
        others()
elif case == "one_raises":
    if rank == 1:
        1 / 0  # noqa: B018
    others()
elif case == "one_exits":
    if rank == 1:
        sys.exit(3)
    others()
elif case == "one_killed":
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(30)
elif case == "finalized_first":
    # Both finalize MPI and then try to use the file.
    MPI.Finalize()
    try:
        f.close()
    except Exception as error:
        print(type(error).__name__, flush=True)
elif case == "left_apart":
    # Both other ranks come to the end when rank 0 has given up waiting for them.
    deferred._LAST = 1.0
    files = [h5py.File(f"{path}.{n}", "w", comm=MPI.COMM_WORLD) for n in range(20)]
    for each in files:
        each["x"] = 1
    del each, files
    if rank:
        time.sleep(1.5)
else:
    raise ValueError(case)
