"""The api on several ranks, with MPI-IO and with each rank writing for itself."""

from __future__ import annotations

import pathlib

import pytest

from pnc_vol.testing.mpi import missing, run_mpi

PROGRAM = pathlib.Path(__file__).with_name("ranks_api.py")

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "mpi")


@pytest.mark.parametrize("driver", ["mpio", "posix"])
def test_ranks(tmp_path: pathlib.Path, driver: str) -> None:
    done = run_mpi(3, PROGRAM, tmp_path, driver, timeout=120)
    assert done.stdout.strip().endswith("fine")


def test_a_file_left_open_is_told_of_not_waited_for(tmp_path: pathlib.Path) -> None:
    done = run_mpi(2, PROGRAM, tmp_path, "left open", timeout=60)
    assert "was not closed" in done.stderr
