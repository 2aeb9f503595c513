"""Sets of subfiles that other numbers of ranks append to than wrote them, and others read."""

from __future__ import annotations

from pathlib import Path

import pytest

from pnc_vol.testing.mpi import missing, run_mpi

PROGRAM = Path(__file__).with_name("ranks_append_set.py")

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.mark.parametrize(
    ("wrote", "subfiles", "appended", "reads"),
    [(1, 1, 4, 2), (2, 2, 3, 4), (3, 2, 1, 3), (4, 3, 2, 1)],
)
def test_any_number_of_ranks_appends_and_reads(
    tmp_path: Path, wrote: int, subfiles: int, appended: int, reads: int
) -> None:
    run_mpi(wrote, PROGRAM, tmp_path, "write", subfiles)
    run_mpi(appended, PROGRAM, tmp_path, "append")
    run_mpi(reads, PROGRAM, tmp_path, "read", wrote)
