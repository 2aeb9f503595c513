"""Many ranks post one column each and flush twenty times: ``mpiexec -n N python ranks_many.py FILE [CASE]``.

In the flush number `TROUBLE` one rank is killed (``killed``), has no memory (``memory``), or finds the disk full
(``disk``), depending on the case.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
from typing import Any

import numpy as np
from mpi4py import MPI

import pnc_vol as h5py
from pnc_vol.flush import parcels
from pnc_vol.testing.faults import FaultSystem

RECORDS, ROWS = 20, 50
TROUBLE = 10
MOST_MIB = 160

world = MPI.COMM_WORLD
path, case = sys.argv[1], (sys.argv[2:] or ["well"])[0]
# Rank 0 writes for others; the other one sends what it has through the memory of its node.
one = 0 if case == "disk" else world.size // 2 + 5
system = FaultSystem(calls={"pwrite", "pwritev"}, errno=errno.ENOSPC, mode="forever", fail_at=0)


def without_memory(*_: Any) -> None:
    raise MemoryError("no memory for the pieces")


def trouble(f: h5py.File) -> None:
    """The flush that fails, on all ranks alike; nothing that was posted is lost."""
    copy = parcels.copy_pieces
    if world.rank == one:
        if case == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif case == "memory":
            parcels.copy_pieces = without_memory
        else:
            system.fail_at = system.count + 1
    text = ""
    try:
        f.flush()
    except (MemoryError, OSError) as error:
        text = f"{type(error).__name__} {getattr(error, 'errno', None)}: {error}"
    finally:
        parcels.copy_pieces = copy
        system.heal()
    said = set(world.allgather(text))
    assert len(said) == 1, said
    assert f"rank {one}" in text, text
    assert text.startswith("MemoryError" if case == "memory" else f"FlushError {errno.ENOSPC}"), text


keywords: dict[str, Any] = {"driver": "mpio"} if case == "well" else {"driver": "posix", "system": system}
with h5py.File(path, "w", comm=world, transport="aggregate", collective_timeout=60, **keywords) as f:
    x = f.create_dataset("x", (0, ROWS, world.size), "f4", maxshape=(None, ROWS, world.size))
    for k in range(RECORDS):
        x.resize(k + 1, axis=0)
        x[k, :, world.rank] = k * 100 + world.rank
        if k == TROUBLE and case != "well":
            trouble(f)
        f.flush()
    used = f.statistics()
assert used["transport"] == "aggregate", used
largest = world.reduce(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, op=MPI.MAX)
if world.rank == 0:
    assert largest < MOST_MIB << 10, largest
    with h5py.File(path, "r") as f:
        expected = np.arange(RECORDS)[:, None, None] * 100 + np.arange(world.size)
        assert (f["x"][...] == expected).all()
