"""A benchmark of many ranks starts them, lets peers take turns, and takes the slowest rank's time.

Knows: mpi4py, launchers. Does not know: patterns.

Rules
-----
1. A phase begins when all ranks are ready, and its time is the slowest rank's, as in the programs that these benchmarks
   follow.
2. Between phases ranks wait asleep: on a machine with fewer cores than ranks, a spinning rank takes the time of
   another.
3. Peak memory is taken in a round of its own, which does not count: the largest rank's growth within a phase.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from pnc_vol.bench.measure import Phases, Result, Stopwatch, clear, results_of, take_turns, warm_up
from pnc_vol.system import REAL, temporary_directory
from pnc_vol.system.full_io import read_whole
from pnc_vol.testing.mpi import find_mpiexec, flavour

__all__ = ["Job", "RankWatch", "hints_of", "launcher_of", "run_here", "start", "wait_asleep"]


class RankWatch(Stopwatch):
    """A watch whose phases begin together."""

    def __init__(self, comm: Any, *, trim: bool = False) -> None:
        super().__init__(trim=trim)
        self._comm = comm

    @contextlib.contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        wait_asleep(self._comm)
        with super().__call__(phase):
            yield

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

    def of_all(self, own: dict[str, Any]) -> list[dict[str, Any]]:
        """Return what each rank measured."""
        wait_asleep(self._comm)
        everyone: list[dict[str, Any]] = self._comm.allgather(own)
        return everyone


def wait_asleep(comm: Any) -> None:
    """Wait at a barrier that leaves the cores to those that are not there yet."""
    request = comm.Ibarrier()
    pause = 20e-6
    while not request.Test():
        time.sleep(pause)
        pause = min(2 * pause, 1e-3)


class Job:
    """What a benchmark of many ranks is given.

    comm : mpi4py.MPI.Intracomm
    folder : str, for files; the same on all ranks, removed at the end.
    """

    def __init__(self, comm: Any, folder: str, options: argparse.Namespace) -> None:
        self.comm = comm
        self.folder = folder
        self.options = options
        self.lines: list[str] = []

    def among(self, comm: Any) -> Job:
        """Return the same for fewer ranks; the report is one."""
        job = Job(comm, self.folder, self.options)
        job.lines = self.lines
        return job

    def report(self, text: str) -> None:
        """Add a line to the report that comes before the table."""
        self.lines.append(text)

    def clear(self, path: str) -> None:
        """See to it that there is no such file; by all ranks."""
        wait_asleep(self.comm)
        if self.comm.rank == 0:
            clear(path)
        wait_asleep(self.comm)

    def clear_set(self, path: str) -> None:
        """See to it that there is no such file, and no subfile of it; by all ranks."""
        self.clear(path)
        if self.comm.rank == 0:
            folder, name = os.path.split(path)
            for found in REAL.listdir(folder or "."):
                if found.startswith(f"{name}.") and found[len(name) + 1 :].isdigit():
                    REAL.unlink(os.path.join(folder, found))
        wait_asleep(self.comm)

    def turns(self, phases: Phases, peers: Mapping[str, Any], run: Callable[[Any, RankWatch], None]) -> list[Result]:
        """Run the work with each peer in turns; a result for each phase.

        Parameters
        ----------
        peers : mapping of peer to what `run` takes, or to the reason why there is none
        run : does the work once, and enters the phases.
        """
        wanted = self.options.peers
        given = {name: peer if not wanted or name in wanted else "not asked for" for name, peer in peers.items()}
        results = results_of(phases, given)
        there = {name: peer for name, peer in given.items() if not isinstance(peer, str)}

        def once(name: str, peer: Any) -> Mapping[str, float]:
            watch = RankWatch(self.comm)
            run(peer, watch)
            everyone = watch.of_all({phase: watch.seconds[phase] for phase in results if phase in watch.seconds})
            for phase in everyone[0]:
                results[phase].quickest.setdefault(name, []).append(min(own[phase] for own in everyone))
            return {phase: max(own[phase] for own in everyone) for phase in everyone[0]}

        take_turns({name: partial(once, name, peer) for name, peer in there.items()}, self.options.rounds, results)
        for name, peer in there.items() if self.options.memory else ():
            watch = RankWatch(self.comm, trim=True)
            run(peer, watch)
            everyone = watch.of_all({phase: watch.memory[phase] for phase in results if phase in watch.memory})
            for phase in everyone[0]:
                results[phase].memory[name] = max(own[phase] for own in everyone)
        return list(results.values())


def hints_of(path: str) -> dict[str, str]:
    """Return hints of a file with one a line: ``name value`` as ROMIO has it, ``name = value``, or IOR's with its
    prefix."""
    found = {}
    for line in read_whole(REAL, path).decode().splitlines():
        name, _, value = line.partition("#")[0].replace("=", " ", 1).strip().partition(" ")
        # the prefix of IOR names whom a hint is for; hints for the file system alone are not ours
        if (name and not name.startswith("IOR_HINT__")) or name.startswith("IOR_HINT__MPI__"):
            found[name.removeprefix("IOR_HINT__MPI__")] = value.strip()
    return found


def run_here(
    run: Callable[[Job], list[Result]], options: argparse.Namespace
) -> tuple[list[Result], list[str], int, int]:
    """Return the benchmark on the ranks of this job: results and report, this rank, ranks."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    with contextlib.ExitStack() as stack:
        warnings.simplefilter("ignore")
        warm_up()
        made = stack.enter_context(temporary_directory(options.dir)) if comm.rank == 0 else None
        job = Job(comm, comm.bcast(made), options)
        results = run(job)
        # the folder goes when nobody is in it any more
        wait_asleep(comm)
    return results, job.lines, comm.rank, comm.size


def start(launcher: Sequence[str], arguments: Sequence[str]) -> int:
    """Run ``python -m pnc_vol.bench`` with `arguments` on the ranks of `launcher_of`; its exit status."""
    return subprocess.run(
        [*launcher, sys.executable, "-m", "mpi4py", "-m", "pnc_vol.bench", *arguments], check=False
    ).returncode


def launcher_of(nprocs: int, *, ranks_per_node: int | None = None) -> list[str]:
    """Return the command that starts a program on `nprocs` ranks.

    Raises
    ------
    SystemExit
        There is no launcher.
    """
    mpiexec = find_mpiexec()
    if mpiexec is None:
        raise SystemExit('mpiexec is not installed (pip install "pnc-vol[mpi]")')
    command = [mpiexec, "-n", str(nprocs)]
    if flavour(mpiexec) == "openmpi":
        command += ["--oversubscribe"]
        if ranks_per_node:
            raise SystemExit("--ranks-per-node needs MPICH: Open MPI cannot play several nodes on one")
    elif ranks_per_node:
        command += ["-genv", "MPIR_CVAR_NUM_CLIQUES", str(-(-nprocs // ranks_per_node))]
    return command
