"""`SwappedDriver` against a scalar twin: elements of any sizes, whole and in parts, up to the end of the file."""

from __future__ import annotations

import numpy as np
import pytest

from pnc_vol.blob.hdf5 import data_blob
from pnc_vol.drivers.memory import MemoryDriver
from pnc_vol.extents.model import Extents, before


@pytest.mark.parametrize("seed", range(8))
def test_what_is_read_is_what_swapped_elements_have(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_blob, "_BLOCK", 16)
    rng = np.random.default_rng(seed)
    for _ in range(60):
        sizes = rng.choice([1, 2, 4, 8], int(rng.integers(0, 6)))
        counts = rng.integers(0, 5, sizes.size)
        bounds = int(rng.integers(0, 5)) + np.append(0, np.cumsum(sizes * counts))
        raw = rng.integers(0, 256, int(bounds[-1]) + int(rng.integers(0, 6)), np.uint8)
        swapped = raw.copy()
        for low, high, size in zip(bounds, bounds[1:], sizes, strict=False):
            swapped[low:high] = swapped[low:high].reshape(-1, size)[:, ::-1].ravel()
        driver = data_blob.SwappedDriver(MemoryDriver(raw.tobytes()), bounds, sizes)
        offset = rng.integers(0, raw.size + 1, int(rng.integers(0, 6)))
        length = np.array([rng.integers(0, raw.size + 1 - at) for at in offset], np.int64)
        memory = np.zeros(int(length.sum()), np.uint8)
        assert driver.read(Extents(offset, length, before(length)), memory) == memory.size
        parts = [swapped[at : at + n] for at, n in zip(offset, length, strict=True)]
        assert memory.tolist() == [value for part in parts for value in part.tolist()]
        for at, part in zip(offset.tolist(), parts, strict=True):
            if part.size:
                one = np.zeros(part.size, np.uint8)
                assert driver.read_one(one, at) == part.size
                assert one.tolist() == part.tolist()
            beyond = np.zeros(part.size + 40, np.uint8)
            assert driver.read_one(beyond, at) == min(raw.size - at, beyond.size)
            assert beyond[: part.size].tolist() == part.tolist()
