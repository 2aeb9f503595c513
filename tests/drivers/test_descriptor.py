"""Small pieces by a descriptor: what single reads give, in bounded memory, whatever happens to the file meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pnc_vol.testing.driver_suite import Driver, Extents, open_stack

SIZE = 3_000_000


@pytest.fixture(scope="module")
def content() -> bytes:
    return np.random.default_rng(0).bytes(SIZE)


@pytest.fixture
def path(tmp_path: Path, content: bytes) -> Path:
    (tmp_path / "file").write_bytes(content)
    return tmp_path / "file"


def opened(path: Path) -> Driver:
    return open_stack("posix", str(path), writable=True)


def pieces(seed: int, n: int, longest: int, size: int = SIZE) -> Extents:
    rng = np.random.default_rng(seed)
    length = rng.integers(1, longest + 1, n) if seed % 2 else np.full(n, longest)
    order = rng.permutation(n)
    place = np.empty(n, np.int64)
    place[order] = np.cumsum(length[order]) - length[order] + 5
    return Extents(rng.integers(0, size - longest, n), length, place)


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1000), n=st.sampled_from([31, 32, 1025, 5000]), longest=st.sampled_from([1, 9, 16384]))
def test_pieces_are_what_the_file_holds(path: Path, content: bytes, seed: int, n: int, longest: int) -> None:
    found = opened(path)
    extents = pieces(seed, n, longest)
    memory = np.zeros(extents.nbytes + 10, np.uint8)
    assert found.read(extents, memory) == extents.nbytes
    found.close()
    for o, m, p in zip(*(column.tolist() for column in extents), strict=True):
        assert memory[p : p + m].tobytes() == content[o : o + m]
    assert not memory[:5].any()
    assert not memory[-5:].any()


@pytest.mark.parametrize("size", [SIZE - 1, SIZE // 2, 0])
def test_what_lies_beyond_a_file_that_was_cut_stays_as_it_was(
    path: Path, content: bytes, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pnc_vol.drivers.posix._PIECES_AT_ONCE", 40)
    found = opened(path)
    offset = np.linspace(0, SIZE - 8, 100).astype(np.int64)
    extents = Extents(offset, np.full(100, 8), np.arange(100, dtype=np.int64)[::-1] * 8)
    memory = np.full(800, 7, np.uint8)
    assert found.read(extents, memory) == 800
    os.truncate(path, size)
    memory[:] = 7
    nbytes = found.read(extents, memory)
    there = np.clip(size - offset, 0, 8).tolist()
    assert nbytes == sum(there)
    for o, n, p in zip(offset.tolist(), there, extents.place.tolist(), strict=True):
        assert memory[p : p + 8].tobytes() == content[o : o + n] + b"\7" * (8 - n)
    # and what was added to it since is found
    path.write_bytes(content + content)
    assert found.read(extents._replace(offset=offset + SIZE), memory) == 800
    assert memory[-8:].tobytes() == content[:8]
    found.close()


def test_nothing_stays_open(path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    found = opened(path)
    found.read(pieces(0, 100, 4), np.zeros(410, np.uint8))
    found.close()
    assert len(os.listdir("/proc/self/fd")) == before
