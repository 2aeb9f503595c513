"""What a cache takes, on the device and in memory, when much is written and it is never empty."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pnc_vol.cache import local_store
from pnc_vol.drivers.stack import open_stack
from pnc_vol.extents.model import one_extent
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
    monkeypatch.setattr(local_store, "_MUCH", 4 << 20)
    monkeypatch.setattr(local_store, "_MUCH_LOG", 20_000)
    monkeypatch.setattr(local_store, "_LOG_LIMIT", 10_000)
    path, system = tmp_path / "x", Behind()
    path.write_bytes(b"")
    driver = open_stack(f"cache(path='{tmp_path}', copy_size=1000000{options}) | posix", str(path), system=system)
    held, taken, logged = [], 0, 0
    for i in range(640):
        driver.write(one_extent(0 if again else i << 18, 1 << 18), np.full(1 << 18, i % 251, np.uint8))
        if i:
            system.turns.release()
        held.append(driver.unsynced().nbytes)
        store = driver._bytes.store  # type: ignore[attr-defined]
        taken, logged = max(taken, store.file.allocated()), max(logged, store.log.nbytes)
    # A machine that is busy lets the threads fall behind.
    assert "discard" in options or taken <= min(most, max(6 << 20, 17 * max(held)))
    assert logged < 35_000
    assert not driver.trouble()
    if not options:
        # It is a stream: the program waited for few writes only.
        assert driver.statistics()["cache.through_bytes"] == 0
        assert sum(map(bool, held)) > 600
        assert system.alone < 100
    driver.close()
    found = np.fromfile(path, np.uint8).reshape(-1, 1 << 18)
    expected = [639 % 251] if again else np.arange(640) % 251
    assert (found == np.array(expected, np.uint8)[:, None]).all()


@pytest.mark.parametrize("flag", ["flush_immediate", "flush_onclose"])
@pytest.mark.parametrize(
    "many", [100_000, pytest.param(10_000_000, marks=(pytest.mark.nightly, pytest.mark.timeout(3600)))]
)
def test_many_small_writes(tmp_path: Path, flag: str, many: int) -> None:
    """Extents that touch nothing, 100 in each write: neither memory nor the log grows with their number."""
    program = f"""
import resource
import numpy as np
from pnc_vol.drivers.stack import open_stack
from pnc_vol.extents.model import Extents
path = {str(tmp_path / "x")!r}
open(path, "wb").close()
driver = open_stack("cache(path='{tmp_path}', flush={flag}, in_flight=1000000000) | posix", path)
some = 100
memory = np.ones(8 * some, np.uint8)
step = np.arange(some, dtype=np.int64)
length = np.full(some, 8)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
logged = 0
for i in range({many} // some):
    driver.write(Extents((step + i * some) * 16, length, step * 8), memory)
    store = driver._bytes.store
    logged = max(logged, store.log.nbytes)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024, logged >> 20)
driver.close()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    mib, log_mib, mib_at_end = map(int, done.stdout.split())
    assert mib <= mib_at_end < 150
    assert log_mib < 130
    found = np.fromfile(tmp_path / "x", np.uint8)
    assert (found[: 16 * (many - 1)].reshape(-1, 16) == np.repeat([1, 0], 8)).all()
