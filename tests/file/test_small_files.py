"""What the life of a small file asks of the system: calls are counted, not seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

import pnc_vol
from pnc_vol.testing.faults import TraceSystem

CREATE = ["realpath", "getpid", "stat", "lstat", "lstat", "token", "open", "pwrite", "getpid", "record_lock", "fstat"]
NAME = ["rename", "unlink"]
CLOSE_NEW = ["pwrite", "fstat", "pwrite", "pwrite", "record_lock", "close"]
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


def test_the_first_header_needs_no_journal_and_the_next_one_has_one(tmp_path: Path) -> None:
    system = TraceSystem()
    with pnc_vol.File(tmp_path / "x.nc", "w", system=system) as f:
        f["a"] = [1, 2]
        f.flush()
        assert not [call for call in system.log if call.name == "open" and call.path.endswith(".pncj")]
        system.log.clear()
        f["b"] = [3]
        f.flush()
        assert [call for call in system.log if call.name == "open" and call.path.endswith(".pncj")]


@pytest.mark.parametrize("version", ["CDF-1", "CDF-2", "CDF-5"])
def test_the_bytes_of_the_empty_header_come_last(tmp_path: Path, version: str) -> None:
    system = TraceSystem()
    with pnc_vol.File(tmp_path / "x.nc", "w", format=version, system=system) as f:
        first = (tmp_path / "x.nc").stat().st_size
        f["a"] = [1.0, 2.0]
        system.log.clear()
    offsets = [call.offset for call in system.log if call.name in ("pwrite", "pwritev")]
    assert offsets[-2:] == [first, 0]
    assert first <= 48
