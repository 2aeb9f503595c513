"""The shared memory of MPICH, some 5 MB for each rank, which killed ranks leave until the machine is restarted."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import time

_NEW = 5.0
"""Seconds in which a piece of shared memory that nobody has mapped may still be mapped."""


def remove_segments() -> int:
    """Remove the shared memory that killed ranks of MPICH left; how many pieces.

    Nobody else's: what a process has mapped stays, and what was made in the last seconds, which may be about to be.
    """
    left = glob.glob("/dev/shm/mpich_shm_*")
    if not left:
        return 0
    mapped = set()
    for maps in glob.glob("/proc/[0-9]*/maps"):
        with contextlib.suppress(OSError), open(maps) as lines:
            mapped |= set(re.findall(r"/dev/shm/mpich_shm_\w+", lines.read()))
    removed = 0
    for path in left:
        # it may go, and may be another user's
        with contextlib.suppress(OSError):
            if path not in mapped and time.time() - os.stat(path).st_mtime > _NEW:
                os.unlink(path)
                removed += 1
    return removed
