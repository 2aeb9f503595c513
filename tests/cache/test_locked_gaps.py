"""Coherent mode: what lies between many small pieces is somebody else's, and is not kept locked."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

import pnc_vol
from pnc_vol.testing.driver_suite import extents_of, open_stack

N = 5000


@pytest.mark.parametrize("pieces", [100, N])
def test_another_opening_reads_between_the_pieces_that_wait(tmp_path: Path, pieces: int) -> None:
    path, nvm = tmp_path / "x.nc", tmp_path / "nvm"
    nvm.mkdir()
    with pnc_vol.File(path, "w") as f:
        f["a"] = np.arange(2 * N, dtype="i4")
    hints = {"e10_cache": "coherent", "e10_cache_path": str(nvm), "e10_cache_flush_flag": "flush_onclose"}
    writer = pnc_vol.File(path, "r+", hints=hints, locking=False)
    driver = writer.id.handle.session.disk.driver
    begin = writer.id.handle.session.disk.header.vars[0].begin
    # the even elements; they wait in the cache until the close
    even = extents_of(*((begin + 8 * i, 4, 4 * i) for i in range(pieces)))
    driver.write(even, np.zeros(4 * pieces, np.uint8))
    seen: list[int] = []

    def look() -> None:
        other = open_stack(f"cache(path='{nvm}', mode=coherent) | posix", str(path), writable=False)
        for i in range(0, pieces - 1, 7):
            back = np.zeros(4, np.uint8)
            other.read(extents_of((begin + 8 * i + 4, 4, 0)), back)
            seen.append(int(back.view(">i4")[0]))
        other.close()

    reader = threading.Thread(target=look, daemon=True)
    reader.start()
    reader.join(10)
    done = not reader.is_alive()
    writer.close()
    reader.join(60)
    assert done, "the reader waited for bytes that nobody wrote"
    assert seen == list(range(1, 2 * pieces - 2, 14))
