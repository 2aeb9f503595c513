"""``python -m pnc_vol.bench coll_perf`` writes one 3-D array in blocks, one per rank, as in ROMIO and E10.

ROMIO's: the array is written together and read together; what counts is the write, then the read, without opening and
closing, which are reported beside them; ``--romio`` takes its array, and its warm-up. E10's (``-i CYCLES``): a file a
cycle, from open to close, with a compute phase between cycles that does not count. A block-block-block decomposition
over a grid of ranks, in C order; values are checked, which the originals do not do.

Knows: the pattern. Does not know: how a library writes (`peers.py`).
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from pnc_vol.bench import cached
from pnc_vol.bench.measure import Job, Phases, Stopwatch, check
from pnc_vol.bench.peers import Spec, on_ranks, peer_of

ROMIO = (2176, 1152, 1408)


def arguments(one: argparse.ArgumentParser) -> None:
    """Add the options of both originals, and the type and the grid."""
    one.add_argument("-b", "--block", type=int, default=256, help="edge of a rank's block (256)")
    one.add_argument("--shape", type=int, nargs=3, help=f"the whole array instead; ROMIO's is {ROMIO}")
    about = f"ROMIO's array of 13 GiB, {' x '.join(map(str, ROMIO))} int, written and read once before the first round"
    one.add_argument("--romio", action="store_true", help=about)
    one.add_argument("--grid", type=int, nargs=3, help="ranks along each axis (as MPI_Dims_create has it)")
    one.add_argument("--dtype", default="i4", help="type of an element (i4)")
    # as E10's
    cached.arguments(one, "-i", "-d")


class _RankBlock:
    """The part of the array that this rank has."""

    def __init__(self, job: Job) -> None:
        from mpi4py import MPI

        o = job.options
        self.grid = tuple(o.grid or MPI.Compute_dims(job.comm.size, 3))
        if np.prod(self.grid) != job.comm.size:
            raise SystemExit(f"coll_perf: --grid {self.grid} is not for {job.comm.size} ranks")
        edge, asked = max(2, round(o.block * o.scale ** (1 / 3))), ROMIO if o.romio else o.shape
        whole = asked and tuple(max(1, round(n * o.scale ** (1 / 3))) for n in asked)
        self.shape: tuple[int, ...] = whole or tuple(edge * n for n in self.grid)
        self.specs = {"data": Spec(self.shape, np.dtype(o.dtype))}
        place = np.unravel_index(job.comm.rank, self.grid)
        sizes = [-(-n // parts) for n, parts in zip(self.shape, self.grid, strict=True)]
        self.start = tuple(min(int(p) * size, n) for p, size, n in zip(place, sizes, self.shape, strict=True))
        count = [min(size, n - at) for size, n, at in zip(sizes, self.shape, self.start, strict=True)]
        first = np.ravel_multi_index(self.start, self.shape) if all(count) else 0
        # every element holds its place
        self.values = (np.arange(np.prod(count), dtype="i8") + first * 3).astype(o.dtype).reshape(count)
        self.nbytes = int(np.prod(self.shape)) * self.values.itemsize


def main(job: Job) -> None:
    """Write and read with every peer; the phases of ROMIO or of E10."""
    block, o = _RankBlock(job), job.options
    if o.cache:
        cached.run(job, block.specs, [("data", block.start, block.values)])
        return
    names = [f"write of {block.nbytes / (1 << 20):.1f} MiB", "write, open to close", "read", "read, open to close"]
    phases: Phases = dict.fromkeys(names, (block.nbytes, job.comm.size))
    cycles = "open, write, close, all cycles"
    if o.cycles:
        phases = {cycles: (block.nbytes * o.cycles, job.comm.size * o.cycles)}

    def write(peer: Any, watch: Stopwatch, opening: str, writing: str, closing: str) -> None:
        with watch(opening):
            peer.create(block.specs)
        with watch(writing):
            peer.move("write", "data", block.start, block.values)
            peer.flush()
        with watch(closing):
            peer.close()

    def read(peer: Any, watch: Stopwatch) -> None:
        found = np.zeros_like(block.values)
        with watch("open for reading"):
            peer.open()
        with watch(names[2]):
            peer.move("read", "data", block.start, found)
            peer.flush()
        with watch("close after reading"):
            peer.close()
        check(peer.path, found, block.values)

    def run(peer: Any, watch: Stopwatch) -> None:
        paths = [f"{peer.path}.{i}" for i in range(o.cycles)]
        for peer.path in paths:
            write(peer, watch, cycles, cycles, cycles)
            time.sleep(o.delay)
        for peer.path in paths:
            read(peer, watch)
        if not o.cycles:
            write(peer, watch, "open for writing", names[0], "close after writing")
            read(peer, watch)
            watch.whole(names[1], "open for writing", names[0], "close after writing")
            watch.whole(names[3], "open for reading", names[2], "close after reading")

    peers = on_ranks(job.comm, hints=o.hints) | {"swapped os.pwrite": peer_of("swapped os.pwrite", comm=job.comm)}
    for name, peer in peers.items() if o.romio and not o.cycles else ():
        if not isinstance(peer, str) and (not o.peers or name in o.peers):
            job.once(name, peer, run)
    job.turns(phases, peers, run)
    job.report(
        f"process grid {block.grid}, array {block.shape} of {block.values.dtype}, {block.nbytes / 2**20:.2f} MiB"
    )
