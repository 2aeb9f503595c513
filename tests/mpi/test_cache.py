"""What ranks see and rely on with a node-local cache, on one and on two emulated nodes.

The page on consistency names these tests in its table (`docs/explain/consistency.md`).
"""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import scenarios

from pnc_vol.testing.mpi import missing

PROGRAM = Path(__file__).with_name("ranks_cache.py")
NAMES = [line.strip(" ,") for line in PROGRAM.read_text().partition("SCENARIOS = [")[2].partition("]")[0].split()]
JOBS = [(1, 1), (2, 1), (3, 2), (4, 2)]

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> functools.partial[scenarios.Launch]:
    @functools.cache
    def launch(nprocs: int, nodes: int) -> scenarios.Launch:
        folder = tmp_path_factory.mktemp(f"cache-{nprocs}-{nodes}")
        return scenarios.Launch(nprocs, PROGRAM, folder, nodes, env={"MPIR_CVAR_NUM_CLIQUES": str(nodes)})

    return functools.partial(launch)


@pytest.mark.parametrize("driver", ["mpio", "posix"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("nprocs", "nodes"), JOBS)
def test_cache(launched: functools.partial[scenarios.Launch], nprocs: int, nodes: int, name: str, driver: str) -> None:
    launched(nprocs, nodes).check(f"{name} {driver}")
