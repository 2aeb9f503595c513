"""Which modules ranks load after the opening of a file: ``ranks_loading.py FOLDER CASE``; rank 0 prints those of all.

Everything ordinary is done with the file: definitions, posts in every way, flushes, reads, the close.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import numpy as np
from mpi4py import MPI

import pnc_vol as h5py

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size
FOLDER, CASE = sys.argv[1:3]

NODES = int(os.environ.get("MPIR_CVAR_NUM_CLIQUES", "1"))
NODE = os.path.join(FOLDER, f"node{RANK % NODES}")
LOG = {"nc_burst_buf": "enable", "nc_burst_buf_dirname": NODE}
OPTIONS: dict[str, dict[str, Any]] = {
    "posix": {"driver": "posix"},
    "mpio": {"driver": "mpio"},
    "collective": {"driver": "mpio", "transport": "collective"},
    "aggregate": {"driver": "posix", "transport": "aggregate"},
    "ordered": {"driver": "mpio", "ordered": True},
    "durable": {"driver": "mpio", "durable": True},
    "log": {"hints": LOG},
    "shared log": {"hints": LOG | {"nc_burst_buf_shared_logs": "enable"}},
    "cache": {"hints": {"e10_cache": "enable", "e10_cache_path": NODE}},
    "coherent": {"hints": {"e10_cache": "coherent", "e10_cache_path": NODE}},
    "blob": {"layout": "blob"},
    "two subfiles": {"layout": "blob", "subfiles": 2, "hints": LOG},
    "small buffer": {"driver": "mpio", "buffer_size": 16 << 10},
    "posix drain": {"driver": "posix", "buffer_size": 16 << 10},
}


def define(f: h5py.File, turn: int) -> None:
    """Groups, datasets of several types, attributes."""
    g = f.create_group(f"g{turn}")
    x = g.create_dataset("x", (8 * SIZE, 40), "f8")
    g.create_dataset("t", (2, 4 * SIZE), "i4", maxshape=(None, 4 * SIZE), fillvalue=7)
    g.create_dataset("e", (2 * SIZE, 2), "i2", maxshape=(2 * SIZE, None))
    g.create_dataset("s", (2 * SIZE,), "S5")
    g["scalar"] = 3.5
    x.attrs["units"], x.attrs["range"], g.attrs["n"] = "m", np.arange(3.0), turn
    f.attrs[f"a{turn}"] = "text"
    g.require_group("h").require_dataset("y", (SIZE,), "f4")
    x.dims[0].label = "row"
    scale = g.create_dataset("row", (8 * SIZE,), "f4")
    scale.make_scale("row")
    x.dims[0].attach_scale(scale)
    g.create_dataset("c", (SIZE,), [("a", "i4"), ("b", "f8")])
    g.create_dataset("text", (SIZE,), h5py.string_dtype())
    g.create_dataset("z", (SIZE,), "c16")
    g["soft"], g["hard"] = h5py.SoftLink(f"/g{turn}/x"), x
    x.attrs.modify("units", "km")
    x.attrs.create("list", [1, 2, 3], dtype="i2")
    g.create_dataset_like("like", x)


def post(f: h5py.File, turn: int) -> None:
    """Every way to write: one run, a scalar, other types, steps, lists, masks, points, uncopied and many."""
    g = f[f"g{turn}"]
    x, t = g["x"], g["t"]
    mine = slice(8 * RANK, 8 * RANK + 8)
    x[mine] = np.ones((8, 40))
    x[8 * RANK] = 3
    x[8 * RANK, 1:30:3] = np.arange(10)
    x[8 * RANK + 1, [1, 5, 6]] = [1.0, 2.0, 3.0]
    x[mine, 3] = np.arange(8, dtype="i2")
    mask = np.zeros(x.shape, bool)
    mask[8 * RANK + 2, ::2] = True
    x[mask] = np.arange(20.0)
    x.write_direct(np.zeros((2, 40)), dest_sel=np.s_[8 * RANK : 8 * RANK + 2])
    x.iput(np.s_[8 * RANK + 4], np.arange(40.0))
    starts = np.array([[8 * RANK + 5, 0], [8 * RANK + 6, 3]])
    x.iput_many(starts, np.array([[1, 3], [1, 4]]), np.arange(7.0))
    t[0, 4 * RANK : 4 * RANK + 4] = [1, 2, 3, 4]
    t.resize(5, axis=0)
    t[4, 4 * RANK] = 9
    g["s"][2 * RANK] = b"abc"
    g["e"][2 * RANK] = [1, 2]
    g["h/y"][RANK] = 1.5
    g["c"][RANK] = (RANK, 2.5)
    g["text"][RANK] = "long" * (turn + 1)
    g["z"][RANK] = 1 + 2j
    for _ in range(20):
        x[mine] = np.ones((8, 40), "f4")
    g["like"][8 * RANK : 8 * RANK + 8, ::2] = np.ones((8, 20), ">f8")


def read(f: h5py.File, turn: int) -> None:
    """Every way to read."""
    g = f[f"g{turn}"]
    x, t = g["x"], g["t"]
    x[...], x[0], x[0, 0], x[1:3, ::4], t[4], g["scalar"][()], g["s"][...], x[0, [1, 2, 7]], x[2][x[2] > 0]
    mask = np.zeros(x.shape, bool)
    mask[0, :5] = True
    x[mask]
    x.read_direct(np.zeros((2, 40)), np.s_[:2])
    request = x.iget(np.s_[1:3])
    request.wait()
    many = x.iget_many(np.array([[0, 0], [2, 3]]), np.array([[1, 3], [1, 4]]))
    f.wait_all([many])
    t.iget(np.s_[0])
    f.wait_all()
    with x.collective:
        x[:, RANK]
    list(f), list(g.items()), dict(x.attrs), f"g{turn}/x" in f, x.shape, x.dtype, x.maxshape, len(t), x.nbytes
    f.visit(lambda name: None)
    g["c"][...], g["c"]["a"], g["text"][...], g["z"][0], g["soft"].name, g["text"].asstr()[0], x.astype("f4")[0]
    g["like"][:, ::3]
    repr(f), repr(g), repr(x), x.dims[0].label, len(x.dims[0]), f.requests, f.statistics()


def look(f: h5py.File, turn: int) -> None:
    """Reading what other nodes may still have in their caches needs a call of all ranks before."""
    f.sync()
    read(f, turn)


def work(f: h5py.File, turn: int) -> None:
    define(f, turn)
    post(f, turn)
    read_own = f[f"g{turn}/x"][8 * RANK]
    assert read_own.shape == (40,)
    f.flush()
    look(f, turn)
    post(f, turn)
    f.flush()
    f[f"g{turn}/x"][8 * RANK] = 5.0
    f.flush(durable=True)
    g = f[f"g{turn}"]
    g["e"].resize((2 * SIZE, 3))
    f.move(f"g{turn}/scalar", f"g{turn}/renamed")
    f.move(f"g{turn}/renamed", f"g{turn}/scalar")
    g["x"].attrs["units"] = "a longer unit than before"
    del g.attrs["n"]
    f.attrs["long"] = "x" * 20_000 * (turn + 1)
    f.flush()
    g["t"].resize(9, axis=0)
    g["t"][8, RANK] = 1
    request = g["x"].iget(np.s_[0])
    posted = g["x"].iput(np.s_[8 * RANK], np.zeros(40))
    f.flush()
    assert posted.test()
    assert request.test()
    g["t"][8, RANK] = 2
    del g["e"]
    f.sync()
    f[f"g{turn}/x"][8 * RANK] = 6.0


def main() -> None:
    path = os.path.join(FOLDER, "file.nc")
    name, _, how = CASE.partition(", ")
    os.makedirs(NODE, exist_ok=True)
    warnings.simplefilter("error")
    if how:
        # the file was made by another job: this one knows nothing of what writing loads
        f = h5py.File(path, how, comm=WORLD, **OPTIONS[name])
    else:
        f = h5py.File(path, "w", comm=WORLD, **OPTIONS[name])
    opened = set(sys.modules)
    if how != "r":
        work(f, {"": 0, "r+": 1}[how])
        f.sync()
    read(f, 0)
    f.close()
    later = sorted(set(sys.modules) - opened)
    for rank, names in enumerate(WORLD.gather(later) or ()):
        print(rank, *names)


main()
