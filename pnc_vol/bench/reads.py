"""``python -m pnc_vol.bench reads`` reads parts of a matrix, and of record variables.

A file is written once by each peer, untimed, and is in the page cache; each read opens nothing. What is read is
compared.

Knows: the works. Does not know: how a peer does them (`peers.py`).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pnc_vol.bench.measure import Job, Stopwatch, check, times
from pnc_vol.bench.peers import Spec, installed
from pnc_vol.system import REAL, exists

Part = tuple[int, int, Callable[[Any], Any]]
"""Bytes, calls, and the reading itself: it takes variables by name, and returns an array or a list of arrays."""

VARIABLES, EDGE = 20, 64


def main(job: Job) -> None:
    """Read parts of a matrix, and of record variables."""
    _matrix(job, times(job.options.scale**0.5, 8192, least=16))
    _records(job, times(job.options.scale, 1000))


def _matrix(job: Job, n: int) -> None:
    values = functools.cache(lambda: {"x": np.random.default_rng(0).random((n, n), "f4")})
    mask = functools.cache(lambda: np.random.default_rng(2).random((n, n)) < 0.01)
    rng = np.random.default_rng(1)
    columns = rng.permutation(n)[: min(64, n)].tolist()
    rows = sorted(rng.permutation(n)[: times(job.options.scale**0.5, 1000)].tolist())
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
    without = {
        ("PnetCDF-Python", listed): no_lists, ("PnetCDF-Python", masked): no_lists,
        ("netCDF4", masked): "has masks of one axis only",
    }  # fmt: skip
    _parts(job, parts, values, without, mask)


def _records(job: Job, steps: int) -> None:
    names, half = [f"v{i}" for i in range(VARIABLES)], EDGE // 2
    title = f"of {VARIABLES} record variables of {steps:,} x {EDGE} x {EDGE}"
    every = (4 * VARIABLES * EDGE**2, VARIABLES)
    parts: dict[str, Part] = {
        f"one variable {title}": (4 * steps * EDGE**2, 1, lambda v: [v["v7"][:, :, :]]),
        f"one cell through time {title}": (4 * steps, 1, lambda v: [v["v7"][:, half, EDGE // 3]]),
        f"one time step of all {title}": (*every, lambda v: [v[name][steps // 2] for name in names]),
    }

    @functools.cache
    def values() -> dict[str, Any]:
        rng = np.random.default_rng(3)
        return {name: rng.random((steps, EDGE, EDGE), "f4") for name in names}

    _parts(job, parts, values, {}, lambda: None)


def _parts(
    job: Job, parts: dict[str, Part], values: Callable[[], dict[str, Any]],
    without: Mapping[tuple[str, str], str], before: Callable[[], object],
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
            if reason := without.get((peer.name, phase)):
                watch.without(reason, phase)
                continue
            with watch(phase):
                got = peer.native(part(found))
            stacked = [np.stack(x) if isinstance(x, list) else np.asarray(x) for x in (got, part(values()))]
            check(f"{phase}, {peer.name}", *stacked)
        # a memory map cannot be closed while arrays refer to it
        del opened, found
        peer.close()

    peers = installed(("pnc_vol", "h5py", "netCDF4", "scipy mmap", "PnetCDF-Python", "numpy.memmap"))
    job.turns({phase: (nbytes, calls) for phase, (nbytes, calls, _) in parts.items()}, peers, run)
