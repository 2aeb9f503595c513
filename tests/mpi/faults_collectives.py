"""Different collective calls, and ranks that do not come to one."""

from __future__ import annotations

import time

import numpy as np
from fault_scenarios import LAST, RANK, SIZE, WORLD, caught, everywhere, holds, opened, same, usable
from scenarios import scenario

from pnc_vol.errors import (
    CollectiveMismatchError,
)


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
        assert repr(f.filename) in told["text"], "a program may have several files open"
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
