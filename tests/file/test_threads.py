"""Threads that use one file at the same time; `tests/engine/threads.py` reads very much beside posts."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pnc_vol
from pnc_vol.testing.faults import HookedSystem

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


class Gate(HookedSystem):
    """Reads of 80 bytes wait here until so many are in."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = threading.Barrier(N)

    def pread_into(self, fd: int, buffer: Any, offset: int) -> int:
        if memoryview(buffer).nbytes == 80:
            self.inside.wait(20)
        return super().pread_into(fd, buffer, offset)


def test_reads_of_several_threads_are_under_way_at_once(tmp_path: Path) -> None:
    """Each read waits for all others to be in the system; a lock around them would break the barrier."""
    with pnc_vol.File(tmp_path / "x.nc", "w") as f:
        f["x"] = np.arange(10.0 * N)
    with pnc_vol.File(tmp_path / "x.nc", system=Gate()) as f:
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


def test_an_object_stays_usable_while_the_file_is_refreshed(tmp_path: Path) -> None:
    """Each refresh gives a thousand objects other numbers, one after another."""
    path = tmp_path / "x.nc"

    def replace(version: int) -> None:
        with pnc_vol.File(tmp_path / "new.nc", "w") as f:
            for i in range(version % 2):
                f.create_dataset(f"before{i}", (), "i4")
            f["x"] = float(version)
            for i in range(1000):
                f.create_dataset(f"behind{i}", (), "i4")
        os.replace(tmp_path / "new.nc", path)

    replace(0)
    done = threading.Event()
    with pnc_vol.File(path) as f:
        x = f["x"]

        def work(number: int) -> None:
            if number:
                while not done.is_set():
                    assert x
                return
            try:
                for version in range(1, 6):
                    replace(version)
                    x.refresh()
            finally:
                done.set()

        in_threads(work, 3)


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


class Slow(HookedSystem):
    """The next write waits until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.go, self.armed = threading.Event(), threading.Event(), False

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.armed and name.startswith("pwrite"):
            self.inside.set()
            assert self.go.wait(20)
        return super().call(name, args, kwargs)


ACTS: dict[str, Callable[[Any], Any]] = {
    "write": lambda f: f["x"].__setitem__(0, 7),
    "write a list": lambda f: f["x"].__setitem__([0, 2], 7),
    "iput": lambda f: f["x"].iput(slice(0, 2), np.arange(2.0)),
    "iget": lambda f: f["x"].iget(slice(0, 2)),
    "read": lambda f: f["x"][0],
    "read a list": lambda f: f["x"][[0, 2]],
    "resize": lambda f: f["r"].resize(9, axis=0),
    "create": lambda f: f.create_dataset("new", data=[1.0, 2.0]),
    "create a group": lambda f: f.create_group("new group"),
    "attribute": lambda f: f["x"].attrs.__setitem__("a", 1),
    "delete": lambda f: f.__delitem__("x"),
    "label": lambda f: setattr(f["x"].dims[0], "label", "t"),
    "flush": lambda f: f.flush(),
}


@pytest.mark.parametrize("name", ACTS)
def test_what_waits_for_a_close_finds_the_file_closed(tmp_path: Path, name: str) -> None:
    """A post that is accepted is in the file: one that came while the close flushed was lost."""
    system, told = Slow(), []
    f = pnc_vol.File(tmp_path / "x.nc", "w", system=system)
    f["x"] = np.arange(5.0)
    f.create_dataset("r", (2,), "f8", maxshape=(None,))
    # the objects before: to find them takes the lock too
    held = {"x": f["x"], "r": f["r"]}

    class Found:
        def __getitem__(self, path: str) -> Any:
            return held[path]

        def __getattr__(self, what: str) -> Any:
            return getattr(f, what)

        def __delitem__(self, path: str) -> None:
            del f[path]

    def act() -> None:
        try:
            ACTS[name](Found())
        except BaseException as error:
            told.append(error)

    system.armed = True
    closing, acting = threading.Thread(target=f.close), threading.Thread(target=act)
    closing.start()
    assert system.inside.wait(20)
    acting.start()
    # It waits for the lock; if it has not come to it yet, it finds the file closed as well.
    time.sleep(0.05)
    system.go.set()
    closing.join()
    acting.join()
    assert [type(error) for error in told] in ([pnc_vol.ClosedFileError], [pnc_vol.ClosedKeyError]), told
    with pnc_vol.File(tmp_path / "x.nc") as f:
        assert f["x"][:].tolist() == [0, 1, 2, 3, 4]
