"""What goes wrong on one rank is told to all, alike and in time, and no rank is left waiting."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from scenarios import Launches, names

import pnc_vol as h5py
from pnc_vol.testing.mpi import find_mpiexec, missing

PROGRAM = Path(__file__).with_name("ranks_faults.py")
ENDINGS = Path(__file__).with_name("ranks_endings.py")

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


SCENARIOS = names(*sorted(PROGRAM.parent.glob("faults_*.py")))
OF_TRANSPORTS = [
    "failed_aggregator",
    "aggregator_cannot_read",
    "failed_spill_read_in_a_collective_write",
    "reader_for_others_fails",
]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Launches:
    return Launches(tmp_path_factory, PROGRAM)


@pytest.mark.parametrize("name", SCENARIOS)
def test_mpio_on_three_ranks(job: Launches, name: str) -> None:
    job(3, 1, "mpio").check(name)


@pytest.mark.parametrize(
    "name", [name if name in OF_TRANSPORTS else pytest.param(name, marks=pytest.mark.nightly) for name in SCENARIOS]
)
def test_posix_on_two_nodes(job: Launches, name: str) -> None:
    """Of three ranks two are on one node: some pieces go through its memory, some to another node."""
    job(3, 2, "posix", *(OF_TRANSPORTS if name in OF_TRANSPORTS else ())).check(name)


@pytest.mark.nightly
@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("driver", ["posix", "mpio"])
@pytest.mark.parametrize("nodes", [2, 4])
def test_four_ranks_on_several_nodes(job: Launches, nodes: int, driver: str, name: str) -> None:
    job(4, nodes, driver).check(name)


@pytest.mark.nightly
def test_an_open_that_fails_on_another_node_tells_why(job: Launches) -> None:
    """MPI-IO says on all other nodes only that it failed somewhere."""
    job(3, 3, "mpio", "no_descriptors_at_open").check("no_descriptors_at_open")


@pytest.mark.parametrize("name", SCENARIOS)
def test_posix_on_two_ranks(job: Launches, name: str) -> None:
    job(2, 1, "posix").check(name)


def test_the_job_ends_in_order(job: Launches) -> None:
    """Files and communicators that could not be closed together do not keep MPI from ending."""
    assert job(3, 1, "mpio").job.returncode == 0, job(3, 1, "mpio").job.stderr


# ------------------------------------------------------------------------------------------------- endings


class Ended:
    """A job of some ranks that ends in some way; with plain ``python``, so that nothing but this package helps."""

    def __init__(self, folder: Path, case: str, driver: str, *, ranks: int = 2, helped: bool = False) -> None:
        self.path = folder / "file.nc"
        launcher = find_mpiexec()
        assert launcher is not None
        command = [launcher, "-n", str(ranks), sys.executable, *(["-m", "mpi4py"] if helped else []), ENDINGS]
        environment = {**os.environ, "MPIEXEC_TIMEOUT": "20", "PYTHONFAULTHANDLER": "1"}
        started = time.monotonic()
        job = subprocess.Popen(
            [*map(str, command), case, driver, str(self.path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        try:
            self.out, self.err = job.communicate(timeout=25)
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                job.communicate()
        self.seconds = time.monotonic() - started
        self.returncode = job.returncode

    def holds(self, values: list[int]) -> None:
        with h5py.File(self.path, "r") as f:
            assert np.array_equal(f["x"][...], values)
            assert "y" not in f
        # Python writes no more than a notice of what died; a temporary file would be this package's.
        assert [p.name for p in self.path.parent.iterdir() if p.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("case", "driver"),
    [
        # every case with one driver; with the other one at night
        pytest.param(case, driver, marks=[pytest.mark.nightly] * ((n + m) % 2))
        for n, case in enumerate(("all_open", "one_open", "one_raises", "one_exits", "finalized_first"))
        for m, driver in enumerate(("mpio", "posix"))
    ],
)
def test_endings(tmp_path: Path, case: str, driver: str) -> None:
    """The interpreter ends with the file open: what was flushed is there, and the job ends."""
    job = Ended(tmp_path, case, driver)
    assert "in time" not in job.err, job.err
    assert job.seconds < 15, job.err
    job.holds([1, 2])
    if case in ("all_open", "one_open"):
        assert job.returncode == 0, job.err
        assert "was not closed" in job.err
    if case == "finalized_first":
        assert job.returncode == 0, job.err
        assert job.out.count("RankError") == 2, job.out
    if case == "one_raises":
        assert "was not closed, because of ZeroDivisionError" in job.out + job.err
        assert job.out.count("RankError [1]") == 1, job.out + job.err
        assert job.returncode != 0


@pytest.mark.parametrize("case", ["one_raises", "one_killed"])
def test_endings_that_abort_the_job(tmp_path: Path, case: str) -> None:
    """With ``python -m mpi4py`` an exception ends the job, as a killed rank does; the flushed file is whole."""
    job = Ended(tmp_path, case, "mpio", helped=True)
    assert job.returncode != 0
    assert job.seconds < 15
    job.holds([1, 2])


def test_many_files_that_were_left(tmp_path: Path) -> None:
    """Ranks that do not come to the end together wait once for each other, not once for each file."""
    job = Ended(tmp_path, "left_apart", "posix", ranks=3)
    assert job.returncode == 0, job.err
    assert job.seconds < 15, job.err
