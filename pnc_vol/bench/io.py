"""``python -m pnc_vol.bench io`` writes arrays and reads them back; ``reads`` reads parts of arrays; ``conversion``.

The works of ``io`` are those of users: one large array, a program that appends rows, one that scatters small pieces, a
file of many variables. Every peer gets the same values and writes a file of its own kind. For ``reads`` a file is
written once by each peer, untimed, and is in the page cache; each read opens nothing. What is read is compared.

``conversion`` converts a netCDF-4 and an HDF5 file of one large variable to CDF-5. The netCDF-4 file is what ``nccopy
-k cdf5`` takes, which writes the same kind of file; h5repack copies the HDF5 file to another HDF5 file, which is the
least that a conversion has to do. Both run as programs, and so does pnc_vol: files of one number show what it takes to
start them, which is part of the other figures.

Knows: the works. Does not know: how a peer does them (`peers.py`).
"""

from __future__ import annotations

import functools
import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.bench.measure import US, Job, Stopwatch, check, times
from pnc_vol.bench.peers import Peer, Spec, installed, load
from pnc_vol.system import REAL, exists

Array = npt.NDArray[Any]

NO_REQUESTS = "has no words for it"
VARIABLES = 20


def io(job: Job) -> None:
    """Write arrays of each kind, and read them back."""
    scale = job.options.scale
    peers = installed()
    _big(job, peers, times(scale, 1 << 27))
    _filled(job, peers, times(scale, 1 << 22))
    count = times(scale, 100_000)
    rows = functools.cache(lambda: np.random.default_rng(1).random((count, 128)))
    _one_by_one(job, peers, f"{count:,} rows of 128", Spec((count, 128), "f8"), lambda: (range(count), rows()))

    @functools.cache
    def pieces() -> tuple[list[slice], Array]:
        rng = np.random.default_rng(2)
        starts = rng.permutation(100 * count // 8)[:count] * 8
        return [slice(at, at + 8) for at in starts.tolist()], rng.random((count, 8))

    _one_by_one(job, peers, f"{count:,} random pieces of 8", Spec((100 * count,), "f8"), pieces)
    _many(job, peers, times(scale, 10_000), 1000)
    _many(job, peers, times(scale, 100_000), 4)


def _big(job: Job, peers: Mapping[str, Any], n: int) -> None:
    title = f"{n * 8 / (1 << 30):g} GiB variable" if n >= 1 << 24 else f"variable of {n:,}"
    values = functools.cache(lambda: np.random.default_rng(0).random(n))
    written, read, into = (f"{title}, {what}" for what in ("write", "read", "read into an array"))

    def run(peer: Any, watch: Stopwatch) -> None:
        x = values()
        with watch(written):
            peer.save({"x": x})
        with watch(read):
            found = peer.whole("x")
        check(f"{title}, {peer.path}", found, x)
        if "into" not in peer.ways:
            watch.without("makes an array of its own", into)
            return
        # its pages are there: what a program has that reads one step after another
        out = np.full_like(x, -1)
        with watch(into):
            peer.load({"x": out}, "into")
        check(f"{into}, {peer.path}", out, x)

    job.turns(dict.fromkeys((written, read, into), (8 * n, 1)), peers, run)


def _filled(job: Job, peers: Mapping[str, Any], n: int) -> None:
    title, step = f"variable of {n:,} in 64 parts", -(-n // 64)
    values = functools.cache(lambda: np.random.default_rng(5).random(n))
    fills = {f"{title}, without a fill value": None, f"{title}, with a fill value": -1.0}

    def run(peer: Any, watch: Stopwatch) -> None:
        if peer.name in ("scipy", "os.pwrite"):
            watch.without("fills nothing", *fills)
            return
        x, path = values(), peer.path
        for phase, fill in fills.items():
            peer.path = f"{path}.{fill}"
            with watch(phase):
                peer.create({"x": Spec(x.shape, x.dtype, fill=fill)})
                for low in range(0, n, step):
                    peer.move("write", "x", (low,), x[low : low + step])
                peer.close()
            check(f"{phase}, {peer.path}", peer.whole("x"), x)

    job.turns(dict.fromkeys(fills, (8 * n, 64)), peers, run)


def _one_by_one(job: Job, peers: Mapping[str, Any], title: str, spec: Spec, data: Callable[[], Any]) -> None:
    """Write and read rows of the variable ``x`` in each way that a peer has; only pieces have lists of runs."""
    ways = {
        "write, one call each": "write", "write, one call": "write_runs", "read, one call each": "read",
        "read, one call": "read_runs", "read, as requests": "request",
    }  # fmt: skip
    phases = {f"{title}, {what}": way for what, way in ways.items() if len(spec.shape) == 1 or "_" not in way}

    def run(peer: Any, watch: Stopwatch) -> None:
        index, rows = data()
        places, path = peer.places(index, rows), peer.path
        for phase, way in phases.items():
            if way not in ("read", "write") and way.rpartition("_")[2] not in peer.ways:
                watch.without(NO_REQUESTS, phase)
                continue
            writes = way.startswith("write")
            if writes:
                peer.path = f"{path}.{way}"
            out = rows if writes else np.full_like(rows, -1)
            with watch(phase):
                if writes:
                    peer.create({"x": spec})
                else:
                    peer.open()
                if way.endswith("runs"):
                    starts = np.array([[at.start] for at in index])
                    how = "write" if writes else "read"
                    peer.runs(how, "x", starts, np.full((len(rows), 1), rows.shape[1]), out)
                else:
                    peer.each(way, places, out)
                peer.close()
            if writes:
                out = np.full_like(rows, -1)
                peer.open()
                peer.each("read", places, out)
                peer.close()
            check(f"{phase}, {peer.path}", out, rows)

    count, nbytes = spec.shape[0] // (100 if len(spec.shape) == 1 else 1), 8 * spec.shape[-1] * spec.shape[0]
    nbytes = 64 * count if len(spec.shape) == 1 else nbytes
    amounts = {phase: (nbytes, 1 if way.endswith("runs") else count) for phase, way in phases.items()}
    job.turns(amounts, peers, run)


def _many(job: Job, peers: Mapping[str, Any], count: int, width: int) -> None:
    title = f"{count:,} variables of {width:,}"
    values = functools.cache(lambda: np.random.default_rng(3).random((count, width), "f4"))
    written, read = f"{title}, define and write", f"{title}, read"

    def run(peer: Any, watch: Stopwatch) -> None:
        rows = {f"v{i}": row for i, row in enumerate(values())}
        with watch(written):
            peer.save(rows)
        out = np.full_like(values(), -1)
        found = dict(zip(rows, out, strict=True))
        with watch(read):
            peer.load(found)
        check(f"{read}, {peer.path}", out, values())

    slow = {"netCDF4": "define: the time to define a variable grows with those defined already"}
    peers = {**peers, **slow} if count > 10_000 else peers
    job.turns(dict.fromkeys((written, read), (count * width * 4, count)), peers, run, slow)


# ------------------------------------------------------------------------------------------------ parts of arrays

Part = tuple[int, int, Callable[[Any], Any]]
"""Bytes, calls, and the reading itself: it takes variables by name, and returns an array or a list of arrays."""


def reads(job: Job) -> None:
    """Read parts of a matrix, and of record variables."""
    scale = job.options.scale
    peers = installed(("pnc_vol", "h5py", "netCDF4", "scipy mmap", "PnetCDF-Python", "numpy.memmap"))
    n = times(scale**0.5, 8192, least=16)
    values = functools.cache(lambda: {"x": np.random.default_rng(0).random((n, n), "f4")})
    mask = functools.cache(lambda: np.random.default_rng(2).random((n, n)) < 0.01)
    rng = np.random.default_rng(1)
    columns = rng.permutation(n)[: min(64, n)].tolist()
    rows = sorted(rng.permutation(n)[: times(scale**0.5, 1000)].tolist())
    edge, title, k = min(1000, n // 2), f"of {n} x {n}", len(columns)
    block = slice(n // 4, n // 4 + edge), slice(n // 3, n // 3 + edge)
    listed, masked = f"{len(rows):,} listed rows {title}", f"random mask, 1 in 100, {title}"
    parts: dict[str, Part] = {
        f"{k} columns {title}, one call each": (4 * k * n, k, lambda v: [v["x"][:, at] for at in columns]),
        f"[::7, ::3] {title}": (4 * -(-n // 7) * -(-n // 3), 1, lambda v: v["x"][::7, ::3]),
        listed: (4 * len(rows) * n, 1, lambda v: v["x"][rows]),
        f"block of {edge} x {edge} {title}": (4 * edge**2, 1, lambda v: v["x"][block]),
        masked: (4 * (n * n // 100), 1, lambda v: v["x"][mask()]),
        f"whole {title}": (4 * n * n, 1, lambda v: v["x"][:, :]),
    }
    # PnetCDF-Python indexes like netCDF4 but has no lists, nor masks
    no_lists = "has no lists of rows, nor masks"
    without = {"PnetCDF-Python": {listed: no_lists, masked: no_lists},
               "netCDF4": {masked: "has masks of one axis only"}}  # fmt: skip
    _read_parts(job, peers, parts, values, without, mask)

    steps, edge, names = times(scale, 1000), 64, [f"v{i}" for i in range(VARIABLES)]
    title = f"of {VARIABLES} record variables of {steps:,} x {edge} x {edge}"
    records: dict[str, Part] = {
        f"one variable {title}": (4 * steps * edge**2, 1, lambda v: [v["v7"][:, :, :]]),
        f"one cell through time {title}": (4 * steps, 1, lambda v: [v["v7"][:, edge // 2, edge // 3]]),
        f"one time step of all {title}": (
            4 * VARIABLES * edge**2, VARIABLES, lambda v: [v[name][steps // 2] for name in names],
        ),
    }  # fmt: skip

    @functools.cache
    def fields() -> dict[str, Array]:
        rng = np.random.default_rng(3)
        return {name: rng.random((steps, 64, 64), "f4") for name in names}

    _read_parts(job, peers, records, fields, {}, lambda: None)


def _read_parts(
    job: Job, peers: Mapping[str, Any], parts: dict[str, Part], values: Callable[[], dict[str, Array]],
    without: Mapping[str, Mapping[str, str]], before: Callable[[], object],
) -> None:  # fmt: skip
    def run(peer: Any, watch: Stopwatch) -> None:
        before()
        grows = len(values()) > 1
        specs = {name: Spec(x.shape, x.dtype, grows=grows) for name, x in values().items()}
        peer.path = os.path.join(job.home, f"{peer.name} {grows}")
        if not exists(REAL, peer.path):
            peer.create(specs)
            for name, x in values().items():
                peer.move("write", name, (0,) * x.ndim, x)
            peer.close()
        opened = peer.open()
        found = {name: opened[name] for name in specs}
        for phase, (_, _, part) in parts.items():
            if phase in without.get(peer.name, ()):
                watch.without(without[peer.name][phase], phase)
                continue
            with watch(phase):
                got = peer.native(part(found))
            stacked = [np.stack(x) if isinstance(x, list) else np.asarray(x) for x in (got, part(values()))]
            check(f"{phase}, {peer.name}", *stacked)
        # a memory map cannot be closed while arrays refer to it
        del opened, found
        peer.close()

    job.turns({phase: (nbytes, calls) for phase, (nbytes, calls, _) in parts.items()}, peers, run)


# --------------------------------------------------------------------------------------------------- conversions

_COMMANDS = {
    US: [sys.executable, "-m", "pnc_vol.cli", "convert"],
    "nccopy": ["nccopy", "-k", "cdf5"],
    "h5repack": ["h5repack"],
}


def conversion(job: Job) -> None:
    """Convert files of many numbers and of one."""
    missing = next((text for text in map(load, ("h5py", "netCDF4")) if isinstance(text, str)), "")
    peers: dict[str, Any] = {
        name: missing or (Peer(name, None) if shutil.which(command[0]) else f"{command[0]} is not installed")
        for name, command in _COMMANDS.items()
    }
    n = times(job.options.scale, 1 << 27)
    for kind, other in (("netCDF-4", "h5repack"), ("HDF5", "nccopy")):
        for count, size in ((n, f"{8 * n / (1 << 30):.3g} GiB"), (1, "one number")):
            phase = f"convert {kind}, {size}"
            run = functools.partial(_convert, kind, other, phase, np.random.default_rng(0).random(count))
            job.turns({phase: (8 * count, 1)}, peers, run)


def _convert(kind: str, other: str, phase: str, values: Any, peer: Any, watch: Stopwatch) -> None:
    if peer.name == other:
        watch.without(f"does not convert {kind}", phase)
        return
    source, target = f"{peer.path}.{kind}", f"{peer.path}.nc"
    if kind == "HDF5":
        with importlib.import_module("h5py").File(source, "w") as f:
            f["x"] = values
    else:
        with importlib.import_module("netCDF4").Dataset(source, "w") as f:
            f.createDimension("n", len(values))
            f.createVariable("x", values.dtype, ("n",))[:] = values
    with watch(phase):
        subprocess.run([*_COMMANDS[peer.name], source, target], check=True, stdout=subprocess.DEVNULL)
    with importlib.import_module("h5py" if peer.name == "h5repack" else "pnc_vol").File(target) as f:
        check(f"{phase}, {target}", f["x"][...], values)
