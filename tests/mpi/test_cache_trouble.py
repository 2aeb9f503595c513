"""Ranks whose caches are in trouble: a kill after a flush loses nothing that it had promised."""

from __future__ import annotations

from pathlib import Path

import pytest
from scenarios import Launches, names

from pnc_vol.testing.mpi import missing

PROGRAM = Path(__file__).with_name("ranks_cache_trouble.py")

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Launches:
    return Launches(tmp_path_factory, PROGRAM)


@pytest.mark.parametrize("name", names(PROGRAM))
@pytest.mark.parametrize(("nprocs", "nodes"), [(2, 1), (3, 2)])
def test_trouble(job: Launches, nprocs: int, nodes: int, name: str) -> None:
    job(nprocs, nodes, nodes).check(name, seconds=60)
