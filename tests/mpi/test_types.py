"""Several ranks and types that take several variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from pnc_vol.testing.mpi import missing, run_mpi

PROGRAM = Path(__file__).with_name("ranks_types.py")

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.mark.parametrize("nprocs", [2, 3])
def test_types_of_several_variables(tmp_path: Path, nprocs: int) -> None:
    told = run_mpi(nprocs, PROGRAM, tmp_path, timeout=90).stdout
    assert told.count("done:") == 3, told
