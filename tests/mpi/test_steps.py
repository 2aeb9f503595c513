"""What fails on one rank in the middle of a collective call is raised on all; none waits, no post is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from pnc_vol.testing.mpi import missing, run_mpi

PROGRAM = Path(__file__).with_name("ranks_steps.py")
TWO_NODES = {"MPIR_CVAR_NUM_CLIQUES": "2"}
CASES = ("flushes", "defines", "moves", "closes", "read")

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.mark.parametrize(
    ("case", "transport", "env", "stride"),
    [
        ("flushes", "aggregate", {}, 12),
        ("flushes", "aggregate", TWO_NODES, 6),
        ("defines", "independent", {}, 29),
        ("moves", "aggregate", TWO_NODES, 13),
        # the few steps behind the last agreement are where a rank fails alone
        ("moves", "independent", {}, 3),
        ("read", "collective", {}, 5),
        ("read", "aggregate", TWO_NODES, 7),
    ],
)
def test_some_calls_of_numpy_fail(tmp_path: Path, case: str, transport: str, env: dict[str, str], stride: int) -> None:
    told = run_mpi(3, PROGRAM, tmp_path, "mpio", transport, case, "numpy", stride, env=env, timeout=150).stdout
    assert told.count("failures on rank") == 2, told


@pytest.mark.nightly
@pytest.mark.parametrize("env", [{}, TWO_NODES], ids=["one node", "two nodes"])
@pytest.mark.parametrize("transport", ["aggregate", "collective", "independent"])
@pytest.mark.parametrize("driver", ["mpio", "posix"])
@pytest.mark.parametrize("case", CASES)
def test_every_call_of_numpy_fails(tmp_path: Path, case: str, driver: str, transport: str, env: dict[str, str]) -> None:
    told = run_mpi(3, PROGRAM, tmp_path, driver, transport, case, "numpy", env=env, timeout=400).stdout
    assert told.count("failures on rank") == 2, told


def test_no_rank_waits_in_mpi_io_for_one_that_failed_before(tmp_path: Path) -> None:
    """Of posted reads that ranks do together: some steps of a rank come before the collective read."""
    told = run_mpi(3, PROGRAM, tmp_path, "mpio", "collective", "flushes", "numpy", 6, timeout=150).stdout
    assert told.count("failures on rank") == 2, told
