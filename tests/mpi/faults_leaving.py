"""A block that is left by an exception on one rank, and files that are closed late or twice."""

from __future__ import annotations

import numpy as np
from fault_scenarios import LAST, RANK, SIZE, caught, holds, nothing_beside, opened
from scenarios import scenario


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
def closing_twice() -> None:
    f = opened()
    f["x"] = [RANK * 0]
    f.close()
    f.close()
    assert caught(f.flush)["type"] == "ClosedFileError"
