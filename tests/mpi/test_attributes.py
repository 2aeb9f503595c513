"""A flush after a change of attributes makes anew what changed, and the file is as if all had been made anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from pnc_vol.testing.mpi import missing, run_mpi

PROGRAM = Path(__file__).with_name("ranks_attributes.py")

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.mark.parametrize("driver", ["mpio", "posix"])
def test_the_work_follows_what_changed(tmp_path: Path, driver: str) -> None:
    told = run_mpi(2, PROGRAM, tmp_path, driver, timeout=100).stdout
    assert told.count("passed:") == 2, told
