"""Threads that read one file at the same time."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pnc_vol
from pnc_vol.drivers import stack
from pnc_vol.drivers.base import Memory, Wrapper
from pnc_vol.drivers.stack import register
from pnc_vol.extents.model import Extents

N = 8


def in_threads(work: Callable[[int], None], n: int = N) -> None:
    failed: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


@pytest.fixture(autouse=True)
def many_switches() -> Iterator[None]:
    """Threads take turns a hundred times as often as usual: more orders are tried, and none waits for long."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-5)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def values(tmp_path: Path) -> dict[str, Any]:
    """What is in the file `tmp_path`/x.nc, by name; runs, blocks, records, text, compounds, rows of varying length."""
    rng = np.random.default_rng(7)
    made: dict[str, Any] = {
        "runs": rng.integers(0, 1 << 40, 40_000),
        "slabs": rng.random((60, 70, 9)).astype("f4"),
        "large": rng.random(300_000),
        "records": rng.random((40, 50)),
        "text": np.array([f"name {i:03d}" for i in range(200)]),
        "pairs": np.array([(i, i / 2) for i in range(300)], [("x", "i4"), ("y", "f8")]),
    }
    with pnc_vol.File(tmp_path / "x.nc", "w") as f:
        for name, value in made.items():
            if name == "text":
                f[name] = [str(one) for one in value]
            else:
                limits = {"maxshape": (None, *value.shape[1:])} if name == "records" else {}
                f.create_dataset(name, data=value, **limits)
        rows = f.create_dataset("rows", (30,), dtype=pnc_vol.vlen_dtype("i4"))
        for i in range(30):
            rows[i] = np.arange(i)
    return made


def a_selection(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """An index of any kind: numbers, slices with steps, one list, one mask."""
    chosen: list[Any] = []
    listed = False
    for n in shape:
        kind = int(rng.integers(0, 5))
        low = int(rng.integers(0, n))
        if kind == 0:
            chosen.append(low)
        elif kind == 1 and not listed:
            chosen.append(np.unique(rng.integers(0, n, 9)))
            listed = True
        elif kind == 2 and not listed and n < 100:
            mask = rng.random(n) < 0.2
            mask[low] = listed = True
            chosen.append(mask)
        else:
            chosen.append(slice(low, int(rng.integers(low + 1, min(n, low + 40) + 1)), int(rng.integers(1, 5))))
    return tuple(chosen)


def picked(value: Any, chosen: tuple[Any, ...]) -> Any:
    """What h5py selects: the axes one by one, which numpy does not do with a list beside a number."""
    for axis in reversed(range(len(chosen))):
        value = value[(slice(None),) * axis + (chosen[axis],)]
    return value


@pytest.mark.parametrize(
    ("reads", "driver"),
    [
        pytest.param(20_000, "posix"),
        pytest.param(800, "trace | posix"),
        pytest.param(1_000_000, "posix", marks=[pytest.mark.nightly, pytest.mark.timeout(7200)]),
    ],
)
def test_no_value_is_wrong(values: dict[str, Any], tmp_path: Path, reads: int, driver: str) -> None:
    f = pnc_vol.File(tmp_path / "x.nc", driver=driver)
    names = list(values)

    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        for at in range(reads // N):
            name = names[int(rng.integers(0, len(names)))] if at % 16 else "rows"
            if name == "rows":
                i = int(rng.integers(0, 30))
                assert f["rows"][i].tolist() == list(range(i))
            elif at % 500 == 0:
                assert (f["large"][...] == values["large"]).all(), "larger than a block"
            else:
                chosen = a_selection(rng, values[name].shape)
                got, wanted = f[name][chosen], picked(values[name], chosen)
                if name == "text":
                    got = np.char.decode(np.asarray(got, "S"))
                assert np.array_equal(got, wanted), (name, chosen)

    in_threads(work)
    f.close()


class Gate(Wrapper):
    """Reads wait here until so many are in."""

    name = "gate"
    inside: threading.Barrier

    def read(self, extents: Extents, memory: Memory, *, collective: bool = False) -> int:
        if extents.nbytes == 80:
            Gate.inside.wait(20)
        return super().read(extents, memory, collective=collective)


def test_reads_of_several_threads_are_under_way_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each read waits for all others to be in the driver; a lock around them would break the barrier."""
    monkeypatch.setattr(stack, "_registry", dict(stack._registry))
    register("gate", Gate)
    Gate.inside = threading.Barrier(N)
    with pnc_vol.File(tmp_path / "x.nc", "w") as f:
        f["x"] = np.arange(10.0 * N)
    with pnc_vol.File(tmp_path / "x.nc", driver="gate | posix") as f:
        got: dict[int, Any] = {}
        in_threads(lambda number: got.update({number: f["x"][10 * number : 10 * number + 10].tolist()}))
    assert got == {number: [float(10 * number + i) for i in range(10)] for number in range(N)}


def test_reads_while_the_file_is_refreshed_and_replaced(tmp_path: Path) -> None:
    """Every row is one number, whichever version of the file it is from; a layout over another file would mix them."""
    path = tmp_path / "x.nc"

    def replace(version: int) -> None:
        with pnc_vol.File(tmp_path / "new.nc", "w") as f:
            for i in range(version % 3):
                f[f"before{i}"] = np.full(1000 * version, -1.0)
            f["x"] = np.full((50, 40), float(version))
        os.replace(tmp_path / "new.nc", path)

    replace(0)
    f = pnc_vol.File(path)
    x, done, seen = f["x"], threading.Event(), set()

    def work(number: int) -> None:
        if number:
            while not done.is_set():
                row = x[::7, number] if number % 2 else x[number]
                assert len(set(row.tolist())) == 1, row
                seen.add(float(row[0]))
        else:
            try:
                for version in range(1, 25):
                    replace(version)
                    x.refresh()
                    assert x[3, 4] == version
            finally:
                done.set()

    in_threads(work, 4)
    assert len(seen - {-1.0}) > 1
    assert -1.0 not in seen
    f.close()


def test_a_file_that_is_closed_under_reads_says_so(tmp_path: Path) -> None:
    with pnc_vol.File(tmp_path / "x.nc", "w") as f:
        f["x"] = np.arange(500_000.0)
    for _ in range(5):
        f = pnc_vol.File(tmp_path / "x.nc")
        ended: list[int] = []
        x, begun = f["x"], threading.Barrier(5)

        def work(number: int, f: Any = f, x: Any = x, begun: Any = begun, ended: Any = ended) -> None:
            begun.wait()
            if not number:
                f.close()
                return
            with pytest.raises(ValueError, match="closed"):
                while True:
                    assert x[1000 * number] == 1000 * number
                    assert x[number:][-1] == 499_999
            ended.append(number)

        in_threads(work, 5)
        assert sorted(ended) == [1, 2, 3, 4]
