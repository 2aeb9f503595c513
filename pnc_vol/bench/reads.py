"""``python -m pnc_vol.bench reads``: parts of an 8192 x 8192 array, and of record variables.

A file is written once by each peer, untimed, and is in the page cache; each read opens nothing. Every result is
compared with numpy's. Knows: selections. Does not know: what a library does with one.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.bench.measure import Stopwatch
from pnc_vol.bench.peers import installed
from pnc_vol.bench.serial import Work, check, times
from pnc_vol.system import REAL, exists

__all__ = ["peers", "works"]

Array = npt.NDArray[Any]

VARIABLES = 20


def works(scale: float) -> list[Work]:
    """The works, at `scale` times their real size."""
    return [_parts(scale), _records(scale)]


def _parts(scale: float) -> Work:
    n = times(scale**0.5, 8192, least=16)
    values = functools.cache(lambda: np.random.default_rng(0).random((n, n), "f4"))
    rng = np.random.default_rng(1)
    columns = rng.permutation(n)[: min(64, n)].tolist()
    rows = sorted(rng.permutation(n)[: times(scale**0.5, 1000)].tolist())
    edge = min(1000, n // 2)
    title = f"of {n} x {n}"
    parts: dict[str, tuple[int, Callable[[Any], Any]]] = {
        f"{len(columns)} columns {title}, one call each": (len(columns), lambda a: [a[:, k] for k in columns]),
        f"[::7, ::3] {title}": (1, lambda a: a[::7, ::3]),
        f"{len(rows):,} listed rows {title}": (1, lambda a: a[rows]),
        f"block of {edge} x {edge} {title}": (1, lambda a: a[n // 4 : n // 4 + edge, n // 3 : n // 3 + edge]),
        f"random mask, 1 in 100, {title}": (1, lambda a: a[mask()]),
        f"whole {title}": (1, lambda a: a[:, :]),
    }
    mask = functools.cache(lambda: np.random.default_rng(2).random((n, n)) < 0.01)
    phases = list(parts)
    sizes = {
        phase: 4 * size
        for phase, size in zip(
            phases,
            (len(columns) * n, -(-n // 7) * -(-n // 3), len(rows) * n, edge**2, n * n // 100, n * n),
            strict=True,
        )
    }

    def run(peer: Any, watch: Stopwatch) -> None:
        mask()
        with _opened(peer, "array", {"x": values()}) as found:
            for phase, (_, part) in parts.items():
                if phase in without and peer.name in without[phase]:
                    continue
                with watch(phase):
                    got = peer.native(part(found["x"]))
                check(
                    f"{phase}, {peer.name}", np.stack(got) if isinstance(got, list) else got, _expected(part, values())
                )

    # PnetCDF-Python indexes like netCDF4 but has no lists, nor masks
    no_lists = {"PnetCDF-Python": "has no lists of rows, nor masks"}
    no_masks = no_lists | {"netCDF4": "has masks of one axis only"}
    without = {phases[2]: no_lists, phases[4]: no_masks}
    return Work({phase: (sizes[phase], calls) for phase, (calls, _) in parts.items()}, run, without)


def _expected(part: Callable[[Any], Any], values: Array) -> Array:
    expected = part(values)
    return np.stack(expected) if isinstance(expected, list) else np.asarray(expected)


def _records(scale: float) -> Work:
    steps, edge = times(scale, 1000), 64
    names = [f"v{i}" for i in range(VARIABLES)]
    title = f"of {VARIABLES} record variables of {steps:,} x {edge} x {edge}"
    parts: dict[str, tuple[int, int, Callable[[Any], Any]]] = {
        f"one variable {title}": (steps * edge**2, 1, lambda v: [v["v7"][:, :, :]]),
        f"one cell through time {title}": (steps, 1, lambda v: [v["v7"][:, edge // 2, edge // 3]]),
        f"one time step of all {title}": (
            VARIABLES * edge**2, VARIABLES, lambda v: [v[name][steps // 2] for name in names],
        ),
    }  # fmt: skip

    @functools.cache
    def values() -> dict[str, Array]:
        rng = np.random.default_rng(3)
        return {name: rng.random((steps, edge, edge), "f4") for name in names}

    def run(peer: Any, watch: Stopwatch) -> None:
        with _opened(peer, "records", values(), records=True) as found:
            for phase, (_, _, part) in parts.items():
                with watch(phase):
                    got = peer.native(part(found))
                check(f"{phase}, {peer.name}", np.stack(got), np.stack(part(values())))

    return Work({phase: (4 * size, calls) for phase, (size, calls, _) in parts.items()}, run)


@contextlib.contextmanager
def _opened(peer: Any, what: str, values: dict[str, Array], *, records: bool = False) -> Iterator[dict[str, Any]]:
    """The variables of a file, which is written by the first work that reads it."""
    peer.path = os.path.join(peer.folder, f"{what}.{peer.name}")
    peer.variables = {name: (x.shape, x.dtype) for name, x in values.items()}
    if not exists(REAL, peer.path):
        for variable, x in zip(peer.create(peer.variables, records=records), values.values(), strict=True):
            peer.assign(variable, x)
        peer.close()
    opened = peer.open()
    found = {name: opened[name] for name in values}
    try:
        yield found
    finally:
        # scipy's memory map cannot be closed while arrays refer to it
        found.clear()
        peer.close()


def peers(folder: str) -> dict[str, Any]:
    """Those that are installed; for the others the reason."""
    return installed(folder, ("pnc_vol", "h5py", "netCDF4", "scipy mmap", "PnetCDF-Python", "numpy.memmap"))
