"""Sieved writes leave what single ones leave; what lies between the pieces is as it was."""

from __future__ import annotations

import os
import pathlib

import numpy as np

import pnc_vol
from pnc_vol.testing.faults import FaultSystem, TraceSystem


def scattered(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return np.sort(rng.choice(100_000, n, replace=False)).reshape(-1, 1) * 8, rng.random(n * 4)


def test_many_small_writes_are_few_calls_and_change_nothing_between_them(tmp_path: pathlib.Path) -> None:
    system = TraceSystem()
    starts, values = scattered(20_000)
    with pnc_vol.File(tmp_path / "a.nc", "w", system=system) as f:
        ds = f.create_dataset("x", data=-np.arange(800_008.0))
        f.flush()
        before = len(system.matching(name=("pwrite", "pwritev")))
        ds.iput_many(starts, np.full_like(starts, 4), values)
        f.flush()
        assert len(system.matching(name=("pwrite", "pwritev"))) - before < 100
        wanted = -np.arange(800_008.0)
        wanted[(starts + np.arange(4)).ravel()] = values
        assert np.array_equal(ds[...], wanted)


def test_a_read_that_fails_does_not_stop_the_write(tmp_path: pathlib.Path) -> None:
    system = FaultSystem(fail_at=1, errno=5, mode="forever", calls={"pread_into"})
    starts, values = scattered(3000)
    with pnc_vol.File(tmp_path / "a.nc", "w", system=system) as f:
        f.create_dataset("x", (800_008,), "f8").iput_many(starts, np.full_like(starts, 4), values)
    assert system.fired
    with pnc_vol.File(tmp_path / "a.nc") as f:
        assert np.array_equal(f["x"][...][(starts + np.arange(4)).ravel()], values)
    assert os.listdir(tmp_path) == ["a.nc"]
