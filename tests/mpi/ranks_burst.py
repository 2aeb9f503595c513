"""Ranks with a burst buffer: ``ranks_burst.py CASE FOLDER [ARGS...]``.

========================  ======================================================================================
``kill VARIANT``          a job that posts and is killed
``recover HOW``           what a killed job posted goes to its file, by these ranks
``wrong``                 folders that cannot hold a log, and a rank that cannot make its own
``info``                  hints by ``MPI.Info``
========================  ======================================================================================
"""

from __future__ import annotations

import errno
import functools
import json
import os
import pathlib
import signal
import sys
import time
from typing import Any

import numpy as np

import pnc_vol as h5py
from pnc_vol.testing.faults import HookedSystem

LOGGED: dict[str, dict[str, Any]] = {"private": {}, "shared": {"burst_buf_shared_logs": True}, "nodes": {}}
"""In "nodes" ranks find storage of their own under different names."""


def folder_of(place: str, variant: str, rank: int) -> str:
    """The folder for logs of a rank; made if it is not there."""
    folder = os.path.join(place, "logs", f"node{rank % 2}" if variant == "nodes" else "")
    os.makedirs(folder, exist_ok=True)
    return folder


def left(place: str) -> list[str]:
    """What is left of logs."""
    return [str(path) for path in pathlib.Path(place, "logs").rglob("*") if not path.name.startswith("node")]


# -------------------------------------------------------------------------------------------------- kills


def values(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def check(path: str) -> None:
    """The file holds what is in `state`."""
    with h5py.File(path, "r") as f:
        for name, expected in state().items():
            assert np.array_equal(f[name][()], expected), (path, name)


NAMES = [b"n" * (i % 13) for i in range(24)]


def state() -> dict[str, np.ndarray]:
    """What must be in the file of `kill`: all that was posted, by any rank."""
    x, t = values((24, 30), "f8", 40), np.zeros((7, 24), "i4")
    t[:3] = 1
    t[5:] = 5
    late = np.full((24, 2), -1, "i2")
    late[::2] = 8
    names = np.array(NAMES, object)
    kept = values((24,), "f4", 41)
    kept[4:8] = 0
    return {"x": x, "t": t, "late": late, "names": names, "kept": kept}


def kill(folder: str, variant: str) -> None:
    """Posts of all kinds; then every rank is killed, before any of it is flushed a second time."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    model, rows = state(), np.array_split(np.arange(24), comm.size)[comm.rank]
    part = slice(rows[0], rows[-1] + 1)
    options = {"burst_buf": True, "burst_buf_dirname": folder_of(folder, variant, comm.rank)} | LOGGED[variant]
    f = h5py.File(os.path.join(folder, "x.nc"), "w", driver="mpio", comm=comm, **options)
    x = f.create_dataset("x", (24, 30), "f8")
    t = f.create_dataset("t", (3, 24), "i4", maxshape=(None, 24))
    x[part] = 7.0
    t[:, part] = 1
    f.flush()
    # In this order and no other: whole rows, then columns of them, then cut and grown.
    x[part] = 8.0
    for i in rows:
        x[i] = model["x"][i]
    t.resize(6, axis=0)
    t[3:, part] = 4
    t.resize(3, axis=0)
    t.resize(7, axis=0)
    t[5:, part] = 5
    late = f.create_dataset("late", (24, 2), "i2", fillvalue=-1)
    mine = np.arange(0, 24, 2)[comm.rank :: comm.size]
    if len(mine):
        late.iput_many(np.stack([mine, 0 * mine], 1), np.tile([1, 2], (len(mine), 1)), np.full(2 * len(mine), 8, "i2"))
    names = f.create_dataset("names", (24,), h5py.string_dtype())
    for i in range(comm.rank, 24, comm.size):
        names[i] = NAMES[i]
    kept = f.create_dataset("kept", (24,), "f4")
    if comm.rank == comm.size - 1:
        kept.iput(np.s_[4:8], np.ones(4, "f4")).cancel()
        kept[:4] = model["kept"][:4]
        kept[8:] = model["kept"][8:]
    comm.Barrier()
    os.kill(os.getpid(), signal.SIGKILL)


def recover(how: str, *folders: str) -> None:
    """The jobs in these folders, each a scenario by the name of its folder; a replay's report is a line of JSON."""
    # `Launch` puts it on the path; what starts the other cases need not.
    import scenarios

    scenarios.run({folder: functools.partial(recover_one, folder, how) for folder in folders}, seconds=60)


def recover_one(folder: str, how: str) -> None:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    path, logs = os.path.join(folder, "x.nc"), os.path.join(folder, "logs")
    if how == "replay":
        report = h5py.replay(path, comm=comm)
        told = comm.gather((report.logs, report.replayed, report.cancelled, report.whole, report.created))
        if told is not None:
            assert all(one == told[0] for one in told), told
            print(json.dumps({folder: told[0]}), flush=True)
    else:
        f = h5py.File(path, "r+", driver="mpio", comm=comm, recover=True, burst_buf=True, burst_buf_dirname=logs)
        assert f["x"][3, 4] == state()["x"][3, 4]
        f.close()
    comm.Barrier()
    if comm.rank == 0:
        check(path)
        assert left(folder) == []


# ------------------------------------------------------------------------------------------------- errors


class Late(HookedSystem):
    """Makes the files of a log after another rank gave up making its own."""

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name == "open" and ".defs" in os.fspath(args[0]):
            time.sleep(0.3)
        return super().call(name, args, kwargs)


class Refusing(HookedSystem):
    """A system that makes no log file."""

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name == "open" and str(args[0]).endswith((".data", ".data.1")):
            raise PermissionError(errno.EACCES, "no log here", args[0])
        return super().call(name, args, kwargs)


class Sealed(HookedSystem):
    """A system in which no folder can be made."""

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name == "mkdir":
            raise PermissionError(errno.EACCES, "Permission denied", args[0])
        return super().call(name, args, kwargs)


def wrong(folder: str) -> None:
    """Each line that rank 0 prints: what was tried, what every rank raised, and what is there afterwards."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    path, logs, nowhere = (os.path.join(folder, name) for name in ("x.nc", "logs", "nowhere"))
    plain, other = os.path.join(folder, "plain"), os.path.join(folder, "other")
    if comm.rank == 0:
        os.mkdir(logs)
        os.mkdir(other)
        pathlib.Path(plain).write_bytes(b"")
        with h5py.File(path, "w") as f:
            f["old"] = 1
    comm.Barrier()
    last = comm.rank == comm.size - 1
    refusing = {"system": Refusing() if last else Late()}
    shared = {"burst_buf_shared_logs": True}
    for what, mode, dirname, options in (
        ("missing", "w", nowhere, {}),
        ("missing on one", "w", nowhere if last else logs, {}),
        ("plain", "w", plain, {}),
        ("sealed", "w", logs, {"system": Sealed()}),
        ("refused on one", "r+", logs, refusing),
        ("refused on one, shared", "r+", logs, refusing | shared),
        ("shared in two places", "r+", other if last else logs, shared),
        ("not the same", "r+", logs, {"burst_buf_shared_logs": last}),
    ):
        error = ""
        try:
            h5py.File(path, mode, driver="mpio", comm=comm, burst_buf=True, burst_buf_dirname=dirname, **options)
        except Exception as caught:
            error = f"{type(caught).__name__}: {caught}"
        told = comm.gather(error)
        if told is not None:
            with h5py.File(path) as f:
                there = list(f)
            print(json.dumps([what, told, there, os.listdir(logs) + os.listdir(other)]), flush=True)
        comm.Barrier()


# -------------------------------------------------------------------------------------------------- hints


def info(folder: str) -> None:
    """What `MPI.Info` asks for is in force on all ranks, what nobody knows goes to MPI-IO; the environment wins."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    logs, hints = os.path.join(folder, "logs"), MPI.Info.Create()
    if comm.rank == 0:
        os.mkdir(logs)
    comm.Barrier()
    for key, value in {
        "nc_burst_buf": "enable",
        "nc_burst_buf_dirname": logs,
        "nc_burst_buf_shared_logs": "enable",
        "nc_burst_buf_sync": "each",
        "cb_buffer_size": "1048576",
        "nobody_knows_this": "7",
    }.items():
        hints.Set(key, value)
    argument = {"nc_burst_buf_dirname": os.path.join(folder, "nowhere"), "nc_burst_buf_flush_buffer_size": "200000"}
    f = h5py.File(os.path.join(folder, "x.nc"), "w", driver="mpio", comm=comm, info=hints, hints=argument)
    f.create_dataset("x", (comm.size,), "i4")[comm.rank] = comm.rank + 1
    comm.Barrier()
    said = comm.gather(dict(f.hints))
    if said is not None:
        (job,) = pathlib.Path(logs).iterdir()
        print(json.dumps([said, sorted(file.name for file in job.iterdir())]))
    comm.Barrier()
    f.close()
    hints.Free()
    comm.Barrier()
    if comm.rank == 0:
        with h5py.File(os.path.join(folder, "x.nc")) as f:
            assert f["x"][:].tolist() == [i + 1 for i in range(comm.size)]
        assert os.listdir(logs) == []


if __name__ == "__main__":
    case = {"kill": kill, "recover": recover, "wrong": wrong, "info": info}[sys.argv[1]]
    case(*sys.argv[2:])
