"""Trouble with the caches of some ranks, and kills after it; ``ranks_cache_trouble.py DIR NODES``."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import scenarios
from killed_caches import OfCache, after_a_kill
from mpi4py import MPI

import pnc_vol as h5py
from pnc_vol.errors import PncVolWarning

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size
FOLDER, NODES = Path(sys.argv[1]), int(sys.argv[2])
NVMS = [FOLDER / f"nvm{node}" for node in range(NODES)]


def killed_now(path: Path) -> dict[str, Any]:
    """What a recovery finds if all ranks are killed here."""
    WORLD.Barrier()
    found = after_a_kill(path, NVMS, FOLDER / "copies") if RANK == 0 else None
    return WORLD.bcast(found)


def run(path: Path, system: OfCache, flag: str) -> None:
    promised: dict[str, Any] = {}
    with h5py.File(
        path, "w", comm=WORLD, system=system, header_reserve=60_000, collective_timeout=15,
        hints={"e10_cache_path": str(NVMS[RANK % NODES]), "e10_cache_flush_flag": flag},
    ) as f:  # fmt: skip
        x = f.create_dataset("x", (SIZE, 100), "i4")
        for step in range(3):
            x[RANK] = step
            f.attrs[f"a{step}"] = "b" * 4000
            f.flush()
            promised |= {"x": [[step] * 100] * SIZE, f"a{step}": 4000}
            found = killed_now(path)
            assert found == promised, f"after flush {step}"
    assert killed_now(path) == promised


def sweep(failing: int, flag: str) -> None:
    """Each call of the cache of a rank fails in turn, from then on for ever."""
    fail_at, fired = 0, True
    for nvm in NVMS:
        nvm.mkdir(exist_ok=True)
    while fired:
        fail_at += 1
        path = FOLDER / f"{failing}-{flag}-{fail_at}.nc"
        ours = fail_at if failing == RANK else 0
        system = OfCache(NVMS[RANK % NODES], fail_at=ours, errno=errno.ENOSPC, mode="forever")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PncVolWarning)
            run(path, system, flag)
        fired = WORLD.allreduce(system.fired, MPI.LOR)
        if RANK == 0:
            os.unlink(path)
        assert fail_at < 60
    assert fail_at > 10


def the_log_of_the_first_rank_is_full() -> None:
    sweep(0, "flush_onclose")
    sweep(0, "flush_immediate")


def the_log_of_the_last_rank_is_full() -> None:
    sweep(SIZE - 1, "flush_onclose")


SCENARIOS = [
    the_log_of_the_first_rank_is_full,
    the_log_of_the_last_rank_is_full,
]

if __name__ == "__main__":
    scenarios.run({one.__name__: one for one in SCENARIOS}, seconds=90)
