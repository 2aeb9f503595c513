"""Ranks end with a set whose second subfile lags in its cache: ``ranks_held_set.py PATH NVM killed|full``.

They are killed after two flushes, or its disk is full when they close it.
"""

import errno
import os
import sys
import threading
import time
from typing import Any

import pytest
from mpi4py import MPI

import pnc_vol
from pnc_vol.testing.faults import HookedSystem

WORLD = MPI.COMM_WORLD


class Late(HookedSystem):
    """The threads of a cache write to the file a second later, or not at all."""

    full = False

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        carries = name in ("pwrite", "pwritev", "copy_range")
        if WORLD.rank and carries and threading.current_thread() is not threading.main_thread():
            if self.full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            time.sleep(1)
        return super().call(name, args, kwargs)


path, nvm, end = sys.argv[1:]
system, hints = Late(), {"e10_cache_path": nvm}
if end == "full":
    hints["e10_cache_flush_flag"] = "flush_onclose"
f = pnc_vol.File(path, "w", comm=WORLD, layout="blob", subfiles=2, hints=hints, system=system)
f.create_dataset("x", (2, 3), "i4")[WORLD.rank] = 1
f.flush()
if end == "full":
    system.full = True
    with pytest.raises(OSError, match="No space left"):
        f.close()
    sys.exit()
time.sleep(0.2)  # until the data of the first subfile are there
f.attrs["a"] = 1
f.flush()
WORLD.Barrier()
os._exit(0)
