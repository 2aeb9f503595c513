"""Failures of ranks that write for others, and a lack of memory in collective writes and reads."""

from __future__ import annotations

import errno
from typing import Any

import numpy as np
from fault_scenarios import RANK, SIZE, WORLD, arm, faulty, opened, same, scenario
from mpi4py import MPI

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
def no_shared_memory() -> None:
    """One rank cannot open the memory that all should see: ranks send each other their pieces instead."""
    import pnc_vol.flush.node_shared_memory as window

    opened_by = window._opened
    if RANK == 1:
        window._opened = lambda *told: None
    try:
        with opened(transport="aggregate") as f:
            x = f.create_dataset("x", (2000, SIZE), "f4")
            x[:, RANK] = np.arange(2000) * (RANK + 1)
            f.flush()
            for r in range(SIZE):
                assert (x[:, r] == np.arange(2000) * (r + 1)).all()
    finally:
        window._opened = opened_by


@scenario
def no_memory_in_a_write_for_others() -> None:
    """Whatever fails on one rank while pieces are put together, the others do not wait for it, and theirs are done."""
    from pnc_vol.flush import parcels, window_rounds

    def short(*args: Any) -> None:
        raise MemoryError("no memory for the pieces")

    with opened(transport="aggregate") as f:
        x = f.create_dataset("x", (500, SIZE), "f8")
        x[:, RANK] = RANK + 1
        copy = window_rounds.copy_pieces
        if RANK == 1:
            # To an aggregator of its node, or of another one.
            window_rounds.copy_pieces = parcels.copy_pieces = short
        try:
            same(f.flush, MemoryError, "rank 1")
        finally:
            window_rounds.copy_pieces = parcels.copy_pieces = copy
        f.flush()
        assert (x[...] == np.arange(SIZE) + 1).all()


@scenario
def failed_spill_read_in_a_collective_write() -> None:
    """A rank whose spilled data cannot be read back still meets the others in the collective write."""
    system = faulty({"pread_into", "preadv"}, errno=errno.EIO, mode="forever")
    f = opened(driver="mpio", transport="collective", system=system, buffer_size=64 << 10)
    t = f.create_dataset("t", (SIZE, 50, 100), "f8", maxshape=(None, 50, 100))
    if RANK == 1:
        t[1, :20] = 1.5
        f._id.handle.session.drain()
    else:
        t[RANK, :, 0] = RANK
    arm(system, 1)
    told = same(f.flush, OSError, "rank 1")
    assert told["errno"] == errno.EIO
    system.heal()
    f.flush()
    assert t[1, :20].min() == 1.5
    assert t[:, 0, 0].tolist() == [1.5 if r == 1 else r for r in range(SIZE)]
    f.close()


@scenario
def no_memory_in_a_collective_write() -> None:
    """Whatever fails on one rank before a collective write, the others do not wait for it."""
    from pnc_vol.flush import execute

    class Short:
        @staticmethod
        def of(*args: Any) -> None:
            raise MemoryError("no memory for the plan")

        at_once = of

    with opened(driver="mpio", transport="collective") as f:
        x = f.create_dataset("x", (SIZE, 5), "f8")
        x[RANK] = RANK
        plan = execute.Plan
        if RANK == 1:
            execute.Plan = Short  # type: ignore[assignment,misc]
        try:
            same(f.flush, MemoryError, "rank 1")
        finally:
            execute.Plan = plan  # type: ignore[misc]
        f.flush()
        assert x[:, 0].tolist() == list(range(SIZE))


@scenario
def no_memory_in_a_collective_read() -> None:
    """One rank has no memory for what it wants to read: nobody reads, and all are told."""
    from pnc_vol.layout.places import Place

    with opened() as f:
        x = f.create_dataset("x", (SIZE, 5), "f8")
        x[RANK] = RANK
        f.flush()
        extents = Place.extents

        def short(*args: Any, **kwargs: Any) -> None:
            raise MemoryError("no memory for the extents")

        if RANK == 1:
            Place.extents = short  # type: ignore[method-assign]
        try:
            with x.collective:
                same(lambda: x[...], MemoryError, "rank 1")
        finally:
            Place.extents = extents
        with x.collective:
            assert x[:, 0].tolist() == list(range(SIZE))


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


@scenario
def no_memory_in_a_read_for_others() -> None:
    """Whatever fails on one rank while pieces are handed out, the others do not wait for it, and can go on."""
    from pnc_vol.flush import node_parcels, parcels, window_rounds

    def short(*args: Any) -> None:
        raise MemoryError("no memory for the pieces")

    with opened(transport="aggregate") as f:
        x = f.create_dataset("x", (3000, SIZE), "f8")
        x[:, RANK] = _column(RANK)
        f.flush()
        request = x.iget(np.s_[:, RANK])
        for module in (window_rounds, node_parcels, parcels):
            copy = module.copy_pieces
            if RANK == 1:
                module.copy_pieces = short
            try:
                # With few nodes there may be nothing to be sent.
                if module is window_rounds or _apart():
                    same(f.flush, MemoryError, "rank 1")
            finally:
                module.copy_pieces = copy
        f.flush()
        assert (request.array == _column(RANK)).all()


def _apart() -> bool:
    """Whether some rank has none of the others on its node."""
    here = WORLD.Split_type(MPI.COMM_TYPE_SHARED)
    several = here.size < SIZE
    here.Free()
    return several
