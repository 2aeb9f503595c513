"""The launcher: what a job says comes back, and no job stays."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from pnc_vol.testing.mpi import find_mpiexec, missing, run_mpi

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


def program(folder: Path, text: str) -> Path:
    path = folder / "program.py"
    path.write_text("import os, sys, time\nfrom mpi4py import MPI\nrank = MPI.COMM_WORLD.rank\n" + text)
    return path


def test_arguments_output_and_environment(tmp_path: Path) -> None:
    text = "sys.stdout.write(f'<{rank} of {MPI.COMM_WORLD.size} {sys.argv[1:]} {os.environ[\"MINE\"]}>\\n')\n"
    done = run_mpi(2, program(tmp_path, text), "a", 1, env={"MINE": "yes"})
    for rank in range(2):
        assert f"<{rank} of 2 ['a', '1'] yes>" in done.stdout
    assert done.returncode == 0


def test_modules(tmp_path: Path) -> None:
    assert "mpi4py" in run_mpi(1, "mpi4py", "--version").stdout


def test_a_rank_that_raises_ends_all(tmp_path: Path) -> None:
    path = program(tmp_path, "if rank == 1: raise RuntimeError('this one')\nMPI.COMM_WORLD.Barrier()\ntime.sleep(50)\n")
    began = time.monotonic()
    with pytest.raises(AssertionError, match="this one"):
        run_mpi(2, path)
    assert time.monotonic() - began < 30
    assert run_mpi(2, path, check=False).returncode != 0


def test_a_job_that_hangs_is_killed_and_says_what_it_said(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    pids.mkdir()
    text = (
        f"open(os.path.join({str(pids)!r}, str(os.getpid())), 'w').close()\nprint('I am', rank, flush=True)\n"
        "if rank: time.sleep(100)\nMPI.COMM_WORLD.Barrier()\n"
    )
    began = time.monotonic()
    with pytest.raises(AssertionError, match="I am"):
        run_mpi(2, program(tmp_path, text), timeout=3)
    assert time.monotonic() - began < 30
    started = [int(path.name) for path in pids.iterdir()]
    assert len(started) == 2
    deadline = time.monotonic() + 10
    while any(os.path.exists(f"/proc/{pid}") for pid in started):
        assert time.monotonic() < deadline, "a rank outlived its job"
        time.sleep(0.05)


def test_the_launcher_beside_this_python_comes_first() -> None:
    import sys

    beside = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    if not os.path.exists(beside):
        pytest.skip("there is no launcher beside this Python")
    assert find_mpiexec() == beside
