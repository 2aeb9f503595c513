"""``python -m pnc_vol.bench coll_perf|ior|flash --cache DIR`` writes a file in each cycle, and computes meanwhile.

The node-local cache beside writing without it, the burst-buffer log, a cache that is never synchronised (flush_none,
E10's upper bound), and PnetCDF's burst buffer. Guarded file names defer each close to the next cycle, so that what the
sync threads do can overlap with the computing. The global file system is emulated (`throttled`), with the files
themselves on tmpfs, unless ``--bandwidth 0`` declares ``--dir`` to be one; computing is sleeping, as in E10's programs.

Every peer runs with computing, as long as the synchronisation of one cycle takes, and without.

Knows: the ways to write, and the bars that a run has to meet. Does not know: patterns, how a cache works.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import pnc_vol
from pnc_vol.bench.measure import US, Phases, Result, check
from pnc_vol.bench.peers import PncVol, PnetCDF, Spec, load, nbytes_of
from pnc_vol.bench.ranks import Job, RankWatch, wait_asleep
from pnc_vol.bench.throttled import ThrottledSystem
from pnc_vol.system import REAL, is_folder, temporary_directory
from pnc_vol.system.full_io import write_whole

__all__ = ["arguments", "run"]

Part = tuple[str, tuple[int, ...], npt.NDArray[Any]]

NO_CACHE, LOG, NONE, LOCAL, PNETCDF = "no cache", "burst-buffer log", "flush_none", "tmpfs alone", "PnetCDF's log"
BARS = {
    "time seen for writing / tmpfs alone": 1.15,
    "non-hidden sync / sync": 0.05,
    "run / (1.1 max(compute, sync) + one cycle)": 1.0,
    "without compute: run / run without the cache": 1.10,
}
"""What a run has to meet, as a ratio at most."""


def arguments(one: argparse.ArgumentParser, *, cycles: bool = True) -> None:
    """Add the options of the cycles; without `cycles` for programs that have those two already."""
    if cycles:
        one.add_argument("--cycles", type=int, default=0, help="with --cache: files, one after another (8)")
        one.add_argument("--delay", type=float, default=0.0, help="with --cache: seconds of computing after each file")
    one.add_argument("--cache", metavar="DIR", help="measure the node-local cache, with its files in this directory")
    one.add_argument("--bandwidth", type=float, default=200.0, help="MiB/s of the emulated file system; 0: none (200)")
    one.add_argument("--latency", type=float, default=1e-3, help="seconds of a call to it (0.001)")
    one.add_argument("--threads", type=int, default=1, help="e10_cache_threads (1)")
    about = "with --cache: timelines of the last file, for pnc-vol profile"
    one.add_argument("--trace", metavar="FILE.json", help=about)


class _Times(NamedTuple):
    """Seconds of one run: seen by the program for writing, in all, in sync threads, and waiting for them."""

    seen: float
    run: float
    sync: float
    waited: float


class _Cycles:
    """The files of all cycles, and where they are."""

    def __init__(self, job: Job, specs: Mapping[str, Spec], parts: Sequence[Part], removed: ExitStack) -> None:
        o = self.options = job.options
        self.job, self.specs, self.parts, self.count = job, specs, parts, o.cycles or 8
        if not is_folder(REAL, o.cache):
            raise SystemExit(f"--cache {o.cache}: there is no such directory")
        made = removed.enter_context(temporary_directory(o.cache)) if job.comm.rank == 0 else None
        self.fast = job.comm.bcast(made)
        self.slow = os.path.join(self.fast, "global") if o.bandwidth else job.folder
        self.guards = os.path.join(self.fast, "guards.json")
        if job.comm.rank == 0:
            write_whole(REAL, self.guards, b'{"Guardnames": "cycle_"}')
            if o.bandwidth:
                REAL.mkdir(self.slow)
        wait_asleep(job.comm)
        self.system: dict[str, Any] = {}
        if o.bandwidth:
            shared = os.path.join(self.fast, "clock")
            slow = ThrottledSystem(self.slow, bandwidth=o.bandwidth * 2**20, latency=o.latency, shared=shared)
            self.system = {"system": slow}

    def peers(self) -> dict[str, Any]:
        """Return peers by name; for one that cannot be had, the reason."""
        o = self.options
        cache = {"e10_cache": "enable", "e10_cache_path": self.fast, "e10_cache_threads": o.threads, **o.hints}
        wraps = f"trace(file={o.trace!r}) | cache | mpio" if o.trace else "cache | mpio"
        log = {"nc_burst_buf": "enable", "nc_burst_buf_dirname": self.fast, **o.hints}
        theirs = load("pnetcdf")
        if o.bandwidth and not isinstance(theirs, str):
            theirs = "it writes past the emulated file system; see --bandwidth 0"
        elif not isinstance(theirs, str):
            from mpi4py import MPI

            theirs = PnetCDF(PNETCDF, theirs, self.slow, self.job.comm, info=MPI.Info.Create(log))

        def ours(name: str, driver: str, hints: Mapping[str, Any]) -> PncVol:
            here = {} if name == LOCAL else self.system
            how = {"driver": driver, "hints": hints, "hints_file": self.guards, **here}
            return PncVol(name, pnc_vol, self.fast if name == LOCAL else self.slow, self.job.comm, **how)

        return {
            US: ours(US, wraps, cache),
            NO_CACHE: ours(NO_CACHE, "mpio", o.hints),
            LOG: ours(LOG, "mpio", log),
            NONE: ours(NONE, "cache | mpio", {**cache, "e10_cache_flush_flag": "flush_none"}),
            PNETCDF: theirs,
            LOCAL: ours(LOCAL, "mpio", o.hints),
        }

    def run(self, peer: Any, delay: float, count: int) -> _Times:
        """Write files of `specs`, of which this rank writes `parts`, by every peer; the report lists which bars are
        missing."""
        comm, sessions, seen = self.job.comm, [], 0.0
        paths = [os.path.join(peer.folder, f"cycle_{i}.nc") for i in range(count)]
        for path in paths:
            self.job.clear(path)
        wait_asleep(comm)
        began = time.perf_counter()
        for peer.path in paths:
            start = time.perf_counter()
            peer.create(self.specs)
            for name, at, values in self.parts:
                peer.write(name, at, values)
            if isinstance(peer, PncVol):
                # it has the statistics of the cache after the close
                sessions.append(peer.file.id.handle.session)
            peer.close()
            seen += time.perf_counter() - start
            time.sleep(delay)
        pnc_vol.finalize(comm)
        spent = time.perf_counter() - began
        counts = [session.statistics()["driver"] for session in sessions]
        sync, late, waiting = (
            sum(one.get(f"cache.{what}_seconds", 0.0) for one in counts)
            for what in ("sync", "non_hidden_sync", "waiting")
        )
        if peer.name != NONE:
            self.check(paths[-1])
        for path in paths:
            self.job.clear(path)
        return _Times(seen, spent, sync, late + waiting)

    def check(self, path: str) -> None:
        """Every rank reads its parts back."""
        reader = PncVol("check", pnc_vol, comm=self.job.comm)
        reader.path = path
        reader.open()
        found = [np.empty_like(values) for _, _, values in self.parts]
        for (name, at, _), out in zip(self.parts, found, strict=True):
            reader.read(name, at, out)
        reader.flush()
        reader.close()
        for (name, _, values), out in zip(self.parts, found, strict=True):
            check(f"{path}, {name}", out, values)


def run(job: Job, specs: Mapping[str, Spec], parts: Sequence[Part]) -> list[Result]:
    """Write files of `specs`, of which this rank writes `parts`, by every peer; the report lists which bars are
    missing."""
    with ExitStack() as removed:
        # the folder goes when nobody is in it any more
        cycles = _Cycles(job, specs, parts, removed)
        removed.callback(partial(wait_asleep, job.comm))
        peers = cycles.peers()
        sync = cycles.run(peers[US], 0.0, 1).sync
        delay = job.options.delay or float(max(job.comm.allgather(sync)))
        nbytes = nbytes_of(specs) * cycles.count
        whats = [f"{what}, {how} compute" for how in ("with", "without") for what in ("seen", "run")]
        runs: dict[str, dict[str, list[_Times]]] = {}

        def once(peer: Any, watch: RankWatch) -> None:
            for how, seconds in (("with", delay), ("without", 0.0)):
                times = cycles.run(peer, seconds, cycles.count)
                runs.setdefault(peer.name, {}).setdefault(how, []).append(times)
                watch.seconds |= {f"seen, {how} compute": times.seen, f"run, {how} compute": times.run}

        phases: Phases = dict.fromkeys(whats, (nbytes, None))
        job.options.memory = False
        results = job.turns(phases, peers, once)
        _report(job, cycles, delay, nbytes, {name: runs[name] for name in peers if name in runs})
        return results


def _report(job: Job, cycles: _Cycles, delay: float, nbytes: int, runs: Mapping[str, Mapping[str, Any]]) -> None:
    """Report bandwidths, what was hidden, and the bars; all ranks take part."""
    o, compute = job.options, delay * cycles.count
    where = f"emulated, {o.bandwidth:g} MiB/s, {o.latency:g} s a call" if o.bandwidth else cycles.slow
    size = f"{nbytes / cycles.count / 2**20:.1f} MiB"
    job.report(f"{cycles.count} files of {size}; global file system: {where}; cache: {o.cache}")
    job.report(f"computing after each file: {delay:.3f} s, in all {compute:.3f} s")
    job.report(f"{'peer':18s} {'write MiB/s':>12s} {'seen s':>9s} {'run s':>9s} {'sync s':>9s} {'not hidden s':>13s}")
    # medians of rounds, of each the slowest rank
    found = {
        (name, how): _Times(*np.median(np.max(job.comm.allgather(times), axis=0), axis=0).tolist())
        for name, by in runs.items()
        for how, times in by.items()
    }
    for (name, how), one in found.items():
        label, speed = name if how == "with" else "  no compute", nbytes / 2**20 / one.seen if one.seen else 0.0
        job.report(f"{label:18s} {speed:12.1f} {one.seen:9.3f} {one.run:9.3f} {one.sync:9.3f} {one.waited:13.3f}")
    if not {US, NO_CACHE, LOCAL} <= set(runs):
        return
    busy = found[US, "with"]
    ratios = (
        busy.seen / found[LOCAL, "with"].seen,
        busy.waited / busy.sync if busy.sync else 0.0,
        busy.run / (1.1 * max(compute, busy.sync) + (busy.seen + compute) / cycles.count),
        found[US, "without"].run / found[NO_CACHE, "without"].run,
    )
    for (bar, most), ratio in zip(BARS.items(), ratios, strict=True):
        job.report(f"{'met' if ratio <= most else 'NOT met'}: {bar} = {ratio:.3f}, at most {most:g}")
