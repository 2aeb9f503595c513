"""Ranks whose logs are left behind, and ranks that replay them: ``ranks_logs.py CASE FOLDER [ARGS...]``.

==================  ===========================================================================================
``reset N``         rank 0 is killed when it has cut N of the files of its log, if they are so many; the others post
                    more, and are killed
``strings``         a job that posts strings, longer and longer, and is killed
``grown``           without a log: one rank posts a longer string than those that a dataset was made with
``again``           the file is made anew, and what another job had posted to the former one is not in it
``rows``            more posts to a log than the rows of fit into memory, before the file can take any of them
``replay``          the logs that were left, by these ranks
==================  ===========================================================================================
"""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from typing import Any

import numpy as np
from mpi4py import MPI

import pnc_vol as h5py
from pnc_vol.errors import LogRefusedError
from pnc_vol.testing.faults import HookedSystem

comm = MPI.COMM_WORLD
case, folder, *args = sys.argv[1:]
path = os.path.join(folder, "x.nc")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def log(**more: Any) -> h5py.File:
    return h5py.File(path, "w", driver="mpio", comm=comm, burst_buf=True, **more)


def die_when_another_has_posted() -> None:
    """The launcher ends the others when one rank is gone."""
    while not os.path.exists(os.path.join(folder, "posted")):
        time.sleep(0.01)
    die()


class Cutting(HookedSystem):
    """Dies instead of a call that cuts a file, after as many others."""

    left = sys.maxsize

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name == "ftruncate":
            if not self.left:
                print("cutting", flush=True)
                die_when_another_has_posted()
            self.left -= 1
        return super().call(name, args, kwargs)


if case == "reset":
    system = Cutting()
    f = log(system=system)
    x = f.create_dataset("x", (8,), "f8")
    x.iput(np.s_[comm.rank : comm.rank + 1], [1.0]).cancel()
    x[4 + comm.rank] = 3
    if comm.rank == 0:
        system.left = int(args[0])
    f.flush()
    if comm.rank == 0:
        die_when_another_has_posted()
    x[1] = 77.0
    with open(os.path.join(folder, "posted"), "w"):
        pass
    time.sleep(30)
elif case == "strings":
    f = log()
    s = f.create_dataset("s", (8,), h5py.string_dtype())
    f.flush()
    t = f.create_dataset("t", (8,), h5py.string_dtype())
    for step in (0, 1):
        s[comm.rank + 4 * step] = "s" * (5 + 3 * comm.rank + 7 * step)
        t[comm.rank + 4 * step] = "t" * (5 + 3 * comm.rank + 7 * step)
    comm.barrier()
    die()
elif case == "grown":
    # Every rank posts the data of the creation: without an order, either rank's "b" may be the last in the file.
    with h5py.File(path, "w", driver="mpio", comm=comm, ordered=True) as f:
        t = f.create_dataset("t", data=["hello", "b"])
        if comm.rank == 1:
            t[1] = "longer than hello"
        f.flush()
        if comm.rank == 0:
            t[0] = "longer than what was longer"
        f.flush()
        assert t.asstr()[:].tolist() == ["longer than what was longer", "longer than hello"]
elif case == "rows":
    n = 2000
    options = {"driver": "mpio", "comm": comm, "burst_buf": True, "buffer_size": 64 << 10}
    # No rank may write before another one's data.
    with h5py.File(path, "w", ordered=True, **options) as f:
        x = f.create_dataset("x", (2 * n * comm.size,), "f8")
        for i in range(n):
            x[2 * (i * comm.size + comm.rank)] = i
            x[2 * (i * comm.size + comm.rank)] += 1
        assert f.statistics()["bytes_spilled"] > 0, "rows went to the spill file"
        f.flush()
        model = np.repeat(np.arange(n) + 1, comm.size)
        assert (x[::2] == model).all()
        assert not x[1::2].any()
        x[comm.rank] = -1
elif case == "again":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with h5py.File(path, "w", driver="mpio", comm=comm, burst_buf=bool(args)) as f:
            x = f.create_dataset("s", (8,), h5py.string_dtype())
            f.flush()
            x[comm.rank] = "new"
        with h5py.File(path, "r+", driver="mpio", comm=comm, recover=True) as f:
            assert f["s"].asstr()[:].tolist() == ["new"] * comm.size + [""] * (8 - comm.size)
    refused = ""
    try:
        h5py.replay(path, comm=comm)
    except LogRefusedError as error:
        refused = str(error)
    assert "belongs to another file" in refused
elif case == "replay":
    report = h5py.replay(path, comm=comm)
    assert report.whole, report
    if comm.rank == 0:
        print(report.logs, report.replayed)
