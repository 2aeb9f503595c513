"""A set of subfiles on ranks: rewriting, overlaps, supplements, what it replaces, appending by other numbers of ranks.

Blobs are written by their ranks, in few pieces, whatever the runs of their maps are, and each system call fails. That a
rank is killed at any call is an event of the engine (`killed`, with the layout of blobs).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pnc_vol.testing.mpi import missing, run_mpi

PROGRAM = Path(__file__).with_name("ranks_blob_life.py")
APPENDING, WORK = (PROGRAM.with_name(f"ranks_{name}.py") for name in ("append_set", "set_work"))
CONTENTS = (
    "overlaps_in_one_flush",
    "without_names",
    "overlaps_across_flushes",
    "copies_in_every_subfile",
    "replaced",
    "one_header_is_older",
    "another_file_is_in_the_way",
)

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.mark.parametrize(("ranks", "subfiles"), [(1, 1), (2, 2), (3, 2), (4, 3)])
def test_what_is_written_is_read(tmp_path: Path, ranks: int, subfiles: int) -> None:
    assert run_mpi(ranks, PROGRAM, tmp_path, subfiles, *CONTENTS).stdout.split() == list(CONTENTS)


@pytest.mark.parametrize(("ranks", "subfiles"), [(3, 2), (1, 1), (2, 2)])
def test_each_call_that_fails(tmp_path: Path, ranks: int, subfiles: int) -> None:
    run_mpi(ranks, PROGRAM, tmp_path, subfiles, "faults", timeout=400)


@pytest.mark.parametrize(
    ("wrote", "subfiles", "appended", "reads"),
    [(1, 1, 4, 2), (2, 2, 3, 4), (3, 2, 1, 3), (4, 3, 2, 1)],
)
def test_any_number_of_ranks_appends_and_reads(
    tmp_path: Path, wrote: int, subfiles: int, appended: int, reads: int
) -> None:
    run_mpi(wrote, APPENDING, tmp_path, "write", subfiles)
    run_mpi(appended, APPENDING, tmp_path, "append")
    run_mpi(reads, APPENDING, tmp_path, "read", wrote)


@pytest.mark.parametrize(("nprocs", "subfiles"), [(2, 1), (4, 1), (4, 2)])
def test_blobs_are_written_by_their_ranks(tmp_path: Path, nprocs: int, subfiles: int) -> None:
    run_mpi(nprocs, WORK, tmp_path, subfiles, timeout=120)
