"""``ranks_blob_model.py FOLDER FIRST COUNT LAYOUT``: random programs give the same in blobs as in the canonical layout.

A program is a seed: all ranks draw the same numbers. It defines datasets with and without decompositions, deals their
elements to ranks anew for each post, grows and shrinks, deletes, flushes, opens again and appends. Ranks never post the
same element between two flushes, so that what is read does not depend on their order.
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
FOLDER, FIRST, COUNT = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
LAYOUTS = ("canonical", sys.argv[4])
ONCE = sys.argv[4] == "hdf5blob"
"""Whether files are written once: what other ranks wrote is read when the file was closed, and nothing is appended."""
DTYPES = ("f8", "i4", "i1", "S3", "c8")


class Program:
    """What a seed does to a file."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.touched: set[str] = set()

    def one_of(self, n: int) -> bool:
        return not self.rng.integers(0, n)

    def opened(self, path: Path, mode: str, **options: Any) -> pnc_vol.File:
        return pnc_vol.File(path, mode, comm=WORLD, collective_timeout=30, **options)

    def flush(self, f: pnc_vol.File) -> None:
        f.flush()
        self.touched.clear()

    def write(self, f: pnc_vol.File) -> None:
        for step in range(int(self.rng.integers(2, 6))):
            if self.one_of(3) or not len(f):
                self.define(f, f"v{step}")
            for _ in range(int(self.rng.integers(1, 5))):
                name = sorted(f)[int(self.rng.integers(0, len(f)))]
                if name in self.touched:
                    self.flush(f)
                self.touched.add(name)
                self.resize(f[name])
                if f[name].size:
                    self.post(f[name])
            if self.one_of(3):
                f.attrs[f"a{step}"] = step
            if self.one_of(8) and len(f) > 1:
                del f[sorted(f)[int(self.rng.integers(0, len(f)))]]
            if self.one_of(2):
                self.flush(f)

    def define(self, f: pnc_vol.File, name: str) -> None:
        shape = tuple(int(n) for n in self.rng.integers(1, 9, int(self.rng.integers(0, 4))))
        dtype = DTYPES[int(self.rng.integers(0, len(DTYPES)))]
        more: dict[str, Any] = {}
        if self.one_of(2) and dtype in ("f8", "i4", "i1"):
            more["fillvalue"] = 7
        if self.one_of(4) and shape:
            more["decomposition"] = self.dealt(shape)
        if self.one_of(2):
            f.create_dataset(name, (0, *shape), dtype, maxshape=(None, *shape), **more)
        else:
            f.create_dataset(name, shape, dtype, **more)

    def dealt(self, shape: tuple[int, ...]) -> pnc_vol.Decomposition:
        """Elements dealt to ranks: in blocks, in turn, or at random; the last two leave some out."""
        nelems = int(np.prod(shape))
        owners = (
            np.arange(nelems) * SIZE // nelems,
            np.arange(nelems) % (SIZE + 1) - 1,
            self.rng.integers(-1, SIZE, nelems),
        )[int(self.rng.integers(0, 3))]
        return pnc_vol.Decomposition.from_runs(np.flatnonzero(owners == RANK), shape=shape)

    def resize(self, ds: Any) -> None:
        if ds.maxshape[:1] == (None,):
            if self.one_of(2):
                ds.resize(ds.shape[0] + int(self.rng.integers(1, 3)), axis=0)
            if self.one_of(10):
                ds.resize(int(self.rng.integers(0, ds.shape[0] + 1)), axis=0)

    def post(self, ds: Any) -> None:
        record, base = ds.maxshape[:1] == (None,), int(self.rng.integers(0, 100))
        inner = ds.shape[1:] if record else ds.shape
        if self.one_of(4) or not inner:
            if int(self.rng.integers(0, SIZE)) == RANK:
                ds[...] = ((np.arange(ds.size) + base) % 100).astype(ds.dtype).reshape(ds.shape)
            return
        mine = self.dealt(inner)
        for r in range(ds.shape[0]) if record else (None,):
            if len(mine) and (r is None or (base + r) % 3):
                values = ((mine.starts.ravel() + base + (r or 0)) % 100).astype(ds.dtype)
                ds.iput(mine if r is None else (r, mine), values)

    def append(self, f: pnc_vol.File) -> None:
        """A record more, dealt in another way."""
        for name in sorted(f):
            ds = f[name]
            if ds.maxshape[:1] == (None,) and ds.ndim > 1:
                ds.resize(ds.shape[0] + 1, axis=0)
                mine = self.dealt(ds.shape[1:])
                if len(mine):
                    ds.iput((ds.shape[0] - 1, mine), np.full(len(mine), 5).astype(ds.dtype))


def contents(f: pnc_vol.File) -> dict[str, Any]:
    return {name: (f[name].shape, f[name].dtype, f[name][...].tolist()) for name in sorted(f)}


for seed in range(FIRST, FIRST + COUNT):
    found: list[list[Any]] = []
    for layout in LAYOUTS:
        program, path = Program(seed), FOLDER / f"{seed}.{layout}.nc"
        seen: list[Any] = []
        with program.opened(path, "w", layout=layout) as f:
            program.write(f)
            f.flush()
            if not ONCE:
                seen.append(contents(f))
        with program.opened(path, "r") as f:
            seen.append(contents(f))
        if not ONCE and program.one_of(2):
            with program.opened(path, "a") as f:
                program.append(f)
            with program.opened(path, "r") as f:
                seen.append(contents(f) | {"": list(f.attrs)})
        found.append(seen)
    assert found[0] == found[1], f"seed {seed}: {found[0]}\n{found[1]}"
if RANK == 0:
    sys.stdout.write(f"{COUNT} programs\n")
