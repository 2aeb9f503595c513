"""``ranks_blob_kinds.py FOLDER LAYOUT...``: ranks write their parts of datasets of every kind, and all read all.

Of the layouts, ``log`` is the canonical one with a burst buffer.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

import pnc_vol

WORLD = MPI.COMM_WORLD
FOLDER, *LAYOUTS = sys.argv[1:]
N = 6
ALL = np.arange(N * WORLD.size)
MINE = slice(WORLD.rank * N, (WORLD.rank + 1) * N)
PAIR = np.dtype([("a", "i4"), ("b", "f8")])

KINDS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "text": ("S8", lambda n: n.astype("S8")),
    "complex": ("c16", lambda n: n * (1 + 2j)),
    "truth": ("?", lambda n: n % 3 == 0),
    "pair": (PAIR, lambda n: np.array([(i, i / 2) for i in n], PAIR)),
    "array": (np.dtype(("f4", (3,))), lambda n: np.arange(3 * n[0], 3 * n[-1] + 3, dtype="f4").reshape(-1, 3)),
    "string": (pnc_vol.string_dtype(), lambda n: np.array(["x" * (i % 5) + str(i) for i in n], object)),
    "enum": (pnc_vol.enum_dtype({"A": 1, "B": 2}, "i1"), lambda n: (n % 2 + 1).astype("i1")),
}


def check(layout: str) -> None:
    path = os.path.join(FOLDER, layout)
    given = {"layout": layout} if layout != "log" else {"burst_buf": True}
    with pnc_vol.File(path, "w", comm=WORLD, **given) as f:
        for name, (dtype, values) in KINDS.items():
            f.create_dataset(name, ALL.shape, dtype)[MINE] = values(ALL[MINE])
            series = f.create_dataset(f"{name}_series", (0, ALL.size), dtype, maxshape=(None, ALL.size))
            series.resize(3, axis=0)
            series[1, MINE] = values(ALL[MINE])
    with pnc_vol.File(path, comm=WORLD) as f:
        for name, (_, values) in KINDS.items():
            for found in (f[name][...], f[f"{name}_series"][1], f[f"{name}_series"][1, 2:-1]):
                wanted = values(ALL if len(found) == ALL.size else ALL[2:-1])
                if name == "string":
                    found = [text.decode() for text in found]
                np.testing.assert_array_equal(found, wanted, layout)
    sys.stdout.write(f"all kinds of {layout}\n")


for one in LAYOUTS:
    check(one)
