"""What a flush of a set of subfiles writes: bytes and calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pnc_vol
from pnc_vol.testing.faults import TraceSystem

COLUMNS, VARIABLES = 60, 20
RUNS = pnc_vol.Decomposition.from_runs(np.arange(0, COLUMNS, 3), np.full(COLUMNS // 3, 2), (COLUMNS,))
OWNED = 2 * COLUMNS // 3


def file(path: Path, system: TraceSystem, **options: Any) -> pnc_vol.File:
    f = pnc_vol.File(path, "w", layout="blob", system=system, **options)
    f.attrs["title"] = "of the set"
    for i in range(VARIABLES):
        x = f.create_dataset(f"v{i}", (0, COLUMNS), "f8", maxshape=(None, COLUMNS), decomposition=RUNS)
        x.attrs["units"] = "K"
    return f


def post(f: pnc_vol.File, record: int) -> None:
    for i in range(VARIABLES):
        x = f[f"v{i}"]
        x.resize(record + 1, axis=0)
        x.iput((record, RUNS), np.full(OWNED, float(i)))


def written(system: TraceSystem) -> list[tuple[int, int]]:
    """Offset and bytes of each write."""
    return [(call.offset, call.nbytes) for call in system.log if call.name in ("pwrite", "pwritev")]


def test_a_flush_that_adds_records_writes_its_data_and_eight_bytes(tmp_path: Path) -> None:
    system = TraceSystem()
    with file(tmp_path / "set.nc", system) as f:
        post(f, 0)
        f.flush()
        for record in (1, 2):
            post(f, record)
            del system.log[:]
            f.flush()
            # blobs of variables that follow each other are one write, though each has 20 runs
            assert sorted(n for _, n in written(system)) == [8, VARIABLES * OWNED * 8]
            assert (4, 8) in written(system)
    with pnc_vol.File(tmp_path / "set.nc") as f:
        found = f["v3"][0]
        assert found[::3].tolist() == found[1::3].tolist() == [3.0] * (COLUMNS // 3)


@pytest.mark.parametrize("again", [False, True])
def test_a_flush_without_anything_new_writes_nothing(tmp_path: Path, again: bool) -> None:
    system = TraceSystem()
    with file(tmp_path / "set.nc", system) as f:
        post(f, 0)
        f.flush()
        del system.log[:]
        if again:
            f["v0"].iput((0, RUNS), np.full(OWNED, 9.0))
        f.flush()
        assert [n for _, n in written(system)] == [OWNED * 8] * again


def test_an_attribute_that_changes_is_in_the_subfile(tmp_path: Path) -> None:
    with file(tmp_path / "set.nc", TraceSystem()) as f:
        post(f, 0)
        f.flush()
        f["v1"].attrs["units"] = "mK"
        f.flush()
        post(f, 1)
        f.flush()
        f["v1"].attrs["units"] = "uK"
    with pnc_vol.File(tmp_path / "set.nc") as f:
        assert [f[f"v{i}"].attrs["units"] for i in range(3)] == ["K", "uK", "K"]
        assert f["v1"].shape == (2, COLUMNS)
