"""``python -m pnc_vol.bench coll_perf``: one 3-D array in blocks, one per rank, as in ROMIO and E10.

ROMIO's: the array is written together and read together; what counts is the write, then the read, without opening and
closing, which are reported beside them; ``--romio`` takes its array, and its warm-up. E10's (``-i CYCLES``): a file a
cycle, from open to close, with a compute phase between cycles that does not count. A block-block-block decomposition
over a grid of ranks, in C order; values are checked, which the originals do not do.

Knows: the pattern. Does not know: how a library writes (`carriers.py`).
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from pnc_vol.bench import cached
from pnc_vol.bench.carriers import Carrier, Posix, carriers
from pnc_vol.bench.measure import US, Result
from pnc_vol.bench.ranks import Job, RankWatch
from pnc_vol.bench.serial import check
from pnc_vol.system import REAL
from pnc_vol.system.full_io import read_at, write_all

__all__ = ["arguments", "run"]

ROMIO = (2176, 1152, 1408)


def arguments(one: argparse.ArgumentParser) -> None:
    """The options of both originals, and the type and the grid."""
    one.add_argument("-b", "--block", type=int, default=256, help="edge of a rank's block (256)")
    one.add_argument("--shape", type=int, nargs=3, help=f"the whole array instead; ROMIO's is {ROMIO}")
    one.add_argument(
        "--romio", action="store_true",
        help=f"ROMIO's array, {' x '.join(map(str, ROMIO))} int (13 GiB, --scale makes it smaller), written and "
        "read once before the first round",
    )  # fmt: skip
    one.add_argument("--grid", type=int, nargs=3, help="ranks along each axis (as MPI_Dims_create has it)")
    one.add_argument("--dtype", default="i4", help="type of an element (i4)")
    one.add_argument("-f", "--base", default="coll_perf", help="base of the files' names (ROMIO's -fname)")
    one.add_argument("-i", "--cycles", type=int, default=0, help="as E10: number of files, one after another")
    one.add_argument("-d", "--delay", type=float, default=0.0, help="as E10: seconds of computing between files")
    cached.arguments(one, cycles=False)


class _RankBlock:
    """This rank's part of the array."""

    def __init__(self, job: Job) -> None:
        from mpi4py import MPI

        o = job.options
        self.grid = tuple(o.grid or MPI.Compute_dims(job.comm.size, 3))
        if np.prod(self.grid) != job.comm.size:
            raise SystemExit(f"coll_perf: --grid {self.grid} is not for {job.comm.size} ranks")
        edge = max(2, round(o.block * o.scale ** (1 / 3)))
        asked = ROMIO if o.romio else o.shape
        whole = asked and tuple(max(1, round(n * o.scale ** (1 / 3))) for n in asked)
        self.shape: tuple[int, ...] = whole or tuple(edge * n for n in self.grid)
        self.dtype = np.dtype(o.dtype)
        place = np.unravel_index(job.comm.rank, self.grid)
        sizes = [-(-n // parts) for n, parts in zip(self.shape, self.grid, strict=True)]
        self.start = tuple(min(int(p) * size, n) for p, size, n in zip(place, sizes, self.shape, strict=True))
        count = [min(size, n - at) for size, n, at in zip(sizes, self.shape, self.start, strict=True)]
        first = np.ravel_multi_index(self.start, self.shape) if all(count) else 0
        # every element holds its place
        self.values = (np.arange(np.prod(count), dtype="i8") + first * 3).astype(self.dtype).reshape(count)

    @property
    def nbytes(self) -> int:
        """Of the whole array."""
        nbytes: int = int(np.prod(self.shape)) * self.dtype.itemsize
        return nbytes

    @property
    def variables(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        return {"data": (self.shape, self.dtype)}


def run(job: Job) -> list[Result]:
    """Both ways' phases for every peer."""
    block = _RankBlock(job)
    o = job.options
    if o.cache:
        return cached.run(job, block.variables, [("data", block.start, block.values)])
    phases = {
        f"write of {block.nbytes / (1 << 20):.1f} MiB": (block.nbytes, job.comm.size),
        "write, open to close": (block.nbytes, job.comm.size),
        "read": (block.nbytes, job.comm.size),
        "read, open to close": (block.nbytes, job.comm.size),
    }
    if o.cycles:
        phases = {"open, write, close, all cycles": (block.nbytes * o.cycles, job.comm.size * o.cycles)}
    names = list(phases)
    peers: dict[str, Callable[[RankWatch], None] | str] = {}
    found = {**carriers(job.comm, {"hints": o.hints}), "swapped os.pwrite": _Swapped(job.comm)}
    for name, peer in found.items():
        if isinstance(peer, str):
            peers[name] = peer
        else:
            peers[name] = _cycles(job, block, peer, names) if o.cycles else _once(job, block, peer, names)
            if o.romio and not o.cycles and (not o.peers or name in o.peers):
                _once(job, block, peer, names)(RankWatch(job.comm))
    results = job.turns(phases, peers)
    _report(job, block, results)
    return results


class _Swapped(Posix):
    """`os.pwrite` and `os.preadv`, each run turned into the byte order of NetCDF: the least work of any library."""

    def put(self, name: str, start: Any, values: Any) -> None:
        kind = values.dtype
        values = np.ascontiguousarray(values)
        for at, run in self._runs(name, start, values):
            write_all(REAL, self._fd, np.frombuffer(run, kind).byteswap().view("u1").data, at)

    def get(self, name: str, start: Any, out: Any) -> None:
        for at, run in self._runs(name, start, out):
            read_at(REAL, self._fd, run, at)
            # while it is in the cache
            np.frombuffer(run, out.dtype).byteswap(inplace=True)


def _once(job: Job, block: _RankBlock, peer: Carrier, names: list[str]) -> Callable[[RankWatch], None]:
    def do(watch: RankWatch) -> None:
        path = os.path.join(job.folder, f"{job.options.base}.nc")
        job.clear(path)
        with watch("open for writing"):
            peer.create(path, block.variables)
        with watch(names[0]):
            peer.put("data", block.start, block.values)
            peer.flush()
        with watch("close after writing"):
            peer.close()
        found = np.zeros_like(block.values)
        with watch("open for reading"):
            peer.open(path, block.variables)
        with watch(names[2]):
            peer.get("data", block.start, found)
            peer.flush()
        with watch("close after reading"):
            peer.close()
        check(path, found, block.values)
        _sum(watch, names[1], "open for writing", names[0], "close after writing")
        _sum(watch, names[3], "open for reading", names[2], "close after reading")

    return do


def _sum(watch: RankWatch, whole: str, *parts: str) -> None:
    """Make the open and the close part of a phase that contains the middle one."""
    watch.seconds[whole] = sum(watch.seconds[part] for part in parts)
    watch.memory[whole] = max(watch.memory[part] for part in parts)
    for part in (parts[0], parts[2]):
        del watch.seconds[part], watch.memory[part]


def _cycles(job: Job, block: _RankBlock, peer: Carrier, names: list[str]) -> Callable[[RankWatch], None]:
    def do(watch: RankWatch) -> None:
        o = job.options
        paths = [os.path.join(job.folder, f"{o.base}_{i}") for i in range(o.cycles)]
        for path in paths:
            job.clear(path)
        for path in paths:
            with watch(names[0]):
                peer.create(path, block.variables)
                peer.put("data", block.start, block.values)
                peer.close()
            time.sleep(o.delay)
        for path in paths:
            found = np.zeros_like(block.values)
            peer.open(path, block.variables)
            peer.get("data", block.start, found)
            peer.flush()
            peer.close()
            check(path, found, block.values)
            job.clear(path)

    return do


def _report(job: Job, block: _RankBlock, results: list[Result]) -> None:
    """The originals' words, with the medians of pnc_vol; Mbytes are 2^20 bytes."""
    o, total = job.options, block.nbytes / (1 << 20)
    seconds = {result.work: result.median(US) for result in results}
    job.report(f"Process grid {' x '.join(map(str, block.grid))}")
    job.report(f"Global array size {' x '.join(map(str, block.shape))} {block.dtype} ({total:.2f} Mbytes)")
    if o.cycles:
        spent = seconds[results[0].work]
        if spent is not None:
            job.report(f"Write time = {spent:f} sec, bandwidth = {o.cycles * total / spent:f} Mbytes/sec")
            job.report(f"Compute time = {o.cycles * o.delay:f} sec, global time = {spent + o.cycles * o.delay:f} sec")
        return
    for word, result in (("write", results[0]), ("read", results[2])):
        spent = seconds[result.work]
        if spent is not None:
            job.report(
                f"Collective {word} time = {spent:f} sec, Collective {word} bandwidth = {total / spent:f} Mbytes/sec"
            )
