"""``ranks_set_stack.py FOLDER STACK SUBFILES``: a blob set over a log, a cache or both reads as the canonical file.

Each rank posts rows of its own, elements of other ranks' blobs and elements that no map has, over several flushes and
two openings.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from mpi4py import MPI

import pnc_vol

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size
FOLDER, STACK, SUBFILES = sys.argv[1], sys.argv[2], int(sys.argv[3])


def hints() -> dict[str, str]:
    nvm = os.path.join(FOLDER, "nvm")
    found: dict[str, str] = {}
    if "log" in STACK:
        found |= {"nc_burst_buf": "enable", "nc_burst_buf_dirname": nvm}
    if "cache" in STACK:
        found |= {"e10_cache": "enable", "e10_cache_path": nvm, "e10_cache_flush_flag": "flush_onclose"}
    return found


def write(path: str, **options: Any) -> None:
    with pnc_vol.File(path, "w", comm=WORLD, collective_timeout=30, **options) as f:
        x = f.create_dataset("x", (4 * SIZE, 6), "f8", fillvalue=-5.0)
        r = f.create_dataset("g/r", (0, 3 * SIZE), "i4", maxshape=(None, 3 * SIZE))
        s = f.create_dataset("s", (), "i8")
        x[4 * RANK : 4 * RANK + 3, 1:5] = RANK + 1
        s[()] = 17
        f.flush()
        for turn in range(3):
            r.resize(turn + 1, axis=0)
            r[turn, RANK::SIZE] = 100 * turn + RANK
            f.flush()
        # the next rank's blob, then what is in no blob
        x[4 * ((RANK + 1) % SIZE), 2] = 50 + RANK
        f.flush()
        x[4 * RANK + 3, 0] = 70 + RANK
        f.sync()
        assert x[4 * RANK, 2] == 50 + (RANK - 1) % SIZE, x[4 * RANK]
    with pnc_vol.File(path, "a", comm=WORLD, collective_timeout=30, hints=options.get("hints")) as f:
        r = f["g/r"]
        r.resize(4, axis=0)
        r[3, 3 * RANK : 3 * RANK + 3] = RANK
        f.attrs["again"] = True


def content(path: str) -> dict[str, Any]:
    with pnc_vol.File(path, comm=WORLD) as f:
        found = {name: f[name][...].tolist() for name in ("x", "g/r", "s")}
        return found | dict(f.attrs)


canonical, blobs = (os.path.join(FOLDER, name) for name in ("canonical.nc", "blobs.nc"))
os.makedirs(os.path.join(FOLDER, "nvm"), exist_ok=True)
write(canonical)
write(blobs, layout="blob", subfiles=SUBFILES, hints=hints())
assert content(blobs) == content(canonical), (content(blobs), content(canonical))
WORLD.Barrier()
assert os.listdir(os.path.join(FOLDER, "nvm")) == []
assert len([name for name in os.listdir(FOLDER) if name.startswith("blobs.nc.")]) == SUBFILES
