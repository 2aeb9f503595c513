"""``ranks_append_set.py FOLDER WHAT [SUBFILES]``: one number of ranks writes a set, others append to it and read it.

WHAT is ``write``, ``append`` or ``read``. The same is done to a canonical file; ``read`` compares the view with that
file, and the bytes of its replay with the bytes of the replay's target by rank 0 alone.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import pnc_vol

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size
FOLDER, WHAT = Path(sys.argv[1]), sys.argv[2]
N = 24


def mine() -> slice:
    return slice(N * RANK // SIZE, N * (RANK + 1) // SIZE)


def records(f: Any, name: str, value: int) -> None:
    """A record more, of which this rank has a stretch, and one of which it has every so many elements."""
    for dataset in (f[name], f["striped"]):
        dataset.resize(dataset.shape[0] + 1, axis=0)
    f[name][-1, mine()] = value * 100 + np.arange(N)[mine()]
    f["striped"][-1, RANK::SIZE] = value * 1000 + np.arange(N)[RANK::SIZE]


def write(f: Any) -> None:
    for name in ("rows", "striped"):
        f.create_dataset(name, (0, N), "f8", maxshape=(None, N), fillvalue=-1.0)
    fixed = f.create_dataset("fixed", (N,), "i4", fillvalue=-2)
    fixed[mine()] = np.arange(N)[mine()]
    for turn in range(2):
        records(f, "rows", turn)
        f.flush()


def append(f: Any) -> None:
    """Records and changed elements of a map of other ranks, and a variable with a map of these."""
    turn = f["rows"].shape[0]
    records(f, "rows", turn)
    f["fixed"][RANK] = 100 * turn + RANK
    later = f.create_dataset(f"later{turn}", (3, N), "f4")
    later[:, mine()] = turn + RANK
    f.flush()
    records(f, "rows", turn + 1)


def contents(f: Any) -> dict[str, Any]:
    return {name: f[name][...].tolist() for name in f}


base, canonical = FOLDER / "set.nc", FOLDER / "canonical.nc"
if WHAT == "read":
    views = []
    for path in (base, canonical):
        with pnc_vol.File(path, comm=WORLD) as f:
            views.append(contents(f))
    assert views[0] == views[1], views
    report = pnc_vol.replay(base, output=FOLDER / f"replayed.{SIZE}", comm=WORLD)
    assert report.whole
    assert report.nprocs == int(sys.argv[3])
    if RANK == 0:
        pnc_vol.replay(base, output=FOLDER / f"alone.{SIZE}")
        assert (FOLDER / f"replayed.{SIZE}").read_bytes() == (FOLDER / f"alone.{SIZE}").read_bytes()
        with pnc_vol.File(FOLDER / f"alone.{SIZE}") as f:
            assert contents(f) == views[1]
else:
    ways: dict[str, Any] = {"mode": "w"} if WHAT == "write" else {"mode": "a"}
    blob: dict[str, Any] = {"layout": "blob", "subfiles": int(sys.argv[3])} if WHAT == "write" else {}
    for path, options in ((base, ways | blob), (canonical, ways)):
        with pnc_vol.File(path, comm=WORLD, collective_timeout=60, **options) as f:
            (write if WHAT == "write" else append)(f)
