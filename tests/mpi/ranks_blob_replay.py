"""``ranks_blob_replay.py FOLDER SUBFILES``: a program writes each layout; the replay of its blobs is what it wrote.

Prints what differs; the serial program beside it (`test_blob_replay.py`) replays the same files again.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import pnc_vol

WORLD = MPI.COMM_WORLD
FOLDER, SUBFILES = Path(sys.argv[1]), int(sys.argv[2])
RANK, SIZE = WORLD.rank, WORLD.size


def mine(n: int) -> slice:
    return slice(n * RANK // SIZE, n * (RANK + 1) // SIZE)


def fields(f: Any) -> None:
    """Fixed and growing variables of several types, by rows, by columns and in stripes."""
    for code in ("i1", "u2", "f4", "i8", "f8"):
        values = np.arange(13 * 17).astype(code).reshape(13, 17)
        by_rows = f.create_dataset(f"rows_{code}", (13, 17), code, fillvalue=3)
        by_rows[mine(13)] = values[mine(13)]
        stripes = f.create_dataset(f"g/stripes_{code}", (0, 13, 17), code, maxshape=(None, 13, 17))
        stripes.resize(4, 0)
        for record in range(4):
            stripes[record, :, RANK::SIZE] = (values + record).astype(code)[:, RANK::SIZE]
    f["scalar"] = 4.5
    f["text"] = ["a", "bcd", ""]
    f.attrs["title"] = "fields"
    f["rows_f8"].attrs["units"] = "m"


def others(f: Any) -> None:
    """What is not numbers, and objects without values."""
    words = f.create_dataset("words", (40,), "S7")
    words[mine(40)] = [f"w{i}".encode() for i in range(40)][mine(40)]
    pairs = f.create_dataset("pairs", (30,), np.dtype([("a", "i4"), ("b", "f8")]))
    pairs[mine(30)] = np.array([(i, i / 2) for i in range(30)], pairs.dtype)[mine(30)]
    z = f.create_dataset("z", (0, 20), "c16", maxshape=(None, 20))
    z.resize(2, 0)
    z[:, mine(20)] = (np.arange(40).reshape(2, 20) * 1j)[:, mine(20)]
    f.create_dataset("nothing", data=pnc_vol.Empty("f4"))
    f.create_group("empty")
    f["soft"] = pnc_vol.SoftLink("/words")


def holes(f: Any) -> None:
    """Elements that nobody writes, that two ranks write, and that come later."""
    part = f.create_dataset("part", (50,), "i4", fillvalue=-7)
    part[5 + mine(30).start : 5 + mine(30).stop] = 1 + RANK
    late = f.create_dataset("late", (50,), "i4", fillvalue=-8)
    late[mine(20)] = RANK
    whole = f.create_dataset("whole", (600,), "f8")
    whole[mine(600)] = np.arange(600.0)[mine(600)]
    f.flush()
    late[20 + mine(20).start : 20 + mine(20).stop] = 100 + RANK
    whole[mine(600)] = np.arange(600.0)[mine(600)] * 2


def same(path: Path, other: Path) -> bool:
    return path.read_bytes() == other.read_bytes()


for program in (fields, others, holes):
    name = FOLDER / program.__name__
    for layout, more in (("canonical", {}), ("blob", {"subfiles": SUBFILES}), ("hdf5blob", {"subfiles": SUBFILES})):
        with pnc_vol.File(f"{name}.{layout}", "w", comm=WORLD, layout=layout, header_reserve=0, **more) as file:
            program(file)
    for layout in ("blob", "hdf5blob"):
        replayed = f"{name}.{layout}.replayed"
        report = pnc_vol.replay(f"{name}.{layout}", output=replayed, comm=WORLD)
        assert WORLD.allgather(report) == [report] * SIZE or SIZE > 1
        assert report.subfiles == SUBFILES
        assert report.nprocs == SIZE
        if RANK == 0:
            assert report.whole == (program is not holes), report
            if not same(Path(f"{name}.canonical"), Path(replayed)):
                sys.stdout.write(f"{program.__name__} differs as {layout}\n")
