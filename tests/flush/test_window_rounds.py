"""Writes through windows: nothing is read that ranks give, holes stay, and what fails in a round is told to all."""

from __future__ import annotations

import errno
import gc
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from this_system import needs_memory_files
from virtual_mpi import Intracomm
from virtual_ranks import run

import pnc_vol
from pnc_vol.errors import FlushError
from pnc_vol.testing.faults import HookedSystem

RANKS, ROWS, COLUMNS = 4, 256, 1024


class Counted(HookedSystem):
    """Calls of one rank to its file's data, perhaps slow ones, and a call of a kind that fails."""

    def __init__(self, fail: str = "", at: int = 0, *, slow: bool = False) -> None:
        super().__init__()
        self.fail, self.at, self.slow = fail, at, slow
        self.on = False
        self.threads = 0
        self.calls: dict[str, int] = {}

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.on:
            kind = "read" if name.startswith("pread") else "write" if name.startswith("pwrite") else name
            self.calls[kind] = self.calls.get(kind, 0) + 1
            self.threads += threading.current_thread().name == "pnc_vol"
            if self.slow:
                threading.Event().wait(0.002)
            if kind == self.fail and self.calls[kind] == self.at:
                raise OSError(errno.ENOSPC, "No space left on device")
        return super().call(name, args, kwargs)


def rewritten(
    path: Path,
    nodes: int,
    post: Callable[[Any, int], None],
    *,
    hints: dict[str, str] | None = None,
    systems: list[Counted] | None = None,
) -> list[dict[str, int]]:
    """Let ranks write all, and once more what `post` posts; calls of the second flush by rank."""
    systems = systems or [Counted() for _ in range(RANKS)]

    def program(comm: Any) -> None:
        system = systems[comm.rank]
        options: dict[str, Any] = {"transport": "aggregate", "hints": hints or {}, "system": system}
        with pnc_vol.File(str(path), "w", driver="posix", comm=comm, **options) as f:
            x = f.create_dataset("x", (ROWS, COLUMNS), "i4")
            x[comm.rank :: RANKS] = -1
            f.flush()
            post(x, comm.rank)
            system.on = True
            try:
                f.flush()
            except FlushError:
                system.on = False
                f.flush()
                system.calls["failed"] = 1
            system.on = False

    run(RANKS, program, nodes=nodes)
    return [system.calls for system in systems]


def total(calls: list[dict[str, int]], kind: str) -> int:
    return sum(one.get(kind, 0) for one in calls)


@pytest.mark.parametrize("nodes", [1, 2])
def test_what_all_give_is_written_without_a_read(tmp_path: Path, nodes: int) -> None:
    def post(x: Any, rank: int) -> None:
        x[rank::RANKS] = np.arange(ROWS)[rank::RANKS, None]

    calls = rewritten(tmp_path / "a.nc", nodes, post, hints={"cb_buffer_size": "262144", "cb_nodes": "2"})
    assert total(calls, "read") == 0
    assert total(calls, "write") > 4
    with pnc_vol.File(tmp_path / "a.nc") as f:
        assert np.array_equal(f["x"][...], np.broadcast_to(np.arange(ROWS)[:, None], (ROWS, COLUMNS)))


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("overlap", [False, True])
def test_holes_stay_and_only_they_are_read(tmp_path: Path, nodes: int, overlap: bool) -> None:
    """One row of each quarter is given by nobody; as many bytes are given twice, if asked."""

    def post(x: Any, rank: int) -> None:
        rows = np.arange(ROWS)[rank::RANKS]
        for row in rows[rows % 64 != 7]:
            x[row] = row
        if overlap and rank == 0:
            x[13::64] = 13 + 64 * np.arange(4)[:, None]

    calls = rewritten(tmp_path / "a.nc", nodes, post, hints={"cb_nodes": "1"})
    assert 1 <= total(calls, "read") <= 8
    expected = np.broadcast_to(np.arange(ROWS)[:, None], (ROWS, COLUMNS)).copy()
    expected[7::64] = -1
    with pnc_vol.File(tmp_path / "a.nc") as f:
        assert np.array_equal(f["x"][...], expected)


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_part_that_nobody_gives_is_neither_read_nor_written(tmp_path: Path, nodes: int) -> None:
    def post(x: Any, rank: int) -> None:
        x[rank:64:RANKS] = 1
        x[192 + rank :: RANKS] = 2

    systems = [Counted() for _ in range(RANKS)]
    calls = rewritten(tmp_path / "a.nc", nodes, post, hints={"cb_nodes": "1"}, systems=systems)
    # The file's data begin within a granule: at most the two at the borders are read.
    assert total(calls, "read") <= 2
    with pnc_vol.File(tmp_path / "a.nc") as f:
        assert [int(f["x"][row, 5]) for row in (0, 63, 64, 191, 192, 255)] == [1, 1, -1, -1, 2, 2]


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("kind", ["write", "read"])
def test_a_window_that_fails_is_told_to_all_and_its_thread_ends(tmp_path: Path, nodes: int, kind: str) -> None:
    """The k-th call of a rank fails, in the first round or a later one; nothing is lost by that."""

    def post(x: Any, rank: int) -> None:
        x[rank:ROWS:RANKS, 1:] = np.arange(ROWS)[rank::RANKS, None]

    hints = {"cb_buffer_size": "262144", "cb_nodes": "2"}
    systems = [Counted(slow=True) for _ in range(RANKS)]
    counted = rewritten(tmp_path / "a.nc", nodes, post, hints=hints, systems=systems)
    assert sum(one.threads for one in systems) > 2
    most = max(one.get(kind, 0) for one in counted)
    assert most > 2
    expected = (tmp_path / "a.nc").read_bytes()
    for at in (1, 2, most):
        systems = [Counted(kind, at, slow=True) for _ in range(RANKS)]
        rewritten(tmp_path / "b.nc", nodes, post, hints=hints, systems=systems)
        assert (tmp_path / "b.nc").read_bytes() == expected
        assert not [one for one in threading.enumerate() if one.name == "pnc_vol"]


@needs_memory_files
@pytest.mark.parametrize(("nodes", "splits"), [(1, 1), (2, 4)])
def test_ranks_of_one_node_split_no_communicator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nodes: int, splits: int
) -> None:
    """Those of the file serve; where the ranks are is found by one split."""
    calls = [0] * RANKS
    split = Intracomm.Split

    def counted(self: Intracomm, color: int, key: int = 0) -> Any:
        calls[key] += 1
        return split(self, color, key)

    def program(comm: Any) -> int:
        with pnc_vol.File(tmp_path / "x.nc", "w", driver="posix", comm=comm, transport="aggregate") as f:
            f.create_dataset("x", (RANKS, 8), "i4")
            f.flush()
            before = calls[comm.rank]
            f["x"][comm.rank] = 1
            f.flush()
            return calls[comm.rank] - before

    monkeypatch.setattr(Intracomm, "Split", counted)
    assert run(RANKS, program, nodes=nodes) == [splits] * RANKS


def _all_together(comm: Any, path: Path) -> None:
    options: dict[str, Any] = {"driver": "posix", "transport": "aggregate", "hints": {"cb_buffer_size": "4096"}}
    with pnc_vol.File(path, "w", comm=comm, **options) as f:
        x = f.create_dataset("x", (4000,), "i4")
        x[comm.rank :: comm.size] = comm.rank
        f.sync()
        with x.collective:
            assert (x[comm.rank :: comm.size] == comm.rank).all()


def _shared_files() -> int:
    count = 0
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            count += os.readlink(f"/proc/self/fd/{fd}").startswith("/memfd:pnc_vol")
    return count


@pytest.mark.parametrize(("ranks", "nodes"), [(2, 1), (4, 2), (3, 3)])
def test_the_memory_of_a_node_is_given_back_at_the_close(tmp_path: Path, ranks: int, nodes: int) -> None:
    """Without help of the garbage collector, which may not run for long."""
    gc.collect()
    before = _shared_files()
    gc.disable()
    try:
        run(ranks, lambda comm: _all_together(comm, tmp_path / "x.nc"), nodes=nodes, timeout=30)
        assert _shared_files() == before
    finally:
        gc.enable()
