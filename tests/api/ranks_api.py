"""Run by test_mpi.py on several ranks: ``ranks_api.py FOLDER DRIVER``; what ranks write and read is the engine's."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

import pnc_vol as h5py

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size
FOLDER, DRIVER = sys.argv[1:3]


def path(name: str) -> str:
    return os.path.join(FOLDER, f"{name}_{DRIVER}.nc")


def raised(kind: type[BaseException], call: Callable[[], Any]) -> str:
    """The text of the exception that `call` raises."""
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f"rank {RANK}: no {kind.__name__}")


def wrong_arguments() -> None:
    for comm in (3, "world"):
        assert "mpi4py" in raised(TypeError, lambda comm=comm: h5py.File(path("bad"), "w", comm=comm))


def data_elsewhere_are_read_by_each_rank() -> None:
    if RANK == 0:
        with h5py.File(path("source"), "w") as f:
            f["x"] = np.arange(10 * SIZE)
    COMM.Barrier()
    layout = h5py.VirtualLayout((2, 10 * SIZE), "i8")
    layout[0] = h5py.VirtualSource(path("source"), "x", (10 * SIZE,))
    with h5py.File(path("elsewhere"), "w", driver=DRIVER, comm=COMM) as f:
        own = f.create_dataset("own", (10 * SIZE,), "i8")
        layout[1] = h5py.VirtualSource(own)
        v = f.create_virtual_dataset("v", layout)
        raw = f.create_dataset("raw", (SIZE, 3), "i4", external=os.path.basename(path("raw")))
        raw[RANK] = RANK
        own[10 * RANK : 10 * RANK + 10] = RANK
        f.flush()
        # One rank alone asks, and no other waits.
        assert v[0, 10 * RANK : 10 * RANK + 3].tolist() == [10 * RANK, 10 * RANK + 1, 10 * RANK + 2]
        assert v[1].tolist() == np.repeat(np.arange(SIZE), 10).tolist()
        with v.collective:
            assert v[:, -1].tolist() == [10 * SIZE - 1, SIZE - 1]
        assert raw[()].tolist() == [[n] * 3 for n in range(SIZE)]
        # This file is written by all ranks, another one by nobody.
        COMM.Barrier()
        v[1, RANK] = 90 + RANK
        f.flush()
        assert own[:SIZE].tolist() == [90 + n for n in range(SIZE)]
        if SIZE > 1:
            assert "write to the sources" in raised(h5py.NotYetError, lambda: v.__setitem__((0, 0), 1))
    with h5py.File(path("elsewhere"), driver=DRIVER, comm=COMM) as f:
        assert f["v"].is_virtual
        assert f["v"][0, ::10].tolist() == list(range(0, 10 * SIZE, 10))
        assert f["raw"][RANK, 1] == RANK


def an_external_link_is_followed_by_each_rank() -> None:
    """Also while others have followed it: the other file is opened for reading, as no rank could write it alone."""
    if RANK == 0:
        with h5py.File(path("linked"), "w") as f:
            f["x"] = np.arange(5)
    COMM.Barrier()
    with h5py.File(path("links"), "w", driver=DRIVER, comm=COMM) as f:
        f["out"] = h5py.ExternalLink(os.path.basename(path("linked")), "/x")
        kept = None
        for turn in range(SIZE):
            if turn == RANK:
                kept = f["out"]
                assert kept[()].tolist() == list(range(5))
            COMM.Barrier()
        assert kept is not None
        assert kept.file.mode == "r"
        assert "no write intent" in raised(OSError, lambda: kept.__setitem__(0, 1))
        kept.file.close()
        COMM.Barrier()


def what_is_atomic_is_there_at_once() -> None:
    with h5py.File(path("atomic"), "w", driver=DRIVER, comm=COMM) as f:
        x, z = f.create_dataset("x", (SIZE, 4), "i8"), f.create_dataset("z", (SIZE,), "c16")
        x[RANK] = -1
        assert not f.atomic
        f.atomic = True
        assert f.atomic
        before = f.statistics()["bytes_written"]
        x[RANK], x[RANK, 1:3], z[RANK] = np.arange(4), [7, 8], RANK + 1j
        assert f.statistics()["bytes_written"] > before
        assert not f.plan().nbytes
        COMM.Barrier()
        other = (RANK + 1) % SIZE
        assert (x[other].tolist(), z[other]) == ([0, 7, 8, 3], other + 1j)
        COMM.Barrier()
        f.atomic = False
        x[RANK] = 5
        assert f.plan().nbytes == 32
        COMM.Barrier()
        assert x[other].tolist() == [0, 7, 8, 3]
        COMM.Barrier()


def both_handles_of_a_file() -> None:
    f = h5py.File(path("twice"), "w", driver=DRIVER, comm=COMM)
    x = f.create_dataset("x", (SIZE, 4), "i4")
    f["link"] = h5py.ExternalLink(path("twice"), "/x")
    g = h5py.File(path("twice"), "r+", driver=DRIVER, comm=COMM)
    reader = h5py.File(os.path.relpath(path("twice")), "r", driver=DRIVER, comm=COMM)
    assert f == g == reader
    assert f["link"] == x
    x[RANK] = RANK + 1
    g["x"][RANK, 0] = -1
    assert reader["x"][RANK].tolist() == [-1] + [RANK + 1] * 3
    assert "no write intent" in raised(OSError, lambda: reader.create_group("a"))
    assert "already open" in raised(OSError, lambda: h5py.File(path("twice"), "w", driver=DRIVER, comm=COMM))
    raised(FileExistsError, lambda: h5py.File(path("twice"), "x", driver=DRIVER, comm=COMM))
    # others may read what is flushed, and not write
    assert f"open already on {SIZE} rank(s)" in raised(OSError, lambda: h5py.File(path("twice"), "r+"))
    with h5py.File(path("twice")) as alone:
        assert alone != f
        assert "x" not in alone
    half = COMM.Split(RANK % 2, RANK)
    assert "close it first" in raised(OSError, lambda: h5py.File(path("twice"), "a", driver=DRIVER, comm=half))
    backwards = COMM.Split(0, -RANK)
    raised(OSError, lambda: h5py.File(path("twice"), "r+", driver=DRIVER, comm=backwards))
    for made in (half, backwards):
        made.Free()
    f.close()
    assert not f
    COMM.Barrier()
    with h5py.File(path("twice")) as alone:
        assert "x" not in alone, "g may go on writing"
    COMM.Barrier()
    g.close()
    COMM.Barrier()
    with h5py.File(path("twice")) as alone:
        assert alone["x"][:, 1].tolist() == list(range(1, SIZE + 1)), "nobody writes any more"
        assert (alone["x"][:, 0] == -1).all()
    assert reader["x"][SIZE - 1, 1] == SIZE
    reader.close()


def a_file_that_one_rank_has_open() -> None:
    for rank in (0, SIZE - 1):
        if rank == RANK:
            mine = h5py.File(path("mine"), "w")
            mine["x"] = 1
            mine.flush()
        COMM.Barrier()
        for mode in ("r+", "a"):
            text = raised(OSError, lambda mode=mode: h5py.File(path("mine"), mode, driver=DRIVER, comm=COMM))
            assert "close it first" in text, text
        with h5py.File(path("mine"), "r", driver=DRIVER, comm=COMM) as f:
            assert list(f) == ["x"]
        COMM.Barrier()
        if rank == RANK:
            mine.close()
        COMM.Barrier()


def readers_refresh_together() -> None:
    if RANK == 0:
        writer = h5py.File(path("growing"), "w", libver="latest")
        t = writer.create_dataset("t", (1,), "i4", maxshape=(None,))
        writer.swmr_mode = True
    COMM.Barrier()
    with h5py.File(path("growing"), driver=DRIVER, comm=COMM, swmr=True) as f:
        mine = f["t"]
        for more in ("x" * 10, "x" * 20000):
            if RANK == 0:
                t.resize(t.shape[0] + 2, axis=0)
                t[-1] = t.shape[0]
                writer.attrs["more"] = more
                t.flush()
            COMM.Barrier()
            mine.refresh()
            assert f.attrs["more"] == more
            assert mine[-1] == mine.shape[0]
            with mine.collective:
                assert mine[-1] == mine.shape[0]
        assert mine.shape == (5,)
    COMM.Barrier()
    if RANK == 0:
        writer.close()


def one_handle_fails_and_takes_the_other_along() -> None:
    f = h5py.File(path("along"), "w", driver=DRIVER, comm=COMM, collective_timeout=30)

    def work() -> None:
        with h5py.File(path("along"), "r+", driver=DRIVER, comm=COMM):
            if RANK == 0:
                raise KeyError("only here")
            f.flush()

    text = raised(KeyError if RANK == 0 else h5py.RankError, work)
    assert "only here" in text, text
    assert not f
    f.close()
    COMM.Barrier()


if DRIVER == "left open":
    LEFT = h5py.File(path("left"), "w", comm=COMM, driver="posix")
    LEFT["x"] = [1, 2]
else:
    for work in (
        what_is_atomic_is_there_at_once, data_elsewhere_are_read_by_each_rank, both_handles_of_a_file,
        an_external_link_is_followed_by_each_rank, a_file_that_one_rank_has_open,
        one_handle_fails_and_takes_the_other_along, readers_refresh_together, wrong_arguments,
    ):  # fmt: skip
        work()
    if RANK == 0:
        print("fine")
