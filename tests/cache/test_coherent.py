"""Coherent mode: who reads or writes what waits in a cache waits for it, for nothing else, and not for ever."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from this_system import needs_record_locks

import pnc_vol
from pnc_vol.cache.locks import RangeLocks
from pnc_vol.cache.watch import Watch
from pnc_vol.extents.merge import EMPTY, Ranges
from pnc_vol.system import REAL
from pnc_vol.testing.driver_suite import extents_of, open_stack
from pnc_vol.testing.faults import HookedSystem

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


class Rounds(HookedSystem):
    """The first copy ends while the second round is being written to the cache; the second waits until it may begin."""

    def __init__(self) -> None:
        super().__init__()
        self.main = threading.current_thread()
        self.writing, self.first_done, self.go_on = (threading.Event() for _ in range(3))
        self.copies = self.rounds = 0

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        here = threading.current_thread() is self.main
        if here and self.rounds == 2 and name in ("pwrite", "pwritev") and not self.writing.is_set():
            self.writing.set()
            # the thread gives locks back, if it does, before it looks for more
            self.first_done.wait(1)
        if not here and name in ("copy_range", "preadv", "pread_into"):
            self.copies += 1
            (self.writing if self.copies == 1 else self.go_on).wait(20)
        told = super().call(name, args, kwargs)
        if not here and name == "record_lock":
            self.first_done.set()
        return told


@needs_record_locks
def test_a_reader_waits_for_the_later_of_two_rounds(tmp_path: Path) -> None:
    path, nvm = tmp_path / "x.nc", tmp_path / "nvm"
    nvm.mkdir()
    with pnc_vol.File(path, "w") as f:
        f["x"] = np.zeros(N, "i4")
    hints = {"e10_cache": "coherent", "e10_cache_path": str(nvm), "e10_cache_threads": "1"}
    system = Rounds()
    writer = pnc_vol.File(path, "r+", hints=hints, locking=False, system=system)
    for system.rounds in (1, 2):
        writer["x"][:] = system.rounds
        writer.flush()
    assert system.writing.is_set()
    seen: list[set[int]] = []

    def look() -> None:
        with pnc_vol.File(path, hints=hints, locking=False) as f:
            seen.append(set(f["x"][:].tolist()))

    reader = threading.Thread(target=look)
    reader.start()
    reader.join(0.2)
    system.go_on.set()
    reader.join(60)
    writer.close()
    assert seen == [{2}]
