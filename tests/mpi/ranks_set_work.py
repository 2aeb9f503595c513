"""``ranks_set_work.py FOLDER SUBFILES``: what a rank owns of a variable is written by itself, in one piece."""

from __future__ import annotations

import os
import sys

import numpy as np
from mpi4py import MPI

import pnc_vol

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size
FOLDER, SUBFILES = sys.argv[1], int(sys.argv[2])
EACH, VARIABLES = 1024, 3


def main() -> None:
    start = np.arange(RANK, EACH * SIZE, SIZE)
    columns = pnc_vol.Decomposition.from_runs(start, np.ones_like(start), (EACH * SIZE,))
    for layout, way, pieces in (("canonical", "aggregate", EACH), ("blob", "independent", 1)):
        path = os.path.join(FOLDER, f"{layout}.nc")
        options = {"layout": layout, "subfiles": SUBFILES} if layout == "blob" else {}
        with pnc_vol.File(path, "w", comm=WORLD, collective_timeout=30, **options) as f:
            sets = [
                f.create_dataset(f"v{i}", (0, EACH * SIZE), "f4", maxshape=(None, EACH * SIZE), decomposition=columns)
                for i in range(VARIABLES)
            ]
            for record in range(2):
                for i, x in enumerate(sets):
                    x.resize(record + 1, axis=0)
                    x.iput((record, columns), np.full(EACH, 100 * record + 10 * i + RANK, "f4"))
                f.flush()
                found = f.statistics()
                assert found["transport"] == way, (layout, found["transport"])
            if layout == "blob":
                assert found["rounds"] == 0
                # in the file they adjoin those of other ranks alone
                assert found["extents_written"] == 2 * VARIABLES * pieces, found["extents_written"]
            f.sync()
            values = np.stack([f[f"v{i}"][...] for i in range(VARIABLES)])
        known = np.arange(EACH * SIZE) % SIZE
        expected = known + 100 * np.arange(2)[:, None] + 10 * np.arange(VARIABLES)[:, None, None]
        assert (values == expected).all()


main()
