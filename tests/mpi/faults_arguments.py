"""Wrong arguments and missing resources on one rank."""

from __future__ import annotations

import errno
import os
import resource
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from fault_scenarios import LAST, RANK, SIZE, WORLD, caught, everywhere, holds, opened, path, same, usable
from mpi4py import MPI
from scenarios import scenario

import pnc_vol as h5py
from pnc_vol.errors import (
    CollectiveMismatchError,
)


@scenario
def bad_arguments() -> None:
    """What fails on one rank posts nothing and defines nothing, so the ranks still agree."""
    with opened() as f:
        x = f.create_dataset("x", (SIZE,), "i2")
        x[RANK] = RANK
        if RANK == 1:
            assert caught(lambda: x.__setitem__(SIZE, 1))["type"] == "SelectionIndexError"
            assert caught(lambda: x.__setitem__(0, "text"))["type"]
            assert caught(lambda: x.__setitem__(0, 1 << 20))["type"] == "RangeError"
            assert caught(lambda: x.attrs.__setitem__("a", object()))["type"]
            assert caught(lambda: f.create_dataset("x", (3,), "i4"))["type"]
            assert caught(lambda: f.create_dataset("y", (3,), "U7"))["type"]
        usable(f)
        assert x[...].tolist() == list(range(SIZE))
    holds("x", np.arange(SIZE))


@scenario
def bad_keyword_at_open() -> None:
    """What fails on one rank before the ranks first meet is shared, and nobody waits for the time limit."""
    started = time.monotonic()
    keywords: dict[str, Any] = {"no_such_option": 1} if RANK == 1 else {}
    same(lambda: opened(**keywords), TypeError, "no_such_option", "rank 1")
    same(lambda: opened(mode="q" if RANK == LAST else "w"), h5py.DefinitionError, "Invalid mode", f"rank {LAST}")
    assert time.monotonic() - started < 5


def fails_on_rank_1(mode: str, before: Callable[[], Any], after: Callable[[], Any], kind: str, *words: str) -> Any:
    """Something is done on rank 1 before an open and taken back: all raise the same, in time, and can go on."""
    started = time.monotonic()
    if RANK == 1:
        before()
    told = caught(lambda: opened(mode).close())
    after()
    every = everywhere(told)
    assert time.monotonic() - started < 5
    assert len({one["text"] for one in every}) == 1, every
    if kind:
        assert {one["type"] for one in every} == {kind}, every
        assert all(word in every[0]["text"] for word in (*words, "rank 1")), every
    if RANK == 0 and mode == "r+":
        with h5py.File(path(), "r") as f:
            assert f["x"][...].tolist() == list(range(SIZE))
    WORLD.barrier()
    return every[0]


@scenario
def no_descriptors_at_open() -> None:
    """One rank has no descriptor left, or only some, at any point of the open."""
    with opened() as f:
        f["x"] = np.arange(SIZE)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    first = os.open(os.devnull, os.O_RDONLY)
    os.close(first)
    for left in range(3):
        for mode in ("r", "r+"):
            told = fails_on_rank_1(
                mode,
                lambda left=left: resource.setrlimit(resource.RLIMIT_NOFILE, (first + left, hard)),  # type: ignore[misc]
                lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)),
                "" if left else "OSError",
            )
            assert left or told["errno"] == errno.EMFILE


@scenario
def failing_import_at_open() -> None:
    """One rank lacks a module that an open needs, as on a node with another installation."""
    with opened() as f:
        f["x"] = np.arange(SIZE)
    name = "pnc_vol.api.opening"
    room, there = sys.modules["pnc_vol.api"], sys.modules[name]

    def lacks() -> None:
        sys.modules[name] = None  # type: ignore[assignment]
        del room.opening

    def has() -> None:
        sys.modules[name] = room.opening = there

    for mode in ("r", "r+", "w"):
        fails_on_rank_1(mode, lacks, has, "ModuleNotFoundError", name)


@scenario
def no_permission_at_open() -> None:
    """One rank may not open the file; only root can be somebody else on one rank alone."""
    if os.geteuid() != 0:
        return
    with opened() as f:
        f["x"] = np.arange(SIZE)
    os.chmod(path(), 0o600)
    WORLD.barrier()
    for mode in ("r", "r+"):
        told = fails_on_rank_1(mode, lambda: os.seteuid(65534), lambda: os.seteuid(0), "PermissionError")
        assert told["errno"] == errno.EACCES


@scenario
def atomic_on_one_rank() -> None:
    f = opened()
    f.create_dataset("x", (SIZE,), "i4")
    f.flush()

    def differently() -> None:
        if RANK == 0:
            f.atomic = True
        else:
            f.flush()

    same(differently, CollectiveMismatchError, "atomic", "rank 0")
    f.id.set_mpi_atomicity(True)
    assert f.id.get_mpi_atomicity()
    f.atomic = False
    usable(f)
    f.close()


@scenario
def warnings_of_an_open() -> None:
    """Once for all ranks; a rank with another option says so itself."""
    for odd in (-1, 1):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            opened("w", swmr=odd < 0 or odd == RANK).close()
        count = WORLD.allgather(sum("swmr" in str(one.message) for one in seen))
        assert count == [int(rank == max(odd, 0)) for rank in range(SIZE)], count


@scenario
def warnings_of_storage_options() -> None:
    """Once for all ranks, although every rank passes them; each rank of a file of its own has its own."""
    for comm, expected in ((WORLD, [1] + [0] * (SIZE - 1)), (MPI.COMM_SELF, [0] + [1] * (SIZE - 1))):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            with opened("w", comm=comm, name="" if comm is WORLD else str(RANK)) as f:
                x = f.create_dataset("x", (4,), "i4", chunks=(2,), compression="gzip")
                assert (x.chunks, x.compression) == ((2,), "gzip")
        for kind in ("compression: CDF", "chunks: CDF"):
            count = WORLD.allgather(sum(kind in str(one.message) for one in seen))
            assert count == expected, (kind, count)


@scenario
def the_late_rank_is_named() -> None:
    """By those who waited, and by itself."""
    comm = WORLD.Dup()
    f = opened(comm=comm, collective_timeout=1)
    f.create_dataset("x", (SIZE,), "i4")
    if RANK == 1:
        time.sleep(2.5)
    told = everywhere(caught(f.flush))
    assert {one["type"] for one in told} == {"CollectiveTimeout"}, told
    assert all(one["ranks"] == [1] for one in told), told
    assert all("rank 1 did not call it" in one["text"] for one in told), told
    caught(f.close)


@scenario
def durable_on_one_rank() -> None:
    f = opened()
    f.create_dataset("x", (3,), "i4")
    same(lambda: f.flush(durable=RANK == 0), CollectiveMismatchError, "flush durable", "rank 0")
    usable(f)
    f.close()
