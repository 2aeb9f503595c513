"""Random programs on ranks, compared with numpy: ``mpiexec -n N python ranks_random.py FOLDER FIRST LAST``.

Every rank draws the same program from the seed: which file with which options, which datasets, and in each flush which
elements each rank posts, and in which way. So each rank knows what all of them post. No two ranks post the same element
between two flushes. What is read, before the end by each rank in its own way, and at the end of each program as a
whole by another opening, has to be equal to arrays of numpy. A seed that fails is named in the error.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
from mpi4py import MPI

import pnc_vol as h5py

Array = np.ndarray[Any, Any]
world = MPI.COMM_WORLD

TYPES = ["f8", "f4", "i8", "i4", "i2", "u1", ">f8", "<i4"]
DRIVERS = ["posix", "mpio"]
TRANSPORTS = ["auto", "aggregate", "independent", "collective"]


def options_of(random: np.random.Generator, folder: str) -> dict[str, Any]:
    """The way to the file, with buffers and stripes of a few pages, so that small files have several of each."""
    driver = str(random.choice(DRIVERS))
    hints = {}
    if random.random() < 0.5:
        hints |= {"cb_nodes": str(random.integers(1, world.size + 1))}
    if random.random() < 0.5:
        hints |= {"cb_buffer_size": str(random.choice([4096, 10000, 24576]))}
    if random.random() < 0.3:
        hints |= {"striping_unit": "4096", "striping_factor": str(random.integers(1, 4))}
    if random.random() < 0.3:
        hints |= {"nc_num_aggrs_per_node": str(random.integers(1, 3))}
    kind = random.choice(["plain", "plain", "plain", "log", "shared log", "cache", "blob"])
    if kind in ("log", "shared log"):
        hints |= {"nc_burst_buf": "enable", "nc_burst_buf_dirname": folder}
        hints |= {"nc_burst_buf_shared_logs": "enable"} if kind == "shared log" else {}
    elif kind == "cache":
        hints |= {"e10_cache": str(random.choice(["enable", "coherent"])), "e10_cache_path": folder}
    elif kind == "blob":
        hints |= {"pnc_layout": "blob", "pnc_subfiles": str(random.integers(1, world.size + 1))}
    found: dict[str, Any] = {"driver": driver, "hints": hints}
    transport = str(random.choice(TRANSPORTS))
    if transport != "auto" and not (driver == "posix" and transport in ("collective", "independent")):
        found["transport"] = transport
    if random.random() < 0.2:
        found["ordered"] = True
    if random.random() < 0.4:
        found["buffer_size"] = int(random.choice([16 << 10, 64 << 10]))
    return found


def owners(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Whose each element is, -1 for nobody's: each by itself, in runs, by the first or by the last axis."""
    size, count = world.size, int(np.prod(shape))
    way = random.integers(4)
    if way == 0:
        flat = random.integers(-1, size, count)
    elif way == 1:
        flat = random.integers(-1, size, count // int(random.integers(2, 40)) + 1).repeat(40)[:count]
        flat = np.resize(flat, count)
    elif way == 2:
        rows = random.integers(-1, size, shape[0])
        return np.broadcast_to(rows.reshape(-1, *(1,) * (len(shape) - 1)), shape)
    else:
        columns = random.integers(-1, size, shape[-1])
        return np.broadcast_to(columns, shape)
    return flat.reshape(shape)


def runs_of(mine: Array) -> tuple[Array, Array]:
    """Starts and counts of the runs along the last axis of the elements that are mine."""
    wide = np.zeros((*mine.shape[:-1], mine.shape[-1] + 2), np.int8)
    wide[..., 1:-1] = mine
    step = np.diff(wide, axis=-1)
    starts, ends = np.argwhere(step == 1), np.argwhere(step == -1)
    counts = np.ones_like(starts)
    counts[:, -1] = ends[:, -1] - starts[:, -1]
    return starts, counts


def post(ds: Any, mine: Array, values: Array, way: int, kind: Any) -> None:
    """Post the elements that are mine: run by run, as a list of subarrays, by a mask, or axis by axis."""
    if not mine.any():
        return
    starts, counts = runs_of(mine)
    boxes = [tuple(slice(a, a + n) for a, n in zip(*box, strict=True)) for box in zip(starts, counts, strict=True)]
    given = values.astype(kind)
    if way == 0 or len(boxes) < 4:
        for box in boxes:
            ds[box] = given[box]
    elif way == 1:
        for box in boxes:
            ds.iput(box, given[box])
    elif way == 2:
        ds.iput_many(starts, counts, np.concatenate([given[box].reshape(-1) for box in boxes]))
    else:
        ds[mine] = given[mine]


def read(ds: Any, model: Array, random: np.random.Generator) -> None:
    """Read a random part, at once or as a request."""
    parts = []
    for n in model.shape:
        low = int(random.integers(0, n))
        parts.append(slice(low, int(random.integers(low, n)) + 1, int(random.choice([1, 1, 1, 2, 3]))))
    box = tuple(parts)
    if random.random() < 0.5:
        found = ds[box]
    else:
        request = ds.iget(box)
        request.wait()
        found = request.array
    np.testing.assert_array_equal(found, model[box])


class Program:
    """One random program; `common` is drawn from alike on all ranks, `own` on each by itself."""

    def __init__(self, folder: str, seed: int) -> None:
        self.common = np.random.default_rng([seed, 1])
        self.own = np.random.default_rng([seed, 2, world.rank])
        self.path = os.path.join(folder, f"{seed}.nc")
        self.options = options_of(self.common, folder)
        self.model: dict[str, Array] = {}
        self.file: Any = None

    def define(self) -> None:
        """A dataset, of fixed length or not."""
        common = self.common
        # Small: a coherent cache locks each run of elements, and waits for those of other ranks.
        axes = int(common.integers(1, 4))
        shape = tuple(int(n) for n in common.choice([1, 3, 8, 33, 100][: 6 - axes], axes))
        name = f"{common.choice(['', 'g/', 'g/h/'])}v{len(self.model)}"
        maxshape = (None, *shape[1:]) if common.random() < 0.4 else None
        self.file.create_dataset(name, shape, str(common.choice(TYPES)), maxshape=maxshape)
        self.model[name] = np.zeros(shape, self.file[name].dtype)

    def grow(self) -> None:
        """More records in a dataset that can have them."""
        names = [name for name in self.model if self.file[name].maxshape[0] is None]
        if names:
            name = str(self.common.choice(names))
            old = self.model[name]
            more = np.zeros((int(self.common.integers(1, 20)), *old.shape[1:]), old.dtype)
            self.model[name] = np.concatenate([old, more])
            self.file[name].resize(self.model[name].shape)

    def write(self) -> None:
        """Post to some datasets on all ranks."""
        common = self.common
        for name, model in self.model.items():
            if common.random() < 0.6:
                whose = owners(common, model.shape)
                values = common.integers(0, 127, model.shape).astype(model.dtype)
                ways, kind = common.integers(0, 4, world.size), str(common.choice([model.dtype.str, "f8", "i8"]))
                post(self.file[name], whose == world.rank, values, int(ways[world.rank]), kind)
                model[whose >= 0] = values[whose >= 0]

    def look(self) -> None:
        """Read some datasets; what ranks of other nodes wrote through a cache is first brought to the file."""
        if self.file.hints.get("e10_cache") == "enable":
            self.file.sync()
        for name, model in self.model.items():
            if self.common.random() < 0.5:
                read(self.file[name], model, self.own)

    def reopen(self) -> None:
        self.file.close()
        self.file = h5py.File(self.path, "r+", comm=world, **self.options)

    def run(self) -> None:
        self.file = h5py.File(self.path, "w", comm=world, **self.options)
        self.define()
        for _ in range(int(self.common.integers(2, 7))):
            if self.common.random() < 0.5:
                self.define()
            if self.common.random() < 0.4:
                self.grow()
            if self.common.random() < 0.3:
                self.file.attrs[f"a{self.common.integers(5)}"] = self.common.integers(0, 9, 3)
            self.write()
            self.file.flush()
            self.look()
            if self.common.random() < 0.2:
                self.reopen()
        self.file.close()
        with h5py.File(self.path, "r", comm=world, driver="mpio") as f:
            for name, model in self.model.items():
                np.testing.assert_array_equal(f[name][...], model, err_msg=name)


def main() -> None:
    folder, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for seed in range(first, last):
        try:
            Program(folder, seed).run()
        except Exception as error:
            raise AssertionError(f"seed {seed}, rank {world.rank} of {world.size}: {error}") from error
        world.barrier()
        left = sorted(os.listdir(folder))
        assert all(name.startswith(f"{seed}.") for name in left), f"seed {seed} left {left}"
        world.barrier()
        if world.rank == 0:
            for name in left:
                os.unlink(os.path.join(folder, name))
        world.barrier()


if __name__ == "__main__":
    main()
