"""The slow file system: bytes per second of all threads and processes together, latency, and what is not slow."""

from __future__ import annotations

import errno
import multiprocessing
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pnc_vol
from pnc_vol.testing.faults import ThrottledSystem


def written(system: ThrottledSystem, path: Path, nbytes: int, times: int = 1) -> float:
    fd = system.open(path, os.O_RDWR | os.O_CREAT)
    start = time.perf_counter()
    for i in range(times):
        assert system.pwrite(fd, bytes(nbytes), i * nbytes) == nbytes
    took = time.perf_counter() - start
    system.close(fd)
    return took


def test_bytes_take_their_time_below_the_folder_only(tmp_path: Path) -> None:
    (tmp_path / "slow").mkdir()
    (tmp_path / "link").symlink_to("slow")
    system = ThrottledSystem(tmp_path / "slow", bandwidth=1e6)
    assert written(system, tmp_path / "slow" / "a", 200_000) >= 0.2
    assert written(system, tmp_path / "link" / "b", 200_000) >= 0.2
    assert (system.nbytes, system.seconds >= 0.4) == (400_000, True)
    written(system, tmp_path / "fast", 10_000_000)
    assert system.nbytes == 400_000


def test_each_call_has_a_latency(tmp_path: Path) -> None:
    system = ThrottledSystem(tmp_path, bandwidth=1e12, latency=0.02)
    assert written(system, tmp_path / "a", 1, times=5) >= 0.1


def test_threads_share_the_bandwidth(tmp_path: Path) -> None:
    system = ThrottledSystem(tmp_path, bandwidth=1e6)
    start = time.perf_counter()
    threads = [threading.Thread(target=written, args=(system, tmp_path / str(i), 100_000)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.perf_counter() - start >= 0.3


def another_process(folder: Path, start: Any, ends: Any) -> None:
    system = ThrottledSystem(folder / "slow", bandwidth=1e6, shared=folder / "clock")
    start.wait()
    written(system, folder / "slow" / str(os.getpid()), 50_000, times=5)
    ends.put(time.monotonic())


def test_processes_share_the_bandwidth(tmp_path: Path) -> None:
    (tmp_path / "slow").mkdir()
    fresh = multiprocessing.get_context("spawn")
    start, ends = fresh.Barrier(4), fresh.Queue()
    jobs = [fresh.Process(target=another_process, args=(tmp_path, start, ends)) for _ in range(3)]
    for job in jobs:
        job.start()
    start.wait(timeout=60)
    begun = time.monotonic()
    assert max(ends.get(timeout=60) for _ in jobs) - begun >= 0.74
    for job in jobs:
        job.join()


def test_the_kernel_does_not_copy_between_slow_and_fast(tmp_path: Path) -> None:
    (tmp_path / "slow").mkdir()
    system = ThrottledSystem(tmp_path / "slow", bandwidth=1e9)
    fds = [system.open(tmp_path / name, os.O_RDWR | os.O_CREAT) for name in ("slow/a", "slow/b", "c", "d")]
    system.pwrite(fds[0], b"abc", 0)
    system.pwrite(fds[2], b"abc", 0)
    assert system.copy_range(fds[0], fds[1], 3, 0, 0) == 3
    for source, target in ((0, 2), (2, 1)):
        with pytest.raises(OSError, match="cross-device") as caught:
            system.copy_range(fds[source], fds[target], 3, 0, 0)
        assert caught.value.errno == errno.EXDEV
    for fd in fds:
        system.close(fd)


def test_a_file_on_it_is_slow_and_right(tmp_path: Path) -> None:
    system = ThrottledSystem(tmp_path, bandwidth=2e6)
    values = np.arange(50_000.0)
    start = time.perf_counter()
    with pnc_vol.File(tmp_path / "x.nc", "w", system=system) as f:
        f["x"] = values
    assert time.perf_counter() - start >= 0.2
    with pnc_vol.File(tmp_path / "x.nc") as f:
        assert (f["x"][:] == values).all()


def test_bandwidth_is_a_number_above_zero(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="more than 0 bytes per second"):
        ThrottledSystem(tmp_path, bandwidth=0)
