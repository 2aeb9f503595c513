"""Scenarios of faults on ranks: how they are registered, opened, compared and run (see `ranks_faults`)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import scenarios
from mpi4py import MPI
from scenarios import SCENARIOS

import pnc_vol as h5py
from pnc_vol.errors import (
    FlushError,
    RankError,
)
from pnc_vol.testing.faults import FaultSystem

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size
LAST = SIZE - 1
HERE, SCENARIO, DRIVER = "", "", ""


def path(name: str = "") -> str:
    return os.path.join(HERE, f"{SCENARIO}{name}.nc")


def opened(mode: str = "w", name: str = "", **options: Any) -> h5py.File:
    chosen: dict[str, Any] = {"driver": DRIVER, "comm": WORLD, "collective_timeout": 15}
    return h5py.File(path(name), mode, **(chosen | options))


def caught(call: Callable[[], Any]) -> dict[str, Any]:
    """What `call` raises, as something that can be printed and compared between ranks."""
    try:
        call()
    except Exception as error:
        found: dict[str, Any] = {"type": type(error).__name__, "text": str(error)}
        if getattr(error, "errno", None):
            found["errno"] = error.errno  # type: ignore[attr-defined]
        if isinstance(error, RankError):
            found["ranks"] = list(error.ranks)
        if isinstance(error, FlushError):
            found["errors"] = [list(failure) for failure in error.errors]
        return found
    return {"type": "", "text": ""}


def everywhere(mine: dict[str, Any]) -> list[dict[str, Any]]:
    return WORLD.allgather(mine)


def same(call: Callable[[], Any], kind: type[BaseException], *words: str) -> dict[str, Any]:
    """All ranks must get the same error, of this class, whose text has these words."""
    every = everywhere(caught(call))
    assert {told["type"] for told in every} == {kind.__name__}, every
    assert len({told["text"] for told in every}) == 1, every
    assert all(word in every[0]["text"] for word in words), every[0]["text"]
    assert all(told.get("errno") == every[0].get("errno") for told in every), every
    return every[0]


def usable(f: h5py.File) -> None:
    """After an error that left the file open, everything works again."""
    f.create_dataset("after", (SIZE,), "i4")[RANK] = RANK
    f.flush()
    assert f["after"][...].tolist() == list(range(SIZE))


def holds(name: str, expected: Any, file: str = "") -> None:
    """The file, read by one process, has these values."""
    WORLD.Barrier()
    if RANK == 0:
        with h5py.File(path(file), "r") as f:
            assert np.array_equal(f[name][...], expected), f[name][...]


def nothing_beside() -> None:
    WORLD.Barrier()
    left = [n for n in os.listdir(HERE) if n.startswith(f".{SCENARIO}")]
    assert not left, left


def faulty(calls: set[str], **how: Any) -> FaultSystem:
    """A system that fails on rank 1, once armed."""
    return FaultSystem(fail_at=0, calls=calls, **how)


def arm(system: FaultSystem, rank: int, ahead: int = 1) -> None:
    if rank == RANK:
        system.fail_at = system.count + ahead


def main() -> None:
    global HERE, DRIVER
    HERE, DRIVER = sys.argv[1:3]
    scenarios.run({name: run_one(name) for name in sys.argv[3:] or SCENARIOS})


def run_one(name: str) -> Callable[[], None]:
    def run() -> None:
        global SCENARIO
        SCENARIO = name
        SCENARIOS[name]()

    return run
