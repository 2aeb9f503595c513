"""Jobs that share a file in coherent mode: readers wait for what writers hold, instead of reading old bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pnc_vol
from pnc_vol.testing.mpi import find_mpiexec, missing

PROGRAM = Path(__file__).with_name("ranks_coherent.py")
ROWS, ROUNDS = 8, 12


class Jobs:
    """Jobs that run at the same time."""

    def __init__(self, folder: Path, readers: int) -> None:
        self.readers = readers
        self.path, self.nvm, self.signals = (folder / name for name in ("x.nc", "nvm", "signals"))
        self.nvm.mkdir()
        self.signals.mkdir()
        self.jobs: list[tuple[str, subprocess.Popen[str]]] = []

    def start(self, role: str, ranks: int, first: int = 0, last: int = ROWS) -> None:
        launcher = [] if ranks == 1 else [str(find_mpiexec()), "-n", str(ranks)]
        args = [role, self.path, self.nvm, self.signals, self.readers, first, last]
        env = {**os.environ, "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1", "PYTHONFAULTHANDLER": "1"}
        job = subprocess.Popen(
            [*launcher, sys.executable, str(PROGRAM), *map(str, args)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env,
        )  # fmt: skip
        self.jobs.append((f"{role} on {ranks}", job))

    def wait(self) -> None:
        try:
            for name, job in self.jobs:
                told, _ = job.communicate(timeout=90)
                assert job.returncode == 0, f"{name}: {told[-4000:]}"
        finally:
            for _, job in self.jobs:
                job.kill()
                job.communicate()
            self.jobs = []


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("writers", "readers"),
    [
        ([1, 1], [1]),
        pytest.param([2, 1], [2], marks=pytest.mark.skipif(bool(missing()), reason=missing())),
        pytest.param(
            [2, 2], [1, 2], marks=[pytest.mark.skipif(bool(missing()), reason=missing()), pytest.mark.nightly]
        ),
    ],
)
def test_readers_wait_for_writers_of_other_jobs(tmp_path: Path, writers: list[int], readers: list[int]) -> None:
    """Two writers have rows of their own; each reader reads the rows of both."""
    jobs = Jobs(tmp_path, len(readers))
    jobs.start("define", writers[0])
    jobs.wait()
    share = ROWS // len(writers)
    for ranks in readers:
        jobs.start("read", ranks)
    for number, ranks in enumerate(writers):
        jobs.start("write", ranks, number * share, (number + 1) * share)
    jobs.wait()
    with pnc_vol.File(jobs.path) as f:
        assert set(f["x"][...].ravel().tolist()) == {ROUNDS - 1}
    assert not list(jobs.nvm.iterdir())
