"""Benchmarks of one process: works, peers, rounds.

Knows: what a benchmark of one process is made of. Does not know: any of them, nor any peer.

Rules
-----
1. A benchmark is a module with ``peers(folder)`` and ``works(scale)``. A peer that cannot be had is a text with
   the reason.
2. A work does what it needs outside of ``with watch(phase):`` and what counts inside; it checks what it got.
3. Peak memory is measured once more for each work and peer, in a process that does nothing else (`main`).
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.bench.measure import Result, Stopwatch, take_turns, warm_up
from pnc_vol.drivers import block_copy
from pnc_vol.system import REAL, exists, temporary_directory

__all__ = ["Work", "check", "clear", "copy_file", "run_serial", "times"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Work:
    """Something that each peer does.

    phases : by name, bytes of elements moved (or None) and calls that a user makes.
    run : takes a peer and a watch; enters the phases.
    without : by phase, the peers that have no part in it, and why; one that has none in any phase is not run.
    slow : by peer, why it takes minutes; left out of quick runs.
    hopeless : those of `slow` that are left out always.
    """

    phases: Mapping[str, tuple[int | None, int | None]]
    run: Callable[[Any, Stopwatch], None]
    without: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    slow: Mapping[str, str] = field(default_factory=dict)
    hopeless: frozenset[str] = frozenset()


def times(scale: float, count: int, *, least: int = 2) -> int:
    """`count` scaled, at least `least`."""
    return max(least, round(count * scale))


def clear(path: str) -> None:
    """See to it that a new file is written, not an old one overwritten."""
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


def check(what: str, found: Array, values: Array) -> None:
    """Complain unless a peer read what was written.

    Raises
    ------
    AssertionError
        It did not.
    """
    found = np.asarray(found)
    if found.size != values.size or not np.array_equal(found.reshape(values.shape), values):
        raise AssertionError(f"{what} does not hold what was written to it")


def run_serial(
    module: str,
    *,
    scale: float = 1.0,
    rounds: int = 5,
    folder: str | None = None,
    quick: bool = False,
    memory: bool = True,
    only: str = "",
) -> list[Result]:
    """Measure the works of a benchmark.

    Parameters
    ----------
    module : str
        Name of the benchmark's module.
    scale : float
        How much of the real size.
    rounds : int
    folder : str, optional
        Where the files go: a new folder in it, removed at the end.
    quick : bool
        Leave out what takes minutes.
    memory : bool
        Whether peak memory is measured, too.
    only : str
        Works with a phase whose name has this text in it.

    Returns
    -------
    list of Result
        One a phase.
    """
    bench = importlib.import_module(module)
    results: list[Result] = []
    with temporary_directory(folder) as place, warnings.catch_warnings():
        # what peers warn about (open memory maps, types) says nothing about their speed
        warnings.simplefilter("ignore")
        warm_up()
        peers: dict[str, Any] = bench.peers(place)
        for number, work in enumerate(bench.works(scale)):
            if not any(only in phase for phase in work.phases):
                continue
            own_results = _results(work, peers)
            results += own_results.values()
            runs = {}
            for name, peer in peers.items():
                reason = peer if isinstance(peer, str) else None
                if reason is None and (quick or name in work.hopeless):
                    reason = work.slow.get(name)
                if reason is not None:
                    for result in own_results.values():
                        result.notes[name] = reason
                elif not all(name in work.without.get(phase, ()) for phase in work.phases):
                    runs[name] = _once(work, peer)
            take_turns(runs, rounds, own_results)
            for name in runs if memory else ():
                if name in work.slow:
                    continue
                for phase, nbytes in _in_fresh_process(module, place, scale, number, name).items():
                    own_results[phase].memory[name] = nbytes
    return results


def _results(work: Work, peers: Mapping[str, Any]) -> dict[str, Result]:
    """Empty results for each phase, with what is known beforehand."""
    made = {}
    for phase, (nbytes, calls) in work.phases.items():
        notes = {name: why for name, why in work.without.get(phase, {}).items() if name in peers}
        made[phase] = Result(phase, {name: [] for name in peers}, notes, nbytes, calls)
    return made


def _once(work: Work, peer: Any) -> Callable[[], Mapping[str, float]]:
    def run() -> Mapping[str, float]:
        watch = Stopwatch()
        work.run(peer, watch)
        return watch.seconds

    return run


def _in_fresh_process(module: str, folder: str, scale: float, number: int, peer: str) -> Mapping[str, int]:
    """Bytes of peak memory of each phase of a work."""
    done = subprocess.run(
        [sys.executable, "-m", "pnc_vol.bench.serial", module, folder, str(scale), str(number), peer],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(module: str, folder: str, scale: str, number: str, peer: str) -> None:
    """One work of one peer, in a process of its own: print the peak memory of each phase over its start, as JSON."""
    warnings.simplefilter("ignore")
    warm_up()
    bench = importlib.import_module(module)
    work = bench.works(float(scale))[int(number)]
    watch = Stopwatch(trim=True)
    work.run(bench.peers(folder)[peer], watch)
    print(json.dumps(watch.memory))


if __name__ == "__main__":
    main(*sys.argv[1:])
