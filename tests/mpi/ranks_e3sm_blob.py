"""``ranks_e3sm_blob.py OUT MAPS CANONICAL LAYOUT [LIST]``: a case as E3SM-IO's C program writes it with ``-x blob``.

LIST is the list of the case's variables, which says the map of each; without it the case is F h1. Definitions are those
of the C program's canonical file. Every rank writes its number, or its letter, to what it owns; rank 0 writes what
nobody owns.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import pnc_vol
from pnc_vol.format.decode import decode

WORLD = MPI.COMM_WORLD
OUT, MAPS, CANONICAL, LAYOUT = sys.argv[1:5]
OWNERS = (
    {name: number for name, _, _, number, *_ in json.loads(Path(sys.argv[5]).read_text())["vars"]}
    if sys.argv[5:]
    else {}
)

raw = Path(CANONICAL).read_bytes()
header = decode(raw, file_size=len(raw)).header
owned = pnc_vol.read_decompositions(MAPS, WORLD)
with pnc_vol.File(OUT, "w", comm=WORLD, layout=LAYOUT, header_reserve=0) as f, pnc_vol.File(CANONICAL) as known:
    session: Any = f.id.handle.session
    for dim in header.dims:
        f.create_dimension(dim.name, dim.size or None)
    datasets = {var.name: known[var.name] for var in header.vars}
    numbers = {}
    for attr in header.attrs:
        f.attrs[attr.name] = known.attrs[attr.name]
    for var, (name, old) in zip(header.vars, datasets.items(), strict=True):
        columns = old.ndim and old.dims[old.ndim - 1].label == "ncol"
        numbers[name] = OWNERS[name] if OWNERS else {"area": 1, "U": 3}.get(name, 2) if columns else 0
        own = {"decomposition": owned[numbers[name] - 1]} if numbers[name] else {}
        grows = {"maxshape": old.maxshape} if old.maxshape != old.shape else {}
        dims = [header.dims[index].name for index in var.dims]
        made = f.create_dataset(name, (0, *old.shape[1:]) if grows else old.shape, old.dtype, dims=dims, **grows, **own)
        for attr in var.attrs:
            made.attrs[attr.name] = old.attrs[attr.name]
    for name, old in datasets.items():
        made = f[name]
        records = range(header.numrecs) if old.maxshape != old.shape else ()
        if records:
            made.resize(header.numrecs, axis=0)
        value = bytes([ord("a") + WORLD.rank]) * old.dtype.itemsize if old.dtype.kind == "S" else WORLD.rank
        if numbers[name]:
            mine = owned[numbers[name] - 1]
            values = np.full(int(mine.counts.sum()), value, old.dtype)
            for index in [(r, mine) for r in records] or [mine]:
                made.iput(index, values)
        elif WORLD.rank == 0:
            made[...] = np.full(made.shape, value, old.dtype)
