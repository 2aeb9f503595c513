"""``python -m pnc_vol.bench coll_perf|ior|flash --cache DIR`` writes a file in each cycle, and computes meanwhile.

The node-local cache beside writing without it, the burst-buffer log, a cache that is never synchronised (flush_none,
E10's upper bound), and PnetCDF's burst buffer. Guarded file names defer each close to the next cycle, so that what the
sync threads do can overlap with the computing. The global file system is emulated (`testing.faults.ThrottledSystem`),
with the files themselves on tmpfs, unless ``--bandwidth 0`` declares ``--dir`` to be one; computing is sleeping, as in
E10's programs.

Every peer runs with computing, as long as the synchronisation of one cycle takes, and without.

Knows: the ways to write, and the bars that a run has to meet. Does not know: patterns, how a cache works.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import pnc_vol
from pnc_vol.bench.measure import US, Job, Stopwatch, read_back, wait_asleep
from pnc_vol.bench.peers import PncVol, Spec, nbytes_of, peer_of
from pnc_vol.system import REAL, is_folder
from pnc_vol.system.full_io import write_whole
from pnc_vol.testing.faults import ThrottledSystem

Part = tuple[str, tuple[int, ...], npt.NDArray[Any]]

NO_CACHE, LOG, NONE, LOCAL, PNETCDF = "no cache", "burst-buffer log", "flush_none", "tmpfs alone", "PnetCDF's log"
BARS = {
    "time seen for writing / tmpfs alone": 1.15,
    "non-hidden sync / sync": 0.05,
    "run / (1.1 max(compute, sync) + one cycle)": 1.0,
    "without compute: run / run without the cache": 1.10,
}
"""What a run has to meet, as a ratio at most."""


def arguments(one: argparse.ArgumentParser, *letters: str) -> None:
    """Add the options of the cycles, of which two have letters in coll_perf."""
    one.add_argument(*letters[:1], "--cycles", type=int, default=0, help="files, one after another (8 with --cache)")
    one.add_argument(*letters[1:], "--delay", type=float, default=0.0, help="seconds of computing after each file")
    one.add_argument("--cache", metavar="DIR", help="measure the node-local cache, with its files in this directory")
    one.add_argument("--bandwidth", type=float, default=200.0, help="MiB/s of the emulated file system; 0: none (200)")
    one.add_argument("--latency", type=float, default=1e-3, help="seconds of a call to it (0.001)")


class _Times(NamedTuple):
    """Seconds of one run: seen by the program for writing, in all, in sync threads, and waiting for them."""

    seen: float
    run: float
    sync: float
    waited: float


def run(job: Job, specs: Mapping[str, Spec], parts: Sequence[Part]) -> None:
    """Write files of `specs`, of which this rank writes `parts`, by every peer; the report lists which bars are
    missing."""
    o, count = job.options, job.options.cycles or 8
    if not is_folder(REAL, o.cache):
        raise SystemExit(f"--cache {o.cache}: there is no such directory")
    o.memory = False
    with job.folder(o.cache) as fast:
        peers = _peers(job, fast)
        sync = _cycles(job, peers[US], specs, parts, 0.0, 1).sync
        delay = o.delay or float(max(job.gathered(sync)))
        runs: dict[tuple[str, str], list[_Times]] = {}

        def once(peer: Any, watch: Stopwatch) -> None:
            for how, seconds in (("with", delay), ("without", 0.0)):
                spent = _cycles(job, peer, specs, parts, seconds, count)
                runs.setdefault((peer.name, how), []).append(spent)
                watch.seconds |= {f"seen, {how} compute": spent.seen, f"run, {how} compute": spent.run}

        nbytes = nbytes_of(specs) * count
        phases = [f"{what}, {how} compute" for how in ("with", "without") for what in ("seen", "run")]
        job.turns(dict.fromkeys(phases, (nbytes, None)), peers, once)
    where = f"emulated, {o.bandwidth:g} MiB/s, {o.latency:g} s a call" if o.bandwidth else job.home
    job.report(f"{count} files of {nbytes / count / 2**20:.1f} MiB; global file system: {where}; cache: {o.cache}")
    job.report(f"computing after each file: {delay:.3f} s, in all {delay * count:.3f} s")
    _report(job, delay * count, count, nbytes, [(name, how) for name in peers for how in ("with", "without")], runs)


def _peers(job: Job, fast: str) -> dict[str, Any]:
    """Return peers by name; for one that cannot be had, the reason."""
    o, emulated = job.options, {}
    guards, slow = os.path.join(fast, "guards.json"), os.path.join(fast, "global") if o.bandwidth else job.home
    if job.comm.rank == 0:
        write_whole(REAL, guards, b'{"Guardnames": "cycle_"}')
        if o.bandwidth:
            REAL.mkdir(slow)
    wait_asleep(job.comm)
    if o.bandwidth:
        clock = os.path.join(fast, "clock")
        emulated["system"] = ThrottledSystem(slow, bandwidth=o.bandwidth * 2**20, latency=o.latency, shared=clock)
    cache = {"e10_cache": "enable", "e10_cache_path": fast, **o.hints}
    log = {"nc_burst_buf": "enable", "nc_burst_buf_dirname": fast, **o.hints}
    ways: dict[str, tuple[str, Mapping[str, Any]]] = {
        US: ("cache | mpio", cache),
        NO_CACHE: ("mpio", o.hints),
        LOG: ("mpio", log),
        NONE: ("cache | mpio", {**cache, "e10_cache_flush_flag": "flush_none"}),
        LOCAL: ("mpio", o.hints),
    }
    found: dict[str, Any] = {}
    for name, (driver, hints) in ways.items():
        how = {"driver": driver, "hints": hints, "hints_file": guards, **({} if name == LOCAL else emulated)}
        found[name] = peer_of("pnc_vol", name, job.comm, **how)
        found[name].place = fast if name == LOCAL else slow
    if o.bandwidth:
        found[PNETCDF] = "it writes past the emulated file system; see --bandwidth 0"
    else:
        from mpi4py.MPI import Info

        found[PNETCDF] = peer_of("PnetCDF-Python", PNETCDF, job.comm, info=Info.Create(log))
        if not isinstance(found[PNETCDF], str):
            found[PNETCDF].place = slow
    return found


def _cycles(job: Job, peer: Any, specs: Mapping[str, Spec], parts: Sequence[Part], delay: float, count: int) -> _Times:
    """Write a file in each cycle; the last one is read back."""
    sessions, seen = [], 0.0
    with job.folder(peer.place) as folder:
        wait_asleep(job.comm)
        began = time.perf_counter()
        for i in range(count):
            peer.path = os.path.join(folder, f"cycle_{i}.nc")
            start = time.perf_counter()
            peer.create(specs)
            for name, at, values in parts:
                peer.move("write", name, at, values)
            if isinstance(peer, PncVol):
                # it has the statistics of the cache after the close
                sessions.append(peer.file.id.handle.session)
            peer.close()
            seen += time.perf_counter() - start
            time.sleep(delay)
        pnc_vol.finalize(job.comm)
        spent = time.perf_counter() - began
        if peer.name != NONE:
            reader = peer_of("pnc_vol", comm=job.comm)
            reader.path = peer.path
            read_back(reader, parts)
        wait_asleep(job.comm)
    counts = [session.statistics()["driver"] for session in sessions]
    whats = ("sync", "non_hidden_sync", "waiting")
    sync, late, waiting = (sum(one.get(f"cache.{what}_seconds", 0.0) for one in counts) for what in whats)
    return _Times(seen, spent, sync, late + waiting)


def _report(
    job: Job, compute: float, count: int, nbytes: int, order: Sequence[tuple[str, str]],
    runs: Mapping[tuple[str, str], list[_Times]],
) -> None:  # fmt: skip
    """Report bandwidths, what was hidden, and the bars; all ranks take part."""
    job.report(f"{'peer':18s} {'write MiB/s':>12s} {'seen s':>9s} {'run s':>9s} {'sync s':>9s} {'not hidden s':>13s}")
    found: dict[tuple[str, str], _Times] = {}
    for name, how in order:
        if (name, how) in runs:
            # medians of rounds, of each the slowest rank
            slowest = np.max(job.gathered(runs[name, how]), axis=0)
            one = found[name, how] = _Times(*np.median(slowest, axis=0).tolist())
            label, speed = name if how == "with" else "  no compute", nbytes / 2**20 / one.seen if one.seen else 0.0
            job.report(f"{label:18s} {speed:12.1f} {one.seen:9.3f} {one.run:9.3f} {one.sync:9.3f} {one.waited:13.3f}")
    if not {(name, "with") for name in (US, NO_CACHE, LOCAL)} <= set(found):
        return
    busy = found[US, "with"]
    ratios = (
        busy.seen / found[LOCAL, "with"].seen,
        busy.waited / busy.sync if busy.sync else 0.0,
        busy.run / (1.1 * max(compute, busy.sync) + (busy.seen + compute) / count),
        found[US, "without"].run / found[NO_CACHE, "without"].run,
    )
    for (bar, most), ratio in zip(BARS.items(), ratios, strict=True):
        job.report(f"{'met' if ratio <= most else 'NOT met'}: {bar} = {ratio:.3f}, at most {most:g}")
