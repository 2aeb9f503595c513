"""Memory stays within the budget whatever is written, and data may exceed what one MPI call carries."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pnc_vol.testing.mpi import missing, run_mpi

PROGRAM = Path(__file__).with_name("ranks_memory.py")
GIB = 1 << 30

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


def test_every_rank_writes_twenty_times_its_budget(tmp_path: Path) -> None:
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("needs /proc/self/clear_refs (Linux) to measure memory")
    told = run_mpi(2, PROGRAM, "budget", tmp_path, timeout=100).stdout
    assert told.count("MiB of 80 written") == 10, told


@pytest.mark.large
def test_more_than_2_gib_of_a_rank(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    if free < 12 * GIB:
        pytest.skip(f"needs 12 GiB of disk in {tmp_path}, {free / GIB:.1f} are free")
    memory = {line.split(":")[0]: line.split()[1] for line in Path("/proc/meminfo").read_text().splitlines()}
    if int(memory["MemAvailable"]) < 10 << 20:
        pytest.skip(f"needs 10 GiB of memory, {int(memory['MemAvailable']) >> 20} are free")
    try:
        run_mpi(2, PROGRAM, "large", tmp_path, timeout=200)
    finally:
        for path in tmp_path.iterdir():
            path.unlink()
