"""``ranks_blob_life.py FOLDER SUBFILES [SCENARIO...]``: what a set of subfiles is written, rewritten and read as.

Each scenario has a file of its own, and asserts on every rank.
"""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

import pnc_vol
from pnc_vol.errors import PncVolError
from pnc_vol.testing.faults import CHANGING, FaultSystem

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size
HERE, SUBFILES = sys.argv[1], int(sys.argv[2])
NAMES = sys.argv[3:]
N = 6
READING = {"pread_into", "preadv"}
SCENARIOS: dict[str, Callable[[str], None]] = {}


def scenario(function: Callable[[str], None]) -> Callable[[str], None]:
    SCENARIOS[function.__name__] = function
    return function


def opened(path: str, mode: str = "w", **options: Any) -> pnc_vol.File:
    more: dict[str, Any] = {"layout": "blob", "subfiles": SUBFILES} if mode == "w" else {}
    return pnc_vol.File(path, mode, comm=WORLD, collective_timeout=20, **(more | options))


def holds(path: str, **values: Any) -> None:
    """What all ranks see together, and rank 0 alone."""
    with pnc_vol.File(path, comm=WORLD) as f:
        for name, value in values.items():
            np.testing.assert_array_equal(f[name][...], value, name)
    if RANK == 0:
        with pnc_vol.File(path) as f:
            for name, value in values.items():
                np.testing.assert_array_equal(f[name][...], value, name)
    WORLD.Barrier()


def mine(n: int = N) -> slice:
    return slice(RANK * n, (RANK + 1) * n)


@scenario
def overlaps_in_one_flush(path: str) -> None:
    """Of what several ranks posted one keeps it, with ``ordered=True`` the highest; all readers see the same."""
    wanted = np.minimum(np.arange(SIZE + 3), SIZE - 1)
    for ordered in (True, False):
        with opened(path, ordered=ordered) as f:
            x = f.create_dataset("x", (SIZE + 3,), "i4")
            for more in (0, 10):
                x[RANK : RANK + 4] = RANK + more
                f.flush()
                seen = x[...]
                if ordered:
                    np.testing.assert_array_equal(seen, wanted + more)
                posters = np.arange(SIZE + 3) - (seen - more)
                assert ((posters >= 0) & (posters < 4) & (seen - more < SIZE)).all(), seen
        holds(path, x=seen)


@scenario
def without_names(path: str) -> None:
    """A new set with ``publish="close"`` is opened again, and read by ranks that did not touch its subfiles before."""
    # more than the header has room for: each subfile is laid out anew, under another temporary name
    names = [f"{n}" * 200 for n in range(SIZE)]
    with opened(path, publish="close", header_reserve=0) as f:
        for n, name in enumerate(names):
            f.create_dataset(name, (SIZE, 3), "i4")[RANK] = n + RANK
            f.sync()
            if n == RANK:
                for i, one in enumerate(names[: n + 1]):
                    np.testing.assert_array_equal(f[one][:, 0], i + np.arange(SIZE))
            for mode in ("r", "r+"):
                with opened(path, mode) as g:
                    assert g == f
    holds(path, **{name: n + np.arange(SIZE)[:, None] + [0, 0, 0] for n, name in enumerate(names)})
    # HDF5 blobs have no names before the close
    with opened(path, layout="hdf5blob") as f:
        f.create_dataset("x", (SIZE,), "i4")[RANK] = RANK
        f.flush()
        with opened(path, "r") as g:
            assert g["x"][:].tolist() == list(range(SIZE))
    holds(path, x=np.arange(SIZE))


@scenario
def overlaps_across_flushes(path: str) -> None:
    """The later flush counts, whoever owns the element."""
    with opened(path) as f:
        x = f.create_dataset("x", (N * SIZE,), "f8")
        x[mine()] = RANK
        f.flush()
        other = (RANK + 1) % SIZE
        x[other * N + 1 : other * N + 3] = 100 + RANK
        f.flush()
    wanted = np.repeat(np.arange(SIZE), N).astype("f8")
    for rank in range(SIZE):
        other = (rank + 1) % SIZE
        wanted[other * N + 1 : other * N + 3] = 100 + rank
    holds(path, x=wanted)


@scenario
def copies_in_every_subfile(path: str) -> None:
    """What is not partitioned is the same in every subfile, for programs that read one of them."""
    with opened(path) as f:
        f["scalar"] = 42
        f.create_dataset("x", (N * SIZE,), "f8")[mine()] = RANK
        f.attrs["title"] = "of all"
        f.flush()
        f["scalar"][()] = 43
        times = f.create_dataset("time", (0,), "f8", maxshape=(None,))
        times.resize(3, axis=0)
        if RANK == 0:
            times[...] = [1, 2, 3]
    holds(path, scalar=43, time=[1, 2, 3])
    if RANK == 0:
        for number in range(min(SUBFILES, SIZE)):
            with pnc_vol.File(f"{path}.{number:04d}", layout="canonical") as f:
                assert f["scalar"][()] == 43
                assert f["time"][...].tolist() == [1, 2, 3]
                assert f.attrs["title"] == "of all"


@scenario
def replaced(path: str) -> None:
    """A set takes the place of a file, of a set of more subfiles; nothing of them is left."""
    folder, name = os.path.split(path)
    if RANK == 0:
        with pnc_vol.File(path, "w") as f:
            f["plain"] = 1
    WORLD.Barrier()
    for count in (SIZE, 1):
        with opened(path, subfiles=count) as f:
            f.create_dataset("x", (N * SIZE,), "f8")[mine()] = RANK + count
        WORLD.Barrier()
        left = sorted(one for one in os.listdir(folder) if name in one)
        assert left == [f"{name}.{number:04d}" for number in range(count)], left
        holds(path, x=np.repeat(np.arange(SIZE), N) + count)
        WORLD.Barrier()
    with opened(path, subfiles=SIZE, publish="close") as f:
        f.create_dataset("y", (N * SIZE,), "f8")[mine()] = RANK
        f.flush()
        WORLD.Barrier()
        # on one rank a second opening joins the first
        if RANK == 0 and SIZE > 1:
            with pnc_vol.File(path) as old:
                assert list(old) == ["x"]
        WORLD.Barrier()
    holds(path, y=np.repeat(np.arange(SIZE), N))


def program(f: pnc_vol.File) -> None:
    """What is posted on top of what `before` flushed: a new variable with a map, records, a supplement, a scalar."""
    f.create_dataset("new", (N * SIZE,), "i4")[mine()] = RANK + 1
    f["t"].resize(3, axis=0)
    f["t"][2, mine()] = RANK + 1
    f["x"][mine(N)] = RANK + 100
    f["scalar"][()] = 6
    if RANK == 0:
        f["half"][N - 1] = 9


def before(path: str, system: FaultSystem) -> pnc_vol.File:
    f = opened(path, system=system, driver="posix")
    f.create_dataset("x", (N * SIZE,), "f8")[mine()] = RANK
    f.create_dataset("half", (N * SIZE,), "f8")[RANK * N : RANK * N + 2] = RANK
    t = f.create_dataset("t", (0, N * SIZE), "i4", maxshape=(None, N * SIZE))
    t.resize(2, axis=0)
    t[:, mine()] = RANK
    f["scalar"] = 5
    f.flush()
    return f


def after(path: str) -> None:
    half = np.repeat(np.arange(SIZE), N).astype("f8")
    half[np.arange(N * SIZE) % N > 1] = 0
    half[N - 1] = 9
    old = np.repeat(np.arange(SIZE), N)
    holds(path, new=old + 1, x=old + 100, t=np.array([old, old, old + 1]), scalar=6, half=half)


@scenario
def faults(path: str) -> None:
    sweep(f"{path}.0", 0)
    sweep(f"{path}.last", SIZE - 1)


def sweep(path: str, who: int) -> None:
    """Each call of a rank fails in turn: all are told, nothing hangs, and the next flush does it all."""
    for at in range(1, 400):
        system = FaultSystem(fail_at=0, calls=CHANGING | READING)
        here = f"{path}.{at}"
        f = before(here, system)
        old = np.repeat(np.arange(SIZE), N)
        program(f)
        if who == RANK:
            system.count, system.fail_at = 0, at
        told = ""
        try:
            f.flush()
        except (OSError, PncVolError) as error:
            told = f"{type(error).__name__}: {error}"
        every = WORLD.allgather((bool(told), system.fired, told))
        assert len({one[0] for one in every}) == 1, (at, every)
        assert len({one[2] for one in every}) == 1, (at, every)
        system.heal()
        if told:
            if RANK == 0:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    with pnc_vol.File(here) as view:
                        np.testing.assert_array_equal(view["t"][:2], [old, old], str(every))
            WORLD.Barrier()
            f.flush()
        f.close()
        after(here)
        if RANK == 0:
            left = [name for name in os.listdir(HERE) if name.startswith(".")]
            assert not left, (at, left, every)
            for number in range(min(SUBFILES, SIZE)):
                os.remove(f"{here}.{number:04d}")
        WORLD.Barrier()
        if not any(one[1] for one in every):
            assert at > 10, "there are calls that can fail"
            break
    else:
        raise AssertionError("the faults never ended")


@scenario
def one_header_is_older(path: str) -> None:
    """As when a job is killed between the header of another subfile and that of subfile 0, which comes last."""
    count = min(SUBFILES, SIZE)
    old = np.repeat(np.arange(SIZE), N)
    with opened(path) as f:
        f.create_dataset("x", (N * SIZE,), "f8")[mine()] = RANK
        t = f.create_dataset("t", (0, N * SIZE), "i4", maxshape=(None, N * SIZE))
        t.resize(1, axis=0)
        t[0, mine()] = RANK
        f.flush()
        WORLD.Barrier()
        if RANK == 0:
            shutil.copy(f"{path}.0000", f"{path}.mixed.0000")
        WORLD.Barrier()
        t.resize(3, axis=0)
        t[1:, mine()] = RANK + 1
        f.create_dataset("new", (N * SIZE, 2), "i4")[mine()] = RANK
        f.attrs["new"] = 1
    WORLD.Barrier()
    mixed = f"{path}.mixed"
    if RANK == 0:
        for number in range(1, count):
            shutil.copy(f"{path}.{number:04d}", f"{mixed}.{number:04d}")
    WORLD.Barrier()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        holds(mixed, x=old, t=[old])
        if RANK == 0 and count > 1:
            text = str([str(one.message) for one in said])
            assert "different numbers of records" in text, text
            assert "other definitions" in text, text
        with opened(mixed, "a") as f:
            assert sorted(f) == ["t", "x"]
            assert not f.attrs
            f["t"].resize(2, axis=0)
            f["t"][1, mine()] = RANK + 7
            f.create_dataset("new", (SIZE,), "f8")[RANK] = RANK
        holds(mixed, x=old, t=[old, old + 7], new=np.arange(SIZE))


@scenario
def another_file_is_in_the_way(path: str) -> None:
    """Mode "x" refuses the name of any subfile that is there; the new subfiles of other ranks leave nothing."""
    folder, name = os.path.split(path)
    last = f"{path}.{min(SUBFILES, SIZE) - 1:04d}"
    if RANK == 0:
        with pnc_vol.File(last, "w", layout="canonical") as f:
            f["kept"] = 1
    WORLD.Barrier()
    refusal = ""
    try:
        opened(path, "x", layout="blob", subfiles=SUBFILES)
    except FileExistsError as error:
        refusal = str(error)
    assert last in refusal, refusal
    WORLD.Barrier()
    left = [one for one in os.listdir(folder) if name in one]
    assert left == [os.path.basename(last)], left


for name in NAMES or SCENARIOS:
    SCENARIOS[name](os.path.join(HERE, f"{name}.nc"))
    WORLD.Barrier()
    if RANK == 0:
        sys.stdout.write(f"{name}\n")
        sys.stdout.flush()
