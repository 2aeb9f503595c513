"""A driver below that holds bytes back: what a flush tells it keeps the file whole at any moment."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from holding import HoldingDriver

import pnc_vol
from pnc_vol.testing.driver_suite import Driver, DriverSuite, Wrapper, register


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    register("hold", HoldingDriver)
    register("calls", Calls)


class Calls(Wrapper):
    """Notes the verbs that matter to a driver that holds bytes back."""

    name = "calls"

    def __init__(self, inner: Driver) -> None:
        super().__init__(inner)
        self.seen: list[str] = []

    def write(self, extents, memory, *, collective=False):
        self.seen.append("header" if extents.offset[0] < 8 else "data")
        super().write(extents, memory, collective=collective)

    def order(self) -> None:
        self.seen.append("order")

    def end_flush(self) -> None:
        self.seen.append("end")


class TestHolding(DriverSuite):
    stack = "trace | hold | posix"
    threads = False


def driver_of(f: pnc_vol.File) -> Driver:
    return f.id.handle.session.disk.driver


@pytest.mark.parametrize("spec", ["calls | posix", "calls | memory"])
def test_every_flush_says_where_its_data_end_and_where_it_ends(tmp_path: Path, spec: str) -> None:
    with pnc_vol.File(tmp_path / "x.nc", "w", driver=spec) as f:
        f.create_dataset("x", (4,), "f8", maxshape=(None,))
        f["x"][:] = 1
        f.flush()
        driver = driver_of(f)
        assert isinstance(driver, Calls)
        driver.seen.clear()
        f["x"].resize((8,))
        f["x"][4:] = 2
        f.flush()
        seen = driver.seen
        assert seen[-1] == "end"
        assert "data" in seen[: seen.index("order")]
        assert "header" in seen[seen.index("order") :]
        assert "data" not in seen[seen.index("order") :]
        seen.clear()
        f.flush()
        assert seen == ["end"], "also if there is nothing to write"


def test_the_header_never_overtakes_the_data(tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    states: list[tuple[int, ...]] = []

    def look() -> None:
        """The file is whole, whatever part of the flushes has reached it."""
        with pnc_vol.File(shutil.copy(path, tmp_path / "copy.nc"), "r", strict=True) as g:
            assert all((g[name][...] == i + 1).all() for i, name in enumerate(("a", "b")) if name in g)
            records = g["t"].shape[0] if "t" in g else 0
            assert records == 0 or (g["t"][...] == np.arange(records)).all()
            states.append((len(g), records))

    with pnc_vol.File(path, "w", driver="hold | posix", header_reserve=8192) as f:
        driver = driver_of(f)
        assert isinstance(driver, HoldingDriver)
        driver.after_each = look
        f["a"] = np.full(1000, 1.0)
        f.create_dataset("t", (0,), "f8", maxshape=(None,))
        f.flush()
        f["b"] = np.full(500, 2.0)
        f.flush()
        for i in range(3):
            f["t"].resize((10 * (i + 1),))
            f["t"][10 * i :] = np.arange(10 * i, 10 * (i + 1))
            f.flush()
    assert states[-1] == (3, 30)
    assert len(set(states)) > 3, "what was held back came in several steps"
    assert states == sorted(states)


def test_a_file_gets_its_name_when_it_holds_all(tmp_path: Path) -> None:
    """The rename is not held back, so what it names must not be."""
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "w", driver="hold | posix", header_reserve=0) as f:
        f["a"] = np.arange(100.0)
        f.flush()
        for i in range(40):
            f.attrs[f"an attribute that makes the header longer, number {i}"] = i
        f.flush()  # in a copy, which takes the name
        with pnc_vol.File(shutil.copy(path, tmp_path / "copy.nc"), "r", strict=True) as g:
            assert len(g.attrs) == 40
            assert (g["a"][...] == np.arange(100.0)).all()
