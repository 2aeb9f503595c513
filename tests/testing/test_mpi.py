"""The launcher: what a job says comes back, and no job stays."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from pnc_vol.testing.mpi import find_mpiexec, missing, run_mpi

PROGRAM = Path(__file__).with_name("launched.py")

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


def test_arguments_output_and_environment() -> None:
    done = run_mpi(2, PROGRAM, "tell", "a", 1, env={"MINE": "yes"})
    for rank in range(2):
        assert f"<{rank} of 2 ['a', '1'] yes>" in done.stdout
    assert done.returncode == 0


def test_modules() -> None:
    assert "mpi4py" in run_mpi(1, "mpi4py", "--version").stdout


def test_a_rank_that_raises_ends_all() -> None:
    began = time.monotonic()
    with pytest.raises(AssertionError, match="this one"):
        run_mpi(2, PROGRAM, "raise")
    assert time.monotonic() - began < 30
    assert run_mpi(2, PROGRAM, "raise", check=False).returncode != 0


def test_a_job_that_hangs_is_killed_and_says_what_it_said(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(AssertionError, match="I am"):
        run_mpi(2, PROGRAM, "hang", tmp_path, timeout=3)
    assert time.monotonic() - began < 30
    started = [int(path.name) for path in tmp_path.iterdir()]
    assert len(started) == 2
    deadline = time.monotonic() + 10
    while any(os.path.exists(f"/proc/{pid}") for pid in started):
        assert time.monotonic() < deadline, "a rank outlived its job"
        time.sleep(0.05)


def test_the_launcher_beside_this_python_comes_first() -> None:
    beside = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    if not os.path.exists(beside):
        pytest.skip("there is no launcher beside this Python")
    assert find_mpiexec() == beside
