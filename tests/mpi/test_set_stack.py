"""A blob set of several ranks over the burst-buffer log and over node-local caches."""

from __future__ import annotations

import pathlib

import pytest

import pnc_vol
from pnc_vol.testing.mpi import missing, run_mpi

PROGRAM = pathlib.Path(__file__).with_name("ranks_set_stack.py")

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.mark.parametrize(("nprocs", "subfiles"), [(2, 1), (3, 3), (4, 2)])
@pytest.mark.parametrize("stack", ["plain", "log", "cache", "log+cache"])
def test_a_set_reads_as_the_canonical_file(tmp_path: pathlib.Path, nprocs: int, subfiles: int, stack: str) -> None:
    run_mpi(nprocs, PROGRAM, tmp_path, stack, subfiles, timeout=120)


def test_subfiles_of_others_are_read_by_the_stack_that_was_asked_for(tmp_path: pathlib.Path) -> None:
    """Two subfiles, read by one rank: the reads of both are in the timeline of the stack that was named."""
    run_mpi(2, PROGRAM, tmp_path, "plain", 2, timeout=120)
    path = tmp_path / "blobs.nc"
    for driver, name in (("trace | posix", "trace"), ("posix", "posix")):
        with pnc_vol.File(path, driver=driver) as f:
            f["x"][...]
            others = f.id.handle.session.disk.driver._others
            assert sorted(others) == [0, 1]
            assert {one.name for one in others.values()} == {name}
