"""A set of subfiles on ranks: rewriting, overlaps, supplements, what it replaces, and each system call that fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from pnc_vol.testing.mpi import missing, run_mpi

PROGRAM = Path(__file__).with_name("ranks_blob_life.py")
CONTENTS = (
    "overlaps_in_one_flush",
    "overlaps_across_flushes",
    "outside_the_map",
    "posted_late",
    "deleted_and_made_again",
    "strings_that_grow",
    "copies_in_every_subfile",
    "replaced",
)
FAULTS = ("faults_of_the_first_rank", "faults_of_the_last_rank")

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.mark.parametrize(("ranks", "subfiles"), [(1, 1), (2, 2), (3, 2), (4, 3)])
def test_what_is_written_is_read(tmp_path: Path, ranks: int, subfiles: int) -> None:
    assert run_mpi(ranks, PROGRAM, tmp_path, subfiles, *CONTENTS).stdout.split() == list(CONTENTS)


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize(
    ("ranks", "subfiles"),
    [(1, 1), pytest.param(2, 2, marks=pytest.mark.nightly), (3, 2)],
)
def test_each_call_that_fails(tmp_path: Path, name: str, ranks: int, subfiles: int) -> None:
    run_mpi(ranks, PROGRAM, tmp_path, subfiles, name, timeout=240)
