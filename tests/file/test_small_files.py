"""What the life of a small file asks of the system: calls are counted, not seconds."""

from __future__ import annotations

import gc
from pathlib import Path

from counted_work import calls_of
from this_system import LOCK

import pnc_vol
from pnc_vol.testing.faults import TraceSystem

CREATE = ["realpath", "getpid", "stat", "lstat", "lstat", "token", "open", "pwrite", LOCK, "fstat"]
NAME = ["rename", "unlink"]
CLOSE_NEW = [
    "pwrite", "fstat", "stat", "stat", "unlink", "open", "fchmod", "pwrite", "fstat", "close", "pwrite", "unlink",
    LOCK, "close",
]  # fmt: skip
OPEN = ["realpath", "getpid", "stat", "lstat", "lstat", "open", "fstat", "preadv", "open", "stat", "preadv"]


def calls(system: TraceSystem) -> list[str]:
    """The names of the calls since the last look."""
    found = [call.name.replace("pread_into", "preadv").replace("pwritev", "pwrite") for call in system.log]
    system.log.clear()
    return found


def few(system: TraceSystem, most: list[str]) -> None:
    """No more calls of a kind than there were when this was written, and none of another kind."""
    found = calls(system)
    assert all(found.count(name) <= most.count(name) for name in found), (found, most)


def test_a_small_file_takes_few_system_calls(tmp_path: Path) -> None:
    system = TraceSystem()
    path = str(tmp_path / "x.nc")
    f = pnc_vol.File(path, "w", system=system)
    few(system, CREATE + NAME)
    for i in range(5):
        f.create_dataset(f"v{i}", data=[1.0, 2.0, i])
    assert calls(system) == []
    f.close()
    few(system, CLOSE_NEW)
    f = pnc_vol.File(path, "r", system=system)
    few(system, OPEN)
    assert [f[f"v{i}"][2] for i in range(5)] == list(range(5))
    few(system, ["preadv"] * 5)
    f.close()
    few(system, ["close"])


def test_the_life_of_a_small_file_takes_few_calls(tmp_path: Path) -> None:
    """Functions of Python that are called: what files of this size take is theirs."""
    path = str(tmp_path / "x.nc")

    def life() -> None:
        with pnc_vol.File(path, "w") as f:
            for i in range(5):
                f[f"v{i}"] = [1.0, 2.0, i]
        with pnc_vol.File(path) as f:
            assert [f[f"v{i}"][2] for i in range(5)] == list(range(5))

    # what is found once in a process
    life()
    (tmp_path / "x.nc").unlink()
    # files that other tests left open are closed then: beside an open file an opening takes more calls
    gc.collect()
    count = calls_of(life)
    assert count <= 1040, count
