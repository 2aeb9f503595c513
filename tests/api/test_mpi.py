"""The api on several ranks, with MPI-IO and with each rank writing for itself."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

import pytest

from pnc_vol.testing.mpi import missing, run_mpi

PROGRAM = pathlib.Path(__file__).with_name("ranks_api.py")

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "mpi")


@pytest.mark.parametrize("driver", ["mpio", "posix"])
def test_ranks(tmp_path: pathlib.Path, driver: str) -> None:
    done = run_mpi(3, PROGRAM, tmp_path, driver, timeout=120)
    assert done.stdout.strip().endswith("fine")
    written = tmp_path / f"writes_{driver}.nc"
    if shutil.which("ncvalidator") is not None:
        subprocess.run(["ncvalidator", "-q", written], check=True)


def test_a_file_left_open_is_told_of_not_waited_for(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "left.py"
    program.write_text(
        "import sys, pnc_vol\n"
        "from mpi4py import MPI\n"
        "f = pnc_vol.File(sys.argv[1], 'w', comm=MPI.COMM_WORLD, driver='posix')\n"
        "f['x'] = [1, 2]\n"
    )
    done = run_mpi(2, program, tmp_path / "x.nc", timeout=60)
    assert "was not closed" in done.stderr
