"""Small pieces far apart: gathered, they are what single reads give; where they are not all there, nobody is fooled."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pnc_vol.drivers.gathering import LEAST, PIECE, Gatherer
from pnc_vol.system import REAL

SIZE = 3_000_000


@pytest.fixture(scope="module")
def content() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, SIZE, dtype=np.uint8)


@pytest.fixture
def fd(tmp_path: Path, content: np.ndarray) -> Iterator[int]:
    (tmp_path / "file").write_bytes(content.tobytes())
    if os.major((tmp_path / "file").stat().st_dev) == 0 or not hasattr(os, "memfd_create"):
        pytest.skip("needs Linux and a temporary directory on a block device")
    found = os.open(tmp_path / "file", os.O_RDWR)
    yield found
    os.close(found)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 1000), n=st.sampled_from([LEAST, 1023, 1025, 5000]), longest=st.sampled_from([1, 9, PIECE]))
def test_pieces_are_what_the_file_holds(content: np.ndarray, seed: int, n: int, longest: int) -> None:
    rng = np.random.default_rng(seed)
    length = rng.integers(1, longest + 1, n) if seed % 2 else np.full(n, longest)
    offset = rng.integers(0, SIZE - longest, n)
    order = rng.permutation(n)
    place = np.empty(n, np.int64)
    place[order] = np.cumsum(length[order]) - length[order]
    memory = np.zeros(int(length.sum()), np.uint8)
    fd = os.memfd_create("test")
    try:
        os.write(fd, content.tobytes())
        gatherer = Gatherer(REAL, fd, anywhere=True)
        assert gatherer.read(offset, length, memory, place) is not None
        gatherer.close()
    finally:
        os.close(fd)
    for o, n_bytes, p in zip(offset, length, place, strict=True):
        assert np.array_equal(memory[p : p + n_bytes], content[o : o + n_bytes])


def test_what_the_file_does_not_hold_is_not_gathered(fd: int, content: np.ndarray) -> None:
    gatherer = Gatherer(REAL, fd)
    offset = np.linspace(0, SIZE - 8, 100).astype(np.int64)
    length, place = np.full(100, 8), np.arange(100) * 8
    memory = np.zeros(800, np.uint8)
    assert gatherer.read(offset, length, memory, place) == 1
    # Within the last page there are zeros behind the end, and no fault.
    for size in (SIZE - 1, SIZE // 2, 0):
        os.ftruncate(fd, size)
        assert gatherer.read(offset, length, memory, place) is None, size
    os.pwrite(fd, content.tobytes() * 2, 0)
    assert gatherer.read(offset + SIZE, length, memory, place) == 1
    assert np.array_equal(memory[:8], content[:8])
    assert gatherer.read(offset[: LEAST - 1], length[: LEAST - 1], memory, place[: LEAST - 1]) is None
    gatherer.close()


def test_nothing_stays_open(fd: int) -> None:
    before = len(os.listdir("/proc/self/fd"))
    gatherer = Gatherer(REAL, fd)
    offset = np.arange(100, dtype=np.int64) * 10_000
    assert gatherer.read(offset, np.full(100, 4), np.zeros(400, np.uint8), np.arange(100) * 4)
    assert len(os.listdir("/proc/self/fd")) > before
    gatherer.close()
    assert len(os.listdir("/proc/self/fd")) == before
    assert gatherer.read(offset, np.full(100, 4), np.zeros(400, np.uint8), np.arange(100) * 4) is None
