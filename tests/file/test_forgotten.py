"""Files that nobody closed: written all the same, and never by the collector of cycles."""

from __future__ import annotations

import gc
import pathlib
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest

import pnc_vol
from pnc_vol.file import forgotten
from pnc_vol.system import REAL
from pnc_vol.testing.faults import HookedSystem


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


def in_a_cycle(path: pathlib.Path, system: Any = REAL) -> None:
    """Write to a file, and lose it to the collector."""
    f = pnc_vol.File(path, "w", system=system)
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
    assert not forgotten._waiting
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


@pytest.mark.parametrize("collected", [False, True])
def test_at_exit(tmp_path: pathlib.Path, collected: bool) -> None:
    script = f"""
        import gc, pnc_vol
        f = pnc_vol.File({str(tmp_path / "x.nc")!r}, "w")
        f["x"] = [1, 2, 3]
        ring = [f]
        ring.append(ring)
        del f
        if {collected}:
            del ring
            gc.collect()
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    assert not done.stderr
    with pnc_vol.File(tmp_path / "x.nc") as f:
        assert f["x"][()].tolist() == [1, 2, 3]


def test_a_collection_in_the_middle_of_a_parse_leaves_the_parser_alone(tmp_path: pathlib.Path) -> None:
    """A file that cannot be closed was told by a traceback, and to make one is to parse."""
    script = f"""
        import ast, gc, sys, traceback, warnings, pnc_vol
        warnings.simplefilter("error")
        sys.unraisablehook = lambda told: traceback.format_exception(told.exc_value)
        text = "\\n".join(f"x{{i}} = [a + b * (c - {{i}}) for a in range({{i}})]" for i in range(100))
        from pnc_vol.testing.faults import FaultSystem
        from pnc_vol.system import REAL
        def lose(i):
            system = FaultSystem(fail_at=0, mode="forever")
            f = pnc_vol.File(f"{tmp_path}/{{i}}.nc", "w", system=system)
            f["x"] = 1
            ring = [f]
            ring.append(ring)
            system.fail_at = system.count + 1
        gc.disable()
        for i in range(5):
            lose(i)
        gc.set_threshold(500, 1, 1)
        gc.enable()
        ast.parse(text)
        gc.disable()
        from pnc_vol.file import forgotten
        print(len(forgotten._waiting))
        warnings.simplefilter("ignore")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 5
