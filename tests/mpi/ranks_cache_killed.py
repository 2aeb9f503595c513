"""Ranks that write through caches until they are killed: ``ranks_cache_killed.py PATH NVM OPTIONS``.

NVM may have ``{rank}`` in it. Whoever started the job kills the ranks.
"""

from __future__ import annotations

import os
import sys

from mpi4py import MPI

import pnc_vol

path, nvm, options = sys.argv[1:4]
WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size
WIDTH = 3000


def say(text: str) -> None:
    with open(f"{path}.said.{RANK}", "a") as said:
        said.write(f"{text}\n")


say(str(os.getpid()))
options, _, below = options.partition("|")
driver = f"cache({options.strip(', ')}) | {below or 'mpio'}"
with pnc_vol.File(path, "w", comm=WORLD, driver=driver, hints={"e10_cache_path": nvm.format(rank=RANK)}) as f:
    r = f.create_dataset("r", (0, SIZE, WIDTH), maxshape=(None, SIZE, WIDTH), dtype="f8")
    g = f.create_dataset("g", (SIZE, WIDTH), dtype="i4")
    f.flush()
    for k in range(1000):
        r.resize((k + 1, SIZE, WIDTH))
        r[k, RANK] = k + RANK
        g[RANK] = k
        f.attrs["k"] = k
        f.flush()
        say(str(k))
