"""More ranks than cores, on several nodes: they start, flush and close, with little memory each."""

from __future__ import annotations

from pathlib import Path

import pytest

from pnc_vol.testing.mpi import missing, run_mpi

PROGRAM = Path(__file__).with_name("ranks_many.py")

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.mark.parametrize(
    ("ranks", "nodes"),
    [(8, 4), pytest.param(64, 4, marks=pytest.mark.nightly), pytest.param(64, 1, marks=pytest.mark.nightly)],
)
def test_many_ranks_flush_twenty_times(tmp_path: Path, ranks: int, nodes: int) -> None:
    run_mpi(ranks, PROGRAM, tmp_path / "many.nc", timeout=280, env={"MPIR_CVAR_NUM_CLIQUES": str(nodes)})
