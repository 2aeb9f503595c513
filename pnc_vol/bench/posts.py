"""``python -m pnc_vol.bench posts`` times small writes of each kind, and the recovery of a log.

A program writes rows, single numbers that are repeated, arrays of another type than the dataset's, lists, small blocks,
rows that a list or a step picks: each with one call, and the close at the end counts. Or it adds to what is there.
pnc_vol also posts rows by ``iput``. The recovery is compared with a copy of as many bytes.

Knows: the works. Does not know: how peers make and open files (`peers.py`).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.bench.measure import US, Job, Stopwatch, check, copy_file, times
from pnc_vol.bench.peers import Spec, able, installed


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


def main(job: Job) -> None:
    """Write by small assignments and by requests, and recover a log."""
    scale, peers = job.options.scale, installed()
    without = dict.fromkeys(("PnetCDF-Python", "os.pwrite"), "has no assignment of one element range")
    assigning, posting = {**peers, **without}, able(peers, "post", "has no words for it")
    count, few = times(scale, 100_000), times(scale, 10_000)
    for name, act in ACTS.items():
        wanted = np.zeros(act.shape(count), act.dtype)
        for i in range(count):
            wanted[act.place(i)] = act.value

        def assign(peer: Any, act: _Act = act) -> None:
            x = peer.variables["x"]
            for i in range(count):
                x[act.place(i)] = act.value

        _written(job, assigning, f"{count:,} x {name}", count, wanted, assign)
    values, rows = np.random.default_rng(6).random((few, 16)), np.random.default_rng(4).random((count, 16))

    def add(peer: Any) -> None:
        x = peer.variables["x"]
        x[:] = values - 1
        for i in range(few):
            x[i] += 1

    def iput(peer: Any) -> None:
        peer.each("post", peer.places(range(count), rows), rows)

    _written(job, assigning, f"{few:,} x one added to a row of 16", few, values - 1 + 1, add)
    _written(job, posting, f"{count:,} x iput of rows of 16", count, rows, iput)
    _recovery(job, peers, "200,000 posts of 64 bytes", times(scale, 200_000), 8)
    _recovery(job, peers, "1,000 posts of 1 MiB", times(scale, 1_000), 1 << 17)


def _written(
    job: Job, peers: Mapping[str, Any], phase: str, count: int, wanted: npt.NDArray[Any], write: Callable[[Any], None]
) -> None:
    """Write `count` times to one new dataset, which has the wanted values then."""

    def run(peer: Any, watch: Stopwatch) -> None:
        with watch(phase):
            peer.create({"x": Spec(wanted.shape, wanted.dtype)})
            write(peer)
            peer.close()
        # what was not written is another fill value with each library
        check(f"{phase}, {peer.path}", np.where(wanted == 0, 0, peer.whole("x")), wanted)

    job.turns({phase: (None, count)}, peers, run)


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


def _recovery(job: Job, peers: Mapping[str, Any], title: str, count: int, width: int) -> None:
    phase = f"recovery of {title if job.options.scale == 1 else f'{count:,} posts of {8 * width:,} bytes'}"

    def run(peer: Any, watch: Stopwatch) -> None:
        if peer.name == US:
            words = [peer.path, peer.folder, str(count), str(width)]
            subprocess.run([sys.executable, "-c", _KILLED, *words], check=True)
            with watch(phase):
                peer.module.File(peer.path, "r+", recover=True, hints={"nc_burst_buf_dirname": peer.folder}).close()
            with peer.module.File(peer.path) as f:
                check(f"{phase}, {peer.path}", f["x"][:, 0], np.arange(count))
        elif peer.name == "os.pwrite":
            peer.save({"x": np.ones((count, width))})
            with watch(phase):
                # on stable storage, as a recovered file is
                copy_file(peer.path, f"{peer.path}.copy", durable=True)
        else:
            watch.without("has no log", phase)

    job.turns({phase: (8 * width * count, count)}, peers, run)
