"""The lock of a file that ranks write together, and of one that each opens by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from pnc_vol.testing.mpi import missing, run_mpi

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


def test_ranks_and_their_lock(tmp_path: Path) -> None:
    run_mpi(2, Path(__file__).with_name("ranks_locks.py"), tmp_path, timeout=100)
