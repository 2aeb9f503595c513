"""``python -m pnc_vol.bench io`` writes arrays and reads them back: one large, rows, small pieces, many variables.

Every peer gets the same values and writes a file of its own kind. What is read is compared.

Knows: the works. Does not know: how a peer does them (`peers.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pnc_vol.bench.measure import Job, Stopwatch, check, times
from pnc_vol.bench.peers import Spec, installed

WAYS = {
    "write, one call each": "write", "write, one call": "write_runs", "read, one call each": "read",
    "read, one call": "read_runs", "read, as requests": "request",
}  # fmt: skip


def main(job: Job) -> None:
    """Write arrays of each kind, and read them back."""
    scale, peers = job.options.scale, installed()
    _big(job, peers, times(scale, 1 << 27))
    _filled(job, peers, times(scale, 1 << 22))
    count = times(scale, 100_000)
    rows = functools.cache(lambda: (range(count), np.random.default_rng(1).random((count, 128))))
    _one_by_one(job, peers, f"{count:,} rows of 128", Spec((count, 128), "f8"), count, rows)

    @functools.cache
    def pieces() -> tuple[list[slice], Any]:
        rng = np.random.default_rng(2)
        starts = rng.permutation(100 * count // 8)[:count] * 8
        return [slice(at, at + 8) for at in starts.tolist()], rng.random((count, 8))

    _one_by_one(job, peers, f"{count:,} random pieces of 8", Spec((100 * count,), "f8"), count, pieces)
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
        x, path = values(), peer.path
        for phase, fill in fills.items():
            peer.path = f"{path}.{fill}"
            with watch(phase):
                peer.create({"x": Spec(x.shape, x.dtype, fill=fill)})
                for low in range(0, n, step):
                    peer.move("write", "x", (low,), x[low : low + step])
                peer.close()
            check(f"{phase}, {peer.path}", peer.whole("x"), x)

    nothing = dict.fromkeys(("scipy", "os.pwrite"), "fills nothing")
    job.turns(dict.fromkeys(fills, (8 * n, 64)), {**peers, **nothing}, run)


def _one_by_one(
    job: Job, peers: Mapping[str, Any], title: str, spec: Spec, count: int, data: Callable[[], Any]
) -> None:
    """Write and read rows of the variable ``x`` in each way that a peer has; only pieces have lists of runs."""
    phases = {f"{title}, {what}": way for what, way in WAYS.items() if len(spec.shape) == 1 or "_" not in way}

    def run(peer: Any, watch: Stopwatch) -> None:
        index, rows = data()
        places, path = peer.places(index, rows), peer.path
        for phase, way in phases.items():
            if way not in ("read", "write") and way.rpartition("_")[2] not in peer.ways:
                watch.without("has no words for it", phase)
                continue
            how = "write" if way.startswith("write") else "read"
            if how == "write":
                peer.path = f"{path}.{way}"
            out = rows if how == "write" else np.full_like(rows, -1)
            with watch(phase):
                if how == "write":
                    peer.create({"x": spec})
                else:
                    peer.open()
                if way.endswith("runs"):
                    starts = np.array([[at.start] for at in index])
                    peer.runs(how, "x", starts, np.full((len(rows), 1), rows.shape[1]), out)
                else:
                    peer.each(way, places, out)
                peer.close()
            if how == "write":
                out = np.full_like(rows, -1)
                peer.open()
                peer.each("read", places, out)
                peer.close()
            check(f"{phase}, {peer.path}", out, rows)

    nbytes = 8 * count * (128 if len(spec.shape) == 2 else 8)
    job.turns({phase: (nbytes, 1 if way.endswith("runs") else count) for phase, way in phases.items()}, peers, run)


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
