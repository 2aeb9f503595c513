"""Failures of ranks that write for others."""

from __future__ import annotations

import errno
from typing import Any

import numpy as np
from fault_scenarios import RANK, SIZE, WORLD, arm, faulty, opened, same
from scenarios import scenario

from pnc_vol.errors import (
    FlushError,
)


def _failed_aggregator(calls: set[str], number: int) -> None:
    system = faulty(calls, errno=number, mode="forever")
    f = opened(driver="posix", system=system, transport="aggregate", aggrs_per_node=SIZE)
    x = f.create_dataset("x", (3000, SIZE), "f8")
    y = f.create_dataset("y", (SIZE,), "i4")
    f.flush()
    x[:, RANK] = np.arange(3000) + RANK
    if RANK == 1:
        y[1] = 7
    arm(system, 1)
    if "pwrite" in calls:
        told = same(f.flush, FlushError, "rank 1")
        assert told["errno"] == number
        # What rank 1 should have written for others they wrote by themselves.
        assert {(failure[1], failure[2]) for failure in told["errors"]} == {(1, "/x"), (1, "/y")}
        if RANK != 1:
            assert (x[:, RANK] == np.arange(3000) + RANK).all()
        system.heal()
        WORLD.Barrier()
    f.flush()
    assert f.statistics()["transport"] == "aggregate"
    system.heal()
    for r in range(SIZE):
        assert (x[:, r] == np.arange(3000) + r).all()
    assert y[1] == 7
    f.close()


@scenario
def failed_aggregator() -> None:
    """A rank that writes for others fails: its own requests fail, theirs do not."""
    _failed_aggregator({"pwrite", "pwritev"}, errno.ENOSPC)


@scenario
def aggregator_cannot_read() -> None:
    """A rank that writes for others cannot read what lies between: all write by themselves, and nothing is lost."""
    _failed_aggregator({"pread_into", "preadv"}, errno.EIO)


@scenario
def failed_spill_read_in_a_collective_write() -> None:
    """A rank whose spilled data cannot be read back still meets the others in the collective write."""
    system = faulty({"pread_into", "preadv"}, errno=errno.EIO, mode="forever")
    f = opened(driver="mpio", transport="collective", system=system, buffer_size=64 << 10)
    t = f.create_dataset("t", (SIZE, 200, 100), "f8", maxshape=(None, 200, 100))
    if RANK == 1:
        for row in range(150):
            t[1, row] = 1.5
        assert f.statistics()["bytes_spilled"]
    else:
        t[RANK, :, 0] = RANK
    arm(system, 1)
    told = same(f.flush, OSError, "rank 1")
    assert told["errno"] == errno.EIO
    system.heal()
    f.flush()
    assert t[1, :150].min() == 1.5
    assert t[:, 0, 0].tolist() == [1.5 if r == 1 else r for r in range(SIZE)]
    f.close()


def _column(rank: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.arange(3000.0) + rank


@scenario
def reader_for_others_fails() -> None:
    """A rank that reads for others cannot: they read by themselves, and its own posted reads stay posted."""
    with opened() as f:
        f.create_dataset("x", (3000, SIZE), "f8")[:, RANK] = _column(RANK)
    system = faulty({"pread_into", "preadv"}, errno=errno.EIO, mode="forever")
    f = opened("r+", driver="posix", system=system, transport="aggregate", aggrs_per_node=SIZE)
    x = f["x"]
    # It wants nothing for itself, so that nobody has an error.
    if RANK != 1:
        mine = x.iget(np.s_[:, RANK])
    WORLD.Barrier()
    arm(system, 1)
    f.flush()
    assert RANK == 1 or (mine.status == "done" and (mine.array == _column(RANK)).all())
    assert f.statistics()["read_choice"]["rounds"] == 1
    request = x.iget(np.s_[:, RANK])
    assert same(f.flush, OSError, "rank 1")["errno"] == errno.EIO
    with x.collective:
        assert same(lambda: x[:, RANK], OSError, "rank 1")["errno"] == errno.EIO
    system.heal()
    f.flush()
    assert request.status == "done"
    assert (request.array == _column(RANK)).all()
    f.close()
