"""What ranks see and rely on with a node-local cache, on one and on two emulated nodes.

The page on consistency names these tests in its table (`docs/explain/consistency.md`).
"""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import scenarios

import pnc_vol as h5py
from pnc_vol.testing.mpi import missing, run_mpi

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


NOT_CLOSED = """
import os, sys
from mpi4py import MPI
import pnc_vol as h5py
comm, folder, driver = MPI.COMM_WORLD, *sys.argv[1:3]
f = h5py.File(folder + "/left.nc", "w", comm=comm, driver=driver, hints={"e10_cache_path": folder + "/nvm"})
f.create_dataset("x", (comm.size, 1000), "f8")[comm.rank] = comm.rank
f.flush()
"""


@pytest.mark.parametrize("driver", ["mpio", "posix"])
def test_what_was_flushed_is_in_a_file_that_nobody_closes(tmp_path: Path, driver: str) -> None:
    (tmp_path / "nvm").mkdir()
    program = tmp_path / "program.py"
    program.write_text(NOT_CLOSED)
    job = run_mpi(4, program, tmp_path, driver, env={"MPIR_CVAR_NUM_CLIQUES": "2"})
    assert "was not matched" not in job.stdout + job.stderr, "UCX says that no rank received a message"
    with h5py.File(tmp_path / "left.nc") as f:
        assert f["x"][:, 7].tolist() == [0, 1, 2, 3]
    assert not list((tmp_path / "nvm").iterdir())
