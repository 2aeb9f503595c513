"""Small posts that wait in the slot of the commit log: none is lost, none is invented, and what each costs."""

from __future__ import annotations

import errno
import os
import pathlib
import shutil
import struct
import sys
from typing import Any

import numpy as np
import pytest
from log_bytes import IN_LOGS, IN_SLOT, SLOTS
from this_system import ATTRIBUTES

import pnc_vol
from pnc_vol.errors import LogError
from pnc_vol.testing.faults import HookedSystem, TraceSystem


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small posts go to the slot as soon as one may."""
    monkeypatch.setattr("pnc_vol.burst.store.STRETCH", 1)


def logged(logs: pathlib.Path, **more: Any) -> dict[str, Any]:
    return {"burst_buf": True, "burst_buf_dirname": str(logs), **more}


def leave(folder: pathlib.Path, to: pathlib.Path) -> pathlib.Path:
    """What a kill at this moment would leave, somewhere else: the file, and its logs."""
    shutil.copytree(folder, to)
    return to


def commit_log(folder: pathlib.Path) -> tuple[pathlib.Path, int, int, int]:
    """The commit log, where its slot is, where the group is that is open (-1: none is), how many records it has."""
    (path,) = folder.glob("logs/*/*.commit")
    content = path.read_bytes()
    (begin,) = struct.unpack_from("<I", content, 12)
    at, records = begin - SLOTS[3], len(content[begin:].rstrip(b"\0")) + 63 >> 6
    _, request, _, before, where = struct.unpack_from("<5Q", content, at)
    return path, at, where if request and before == records else -1, records


def recovered(folder: pathlib.Path, *, salvage: bool = False) -> tuple[Any, Any, Any]:
    # where the inode number is the identity of a file, a copy is another file
    logs = sorted(folder.glob("logs/*"))
    report = pnc_vol.replay(folder / "x.nc", logs, salvage=salvage, any_file=not ATTRIBUTES)
    with pnc_vol.File(folder / "x.nc") as f:
        return report, f["x"][...], f["y"][...]


# ------------------------------------------------------------------------------------------- kills


def test_a_kill_after_any_post_loses_none(tmp_path: pathlib.Path) -> None:
    """Also where the slot is full, and where other posts, reads, cuts and cancelled ones come in between."""
    root = tmp_path / "job"
    (root / "logs").mkdir(parents=True)
    places = set()
    with pnc_vol.File(root / "x.nc", "w", **logged(root / "logs")) as f:
        x = f.create_dataset("x", (3000, 8), "f8")
        y = f.create_dataset("y", (0,), "i2", maxshape=(None,))
        f.flush()
        wanted, other = np.zeros(x.shape), np.zeros(0, "i2")
        for i in range(1300):
            x[i] = wanted[i] = np.arange(8) + i
            if i % 100 == 50:
                x[2000:2002, 2:4] = wanted[2000:2002, 2:4] = i
            if i % 100 == 60:
                assert x[i - 5 : i + 1].tolist() == wanted[i - 5 : i + 1].tolist()
            if i % 150 == 140:
                n = 40 - i // 50
                y.resize(n, axis=0)
                y[: n - 1] = i
                other = np.append(np.full(n - 1, i, "i2"), other[n - 1 : n] if n <= len(other) else 0)
            if i % 100 == 70:
                f.cancel([x.iput(i, np.full(8, -1.0))])
            if i % 61 == 0 or i % 100 in (50, 60, 70, 71) or i % 150 == 140 or (470 < i < 490 and i % 3 == 0):
                copy = leave(root, tmp_path / "kill")
                places.add(commit_log(copy)[2])
                report, found, lines = recovered(copy)
                assert (report.torn, report.damaged) == (0, False)
                np.testing.assert_array_equal(found, wanted)
                assert lines.tolist() == other.tolist()
                again, found, _ = recovered(copy)
                assert not again.replayed
                np.testing.assert_array_equal(found, wanted)
                shutil.rmtree(copy)
    assert {IN_LOGS, IN_SLOT} <= places
    with pnc_vol.File(root / "x.nc") as f:
        np.testing.assert_array_equal(f["x"][...], wanted)


class Stopping(HookedSystem):
    """Leaves a copy before and after each call that changes files, while it is asked to."""

    def __init__(self, root: pathlib.Path, copies: pathlib.Path) -> None:
        super().__init__()
        self.root, self.copies, self.looking, self.made = root, copies, False, 0

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.look()
        result = super().call(name, args, kwargs)
        self.look()
        return result

    def look(self) -> None:
        if self.looking:
            leave(self.root, self.copies / str(self.made))
            self.made += 1


def test_a_kill_while_posts_leave_the_slot_loses_none(tmp_path: pathlib.Path) -> None:
    root, copies = tmp_path / "job", tmp_path / "kills"
    (root / "logs").mkdir(parents=True)
    copies.mkdir()
    system = Stopping(root, copies)
    f = pnc_vol.File(root / "x.nc", "w", **logged(root / "logs", system=system))
    x, y = f.create_dataset("x", (3000, 8), "f8"), f.create_dataset("y", (5,), "i2")
    f.flush()
    count = 0
    while not system.made:
        system.looking = count > 20
        x[count] = count + 1
        count += 1
    # A post of another kind empties the slot as well.
    y[::2] = 4
    system.looking = False
    f.close()
    assert system.made > 4
    for copy in sorted(copies.iterdir()):
        report, found, _ = recovered(copy)
        assert (report.torn, report.damaged) == (0, False)
        there = int((found[:, 0] > 0).sum())
        assert there in (count - 1, count)
        assert found[:there].tolist() == [[i + 1.0] * 8 for i in range(there)]


@pytest.fixture
def left(tmp_path: pathlib.Path) -> pathlib.Path:
    """A job that was killed with nine posts in the slot, and two before."""
    root = tmp_path / "job"
    (root / "logs").mkdir(parents=True)
    f = pnc_vol.File(root / "x.nc", "w", **logged(root / "logs"))
    x, _ = f.create_dataset("x", (20, 3), "f8"), f.create_dataset("y", (5,), "i2")
    f.flush()
    for i in range(11):
        x[i] = i + 1
    copy = leave(root, tmp_path / "left")
    f.close()
    assert commit_log(copy)[2] == IN_SLOT
    return copy


def test_a_bit_anywhere_in_the_slot_is_noticed(left: pathlib.Path, tmp_path: pathlib.Path) -> None:
    path, at, *_ = commit_log(left)
    whole = path.read_bytes()
    used = len(whole[at + SLOTS[2] : at + SLOTS[3]].rstrip(b"\0"))
    for place in (*range(8), *range(24, 40), *range(SLOTS[2], SLOTS[2] + used, 7)):
        spoilt = bytearray(whole)
        spoilt[at + place] ^= 1 << place % 8
        path.write_bytes(spoilt)
        copy = leave(left, tmp_path / "spoilt")
        try:
            report, found, _ = recovered(copy)
        except LogError:
            report, found, _ = recovered(copy, salvage=True)
            assert report.damaged
        # What is not as it was posted is not in the file.
        assert np.count_nonzero(found[:, 0]) <= 2
        assert found[:2].tolist() == [[1.0] * 3, [2.0] * 3]
        shutil.rmtree(copy)


@pytest.mark.parametrize("suffix", ["meta", "data"])
def test_posts_in_the_slot_are_not_put_behind_a_gap(left: pathlib.Path, suffix: str) -> None:
    (path,) = left.glob(f"logs/*/*.{suffix}")
    os.truncate(path, 40)
    with pytest.raises(LogError):
        recovered(left)


def test_a_slot_that_no_post_has_reached(left: pathlib.Path) -> None:
    """The first post of a group is stored before its CRC."""
    path, at, *_ = commit_log(left)
    whole = bytearray(path.read_bytes())
    struct.pack_into("<Q", whole, at, 0)
    path.write_bytes(whole)
    report, found, _ = recovered(left)
    assert not report.damaged
    assert np.count_nonzero(found[:, 0]) == 2


# ------------------------------------------------------------------------------------ what it costs


def test_a_small_post_makes_no_call_of_the_system_and_few_of_functions(
    tmp_path: pathlib.Path, logs: pathlib.Path
) -> None:
    system = TraceSystem()
    with pnc_vol.File(tmp_path / "x.nc", "w", **logged(logs, system=system)) as f:
        x = f.create_dataset("x", (9000, 8), "f8")
        row, calls = np.arange(8.0), [0]
        for i in range(100):
            x[i] = row
        (commit,) = logs.glob("*/*.commit")
        before, named = commit.stat().st_size, len(system.log)

        def count(_frame: Any, event: str, _what: Any) -> None:
            calls[0] += event == "call"

        sys.setprofile(count)
        try:
            for i in range(100, 200):
                x[i] = row
        finally:
            sys.setprofile(None)
        assert len(system.log) == named
        assert calls[0] <= 5 * 100
        # Calls of the system: a few for each time that the slot is full.
        for i in range(200, 8000):
            x[i] = row
        times = 8000 * 136 // (SLOTS[3] - SLOTS[2])
        assert len(system.log) - named <= 6 * times + 30
        assert commit.stat().st_size - before <= 64 * (times + 2) + 4096


def test_the_windows_of_larger_posts_stay_open_over_flushes(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    system = TraceSystem()
    with pnc_vol.File(tmp_path / "x.nc", "w", **logged(logs, system=system)) as f:
        x = f.create_dataset("x", (1500, 512), "f8")
        mapped = []
        for epoch in range(4):
            before = len(system.log)
            for i in range(1500):
                x[i] = np.full(512, epoch + i)
            # Not of the file that is read.
            mapped.append(sum(call.name == "mmap" and ".data" in call.path for call in system.log[before:]))
            f.flush()
            assert x[::100, 7].tolist() == [epoch + i for i in range(0, 1500, 100)]
        assert mapped[0] >= 5
        assert mapped[2:] == [0, 0]
        # Another process cuts the file, and nothing is stored behind its end.
        (data,) = logs.glob("*/*.data")
        os.truncate(data, 8)
        x[3] = np.full(512, -1.0)
    with pnc_vol.File(tmp_path / "x.nc") as f:
        assert f["x"][3, 5] == -1


def test_few_rows_between_other_posts_stay_out_of_the_slot(
    tmp_path: pathlib.Path, logs: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    with pnc_vol.File(tmp_path / "x.nc", "w", **logged(logs)) as f:
        x, y = f.create_dataset("x", (900, 8), "f8"), f.create_dataset("y", (9, 9), "i2")
        for i in range(300):
            x[i] = i
            if i % 5 == 0:
                y[::2, ::2] = i
        assert not commit_log(tmp_path)[3]


def test_small_posts_between_larger_ones_stay_out_of_the_slot(
    tmp_path: pathlib.Path, logs: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of several variables in turn, as E3SM's: to empty the slot at each larger one took more than all posts."""
    monkeypatch.undo()
    with pnc_vol.File(tmp_path / "x.nc", "w", **logged(logs)) as f:
        x, y = (f.create_dataset(name, (90_000,), "f8") for name in "xy")
        for i in range(300):
            for ds in (x, y):
                ds[100 * i : 100 * i + 1 + i % 60] = i
            if i % 3 == 0:
                x[100 * i : 100 * i + 90] = np.full(90, -i)
        assert commit_log(tmp_path)[3] <= 1
    with pnc_vol.File(tmp_path / "x.nc") as f:
        assert (f["x"][300:390] == -3).all()
        assert f["y"][450] == 0
        assert f["y"][400] == 4


class Full(HookedSystem):
    """A device on which no space can be reserved."""

    def __init__(self) -> None:
        super().__init__()
        self.full = False

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name == "fallocate" and self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().call(name, args, kwargs)


@pytest.mark.parametrize("after", [0, 3, 40, 470, 600])
def test_a_full_device_loses_nothing(after: int, tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    system = Full()
    wanted = np.zeros((1500, 8))
    with pnc_vol.File(tmp_path / "x.nc", "w", **logged(logs, system=system)) as f:
        x = f.create_dataset("x", wanted.shape, "f8")
        f.flush()
        for i in range(1400):
            system.full = i >= after
            x[i] = wanted[i] = i + 1.0
            if i % 200 == 100:
                assert x[i - 3 : i + 1, 1].tolist() == wanted[i - 3 : i + 1, 1].tolist()
    with pnc_vol.File(tmp_path / "x.nc") as f:
        np.testing.assert_array_equal(f["x"][...], wanted)


def test_a_small_queue_takes_few_posts_into_the_slot(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    wanted = np.arange(8000.0).reshape(2000, 4)
    with pnc_vol.File(tmp_path / "x.nc", "w", **logged(logs, buffer_size=64 << 10)) as f:
        x = f.create_dataset("x", wanted.shape, "f8")
        for i, row in enumerate(wanted):
            x[i] = row
    with pnc_vol.File(tmp_path / "x.nc") as f:
        np.testing.assert_array_equal(f["x"][...], wanted)


def test_a_dataset_without_axes(tmp_path: pathlib.Path) -> None:
    """Its entries have no dimensions, whichever way a post takes."""
    (tmp_path / "now/logs").mkdir(parents=True)
    with pnc_vol.File(tmp_path / "now/x.nc", "w", **logged(tmp_path / "now/logs")) as f:
        f.create_dataset("s", (), "i4")
        f.flush()
        for n in range(5):
            f["s"][()] = np.int32(n)
            f["s"].iput((), np.int32(n))
        left = leave(tmp_path / "now", tmp_path / "left")
    pnc_vol.replay(left / "x.nc", sorted(left.glob("logs/*")), any_file=True)
    with pnc_vol.File(left / "x.nc") as f:
        assert f["s"][()] == 4
