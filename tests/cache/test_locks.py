"""Coherent mode: processes that write the same places wait for each other, and none for ever."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
from this_system import needs_record_locks

from pnc_vol.cache.locks import RangeLocks
from pnc_vol.cache.watch import Watch
from pnc_vol.extents.merge import EMPTY, Ranges
from pnc_vol.system import REAL

LOW, HIGH = Ranges(np.array([0]), np.array([8])), Ranges(np.array([80]), np.array([88]))
BOTH = Ranges(np.array([0, 80]), np.array([8, 88]))


@needs_record_locks
def test_what_is_locked_by_an_earlier_write_is_given_back_while_a_later_one_waits(tmp_path: Path) -> None:
    """Each of two processes has one of two places locked, and both write both: what was carried is unlocked."""
    path = tmp_path / "x"
    path.write_bytes(bytes(100))
    carried, told = threading.Event(), []

    def free(ranges: Ranges) -> Ranges:
        return ranges if carried.is_set() else EMPTY

    def write(locks: RangeLocks, waits: threading.Event) -> None:
        try:
            with locks.writing(BOTH, waits.set, free):
                told.append("written")
        except TimeoutError as error:
            told.append(str(error))

    made = [RangeLocks(REAL, str(path), Watch(), writable=True, limit=3) for _ in range(2)]
    waits = [threading.Event(), threading.Event()]
    for locks, place in zip(made, (LOW, HIGH), strict=True):
        with locks.writing(place, lambda: None, free):
            pass  # what it holds is not carried yet
    threads = [threading.Thread(target=write, args=one) for one in zip(made, waits, strict=True)]
    for thread in threads:
        thread.start()
    for one in waits:
        assert one.wait(10)
    carried.set()
    for locks, place in zip(made, (LOW, HIGH), strict=True):
        locks.unlock(place, free)
    for thread in threads:
        thread.join()
    for locks in made:
        locks.close()
    assert told == ["written", "written"]
