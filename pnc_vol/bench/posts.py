"""``python -m pnc_vol.bench posts`` times small writes of each kind, and recovery; ``burst`` times logs on devices.

A program writes rows, single numbers that are repeated, arrays of another type than the dataset's, lists, small blocks,
rows that a list or a step picks: each with one call, and the close at the end counts. Or it adds to what is there.
pnc_vol also posts rows by ``iput``. The recovery is compared with a copy of as many bytes.

``burst`` runs two programs: the checkpoint of FLASH-IO (24 unknowns of 80 blocks of 8 x 8 x 8 cells, each block posted
by itself), and many small requests as E3SM-IO makes them (60 variables, about 20,000 requests of 1 to 100 elements),
one by one and as lists of subarrays. pnc_vol with the queue in memory is what the others are compared with; posting and
flushing (the close included) are timed apart. h5py writes at once, so that most of its time is in the first.

Knows: the works. Does not know: how peers make and open files (`peers.py`).
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.bench.measure import US, Bench, Stopwatch, Work, check, clear, copy_file, times
from pnc_vol.bench.peers import PncVol, Spec, installed, load
from pnc_vol.system import REAL, is_folder, temporary_directory

__all__ = ["BENCHES"]

Array = npt.NDArray[Any]

NO_INDEX = "has no assignment of one element range"
NO_REQUESTS = "has no words for it"


class _Act(NamedTuple):
    """A small write: the dataset's shape for so many of them, its type, where the i-th goes, and its value."""

    shape: Callable[[int], tuple[int, ...]]
    dtype: str
    place: Callable[[int], Any]
    value: Any


def _five(i: int) -> slice:
    return slice(5 * i, 5 * i + 5)


ACTS = {
    "rows of 16": _Act(lambda n: (n, 16), "f8", lambda i: i, np.arange(16.0)),
    "one number to 5 elements": _Act(lambda n: (5 * n,), "f4", _five, 1.5),
    "5 float64 to float32": _Act(lambda n: (5 * n,), "f4", _five, np.arange(5.0)),
    "a list of 5": _Act(lambda n: (5 * n,), "f8", _five, [1.0, 2.0, 3.0, 4.0, 5.0]),
    "a block of 2 x 10": _Act(lambda n: (2 * n, 40), "f8", lambda i: (slice(2 * i, 2 * i + 2), slice(10, 20)), 2.5),
    "5 rows of 16 by a list": _Act(
        lambda n: (10 * n, 16), "f8", lambda i: [10 * i + at for at in (0, 2, 3, 7, 9)], np.full((5, 16), 3.5)
    ),
    "every third of 90": _Act(lambda n: (90 * n,), "f8", lambda i: slice(90 * i, 90 * i + 90, 3), 4.5),
}


def _posts(scale: float) -> list[Work]:
    made = [_written(f"{times(scale, 100_000):,} x {name}", act, scale) for name, act in ACTS.items()]
    return [*made, _added(scale), _iput(scale), _recovery("200,000 posts of 64 bytes", times(scale, 200_000), 8, scale),
            _recovery("1,000 posts of 1 MiB", times(scale, 1_000), 1 << 17, scale)]  # fmt: skip


def _written(phase: str, act: _Act, scale: float) -> Work:
    count = times(scale, 100_000)
    wanted = np.zeros(act.shape(count), act.dtype)
    for i in range(count):
        wanted[act.place(i)] = act.value

    def write(x: Any) -> None:
        for i in range(count):
            x[act.place(i)] = act.value

    return _indexed(phase, count, wanted, write)


def _added(scale: float) -> Work:
    count = times(scale, 10_000)
    values = np.random.default_rng(6).random((count, 16))

    def write(x: Any) -> None:
        x[:] = values - 1
        for i in range(count):
            x[i] += 1

    return _indexed(f"{count:,} x one added to a row of 16", count, values - 1 + 1, write)


def _indexed(phase: str, count: int, wanted: Array, write: Callable[[Any], None]) -> Work:
    """Return `count` assignments to the elements of one new dataset, which has the wanted values then."""

    def run(peer: Any, watch: Stopwatch) -> None:
        clear(peer.path)
        with watch(phase):
            write(peer.create({"x": Spec(wanted.shape, wanted.dtype)})["x"])
            peer.close()
        peer.open()
        found = peer.get("x")
        peer.close()
        # What was not written is another fill value with each library.
        check(f"{phase}, {peer.path}", np.where(wanted == 0, 0, found), wanted)
        clear(peer.path)

    without = dict.fromkeys(("PnetCDF-Python", "os.pwrite"), NO_INDEX)
    return Work({phase: (None, count)}, run, {phase: without})


def _iput(scale: float) -> Work:
    count = times(scale, 100_000)
    phase = f"{count:,} x iput of rows of 16"
    rows = np.random.default_rng(4).random((count, 16))

    def run(peer: Any, watch: Stopwatch) -> None:
        clear(peer.path)
        with watch(phase):
            peer.create({"x": Spec(rows.shape, "f8")})
            peer.post_each(peer.places(range(count), rows), rows)
            peer.close()
        peer.open()
        check(f"{phase}, {peer.path}", peer.get("x"), rows)
        peer.close()
        clear(peer.path)

    without = dict.fromkeys(("h5py", "netCDF4", "scipy", "os.pwrite"), NO_REQUESTS)
    return Work({phase: (None, count)}, run, {phase: without})


_KILLED = """
import os, sys, numpy as np, pnc_vol
path, folder, count, width = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
f = pnc_vol.File(path, "w", hints={"nc_burst_buf": "enable", "nc_burst_buf_dirname": folder})
x = f.create_dataset("x", (count, width), "f8")
f.flush()
row = np.arange(float(width))
for i in range(count):
    row[0] = i
    x[i] = row
os._exit(0)
"""


def _recovery(title: str, count: int, width: int, scale: float) -> Work:
    phase = f"recovery of {title}" if scale == 1 else f"recovery of {count:,} posts of {8 * width:,} bytes"

    def run(peer: Any, watch: Stopwatch) -> None:
        clear(peer.path)
        if peer.name == US:
            with temporary_directory(peer.folder) as logs:
                job = [sys.executable, "-c", _KILLED, peer.path, logs, str(count), str(width)]
                subprocess.run(job, check=True)
                with watch(phase):
                    peer.module.File(peer.path, "r+", recover=True, hints={"nc_burst_buf_dirname": logs}).close()
            with peer.module.File(peer.path) as f:
                check(f"{phase}, {peer.path}", f["x"][:, 0], np.arange(count))
        else:
            peer.save({"x": np.ones((count, width))})
            copy = f"{peer.path}.copy"
            with watch(phase):
                # on stable storage, as a recovered file is
                copy_file(peer.path, copy, durable=True)
            clear(copy)
        clear(peer.path)

    without = dict.fromkeys(("h5py", "netCDF4", "scipy", "PnetCDF-Python"), "has no log")
    return Work({phase: (8 * width * count, count)}, run, {phase: without})


# ------------------------------------------------------------------------------------------------ logs on devices

Post = Callable[[dict[str, Any]], None]
Shapes = Mapping[str, tuple[int, ...]]

TMPFS = "/dev/shm"
CELLS = 8
BLOCKS = 80
UNKNOWNS = 24
VARIABLES = 60
REQUESTS = 20_000
LENGTH = 40_000


class _LoggingPeer(PncVol):
    """pnc_vol or h5py, with a log on some device if there is a folder for it."""

    def __init__(self, name: str, module: Any, folder: str, logs: str | None = None, **hints: str) -> None:
        super().__init__(name, module, folder)
        self.logs, self.hints = logs, hints

    def work(self, title: str, shapes: Shapes, post: Post, watch: Stopwatch) -> None:
        """Make a file of float64 variables, by `post` and a close; `post` gets the variables by name."""
        clear(self.path)
        with contextlib.nullcontext() if self.logs is None else temporary_directory(self.logs) as place:
            log = {"nc_burst_buf": "enable", "nc_burst_buf_dirname": place, **self.hints}
            options = {} if self.logs is None else {"hints": log}
            f = self.module.File(self.path, "w", **options)
            found = {name: f.create_dataset(name, shape, "f8") for name, shape in shapes.items()}
            with watch(f"{title}, post"):
                post(found)
            with watch(f"{title}, flush"):
                f.close()

    def stored(self, name: str) -> Array:
        with self.module.File(self.path, "r") as f:
            values: Array = f[name][...]
        return values


def _logging_peers(folder: str) -> dict[str, Any]:
    """Return pnc_vol without and with a log on different devices, and h5py."""
    h5py, pnc_vol = load("h5py"), load("pnc_vol")
    there = is_folder(REAL, TMPFS)
    return {
        US: _LoggingPeer("memory", pnc_vol, folder),
        "log on tmpfs": _LoggingPeer("tmpfs", pnc_vol, folder, TMPFS) if there else f"{TMPFS} is not there",
        "log on disk": _LoggingPeer("disk", pnc_vol, folder, folder),
        "log on disk, synced at flushes": _LoggingPeer("synced", pnc_vol, folder, folder, nc_burst_buf_sync="flush"),
        "h5py": h5py if isinstance(h5py, str) else _LoggingPeer("h5py", h5py, folder),
    }


def _burst(scale: float) -> list[Work]:
    return [_flash(scale), _requests(scale), _lists(scale)]


def _flash(scale: float) -> Work:
    blocks = times(scale, BLOCKS)
    values = np.random.default_rng(0).random((blocks, CELLS, CELLS, CELLS))
    shapes = {f"u{i:02}": values.shape for i in range(UNKNOWNS)}

    def post(found: dict[str, Any]) -> None:
        for dataset in found.values():
            for i in range(blocks):
                dataset[i] = values[i]

    return _posted("FLASH-like", shapes, post, ("u07", lambda: values), UNKNOWNS * values.nbytes, UNKNOWNS * blocks)


def _pieces(scale: float) -> list[tuple[int, int, int]]:
    """Return the variable, start and count of each request: no two overlap."""
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


def _requests(scale: float) -> Work:
    pieces = _pieces(scale)
    line = np.arange(float(LENGTH))
    shapes = {f"v{i:02}": (LENGTH,) for i in range(VARIABLES)}

    def post(found: dict[str, Any]) -> None:
        datasets = list(found.values())
        for variable, start, count in pieces:
            datasets[variable][start : start + count] = line[start : start + count]

    return _posted(
        "E3SM-like",
        shapes,
        post,
        ("v11", lambda: _wanted(pieces, 11)),
        8 * sum(piece[2] for piece in pieces),
        len(pieces),
    )


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

    title, wanted = "E3SM-like in lists", ("v11", lambda: _wanted(pieces, 11))
    return _posted(
        title, shapes, post, wanted, 8 * int(table[:, 2].sum()), VARIABLES, {"h5py": "has no lists of subarrays"}
    )


def _posted(
    title: str, shapes: Shapes, post: Post, wanted: tuple[str, Callable[[], Array]], nbytes: int, requests: int,
    without: dict[str, str] | None = None,
) -> Work:  # fmt: skip
    name, values = wanted

    def run(peer: _LoggingPeer, watch: Stopwatch) -> None:
        peer.work(title, shapes, post, watch)
        check(peer.path, peer.stored(name), values())

    phases = {f"{title}, post": (nbytes, requests), f"{title}, flush": (nbytes, 1)}
    return Work(phases, run, dict.fromkeys(phases, without or {}))


BENCHES = {"posts": Bench(installed, _posts), "burst": Bench(_logging_peers, _burst)}
