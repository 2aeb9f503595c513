"""Flushes with a node-local cache, in one process: what the file has when, errors of threads, full devices, kills."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pnc_vol
from pnc_vol.errors import DefinitionError, FlushError, PncVolWarning, SyncError
from pnc_vol.system import System
from pnc_vol.testing.faults import HookedSystem, Stopped, StopSystem

WRITES = {"pwrite", "pwritev", "copy_range", "fallocate"}


class Failing(HookedSystem):
    """Writes to files below a path fail while `error` is set."""

    def __init__(self, below: Path) -> None:
        super().__init__()
        self.below, self.error, self.failing_syncs = str(below), 0, False
        self._fds: dict[int, str] = {}

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.error and name in WRITES:
            # `copy_range` writes to its second descriptor
            fd = args[2] if name == "copy_range" and not isinstance(args[1], int) else args[name == "copy_range"]
            if self._fds.get(fd, "").startswith(self.below):
                raise OSError(self.error, os.strerror(self.error))
        if self.failing_syncs and name == "fdatasync":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        made = super().call(name, args, kwargs)
        if name == "open":
            self._fds[made] = os.fspath(args[0])
        return made


@pytest.fixture
def nvm(tmp_path: Path) -> str:
    folder = tmp_path / "nvm"
    folder.mkdir()
    return str(folder)


def in_file(path: Path) -> dict[str, Any]:
    with open(path, "rb") as disk, pnc_vol.File(disk) as f:
        return {name: f[name][...].tolist() for name in f}


def opened(path: Path, nvm: str, mode: str = "w", *, system: System | None = None, **hints: str) -> pnc_vol.File:
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


def test_a_header_that_cannot_follow_is_tried_again(tmp_path: Path, nvm: str) -> None:
    path = tmp_path / "out" / "x.nc"
    path.parent.mkdir()
    system = Failing(path.parent)
    with opened(path, nvm, e10_cache_flush_flag="flush_onclose", system=system) as f:
        f["x"] = np.arange(10)
        f.flush()
        f.id.check().disk.driver.drain()
        system.error = errno.EIO
        with pytest.raises(OSError, match="Input/output"):
            f.flush()
        assert in_file(path) == {}
        system.error = 0
        f.flush()
        assert in_file(path) == {"x": list(range(10))}
    assert [name for name in os.listdir(path.parent) if name != "x.nc"] == []


def test_a_header_that_follows_is_as_safe_as_any_other(tmp_path: Path, nvm: str) -> None:
    path = tmp_path / "x.nc"
    system = Failing(path)
    with opened(path, nvm, e10_cache_flush_flag="flush_onclose", system=system) as f:
        f["x"] = np.arange(10)
        f.flush(durable=True)
        f.attrs["a"] = 1
        f.flush()
        f.id.check().disk.driver.drain()
        system.failing_syncs = True
        with pytest.raises(SyncError):
            f.flush()
        system.failing_syncs = False
        with pytest.raises(SyncError, match="durability"):
            f.flush(durable=True)
        f.flush()
    with pnc_vol.File(path) as f:
        assert f.attrs["a"] == 1
    assert [name for name in os.listdir(tmp_path) if name.endswith("pncj")] == []


@pytest.mark.parametrize("flag", ["flush_immediate", "flush_onclose"])
def test_the_file_is_the_same_with_a_cache_and_without(tmp_path: Path, nvm: str, flag: str) -> None:
    def program(path: Path, hints: dict[str, str], **more: Any) -> bytes:
        with pnc_vol.File(path, "w", hints=hints, **more) as f:
            x = f.create_dataset("x", (60,), "f8", fillvalue=-1)
            r = f.create_dataset("r", (0, 10), "i4", maxshape=(None, 10))
            for step in range(5):
                x[step * 10 : step * 10 + 10] = step
                r.resize((step + 1, 10))
                r[step] = step
                f.flush()
            f.attrs["long"] = "b" * 5000
            f["y"] = np.arange(10.0)
            f.flush()
            del f["x"]
            f["z"] = ["some", "text"]
            f.flush()
            r.resize((2, 10))
            f.flush()
            r.resize((4, 10))
        return path.read_bytes()

    hints = {"e10_cache_path": nvm, "e10_cache_flush_flag": flag, "e10_cache_threads": "3"}
    plain = program(tmp_path / "plain.nc", {})
    assert program(tmp_path / "cached.nc", hints) == plain
    logged = program(tmp_path / "logged.nc", hints, burst_buf=True, burst_buf_dirname=str(tmp_path))
    assert logged == program(tmp_path / "only_logged.nc", {}, burst_buf=True, burst_buf_dirname=str(tmp_path))
    assert os.listdir(nvm) == []


def test_wherever_the_process_is_killed_the_file_is_that_of_a_flush(tmp_path: Path) -> None:
    def program(path: Path, nvm: str, system: System, done: list[int]) -> None:
        with opened(path, nvm, system=system) as f:
            r = f.create_dataset("r", (0, 100), "i4", maxshape=(None, 100))
            for step in range(6):
                r.resize((step + 1, 100))
                r[step] = step
                f.attrs[f"a{step}"] = "long enough" * step
                f.flush()
                done.append(step)
                if step % 2:
                    f.sync()

    for stop in range(5, 400, 13):
        folder = tmp_path / str(stop)
        nvm = folder / "nvm"
        nvm.mkdir(parents=True)
        path, done = folder / "x.nc", []
        system = StopSystem(stop_at=stop)
        try:
            program(path, str(nvm), system, done)
        except BaseException as error:
            if not isinstance(error, (Stopped, Exception)):
                raise
        if not path.exists():
            continue
        found = in_file(path).get("r", [])
        assert found == [[step] * 100 for step in range(len(found))], f"stopped at call {stop}"


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
