"""Whatever ends an opening or a close, nothing of it stays open: descriptors, locks, temporary files, threads."""

from __future__ import annotations

import errno
import gc
import os
import threading
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from interrupts import Interrupts

import pnc_vol
from pnc_vol.testing.faults import FaultSystem, TraceSystem

WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "log": {"burst_buf": True},
    "blob": {"layout": "blob"},
    "named at the close": {"publish": "close"},
    "cache": {"hints": {"e10_cache_path": "FOLDER"}},
}


def options_of(way: str, folder: Path) -> dict[str, Any]:
    (folder / "nvm").mkdir(exist_ok=True)
    given = dict(WAYS[way])
    return given | ({"hints": {"e10_cache_path": str(folder / "nvm")}} if "hints" in given else {})


def open_now() -> tuple[int, int]:
    gc.collect()
    return len(os.listdir("/proc/self/fd")), threading.active_count()


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("mode", ["w", "r", "r+"])
@pytest.mark.parametrize("way", WAYS)
def test_an_opening_that_is_interrupted_leaves_nothing(
    tmp_path: Path, way: str, mode: str, error: type[BaseException]
) -> None:
    given, path = options_of(way, tmp_path), tmp_path / "x.nc"
    if mode != "w":
        with pnc_vol.File(path, "w", **given) as f:
            f["a"] = [1, 2, 3]
    there = sorted(os.listdir(tmp_path))
    n, step, reached = 1, 331, True
    while reached:
        before, failed, f = open_now(), False, None
        with Interrupts(n, error) as lines:
            try:
                f = pnc_vol.File(path, mode, **given)
            except error:
                failed = True
        reached = lines.count >= n
        if f is not None:
            f.close()
        if reached and failed:
            assert open_now() <= before, f"line {n}"
            left = [name for name in os.listdir(tmp_path) if name not in there and "pnctmp" in name]
            assert not left, f"line {n}"
        with pnc_vol.File(path, "a", **given, **({} if way != "log" else {"recover": True})) as f:
            f.attrs["n"] = n
        there = sorted(os.listdir(tmp_path))
        n += step


@pytest.mark.parametrize("way", ["plain", "blob"])
def test_a_close_that_is_interrupted_loses_nothing_and_leaves_nothing_open(tmp_path: Path, way: str) -> None:
    n, reached = 1, True
    while reached:
        path, before = tmp_path / f"{n}.nc", open_now()
        f = pnc_vol.File(path, "w", **options_of(way, tmp_path))
        f["a"] = [1, 2, 3]
        f.flush()
        f["b"] = [4.0]
        with Interrupts(n, KeyboardInterrupt) as lines, suppress(KeyboardInterrupt):
            f.close()
        reached = lines.count >= n
        if f:
            f.close()
        del f
        assert open_now() <= before, f"line {n}"
        with pnc_vol.File(path, "r+") as again:
            assert again["a"][...].tolist() == [1, 2, 3], f"line {n}"
        n += 211


@pytest.mark.filterwarnings("ignore::pnc_vol.PncVolWarning")
def test_logs_that_cannot_be_written_leave_no_descriptors(tmp_path: Path) -> None:
    """The error that a store keeps has a traceback, which holds the file object."""

    def life(number: int) -> None:
        folder = tmp_path / str(number)
        folder.mkdir()
        system = FaultSystem(TraceSystem(), fail_at=3 + number % 10, errno=errno.ENOSPC, calls={"pwrite", "pwritev"})
        f = None
        try:
            f = pnc_vol.File(folder / "f.nc", "w", burst_buf=True, system=system)
            a = f.create_dataset("a", (1000,), "i4")
            a[:] = 1
            f.flush()
            a[5] = 2
            f.close()
        except OSError:
            system.heal()
            if f:
                f.close()

    life(0)
    before = open_now()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(1, 21):
            life(number)
    assert open_now() <= before


@pytest.mark.parametrize("fails", range(1, 8))
def test_a_log_of_which_a_file_cannot_be_removed_does_no_harm(tmp_path: Path, fails: int) -> None:
    system = FaultSystem(fail_at=fails, errno=errno.EIO, mode="once", calls={"unlink", "rmdir"})
    path = tmp_path / "x.nc"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pnc_vol.PncVolWarning)
        told = True
        with suppress(OSError):
            with pnc_vol.File(path, "w", burst_buf=True, system=system) as f:
                f["a"] = [1, 2, 3]
            told = False
        with pnc_vol.File(path, "a", recover=True) as f:
            assert told or f["a"][...].tolist() == [1, 2, 3]
            f["b"] = [4]
    with pnc_vol.File(path) as f:
        assert f["b"][...].tolist() == [4]
