"""A blob set of several ranks over the burst-buffer log and over node-local caches."""

from __future__ import annotations

import pathlib

import pytest

from pnc_vol.testing.mpi import missing, run_mpi

PROGRAM = pathlib.Path(__file__).with_name("ranks_set_stack.py")

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.mark.parametrize(("nprocs", "subfiles"), [(2, 1), (3, 3), (4, 2)])
@pytest.mark.parametrize("stack", ["plain", "log", "cache", "log+cache"])
def test_a_set_reads_as_the_canonical_file(tmp_path: pathlib.Path, nprocs: int, subfiles: int, stack: str) -> None:
    run_mpi(nprocs, PROGRAM, tmp_path, stack, subfiles, timeout=120)
