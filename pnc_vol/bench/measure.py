"""A benchmark measures peers in turns: rounds, medians, ratios, peak memory; works of one process.

Knows: clocks, the memory of this process, what a benchmark of one process is made of. Does not know: any library, MPI,
how results are shown.

Rules
-----
1. Peers take turns within a round, and each round begins with another one, so that what else the machine does falls on
   all of them alike.
2. A ratio is a peer's median over pnc_vol's, from the same run: above 1, pnc_vol is faster.
3. A work prepares outside of ``with watch(phase):``, is timed inside, and checks what was written or read outside.
4. A peer that takes more than `PATIENCE` seconds for one piece of work gets one round, and the table has a note.
5. Peak memory is the growth of the resident set during the timed part, by the kernel's high-water mark, which is set
   back before it. Memory that a process freed and uses again does not show: works of one process are run once more in
   a fresh process each (`main`).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import pnc_vol
from pnc_vol.drivers import block_copy
from pnc_vol.system import REAL, exists, temporary_directory

__all__ = [
    "PATIENCE", "US", "Bench", "Phases", "Result", "Stopwatch", "Work", "check", "clear", "copy_file", "results_of",
    "run_works", "take_turns", "times", "warm_up",
]  # fmt: skip

Array = npt.NDArray[Any]
Phases = Mapping[str, tuple[int | None, int | None]]
"""Of each phase, bytes of elements that it moves, and calls that a user makes; None where there is no such number."""

US = "pnc_vol"
PATIENCE = 30.0


@dataclass(slots=True)
class Result:
    """Seconds of one piece of work, by peer and round; an empty list for a peer that was left out.

    notes : by peer, why it was left out, or what else is to be known.
    nbytes, requests : what the work is: bytes of elements, and calls that a user makes.
    memory : by peer, bytes of peak memory over the start.
    quickest : by peer and round, seconds of the rank that took least, where there are many; `seconds` is the slowest's.
    """

    work: str
    seconds: dict[str, list[float]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    nbytes: int | None = None
    requests: int | None = None
    memory: dict[str, int] = field(default_factory=dict)
    quickest: dict[str, list[float]] = field(default_factory=dict)

    def median(self, peer: str) -> float | None:
        """Return seconds."""
        found = self.seconds.get(peer)
        return statistics.median(found) if found else None

    def first(self, peer: str) -> float | None:
        """Return seconds of the first round, which alone a program meets that does the work once."""
        found = self.seconds.get(peer)
        return found[0] if found else None

    def least(self, peer: str) -> float | None:
        """Return seconds of the rank that took least, of its median round."""
        found = self.quickest.get(peer)
        return statistics.median(found) if found else None

    def ratio(self, peer: str) -> float | None:
        """Return how many times as long as pnc_vol the peer took."""
        theirs, ours = self.median(peer), self.median(US)
        return theirs / ours if theirs is not None and ours else None


class Stopwatch:
    """Takes the time and the peak memory of named phases; a phase entered again adds up.

    Parameters
    ----------
    trim : bool
        Give memory that was freed back to the system before each phase, so that its use again shows. Costs time.

    Examples
    --------
    >>> watch = Stopwatch()
    >>> with watch("sum"):
    ...     _ = sum(range(1000))
    >>> list(watch.seconds)
    ['sum']
    """

    def __init__(self, *, trim: bool = False) -> None:
        self.seconds: dict[str, float] = {}
        self.memory: dict[str, int] = {}
        self._trim = trim

    @contextlib.contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        # Once for a phase: with all peers loaded a collection takes 50 ms, and the life of a small file 1. During the
        # phase the collector stays on, as users have it: what a library makes it look through is part of its cost.
        if phase not in self.seconds:
            gc.collect()
        if self._trim:
            _give_back()
        before = _reset_peak()
        started = time.perf_counter()
        yield
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - started
        self.memory[phase] = max(self.memory.get(phase, 0), memory_now() - before)


def warm_up() -> None:
    """Load what pnc_vol loads with its first file: the modules of other libraries are loaded by now, too."""
    with pnc_vol.File("warm up", "w", driver="memory") as f:
        f["x"] = [1]


def _give_back() -> None:
    """Have the C library return what it keeps for later; where it cannot, peak memory is too small."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _reset_peak() -> int:
    """Set the high-water mark back to what is resident now, where the system can; bytes."""
    with contextlib.suppress(OSError):
        fd = REAL.open("/proc/self/clear_refs", os.O_WRONLY)
        try:
            REAL.pwrite(fd, b"5", 0)
        finally:
            REAL.close(fd)
    return memory_now()


def memory_now() -> int:
    """Return the high-water mark of the resident set of this process; bytes."""
    with contextlib.suppress(OSError, ValueError):
        fd = REAL.open("/proc/self/status", os.O_RDONLY)
        try:
            buffer = bytearray(1 << 14)
            text = bytes(buffer[: REAL.pread_into(fd, buffer, 0)])
        finally:
            REAL.close(fd)
        for line in text.splitlines():
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1 << 10)


def results_of(phases: Phases, peers: Mapping[str, Any]) -> dict[str, Result]:
    """Make a result without rounds for each phase; a peer that is a text is noted as the reason why it has no part."""
    notes = {name: peer for name, peer in peers.items() if isinstance(peer, str)}
    return {
        phase: Result(phase, {name: [] for name in peers}, dict(notes), *amounts) for phase, amounts in phases.items()
    }


def take_turns(
    peers: Mapping[str, Callable[[], Mapping[str, float]]], rounds: int, results: Mapping[str, Result]
) -> None:
    """Run each peer's work `rounds` times, in turns, and add the seconds of each phase to the results.

    Parameters
    ----------
    peers : mapping of peer to function
        Does the work once; returns the seconds of each phase.
    rounds : int
    results : mapping of phase to Result
    """
    names, slow = list(peers), set()
    for turn in range(rounds):
        first = turn % max(1, len(names))
        for peer in names[first:] + names[:first]:
            if peer in slow:
                continue
            seconds = peers[peer]()
            for phase, spent in seconds.items():
                results[phase].seconds[peer].append(spent)
            if rounds > 1 and max(seconds.values(), default=0.0) > PATIENCE:
                slow.add(peer)
                for phase in seconds:
                    results[phase].notes[peer] = f"1 round: it takes more than {PATIENCE:g} s"


@dataclass(frozen=True)
class Work:
    """A piece of work that each peer does in this process.

    run : takes a peer and a watch; enters the phases.
    without : by phase, the peers that have no part in it, and why; one that has none in any phase is not run.
    slow : by peer, why it takes minutes; left out of quick runs.
    hopeless : those of `slow` that are left out always.
    """

    phases: Phases
    run: Callable[[Any, Stopwatch], None]
    without: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    slow: Mapping[str, str] = field(default_factory=dict)
    hopeless: frozenset[str] = frozenset()


class Bench(NamedTuple):
    """A benchmark of one process.

    peers : takes a folder; returns peers by name, or for one that cannot be had the reason.
    works : takes the fraction of the real size.
    """

    peers: Callable[[str], Mapping[str, Any]]
    works: Callable[[float], list[Work]]


def times(scale: float, count: int, *, least: int = 2) -> int:
    """Return `count` scaled, at least `least`."""
    return max(least, round(count * scale))


def clear(path: str) -> None:
    """Remove the file at `path`, so that a new one is written, and not an old one overwritten."""
    if exists(REAL, path):
        REAL.unlink(path)


def copy_file(source: str, target: str, *, durable: bool = False) -> None:
    """Copy a file as ``cp`` does it."""
    fd = REAL.open(source, os.O_RDONLY)
    out = REAL.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        block_copy.copy_file(REAL, fd, out)
        if durable:
            REAL.fsync(out)
    finally:
        REAL.close(out)
        REAL.close(fd)


def check(what: str, found: Any, values: Array) -> None:
    """Raise AssertionError unless a peer read what was written."""
    found = np.asarray(found)
    if found.size != values.size or not np.array_equal(found.reshape(values.shape), values):
        raise AssertionError(f"{what} does not hold what was written to it")


def run_works(module: str, options: Any) -> list[Result]:
    """Measure the works of a benchmark of one process; one result a phase.

    Parameters
    ----------
    module : str, that has ``BENCHES``.
    options : of the command line: name, scale, rounds, dir, quick, memory, only.
    """
    bench: Bench = importlib.import_module(module).BENCHES[options.name]
    results: list[Result] = []
    with temporary_directory(options.dir) as folder, warnings.catch_warnings():
        # what peers warn about (open memory maps, types) says nothing about their speed
        warnings.simplefilter("ignore")
        warm_up()
        peers = bench.peers(folder)
        for number, work in enumerate(bench.works(options.scale)):
            if not any(options.only in phase for phase in work.phases):
                continue
            left_out = work.slow if options.quick else {name: work.slow[name] for name in work.hopeless}
            own_peers = {
                name: peer if isinstance(peer, str) else left_out.get(name, peer) for name, peer in peers.items()
            }
            own_results = results_of(work.phases, own_peers)
            results += own_results.values()
            for phase, reasons in work.without.items():
                # that a library is not installed, or too slow, comes first
                own_notes = {name: why for name, why in reasons.items() if name in peers}
                own_results[phase].notes = own_notes | own_results[phase].notes
            runs = {
                name: _once(work, peer)
                for name, peer in own_peers.items()
                if not isinstance(peer, str) and not all(name in work.without.get(phase, ()) for phase in work.phases)
            }
            take_turns(runs, options.rounds, own_results)
            for name in runs if options.memory else ():
                if name not in work.slow:
                    words = [module, options.name, folder, str(options.scale), str(number), name]
                    for phase, nbytes in _in_fresh_process(words).items():
                        own_results[phase].memory[name] = nbytes
    return results


def _once(work: Work, peer: Any) -> Callable[[], Mapping[str, float]]:
    def run() -> Mapping[str, float]:
        watch = Stopwatch()
        work.run(peer, watch)
        return watch.seconds

    return run


def _in_fresh_process(words: list[str]) -> Mapping[str, int]:
    """Return bytes of peak memory of each phase of a work; see `main`."""
    command = [sys.executable, "-m", "pnc_vol.bench.measure", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(module: str, name: str, folder: str, scale: str, number: str, peer: str) -> None:
    """Do one work of one peer in this process, and print the peak memory of each phase over its start as JSON."""
    warnings.simplefilter("ignore")
    warm_up()
    bench: Bench = importlib.import_module(module).BENCHES[name]
    watch = Stopwatch(trim=True)
    bench.works(float(scale))[int(number)].run(bench.peers(folder)[peer], watch)
    print(json.dumps(watch.memory))


if __name__ == "__main__":
    main(*sys.argv[1:])
