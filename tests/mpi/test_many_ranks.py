"""More ranks than cores, on several nodes: they start, flush and close, with little memory each, also if one fails."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pnc_vol
from pnc_vol.testing.mpi import missing, run_mpi

PROGRAM = Path(__file__).with_name("ranks_many.py")
TROUBLE, ROWS = 10, 50

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.mark.parametrize(
    ("ranks", "nodes"),
    [(8, 4), pytest.param(64, 4, marks=pytest.mark.nightly), pytest.param(64, 1, marks=pytest.mark.nightly)],
)
def test_many_ranks_flush_twenty_times(tmp_path: Path, ranks: int, nodes: int) -> None:
    run_mpi(ranks, PROGRAM, tmp_path / "many.nc", timeout=280, env={"MPIR_CVAR_NUM_CLIQUES": str(nodes)})


@pytest.mark.nightly
def test_one_of_64_ranks_that_is_killed_ends_the_job_and_what_was_flushed_is_there(tmp_path: Path) -> None:
    env = {"MPIR_CVAR_NUM_CLIQUES": "4"}
    job = run_mpi(64, PROGRAM, tmp_path / "many.nc", "killed", timeout=280, env=env, check=False)
    assert job.returncode not in (0, -9), job.stderr
    with pnc_vol.File(tmp_path / "many.nc") as f:
        assert f["x"].shape == (TROUBLE, ROWS, 64)
        assert (f["x"][...] == np.arange(TROUBLE)[:, None, None] * 100 + np.arange(64)).all()
