"""``python -m pnc_vol.bench io`` writes arrays and reads them back; ``reads`` reads parts of arrays.

The works of ``io`` are those of users: one large array, a program that appends rows, one that scatters small pieces, a
file of many variables. Every peer gets the same values and writes a file of its own kind. For ``reads`` a file is
written once by each peer, untimed, and is in the page cache; each read opens nothing. What is read is compared.

Knows: the works. Does not know: how a peer does them (`peers.py`).
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.bench.measure import Bench, Stopwatch, Work, check, clear, times
from pnc_vol.bench.peers import LIBRARIES, Spec, installed
from pnc_vol.system import REAL, exists

__all__ = ["BENCHES"]

Array = npt.NDArray[Any]

NO_REQUESTS = dict.fromkeys(("h5py", "netCDF4", "scipy", "os.pwrite"), "has no words for it")
NO_INTO = dict.fromkeys(("netCDF4", "scipy"), "makes an array of its own")
QUADRATIC = "define: the time to define a variable grows with those defined already"
VARIABLES = 20


def _io(scale: float) -> list[Work]:
    return [
        _big(scale), _filled(scale), _rows(scale), _pieces(scale), _many(scale, 10_000, 1000), _many(scale, 100_000, 4),
    ]  # fmt: skip


def _big(scale: float) -> Work:
    n = times(scale, 1 << 27)
    title = f"{n * 8 / (1 << 30):g} GiB variable" if n >= 1 << 24 else f"variable of {n:,}"
    values = functools.cache(lambda: np.random.default_rng(0).random(n))
    phases = [f"{title}, {what}" for what in ("write", "read", "read into an array")]

    def run(peer: Any, watch: Stopwatch) -> None:
        x = values()
        clear(peer.path)
        with watch(phases[0]):
            peer.save({"x": x})
        with watch(phases[1]):
            peer.open()
            found = peer.get("x")
            peer.close()
        check(f"{title}, {peer.path}", found, x)
        if hasattr(peer, "read_into"):
            # its pages are there: what a program has that reads one step after another
            out = np.full_like(x, -1)
            with watch(phases[2]):
                peer.read_into({"x": out})
            check(f"{phases[2]}, {peer.path}", out, x)
        clear(peer.path)

    return Work(dict.fromkeys(phases, (8 * n, 1)), run, {phases[2]: NO_INTO})


def _filled(scale: float) -> Work:
    n = times(scale, 1 << 22)
    title, step = f"variable of {n:,} in 64 parts", -(-n // 64)
    values = functools.cache(lambda: np.random.default_rng(5).random(n))
    phases = [f"{title}, without a fill value", f"{title}, with a fill value"]

    def run(peer: Any, watch: Stopwatch) -> None:
        x = values()
        for phase, fill in zip(phases, (None, -1.0), strict=True):
            clear(peer.path)
            with watch(phase):
                peer.create({"x": Spec(x.shape, x.dtype, fill=fill)})
                for low in range(0, n, step):
                    peer.write("x", (low,), x[low : low + step])
                peer.close()
            peer.open()
            check(f"{phase}, {peer.path}", peer.get("x"), x)
            peer.close()
        clear(peer.path)

    without = dict.fromkeys(("scipy", "os.pwrite"), "fills nothing")
    return Work(dict.fromkeys(phases, (8 * n, 64)), run, dict.fromkeys(phases, without))


def _each(
    phases: dict[str, tuple[str, bool]], peer: Any, watch: Stopwatch, spec: Spec, index: Any, rows: Array
) -> None:
    """Write and read rows of the variable ``x`` in each way that a peer has: by a method, and whether it reads."""
    places = peer.places(index, rows)
    for phase, (way, reads) in phases.items():
        if not hasattr(peer, way):
            continue
        out = np.full_like(rows, -1) if reads else rows
        if not reads:
            clear(peer.path)
        with watch(phase):
            if reads:
                peer.open()
            else:
                peer.create({"x": spec})
            if way.endswith("runs"):
                starts = np.array([[at.start] for at in index])
                getattr(peer, way)("x", starts, np.full((len(rows), 1), rows.shape[1]), out)
            else:
                getattr(peer, way)(places, out)
            peer.close()
        if not reads:
            out = np.full_like(rows, -1)
            peer.open()
            peer.read_each(places, out)
            peer.close()
        check(f"{phase}, {peer.path}", out, rows)
    clear(peer.path)


def _rows(scale: float) -> Work:
    count, width = times(scale, 100_000), 128
    title = f"{count:,} rows of {width}"
    values = functools.cache(lambda: np.random.default_rng(1).random((count, width)))
    phases = {
        f"{title}, write, one call each": ("write_each", False),
        f"{title}, read, one call each": ("read_each", True),
        f"{title}, read, as requests": ("request_each", True),
    }

    def run(peer: Any, watch: Stopwatch) -> None:
        _each(phases, peer, watch, Spec((count, width), "f8"), range(count), values())

    return Work(dict.fromkeys(phases, (count * width * 8, count)), run, {list(phases)[2]: NO_REQUESTS})


def _pieces(scale: float) -> Work:
    count, width = times(scale, 100_000), 8
    size = 100 * count
    title = f"{count:,} random pieces of {width}"
    phases = {
        f"{title}, write, one call each": ("write_each", False), f"{title}, write, one call": ("write_runs", False),
        f"{title}, read, one call each": ("read_each", True), f"{title}, read, one call": ("read_runs", True),
        f"{title}, read, as requests": ("request_each", True),
    }  # fmt: skip

    @functools.cache
    def data() -> tuple[list[slice], Array]:
        rng = np.random.default_rng(2)
        starts = rng.permutation(size // width)[:count] * width
        return [slice(at, at + width) for at in starts.tolist()], rng.random((count, width))

    def run(peer: Any, watch: Stopwatch) -> None:
        own = {phase: way for phase, way in phases.items() if peer.name not in without.get(phase, ())}
        _each(own, peer, watch, Spec((size,), "f8"), *data())

    calls = zip(phases, (count, 1, count, 1, count), strict=True)
    without = {phase: NO_REQUESTS for phase, (way, _) in phases.items() if not way.endswith("_each") or "requ" in way}
    return Work({phase: (count * width * 8, n) for phase, n in calls}, run, without)


def _many(scale: float, count: int, width: int) -> Work:
    count = times(scale, count)
    title = f"{count:,} variables of {width:,}"
    values = functools.cache(lambda: np.random.default_rng(3).random((count, width), "f4"))
    phases = [f"{title}, define and write", f"{title}, read"]

    def run(peer: Any, watch: Stopwatch) -> None:
        rows = {f"v{i}": row for i, row in enumerate(values())}
        clear(peer.path)
        with watch(phases[0]):
            peer.save(rows)
        out = np.full_like(values(), -1)
        found = dict(zip(rows, out, strict=True))
        with watch(phases[1]):
            peer.read_all(found)
        check(f"{phases[1]}, {peer.path}", out, values())
        clear(peer.path)

    hopeless = frozenset({"netCDF4"} if count > 10_000 else ())
    amounts = (count * width * 4, count)
    return Work(dict.fromkeys(phases, amounts), run, slow={"netCDF4": QUADRATIC}, hopeless=hopeless)


# ------------------------------------------------------------------------------------------------ parts of arrays

Part = tuple[int, int, Callable[[Any], Any]]
"""Bytes, calls, and the reading itself: it takes variables by name, and returns an array or a list of arrays."""


def _reads(scale: float) -> list[Work]:
    return [_parts(scale), _records(scale)]


def _parts(scale: float) -> Work:
    n = times(scale**0.5, 8192, least=16)
    values = functools.cache(lambda: {"x": np.random.default_rng(0).random((n, n), "f4")})
    mask = functools.cache(lambda: np.random.default_rng(2).random((n, n)) < 0.01)
    rng = np.random.default_rng(1)
    columns = rng.permutation(n)[: min(64, n)].tolist()
    rows = sorted(rng.permutation(n)[: times(scale**0.5, 1000)].tolist())
    edge, title = min(1000, n // 2), f"of {n} x {n}"
    block = slice(n // 4, n // 4 + edge), slice(n // 3, n // 3 + edge)
    k = len(columns)
    parts: dict[str, Part] = {
        f"{k} columns {title}, one call each": (4 * k * n, k, lambda v: [v["x"][:, at] for at in columns]),
        f"[::7, ::3] {title}": (4 * -(-n // 7) * -(-n // 3), 1, lambda v: v["x"][::7, ::3]),
        f"{len(rows):,} listed rows {title}": (4 * len(rows) * n, 1, lambda v: v["x"][rows]),
        f"block of {edge} x {edge} {title}": (4 * edge**2, 1, lambda v: v["x"][block]),
        f"random mask, 1 in 100, {title}": (4 * (n * n // 100), 1, lambda v: v["x"][mask()]),
        f"whole {title}": (4 * n * n, 1, lambda v: v["x"][:, :]),
    }
    phases = list(parts)
    # PnetCDF-Python indexes like netCDF4 but has no lists, nor masks
    no_lists = {"PnetCDF-Python": "has no lists of rows, nor masks"}
    without = {phases[2]: no_lists, phases[4]: no_lists | {"netCDF4": "has masks of one axis only"}}
    return _read_parts("array", parts, values, without, before=mask)


def _records(scale: float) -> Work:
    steps, edge = times(scale, 1000), 64
    names = [f"v{i}" for i in range(VARIABLES)]
    title = f"of {VARIABLES} record variables of {steps:,} x {edge} x {edge}"
    parts: dict[str, Part] = {
        f"one variable {title}": (4 * steps * edge**2, 1, lambda v: [v["v7"][:, :, :]]),
        f"one cell through time {title}": (4 * steps, 1, lambda v: [v["v7"][:, edge // 2, edge // 3]]),
        f"one time step of all {title}": (
            4 * VARIABLES * edge**2, VARIABLES, lambda v: [v[name][steps // 2] for name in names],
        ),
    }  # fmt: skip

    @functools.cache
    def values() -> dict[str, Array]:
        rng = np.random.default_rng(3)
        return {name: rng.random((steps, edge, edge), "f4") for name in names}

    return _read_parts("records", parts, values, {})


def _read_parts(
    what: str,
    parts: dict[str, Part],
    values: Callable[[], dict[str, Array]],
    without: dict[str, dict[str, str]],
    before: Callable[[], object] = lambda: None,
) -> Work:
    def run(peer: Any, watch: Stopwatch) -> None:
        before()
        with _opened(peer, what, values()) as found:
            for phase, (_, _, part) in parts.items():
                if peer.name in without.get(phase, ()):
                    continue
                with watch(phase):
                    got = peer.native(part(found))
                stacked = [np.stack(x) if isinstance(x, list) else np.asarray(x) for x in (got, part(values()))]
                check(f"{phase}, {peer.name}", *stacked)

    return Work({phase: (nbytes, calls) for phase, (nbytes, calls, _) in parts.items()}, run, without)


@contextlib.contextmanager
def _opened(peer: Any, what: str, values: dict[str, Array]) -> Iterator[dict[str, Any]]:
    """Yield the variables of a file, which is written by the first work that reads it."""
    peer.path = os.path.join(peer.folder, f"{what}.{peer.name}")
    specs = {name: Spec(x.shape, x.dtype, grows=what == "records") for name, x in values.items()}
    if not exists(REAL, peer.path):
        peer.create(specs)
        for name, x in values.items():
            peer.write(name, (0,) * x.ndim, x)
        peer.close()
    elif not peer.is_netcdf:
        peer.define(specs)
    opened = peer.open()
    found = {name: opened[name] for name in values}
    try:
        yield found
    finally:
        found.clear()
        del opened
        peer.close()


READERS = ("pnc_vol", "h5py", "netCDF4", "scipy mmap", "PnetCDF-Python", "numpy.memmap")
BENCHES = {
    "io": Bench(lambda folder: installed(folder, (*LIBRARIES, "os.pwrite")), _io),
    "reads": Bench(lambda folder: installed(folder, READERS), _reads),
}
