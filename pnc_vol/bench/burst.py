"""``python -m pnc_vol.bench burst``: what posting to a burst-buffer log costs, and what flushing it does.

Two programs: the checkpoint of FLASH-IO (24 unknowns of 80 blocks of 8 x 8 x 8 cells, each block posted by itself), and
many small requests as E3SM-IO makes them (60 variables, about 20,000 requests of 1 to 100 elements), one by one and as
lists of subarrays. pnc_vol with the queue in memory is what the others are compared with; posting and flushing (the
close included) are timed apart. h5py writes when it is asked to, so that most of its time is in the first of the two.

Knows: the programs. Does not know: rounds, tables.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

import pnc_vol
from pnc_vol.bench.measure import US, Stopwatch
from pnc_vol.bench.peers import load
from pnc_vol.bench.serial import Work, check, clear, times
from pnc_vol.system import REAL, is_folder, temporary_directory

__all__ = ["peers", "works"]

Array = npt.NDArray[Any]
Post = Callable[[dict[str, Any]], None]
Shapes = Mapping[str, tuple[int, ...]]

TMPFS = "/dev/shm"
CELLS = 8
BLOCKS = 80
UNKNOWNS = 24
VARIABLES = 60
REQUESTS = 20_000
LENGTH = 40_000


class _LogPeer:
    """Something that opens files as h5py does.

    logs : str or None, a folder for logs on some device; None for no log.
    """

    def __init__(self, module: Any, folder: str, name: str, logs: str | None = None, **options: Any) -> None:
        self.module, self.logs, self.options = module, logs, options
        self.path = os.path.join(folder, f"{name.replace(' ', '_')}.bench")

    def run(self, shapes: Shapes, post: Post, watch: Stopwatch, work: str) -> None:
        """Make a file of float64 variables; `post` gets them by name."""
        clear(self.path)
        if self.logs is None:
            self._run(shapes, post, watch, work, {})
            return
        with temporary_directory(self.logs) as place:
            hints = {"nc_burst_buf": "enable", "nc_burst_buf_dirname": place, **self.options}
            self._run(shapes, post, watch, work, {"hints": hints})

    def _run(self, shapes: Shapes, post: Post, watch: Stopwatch, work: str, options: dict[str, Any]) -> None:
        f = self.module.File(self.path, "w", **options)
        found = {name: f.create_dataset(name, shape, "f8") for name, shape in shapes.items()}
        with watch(f"{work}, post"):
            post(found)
        with watch(f"{work}, flush"):
            f.close()

    def read(self, name: str) -> Array:
        with self.module.File(self.path, "r") as f:
            values: Array = f[name][...]
        return values


def peers(folder: str) -> dict[str, Any]:
    """pnc_vol without and with a log on different devices, and h5py."""
    h5py = load("h5py")
    tmpfs = TMPFS if is_folder(REAL, TMPFS) else None
    return {
        US: _LogPeer(pnc_vol, folder, "memory"),
        "log on tmpfs": _LogPeer(pnc_vol, folder, "tmpfs", tmpfs) if tmpfs else f"{TMPFS} is not there",
        "log on disk": _LogPeer(pnc_vol, folder, "disk", folder),
        "log on disk, synced at flushes": _LogPeer(pnc_vol, folder, "synced", folder, nc_burst_buf_sync="flush"),
        "h5py": h5py if isinstance(h5py, str) else _LogPeer(h5py, folder, "h5py"),
    }


def works(scale: float) -> list[Work]:
    """FLASH-like and E3SM-like."""
    return [_flash(scale), _small(scale), _lists(scale)]


def _flash(scale: float) -> Work:
    blocks = times(scale, BLOCKS)
    values = np.random.default_rng(0).random((blocks, CELLS, CELLS, CELLS))
    shapes = {f"u{i:02}": values.shape for i in range(UNKNOWNS)}

    def post(found: dict[str, Any]) -> None:
        for dataset in found.values():
            for i in range(blocks):
                dataset[i] = values[i]

    def run(peer: _LogPeer, watch: Stopwatch) -> None:
        peer.run(shapes, post, watch, "FLASH-like")
        check(peer.path, peer.read("u07"), values)

    return Work(_phases("FLASH-like", UNKNOWNS * values.nbytes, UNKNOWNS * blocks), run)


def _pieces(scale: float) -> list[tuple[int, int, int]]:
    """Variable, start and count of each request: no two overlap."""
    rng = np.random.default_rng(1)
    each = times(scale, REQUESTS) // VARIABLES + 1
    found = []
    for variable in range(VARIABLES):
        starts = np.sort(rng.choice(LENGTH // 100, min(each, LENGTH // 100), replace=False)) * 100
        counts = rng.integers(1, 101, len(starts))
        found += [(variable, *piece) for piece in zip(starts.tolist(), counts.tolist(), strict=True)]
    order = rng.permutation(len(found))
    return [found[i] for i in order]


def _wanted(pieces: list[tuple[int, int, int]], variable: int) -> Array:
    values = np.zeros(LENGTH)
    for of, start, count in pieces:
        if of == variable:
            values[start : start + count] = np.arange(start, start + count)
    return values


def _small(scale: float) -> Work:
    pieces = _pieces(scale)
    line = np.arange(float(LENGTH))
    shapes = {f"v{i:02}": (LENGTH,) for i in range(VARIABLES)}

    def post(found: dict[str, Any]) -> None:
        datasets = list(found.values())
        for variable, start, count in pieces:
            datasets[variable][start : start + count] = line[start : start + count]

    def run(peer: _LogPeer, watch: Stopwatch) -> None:
        peer.run(shapes, post, watch, "E3SM-like")
        check(peer.path, peer.read("v11"), _wanted(pieces, 11))

    return Work(_phases("E3SM-like", 8 * sum(piece[2] for piece in pieces), len(pieces)), run)


def _lists(scale: float) -> Work:
    pieces = sorted(_pieces(scale))
    line = np.arange(float(LENGTH))
    table = np.array(pieces)
    shapes = {f"v{i:02}": (LENGTH,) for i in range(VARIABLES)}

    def post(found: dict[str, Any]) -> None:
        for variable, dataset in enumerate(found.values()):
            rows = table[table[:, 0] == variable]
            values = np.concatenate([line[start : start + count] for _, start, count in rows.tolist()])
            dataset.iput_many(rows[:, 1:2], rows[:, 2:], values)

    def run(peer: _LogPeer, watch: Stopwatch) -> None:
        peer.run(shapes, post, watch, "E3SM-like in lists")
        check(peer.path, peer.read("v11"), _wanted(pieces, 11))

    without = {f"E3SM-like in lists, {phase}": {"h5py": "has no lists of subarrays"} for phase in ("post", "flush")}
    return Work(
        _phases("E3SM-like in lists", 8 * int(table[:, 2].sum()), VARIABLES), run, without,
        slow={"h5py": "has no lists of subarrays"}, hopeless=frozenset({"h5py"}),
    )  # fmt: skip


def _phases(work: str, nbytes: int, requests: int) -> dict[str, tuple[int | None, int | None]]:
    return {f"{work}, post": (nbytes, requests), f"{work}, flush": (nbytes, 1)}
