"""Ranks that have nothing to write, write different things, read alone or together, and overlap."""

from __future__ import annotations

from pathlib import Path

import pytest

from pnc_vol.testing.mpi import missing, run_mpi

PROGRAM = Path(__file__).with_name("ranks_semantics.py")

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.mark.parametrize("nprocs", [2, 4, pytest.param(3, marks=pytest.mark.nightly)])
def test_what_ranks_may_do_and_see(tmp_path: Path, nprocs: int) -> None:
    assert run_mpi(nprocs, PROGRAM, tmp_path, timeout=90).stdout.count("all cases") == nprocs


def test_every_kind_of_element_comes_back_and_a_log_changes_no_byte(tmp_path: Path) -> None:
    told = run_mpi(3, PROGRAM.with_name("ranks_blob_kinds.py"), tmp_path, "canonical", "log").stdout
    for layout in ("canonical", "log"):
        assert told.count(f"all kinds of {layout}") == 3
    assert (tmp_path / "canonical").read_bytes() == (tmp_path / "log").read_bytes()
