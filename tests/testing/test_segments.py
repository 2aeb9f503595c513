"""What killed ranks leave in memory does not stay."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest
from segments import remove_segments


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="there is no memory file system")
def test_what_killed_ranks_leave_in_memory_is_removed() -> None:
    """What a process has mapped, and what is new, may be of a job that runs."""
    left, used, new = (Path(f"/dev/shm/mpich_shm_{kind}_{os.getpid()}") for kind in ("left", "used", "new"))
    for path in (left, used, new):
        path.write_bytes(bytes(4096))
    try:
        for path in (left, used):
            os.utime(path, (0, 0))
        with used.open("r+b") as f, mmap.mmap(f.fileno(), 4096):
            assert remove_segments() >= 1 or not left.exists(), "another process of the tests may be first"
            assert [path.exists() for path in (left, used, new)] == [False, True, True]
    finally:
        for path in (left, used, new):
            path.unlink(missing_ok=True)
