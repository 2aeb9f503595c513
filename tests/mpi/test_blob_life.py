"""A set of subfiles on ranks: rewriting, overlaps, supplements, what it replaces, and each system call that fails."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import pnc_vol
from pnc_vol.testing.mpi import missing, run_mpi

PROGRAM = Path(__file__).with_name("ranks_blob_life.py")
CONTENTS = (
    "overlaps_in_one_flush",
    "without_names",
    "overlaps_across_flushes",
    "copies_in_every_subfile",
    "replaced",
    "one_header_is_older",
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


@pytest.mark.parametrize(
    ("who", "at"),
    [
        (0, 9),
        (2, 14),
        *(pytest.param(who, at, marks=pytest.mark.nightly) for who in (0, 1, 2) for at in range(3, 30, 2)),
    ],
)
def test_a_job_that_is_killed(tmp_path: Path, who: int, at: int) -> None:
    """Every record that was flushed is whole in the view, and so is every variable."""
    done = run_mpi(3, PROGRAM, tmp_path, 2, "killed", env={"PNC_VOL_KILL": f"{who} {at}"}, check=False)
    assert done.returncode != 0
    path = tmp_path / "killed.nc"
    acks = len((tmp_path / "killed.nc.acks").read_bytes())
    owner = np.repeat(np.arange(3), 6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        view = pnc_vol.File(path)
    with view:
        records = view["t"].shape[0]
        assert acks <= records <= acks + 1
        np.testing.assert_array_equal(view["t"][...], owner + np.arange(records)[:, None])
        assert set(view) >= {"t", *(f"v{k}" for k in range(3, acks, 4))}
        for name in view:
            if name != "t":
                np.testing.assert_array_equal(view[name][...], owner + int(name[1:]))
