"""What goes wrong on one rank, and what all ranks are told; one program with many scenarios.

``ranks_faults.py DIR DRIVER [SCENARIO...]`` runs every scenario in turn, each with files of its own, and rank 0 prints
one line of JSON a scenario: its name, the tracebacks of ranks where an assertion failed, the seconds that it took. One
that takes longer than 20 seconds ends the whole job with the stacks of all ranks.
"""

from __future__ import annotations

import errno
import faulthandler
import json
import os
import resource
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import pnc_vol as h5py
from pnc_vol.errors import (
    CollectiveMismatchError,
    DefinitionMismatchError,
    FlushError,
    RankError,
    SyncError,
)
from pnc_vol.system import REAL
from pnc_vol.testing.faults import FaultSystem

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size
LAST = SIZE - 1
HERE, SCENARIO, DRIVER = "", "", ""
SCENARIOS: dict[str, Callable[[], None]] = {}


def scenario(function: Callable[[], None]) -> Callable[[], None]:
    SCENARIOS[function.__name__] = function
    return function


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


# --------------------------------------------------------------------------- wrong arguments on one rank


@scenario
def bad_selection() -> None:
    with opened() as f:
        x = f.create_dataset("x", (4, SIZE), "f8")
        x[:, RANK] = RANK
        if RANK == 1:
            assert caught(lambda: x.__setitem__((9, 0), 1))["type"] == "SelectionIndexError"
        f.flush()
    holds("x", np.tile(np.arange(SIZE, dtype="f8"), (4, 1)))


@scenario
def bad_dtype() -> None:
    with opened() as f:
        x = f.create_dataset("x", (SIZE,), "i2")
        if RANK == 1:
            assert caught(lambda: x.__setitem__(0, "text"))["type"]
            assert caught(lambda: x.__setitem__(0, 1 << 20))["type"] == "RangeError"
        x[RANK] = RANK
        f.flush()
        assert x[...].tolist() == list(range(SIZE))


@scenario
def bad_attribute() -> None:
    """A failed definition defines nothing, so the ranks still agree."""
    with opened() as f:
        x = f.create_dataset("x", (SIZE,), "i2")
        if RANK == 1:
            assert caught(lambda: x.attrs.__setitem__("a", object()))["type"]
            assert caught(lambda: f.create_dataset("x", (3,), "i4"))["type"]
            assert caught(lambda: f.create_dataset("y", (3,), "U7"))["type"]
        usable(f)


@scenario
def bad_keyword_at_open() -> None:
    """What fails on one rank before the ranks first meet is shared, and nobody waits for the time limit."""
    started = time.monotonic()
    keywords: dict[str, Any] = {"no_such_option": 1} if RANK == 1 else {}
    same(lambda: opened(**keywords), TypeError, "no_such_option", "rank 1")
    same(lambda: opened(mode="q" if RANK == LAST else "w"), h5py.DefinitionError, "Invalid mode", f"rank {LAST}")
    assert time.monotonic() - started < 5


@scenario
def no_descriptors_at_open() -> None:
    """One rank has no descriptor left, or only some, at any point of the open: all ranks say so, and can go on."""
    with opened() as f:
        f["x"] = np.arange(SIZE)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    first = os.open(os.devnull, os.O_RDONLY)
    os.close(first)
    for left in range(3):
        for mode in ("r", "r+"):
            if RANK == 1:
                resource.setrlimit(resource.RLIMIT_NOFILE, (first + left, hard))
            started = time.monotonic()
            every = everywhere_after(lambda mode=mode: opened(mode).close(), soft, hard)
            assert time.monotonic() - started < 5
            assert len({told["text"] for told in every}) == 1, every
            if left == 0:
                assert every[0]["type"] == "OSError"
                assert every[0]["errno"] == errno.EMFILE
                assert "rank 1" in every[0]["text"]
    with opened("r") as f:
        assert f["x"][...].tolist() == list(range(SIZE))


def everywhere_after(call: Callable[[], Any], soft: int, hard: int) -> list[dict[str, Any]]:
    told = caught(call)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return everywhere(told)


@scenario
def failing_import_at_open() -> None:
    """One rank lacks a module that an open needs, as on a node with another installation."""
    with opened() as f:
        f["x"] = np.arange(SIZE)
    started = time.monotonic()
    name = "pnc_vol.api.opening"
    there = sys.modules[name]
    for mode in ("r", "r+", "w"):
        if RANK == 1:
            sys.modules[name] = None  # type: ignore[assignment]
        told = caught(lambda mode=mode: opened(mode).close())
        sys.modules[name] = there
        every = everywhere(told)
        assert {one["type"] for one in every} == {"ModuleNotFoundError"}, every
        assert len({one["text"] for one in every}) == 1, every
        assert name in every[0]["text"], every
        assert "rank 1" in every[0]["text"], every
    assert time.monotonic() - started < 5
    with opened("r") as f:
        assert f["x"][...].tolist() == list(range(SIZE))


@scenario
def no_permission_at_open() -> None:
    """One rank may not open the file; only root can be somebody else on one rank alone."""
    if os.geteuid() != 0:
        return
    with opened() as f:
        f["x"] = np.arange(SIZE)
    os.chmod(path(), 0o600)
    WORLD.barrier()
    started = time.monotonic()
    for mode in ("r", "r+"):
        if RANK == 1:
            os.seteuid(65534)
        told = caught(lambda mode=mode: opened(mode).close())
        os.seteuid(0)
        every = everywhere(told)
        assert {one["type"] for one in every} == {"PermissionError"}, every
        assert {one["errno"] for one in every} == {errno.EACCES}, every
        assert len({one["text"] for one in every}) == 1, every
        assert "rank 1" in every[0]["text"], every
    assert time.monotonic() - started < 5
    with opened("r") as f:
        assert f["x"][...].tolist() == list(range(SIZE))


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


# ------------------------------------------------------------------------------------------ at the open


@scenario
def missing_file() -> None:
    told = same(lambda: opened("r"), FileNotFoundError, "there is no such file")
    assert told["errno"] == errno.ENOENT


@scenario
def missing_directory() -> None:
    told = same(lambda: opened("w", "/deep/er"), FileNotFoundError)
    assert told["errno"] == errno.ENOENT


@scenario
def directory_in_the_place() -> None:
    if RANK == 0:
        os.mkdir(path())
    WORLD.Barrier()
    for mode in ("r", "w", "a", "r+"):
        same(lambda mode=mode: opened(mode), IsADirectoryError)
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
def different_modes() -> None:
    with opened() as f:
        f["x"] = [1]
    same(lambda: opened("r" if RANK else "r+"), CollectiveMismatchError, "mode", "rank 0")
    with opened("r+") as f:
        usable(f)


@scenario
def different_options() -> None:
    same(lambda: opened(buffer_size=(1 << 20) + RANK), CollectiveMismatchError, "buffer_size")
    nothing_beside()


@scenario
def different_drivers() -> None:
    same(lambda: opened(driver="mpio" if RANK else "posix"), CollectiveMismatchError, "driver")
    nothing_beside()


@scenario
def different_files() -> None:
    same(lambda: opened("w", str(RANK)), CollectiveMismatchError, "different_files0", "different_files1")
    nothing_beside()


@scenario
def a_rank_does_not_open() -> None:
    comm = WORLD.Dup()
    if RANK != LAST:
        started = time.monotonic()
        assert caught(lambda: opened(comm=comm, collective_timeout=2))["type"] == "CollectiveTimeout"
        assert 1.5 < time.monotonic() - started < 8
    WORLD.Barrier()


# ---------------------------------------------------------------------------------- different definitions


def _defines(differently: Callable[[h5py.File], None], *words: str) -> None:
    f = opened()
    f.create_dataset("x", (3,), "f4")
    differently(f)
    told = same(f.flush, DefinitionMismatchError, *words)
    assert told["ranks"], told
    # Nothing was agreed, so the file cannot be closed in order either; nobody waits.
    told = same(f.close, DefinitionMismatchError)
    assert not f


@scenario
def other_names() -> None:
    _defines(lambda f: f.create_dataset("b" if RANK == 1 else "a", (3,), "f4"), "'a'", "'b'", "rank 1")


@scenario
def other_shapes() -> None:
    _defines(lambda f: f.create_dataset("a", (3 + (RANK == 0),), "f4"), "rank 0", "3", "4")


@scenario
def other_types() -> None:
    _defines(lambda f: f.create_dataset("a", (3,), "f8" if RANK == LAST else "i4"), "'a'")


@scenario
def other_attributes() -> None:
    _defines(lambda f: f["x"].attrs.__setitem__("units", "m" if RANK else "km"), "units", "'x'")


@scenario
def one_more() -> None:
    _defines(lambda f: f.create_dataset("more", (3,), "f4") if RANK == 1 else None, "'more'", "rank 1")


@scenario
def one_more_with_new_dimensions() -> None:
    """The dataset is named as its user knows it, not the dimensions and the type number that it brings."""
    _defines(
        lambda f: f.create_dataset("deep/only", (7, 9), "u2") if RANK == LAST else None,
        f"dataset 'deep/only': uint16 of shape (7, 9) along (dim_7, dim_9) on rank {LAST}, not on rank",
    )


@scenario
def other_order() -> None:
    def swapped(f: h5py.File) -> None:
        for name in "ba" if RANK == 0 else "ab":
            f.create_dataset(name, (3,), "f4")

    _defines(swapped, "'a'", "'b'")


@scenario
def other_fill() -> None:
    _defines(lambda f: f.create_dataset("a", (3,), "f4", fillvalue=RANK), "'a'")


@scenario
def other_groups() -> None:
    _defines(lambda f: f.create_group(f"g{RANK}"))


@scenario
def other_length() -> None:
    """A resize is a definition."""
    f = opened()
    t = f.create_dataset("t", (2,), "f4", maxshape=(None,))
    f.flush()
    if RANK == 1:
        t.resize(5, axis=0)
        t[4] = 1
    same(f.flush, DefinitionMismatchError, "rank 1")
    if RANK != 1:
        t.resize(5, axis=0)
    f.flush()
    assert t[...].tolist() == [0, 0, 0, 0, 1]
    usable(f)
    f.close()


@scenario
def corrected() -> None:
    """The odd rank defines what is missing; the next flush is in order and nothing was lost."""
    f = opened()
    x = f.create_dataset("x", (SIZE,), "f4")
    x[RANK] = RANK
    if RANK == 0:
        f.attrs["a"] = 1
    same(f.flush, DefinitionMismatchError, "'a'", "rank 0")
    f.attrs["a"] = 1
    f.flush()
    assert x[...].tolist() == list(range(SIZE))
    f.close()
    holds("x", np.arange(SIZE))


# --------------------------------------------------------------------------------- different collectives


@scenario
def flush_or_close() -> None:
    f = opened()
    f["x"] = [1, 2, 3]
    f.flush()
    told = same(f.close if RANK == 0 else f.flush, CollectiveMismatchError, "close", "flush")
    assert told["ranks"]
    # Rank 0 has closed its file; the others are told when they need it.
    if RANK:
        told = caught(f.close)
        assert told["type"] == "RankError", told
        assert told["ranks"] == [0]
    assert not f
    holds("x", [1, 2, 3])


@scenario
def read_or_flush() -> None:
    f = opened()
    x = f.create_dataset("x", data=np.arange(3))
    f.flush()

    def read() -> None:
        with x.collective:
            x[...]

    same(read if RANK == 0 else f.flush, CollectiveMismatchError, "read", "flush")
    usable(f)
    f.close()


@scenario
def unequal_flushes() -> None:
    """One flush more on one rank: it meets the close of the others."""
    f = opened()
    f["x"] = [4]
    f.flush()
    if RANK == 0:
        told = caught(f.flush)
    else:
        told = caught(f.close)
    assert told["type"] == "CollectiveMismatchError", told
    told = caught(f.close)
    assert told["type"] == ("RankError" if RANK == 0 else ""), told
    holds("x", [4])


# ------------------------------------------------------------------------------------- ranks that stay away


@scenario
def does_not_flush() -> None:
    f = opened(collective_timeout=2)
    f["x"] = [1]
    f.flush()
    if RANK != 1:
        f["y"] = [2]
        told = caught(f.flush)
        assert told["type"] == "CollectiveTimeout", told
        assert told["ranks"] == [1], told
        assert "rank 1" in told["text"]
        # From now on nothing collective is tried, and nothing waits again.
        started = time.monotonic()
        assert caught(f.flush)["type"] == "CollectiveTimeout"
        assert f["x"][0] == 1
        assert caught(f.close)["type"] == "CollectiveTimeout"
        assert time.monotonic() - started < 1
    WORLD.Barrier()
    if RANK == 1:
        started = time.monotonic()
        assert caught(f.close)["type"] == "CollectiveTimeout"
        assert time.monotonic() - started < 4
    assert not f
    holds("x", [1])


@scenario
def does_not_close() -> None:
    f = opened(collective_timeout=2)
    f["x"] = [1]
    f.flush()
    if RANK != LAST:
        told = caught(f.close)
        assert told["type"] == "CollectiveTimeout", told
        assert told["ranks"] == [LAST], told
        assert not f
    WORLD.Barrier()
    if RANK == LAST:
        assert caught(f.close)["type"] == "CollectiveTimeout"
    holds("x", [1])


@scenario
def comes_late() -> None:
    """Later than the others have patience for."""
    f = opened(collective_timeout=2)
    f["x"] = [1]
    if RANK == 1:
        time.sleep(4)
    every = everywhere(caught(f.flush))
    assert {told["type"] for told in every} == {"CollectiveTimeout"}, every
    assert every[0]["ranks"] == [1]
    assert caught(f.close)["type"] == "CollectiveTimeout"


@scenario
def comes_in_time() -> None:
    with opened() as f:
        f["x"] = [1]
        if RANK == 1:
            time.sleep(1)
        f.flush()
    holds("x", [1])


@scenario
def two_ranks_do_not_come() -> None:
    f = opened(collective_timeout=2)
    if RANK == 0:
        told = caught(f.flush)
        assert told["ranks"] == list(range(1, SIZE)), told
    WORLD.Barrier()
    assert caught(f.close)["type"] == "CollectiveTimeout"


# ------------------------------------------------------------------------------------ leaving by an error


class Oops(Exception):
    pass


@scenario
def leaves_with_block() -> None:
    def run() -> None:
        with opened() as f:
            f.create_dataset("x", (SIZE,), "i4")[RANK] = RANK + 1
            f.flush()
            f.create_dataset("y", (SIZE,), "i4")[RANK] = 5
            if RANK == 1:
                raise Oops("the sum is wrong")

    told = caught(run)
    if RANK == 1:
        assert told["type"] == "Oops"
    else:
        assert told["type"] == "RankError", told
        assert told["ranks"] == [1]
        assert "Oops" in told["text"]
        assert "the sum is wrong" in told["text"]
    holds("x", np.arange(SIZE) + 1)
    nothing_beside()


@scenario
def leaves_right_after_a_flush() -> None:
    """The flush that a rank took part in before it left is a success on all ranks, however late they hear of it."""
    flushed = []

    def run(i: int) -> None:
        with opened(name=str(i)) as f:
            f.create_dataset("x", (SIZE,), "i4")[RANK] = RANK
            f.flush()
            flushed.append(i)
            if i % SIZE == RANK:
                raise Oops

    for i in range(30):
        told = caught(lambda i=i: run(i))
        assert flushed == list(range(i + 1)), told
        assert told["type"] == ("Oops" if i % SIZE == RANK else "RankError")


@scenario
def all_leave_with_block() -> None:
    def run() -> None:
        with opened() as f:
            f["x"] = [1]
            f.flush()
            f["y"] = [2]
            raise Oops

    assert caught(run)["type"] == "Oops"
    holds("x", [1])


@scenario
def error_in_a_nested_file() -> None:
    def run() -> None:
        with opened(name="outer") as f:
            f["x"] = [1]
            with opened(name="inner") as g:
                g["x"] = [2]
                f.flush()
                if RANK == LAST:
                    raise Oops
                g.flush()

    told = caught(run)
    assert told["type"] == ("Oops" if RANK == LAST else "RankError"), told
    holds("x", [1], "outer")


@scenario
def forgotten_handle() -> None:
    """One rank drops its last reference without a close."""
    f = opened()
    f["x"] = [1]
    f.flush()
    if RANK == 1:
        del f
        import gc

        gc.collect()
    else:
        told = caught(f.close)
        assert told["type"] == "RankError", told
        assert "not closed" in told["text"]
    holds("x", [1])


@scenario
def closing_without_a_flush() -> None:
    with opened() as f:
        f.create_dataset("x", (SIZE,), "i4")[RANK] = RANK
    holds("x", np.arange(SIZE))


@scenario
def closing_twice() -> None:
    f = opened()
    f["x"] = [RANK * 0]
    f.close()
    f.close()
    assert caught(f.flush)["type"] == "ClosedFileError"


# ------------------------------------------------------------------------------------- failing system calls


def _faulty(calls: set[str], **how: Any) -> FaultSystem:
    """A system that fails on rank 1, once armed."""
    return FaultSystem(REAL, fail_at=0, calls=calls, **how)


def _arm(system: FaultSystem, rank: int, ahead: int = 1) -> None:
    if rank == RANK:
        system.fail_at = system.count + ahead


@scenario
def no_space_on_one_rank() -> None:
    """ENOSPC at a flush: all others' requests are done, the failed one stays, and the next flush carries it out."""
    system = _faulty({"pwrite", "pwritev"}, errno=errno.ENOSPC, mode="forever")
    f = opened(driver="posix", system=system)
    x = f.create_dataset("x", (SIZE, 10), "f8")
    f.flush()
    x[RANK] = RANK + 1
    _arm(system, 1)
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
    system = _faulty({"pwrite", "pwritev"}, errno=errno.EIO, mode="forever")
    f = opened(driver="posix", system=system)
    t = f.create_dataset("t", (0, 4), "i4", maxshape=(None, 4))
    f.flush()
    t.resize(SIZE, axis=0)
    t[RANK] = RANK
    _arm(system, LAST)
    told = same(f.flush, FlushError, "/t")
    assert told["errno"] == errno.EIO
    if RANK == 0:
        with h5py.File(path(), "r") as g:
            assert g.numrecs == LAST
    system.heal()
    f.close()
    holds("t", np.repeat(np.arange(SIZE), 4).reshape(SIZE, 4))


@scenario
def failed_at_close() -> None:
    """The file is closed nevertheless, on all ranks, and what could be written is there."""
    system = _faulty({"pwrite", "pwritev"}, errno=errno.EDQUOT, mode="forever")
    f = opened(driver="posix", system=system)
    x = f.create_dataset("x", (SIZE,), "f8")
    f.flush()
    x[RANK] = RANK + 1
    _arm(system, 1)
    told = same(f.close, FlushError)
    assert told["errno"] == errno.EDQUOT
    assert not f
    expected = np.arange(SIZE) + 1.0
    expected[1] = 0
    holds("x", expected)


@scenario
def no_space_for_the_header() -> None:
    system = _faulty({"pwrite", "pwritev"}, errno=errno.ENOSPC, mode="forever")
    f = opened(driver="posix", system=system)
    f.create_dataset("x", (4,), "f8")
    _arm(system, 0)
    told = same(f.flush, OSError)
    assert told["errno"] == errno.ENOSPC, told
    system.heal()
    usable(f)
    f.close()


@scenario
def no_space_for_a_move() -> None:
    """The copy cannot be made: the old file stays as it was."""
    system = _faulty({"pwrite", "pwritev"}, errno=errno.ENOSPC, mode="forever")
    f = opened(driver="posix", system=system, header_reserve=0)
    x = f.create_dataset("x", (SIZE, 10), "f8")
    x[RANK] = RANK
    f.flush()
    f.attrs["long"] = "x" * 20000
    _arm(system, 0)
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
    system = _faulty({"fsync", "fdatasync"}, errno=errno.EIO)
    f = opened(driver="posix", system=system)
    f.create_dataset("x", (SIZE,), "i4")[RANK] = RANK
    _arm(system, 1)
    told = same(lambda: f.flush(durable=True), SyncError)
    assert told["errno"] == errno.EIO
    assert same(lambda: f.flush(durable=True), SyncError)["errno"] == errno.EIO
    f.flush()
    f.close()
    holds("x", np.arange(SIZE))


@scenario
def failed_collective_read() -> None:
    """A read that fails on one rank is an error on all, and all can go on together."""
    system = _faulty({"pread_into", "preadv"}, errno=errno.EIO)
    with opened() as f:
        f["x"] = np.arange(SIZE * 1000.0)
    f = opened("r", driver="posix", system=system)
    x = f["x"]
    with x.collective:
        _arm(system, 1)
        told = same(lambda: x[RANK * 1000 : RANK * 1000 + 500], OSError, "rank 1")
        assert told["errno"] == errno.EIO
        system.heal()
        assert x[RANK * 1000] == RANK * 1000
    f.close()


@scenario
def failed_header_read() -> None:
    with opened() as f:
        f["x"] = [1]
    system = FaultSystem(REAL, fail_at=1 if RANK == 0 else 0, errno=errno.EIO, calls={"pread_into", "preadv"})
    told = same(lambda: opened("r", driver="posix", system=system), OSError)
    assert told["errno"] == errno.EIO


@scenario
def failed_open_of_the_driver() -> None:
    """One rank cannot open what rank 0 made: nothing is left behind."""
    system = FaultSystem(REAL, fail_at=1 if RANK == 1 else 0, errno=errno.EACCES, calls={"open"})
    told = same(lambda: opened(driver="posix", system=system), PermissionError)
    assert told["errno"] == errno.EACCES
    nothing_beside()


@scenario
def failed_drain() -> None:
    """A full queue that cannot be written is that rank's error at once; the others hear of it at no time."""
    system = _faulty({"pwrite", "pwritev"}, errno=errno.ENOSPC, mode="forever")
    f = opened(driver="posix", system=system, buffer_size=64 << 10)
    x = f.create_dataset("x", (SIZE, 100, 100), "f8")
    t = f.create_dataset("t", (SIZE, 100, 100), "f8", maxshape=(None, 100, 100))
    f.flush()
    _arm(system, 1)
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


def _failed_aggregator(calls: set[str], number: int) -> None:
    system = _faulty(calls, errno=number, mode="forever")
    f = opened(driver="posix", system=system, transport="aggregate", aggrs_per_node=SIZE)
    x = f.create_dataset("x", (3000, SIZE), "f8")
    y = f.create_dataset("y", (SIZE,), "i4")
    f.flush()
    x[:, RANK] = np.arange(3000) + RANK
    if RANK == 1:
        y[1] = 7
    _arm(system, 1)
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
    import pnc_vol.flush.two_phase as together

    def short(*args: Any) -> None:
        raise MemoryError("no memory for the pieces")

    with opened(transport="aggregate") as f:
        x = f.create_dataset("x", (500, SIZE), "f8")
        x[:, RANK] = RANK + 1
        copy = together.copy_pieces
        if RANK == 1:
            together.copy_pieces = short
        try:
            same(f.flush, MemoryError, "rank 1")
        finally:
            together.copy_pieces = copy
        f.flush()
        assert (x[...] == np.arange(SIZE) + 1).all()


@scenario
def failed_spill_read_in_a_collective_write() -> None:
    """A rank whose spilled data cannot be read back still meets the others in the collective write."""
    system = _faulty({"pread_into", "preadv"}, errno=errno.EIO, mode="forever")
    f = opened(driver="mpio", transport="collective", system=system, buffer_size=64 << 10)
    t = f.create_dataset("t", (SIZE, 50, 100), "f8", maxshape=(None, 50, 100))
    if RANK == 1:
        t[1, :20] = 1.5
        f._id.handle.session.drain()
    else:
        t[RANK, :, 0] = RANK
    _arm(system, 1)
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
    import pnc_vol.flush.execute as carry

    class Short:
        @staticmethod
        def of(*args: Any) -> None:
            raise MemoryError("no memory for the plan")

        at_once = of

    with opened(driver="mpio", transport="collective") as f:
        x = f.create_dataset("x", (SIZE, 5), "f8")
        x[RANK] = RANK
        plan = carry.Plan
        if RANK == 1:
            carry.Plan = Short  # type: ignore[assignment,misc]
        try:
            same(f.flush, MemoryError, "rank 1")
        finally:
            carry.Plan = plan  # type: ignore[misc]
        f.flush()
        assert x[:, 0].tolist() == list(range(SIZE))


@scenario
def no_memory_in_a_collective_read() -> None:
    """One rank has no memory for what it wants to read: nobody reads, and all are told."""
    import pnc_vol.file.reads.fetch as fetch

    with opened() as f:
        x = f.create_dataset("x", (SIZE, 5), "f8")
        x[RANK] = RANK
        f.flush()
        place = fetch.place

        def short(*args: Any, **kwargs: Any) -> None:
            raise MemoryError("no memory for the extents")

        if RANK == 1:
            fetch.place = short  # type: ignore[assignment]
        try:
            with x.collective:
                same(lambda: x[...], MemoryError, "rank 1")
        finally:
            fetch.place = place
        with x.collective:
            assert x[:, 0].tolist() == list(range(SIZE))


@scenario
def interrupted() -> None:
    """Ctrl-C on one rank inside a flush: it leaves, and the others are told."""
    import pnc_vol.file.flushing as flush

    def run() -> None:
        with opened() as f:
            x = f.create_dataset("x", (SIZE,), "i4")
            x[RANK] = RANK
            f.flush()
            x[RANK] = 9
            carry = flush.carry
            if RANK == 1:

                def interrupt(*args: Any, **kwargs: Any) -> None:
                    raise KeyboardInterrupt

                flush.carry = interrupt  # type: ignore[assignment]
            try:
                f.flush()
            finally:
                flush.carry = carry

    try:
        told = caught(run)
    except KeyboardInterrupt:
        told = {"type": "KeyboardInterrupt", "text": ""}
    if RANK == 1:
        assert told["type"] == "KeyboardInterrupt"
    else:
        assert told["type"] == "RankError", told
        assert "KeyboardInterrupt" in told["text"]
        assert told["ranks"] == [1]


@scenario
def interrupted_close() -> None:
    """Ctrl-C on one rank inside close: the others are told too."""
    import pnc_vol.file.flushing as flush

    f = opened(driver="posix")
    f.create_dataset("x", (SIZE,), "i4")[RANK] = RANK
    carry = flush.carry
    if RANK == 1:

        def interrupt(*args: Any, **kwargs: Any) -> None:
            raise KeyboardInterrupt

        flush.carry = interrupt  # type: ignore[assignment]
    try:
        told = caught(f.close)
    except KeyboardInterrupt:
        told = {"type": "KeyboardInterrupt", "text": ""}
    finally:
        flush.carry = carry
    assert told["type"] == ("KeyboardInterrupt" if RANK == 1 else "RankError"), told
    assert not f


@scenario
def forked_child() -> None:
    """A child of one rank can neither use the file nor harm it."""
    f = opened(driver="posix")
    f.create_dataset("x", (SIZE,), "i4")[RANK] = RANK
    if RANK == 1:
        child = os.fork()
        if child == 0:
            kind = caught(f.flush)["type"]
            os._exit(0 if kind == "ForkedFileError" else 1)
        assert os.waitpid(child, 0)[1] == 0
    f.flush()
    f.close()
    holds("x", np.arange(SIZE))


def main() -> None:
    global HERE, SCENARIO, DRIVER
    HERE, DRIVER = sys.argv[1:3]
    for SCENARIO in sys.argv[3:] or SCENARIOS:
        faulthandler.dump_traceback_later(20, exit=True)
        started = time.monotonic()
        failure = ""
        try:
            SCENARIOS[SCENARIO]()
        except BaseException:
            failure = traceback.format_exc()
        # Ranks of which one failed may be in the middle of different scenarios: the next one would say nothing.
        failures = WORLD.allgather(failure)
        faulthandler.cancel_dump_traceback_later()
        if RANK == 0:
            told = "".join(f"rank {r}: {text}" for r, text in enumerate(failures) if text)
            print(json.dumps([SCENARIO, told, time.monotonic() - started]), flush=True)


if __name__ == "__main__":
    main()
