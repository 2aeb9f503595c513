"""After trouble with a cache, a kill at any moment loses nothing that a flush had promised."""

from __future__ import annotations

import errno
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from full_disk import OfFolder
from killed_caches import after_a_kill

import pnc_vol
from pnc_vol.errors import PncVolWarning
from pnc_vol.testing.faults import HookedSystem

CALLS = {"open", "pwrite", "pwritev", "ftruncate", "fallocate", "mmap"}


def run(path: Path, nvm: Path, copies: Path, system: HookedSystem, flag: str) -> None:
    """Flushes, each with a header that the log takes by a call of its own."""
    hints = {"e10_cache_path": str(nvm), "e10_cache_flush_flag": flag}
    promised: dict[str, Any] = {}
    with pnc_vol.File(path, "w", hints=hints, system=system, header_reserve=60_000) as f:
        x = f.create_dataset("x", (1000,), "f8")
        r = f.create_dataset("r", (0, 10), "i4", maxshape=(None, 10))
        for step in range(4):
            x[...] = step
            r.resize((step + 1, 10))
            r[step] = step
            f.attrs[f"a{step}"] = "b" * (step % 2 * 4000 + 5)
            f.flush()
            promised |= {"x": [step] * 1000, "r": [[k] * 10 for k in range(step + 1)], f"a{step}": step % 2 * 4000 + 5}
            assert after_a_kill(path, [nvm], copies) == promised, f"after flush {step}"
            x[:10] = step + 0.5
            f.id.check().drain()
            found = after_a_kill(path, [nvm], copies)
            # What no flush has promised may be in the file, or not.
            assert {value // 1 for value in found["x"]} == {step}
            assert {**found, "x": promised["x"]} == promised
    assert after_a_kill(path, [nvm], copies) == promised | {"x": [3.5] * 10 + [3] * 990}
    assert not list(nvm.glob("*/*"))


@pytest.mark.parametrize("flag", ["flush_onclose", "flush_immediate"])
@pytest.mark.parametrize(("number", "mode"), [(errno.ENOSPC, "forever"), (errno.EIO, "once")])
def test_each_call_of_the_cache_fails_in_turn(tmp_path: Path, flag: str, number: int, mode: Any) -> None:
    fail_at, fired = 0, True
    while fired and fail_at < 120:
        fail_at += 1
        folder = tmp_path / str(fail_at)
        nvm = folder / "nvm"
        nvm.mkdir(parents=True)
        system = OfFolder(nvm, calls=CALLS, fail_at=fail_at, errno=number, mode=mode)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PncVolWarning)
            try:
                run(folder / "x.nc", nvm, folder / "copies", system, flag)
            except AssertionError as error:
                raise AssertionError(f"call {fail_at}: {error}") from error
        fired = system.fired
        shutil.rmtree(folder)
    assert not fired
    assert fail_at > 10


def test_data_after_a_flush_that_failed_at_its_header_are_not_kept_in_memory(tmp_path: Path, nvm: Path) -> None:
    path, failing = tmp_path / "x.nc", [True]

    def before_header(encoded: bytes) -> None:
        if failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    hints = {"e10_cache_path": str(nvm), "e10_cache_flush_flag": "flush_onclose"}
    with pnc_vol.File(path, "w", hints=hints) as f:
        f["x"] = np.ones(100_000)
        f.flush()
        session = f.id.check()
        session.disk.call_before_header(before_header)
        f["x"][...] = 2
        f.attrs["a"] = "bb"
        with pytest.raises(OSError, match="Input/output"):
            f.flush()
        f["x"][...] = 3
        session.drain()
        driver = session.disk.driver
        assert {held.epoch for held in driver._bytes.store.held} == {1}, "headers"  # type: ignore[attr-defined]
        assert driver.holder.unsynced().nbytes == 800_000, "it waits in the cache file"
        failing.clear()
        f.flush()
        promised = {"x": [3.0] * 100_000, "a": 2}
        assert after_a_kill(path, [nvm], tmp_path / "copies") == promised
    with pnc_vol.File(path) as f:
        assert f["x"][-1] == 3
