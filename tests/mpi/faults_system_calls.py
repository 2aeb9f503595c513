"""Calls of the system that fail on one rank."""

from __future__ import annotations

import errno

import numpy as np
from fault_scenarios import (
    LAST,
    RANK,
    SIZE,
    WORLD,
    arm,
    caught,
    faulty,
    holds,
    nothing_beside,
    opened,
    path,
    same,
    usable,
)
from scenarios import scenario

import pnc_vol as h5py
from pnc_vol.errors import (
    FlushError,
    SyncError,
)
from pnc_vol.testing.faults import FaultSystem


@scenario
def no_space_on_one_rank() -> None:
    """ENOSPC at a flush: all others' requests are done, the failed one stays, and the next flush carries it out."""
    system = faulty({"pwrite", "pwritev"}, errno=errno.ENOSPC, mode="forever")
    f = opened(driver="posix", system=system)
    x = f.create_dataset("x", (SIZE, 10), "f8")
    f.flush()
    x[RANK] = RANK + 1
    arm(system, 1)
    told = same(f.flush, FlushError, "/x", "rank 1")
    assert told["errno"] == errno.ENOSPC
    assert [failure[1:3] for failure in told["errors"]] == [[1, "/x"]]
    every = WORLD.allgather([list(map(str, failure)) for failure in told["errors"]])
    assert all(one == every[0] for one in every)
    assert x[0, 0] == 1
    assert RANK != 1 or x[1, 0] == 2
    same(f.flush, FlushError)
    system.heal()
    f.flush()
    f.close()
    holds("x", np.repeat(np.arange(SIZE) + 1, 10).reshape(SIZE, 10))


@scenario
def numrecs_never_covers_what_failed() -> None:
    system = faulty({"pwrite", "pwritev"}, errno=errno.EIO, mode="forever")
    f = opened(driver="posix", system=system)
    t = f.create_dataset("t", (0, 4), "i4", maxshape=(None, 4))
    f.flush()
    t.resize(SIZE, axis=0)
    t[RANK] = RANK
    arm(system, LAST)
    told = same(f.flush, FlushError, "/t")
    assert told["errno"] == errno.EIO
    if RANK == 0:
        with h5py.File(path(), "r") as g:
            assert g.numrecs == LAST
    system.heal()
    f.close()
    holds("t", np.repeat(np.arange(SIZE), 4).reshape(SIZE, 4))


@scenario
def what_is_to_be_resized_cannot_be_read() -> None:
    """Rank 0 copies the values to the new variable; if it cannot, the dataset has its old shape on all ranks."""
    system = faulty({"pread_into", "preadv"}, errno=errno.EIO, mode="forever")
    f = opened(driver="posix", system=system)
    x = f.create_dataset("x", (4, SIZE), "i4", maxshape=(4, None))
    x[:, RANK] = RANK
    f.flush()
    arm(system, 0)
    told = same(lambda: x.resize((4, SIZE + 1)), OSError)
    assert told["errno"] == errno.EIO
    assert x.shape == (4, SIZE)
    system.heal()
    x.resize((4, SIZE + 1))
    if RANK == 0:
        x[:, SIZE] = 9
    f.close()
    holds("x", np.tile([*range(SIZE), 9], (4, 1)))


@scenario
def failed_at_close() -> None:
    """The file is closed nevertheless, on all ranks, and what could be written is there."""
    system = faulty({"pwrite", "pwritev"}, errno=errno.EDQUOT, mode="forever")
    f = opened(driver="posix", system=system)
    x = f.create_dataset("x", (SIZE,), "f8")
    f.flush()
    x[RANK] = RANK + 1
    arm(system, 1)
    told = same(f.close, FlushError)
    assert told["errno"] == errno.EDQUOT
    assert not f
    expected = np.arange(SIZE) + 1.0
    expected[1] = 0
    holds("x", expected)


@scenario
def no_space_for_the_header() -> None:
    system = faulty({"pwrite", "pwritev"}, errno=errno.ENOSPC, mode="forever")
    f = opened(driver="posix", system=system)
    f.create_dataset("x", (4,), "f8")
    arm(system, 0)
    told = same(f.flush, OSError)
    assert told["errno"] == errno.ENOSPC, told
    system.heal()
    usable(f)
    f.close()


@scenario
def no_space_for_a_move() -> None:
    """The copy cannot be made: the old file stays as it was."""
    system = faulty({"pwrite", "pwritev"}, errno=errno.ENOSPC, mode="forever")
    f = opened(driver="posix", system=system, header_reserve=0)
    x = f.create_dataset("x", (SIZE, 10), "f8")
    x[RANK] = RANK
    f.flush()
    f.attrs["long"] = "x" * 20000
    arm(system, 0)
    told = same(f.flush, OSError)
    assert told["errno"] == errno.ENOSPC
    holds("x", np.repeat(np.arange(SIZE), 10).reshape(SIZE, 10))
    nothing_beside()
    assert x[:, 0].tolist() == list(range(SIZE))
    system.heal()
    f.flush()
    usable(f)
    f.close()
    nothing_beside()


@scenario
def failed_sync() -> None:
    """After an fsync failed somewhere, nobody is promised durability any more."""
    system = faulty({"fsync", "fdatasync"}, errno=errno.EIO)
    f = opened(driver="posix", system=system)
    f.create_dataset("x", (SIZE,), "i4")[RANK] = RANK
    arm(system, 1)
    told = same(lambda: f.flush(durable=True), SyncError)
    assert told["errno"] == errno.EIO
    assert same(lambda: f.flush(durable=True), SyncError)["errno"] == errno.EIO
    f.flush()
    f.close()
    holds("x", np.arange(SIZE))


@scenario
def failed_collective_read() -> None:
    """A read that fails on one rank is an error on all, and all can go on together."""
    system = faulty({"pread_into", "preadv"}, errno=errno.EIO)
    with opened() as f:
        f["x"] = np.arange(SIZE * 1000.0)
    f = opened("r", driver="posix", system=system)
    x = f["x"]
    with x.collective:
        arm(system, 1)
        told = same(lambda: x[RANK * 1000 : RANK * 1000 + 500], OSError, "rank 1")
        assert told["errno"] == errno.EIO
        system.heal()
        assert x[RANK * 1000] == RANK * 1000
    f.close()


@scenario
def failed_calls_of_an_open() -> None:
    """Rank 0 cannot read the header, or one rank cannot open what rank 0 made: nothing is left behind."""
    with opened() as f:
        f["x"] = [1]
    for mode, name, who, number, calls, kind in (
        ("r", "", 0, errno.EIO, {"pread_into", "preadv"}, OSError),
        ("w", "new", 1, errno.EACCES, {"open"}, PermissionError),
    ):
        system = FaultSystem(fail_at=int(who == RANK), errno=number, calls=calls)
        told = same(lambda m=mode, n=name, s=system: opened(m, n, driver="posix", system=s), kind)  # type: ignore[misc]
        assert told["errno"] == number
        nothing_beside()


@scenario
def failed_drain() -> None:
    """A full queue that cannot be written is that rank's error at once; the others hear of it at no time."""
    system = faulty({"pwrite", "pwritev"}, errno=errno.ENOSPC, mode="forever")
    f = opened(driver="posix", system=system, buffer_size=64 << 10)
    x = f.create_dataset("x", (SIZE, 100, 100), "f8")
    t = f.create_dataset("t", (SIZE, 100, 100), "f8", maxshape=(None, 100, 100))
    f.flush()
    arm(system, 1)
    if RANK == 1:

        def fill(ds: h5py.Dataset) -> None:
            for i in range(100):
                ds[1, i] = i

        assert caught(lambda: fill(x))["errno"] == errno.ENOSPC
        assert caught(lambda: fill(t))["errno"] == errno.ENOSPC
    else:
        x[RANK] = RANK
    same(f.flush, FlushError, "rank 1")
    system.heal()
    if RANK == 1:
        fill(x)
        fill(t)
    f.flush()
    assert x[1, :, 0].tolist() == list(range(100))
    assert t[1, :, 99].tolist() == list(range(100))
    f.close()
