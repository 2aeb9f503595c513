"""Flushes with a node-local cache, in one process: what the file has when, errors of threads, full devices."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from full_disk import Failing

import pnc_vol
from pnc_vol.errors import DefinitionError, FlushError, PncVolWarning


@pytest.fixture
def nvm(tmp_path: Path) -> str:
    folder = tmp_path / "nvm"
    folder.mkdir()
    return str(folder)


def in_file(path: Path) -> dict[str, Any]:
    with open(path, "rb") as disk, pnc_vol.File(disk) as f:
        return {name: f[name][...].tolist() for name in f}


def opened(path: Path, nvm: str, mode: str = "w", *, system: Any = None, **hints: str) -> pnc_vol.File:
    asked = {"e10_cache_path": nvm, **hints}
    return pnc_vol.File(path, mode, hints=asked, **({} if system is None else {"system": system}))


def patiently(seconds: float = 10) -> Iterator[None]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(0.01)
    raise AssertionError("it took too long")


def test_the_header_follows_the_data(tmp_path: Path, nvm: str) -> None:
    path = tmp_path / "x.nc"
    with opened(path, nvm, e10_cache_flush_flag="flush_onclose") as f:
        f["x"] = np.arange(5)
        f.flush()
        assert f["x"][...].tolist() == [0, 1, 2, 3, 4]
        assert in_file(path) == {}
        f.attrs["a"] = 1
        f.flush()
        assert in_file(path) == {}
        f.sync()
        assert in_file(path) == {"x": [0, 1, 2, 3, 4]}


def test_a_flush_without_anything_to_do_lets_the_header_follow(tmp_path: Path, nvm: str) -> None:
    path = tmp_path / "x.nc"
    with opened(path, nvm) as f:
        f["x"] = [1, 2]
        for _ in patiently():
            f.flush()
            if in_file(path):
                break
        assert in_file(path) == {"x": [1, 2]}


def test_an_error_of_a_thread_is_raised_by_the_next_flush_and_tried_again(tmp_path: Path, nvm: str) -> None:
    path = tmp_path / "out" / "x.nc"
    path.parent.mkdir()
    system = Failing(path.parent)
    with opened(path, nvm, system=system) as f:
        x = f.create_dataset("x", (1000,), "f8")
        f.sync()
        system.error = errno.EIO
        x[...] = 1
        with pytest.raises(FlushError) as caught:
            for _ in patiently():
                f.flush()
        (failure,) = caught.value.errors
        assert (failure.errno, failure.variable, failure.rank) == (errno.EIO, "/x", 0)
        assert nvm in failure.message
        assert "bytes" in failure.selection
        assert x[3] == 1
        with pytest.raises(FlushError, match="/x"):
            f.sync()
        with pytest.raises(FlushError, match="/x"):
            f.flush(durable=True)
        system.error = 0
        f.sync()
        assert in_file(path)["x"] == [1.0] * 1000


@pytest.mark.parametrize("flag", ["flush_onclose", "flush_immediate"])
def test_a_close_that_cannot_write_keeps_the_cache(tmp_path: Path, nvm: str, flag: str) -> None:
    path = tmp_path / "out" / "x.nc"
    path.parent.mkdir()
    system = Failing(path.parent)
    f = opened(path, nvm, system=system, e10_cache_flush_flag=flag)
    f["x"] = np.zeros(100)
    f.sync()
    f["x"][...] = np.arange(100)
    f.flush()
    if flag == "flush_immediate":
        # threads have brought all to the file before the close
        for _ in patiently():
            if in_file(path)["x"] == list(range(100)):
                break
    f["y"] = [7]
    system.error = errno.ENOSPC
    f["x"][...] = np.arange(100) + 1
    with pytest.raises(FlushError, match="No space left"):
        f.close()
    assert os.listdir(nvm)
    assert "y" not in in_file(path)
    pnc_vol.replay(path)
    assert in_file(path)["x"] == list(range(1, 101))


def test_a_full_device_turns_the_cache_off(tmp_path: Path, nvm: str) -> None:
    path = tmp_path / "x.nc"
    system = Failing(Path(nvm))
    with opened(path, nvm, system=system) as f:
        f["x"] = np.zeros(1000)
        f.flush()
        assert f.hints["e10_cache"] == "enable"
        system.error = errno.ENOSPC
        f["x"][...] = 5
        with pytest.warns(PncVolWarning, match="No space left"):
            f.flush()
        assert f.hints["e10_cache"] == "disable"
        assert in_file(path) == {"x": [5.0] * 1000}
        f["x"][:2] = 6
        f["y"] = 1
        f.flush()
        assert in_file(path)["x"][:3] == [6.0, 6.0, 5.0]
    assert os.listdir(nvm) == []


def test_a_second_opening_shares_the_cache_that_hints_ask_for(tmp_path: Path, nvm: str) -> None:
    path = tmp_path / "x.nc"
    with opened(path, nvm, e10_cache_flush_flag="flush_onclose") as f:
        f["x"] = [1, 2, 3]
        f.flush()
        assert in_file(path) == {}
        hints = {"e10_cache_path": nvm, "e10_cache_flush_flag": "flush_onclose"}
        for mode, more in (("r", {}), ("r", {"driver": "posix"}), ("r+", {"driver": "posix", "hints": hints})):
            with pnc_vol.File(path, mode, **more) as g:
                assert g == f
                assert g["x"][...].tolist() == [1, 2, 3]
    with pnc_vol.File(path, "w", driver="trace | posix", hints=hints) as f:
        with pnc_vol.File(path, "r+", hints=hints) as g:
            assert g == f
        with pytest.raises(DefinitionError, match=r"driver 'trace \| posix'.*'posix'"):
            pnc_vol.File(path, "r+", driver="posix")
