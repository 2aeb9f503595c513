"""``python -m pnc_vol.bench remote`` reads columns behind a web server that is 50 ms away, and with threads.

The server is a process of its own on the loopback address and waits before it answers. The columns are read one call
each, posted, and with one index. The peer is fsspec's file object under h5netcdf, in a netCDF-4 file with the same
values; of its columns only some are read, and the time is that of all.

The rows of threads compare reads of 4 MiB from a file in the page cache by two threads and by one: one that is kept on
one processor, and one as it is, which has a helper that converts while it reads. The last row is what this machine
gives at that moment: the same conversions by numpy, in one thread and in two.

Knows: the works. Does not know: how libraries read.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pnc_vol.api.file import File
from pnc_vol.bench.measure import check, times
from pnc_vol.bench.peers import load
from pnc_vol.system import temporary_directory

__all__ = ["report"]

COLUMNS, ASKED_OF_PEER, READ = 64, 2, 4 << 20
_SERVER = "from pnc_vol.bench.range_server import main; main()"


def report(scale: float, rounds: int, folder: str | None) -> list[str]:
    """Return the lines of the report."""
    with temporary_directory(folder) as place:
        return [*_columns(scale, place), *_threads(scale, rounds, place)]


def _columns(scale: float, folder: str) -> list[str]:
    n = times(scale**0.5, 8192, least=COLUMNS)
    values = np.random.default_rng(0).random((n, n), "f4")
    columns = np.random.default_rng(1).permutation(n)[:COLUMNS].tolist()
    with File(os.path.join(folder, "far.nc"), "w") as f:
        f["x"] = values
    peer, fsspec = load("h5netcdf"), load("fsspec")
    if isinstance(fsspec, str):
        return [f"columns: {fsspec}"]
    if not isinstance(peer, str):
        with peer.File(os.path.join(folder, "far.h5"), "w") as f:
            f.dimensions = {"y": n, "x": n}
            f.create_variable("x", ("y", "x"), "f4")[...] = values
    command = [sys.executable, "-c", _SERVER, folder, "0.05"]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    assert server.stdin is not None
    try:
        url = server.stdout.readline().strip()

        def measured(name: str, read: Callable[[Any], Sequence[Any]]) -> tuple[str, float]:
            before = time.perf_counter()
            with File(f"{url}/far.nc") as f:
                got = read(f)
            seconds = time.perf_counter() - before
            check(name, np.stack(got), values[:, columns].T)
            return name, seconds

        ours = [
            measured("one call each", lambda f: [f["x"][:, k] for k in columns]),
            measured("posted", _posted(columns)),
            measured("one index", lambda f: f["x"][:, sorted(columns)].T[np.argsort(np.argsort(columns))]),
        ]
        theirs = None if isinstance(peer, str) else _of_peer(peer, fsspec, url, columns, values)
    finally:
        server.stdin.close()
        server.wait()
    what = f"{COLUMNS} columns of {n} x {n} floats ({values.nbytes >> 20} MiB), 50 ms for each request"
    lines = [f"{what}, {name}: {seconds:.2f} s" for name, seconds in ours]
    if theirs is None:
        return [*lines, f"h5netcdf on fsspec: {peer}"]
    lines = [f"{line} [h5netcdf / pnc_vol: {theirs / s:.1f}]" for line, (_, s) in zip(lines, ours, strict=True)]
    return [*lines, f"{what}, h5netcdf on fsspec's file object: {theirs:.0f} s, from {ASKED_OF_PEER} columns"]


def _posted(columns: list[int]) -> Callable[[Any], Sequence[Any]]:
    def read(f: Any) -> Sequence[Any]:
        requests = [f["x"].iget((slice(None), k)) for k in columns]
        f.wait_all(requests)
        return [request.array for request in requests]

    return read


def _of_peer(peer: Any, fsspec: Any, url: str, columns: list[int], values: Any) -> float:
    """Return the seconds for all columns, from some."""
    before = time.perf_counter()
    with fsspec.open(f"{url}/far.h5") as file, peer.File(file) as f:
        got = [f["x"][:, k] for k in columns[:ASKED_OF_PEER]]
    seconds = time.perf_counter() - before
    check("h5netcdf", np.stack(got), values[:, columns[:ASKED_OF_PEER]].T)
    return seconds / ASKED_OF_PEER * COLUMNS


def _threads(scale: float, rounds: int, folder: str) -> list[str]:
    """Return bytes a second of two threads against one that has a processor for itself, in turns."""
    path, nbytes = os.path.join(folder, "near.nc"), times(scale, 64, least=2) * READ
    with File(path, "w") as f:
        f["x"] = np.arange(nbytes // 8, dtype="f8").reshape(-1, READ // 8)
    ratios: dict[str, list[float]] = {"a reader on one processor": [], "a reader and its helper": []}
    ratios["one thread, numpy alone"] = []
    with File(path) as f:
        x = f["x"]
        x[...]
        for _ in range(rounds):
            two = _seconds(x, 2)
            ratios["a reader and its helper"].append(_seconds(x, 1) / two)
            before = os.sched_getaffinity(0)
            os.sched_setaffinity(0, {min(before)})
            try:
                one = _seconds(x, 1)
            finally:
                os.sched_setaffinity(0, before)
            ratios["a reader on one processor"].append(one / two)
            ratios["one thread, numpy alone"].append(_numpy_seconds(nbytes, 1) / _numpy_seconds(nbytes, 2))
    what = f"{nbytes // READ} reads of {READ >> 20} MiB by two threads"
    numpy_alone = ratios.pop("one thread, numpy alone")
    return [
        f"two threads of numpy alone, against one: {np.median(numpy_alone):.2f} times as fast",
    ] + [
        f"{what}, against {name}: {np.median(found):.2f} times as fast ({min(found):.2f}-{max(found):.2f})"
        for name, found in ratios.items()
    ]


def _numpy_seconds(nbytes: int, threads: int) -> float:
    """Return the seconds of as many conversions, from memory."""
    stored = np.zeros(READ // 8, ">f8")
    return _in_threads(lambda first: [stored.astype("f8") for _ in range(first, nbytes // READ, threads)], threads)


def _seconds(x: Any, threads: int) -> float:
    """Return the seconds of reading all rows, dealt to some threads."""
    return _in_threads(lambda first: [None for i in range(first, len(x), threads) if x[i] is None], threads)


def _in_threads(work: Callable[[int], object], threads: int) -> float:
    started = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
    before = time.perf_counter()
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    return time.perf_counter() - before
