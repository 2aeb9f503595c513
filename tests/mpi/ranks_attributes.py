"""Flushes after changes of attributes: how much is made anew, and that the file is the same.

``ranks_attributes.py DIR DRIVER``: every rank asserts, rank 0 prints what it did.
"""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from types import FrameType
from typing import Any

import numpy as np
from mpi4py import MPI

import pnc_vol as h5py

WORLD = MPI.COMM_WORLD
RANK = WORLD.rank
FOLDER, DRIVER = sys.argv[1:3]
COUNTED = tuple(os.path.join(os.path.dirname(h5py.__file__), name) for name in ("mapping", "format"))


def opened(name: str, **options: Any) -> h5py.File:
    chosen: dict[str, Any] = {"driver": DRIVER, "comm": WORLD, "collective_timeout": 15}
    return h5py.File(os.path.join(FOLDER, name), "w", **(chosen | options))


def calls_of(f: h5py.File) -> Counter[str]:
    """The functions of the definitions and of their layout that a flush calls."""
    found: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        # every step of a generator expression is told as a call
        if event == "call" and code.co_filename.startswith(COUNTED) and not code.co_name.startswith("<"):
            found[f"{os.path.basename(code.co_filename)}:{code.co_name}"] += 1

    sys.setprofile(note)
    try:
        f.flush()
    finally:
        sys.setprofile(None)
    return found


def work_follows_what_changed() -> None:
    """The same functions, as often, with 10 and with 1,000 datasets."""
    for owner in ("x3", "g/x5", "/", "g"):
        found = []
        for n in (10, 1000):
            with opened(f"work{n}.nc") as f:
                f.create_group("g")
                for i in range(n):
                    f.create_dataset(f"x{i}" if i % 5 else f"g/x{i}", (4,), "f8").attrs["number"] = i
                f.flush()
                # the space for attributes is in the header's region from here on
                f[owner].attrs["number"] = 7
                f.flush()
                f[owner].attrs["number"] = 8
                found.append(calls_of(f))
        assert found[0], "nothing was counted"
        assert found[0] == found[1], (owner, found[0] - found[1], found[1] - found[0])
    told("work")


def built(f: h5py.File) -> list[Any]:
    """Objects of all kinds that have attributes."""
    group = f.create_group("g/h")
    made = [f, f["g"], group]
    for name, shape, dtype in (("a", (3,), "f4"), ("b", (), "i2"), ("c", (2, 3), "f8"), ("s", (2,), "S5")):
        made += [f.create_dataset(name, shape, dtype), group.create_dataset(name, shape, dtype)]
    made.append(f.create_dataset("fill", (3,), "i4", fillvalue=9))
    made.append(f.create_dataset("rec", (2, 3), "f4", maxshape=(None, 3)))
    made.append(group.create_dataset("short", (1,), "i4", maxshape=(None,)))
    made.append(f.create_dataset("empty", (0, 3), "i4"))
    made.append(f.create_dataset("flag", (3,), "?"))
    made.append(f.create_dataset("text", (2,), h5py.string_dtype()))
    made.append(f.create_dataset("pair", (2,), np.dtype([("x", "f4"), ("y", "i4")])))
    scale = f.create_dataset("lon", (3,), "f4")
    scale.make_scale("longitude")
    made[3].dims[0].attach_scale(scale)
    return [*made, scale]


def changes(f: h5py.File, seed: int, *, anew: bool) -> None:
    chosen = random.Random(seed)
    made = built(f)
    f.flush()
    for turn in range(25):
        for _ in range(chosen.choice((1, 1, 3))):
            attrs, name = chosen.choice(made).attrs, chosen.choice(("units", "n", "list", "é", "_FillValue"))
            kind = chosen.randrange(5)
            if kind == 0 and name in attrs:
                del attrs[name]
            elif kind == 1:
                attrs[name] = "x" * chosen.choice((1, 2, 7, 900))
            elif kind == 2:
                attrs.create(name, [1, 2, turn], dtype="i2")
            else:
                attrs[name] = np.int32(turn)
        if turn % 9 == 8:
            f.create_dataset(f"later{turn}", (2,), "i4")
        if turn % 5 == 4:
            f["a"][...] = turn
        if anew:
            f.id.node.tree.touch()
        f.flush()


def the_file_is_the_same() -> None:
    """As if all definitions had been made anew at each flush, after each flush."""
    for seed in range(6):
        kept: list[list[bytes]] = []
        for anew in (False, True):
            states: list[bytes] = []
            name = f"same{seed}{anew}.nc"
            with opened(name, format=("CDF-5", "CDF-2")[seed % 2], header_reserve=(None, 600)[seed % 3 == 0]) as f:
                flush = f.flush

                def flushed(flush: Any = flush, states: list[bytes] = states, name: str = name) -> None:
                    flush()
                    with open(os.path.join(FOLDER, name), "rb") as there:
                        states.append(there.read())
                    WORLD.barrier()

                f.flush = flushed  # type: ignore[method-assign]
                changes(f, seed, anew=anew)
            with open(os.path.join(FOLDER, name), "rb") as there:
                states.append(there.read())
            WORLD.barrier()
            kept.append(states)
        assert len(kept[0]) == 27
        differ = [i for i, (one, other) in enumerate(zip(*kept, strict=True)) if one != other]
        assert not differ, (seed, differ)
    told("same")


def told(what: str) -> None:
    WORLD.barrier()
    if RANK == 0:
        print("passed:", what, flush=True)


if __name__ == "__main__":
    work_follows_what_changed()
    the_file_is_the_same()
