"""What a cache takes, on the device and in memory, when much is written and it is never empty."""

from __future__ import annotations

import threading
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

import numpy as np
import pytest
from other_process import fresh

from pnc_vol.testing.driver_suite import Extents, extents_of, open_stack
from pnc_vol.testing.faults import HookedSystem


class Behind(HookedSystem):
    """A thread has not carried a write before the next one is made, unless nobody writes."""

    def __init__(self) -> None:
        super().__init__()
        self.turns, self.alone = threading.Semaphore(0), 0

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name == "copy_range":
            self.alone += not self.turns.acquire(timeout=0.02)
        return super().call(name, args, kwargs)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize(
    ("options", "most"), [("", 1 << 40), (", capacity=2000000", 2_000_000), (", discard=disable", 1 << 40)]
)
def test_a_steady_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, most: int, again: bool) -> None:
    """The file is 40 times as large as what the cache takes, or is written 640 times."""
    for name, value in {"_MUCH": 4 << 20, "_MUCH_LOG": 20_000, "_LOG_LIMIT": 10_000}.items():
        monkeypatch.setattr(f"pnc_vol.cache.local_store.{name}", value)
    path, system = tmp_path / "x", Behind()
    path.write_bytes(b"")
    driver = open_stack(f"cache(path='{tmp_path}', copy_size=1000000{options}) | posix", str(path), system=system)
    held, taken, logged = [], 0, 0
    for i in range(640):
        driver.write(extents_of((0 if again else i << 18, 1 << 18, 0)), np.full(1 << 18, i % 251, np.uint8))
        if i:
            system.turns.release()
        held.append(driver.holder.unsynced().nbytes)
        store = driver._bytes.store  # type: ignore[attr-defined]
        taken, logged = max(taken, store.file.allocated()), max(logged, store.log.nbytes)
    # A machine that is busy lets the threads fall behind.
    assert "discard" in options or taken <= min(most, max(6 << 20, 17 * max(held)))
    assert logged < 35_000
    assert not driver.holder.trouble()
    if not options:
        # It is a stream: the program waited for few writes only.
        assert driver.statistics()["cache.through_bytes"] == 0
        assert sum(map(bool, held)) > 600
        assert system.alone < 100
    driver.close()
    found = np.fromfile(path, np.uint8).reshape(-1, 1 << 18)
    expected = [639 % 251] if again else np.arange(640) % 251
    assert (found == np.array(expected, np.uint8)[:, None]).all()


def small_writes(path: str, flag: str, many: str, some: str) -> None:
    """Extents that touch nothing, `some` in each write; MiB of memory and log, bytes beyond the bound."""
    memory, step = np.ones(8 * int(some), np.uint8), np.arange(int(some), dtype=np.int64)
    Path(path).touch()
    text = f"cache(path='{Path(path).parent}', flush={flag}, in_flight=1000000000) | posix"
    driver = open_stack(text, path)
    before, logged = getrusage(RUSAGE_SELF).ru_maxrss, 0
    for i in range(int(many) // int(some)):
        driver.write(Extents((step + i * int(some)) * 16, np.full(int(some), 8), step * 8), memory)
        logged = max(logged, driver._bytes.store.log.nbytes)  # type: ignore[attr-defined]
    print((getrusage(RUSAGE_SELF).ru_maxrss - before) >> 10, logged >> 20, driver.statistics()["cache.through_bytes"])
    driver.close()
    print((getrusage(RUSAGE_SELF).ru_maxrss - before) >> 10)


@pytest.mark.parametrize(
    ("flag", "many", "some", "most"),
    [
        ("flush_onclose", 2_000_000, 100_000, 100),
        ("flush_immediate", 100_000, 100, 150),
        ("flush_onclose", 100_000, 100, 150),
        *(
            pytest.param(flag, 10_000_000, 100, 150, marks=(pytest.mark.nightly, pytest.mark.timeout(3600)))
            for flag in ("flush_immediate", "flush_onclose")
        ),
    ],
)
def test_many_small_writes(tmp_path: Path, flag: str, many: int, some: int, most: int) -> None:
    """Neither memory nor the log grows with their number; none of two million is carried before the close."""
    done = fresh(small_writes, tmp_path / "x", flag, many, some, seconds=3600)
    mib, log_mib, through, mib_at_end = map(int, done.stdout.split())
    assert mib < most
    assert mib <= mib_at_end < 150
    assert log_mib < 130
    assert through or many != 2_000_000, "beyond the bound they go to the file"
    found = np.fromfile(tmp_path / "x", np.uint8)
    assert (found[: 16 * (many - 1)].reshape(-1, 16) == np.repeat([1, 0], 8)).all()
