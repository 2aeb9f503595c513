"""Rounds, medians, ratios and peak memory.

Knows: clocks, the memory of this process. Does not know: what is measured, MPI, how results are shown.

Rules
-----
1. Peers take turns within a round, so that what else the machine does falls on all of them alike.
2. A ratio is a peer's median over pnc_vol's, from the same run: above 1, pnc_vol is faster.
3. What a peer wrote is checked against what it should have written, outside of the timed part.
4. A peer that takes more than `PATIENCE` seconds for one piece of work gets one round, and the table has a note.
5. Peak memory is the growth of the resident set during the timed part, by the kernel's high-water mark, which is set
   back before it. Memory that this process freed and uses again does not show: ask a fresh process (`fresh.py`).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pnc_vol
from pnc_vol.system import REAL

__all__ = ["PATIENCE", "US", "Result", "Stopwatch", "memory_now", "take_turns", "timed", "warm_up"]

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
        """Seconds."""
        found = self.seconds.get(peer)
        return statistics.median(found) if found else None

    def first(self, peer: str) -> float | None:
        """Seconds of the first round, which alone a program meets that does the work once."""
        found = self.seconds.get(peer)
        return found[0] if found else None

    def least(self, peer: str) -> float | None:
        """Seconds of the rank that took least, of its median round."""
        found = self.quickest.get(peer)
        return statistics.median(found) if found else None

    def ratio(self, peer: str) -> float | None:
        """How many times as long as pnc_vol the peer took."""
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


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds that `work` took, and what it returned."""
    watch = Stopwatch()
    with watch(""):
        result = work()
    return watch.seconds[""], result


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
    """The high-water mark of the resident set of this process; bytes."""
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


def take_turns(
    peers: Mapping[str, Callable[[], Mapping[str, float]]], rounds: int, results: Mapping[str, Result]
) -> None:
    """Run each peer's work `rounds` times, in turns, and note the seconds of each phase.

    Parameters
    ----------
    peers : mapping of peer to function
        Does the work once; returns the seconds of each phase.
    rounds : int
    results : mapping of phase to Result
        Filled.
    """
    slow: set[str] = set()
    for _ in range(rounds):
        for peer, run in peers.items():
            if peer in slow:
                continue
            seconds = run()
            for phase, found in seconds.items():
                results[phase].seconds.setdefault(peer, []).append(found)
            if rounds > 1 and max(seconds.values(), default=0.0) > PATIENCE:
                slow.add(peer)
                for phase in seconds:
                    results[phase].notes[peer] = f"1 round: it takes more than {PATIENCE:g} s"
