"""``python -m pnc_vol.bench ior``: segments, blocks and transfers, with IOR's option letters.

A file is ``segments`` times a block of each task; a block is transfers. Transfer ``j`` of task ``r`` in segment ``s``
is at ``(s * tasks + r) * block + j * transfer``. In a CDF-5 file that is a variable of bytes, (segments x tasks,
transfers, transfer size), as IOR's own PnetCDF back end has it, with a record axis in front. Every element holds its
place, and is checked after reading.

Knows: the pattern. Does not know: how a library writes (`carriers.py`).
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pnc_vol.bench import cached
from pnc_vol.bench.carriers import Carrier, carriers
from pnc_vol.bench.measure import Result
from pnc_vol.bench.ranks import Job, RankWatch
from pnc_vol.bench.serial import check
from pnc_vol.system import REAL

__all__ = ["arguments", "run"]

APIS = {
    "PNC": ("pnc_vol", "pnc_vol posix"),
    "MPIIO": ("MPI.File collective", "MPI.File independent"),
    "NCMPI": ("PnetCDF-Python",),
    "HDF5": ("h5py collective", "h5py independent"),
    "POSIX": ("os.pwrite",),
}
HEAD = (
    "access    bw(MiB/s)  IOPS       Latency(s)  block(KiB) xfer(KiB)  "
    "open(s)    wr/rd(s)   close(s)   total(s)   iter  peer"
)
UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def size(text: str) -> int:
    """Bytes, as IOR writes them: 256k, 1m, 2g."""
    unit = UNITS.get(text[-1:].lower(), 0)
    return int(text[:-1]) * unit if unit else int(text)


def arguments(one: argparse.ArgumentParser) -> None:
    """IOR's letters."""
    one.add_argument("-a", "--api", help=f"{', '.join(APIS)}, with commas between; all by default")
    one.add_argument("-b", "--block-size", type=size, default=1 << 20, help="bytes that a task writes per segment (1m)")
    one.add_argument("-t", "--transfer-size", type=size, default=256 << 10, help="bytes of one call (256k)")
    one.add_argument("-s", "--segments", type=int, default=1, help="number of segments (1)")
    one.add_argument("-i", "--repetitions", type=int, help="the same as --rounds")
    one.add_argument("-w", "--write-file", action="store_true", help="write (by default write and read)")
    one.add_argument("-r", "--read-file", action="store_true", help="read (by default write and read)")
    one.add_argument("-W", "--check-write", action="store_true", help="read back what was written (always done)")
    one.add_argument("-R", "--check-read", action="store_true", help="check what was read (always done)")
    one.add_argument(
        "-c", "--collective", action="store_true", help="every transfer is completed by all tasks together"
    )
    one.add_argument("-C", "--reorder", action="store_true", help="read what the next task wrote")
    one.add_argument("-e", "--fsync", action="store_true", help="sync the file to stable storage before closing")
    one.add_argument("-F", "--file-per-process", action="store_true", help="a file for each task")
    one.add_argument(
        "-g", "--barriers", action="store_true", help="wait between open, transfers and close (always done)"
    )
    one.add_argument("-k", "--keep-file", action="store_true", help="leave the last file; name it with -o")
    one.add_argument("-o", "--test-file", help="path of the file (default: in a folder of its own)")
    one.add_argument("-d", "--inter-test-delay", type=float, default=0.0, help="seconds between repetitions")
    one.add_argument("-D", "--deadline", type=float, default=0.0, help="stop transferring after that many seconds")
    one.add_argument("-z", "--random-offset", action="store_true", help="transfers in random order")
    one.add_argument("-U", "--hints-file", help="file with one hint per line: IOR_HINT__MPI__name=value, or name value")
    one.add_argument(
        "-V", "--view", action="store_true",
        help="describe a task's places once: MPI.File sets one view and transfers go one behind the other in it; "
        "pnc_vol and PnetCDF post one request of many runs; the others have no views, and do as without",
    )  # fmt: skip
    one.add_argument(
        "--compute", type=float, default=0.0, help="seconds of computing after each segment written, not counted (0)"
    )
    cached.arguments(one)


@dataclass
class _Pattern:
    """What a task transfers."""

    tasks: int
    rank: int
    segments: int
    transfers: int
    transfer: int
    order: npt.NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, int, int]:
        return (self.segments * self.tasks, self.transfers, self.transfer)

    def runs(self, rank: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """First index and extent of each of a task's blocks."""
        starts = np.zeros((self.segments, 3), np.int64)
        starts[:, 0] = np.arange(self.segments) * self.tasks + rank
        return starts, np.broadcast_to(np.array([1, self.transfers, self.transfer]), starts.shape)

    def values(self, rank: int) -> npt.NDArray[np.int8]:
        """All of a task's bytes: (segments, transfers, transfer)."""
        rows = (np.arange(self.segments) * self.tasks + rank)[:, None] * self.transfers + np.arange(self.transfers)
        return (rows[..., None] * 31 + np.arange(self.transfer)).astype(np.int8)


def run(job: Job) -> list[Result]:
    """Open, transfers and close of writing and of reading, for every peer."""
    o, comm = job.options, job.comm
    if o.repetitions:
        o.rounds = o.repetitions
    if o.block_size % o.transfer_size:
        raise SystemExit("ior: -b must be a multiple of -t")
    if o.view and (o.random_offset or o.deadline):
        raise SystemExit("ior: -V has all places in one description, in their order: not with -z, nor with -D")
    transfer = max(8, round(o.transfer_size * min(1.0, o.scale)))
    transfers = o.block_size // o.transfer_size
    order = np.array([(s, j) for s in range(o.segments) for j in range(transfers)])
    if o.random_offset:
        order = np.random.default_rng(comm.rank).permutation(order)
    pattern = _Pattern(
        1 if o.file_per_process else comm.size,
        0 if o.file_per_process else comm.rank,
        o.segments,
        transfers,
        transfer,
        order,
    )
    if o.cache:
        values = pattern.values(pattern.rank)
        rows = [s * pattern.tasks + pattern.rank for s in range(o.segments)]
        parts = [("data_var", (row, 0, 0), values[i : i + 1]) for i, row in enumerate(rows)]
        return cached.run(job, {"data_var": (pattern.shape, np.int8)}, parts)
    both = not (o.write_file or o.read_file)
    moved = (comm.size * len(order) * transfer, comm.size * len(order))
    phases: dict[str, tuple[int | None, int | None]] = {}
    for access, wanted in (("write", o.write_file or both), ("read", o.read_file or both)):
        if wanted:
            phases |= {f"{access}, total": moved, f"{access}, open": (None, None)}
            phases |= {f"{access}, transfers": moved, f"{access}, close": (None, None)}
    who = {name for api in o.api.split(",") for name in APIS[api.strip().upper()]} if o.api else None
    peers: dict[str, Callable[[RankWatch], None] | str] = {}
    from mpi4py import MPI

    for name, peer in carriers(MPI.COMM_SELF if o.file_per_process else comm, {"hints": o.hints}).items():
        if not isinstance(peer, str) and (who is None or name in who):
            peers[name] = _once(
                job, pattern, peer, [access for access in ("write", "read") if f"{access}, total" in phases]
            )
        elif who is None or name in who:
            peers[name] = str(peer)
    results = job.turns(phases, peers)
    _report(job, pattern, results, moved)
    return results


def _once(job: Job, pattern: _Pattern, peer: Carrier, accesses: list[str]) -> Callable[[RankWatch], None]:
    def do(watch: RankWatch) -> None:
        o = job.options
        base = o.test_file or os.path.join(job.folder, "testFile")
        path, theirs = base, base
        if o.file_per_process:
            path = f"{base}.{job.comm.rank:08d}"
            theirs = f"{base}.{(job.comm.rank + o.reorder) % job.comm.size:08d}"
        variables = {"data_var": (pattern.shape, np.int8)}
        time.sleep(o.inter_test_delay)
        job.clear(base)
        own_values = pattern.values(pattern.rank)
        timed = watch if "write" in accesses else RankWatch(job.comm)
        with timed("write, open"):
            peer.create(path, variables, records=True)
        with timed("write, transfers"):
            if o.view:
                peer.put_view("data_var", *pattern.runs(pattern.rank), own_values, pattern.segments * pattern.transfers)
            else:
                _transfer(
                    o, pattern, peer,
                    lambda s, j: peer.put(
                        "data_var", (s * pattern.tasks + pattern.rank, j, 0), own_values[s : s + 1, j : j + 1]
                    ),
                    computing=o.compute,
                )  # fmt: skip
            peer.flush(durable=o.fsync)
        timed.seconds["write, transfers"] -= 0.0 if o.view else o.compute * pattern.segments
        with timed("write, close"):
            peer.close()
        other = (pattern.rank + 1) % pattern.tasks if o.reorder else pattern.rank
        found = np.zeros_like(own_values)
        timed = watch if "read" in accesses else RankWatch(job.comm)
        with timed("read, open"):
            peer.open(theirs, variables)
        with timed("read, transfers"):
            if o.view:
                peer.get_view("data_var", *pattern.runs(other), found, pattern.segments * pattern.transfers)
            else:
                _transfer(
                    o, pattern, peer,
                    lambda s, j: peer.get("data_var", (s * pattern.tasks + other, j, 0), found[s : s + 1, j : j + 1]),
                )  # fmt: skip
            peer.flush()
        with timed("read, close"):
            peer.close()
        if not o.deadline:
            check(theirs, found, pattern.values(other))
        for access in accesses:
            parts = [f"{access}, {what}" for what in ("open", "transfers", "close")]
            watch.seconds[f"{access}, total"] = sum(watch.seconds[part] for part in parts)
            watch.memory[f"{access}, total"] = max(watch.memory[part] for part in parts)
        if not o.keep_file:
            # nobody reads it any more
            job.clear(base)
            if o.file_per_process:
                REAL.unlink(path)

    return do


def _transfer(
    o: argparse.Namespace, pattern: _Pattern, peer: Carrier, one: Callable[[int, int], None], *, computing: float = 0.0
) -> None:
    started = time.perf_counter()
    for i, (s, j) in enumerate(pattern.order.tolist(), 1):
        one(s, j)
        if computing and i % pattern.transfers == 0:
            time.sleep(computing)
        if o.collective:
            peer.flush()
        if o.deadline and time.perf_counter() - started > o.deadline and not o.collective:
            return


def _report(job: Job, pattern: _Pattern, results: list[Result], moved: tuple[int, int]) -> None:
    """IOR's columns, one row a peer, access and repetition; and its summary."""
    by = {result.work: result for result in results}
    nbytes, calls = moved
    job.report(HEAD)
    rates: dict[str, list[float]] = {}
    for access in ("write", "read"):
        total = by.get(f"{access}, total")
        for peer, rounds in total.seconds.items() if total else ():
            for i, spent in enumerate(rounds):
                opened, wr, closed = (
                    by[f"{access}, {what}"].seconds[peer][i] for what in ("open", "transfers", "close")
                )
                rates.setdefault(f"{access:5s} {peer}", []).append(nbytes / spent / (1 << 20))
                job.report(
                    f"{access:8s}  {nbytes / spent / (1 << 20):<9.2f}  {calls / wr:<9.2f}  "
                    f"{wr * job.comm.size / calls:<10.6f}  "
                    f"{pattern.transfers * pattern.transfer / 1024:<9.2f}  {pattern.transfer / 1024:<9.2f}  "
                    f"{opened:<9.6f}  {wr:<9.6f}  {closed:<9.6f}  {spent:<9.6f}  {i:<4d}  {peer}"
                )
    job.report(
        "\nOperation, peer                 Max(MiB)   Min(MiB)   Mean(MiB)  StdDev     "
        "Max(OPs)   Min(OPs)   Mean(OPs)  StdDev     Mean(s)"
    )
    for what, rate in rates.items():
        # a transfer is an operation, and a repetition's time is that of its bandwidth
        ops = np.array(rate) * (1 << 20) * calls / nbytes
        row = (max(rate), min(rate), np.mean(rate), np.std(rate), ops.max(), ops.min(), ops.mean(), ops.std())
        job.report(f"{what:30s}  {'  '.join(f'{x:<9.2f}' for x in row)}  {np.mean(calls / ops):<9.6f}")
    for access, word in (("write", "Write"), ("read", "Read")):
        best = max(
            (max(rate) for what, rate in rates.items() if what.split()[0] == access and what.split()[1] == "pnc_vol"),
            default=None,
        )
        if best:
            job.report(f"Max {word}: {best:.2f} MiB/sec ({best * (1 << 20) / 1e6:.2f} MB/sec) (pnc_vol)")
