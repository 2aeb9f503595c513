"""The C program E3SM-IO beside the benchmark, where it is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = "e3sm_io"
DATA = Path(__file__).parents[3] / "shared/data/e3sm"


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which(PROGRAM) is None, reason=f"{PROGRAM} is not installed")
@pytest.mark.skipif(not DATA.exists(), reason="the maps of E3SM-IO are not here")
def test_it_runs_beside_the_benchmark(tmp_path: Path) -> None:
    command = "-m pnc_vol.bench e3sm --case G -x canonical blob -n 2 --rounds 1 --no-memory --peers pnc_vol"
    told = subprocess.run(
        [sys.executable, *command.split(), "--dir", str(tmp_path)], capture_output=True, text=True, check=True
    ).stdout
    assert f"{PROGRAM} -a pnetcdf -x canonical: open to close" in told
    assert f"{PROGRAM} -a pnetcdf -x blob: open to close" in told
    assert not list(tmp_path.iterdir())
