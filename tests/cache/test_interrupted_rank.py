"""No memory at a line on one of several ranks whose file has a cache: no rank keeps anything open, or waits for it."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np
import pytest
import virtual_ranks
from interrupts import AtCall, Interrupts, open_now

import pnc_vol
from pnc_vol.cache.held_bytes import HeldBytes
from pnc_vol.drivers.root import Root
from pnc_vol.file import closing, deferred
from pnc_vol.ranks.waiting import TimedWait

SET = {"layout": "blob", "ranks_per_subfile": 2}


def grow(f: Any, comm: Any) -> None:
    """Data move to a copy of the file."""
    f.attrs["more"] = "x" * 3000
    f.flush()


def delete(f: Any, comm: Any) -> None:
    """The file is cut to its header."""
    del f["x"]
    f.flush()


def write(f: Any, comm: Any) -> None:
    """Each rank writes to the subfiles of others."""
    f["x"][comm.rank :: comm.size] = comm.rank
    f.flush()


def change(f: Any, comm: Any) -> None:
    f["x"][5] = 50


def lines_of(counted: Interrupts, code: CodeType, most: int) -> list[int]:
    """At most so many of the lines of a function."""
    found = [n for n, call in enumerate(counted._call_of, 1) if counted._noted[call].code is code]
    assert found, "it is not called"
    return [found[int(i)] for i in np.linspace(0, len(found) - 1, min(most, len(found)))]


@pytest.mark.filterwarnings("ignore::pnc_vol.PncVolWarning")
@pytest.mark.parametrize(
    ("act", "function", "given"),
    [
        (grow, HeldBytes.leave, {}),
        (grow, HeldBytes.leave, SET),
        (delete, HeldBytes.cut, {}),
        (write, Root.__init__, SET),
        (change, TimedWait.begin, SET),
        (change, closing._close, {}),
    ],
)
def test_nothing_stays_open(act: Any, function: Any, given: dict[str, Any], tmp_path: Path) -> None:
    def ended(n: int, trouble: Interrupts | AtCall) -> list[str]:
        """Run the program, with trouble on rank 1 from the act to the close; the errors of its ranks."""
        nvm = tmp_path / str(n)
        nvm.mkdir()
        hints = {"e10_cache_path": str(nvm), "e10_cache_flush_flag": "flush_immediate"}

        def program(comm: Any) -> str:
            f = pnc_vol.File(nvm / "x.nc", "w", comm=comm, hints=hints, driver="posix", header_reserve=0, **given)
            try:
                with f:
                    x = f.create_dataset("x", (12,), "i4")
                    x[3 * comm.rank : 3 * comm.rank + 3] = comm.rank
                    f.flush()
                    with trouble if comm.rank == 1 else nullcontext():
                        act(f, comm)
                        f.close()
            except (MemoryError, OSError, pnc_vol.PncVolError) as error:
                error.__traceback__ = error.__context__ = error.__cause__ = None
                return type(error).__name__
            finally:
                del f, x
                # as the end of an interpreter does
                deferred.part_from_others(last=True)
            return ""

        errors: list[str] = virtual_ranks.run(4, program, timeout=0.2)
        return errors

    counted = Interrupts(0, MemoryError)
    ended(-1, Interrupts(0, MemoryError))
    assert ended(0, counted) == [""] * 4
    before = open_now()
    wrong = {}
    for n in lines_of(counted, function.__code__, 3):
        trouble = counted.at_line(n)
        errors = ended(n, trouble)
        assert trouble.happened
        if open_now() != before:
            wrong[trouble.where] = open_now(), errors
    assert not wrong, before
