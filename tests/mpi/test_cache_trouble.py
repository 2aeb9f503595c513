"""Ranks whose caches are in trouble: a kill after a flush loses nothing that it had promised."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import scenarios

from pnc_vol.testing.mpi import missing

PROGRAM = Path(__file__).with_name("ranks_cache_trouble.py")
NAMES = [line.strip(" ,") for line in PROGRAM.read_text().partition("SCENARIOS = [")[2].partition("]")[0].split()]

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> functools.partial[scenarios.Launch]:
    @functools.cache
    def launch(nprocs: int, nodes: int) -> scenarios.Launch:
        folder = tmp_path_factory.mktemp(f"trouble-{nprocs}-{nodes}")
        return scenarios.Launch(nprocs, PROGRAM, folder, nodes, env={"MPIR_CVAR_NUM_CLIQUES": str(nodes)})

    return functools.partial(launch)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("nprocs", "nodes"), [(2, 1), (3, 2)])
def test_trouble(launched: functools.partial[scenarios.Launch], nprocs: int, nodes: int, name: str) -> None:
    launched(nprocs, nodes).check(name)
