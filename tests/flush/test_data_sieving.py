"""Sieved writes leave what single ones leave; what lies between the pieces is as it was."""

from __future__ import annotations

import os
import pathlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pnc_vol
from pnc_vol.drivers.memory import MemoryDriver
from pnc_vol.extents.merge import last_wins
from pnc_vol.extents.model import Extents
from pnc_vol.flush import data_sieving as sieve
from pnc_vol.testing.faults import FaultSystem, TraceSystem


@settings(deadline=None)
@given(
    seed=st.integers(0, 10_000),
    count=st.integers(1, 300),
    longest=st.sampled_from([1, 8, 40, 300]),
    spread=st.sampled_from([500, 3000, 50_000]),
    there=st.integers(0, 20_000),
)
def test_it_writes_what_a_loop_writes(seed: int, count: int, longest: int, spread: int, there: int) -> None:
    rng = np.random.default_rng(seed)
    offset, length = rng.integers(0, spread, count), rng.integers(1, longest + 1, count)
    extents = last_wins(Extents(offset, length, np.cumsum(length) - length))
    memory = rng.integers(0, 256, int(length.sum()), dtype=np.uint8)
    old = rng.integers(0, 256, there, dtype=np.uint8)
    driver = MemoryDriver()
    driver.capabilities = driver.capabilities._replace(call_cost=128)
    driver.write(Extents(*np.array([[0], [there], [0]])), old)
    wanted = np.zeros(max(there, int((extents.offset + extents.length).max())), np.uint8)
    wanted[:there] = old
    for o, n, p in zip(*extents, strict=True):
        wanted[o : o + n] = memory[p : p + n]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sieve, "_LARGEST", 4096)
        sieve.write_sieved(extents, memory, driver)
    assert driver.size() == len(wanted)
    found = np.empty_like(wanted)
    driver.read(Extents(*np.array([[0], [len(wanted)], [0]])), found)
    assert np.array_equal(found, wanted)


def scattered(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return np.sort(rng.choice(100_000, n, replace=False)).reshape(-1, 1) * 8, rng.random(n * 4)


def test_many_small_writes_are_few_calls(tmp_path: pathlib.Path) -> None:
    system = TraceSystem()
    starts, values = scattered(20_000)
    with pnc_vol.File(tmp_path / "a.nc", "w", system=system) as f:
        ds = f.create_dataset("x", (800_008,), "f8")
        ds.iput_many(starts, np.full_like(starts, 4), values)
        f.flush()
        calls = len(system.matching(name=("pwrite", "pwritev")))
        assert calls < 100
        wanted = np.zeros(800_008)
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
