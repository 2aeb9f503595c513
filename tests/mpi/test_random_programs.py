"""Random programs on ranks, by random ways to the file, agree with numpy (`ranks_random.py`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from pnc_vol.testing.mpi import missing, run_mpi

PROGRAM = Path(__file__).with_name("ranks_random.py")
PLACES = [(2, 1), (3, 2), (4, 4), (4, 2), (4, 1), (3, 3)]
"""Ranks and nodes."""

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


def run(folder: Path, place: int, count: int, timeout: float) -> None:
    ranks, nodes = PLACES[place]
    env = {"MPIR_CVAR_NUM_CLIQUES": str(nodes), "PYTHONWARNINGS": "error"}
    run_mpi(ranks, PROGRAM, folder, 1000 * place, 1000 * place + count, timeout=timeout, env=env)


@pytest.mark.parametrize("place", range(3))
def test_random_programs(tmp_path: Path, place: int) -> None:
    run(tmp_path, place, 12, 120)


@pytest.mark.nightly
@pytest.mark.timeout(1900)
@pytest.mark.parametrize("place", range(len(PLACES)))
def test_many_random_programs(tmp_path: Path, place: int) -> None:
    run(tmp_path, place, 300, 1800)
