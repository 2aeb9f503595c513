"""Trouble with the caches of some ranks, and kills after it; ``ranks_cache_trouble.py DIR NODES``."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import scenarios
from full_disk import OfFolder
from killed_caches import after_a_kill
from mpi4py import MPI
from scenarios import SCENARIOS, scenario

import pnc_vol as h5py
from pnc_vol.errors import LogRefusedError, PncVolWarning
from pnc_vol.testing.faults import HookedSystem

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size
FOLDER, NODES = Path(sys.argv[1]), int(sys.argv[2])
CALLS = {"open", "pwrite", "pwritev", "ftruncate", "fallocate", "mmap"}
NVMS = [FOLDER / f"nvm{node}" for node in range(NODES)]


def killed_now(path: Path) -> dict[str, Any]:
    """What a recovery finds if all ranks are killed here."""
    WORLD.Barrier()
    found = after_a_kill(path, NVMS, FOLDER / "copies") if RANK == 0 else None
    return WORLD.bcast(found)


def run(path: Path, system: OfFolder, flag: str) -> None:
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
        system = OfFolder(NVMS[RANK % NODES], calls=CALLS, fail_at=ours, errno=errno.ENOSPC, mode="forever")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PncVolWarning)
            run(path, system, flag)
        fired = WORLD.allreduce(system.fired, MPI.LOR)
        if RANK == 0:
            os.unlink(path)
        assert fail_at < 60
    assert fail_at > 10


@scenario
def the_log_of_a_rank_is_full() -> None:
    for failing, flag in ((0, "flush_onclose"), (0, "flush_immediate"), (SIZE - 1, "flush_onclose")):
        sweep(failing, flag)


@scenario
def ranks_of_a_node_see_each_other_in_different_directories() -> None:
    mine = FOLDER / f"own{RANK}"
    mine.mkdir(exist_ok=True)
    path = FOLDER / "own.nc"
    hints = {"e10_cache_path": str(mine), "e10_cache_flush_flag": "flush_onclose"}
    with h5py.File(path, "w", comm=WORLD, hints=hints, collective_timeout=15) as f:
        x = f.create_dataset("x", (SIZE, 4), "i4")
        x[RANK] = RANK + 1
        f.flush()
        for other in range(SIZE):
            if other % NODES == RANK % NODES:
                assert x[other].tolist() == [other + 1] * 4
    WORLD.Barrier()
    assert not list(FOLDER.glob("own?/*"))
    assert not list(FOLDER.glob(".own*")), "no note is left"


class Private(HookedSystem):
    """The directories of other ranks are not there for this one."""

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        path = str(args[0]) if args else ""
        if "private" in path and not path.endswith(".nc") and f"private{RANK}" not in path:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return super().call(name, args, kwargs)


@scenario
def a_cache_that_cannot_be_read_is_not_taken_for_none() -> None:
    mine = FOLDER / f"private{RANK}"
    mine.mkdir(exist_ok=True)
    path = FOLDER / "x.nc"
    hints = {"e10_cache_path": str(mine), "e10_cache_flush_flag": "flush_onclose"}
    with h5py.File(path, "w", comm=WORLD, hints=hints, system=Private(), collective_timeout=15) as f:
        x = f.create_dataset("x", (SIZE, 4), "i4")
        f.sync()
        x[RANK] = RANK + 1
        f.flush()
        for other in range(SIZE):
            if other == RANK:
                assert x[other].tolist() == [other + 1] * 4
                continue
            try:
                found = x[other]
            except h5py.NotSyncedError:
                continue
            raise AssertionError(f"old bytes: {found}")
        f.sync()
        assert x[...].tolist() == [[rank + 1] * 4 for rank in range(SIZE)]


@scenario
def a_file_with_caches_is_refused_on_all_ranks_and_recovered_when_told() -> None:
    mine, path = FOLDER / f"left{RANK}", FOLDER / "left.nc"
    mine.mkdir(exist_ok=True)
    hints = {"e10_cache_path": str(mine), "e10_cache_flush_flag": "flush_none"}
    for step in range(6):
        # a job that has ended in order leaves nothing that keeps the next one from the file
        with h5py.File(path, "r+" if step else "w", comm=WORLD, hints=hints) as f:
            f.require_dataset("x", (SIZE, 4), "i4")[RANK] = step
            f.sync()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PncVolWarning)
        with h5py.File(path, "r+", comm=WORLD, hints=hints) as f:
            f["x"][RANK] = 50 + RANK
            f.flush()
    openings: list[dict[str, Any]] = [{"hints": hints}, {}, {"burst_buf": True}]
    for options in openings:
        try:
            h5py.File(path, "r+", comm=WORLD, **options)
        except LogRefusedError:
            continue
        raise AssertionError(f"opened with {options}")
    with h5py.File(path, "r+", comm=WORLD, recover=True) as f:
        assert f["x"][...].tolist() == [[50 + rank] * 4 for rank in range(SIZE)]
        WORLD.Barrier()
        f["x"][RANK] = 70
    with h5py.File(path, "r+", comm=WORLD, recover=True) as f:
        assert (f["x"][...] == 70).all()
    WORLD.Barrier()
    assert not os.listdir(mine)


if __name__ == "__main__":
    scenarios.run(SCENARIOS, seconds=90)
