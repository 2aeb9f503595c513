"""A benchmark measures peers in turns: rounds, medians, ratios, peak memory; in one process, or on many ranks.

Knows: clocks, the memory of a process, communicators of mpi4py. Does not know: any library, works, how results are
shown.

Rules
-----
1. Peers take turns within a round, and each round begins with another one, so that what else the machine does falls on
   all of them alike. The garbage collector stays on, as users have it.
2. A ratio is a peer's median over pnc_vol's, from the same run: above 1, pnc_vol is faster.
3. A work prepares outside of ``with watch(phase):``, is timed inside, and checks what was written or read outside.
4. On many ranks a phase begins when all of them are ready, and its time is the slowest rank's. Between phases they wait
   asleep: on a machine with fewer cores than ranks, a spinning rank takes the time of another.
5. A peer that takes more than `PATIENCE` seconds for one piece of work gets one round, and the table has a note.
6. Peak memory is the growth of the resident set during the timed part, by the kernel's high-water mark, which is set
   back before it, in a round that does not count: the largest rank's. A work of one process is run in a fresh process
   for it, because memory that was freed and is used again does not show.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers import block_copy
from pnc_vol.system import REAL, temporary_directory

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

    def ratio(self, peer: str) -> float | None:
        """Return how many times as long as pnc_vol the peer took."""
        theirs, ours = self.median(peer), self.median(US)
        return theirs / ours if theirs is not None and ours else None


class Stopwatch:
    """Takes the time and the peak memory of named phases; a phase entered again adds up.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm, optional
        Ranks whose phases begin together.
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

    def __init__(self, comm: Any = None, *, trim: bool = False) -> None:
        self.seconds: dict[str, float] = {}
        self.memory: dict[str, int] = {}
        self.notes: dict[str, str] = {}
        self._comm, self._trim = comm, trim

    @contextlib.contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        wait_asleep(self._comm)
        # once for a phase: with all peers loaded a collection takes 50 ms, and the life of a small file 1
        if phase not in self.seconds:
            gc.collect()
        if self._trim:
            with contextlib.suppress(OSError, AttributeError):
                ctypes.CDLL(None).malloc_trim(0)
        before = _peak(reset=True)
        with self.part(phase):
            yield
        self.memory[phase] = max(self.memory.get(phase, 0), _peak() - before)

    @contextlib.contextmanager
    def part(self, phase: str) -> Iterator[None]:
        """Yield a part of a phase: this rank's time in it, without waiting for the others first."""
        started = time.perf_counter()
        yield
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - started

    def whole(self, phase: str, *parts: str) -> None:
        """Add a phase that has the seconds of its parts together, and the most memory of them."""
        self.seconds[phase] = sum(self.seconds[part] for part in parts)
        self.memory[phase] = max(self.memory.get(part, 0) for part in parts)

    def without(self, reason: str, *phases: str) -> None:
        """Note why the peer has no part in some phases."""
        self.notes |= dict.fromkeys(phases, reason)


def _peak(*, reset: bool = False) -> int:
    """Return the high-water mark of the resident set of this process, set back to what is resident now; bytes."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        if reset:
            fd = REAL.open("/proc/self/clear_refs", os.O_WRONLY)
            try:
                REAL.pwrite(fd, b"5", 0)
            finally:
                REAL.close(fd)
        lines = kernel_text("/proc/self/status").splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1 << 10)


def kernel_text(path: str) -> str:
    """Return the beginning of a file of the kernel, which has no length."""
    fd = REAL.open(path, os.O_RDONLY)
    try:
        buffer = bytearray(1 << 14)
        return bytes(buffer[: REAL.pread_into(fd, buffer, 0)]).decode(errors="replace")
    finally:
        REAL.close(fd)


def wait_asleep(comm: Any) -> None:
    """Wait for all ranks at a barrier that leaves the cores to those that are not there yet."""
    if comm is None:
        return
    request, pause = comm.Ibarrier(), 20e-6
    while not request.Test():
        time.sleep(pause)
        pause = min(2 * pause, 1e-3)


class Job:
    """What a benchmark is given, and what it found.

    options : of the command line.
    comm : mpi4py.MPI.Intracomm, or None in one process
    home : str, a folder for files; the same on all ranks, removed at the end.
    lines, results : the report before the table, and what was measured.
    known : names of all peers that were there, or could have been.
    """

    def __init__(self, options: argparse.Namespace, home: str, comm: Any = None) -> None:
        self.options, self.home, self.comm = options, home, comm
        self.lines: list[str] = []
        self.results: list[Result] = []
        self.known: set[str] = set()
        self._number = 0

    def report(self, text: str) -> None:
        """Add a line to the report that comes before the table."""
        self.lines.append(text)

    def gathered(self, own: Any) -> list[Any]:
        """Return the values of all ranks."""
        wait_asleep(self.comm)
        everyone: list[Any] = [own] if self.comm is None else self.comm.allgather(own)
        return everyone

    def turns(
        self, phases: Phases, peers: Mapping[str, Any], run: Callable[[Any, Stopwatch], None],
        slow: Mapping[str, str] | None = None,
    ) -> dict[str, Result]:  # fmt: skip
        """Run the work with each peer in turns; a result for each phase.

        Parameters
        ----------
        peers : mapping of name to peer, or to the reason why there is none
        run : does the work once, in the new folder ``peer.folder``, and enters the phases.
        slow : by peer, why it takes minutes; left out of quick runs, and where peak memory is measured.
        """
        o, slow = self.options, slow or {}
        self._number += 1
        self.known |= peers.keys()
        results = {phase: Result(phase, {name: [] for name in peers}, {}, *n) for phase, n in phases.items()}
        if o.memory_of:
            number, _, name = o.memory_of.partition(":")
            if int(number) == self._number:
                print(json.dumps(self.once(name, peers[name], run, trim=True).memory))
            return results
        if not any(o.only in phase for phase in phases):
            return results
        there = {}
        for name, peer in peers.items():
            reason = peer if isinstance(peer, str) else slow.get(name, "") if o.quick else ""
            if o.peers and name not in o.peers:
                reason = "not asked for"
            for result in results.values() if reason else ():
                result.notes[name] = reason
            if not reason:
                there[name] = peer
        patient = list(there)
        for turn in range(o.rounds):
            first = turn % max(1, len(there))
            for name in [*there][first:] + [*there][:first]:
                if name in patient and self._round(name, there[name], run, results) > PATIENCE and o.rounds > 1:
                    patient.remove(name)
                    for result in results.values():
                        result.notes.setdefault(name, f"1 round: it takes more than {PATIENCE:g} s")
        for name in there if o.memory else ():
            if name not in slow and any(result.seconds[name] for result in results.values()):
                for phase, nbytes in self._memory(name, there[name], run).items():
                    if phase in results:
                        results[phase].memory[name] = nbytes
        self.results += results.values()
        return results

    def once(self, name: str, peer: Any, run: Callable[[Any, Stopwatch], None], *, trim: bool = False) -> Stopwatch:
        """Do the work once in a new folder, and return what was measured."""
        watch = Stopwatch(self.comm, trim=trim)
        with self.folder() as peer.folder:
            peer.path = os.path.join(peer.folder, name.replace(" ", "_"))
            run(peer, watch)
        return watch

    @contextlib.contextmanager
    def folder(self, parent: str | None = None) -> Iterator[str]:
        """Yield a new folder, the same on all ranks, which is removed when none of them is in it any more."""
        with contextlib.ExitStack() as removed:
            first = self.comm is None or self.comm.rank == 0
            made = removed.enter_context(temporary_directory(parent or self.home)) if first else ""
            yield made if self.comm is None else self.comm.bcast(made)
            wait_asleep(self.comm)

    def _round(self, name: str, peer: Any, run: Callable[[Any, Stopwatch], None], results: dict[str, Result]) -> float:
        """Do the work once, and add the seconds of each phase to the results; the most of them."""
        watch = self.once(name, peer, run)
        everyone = self.gathered({phase: watch.seconds[phase] for phase in results if phase in watch.seconds})
        most = {phase: max(own[phase] for own in everyone) for phase in everyone[0]}
        for phase, spent in most.items():
            results[phase].seconds[name].append(spent)
            if self.comm is not None:
                results[phase].quickest.setdefault(name, []).append(min(own[phase] for own in everyone))
        for phase, why in watch.notes.items():
            results[phase].notes[name] = why
        return max(most.values(), default=0.0)

    def _memory(self, name: str, peer: Any, run: Callable[[Any, Stopwatch], None]) -> dict[str, int]:
        """Return the peak memory of each phase."""
        if self.comm is not None:
            everyone = self.gathered(self.once(name, peer, run, trim=True).memory)
            return {phase: max(own[phase] for own in everyone) for phase in everyone[0]}
        o = self.options
        words = [o.name, "--scale", str(o.scale), "--dir", self.home, "--memory-of", f"{self._number}:{name}"]
        command = [sys.executable, "-m", "pnc_vol.bench", *words]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
        return found


def times(scale: float, count: int, *, least: int = 2) -> int:
    """Return `count` scaled, at least `least`."""
    return max(least, round(count * scale))


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


def check(what: str, found: Any, values: npt.NDArray[Any]) -> None:
    """Raise AssertionError unless a peer read what was written."""
    found = np.asarray(found)
    if found.size != values.size or not np.array_equal(found.reshape(values.shape), values):
        raise AssertionError(f"{what} does not hold what was written to it")


def read_back(peer: Any, parts: Iterable[tuple[str, tuple[int, ...], npt.NDArray[Any]]]) -> None:
    """Open a peer's file, read parts (variable, start, values) with one flush, and compare them with their values."""
    parts = list(parts)
    found = [np.full_like(values, -7) for _, _, values in parts]
    peer.open()
    for (name, start, _), out in zip(parts, found, strict=True):
        peer.move("read", name, start, out)
    peer.flush()
    peer.close()
    for (name, _, values), out in zip(parts, found, strict=True):
        check(f"{peer.path}, {name}", out, values)
