"""The same programs on any number of ranks, by every transport: they must make the same files, byte by byte.

``mpiexec -n N python ranks_identity.py DIR`` writes ``DIR/<variant>/<program>.nc`` and checks each against a numpy
model; `run` with no variant writes ``DIR/<program>.nc`` in one process. No two ranks write the same element between two
flushes; what an element holds depends on its index alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import pnc_vol as h5py

CACHE = {"e10_cache_path": "{}", "e10_cache_threads": "2"}
"""The folder is that of the file."""
VARIANTS: dict[str, dict[str, Any]] = {
    "mpio": {"driver": "mpio"},
    "mpio-collective": {"driver": "mpio", "transport": "collective"},
    "mpio-independent": {"driver": "mpio", "transport": "independent"},
    "mpio-plain": {"driver": "mpio(derived_types=false)", "transport": "collective"},
    "mpio-rounds": {"driver": "mpio(round_bytes=1000)", "transport": "collective"},
    "mpio-aggregate": {"driver": "mpio", "transport": "aggregate"},
    "mpio-pieces": {
        "driver": "mpio",
        "transport": "aggregate",
        "aggrs_per_node": 2,
        "hints": {"cb_buffer_size": "12288"},
    },
    "mpio-stripes": {
        "driver": "mpio",
        "transport": "aggregate",
        "hints": {"striping_unit": "4096", "striping_factor": "3", "cb_buffer_size": "24576", "cb_nodes": "3"},
    },
    "posix-buffers": {
        "driver": "posix",
        "transport": "aggregate",
        "hints": {"striping_unit": "8192", "cb_buffer_size": "10000", "cb_config_list": "*:1"},
    },
    "mpio-hint": {"driver": "mpio", "hints": {"romio_cb_write": "enable"}},
    "mpio-ordered": {"driver": "mpio", "ordered": True},
    "posix": {"driver": "posix"},
    "posix-aggregate": {"driver": "posix", "transport": "aggregate"},
    "posix-ordered": {"driver": "posix", "ordered": True},
    "trace-mpio": {"driver": "trace | mpio"},
    "cache-mpio": {"driver": "mpio", "hints": CACHE},
    "cache-aggregate": {"driver": "posix", "transport": "aggregate", "hints": CACHE},
    "cache-onclose": {"driver": "cache(flush=flush_onclose) | mpio", "hints": CACHE},
    "cache-ordered": {"driver": "posix", "ordered": True, "hints": CACHE},
    "cache-coherent": {"driver": "mpio", "hints": CACHE | {"e10_cache": "coherent"}},
    "log": {"driver": "mpio", "burst_buf": True, "burst_buf_flush_buffer_size": 1},
    "log-shared": {"driver": "posix", "burst_buf": True, "burst_buf_shared_logs": True},
    "log-ordered": {"driver": "mpio", "burst_buf": True, "ordered": True, "burst_buf_sync": "flush"},
    "log-cache": {"driver": "mpio", "burst_buf": True, "burst_buf_shared_logs": True, "hints": CACHE},
}
SMALL = 96 << 10


class Ranks:
    """Who takes part: this rank's share of an axis or of a grid."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def part(self, n: int) -> slice:
        return slice(n * self.rank // self.size, n * (self.rank + 1) // self.size)

    def block(self, shape: tuple[int, int]) -> tuple[slice, slice]:
        across = max(d for d in range(1, self.size + 1) if self.size % d == 0 and d * d <= self.size)
        row, column = divmod(self.rank, across)
        return Ranks(row, self.size // across).part(shape[0]), Ranks(column, across).part(shape[1])

    def mine(self, n: int) -> range:
        return range(self.rank, n, self.size)


Model = dict[str, np.ndarray]
Open = Callable[..., h5py.File]


def values(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng([seed, *shape])
    if np.dtype(dtype).kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


def see(f: h5py.File) -> None:
    """What ranks of other nodes wrote for this one is to be read: with a cache it has to be in the file."""
    if f.hints.get("e10_cache") == "enable":
        f.sync()


# ----------------------------------------------------------------------------------------------- programs


def blocks(open_file: Open, r: Ranks) -> Model:
    """A grid of blocks, in types of every width."""
    model = {}
    with open_file("w") as f:
        for i, dtype in enumerate(("f8", "f4", "i2", "u1", "i8")):
            whole = values((37, 53), dtype, i)
            ds = f.create_dataset(f"x_{dtype}", whole.shape, dtype)
            ds[r.block(whole.shape)] = whole[r.block(whole.shape)]
            model[f"x_{dtype}"] = whole
    return model


def interleaved(open_file: Open, r: Ranks) -> Model:
    """Row by row in turn, by slices with a step, by single elements, and transposed."""
    rows, steps, points = values((41, 30), "f8", 1), values((64, 9), "i4", 2), values((200,), "f4", 3)
    with open_file("w") as f:
        ds = f.create_dataset("rows", rows.shape, "f8")
        for i in r.mine(len(rows)):
            ds[i] = rows[i]
        f.create_dataset("steps", steps.shape, "i4")[r.rank :: r.size] = steps[r.rank :: r.size]
        ds = f.create_dataset("points", points.shape, "f4")
        for i in r.mine(len(points)):
            ds[i] = points[i]
        ds = f.create_dataset("columns", rows.shape, "f8")
        ds[:, r.rank :: r.size] = rows[:, r.rank :: r.size]
    return {"rows": rows, "steps": steps, "points": points, "columns": rows}


def scattered(open_file: Open, r: Ranks) -> Model:
    """Random elements, by lists, masks and many subarrays; and read back by the same means."""
    n = 900
    order = np.random.default_rng(5).permutation(n)
    whole, masked, many = values((n,), "f8", 4), values((30, 30), "i2", 5), values((30, 30), "f4", 6)
    mine = order[r.rank :: r.size]
    with open_file("w") as f:
        f.create_dataset("list", (n,), "f8")[np.sort(mine)] = whole[np.sort(mine)]
        mask = np.zeros(n, bool)
        mask[mine] = True
        mask = mask.reshape(30, 30)
        f.create_dataset("mask", masked.shape, "i2")[mask] = masked[mask]
        ds = f.create_dataset("many", many.shape, "f4")
        starts = np.stack(np.unravel_index(mine, many.shape), axis=1)
        ds.iput_many(starts, np.ones_like(starts), many.reshape(-1)[mine])
        f.flush()
        see(f)
        got = ds.iget_many(starts, np.ones_like(starts))
        got.wait()
        assert np.array_equal(np.asarray(got.array).reshape(-1), many.reshape(-1)[mine])
    return {"list": whole, "mask": masked, "many": many}


def records(open_file: Open, r: Ranks) -> Model:
    """Three variables along the record axis, over several flushes, with a resize that nobody fills."""
    a, b, c = values((17, 7), "i2", 7), values((17, 3, 5), "f8", 8), values((17,), "u1", 9)
    with open_file("w") as f:
        da = f.create_dataset("a", (0, 7), "i2", maxshape=(None, 7))
        db = f.create_dataset("b", (0, 3, 5), "f8", maxshape=(None, 3, 5), fillvalue=-1.5)
        dc = f.create_dataset("c", (0,), "u1", maxshape=(None,))
        for first, last in ((0, 3), (3, 4), (4, 11), (11, 17)):
            for ds, whole in ((da, a), (db, b), (dc, c)):
                ds.resize(last, axis=0)
                for i in range(first, last):
                    if i % r.size == r.rank:
                        ds[i] = whole[i]
            f.flush()
        for ds in (da, db, dc):
            ds.resize(20, axis=0)
    tail = [np.zeros((3, 7), "i2"), np.full((3, 3, 5), -1.5), np.zeros(3, "u1")]
    return {k: np.concatenate(pair) for k, pair in zip("abc", zip((a, b, c), tail, strict=True), strict=True)}


def strings(open_file: Open, r: Ranks) -> Model:
    """Strings whose longest is another one on every rank and in every epoch."""
    first = np.array([b"s" * (i % 11) for i in range(23)], object)
    second = np.array([b"longer " * (i % 7) for i in range(23)], object)
    with open_file("w") as f:
        one = f.create_dataset("one", (23,), h5py.string_dtype())
        rec = f.create_dataset("rec", (0,), h5py.string_dtype(), maxshape=(None,))
        fixed = f.create_dataset("fixed", (23,), "S9")
        for i in r.mine(23):
            one[i] = first[i]
            fixed[i] = first[i][:9]
        f.flush()
        rec.resize(23, axis=0)
        for i in r.mine(23):
            rec[i] = second[i]
        f.flush()
        for i in r.mine(23):
            if i % 3 == 0:
                one[i] = second[i]
        f.create_dataset("later", data=np.arange(5))
    both = np.where(np.arange(23) % 3 == 0, second, first)
    return {"one": both, "rec": second, "fixed": np.array([s[:9] for s in first]), "later": np.arange(5)}


def definitions(open_file: Open, r: Ranks) -> Model:
    """Groups, attributes, fill values, things defined and deleted between flushes, scales, empty shares."""
    x, y, z = values((12, 10), "f8", 10), values((9,), "i4", 11), values((4, 4), "i2", 12)
    with open_file("w") as f:
        f.attrs["title"] = "identity"
        g = f.create_group("g")
        g.attrs["n"] = np.arange(4)
        dx = g.create_dataset("x", x.shape, "f8", fillvalue=np.nan)
        dx.attrs["units"] = "m s-1"
        dx[r.block(x.shape)] = x[r.block(x.shape)]
        gone = f.create_dataset("gone", (50,), "i4")
        gone[r.part(50)] = 7
        f.flush()
        dy = f.create_dataset("g/deep/y", (9,), "i4", fillvalue=-7)
        dy[r.part(6)] = y[r.part(6)]
        del f["gone"]
        f.flush()
        del g["x"].attrs["units"]
        g["x"].attrs["units"] = "a longer text than before"
        dz = f.create_dataset("z", z.shape, "i2")
        if r.rank == r.size - 1:
            dz[...] = z
        f.flush()
        scale = f.create_dataset("axis", data=np.arange(10.0))
        scale.make_scale("axis")
        dx.dims[1].attach_scale(scale)
        f["scalar"] = 3.5
        f.flush()
        f.flush()
    y[6:] = -7
    return {"g/x": x, "g/deep/y": y, "z": z, "axis": np.arange(10.0), "scalar": np.array(3.5)}


def moving(open_file: Open, r: Ranks) -> Model:
    """A header that outgrows its reserve again and again, so that all data moves; posts wait meanwhile."""
    x, t = values((30, 40), "f8", 13), values((11, 20), "f4", 14)
    with open_file("w", header_reserve=64) as f:
        dx = f.create_dataset("x", x.shape, "f8")
        dt = f.create_dataset("t", (0, 20), "f4", maxshape=(None, 20))
        dx[r.block(x.shape)] = x[r.block(x.shape)]
        f.flush()
        for i in range(1, 12):
            dt.resize(i, axis=0)
            dt[i - 1, r.part(20)] = t[i - 1, r.part(20)]
            f.attrs[f"note{i}"] = "n" * 150 * i
            if i % 3 == 0:
                f.create_dataset(f"new{i}", (5,), "i4", fillvalue=i)
                rows = range(i, 30, 12)
                for row in rows:
                    dx[row, r.part(40)] = 2 * x[row, r.part(40)]
                    x[row] *= 2
            f.flush()
        assert r.size > 1 or f.statistics()["moves"] > 1, f.statistics()
    return {"x": x, "t": t, "new3": np.full(5, 3), "new9": np.full(5, 9)}


def drains(open_file: Open, r: Ranks) -> Model:
    """More than the budget on every rank: fixed variables drain, records and strings spill, before any flush."""
    x, y, t = values((512, 400), "f8", 15), values((700, 300), "f4", 16), values((40, 6000), "f4", 17)
    names = np.array([b"w" * (i % 50) for i in range(5000)], object)
    with open_file("w", buffer_size=SMALL) as f:
        dt = f.create_dataset("t", t.shape, "f4", maxshape=(None, 6000))
        dn = f.create_dataset("names", names.shape, h5py.string_dtype())
        dx = f.create_dataset("x", x.shape, "f8")
        dy = f.create_dataset("y", y.shape, "f4", fillvalue=1.0)
        for i in r.mine(512):
            dx[i] = 0.0
        for i in r.mine(512):
            dx[i] = x[i]
        for i in range(40):
            dt[i, r.part(6000)] = t[i, r.part(6000)]
        dn[r.part(5000)] = names[r.part(5000)]
        dy[r.block(y.shape)] = y[r.block(y.shape)]
        assert np.array_equal(dx[r.rank], x[r.rank])
        used = f.statistics()
        variant = open_file.variant  # type: ignore[attr-defined]
        assert "log" in variant or used["bytes_spilled"], used
        assert "log" in variant or "ordered" in variant or used["drains"], used
        f.flush()
        dx[r.part(512)] = x[r.part(512)] + 1
        f.create_dataset("after", data=np.arange(3))
        f.flush()
    return {"x": x + 1, "y": y, "t": t, "names": names, "after": np.arange(3)}


def uneven(open_file: Open, r: Ranks) -> Model:
    """One rank alone exceeds its budget before the first flush; arrays are lent; some ranks have nothing."""
    x, y = values((512, 400), "f8", 18), values((600, 500), "f8", 19)
    last = r.size - 1
    with open_file("w", buffer_size=SMALL) as f:
        dt = f.create_dataset("t", (4,), "i4", maxshape=(None,))
        dx = f.create_dataset("x", x.shape, "f8")
        dy = f.create_dataset("y", y.shape, "f8")
        if r.rank == last:
            for i in range(512):
                dx[i] = x[i]
        if r.rank == 0:
            dt[...] = [1, 2, 3, 4]
        f.flush()
        if r.rank == last:
            request = dy.iput(np.s_[:500], y[:500])
        if r.rank == 0:
            dy[500:] = y[500:]
        f.flush()
        assert r.rank != last or request.status == "done"
    return {"t": np.array([1, 2, 3, 4]), "x": x, "y": y}


def decomposed(open_file: Open, r: Ranks) -> Model:
    """Variables and records by the same lists of many runs; posts of other kinds before and after them."""
    n, deep = 1200, 3
    owner = np.random.default_rng(9).integers(0, r.size, n)
    mine = np.flatnonzero(owner == r.rank)
    one = h5py.Decomposition(mine[:, None])
    starts = np.stack([np.repeat(np.arange(deep), len(mine)), np.tile(mine, deep)], axis=1)
    flat, solid, t = values((n,), "f8", 22), values((deep, n), "i2", 23), values((4, deep, n), "f4", 24)
    with open_file("w") as f:
        for k in range(6):
            f.create_dataset(f"flat{k}", (n,), "f8").iput(one, flat[mine] + k)
            ds = f.create_dataset(f"solid{k}", (deep, n), "i2")
            ds.iput_many(starts.copy(), np.ones_like(starts), solid.reshape(-1)[starts @ [n, 1]] ^ k)
        # A later post wins, whichever kind it is of.
        f["flat0"][mine[:1]] = -1.0
        f["flat0"][mine[:1]] = flat[mine[:1]]
        f["flat1"].iput(one, flat[mine])
        if len(mine):
            f["flat2"][int(mine[0])] = -2.0
        f["flat2"].iput(one, flat[mine])
        ds = f.create_dataset("t", t.shape, "f4", maxshape=(None, deep, n))
        both = h5py.Decomposition(starts)
        for i in range(4):
            ds.iput((i, both), t[i].reshape(-1)[starts @ [n, 1]])
            if i == 1:
                f.flush()
        f.flush()
        see(f)
        got = ds.iget((-1, both))
        two = f["solid3"].iget_many(starts, np.ones_like(starts))
        f.flush()
        assert np.array_equal(got.array, t[3].reshape(-1)[starts @ [n, 1]])
        assert np.array_equal(two.array, solid.reshape(-1)[starts @ [n, 1]] ^ 3)
    model = {f"solid{k}": solid ^ k for k in range(6)} | {f"flat{k}": flat + k for k in range(3, 6)}
    return model | {"flat0": flat, "flat1": flat, "flat2": flat, "t": t}


PROGRAMS = [blocks, interleaved, scattered, records, strings, definitions, moving, drains, uneven, decomposed]


# ------------------------------------------------------------------------------------------------- running


def check(path: str, model: Model) -> None:
    with h5py.File(path, "r") as f:
        for name, expected in model.items():
            got = f[name][()]
            assert np.array_equal(got, expected), (path, name, got, expected)


def run(program: Callable[[Open, Ranks], Model], folder: str, variant: str, comm: Any) -> None:
    ranks = Ranks(comm.rank, comm.size) if comm is not None else Ranks(0, 1)
    folder = os.path.join(folder, variant)
    path = os.path.join(folder, program.__name__ + ".nc")

    def open_file(mode: str, **options: Any) -> h5py.File:
        chosen = VARIANTS[variant] | {"comm": comm, "collective_timeout": 60} if variant else {}
        hints = {name: value.format(folder) for name, value in chosen.get("hints", {}).items()}
        f = h5py.File(path, mode, **(chosen | {"hints": hints}), **options)
        assert "e10_cache_path" not in hints or f.hints["e10_cache"] != "disable", f.hints
        return f

    open_file.variant = variant  # type: ignore[attr-defined]
    model = program(open_file, ranks)
    if ranks.rank == 0:
        check(path, model)


def main() -> None:
    """``DIR [VARIANT...]``: under MPI, every program by these variants; nothing else is left of a log or a cache."""
    folder, variants = sys.argv[1], sys.argv[2:]
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    for variant in variants or VARIANTS:
        os.makedirs(os.path.join(folder, variant), exist_ok=True)
        for program in PROGRAMS:
            try:
                run(program, folder, variant, comm)
            except BaseException:
                print("failed:", variant, program.__name__, "on rank", comm.rank, file=sys.stderr, flush=True)
                raise
        comm.Barrier()
        assert comm.rank or len(os.listdir(os.path.join(folder, variant))) == len(PROGRAMS)


if __name__ == "__main__":
    main()
