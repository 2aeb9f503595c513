"""One rank fails at the n-th step of a collective call, for every n: all ranks raise that, and the next call succeeds.

``ranks_steps.py DIR DRIVER TRANSPORT CASE CALLS [STRIDE]``: CALLS is ``numpy`` (every call of numpy fails in turn) or
``functions`` (every function of the package's upper floors). Rank 0 prints how many failures there were.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

import pnc_vol as h5py
from pnc_vol.testing.faults import FailingCalls

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size
FOLDER, DRIVER, TRANSPORT, CASE, CALLS = sys.argv[1:6]
STRIDE = int(sys.argv[6]) if len(sys.argv) > 6 else 1
ROWS = 600
FLOORS = ("file", "flush", "exchange", "burst", "queue", "layout", "disk", "drivers", "extents", "format", "mapping")
FUNCTIONS = tuple(f"pnc_vol.{floor}." for floor in FLOORS)
Array = npt.NDArray[Any]
Step = Callable[[], None]


def opened(name: str, **options: Any) -> h5py.File:
    chosen: dict[str, Any] = {"driver": DRIVER, "comm": WORLD, "collective_timeout": 8, "transport": TRANSPORT}
    return h5py.File(os.path.join(FOLDER, f"{CASE}{name}.nc"), "w", **(chosen | options))


def failing(n: int) -> FailingCalls:
    return FailingCalls(n, functions=FUNCTIONS if CALLS == "functions" else ())


def meets(n: int, victim: int, call: Callable[[], Any]) -> bool:
    """Whether the n-th call was met; all ranks must tell of it in the same words."""
    calls, told = failing(n if victim == RANK else 0), ""
    try:
        if victim == RANK:
            with calls:
                call()
        else:
            call()
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
    every, fired = WORLD.allgather(told), WORLD.bcast(calls.fired, victim)
    if not fired:
        assert not any(every), every
    elif any(every):
        # Memory that all ranks share is done without where a rank has none; and what comes last is nobody else's.
        others = {text for rank, text in enumerate(every) if rank != victim}
        assert others <= {every[victim]} or others == {""}, (fired, every)
        assert every[victim].startswith("MemoryError: no memory left"), (fired, every)
        if CALLS == "numpy":
            assert others == {every[victim]} or CASE == "read", (fired, every)
    return bool(fired)


def flushes() -> Iterator[tuple[h5py.File, Step, Step]]:
    """Data alone, in one file, and a posted read."""
    with opened("") as f:
        x, t = f.create_dataset("x", (ROWS, SIZE), "f8"), f.create_dataset("t", (3, SIZE), "i4", maxshape=(None, SIZE))
        f.flush()
        turn = 0
        while True:
            turn += 1
            x[:, RANK], t[:, RANK] = turn + RANK, turn
            posted = x.iget(np.s_[:, RANK])
            expected = np.tile(turn + np.arange(SIZE), (ROWS, 1))
            yield f, f.flush, lambda expected=expected: same(x, expected)  # type: ignore[misc]
            same(t, np.full((3, SIZE), turn))
            same(posted.array, np.full(ROWS, turn + RANK))


def defines() -> Iterator[tuple[h5py.File, Step, Step]]:
    """New datasets, filled, strings that grow on one rank, records, and batches that were spilled."""
    turn = 0
    while True:
        turn += 1
        with opened("", buffer_size=64 << 10) as f:
            f.create_dataset("old", (SIZE,), "i4")[RANK] = 1
            f.flush()
            x = f.create_dataset("x", (ROWS, SIZE), "f8", fillvalue=-1)
            s = f.create_dataset("s", (SIZE,), h5py.string_dtype())
            t = f.create_dataset("t", (2, ROWS, SIZE), "i4", maxshape=(None, ROWS, SIZE), fillvalue=7)
            x[1:, RANK] = RANK
            s[RANK] = "long" * RANK
            t[1, :, RANK] = RANK
            yield f, f.flush, lambda x=x: same(x[1:], np.tile(np.arange(SIZE), (ROWS - 1, 1)))  # type: ignore[misc]
            same(x[0], np.full(SIZE, -1))
            same(t[...], np.stack([np.full((ROWS, SIZE), 7), np.tile(np.arange(SIZE), (ROWS, 1))]))
            assert [bytes(one) for one in s[...]] == [b"long" * rank for rank in range(SIZE)]


def moves() -> Iterator[tuple[h5py.File, Step, Step]]:
    """A header that outgrows its place: all data move to a copy of the file."""
    turn = 0
    while True:
        turn += 1
        with opened("") as f:
            x = f.create_dataset("x", (ROWS, SIZE), "f8")
            x[:, RANK] = RANK
            f.flush()
            f.attrs["long"] = "x" * 20_000
            x[3:, RANK] = RANK + 10
            yield f, f.flush, lambda x=x: same(x[3:], np.tile(np.arange(SIZE) + 10, (ROWS - 3, 1)))  # type: ignore[misc]
            same(x[:3], np.tile(np.arange(SIZE), (3, 1)))
            assert f.statistics()["moves"] == 1


def closes() -> Iterator[tuple[h5py.File, Step, Step]]:
    """The file is closed whatever fails, on all ranks alike; what was flushed is there."""
    turn = 0
    while True:
        turn += 1
        f = opened("")
        x = f.create_dataset("x", (ROWS, SIZE), "f8")
        x[:, RANK] = RANK
        f.flush()
        x[:, RANK] = RANK + 1

        def look(f: h5py.File = f) -> None:
            assert not f
            WORLD.Barrier()
            with h5py.File(os.path.join(FOLDER, f"{CASE}.nc"), "r") as again:
                found = again["x"][...] - np.arange(SIZE)
                assert set(found.reshape(-1).tolist()) <= {0, 1}
            WORLD.Barrier()

        yield f, f.close, look


def read() -> Iterator[tuple[h5py.File, Step, Step]]:
    """A collective read."""
    with opened("") as f:
        x = f.create_dataset("x", (ROWS, SIZE), "f8")
        x[:, RANK] = RANK
        f.flush()

        def together() -> None:
            with x.collective:
                same(x[:, ::-1], np.tile(np.arange(SIZE)[::-1], (ROWS, 1)))

        while True:
            yield f, together, lambda: None


def same(x: Any, expected: Array) -> None:
    assert np.array_equal(x[...], expected), (x[...], expected)


def main() -> None:
    for victim in range(min(SIZE, 2)):
        cases = {"flushes": flushes, "defines": defines, "moves": moves, "closes": closes, "read": read}[CASE]()
        n, met = 1, True
        while met:
            faulthandler.dump_traceback_later(30, exit=True)
            _, call, look = next(cases)
            met = meets(n, victim, call)
            WORLD.Barrier()
            if CASE != "closes":
                call()
            look()
            n += STRIDE
        cases.close()
        if RANK == 0:
            print(f"{CASE}: {n} failures on rank {victim}", flush=True)


if __name__ == "__main__":
    main()
