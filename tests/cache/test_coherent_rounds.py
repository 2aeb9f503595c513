"""Coherent mode: what is written again while a thread carries the bytes of before stays locked until it is carried."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
from this_system import needs_record_locks

import pnc_vol
from pnc_vol.testing.faults import HookedSystem

N = 5000


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
