"""A job that shares a file in coherent mode: ``ranks_coherent.py ROLE PATH NVM SIGNALS READERS FIRST LAST``.

========  ==========================================================================================================
role      what it does
========  ==========================================================================================================
define    makes the file: ``x`` of int32[ROWS, WIDTH], all -1, in the file when it ends
write     overwrites the rows from FIRST to LAST, round after round, through a cache whose copies take a while
read      reads these rows while others write; each row is old or new as a whole, and never older than what was flushed
========  ==========================================================================================================

Run by itself it is a job of one process; with ``mpiexec`` the ranks share the rows. A writer says on a file of SIGNALS
which round it has flushed; the reader has to see at least that one. Writers begin when READERS jobs have opened the
file.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pnc_vol
from pnc_vol.testing.faults import HookedSystem

ROLE, PATH, NVM, SIGNALS = sys.argv[1:5]
READERS, FIRST, LAST = map(int, sys.argv[5:8])
ROWS, WIDTH, ROUNDS = 8, 5000, 12

COMM: Any = None
RANK, SIZE = 0, 1
if any(name in os.environ for name in ("PMI_RANK", "PMI_SIZE", "OMPI_COMM_WORLD_RANK")):
    from mpi4py import MPI

    COMM = MPI.COMM_WORLD
    RANK, SIZE = COMM.rank, COMM.size


class Slow(HookedSystem):
    """Copies from the cache file take a while, so that readers come before them."""

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name in ("copy_range", "preadv", "pread_into"):
            time.sleep(0.01)
        return super().call(name, args, kwargs)


def opened(mode: str, **more: Any) -> pnc_vol.File:
    hints = {"e10_cache": "coherent", "e10_cache_path": NVM, "e10_cache_threads": "2"}
    ranks = {"comm": COMM} if SIZE > 1 else {}
    return pnc_vol.File(PATH, mode, hints=hints, locking=False, **ranks, **more)


def signal_of(row: int) -> Path:
    return Path(SIGNALS, f"row{row}")


def flushed(row: int) -> int:
    """The last round of a row that its writer has flushed."""
    return int(signal_of(row).read_text()) if signal_of(row).exists() else -1


def define() -> None:
    with opened("w") as f:
        x = f.create_dataset("x", (ROWS, WIDTH), "i4")
        x[RANK::SIZE] = -1


def write() -> None:
    mine = range(FIRST + RANK, LAST, SIZE)
    end = time.monotonic() + 60
    while len(list(Path(SIGNALS).glob("reader*"))) < READERS:
        assert time.monotonic() < end
        time.sleep(0.01)
    with opened("r+", system=Slow()) as f:
        for number in range(ROUNDS):
            for row in mine:
                f["x"][row] = number
            f.flush()
            for row in mine:
                made = Path(SIGNALS, f"row{row}.{os.getpid()}")
                made.write_text(str(number))
                made.replace(signal_of(row))


def read() -> None:
    mine = list(range(FIRST + RANK, LAST, SIZE))
    waits, end = 0, time.monotonic() + 60
    with opened("r") as f:
        if RANK == 0:
            Path(SIGNALS, f"reader{os.getpid()}").touch()
        while True:
            for row in mine:
                least, begun = flushed(row), time.monotonic()
                found = set(f["x"][row].tolist())
                waits += time.monotonic() - begun > 0.005
                assert min(found) >= least, (row, found, least)
                assert len(found) == 1, (row, found, "a row is written whole")
            assert time.monotonic() < end
            if all(flushed(row) == ROUNDS - 1 for row in mine):
                break
    assert waits, "the reader never came while there were data in a cache"


{"define": define, "write": write, "read": read}[ROLE]()
