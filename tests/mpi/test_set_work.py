"""How the ranks of a set write: blobs by themselves, in few pieces, whatever the runs of their maps are."""

from __future__ import annotations

import pathlib

import pytest

from pnc_vol.testing.mpi import missing, run_mpi

PROGRAM = pathlib.Path(__file__).with_name("ranks_set_work.py")

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.mark.parametrize(("nprocs", "subfiles"), [(2, 1), (4, 1), (4, 2)])
def test_blobs_are_written_by_their_ranks(tmp_path: pathlib.Path, nprocs: int, subfiles: int) -> None:
    run_mpi(nprocs, PROGRAM, tmp_path, subfiles, timeout=120)
