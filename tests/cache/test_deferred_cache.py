"""Deferred close with a node-local cache: what a sync thread fails at after `close` returned is told, on all ranks."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from full_disk import Failing

import pnc_vol
from pnc_vol.testing.mpi import missing, run_mpi


def program(folder: str, how: str, comm: Any) -> None:
    """What a process does, or each rank: from the close of step1.nc on its disk is full, of the last rank."""
    os.chdir(folder)
    rank, size = (comm.rank, comm.size) if comm else (0, 1)
    options: dict[str, Any] = {"comm": comm, "collective_timeout": 20} if comm else {}
    hints = {"e10_cache_path": "nvm", "e10_cache_flush_flag": "flush_onclose"}

    def write(name: str, **more: Any) -> None:
        with pnc_vol.File(name, "w", hints=hints, **options, **more) as f:
            x = f.create_dataset("x", (size, 1000), "f8")
            f.sync()
            x[rank] = rank + 1

    def attempt(call: Any) -> Any:
        try:
            call()
        except Exception as error:
            return [type(error).__name__, str(error), getattr(error, "errno", None), getattr(error, "paths", None)]

    calls = {
        "guarded": lambda: write("step2.nc"),
        "path": lambda: pnc_vol.File("step1.nc", "r", **options),
        "finalize": lambda: pnc_vol.finalize(comm),
    }
    system = Failing("step1", "nvm")
    write("step1.nc", system=system)
    system.error = errno.ENOSPC * (rank == size - 1)
    if how in calls:
        told = [attempt(calls[how]), attempt(calls["finalize"])]
        everyone = comm.gather(told) if comm else [told]
        if everyone:
            print(json.dumps(everyone))
    elif how == "raises" and rank == 0:
        raise KeyError("the program's own")


@pytest.fixture(autouse=True)
def guards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "nvm").mkdir()
    (tmp_path / "h.json").write_text('{"Guardnames": "step"}')
    monkeypatch.setenv("PNC_VOL_HINTS_FILE", str(tmp_path / "h.json"))
    yield
    monkeypatch.undo()
    pnc_vol.finalize()


def run(folder: Path, how: str, ranks: int) -> subprocess.CompletedProcess[str]:
    env = {"PYTHONPATH": os.pathsep.join(sys.path)}
    if ranks > 1:
        return run_mpi(ranks, __file__, folder, how, "mpi", env=env, timeout=60, check=False)
    command = [sys.executable, __file__, str(folder), how]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ | env)


RANKS = [1, pytest.param(2, marks=pytest.mark.skipif(bool(missing()), reason=missing()))]


def recovered(folder: Path, ranks: int) -> None:
    """The data stayed in the cache, from where a replay brings them."""
    assert os.listdir(folder / "nvm")
    pnc_vol.replay(folder / "step1.nc")
    with pnc_vol.File(folder / "step1.nc") as f:
        assert [set(row) for row in f["x"][...].tolist()] == [{rank + 1.0} for rank in range(ranks)]
    assert not os.listdir(folder / "nvm")


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("how", ["guarded", "path", "finalize"])
def test_a_failure_is_raised_where_the_file_is_closed(tmp_path: Path, how: str, ranks: int) -> None:
    done = run(tmp_path, how, ranks)
    assert done.returncode == 0, done.stderr
    everyone = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("[")))
    assert len(everyone) == ranks
    for (kind, text, number, paths), again in everyone:
        assert (kind, number, again) == ("DeferredCloseError", errno.ENOSPC, None), "it is told once"
        assert all(part in text for part in ("No space left", "step1.nc", "pnc-vol replay"))
        assert [os.path.basename(path) for path in paths] == ["step1.nc"]
    assert not (tmp_path / "step2.nc").exists()
    recovered(tmp_path, ranks)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("how", ["exit", "raises"])
def test_a_failure_is_named_at_the_exit(tmp_path: Path, how: str, ranks: int) -> None:
    done = run(tmp_path, how, ranks)
    assert (done.returncode == 0) == (how == "exit"), done.stderr
    assert ("the program's own" in done.stderr) == (how == "raises")
    if how == "exit" or ranks == 1:
        assert all(part in done.stderr for part in ("DeferredCloseError", "No space left", "step1.nc"))
    recovered(tmp_path, ranks)


if __name__ == "__main__":
    if sys.argv[3:]:
        from mpi4py import MPI
    program(*sys.argv[1:3], MPI.COMM_WORLD if sys.argv[3:] else None)
