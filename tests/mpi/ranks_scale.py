"""Counts of `scale_program` as JSON: ``ranks_scale.py PATH`` on real ranks, ``PATH RANKS NODES`` on simulated ones.

Simulated ranks run in a process of their own here, which has done nothing else, as those of a job have not.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from scale_program import check, counted

path = sys.argv[1]
told: Any
if len(sys.argv) > 2:
    sys.path.append(str(Path(__file__).parents[1] / "shared"))
    from virtual_ranks import run

    size, nodes = map(int, sys.argv[2:])
    told = run(size, lambda comm: counted(comm, comm.rank, comm.size, path), nodes=nodes, in_turn=True)
else:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    size, told = comm.size, comm.gather(counted(comm, comm.rank, comm.size, path))
if told is not None:
    check(path, size)
    print(json.dumps(told))
