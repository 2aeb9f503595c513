"""Types that take several variables, axes that grow, links: written by several ranks, read by all.

``ranks_types.py DIR`` with any number of ranks.
"""

from __future__ import annotations

import sys

import numpy as np
from mpi4py import MPI

import pnc_vol

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size
TYPE = np.dtype([("a", "i4"), ("s", "S3"), ("v", "f4", (2,)), ("t", pnc_vol.string_dtype())])


def record(rank: int) -> tuple[object, ...]:
    return (rank, b"r%d" % rank, [rank, -rank], b"x" * (rank + 1))


def write(f: pnc_vol.File) -> None:
    mine = slice(2 * RANK, 2 * RANK + 2)
    compound = f.create_dataset("c", (2 * SIZE,), TYPE)
    compound[mine] = np.array([record(RANK)] * 2, TYPE)
    grown = f.create_dataset("e", (2 * SIZE, 2), "i4", maxshape=(2 * SIZE, None))
    grown[mine] = RANK + 1
    # nobody flushes before: what each rank posted must be carried over
    grown.resize((2 * SIZE, 3))
    grown[mine, 2] = 10 + RANK
    f["soft"], f["hard"], f["type"] = pnc_vol.SoftLink("/c"), grown, np.dtype("f8")
    arrays = f.create_dataset("arrays", (SIZE,), "(3,)i2")
    arrays[RANK] = [RANK, RANK, RANK]
    references = f.create_dataset("references", (SIZE,), pnc_vol.ref_dtype)
    references[RANK] = compound.ref
    unnamed = f.create_dataset(None, (SIZE,), "i4")
    unnamed[RANK] = 1
    f.attrs["struct"] = np.zeros(1, "i4,f4")
    rows = f.create_dataset("rows", (SIZE,), pnc_vol.vlen_dtype("i4"))
    try:
        rows[RANK] = [1]
    except pnc_vol.NotYetError:
        pass
    else:
        raise AssertionError("rows of varying length were taken from several ranks")


def look(f: pnc_vol.File) -> None:
    wanted = np.array([record(rank // 2) for rank in range(2 * SIZE)], TYPE)
    found = f["c"][()]
    assert all(found[name].tolist() == wanted[name].tolist() for name in TYPE.names or ())
    assert f["soft"]["a"].tolist() == wanted["a"].tolist()
    assert f["hard"][()].tolist() == [[rank // 2 + 1] * 2 + [10 + rank // 2] for rank in range(2 * SIZE)]
    assert f["arrays"][()].tolist() == [[rank] * 3 for rank in range(SIZE)]
    assert [f[each].name for each in f["references"][()]] == ["/c"] * SIZE
    assert [row.tolist() for row in f["rows"][()]] == [[]] * SIZE
    assert list(f) == ["c", "e", "soft", "hard", "type", "arrays", "references", "rows"]


def main(folder: str) -> None:
    for driver, log in (("mpio", False), ("posix", False), ("mpio", True)):
        path = f"{folder}/{driver}{'-log' * log}.nc"
        with pnc_vol.File(path, "w", driver=driver, comm=WORLD, track_order=True, burst_buf=log) as f:
            write(f)
            f.flush()
            look(f)
        with pnc_vol.File(path, driver=driver, comm=WORLD) as f:
            look(f)
        WORLD.Barrier()
        if RANK == 0:
            with open(path, "rb") as made, open(f"{folder}/{driver}.nc", "rb") as wanted:
                assert made.read() == wanted.read()
            print("done:", driver, flush=True)


main(sys.argv[1])
