"""``python -m pnc_vol.bench coll_perf|ior|flash --cache DIR``: a file in each cycle, then a time of computing.

The node-local cache beside writing without it, the burst-buffer log, a cache that is never synchronised (flush_none,
E10's upper bound), and PnetCDF's burst buffer. Guarded file names defer each close to the next cycle, so that what the
sync threads do can overlap with the computing. The global file system is emulated (`throttled`), with the files
themselves on tmpfs, unless ``--bandwidth 0`` declares ``--dir`` to be one; computing is sleeping, as in E10's programs.

Every peer runs with computing, as long as the synchronisation of one cycle takes, and without.

Knows: the peers, and the bars that a run has to meet. Does not know: patterns, how a cache works.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

import pnc_vol
from pnc_vol.bench.carriers import PnetCDFCarrier, index_of, nbytes_of
from pnc_vol.bench.measure import US, Result
from pnc_vol.bench.peers import load
from pnc_vol.bench.ranks import Job, RankWatch, wait_asleep
from pnc_vol.bench.serial import check
from pnc_vol.bench.throttled import ThrottledSystem
from pnc_vol.system import REAL, is_folder, temporary_directory
from pnc_vol.system.full_io import write_whole

__all__ = ["BARS", "arguments", "bars", "run"]

Array = npt.NDArray[Any]
Part = tuple[str, tuple[int, ...], Array]

NO_CACHE, LOG, NONE, LOCAL, PNETCDF = "no cache", "burst-buffer log", "flush_none", "tmpfs alone", "PnetCDF's log"
BARS = {
    "time seen for writing / tmpfs alone": 1.15,
    "non-hidden sync / sync": 0.05,
    "run / (1.1 max(compute, sync) + one cycle)": 1.0,
    "without compute: run / run without the cache": 1.10,
}
"""What a run has to meet, as a ratio at most."""


def arguments(one: argparse.ArgumentParser, *, cycles: bool = True) -> None:
    """The options of the cycles; without `cycles` for programs that have those two already."""
    if cycles:
        one.add_argument("--cycles", type=int, default=0, help="with --cache: files, one after another (8)")
        one.add_argument("--delay", type=float, default=0.0, help="with --cache: seconds of computing after each file")
    one.add_argument("--cache", metavar="DIR", help="measure the node-local cache, with its files in this directory")
    one.add_argument("--bandwidth", type=float, default=200.0, help="MiB/s of the emulated file system; 0: none (200)")
    one.add_argument("--latency", type=float, default=1e-3, help="seconds of a call to it (0.001)")
    one.add_argument("--threads", type=int, default=1, help="e10_cache_threads (1)")
    one.add_argument(
        "--trace", metavar="FILE.json", help="with --cache: timelines of the last file, for pnc-vol profile"
    )


@dataclass
class _Times:
    """Seconds of one run of a peer on this rank.

    sync, waited : in sync threads, and waiting for them.
    """

    seen: float = 0.0
    run: float = 0.0
    sync: float = 0.0
    waited: float = 0.0
    sessions: list[Any] = field(default_factory=list)


class _CachePeer:
    """One way of writing the files of all cycles."""

    def __init__(self, cases: _Cases, *, slow: bool = True, verify: bool = True, **options: Any) -> None:
        self.cases, self.slow, self.verify, self.options = cases, slow, verify, options

    def write(self, path: str) -> Any:
        """One file, from open to close; its session, which has the statistics of the cache."""
        cases = self.cases
        options: dict[str, Any] = {"system": cases.system} if self.slow and cases.system is not None else {}
        with pnc_vol.File(path, "w", comm=cases.job.comm, hints_file=cases.guards, **{**options, **self.options}) as f:
            made = {name: f.create_dataset(name, shape, dtype) for name, (shape, dtype) in cases.variables.items()}
            for name, at, values in cases.parts:
                if values.size:
                    made[name][index_of(at, values.shape)] = values
            return f.id.handle.session

    def run(self, delay: float) -> _Times:
        """All cycles, with a time of computing after each one."""
        cases, times = self.cases, _Times()
        folder = cases.slow if self.slow else cases.fast
        paths = [os.path.join(folder, f"cycle_{i}.nc") for i in range(cases.cycles)]
        for path in paths:
            cases.job.clear(path)
        wait_asleep(cases.job.comm)
        began = time.perf_counter()
        for path in paths:
            start = time.perf_counter()
            session = self.write(path)
            if session is not None:
                times.sessions.append(session)
            times.seen += time.perf_counter() - start
            time.sleep(delay)
        pnc_vol.finalize(cases.job.comm)
        times.run = time.perf_counter() - began
        for session in times.sessions:
            counts = session.statistics()["driver"]
            times.sync += counts.get("cache.sync_seconds", 0.0)
            times.waited += counts.get("cache.non_hidden_sync_seconds", 0.0) + counts.get("cache.waiting_seconds", 0.0)
        times.sessions.clear()
        if self.verify:
            cases.check(paths[-1])
        for path in paths:
            cases.job.clear(path)
        return times


class _PnetcdfPeer(_CachePeer):
    """PnetCDF's own log, by PnetCDF-Python; it writes to the file system itself."""

    def write(self, path: str) -> Any:
        from mpi4py import MPI

        cases = self.cases
        info = MPI.Info.Create(self.options["hints"])
        carrier = PnetCDFCarrier(cases.job.comm, self.options["module"], info=info)
        carrier.create(path, cases.variables)
        for name, at, values in cases.parts:
            carrier.put(name, at, values)
        carrier.flush()
        carrier.close()


class _Cases:
    """What every peer writes, and where."""

    def __init__(self, job: Job, variables: Mapping[str, Any], parts: Sequence[Part]) -> None:
        o = job.options
        self.job, self.variables, self.parts = job, variables, parts
        self.cycles = o.cycles or 8
        if not is_folder(REAL, o.cache):
            raise SystemExit(f"--cache {o.cache}: there is no such directory")
        self._removed = ExitStack()
        made = self._removed.enter_context(temporary_directory(o.cache)) if job.comm.rank == 0 else None
        self.fast = job.comm.bcast(made)
        self.slow = os.path.join(self.fast, "global") if o.bandwidth else job.folder
        self.guards = os.path.join(self.fast, "guards.json")
        if job.comm.rank == 0:
            write_whole(REAL, self.guards, b'{"Guardnames": "cycle_"}')
            if o.bandwidth:
                REAL.mkdir(self.slow)
        wait_asleep(job.comm)
        self.system: ThrottledSystem | None = None
        if o.bandwidth:
            shared = os.path.join(self.fast, "clock")
            self.system = ThrottledSystem(
                self.slow, bandwidth=o.bandwidth * 2**20, latency=o.latency, shared=shared
            )  # fmt: skip

    def peers(self) -> dict[str, _CachePeer | str]:
        """By name; for one that cannot be had, the reason."""
        o = self.job.options
        cache = {"e10_cache": "enable", "e10_cache_path": self.fast, "e10_cache_threads": o.threads, **o.hints}
        wraps = f"trace(file={o.trace!r}) | cache | mpio" if o.trace else "cache | mpio"
        log = {"nc_burst_buf": "enable", "nc_burst_buf_dirname": self.fast, **o.hints}
        module = load("pnetcdf")
        theirs: _CachePeer | str = module if isinstance(module, str) else _PnetcdfPeer(self, module=module, hints=log)
        if o.bandwidth and not isinstance(theirs, str):
            theirs = "it writes past the emulated file system; see --bandwidth 0"
        return {
            US: _CachePeer(self, driver=wraps, hints=cache),
            NO_CACHE: _CachePeer(self, driver="mpio", hints=o.hints),
            LOG: _CachePeer(self, driver="mpio", hints=log),
            NONE: _CachePeer(
                self, driver="cache | mpio", hints={**cache, "e10_cache_flush_flag": "flush_none"}, verify=False
            ),
            PNETCDF: theirs,
            LOCAL: _CachePeer(self, slow=False, driver="mpio", hints=o.hints),
        }  # fmt: skip

    def check(self, path: str) -> None:
        """Every rank reads its parts back."""
        with pnc_vol.File(path, "r", comm=self.job.comm) as f:
            for name, at, values in self.parts:
                if values.size:
                    found = f[name][index_of(at, values.shape)]
                    check(f"{path}, {name}", found, values)

    def clear(self) -> None:
        """Remove all that was made."""
        wait_asleep(self.job.comm)
        self._removed.close()


def run(job: Job, variables: Mapping[str, Any], parts: Sequence[Part]) -> list[Result]:
    """Files of `variables`, of which this rank writes `parts`, by every peer; the report lists which bars are met."""
    cases = _Cases(job, variables, parts)
    try:
        peers = cases.peers()
        cache = peers[US]
        assert isinstance(cache, _CachePeer)
        delay = job.options.delay or _sync_of_a_cycle(job, cache)
        nbytes = nbytes_of(cases.variables) * cases.cycles
        phases: dict[str, tuple[int | None, int | None]] = {
            f"{what}, {how} compute": (nbytes, None) for how in ("with", "without") for what in ("seen", "run")
        }
        runs_of: dict[str, dict[str, list[_Times]]] = {name: {"with": [], "without": []} for name in peers}
        works = {name: p if isinstance(p, str) else _work(p, delay, runs_of[name]) for name, p in peers.items()}
        job.options.memory = False
        results = job.turns(phases, works)
        _report(job, cases, delay, runs_of)
        return results
    finally:
        cases.clear()


def _sync_of_a_cycle(job: Job, peer: _CachePeer) -> float:
    """Seconds that the sync threads of the slowest rank take for one file."""
    cycles, peer.cases.cycles = peer.cases.cycles, 1
    times = peer.run(0.0)
    peer.cases.cycles = cycles
    return float(max(job.comm.allgather(times.sync)))


def _work(peer: _CachePeer, delay: float, runs_of: dict[str, list[_Times]]) -> Callable[[RankWatch], None]:
    def do(watch: RankWatch) -> None:
        for how, seconds in (("with", delay), ("without", 0.0)):
            one = peer.run(seconds)
            runs_of[how].append(one)
            for what in ("seen", "run"):
                watch.seconds[f"{what}, {how} compute"] = getattr(one, what)

    return do


def _report(job: Job, cases: _Cases, delay: float, runs_of: dict[str, dict[str, list[_Times]]]) -> None:
    """Bandwidths, what was hidden, and the bars; all ranks take part."""
    o, total = job.options, nbytes_of(cases.variables) * cases.cycles / 2**20
    median = {
        name: {how: _median(job, runs[how]) for how in runs} for name, runs in runs_of.items() if runs["with"]
    }  # fmt: skip
    where = f"emulated, {o.bandwidth:g} MiB/s, {o.latency:g} s a call" if o.bandwidth else cases.slow
    size = f"{nbytes_of(cases.variables) / 2**20:.1f} MiB"
    job.report(f"{cases.cycles} files of {size}; global file system: {where}; cache: {o.cache}")
    job.report(f"computing after each file: {delay:.3f} s, in all {delay * cases.cycles:.3f} s")
    job.report(f"{'peer':18s} {'write MiB/s':>12s} {'seen s':>9s} {'run s':>9s} {'sync s':>9s} {'not hidden s':>13s}")
    for name, by in median.items():
        for how in ("with", "without"):
            one = by[how]
            label = name if how == "with" else "  no compute"
            speed = total / one.seen if one.seen else 0.0
            job.report(
                f"{label:18s} {speed:12.1f} {one.seen:9.3f} {one.run:9.3f} {one.sync:9.3f} {one.waited:13.3f}"
            )  # fmt: skip
    if {US, NO_CACHE, LOCAL} <= set(median):
        ratios = bars(median[US], median[NO_CACHE], median[LOCAL], delay * cases.cycles, cases.cycles)
        for bar, ratio in ratios.items():
            job.report(f"{'met' if ratio <= BARS[bar] else 'NOT met'}: {bar} = {ratio:.3f}, at most {BARS[bar]:g}")


def bars(
    cache: Mapping[str, _Times], direct: Mapping[str, _Times], local: Mapping[str, _Times], compute: float, cycles: int
) -> dict[str, float]:
    """The ratio of each bar.

    Parameters
    ----------
    cache, direct, local : mapping of "with" and "without" (computing) to what was seen
        With the cache, without it, and on the device of the cache alone.
    compute : float, seconds of computing in all.
    """
    busy = cache["with"]
    one_cycle = (busy.seen + compute) / cycles
    values = (
        busy.seen / local["with"].seen,
        busy.waited / busy.sync if busy.sync else 0.0,
        busy.run / (1.1 * max(compute, busy.sync) + one_cycle),
        cache["without"].run / direct["without"].run,
    )
    return dict(zip(BARS, values, strict=True))


def _median(job: Job, runs: list[_Times]) -> _Times:
    """The medians of rounds, of each the slowest rank."""
    own_times = [(one.seen, one.run, one.sync, one.waited) for one in runs]
    slowest = np.max(job.comm.allgather(own_times), axis=0)
    return _Times(*np.median(slowest, axis=0).tolist())
