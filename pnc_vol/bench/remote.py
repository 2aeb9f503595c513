"""``python -m pnc_vol.bench remote`` reads columns behind a web server that is 50 ms away, and with threads.

The server is a process of its own on the loopback address and waits before it answers. The columns are read one call
each, posted, and with one index. The peer is fsspec's file object under h5netcdf, in a netCDF-4 file with the same
values; of its columns only some are read, and the time is that of all.

The row of threads has two threads that read 4 MiB at a time from a file in the page cache, and as peers one thread that
is kept on one processor, and one as it is, which has a helper that converts while it reads; then what this machine
gives at that moment: the same conversions by numpy, in one thread and in two.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from pnc_vol.api.file import File
from pnc_vol.bench.measure import US, Job, Stopwatch, check, times
from pnc_vol.bench.peers import Peer, load

COLUMNS, ASKED_OF_PEER, READ = 64, 2, 4 << 20
_SERVER = "from pnc_vol.bench.range_server import main; main()"


def main(job: Job) -> None:
    """Read columns far away, and rows with threads."""
    _columns(job)
    _threads(job)


def _columns(job: Job) -> None:
    n = times(job.options.scale**0.5, 8192, least=COLUMNS)
    values = np.random.default_rng(0).random((n, n), "f4")
    columns = np.random.default_rng(1).permutation(n)[:COLUMNS].tolist()
    with File(os.path.join(job.home, "far.nc"), "w") as f:
        f["x"] = values
    h5netcdf, fsspec = load("h5netcdf"), load("fsspec")
    missing = next((text for text in (fsspec, h5netcdf) if isinstance(text, str)), "")
    if not missing:
        with h5netcdf.File(os.path.join(job.home, "far.h5"), "w") as f:
            f.dimensions = {"y": n, "x": n}
            f.create_variable("x", ("y", "x"), "f4")[...] = values

    def posted(f: Any) -> list[Any]:
        requests = [f["x"].iget((slice(None), k)) for k in columns]
        f.wait_all(requests)
        return [request.array for request in requests]

    what = f"{COLUMNS} columns of {n} x {n} floats, 50 ms for each request"
    ways: dict[str, Callable[[Any], Any]] = {
        f"{what}, one call each": lambda f: [f["x"][:, k] for k in columns],
        f"{what}, posted": posted,
        f"{what}, one index": lambda f: f["x"][:, sorted(columns)].T[np.argsort(np.argsort(columns))],
    }
    command = [sys.executable, "-c", _SERVER, job.home, "0.05"]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    assert server.stdin is not None
    url = server.stdout.readline().strip()

    def run(peer: Any, watch: Stopwatch) -> None:
        for phase, read in ways.items():
            if peer.name == US:
                with watch(phase), File(f"{url}/far.nc") as f:
                    got = read(f)
                check(phase, np.stack(got), values[:, columns].T)
                continue
            asked = columns[:ASKED_OF_PEER]
            with watch(phase), fsspec.open(f"{url}/far.h5") as file, peer.module.File(file) as f:
                got = [f["x"][:, k] for k in asked]
            watch.seconds[phase] *= COLUMNS / ASKED_OF_PEER
            check("h5netcdf", np.stack(got), values[:, asked].T)

    peers = {US: Peer(US, None), "h5netcdf on fsspec": missing or Peer("h5netcdf", h5netcdf)}
    try:
        job.turns(dict.fromkeys(ways, (4 * n * COLUMNS, COLUMNS)), peers, run)
    finally:
        server.stdin.close()
        server.wait()


def _threads(job: Job) -> None:
    count = times(job.options.scale, 64, least=2)
    path, stored = os.path.join(job.home, "near.nc"), np.zeros(READ // 8, ">f8")
    with File(path, "w") as f:
        f["x"] = np.arange(count * READ // 8, dtype="f8").reshape(-1, READ // 8)
    phase = f"{count} reads of {READ >> 20} MiB by two threads"

    def run(peer: Any, watch: Stopwatch) -> None:
        allowed = os.sched_getaffinity(0)
        with File(path) as f:
            x = f["x"]
            x[...]
            work: Callable[[int], Any] = (lambda i: stored.astype("f8")) if "numpy" in peer.name else (lambda i: x[i])
            if "processor" in peer.name:
                os.sched_setaffinity(0, {min(allowed)})
            try:
                with watch(phase):
                    _in_threads(work, count, 1 if "one thread" in peer.name else 2)
            finally:
                os.sched_setaffinity(0, allowed)

    names = (US, "one thread on one processor", "one thread and its helper", "numpy, one thread", "numpy, two")
    job.turns({phase: (count * READ, count)}, {name: Peer(name, None) for name in names}, run)


def _in_threads(work: Callable[[int], Any], count: int, threads: int) -> None:
    """Call `work` with each number, dealt to some threads."""

    def share(first: int) -> None:
        for i in range(first, count, threads):
            work(i)

    started = [threading.Thread(target=share, args=(i,)) for i in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
