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

import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.bench.measure import US, Job, Stopwatch, check, copy_file, times
from pnc_vol.bench.peers import Spec, installed, peer_of
from pnc_vol.system import REAL, is_folder

Array = npt.NDArray[Any]


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


def posts(job: Job) -> None:
    """Write by small assignments and by requests, and recover a log."""
    scale, peers = job.options.scale, installed()
    count = times(scale, 100_000)
    for name, act in ACTS.items():
        wanted = np.zeros(act.shape(count), act.dtype)
        for i in range(count):
            wanted[act.place(i)] = act.value

        def write(x: Any, act: _Act = act) -> None:
            for i in range(count):
                x[act.place(i)] = act.value

        _assigned(job, peers, f"{count:,} x {name}", count, wanted, write)
    few = times(scale, 10_000)
    values = np.random.default_rng(6).random((few, 16))

    def add(x: Any) -> None:
        x[:] = values - 1
        for i in range(few):
            x[i] += 1

    _assigned(job, peers, f"{few:,} x one added to a row of 16", few, values - 1 + 1, add)
    _iput(job, peers, count)
    _recovery(job, peers, "200,000 posts of 64 bytes", times(scale, 200_000), 8)
    _recovery(job, peers, "1,000 posts of 1 MiB", times(scale, 1_000), 1 << 17)


def _assigned(
    job: Job, peers: Mapping[str, Any], phase: str, count: int, wanted: Array, write: Callable[[Any], None]
) -> None:
    """Assign `count` times to the elements of one new dataset, which has the wanted values then."""

    def run(peer: Any, watch: Stopwatch) -> None:
        if peer.name in ("PnetCDF-Python", "os.pwrite"):
            watch.without("has no assignment of one element range", phase)
            return
        with watch(phase):
            write(peer.create({"x": Spec(wanted.shape, wanted.dtype)})["x"])
            peer.close()
        # what was not written is another fill value with each library
        check(f"{phase}, {peer.path}", np.where(wanted == 0, 0, peer.whole("x")), wanted)

    job.turns({phase: (None, count)}, peers, run)


def _iput(job: Job, peers: Mapping[str, Any], count: int) -> None:
    phase = f"{count:,} x iput of rows of 16"
    rows = np.random.default_rng(4).random((count, 16))

    def run(peer: Any, watch: Stopwatch) -> None:
        if "post" not in peer.ways:
            watch.without("has no words for it", phase)
            return
        with watch(phase):
            peer.create({"x": Spec(rows.shape, "f8")})
            peer.each("post", peer.places(range(count), rows), rows)
            peer.close()
        check(f"{phase}, {peer.path}", peer.whole("x"), rows)

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


# ------------------------------------------------------------------------------------------------ logs on devices

TMPFS = "/dev/shm"
CELLS, BLOCKS, UNKNOWNS = 8, 80, 24
VARIABLES, REQUESTS, LENGTH = 60, 20_000, 40_000


def burst(job: Job) -> None:
    """Post to a log on each device, and flush it."""

    def logging(name: str, folder: str, **hints: str) -> Any:
        log = {"nc_burst_buf": "enable", "nc_burst_buf_dirname": folder, **hints}
        return peer_of("pnc_vol", name, hints=log)

    peers = {
        US: peer_of("pnc_vol"),
        "log on tmpfs": logging("tmpfs", TMPFS) if is_folder(REAL, TMPFS) else f"{TMPFS} is not there",
        "log on disk": logging("disk", job.home),
        "log on disk, synced at flushes": logging("synced", job.home, nc_burst_buf_sync="flush"),
        "h5py": peer_of("h5py"),
    }
    blocks = times(job.options.scale, BLOCKS)
    values = np.random.default_rng(0).random((blocks, CELLS, CELLS, CELLS))

    def post(datasets: list[Any]) -> None:
        for dataset in datasets:
            for i in range(blocks):
                dataset[i] = values[i]

    _posted(job, peers, "FLASH-like", UNKNOWNS, values, post, UNKNOWNS * values.nbytes, UNKNOWNS * blocks)
    table = _pieces(job.options.scale)
    line, wanted = np.arange(float(LENGTH)), np.zeros(LENGTH)
    for _, start, count in table[table[:, 0] == VARIABLES - 1].tolist():
        wanted[start : start + count] = line[start : start + count]
    pieces = np.random.default_rng(2).permutation(table).tolist()

    def post_each(datasets: list[Any]) -> None:
        for variable, start, count in pieces:
            datasets[variable][start : start + count] = line[start : start + count]

    def post_lists(datasets: list[Any]) -> None:
        for variable, dataset in enumerate(datasets):
            rows = table[table[:, 0] == variable]
            values = np.concatenate([line[start : start + count] for _, start, count in rows.tolist()])
            dataset.iput_many(rows[:, 1:2], rows[:, 2:], values)

    nbytes = 8 * int(table[:, 2].sum())
    _posted(job, peers, "E3SM-like", VARIABLES, wanted, post_each, nbytes, len(table))
    peers["h5py"] = "has no lists of subarrays"
    _posted(job, peers, "E3SM-like in lists", VARIABLES, wanted, post_lists, nbytes, VARIABLES)


def _pieces(scale: float) -> Array:
    """Return the variable, start and count of each request: no two overlap."""
    rng, most = np.random.default_rng(1), LENGTH // 100
    each = min(times(scale, REQUESTS) // VARIABLES + 1, most)
    starts = [np.sort(rng.choice(most, each, replace=False)) * 100 for _ in range(VARIABLES)]
    found = np.repeat(np.arange(VARIABLES), each), np.concatenate(starts), rng.integers(1, 101, VARIABLES * each)
    return np.stack(found, axis=1)


def _posted(
    job: Job, peers: Mapping[str, Any], title: str, variables: int, wanted: Array, post: Callable[[list[Any]], None],
    nbytes: int, requests: int,
) -> None:  # fmt: skip
    """Post to float64 variables of the shape of `wanted`, which is what the last one holds in the end."""
    specs = {f"v{i:02}": Spec(wanted.shape, "f8") for i in range(variables)}
    posting, flushing = f"{title}, post", f"{title}, flush"

    def run(peer: Any, watch: Stopwatch) -> None:
        made = list(peer.create(specs).values())
        with watch(posting):
            post(made)
        with watch(flushing):
            peer.close()
        check(peer.path, peer.whole([*specs][-1]), wanted)

    job.turns({posting: (nbytes, requests), flushing: (nbytes, 1)}, peers, run)
