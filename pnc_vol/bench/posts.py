"""``python -m pnc_vol.bench posts``: one small write of each kind, many times; recovery of the log of a killed job.

A program writes rows, single numbers that are repeated, arrays of another type than the dataset's, lists, small blocks,
rows that a list or a step picks: each with one call, and the close at the end counts. Or it adds to what is there.
pnc_vol also posts rows by ``iput``. The recovery is compared with a copy of as many bytes.

Knows: the works. Does not know: how peers make and open files (`peers.py`).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.bench.measure import US, Stopwatch
from pnc_vol.bench.peers import installed as peers
from pnc_vol.bench.serial import Work, check, clear, copy_file, times
from pnc_vol.system import temporary_directory

__all__ = ["peers", "works"]

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


def works(scale: float) -> list[Work]:
    """The works, at `scale` times their real size."""
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
    """`count` assignments to the elements of one new dataset, which has the wanted values then."""

    def run(peer: Any, watch: Stopwatch) -> None:
        clear(peer.path)
        with watch(phase):
            (x,) = peer.create({"x": (wanted.shape, wanted.dtype)})
            write(x)
            peer.close()
        found = peer.read()
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
            peer.post_rows(rows)
        check(f"{phase}, {peer.path}", peer.read(), rows)
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
            values = np.ones((count, width))
            peer.write(values)
            copy = f"{peer.path}.copy"
            with watch(phase):
                # on stable storage, as a recovered file is
                copy_file(peer.path, copy, durable=True)
            clear(copy)
        clear(peer.path)

    without = dict.fromkeys(("h5py", "netCDF4", "scipy", "PnetCDF-Python"), "has no log")
    return Work({phase: (8 * width * count, count)}, run, {phase: without})
