"""A set of subfiles on ranks: rewriting, overlaps, supplements, what it replaces, and each system call that fails.

That a rank is killed at any call is an event of the engine (`killed`, with the layout of blobs).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pnc_vol.testing.mpi import missing, run_mpi

PROGRAM = Path(__file__).with_name("ranks_blob_life.py")
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


@pytest.mark.parametrize(
    ("ranks", "subfiles"),
    [(3, 2), (1, 1), pytest.param(2, 2, marks=pytest.mark.nightly)],
)
def test_each_call_that_fails(tmp_path: Path, ranks: int, subfiles: int) -> None:
    run_mpi(ranks, PROGRAM, tmp_path, subfiles, "faults", timeout=400)
