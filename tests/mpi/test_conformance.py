"""The public suite of drivers over MPI-IO. MPI is started in processes of their own, never in that of pytest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pnc_vol.testing.driver_suite import DriverSuite
from pnc_vol.testing.mpi import missing, run_mpi

SUITE = Path(__file__).with_name("suite_mpio.py")
STACKS = re.findall(r"(?m)^class (Test\w+)", SUITE.read_text())


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.parametrize("stack", STACKS)
def test_the_suite_of_drivers(stack: str, tmp_path: Path) -> None:
    """All tests of the suite pass, and none is left out."""
    options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib", f"--basetemp={tmp_path / 'b'}"]
    done = run_mpi(1, "pytest", *options, f"{SUITE}::{stack}", timeout=200)
    passed = re.search(r"(?m)^(\d+) passed in", done.stdout)
    assert passed, done.stdout
    assert int(passed[1]) >= len([name for name in dir(DriverSuite) if name.startswith("test_")])
