"""The lock of a file that ranks write together, and of one that each opens by itself."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from other_process import fresh

import pnc_vol
from pnc_vol.errors import LockedError
from pnc_vol.testing.mpi import missing, run_mpi


def change(path: str) -> None:
    """What another process tries."""
    pnc_vol.File(path, "r+")


def ranks(path: str) -> None:
    """A lock that rank 0 holds for all, and ranks that were given no communicator."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    with pnc_vol.File(path, "w", driver="mpio", comm=comm) as f:
        x = f.create_dataset("x", (comm.size,), "i4")
        x[comm.rank] = comm.rank
        f.flush()
        f.attrs["needs a new layout"] = np.arange(7000)
        f.flush()
        assert "LockedError" in fresh(change, path).stderr
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


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_ranks_and_their_lock(tmp_path: Path) -> None:
    run_mpi(2, __file__, tmp_path / "x.nc", timeout=100, env={"PYTHONPATH": os.pathsep.join(sys.path)})


if __name__ == "__main__":
    # under its name, so that another process finds its functions
    import test_locks

    test_locks.ranks(sys.argv[1])
