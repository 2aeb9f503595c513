"""What reads do on drivers whose calls cost much more than those on a file in the page cache."""

from __future__ import annotations

import pathlib
from typing import Any, ClassVar

import numpy as np
import pytest

import pnc_vol
from pnc_vol.drivers.base import CALL_COST, Capabilities, Memory, Wrapper
from pnc_vol.testing.driver_suite import register

ROWS, COLUMNS = 400, 3000


class Far(Wrapper):
    """The driver below it, with calls of a declared cost; the extents of its reads are kept."""

    name = "far"
    cost: ClassVar[int] = CALL_COST
    seen: ClassVar[list[Any]] = []

    @classmethod
    def declares(cls, below: Capabilities) -> Capabilities:
        return below._replace(call_cost=cls.cost, mapping=False, concurrent=False)

    def read(self, extents: Any, memory: Memory, *, collective: bool = False) -> int:
        self.seen.append(extents)
        return super().read(extents, memory, collective=collective)


@pytest.fixture
def path(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    register("far", Far)
    with pnc_vol.File(tmp_path / "a.nc", "w") as f:
        f["table"] = np.arange(ROWS * COLUMNS, dtype="f8").reshape(ROWS, COLUMNS)
    return tmp_path / "a.nc"


def pieces(path: pathlib.Path, cost: int, read: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Calls and extents that a read takes at this cost of a call."""
    monkeypatch.setattr(Far, "cost", cost)
    monkeypatch.setattr(Far, "seen", [])
    with pnc_vol.File(path, driver="far | posix") as f:
        Far.seen.clear()
        read(f["table"])
    return len(Far.seen), sum(len(extents.offset) for extents in Far.seen)


def test_rows_are_read_whole_where_calls_are_dear(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = np.arange(ROWS * COLUMNS, dtype="f8").reshape(ROWS, COLUMNS)

    def column(table: pnc_vol.Dataset) -> None:
        assert np.array_equal(table[:, 7:90], wanted[:, 7:90])

    near, far = (pieces(path, cost, column, monkeypatch) for cost in (CALL_COST, 1 << 20))
    assert near[1] == ROWS, "one piece for each row"
    assert far == (1, 1), "all rows in one"


def test_large_reads_take_larger_blocks_where_calls_are_dear(
    path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def whole(table: pnc_vol.Dataset) -> None:
        assert float(table[...].sum()) == sum(range(ROWS * COLUMNS))

    near, far = (pieces(path, cost, whole, monkeypatch)[0] for cost in (CALL_COST, 1 << 20))
    assert near == -(-ROWS * COLUMNS * 8 // (1 << 20))
    assert far == 1


def test_posted_reads_go_together_where_calls_are_dear(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def posted(table: pnc_vol.Dataset) -> None:
        half = [table.iget(slice(i, i + 20)) for i in range(0, ROWS, 40)]
        table.file.wait_all()
        assert [int(request.array[0, 0]) for request in half] == [i * COLUMNS for i in range(0, ROWS, 40)]

    near, far = (pieces(path, cost, posted, monkeypatch)[0] for cost in (CALL_COST, 1 << 20))
    assert near == ROWS // 40, "each of 480 kB by a call of its own"
    assert far == 1
