"""Ranks that have nothing to write, write different things, read alone or together, and overlap."""

from __future__ import annotations

from pathlib import Path

import pytest

from pnc_vol.testing.mpi import missing, run_mpi

PROGRAM = Path(__file__).with_name("ranks_semantics.py")

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.mark.parametrize("nprocs", [2, 3, 4])
def test_what_ranks_may_do_and_see(tmp_path: Path, nprocs: int) -> None:
    told = run_mpi(nprocs, PROGRAM, tmp_path, timeout=90).stdout
    # 19 cases by two drivers
    assert told.count("done:") == 38, told
