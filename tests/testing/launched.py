"""What jobs do that `test_mpi` starts: ``launched.py WHAT ...``."""

from __future__ import annotations

import os
import sys
import time

from mpi4py import MPI

what, *arguments = sys.argv[1:]
rank = MPI.COMM_WORLD.rank
if what == "tell":
    sys.stdout.write(f"<{rank} of {MPI.COMM_WORLD.size} {arguments} {os.environ['MINE']}>\n")
elif what == "raise":
    if rank == 1:
        raise RuntimeError("this one")
    MPI.COMM_WORLD.Barrier()
    time.sleep(50)
elif what == "hang":
    with open(os.path.join(arguments[0], str(os.getpid())), "w"):
        print("I am", rank, flush=True)
    if rank:
        time.sleep(100)
    MPI.COMM_WORLD.Barrier()
