"""Opens that fail, or that differ between ranks."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

from fault_scenarios import (
    LAST,
    RANK,
    WORLD,
    caught,
    everywhere,
    holds,
    nothing_beside,
    opened,
    path,
    same,
    usable,
)
from mpi4py import MPI
from scenarios import scenario

import pnc_vol as h5py
from pnc_vol.errors import (
    CollectiveMismatchError,
)


@scenario
def nothing_there_or_a_directory() -> None:
    for mode, name in (("r", ""), ("w", "/deep/er")):
        words = ("there is no such file",) if mode == "r" else ()
        told = same(lambda mode=mode, name=name: opened(mode, name), FileNotFoundError, *words)  # type: ignore[misc]
        assert told["errno"] == errno.ENOENT
    WORLD.Barrier()
    if RANK == 0:
        os.mkdir(path())
    WORLD.Barrier()
    for mode in ("r", "w", "a", "r+"):
        same(lambda mode=mode: opened(mode), IsADirectoryError)  # type: ignore[misc]
    nothing_beside()


@scenario
def exclusive() -> None:
    with opened("x") as f:
        f["x"] = [1, 2]
    same(lambda: opened("x"), FileExistsError, "exists")
    same(lambda: opened("w-"), FileExistsError)
    nothing_beside()
    holds("x", [1, 2])


@scenario
def not_netcdf() -> None:
    if RANK == 0:
        with open(path(), "wb") as out:
            out.write(b"\x89HDF\r\n\x1a\n" + b"\0" * 500)
        with open(path("text"), "wb") as out:
            out.write(b"no data at all\n" * 50)
        with open(path("empty"), "wb") as out:
            pass
    WORLD.Barrier()
    same(lambda: opened("r"), h5py.NotCDFError, "HDF5")
    same(lambda: opened("r", "text"), h5py.NotCDFError)
    every = everywhere(caught(lambda: opened("r", "empty")))
    assert len({told["type"] for told in every}) == 1
    assert every[0]["type"] in ("NotCDFError", "TruncatedHeaderError")


@scenario
def corrupt_header() -> None:
    with opened() as f:
        f["x"] = [1.0, 2.0]
    WORLD.Barrier()
    if RANK == 0:
        data = bytearray(Path(path()).read_bytes())
        data[12:16] = b"\0\0\0\x77"
        with open(path(), "wb") as out:
            out.write(data)
        with open(path("cut"), "wb") as out:
            out.write(data[:40])
    WORLD.Barrier()
    every = everywhere(caught(lambda: opened("r")))
    assert {told["type"] for told in every} == {"CorruptHeaderError"}, every
    every = everywhere(caught(lambda: opened("r", "cut")))
    assert len({told["text"] for told in every}) == 1
    assert every[0]["type"] in ("TruncatedHeaderError", "CorruptHeaderError")


@scenario
def many_failed_opens() -> None:
    """Nothing is used up by opens that fail: MPICH has some two thousand communicators, of which few are left here."""
    held = []
    try:
        while len(held) < 2500:
            held.append(MPI.COMM_SELF.Dup())
    except MPI.Exception:
        for comm in held[-40:]:
            comm.Free()
        del held[-40:]
    for _ in range(80):
        same(lambda: opened("r"), FileNotFoundError)
    for comm in held:
        comm.Free()


@scenario
def different_openings() -> None:
    """Modes, options, drivers and files that are not those of the other ranks."""
    with opened() as f:
        f["x"] = [1]
    same(lambda: opened("r" if RANK else "r+"), CollectiveMismatchError, "mode", "rank 0")
    same(lambda: opened(buffer_size=(1 << 20) + RANK), CollectiveMismatchError, "buffer_size")
    same(lambda: opened(driver="mpio" if RANK else "posix"), CollectiveMismatchError, "driver")
    same(lambda: opened("w", str(RANK)), CollectiveMismatchError, "different_openings0", "different_openings1")
    nothing_beside()
    with opened("r+") as f:
        usable(f)


@scenario
def a_rank_does_not_open() -> None:
    comm = WORLD.Dup()
    if RANK != LAST:
        started = time.monotonic()
        assert caught(lambda: opened(comm=comm, collective_timeout=2))["type"] == "CollectiveTimeout"
        assert 1.5 < time.monotonic() - started < 8
    WORLD.Barrier()
