"""What ranks see and rely on with a node-local cache, on one and on two emulated nodes, and if it is in trouble.

The page of promises names these tests in its table (`docs/explain/promises.md`).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from scenarios import Launches, names

import pnc_vol as h5py
from pnc_vol.testing.mpi import missing, run_mpi

PROGRAM = Path(__file__).with_name("ranks_cache.py")
TROUBLE = PROGRAM.with_name("ranks_cache_trouble.py")
JOBS = [(2, 1), (3, 2), *(pytest.param(*job, marks=pytest.mark.nightly) for job in ((1, 1), (4, 2)))]

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Launches:
    return Launches(tmp_path_factory, PROGRAM)


@pytest.mark.parametrize("driver", ["mpio", "posix"])
@pytest.mark.parametrize("name", names(PROGRAM))
@pytest.mark.parametrize(("nprocs", "nodes"), JOBS)
def test_cache(job: Launches, nprocs: int, nodes: int, name: str, driver: str) -> None:
    job(nprocs, nodes, nodes).check(f"{name} {driver}")


@pytest.mark.parametrize("driver", ["mpio", "posix"])
def test_what_was_flushed_is_in_a_file_that_nobody_closes(tmp_path: Path, driver: str) -> None:
    (tmp_path / "nvm").mkdir()
    env = {"MPIR_CVAR_NUM_CLIQUES": "2", "PNC_VOL_HINTS": f"e10_cache_path={tmp_path / 'nvm'}"}
    done = run_mpi(4, PROGRAM.with_name("ranks_endings.py"), "all_open", driver, tmp_path / "left.nc", env=env)
    assert "was not matched" not in done.stdout + done.stderr, "UCX says that no rank received a message"
    with h5py.File(tmp_path / "left.nc") as f:
        assert f["x"][...].tolist() == [1, 2, 3, 4]
    assert not list((tmp_path / "nvm").iterdir())


@pytest.fixture(scope="module")
def troubled_job(tmp_path_factory: pytest.TempPathFactory) -> Launches:
    return Launches(tmp_path_factory, TROUBLE)


@pytest.mark.parametrize("name", names(TROUBLE))
@pytest.mark.parametrize(("nprocs", "nodes"), [(3, 2), pytest.param(2, 1, marks=pytest.mark.nightly)])
def test_trouble(troubled_job: Launches, nprocs: int, nodes: int, name: str) -> None:
    """A kill after a flush loses nothing that it had promised."""
    troubled_job(nprocs, nodes, nodes).check(name, seconds=60)
