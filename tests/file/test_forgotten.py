"""Files that nobody closed: written all the same, and never by the collector of cycles."""

from __future__ import annotations

import ast
import contextlib
import errno
import gc
import os
import pathlib
import sys
import traceback
import warnings
from typing import Any

import numpy as np
import pytest
from other_process import fresh

import pnc_vol
from pnc_vol.errors import SyncError
from pnc_vol.testing.faults import FaultSystem, HookedSystem


class Counted(HookedSystem):
    """How many calls were made, and when it is full."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.full = False

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.calls += 1
        if self.full and name in ("pwrite", "pwritev"):
            raise OSError(28, "No space left on device")
        return super().call(name, args, kwargs)


def in_a_cycle(path: pathlib.Path, system: Any = None) -> None:
    """Write to a file, and lose it to the collector."""
    f = pnc_vol.File(path, "w", system=system or HookedSystem())
    f["x"] = np.arange(5)
    ring: list[Any] = [f]
    ring.append(ring)


@pytest.fixture(autouse=True)
def _by_hand() -> Any:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_the_last_reference_closes_the_file(tmp_path: pathlib.Path) -> None:
    f = pnc_vol.File(tmp_path / "x.nc", "w")
    f["x"] = np.arange(5)
    del f
    with open(tmp_path / "x.nc", "rb") as disk, pnc_vol.File(disk) as g:
        assert g["x"][:].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("act", ["open", "flush", "close"])
def test_the_collector_does_no_io_and_the_next_call_does(tmp_path: pathlib.Path, act: str) -> None:
    system = Counted()
    other = pnc_vol.File(tmp_path / "other.nc", "w")
    in_a_cycle(tmp_path / "x.nc", system)
    before = system.calls
    assert gc.collect() > 0
    assert system.calls == before
    if act == "open":
        pnc_vol.File(tmp_path / "more.nc", "w").close()
    else:
        getattr(other, act)()
    assert system.calls > before
    with open(tmp_path / "x.nc", "rb") as disk, pnc_vol.File(disk) as g:
        assert g["x"][:].tolist() == [0, 1, 2, 3, 4]
    other.close()


def test_who_opens_the_file_again_finds_it_closed(tmp_path: pathlib.Path) -> None:
    in_a_cycle(tmp_path / "x.nc")
    gc.collect()
    with pnc_vol.File(tmp_path / "x.nc", "w") as f:
        assert list(f) == []


def test_what_cannot_be_written_is_told_by_the_next_call_and_does_not_stop_it(tmp_path: pathlib.Path) -> None:
    system = Counted()
    in_a_cycle(tmp_path / "x.nc", system)
    system.full = True
    gc.collect()
    with pytest.warns(pnc_vol.PncVolWarning, match=r"x\.nc' was not closed.*No space left"):
        f = pnc_vol.File(tmp_path / "other.nc", "w")
    f["y"] = 1
    f.close()


@pytest.mark.parametrize("mode", ["w", "r+"])
def test_a_failed_fsync_keeps_no_file_open(tmp_path: pathlib.Path, mode: str) -> None:
    """The session remembers the error, but no frame of its traceback, in which the file is a variable."""
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "w") as f:
        f["x"] = np.arange(5)
    system = FaultSystem(fail_at=0, errno=errno.EIO, calls={"fdatasync"})

    def program() -> None:
        f = pnc_vol.File(path, mode, system=system)
        # in the file that is there it needs a new layout, which is synced before it takes the name
        f.attrs["long"] = np.arange(5000)
        system.fail_at = system.count + 1
        f.flush(durable=mode == "w")

    before = os.listdir("/proc/self/fd")
    with contextlib.suppress(SyncError):
        program()
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the layout that could not be synced does not take the name
        pnc_vol.File(tmp_path / "other.nc", "w").close()
    assert system.fired
    assert os.listdir("/proc/self/fd") == before


def told(work: Any, *args: object) -> str:
    """What a function of this module prints in a process whose end, or collector, is tested."""
    done = fresh(work, *args)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("how", ["held", "in a cycle", "collected"])
def test_at_exit(tmp_path: pathlib.Path, how: str) -> None:
    told(end, how, tmp_path)
    with pnc_vol.File(tmp_path / "x.nc") as f:
        assert f["x"][()].tolist() == [0, 1, 2, 3, 4]


def test_a_collection_in_the_middle_of_a_parse_leaves_the_parser_alone(tmp_path: pathlib.Path) -> None:
    """A file that cannot be closed was told by a traceback, and to make one is to parse."""
    assert told(parse, tmp_path) == "5\n"


def parse(folder: str) -> None:
    """Parse while files that cannot be closed are collected; how many of these are told of afterwards is printed."""
    warnings.simplefilter("error")
    sys.unraisablehook = lambda told: print(*traceback.format_exception(told.exc_value))
    gc.disable()
    for i in range(5):
        system = Counted()
        in_a_cycle(pathlib.Path(folder, f"{i}.nc"), system)
        system.full = True
    gc.set_threshold(500, 1, 1)
    gc.enable()
    ast.parse("\n".join(f"x{i} = [a + b * (c - {i}) for a in range({i})]" for i in range(100)))
    gc.disable()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pnc_vol.File(f"{folder}/other.nc", "w").close()
    print(sum("was not closed" in str(one.message) for one in caught))
    warnings.simplefilter("ignore")


def end(how: str, folder: str) -> None:
    """End with a file that is open."""
    if how == "held":
        held.append(pnc_vol.File(f"{folder}/x.nc", "w"))
        held[0]["x"] = np.arange(5)
    else:
        in_a_cycle(pathlib.Path(folder, "x.nc"))
    if how == "collected":
        gc.collect()


held: list[Any] = []
