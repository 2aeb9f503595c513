"""Ranks end after two flushes of a set while caches of the second subfile lag: ``ranks_held_set.py PATH NVM``."""

import os
import sys
import threading
import time
from typing import Any

from mpi4py import MPI

import pnc_vol
from pnc_vol.testing.faults import HookedSystem

WORLD = MPI.COMM_WORLD


class Late(HookedSystem):
    """The threads of a cache write to the file a second later."""

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        carries = name in ("pwrite", "pwritev", "copy_range")
        if WORLD.rank and carries and threading.current_thread() is not threading.main_thread():
            time.sleep(1)
        return super().call(name, args, kwargs)


f = pnc_vol.File(
    sys.argv[1], "w", comm=WORLD, layout="blob", subfiles=2, hints={"e10_cache_path": sys.argv[2]}, system=Late()
)
f.create_dataset("x", (2, 3), "i4")[WORLD.rank] = 1
f.flush()
time.sleep(0.2)  # until the data of the first subfile are there
f.attrs["a"] = 1
f.flush()
WORLD.Barrier()
os._exit(0)
