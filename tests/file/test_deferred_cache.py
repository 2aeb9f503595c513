"""Deferred close with a node-local cache: what a sync thread fails at after `close` returned is told, on all ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pnc_vol
from pnc_vol.file import deferred
from pnc_vol.testing.mpi import missing, run_mpi

PROGRAM = '''
import errno, json, os, sys
import numpy as np
import pnc_vol
from pnc_vol.testing.faults import HookedSystem

folder, how = sys.argv[1:3]
os.chdir(folder)
comm, rank, size = None, 0, 1
if sys.argv[3:]:
    from mpi4py import MPI
    comm = MPI.COMM_WORLD
    rank, size = comm.rank, comm.size


class Failing(HookedSystem):
    """From some moment on the disk of the global file is full."""

    full = False
    fds = {}

    def call(self, name, args, kwargs):
        written = args[1] if name == "copy_range" else args[0] if name in ("pwrite", "pwritev") else -1
        if name == "copy_range" and not isinstance(written, int):
            written = args[2]
        path = self.fds.get(written, "")
        if self.full and "step1" in path and "nvm" not in path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        made = super().call(name, args, kwargs)
        if name == "open":
            self.fds[made] = os.fspath(args[0])
        return made


system = Failing()
options = {"comm": comm, "collective_timeout": 20} if comm else {}
hints = {"e10_cache_path": "nvm", "e10_cache_flush_flag": "flush_onclose"}


def write(name, **more):
    with pnc_vol.File(name, "w", hints=hints, **options, **more) as f:
        x = f.create_dataset("x", (size, 1000), "f8")
        f.sync()
        x[rank] = rank + 1


def attempt(call):
    try:
        call()
    except Exception as error:
        return [type(error).__name__, str(error), getattr(error, "errno", None), getattr(error, "paths", None)]


write("step1.nc", system=system)
system.full = rank == size - 1
told = {}
if how == "guarded":
    told["error"] = attempt(lambda: write("step2.nc"))
elif how == "path":
    told["error"] = attempt(lambda: pnc_vol.File("step1.nc", "r", **options))
elif how == "finalize":
    told["error"] = attempt(lambda: pnc_vol.finalize(comm))
if how not in ("exit", "raises"):
    told["again"] = attempt(lambda: pnc_vol.finalize(comm))
    everyone = comm.gather(told) if comm else [told]
    if everyone:
        print(json.dumps(everyone))
if how == "raises" and rank == 0:
    raise KeyError("the program's own")
'''


@pytest.fixture(autouse=True)
def guards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "nvm").mkdir()
    (tmp_path / "h.json").write_text('{"Guardnames": "step"}')
    monkeypatch.setenv("PNC_VOL_HINTS_FILE", str(tmp_path / "h.json"))
    yield
    monkeypatch.undo()
    deferred.close_held()


def run(folder: Path, how: str, ranks: int) -> subprocess.CompletedProcess[str]:
    if ranks > 1:
        return run_mpi(ranks, folder / "program.py", folder, how, "mpi", timeout=60, check=False)
    command = [sys.executable, str(folder / "program.py"), str(folder), how]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


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
    for told in everyone:
        kind, text, number, paths = told["error"]
        assert kind == "DeferredCloseError"
        assert "No space left" in text
        assert "step1.nc" in text
        assert [os.path.basename(path) for path in paths] == ["step1.nc"]
        assert told["again"] is None, "it is told once"
        assert number == 28
        assert "pnc-vol replay" in text
    assert not (tmp_path / "step2.nc").exists()
    recovered(tmp_path, ranks)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("how", ["exit", "raises"])
def test_a_failure_is_named_at_the_exit(tmp_path: Path, how: str, ranks: int) -> None:
    done = run(tmp_path, how, ranks)
    assert (done.returncode == 0) == (how == "exit"), done.stderr
    assert ("the program's own" in done.stderr) == (how == "raises")
    if how == "exit" or ranks == 1:
        assert "DeferredCloseError" in done.stderr
        assert "No space left" in done.stderr
        assert "step1.nc" in done.stderr
    recovered(tmp_path, ranks)
