"""``python -m pnc_vol.bench ior`` writes segments, blocks and transfers, with IOR's option letters.

A file is ``segments`` times a block of each task; a block is transfers. Transfer ``j`` of task ``r`` in segment ``s``
is at ``(s * tasks + r) * block + j * transfer``. In a CDF-5 file that is a variable of bytes, (segments x tasks,
transfers, transfer size), as IOR's own PnetCDF back end has it, with a record axis in front. Every element holds its
place, and is checked after reading.

Knows: the pattern. Does not know: how a library writes (`peers.py`).
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.bench import cached
from pnc_vol.bench.measure import Job, Phases, Stopwatch, check
from pnc_vol.bench.peers import Spec, on_ranks

APIS = {
    "PNC": ("pnc_vol", "pnc_vol posix"),
    "MPIIO": ("MPI.File collective", "MPI.File independent"),
    "NCMPI": ("PnetCDF-Python",),
    "HDF5": ("h5py collective", "h5py independent"),
    "POSIX": ("os.pwrite",),
}
UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
FLAGS = {
    "w": "write (by default write and read)",
    "r": "read (by default write and read)",
    "c": "every transfer is completed by all tasks together",
    "C": "read what the next task wrote",
    "e": "sync the file to stable storage before closing",
    "F": "a file for each task",
    "z": "transfers in random order",
    "V": "describe a task's places once: pnc_vol, PnetCDF and MPI.File post one request of many runs; the others have "
    "no views, and do as without",
}


def size(text: str) -> int:
    """Return the number of bytes, as IOR writes them: 256k, 1m, 2g."""
    unit = UNITS.get(text[-1:].lower(), 0)
    return int(text[:-1]) * unit if unit else int(text)


def arguments(one: argparse.ArgumentParser) -> None:
    """Add the letters of IOR."""
    one.add_argument("-a", "--api", help=f"{', '.join(APIS)}, with commas between; all by default")
    one.add_argument("-b", "--block-size", type=size, default=1 << 20, help="bytes that a task writes per segment (1m)")
    one.add_argument("-t", "--transfer-size", type=size, default=256 << 10, help="bytes of one call (256k)")
    one.add_argument("-s", "--segments", type=int, default=1, help="number of segments (1)")
    one.add_argument("-i", dest="rounds", type=int, help="the same as --rounds")
    one.add_argument("-U", dest="hints_file", help="the same as --hints-file")
    for letter, about in FLAGS.items():
        one.add_argument(f"-{letter}", action="store_true", help=about)
    about = "seconds of computing after each segment written, not counted (0)"
    one.add_argument("--compute", type=float, default=0.0, help=about)
    cached.arguments(one)


class _Pattern:
    """The transfers of a task."""

    def __init__(self, job: Job) -> None:
        o, comm = job.options, job.comm
        if o.block_size % o.transfer_size:
            raise SystemExit("ior: -b must be a multiple of -t")
        if o.V and o.z:
            raise SystemExit("ior: -V has all places in one description, in their order: not with -z")
        self.tasks: int = 1 if o.F else comm.size
        self.rank: int = 0 if o.F else comm.rank
        self.segments, self.transfers = o.segments, o.block_size // o.transfer_size
        self.transfer = max(8, round(o.transfer_size * min(1.0, o.scale)))
        self.order = np.array([(s, j) for s in range(self.segments) for j in range(self.transfers)])
        if o.z:
            self.order = np.random.default_rng(comm.rank).permutation(self.order)
        self.specs = {"data_var": Spec((self.segments * self.tasks, self.transfers, self.transfer), "i1", grows=True)}
        self.calls = comm.size * len(self.order)
        self.nbytes = self.calls * self.transfer

    def rows(self, rank: int) -> npt.NDArray[np.int64]:
        """Return the first index of each of a task's blocks."""
        return np.arange(self.segments) * self.tasks + rank

    def values(self, rank: int) -> npt.NDArray[np.int8]:
        """Return all bytes of a task: (segments, transfers, transfer)."""
        places = self.rows(rank)[:, None] * self.transfers + np.arange(self.transfers)
        values: npt.NDArray[np.int8] = (places[..., None] * 31 + np.arange(self.transfer)).astype(np.int8)
        return values

    def move(self, o: argparse.Namespace, peer: Any, rank: int, values: npt.NDArray[np.int8], *, reads: bool) -> None:
        """Write or read all transfers of a task."""
        rows = self.rows(rank)
        if o.V:
            starts = np.stack([rows, 0 * rows, 0 * rows], axis=1)
            counts = np.broadcast_to(np.array([1, self.transfers, self.transfer]), starts.shape)
            peer.runs("read" if reads else "write", "data_var", starts, counts, values)
            return
        for i, (s, j) in enumerate(self.order.tolist(), 1):
            peer.move("read" if reads else "write", "data_var", (int(rows[s]), j, 0), values[s : s + 1, j : j + 1])
            if o.compute and not reads and i % self.transfers == 0:
                time.sleep(o.compute)
            if o.c:
                peer.flush()


def main(job: Job) -> None:
    """Open, transfers and close of writing and of reading, for every peer."""
    o, pattern = job.options, _Pattern(job)
    if o.cache:
        rows, values = pattern.rows(pattern.rank).tolist(), pattern.values(pattern.rank)
        parts = [("data_var", (row, 0, 0), values[i : i + 1]) for i, row in enumerate(rows)]
        cached.run(job, {name: spec._replace(grows=False) for name, spec in pattern.specs.items()}, parts)
        return
    from mpi4py.MPI import COMM_SELF

    moved = (pattern.nbytes, pattern.calls)
    accesses = [access for access, wanted in (("write", o.w), ("read", o.r)) if wanted or o.w == o.r]
    steps = {"total": moved, "open": (None, None), "transfers": moved, "close": (None, None)}
    phases: Phases = {f"{access}, {what}": amounts for access in accesses for what, amounts in steps.items()}
    unknown = {api for api in (o.api or "").upper().split(",") if api} - set(APIS)
    if unknown:
        raise SystemExit(f"ior: -a {','.join(sorted(unknown))}: there are {', '.join(APIS)}")
    asked = {name for api in (o.api.upper().split(",") if o.api else APIS) for name in APIS[api]}
    found = on_ranks(COMM_SELF if o.F else job.comm, hints=o.hints)

    def run(peer: Any, watch: Stopwatch) -> None:
        base, other = peer.path, (pattern.rank + o.C) % pattern.tasks
        own, theirs = (f"{base}.{(job.comm.rank + by) % job.comm.size:08d}" if o.F else base for by in (0, o.C))
        own_values, read = pattern.values(pattern.rank), np.zeros_like(pattern.values(other))
        for access, peer.path, values in (("write", own, own_values), ("read", theirs, read)):
            reads = access == "read"
            with watch(f"{access}, open"):
                if reads:
                    peer.open()
                else:
                    peer.create(pattern.specs)
            with watch(f"{access}, transfers"):
                pattern.move(o, peer, other if reads else pattern.rank, values, reads=reads)
                peer.flush(durable=o.e and not reads)
            if not reads and not o.V:
                watch.seconds["write, transfers"] -= o.compute * pattern.segments
            with watch(f"{access}, close"):
                peer.close()
            watch.whole(f"{access}, total", *(f"{access}, {what}" for what in ("open", "transfers", "close")))
        check(theirs, read, pattern.values(other))

    job.turns(phases, {name: found[name] for name in found if name in asked}, run)
    mib = pattern.nbytes / (1 << 20)
    job.report(f"{mib:.2f} MiB: {pattern.segments} segments, {pattern.transfers} transfers of {pattern.transfer} bytes")
