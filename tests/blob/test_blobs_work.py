"""The work that views and replays of blobs do: calls of functions, ranges read, memory taken."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from counted_work import calls_of
from e3sm_reference import NETCDF_BLOBS, content

import pnc_vol
from pnc_vol.testing.faults import TraceSystem

READS, WRITES = {"pread_into", "preadv"}, {"pwrite", "pwritev"}


@pytest.fixture
def c_set(tmp_path: Path) -> Path:
    """The set of two subfiles that the C program wrote, of 16 ranks."""
    for name in NETCDF_BLOBS:
        (tmp_path / name).write_bytes(content(name))
    return tmp_path / NETCDF_BLOBS[0][:-5]


def test_a_header_that_is_longer_than_the_first_read_is_not_decoded_twice(tmp_path: Path) -> None:
    each = []
    for n in (50, 1000):
        path = tmp_path / f"{n}.nc"
        with pnc_vol.File(path, "w") as f:
            for i in range(n):
                f.create_dataset(f"v{i}", (2,), "i4").attrs["about"] = f"{i} " * 20
        each.append(calls_of(lambda: pnc_vol.File(path).close()) / n)  # noqa: B023
    assert each[1] < each[0]


def test_a_whole_variable_is_one_range_of_each_subfile(c_set: Path) -> None:
    system = TraceSystem()
    with pnc_vol.File(c_set, system=system) as f:
        first, again = [], []
        before = calls_of(lambda: first.append(f["U"][...]))
        system.log.clear()
        # the order of the map is known, and each record is two ranges
        assert calls_of(lambda: again.append(f["U"][...])) < before
        np.testing.assert_array_equal(again[0], first[0])
        assert len(system.matching(name=READS)) <= 2 * len(first[0])


def test_a_replay_reads_and_writes_long_ranges(c_set: Path, tmp_path: Path) -> None:
    out, system = tmp_path / "whole.nc", TraceSystem()
    report = pnc_vol.replay(c_set, output=out, system=system)
    blocks = 1 + out.stat().st_size // (64 << 10)
    # a block of each subfile, and five variables of each map; not one for each of thousands of pieces
    assert len(system.matching(name=READS)) <= 2 * (1 + 5 * len(report.maps)) + 2 * blocks + 20
    assert len(system.matching(name=WRITES)) <= 2 + blocks


@pytest.mark.parametrize("budget", [1 << 18, 1 << 20])
def test_a_replay_stays_within_its_budget(tmp_path: Path, budget: int) -> None:
    """Scattered elements of a variable that is larger than the budget, of which the index alone would be, too."""
    base, n = tmp_path / "large.nc", 1 << 18
    own = pnc_vol.Decomposition.from_runs(np.arange(0, n, 512), np.full(n // 512, 511), shape=(n,))
    with pnc_vol.File(base, "w", layout="blob") as f:
        for name in ("a", "b", "c"):
            f.create_dataset(name, (n,), "f8", decomposition=own)
            f[name].iput(own, np.full(n // 512 * 511, 1.5))
    pnc_vol.replay(base, output=tmp_path / "first.nc", buffer_size=budget)
    tracemalloc.start()
    try:
        pnc_vol.replay(base, output=tmp_path / "whole.nc", buffer_size=budget)
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert taken <= 1.25 * budget + (256 << 10)
    with pnc_vol.File(tmp_path / "whole.nc") as f:
        assert f["c"][...].sum() == 1.5 * (n // 512) * 511
