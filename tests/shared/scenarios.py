"""Many scenarios in one job of ranks, each a test of its own: starting a job costs more than most scenarios.

A program on ranks gives `run` its scenarios; a test file starts it once with `Launch` and asks for one scenario in each
test. Rank 0 prints one line of JSON for each scenario: its name, the tracebacks of the ranks where it failed, and the
seconds that it took. A scenario that takes too long ends the whole job with the stacks of all ranks: its test fails
with them, and the tests of the scenarios that would have come later fail and name it.
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pnc_vol.testing.mpi import run_mpi

if TYPE_CHECKING:
    import pytest


SCENARIOS: dict[str, Callable[..., None]] = {}
"""Of the program of this process, by name."""


def scenario(function: Callable[..., None]) -> Callable[..., None]:
    """Let a function be one of them; see `names`."""
    SCENARIOS[function.__name__] = function
    return function


def run(scenarios: Mapping[str, Callable[[], object]], *, seconds: float = 20) -> None:
    """Run `scenarios` in turn on all ranks, each within `seconds`."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    for name, scenario in scenarios.items():
        faulthandler.dump_traceback_later(seconds, exit=True)
        started = time.monotonic()
        failure = ""
        try:
            scenario()
        except BaseException:
            failure = traceback.format_exc()
            # The other ranks may wait for this one within the scenario, and the job then ends without a result.
            print(f"{name} failed on rank {world.rank}: {failure}", file=sys.stderr, flush=True)
        # Ranks of which one failed may be in the middle of different scenarios: the next one would say nothing.
        failures = world.allgather(failure)
        faulthandler.cancel_dump_traceback_later()
        if world.rank == 0:
            told = "".join(f"rank {rank}: {text}" for rank, text in enumerate(failures) if text)
            print(json.dumps([name, told, time.monotonic() - started]), flush=True)


class Launch:
    """One job for all scenarios of a program, and what each came to."""

    def __init__(
        self, nprocs: int, program: Path, *args: object, timeout: float = 150, env: Mapping[str, str] | None = None
    ) -> None:
        path = [os.path.dirname(__file__), *filter(None, [os.environ.get("PYTHONPATH")])]
        env = {**(env or {}), "PYTHONPATH": os.pathsep.join(path)}
        self.job = run_mpi(nprocs, program, *args, timeout=timeout, env=env, check=False)
        told = (json.loads(line) for line in self.job.stdout.splitlines() if line.startswith('["'))
        self.results = {name: (failure, seconds) for name, failure, seconds in told}

    def check(self, name: str, *, seconds: float = 20) -> None:
        """The scenario ended without a failure, within `seconds`."""
        if name not in self.results:
            last = list(self.results)[-1:]
            raise AssertionError(f"the job ended after {last}:\n{self.job.stdout[-2000:]}\n{self.job.stderr[-8000:]}")
        failure, spent = self.results[name]
        assert not failure, failure
        assert spent < seconds


def names(*programs: Path) -> list[str]:
    """The functions below ``@scenario``, read from the sources: importing them would start MPI."""
    return [name for path in programs for name in re.findall(r"(?m)^@scenario\ndef (\w+)\(", path.read_text())]


class Launches:
    """Jobs of a program on ranks and emulated nodes, each launched when it is first asked for."""

    def __init__(self, folders: pytest.TempPathFactory, program: Path) -> None:
        self._folders, self._program = folders, program
        self._jobs: dict[tuple[object, ...], Launch] = {}

    def __call__(self, nprocs: int, nodes: int, *args: object) -> Launch:
        """The job, in a folder of its own, which is its first argument."""
        key = (nprocs, nodes, *args)
        if key not in self._jobs:
            env = {"MPIR_CVAR_NUM_CLIQUES": str(nodes)}
            self._jobs[key] = Launch(nprocs, self._program, self._folders.mktemp("job"), *args, env=env)
        return self._jobs[key]
