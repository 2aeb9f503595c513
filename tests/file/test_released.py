"""A forgotten file whose close is interrupted; random programs are interrupted at any other place (`tests/engine`)."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import options
import pytest
import virtual_ranks
from interrupts import open_now

import pnc_vol
from pnc_vol import plugins
from pnc_vol.testing.faults import HookedSystem


class InterruptedCall(HookedSystem):
    """Ctrl-C at the n-th call of the main thread from when `at` is set to n; below 0 the calls are counted."""

    at = 0

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # no other thread ever gets it
        if threading.current_thread() is threading.main_thread():
            self.at -= 1
            if not self.at:
                raise KeyboardInterrupt
        return super().call(name, args, kwargs)


# In a destructor, where lines are not traced: CPython 3.11 crashes now and then if a trace function raises there.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("way", ["plain", "cache", "rawfiles"])
def test_a_forgotten_file_whose_close_is_interrupted_loses_nothing(tmp_path: Path, way: str) -> None:
    """Python prints the Ctrl-C of a destructor and goes on, so that nobody would close the file once more.

    The flush of the close opens a raw file for each dataset.
    """
    (tmp_path / "nvm").mkdir()
    cache = {"hints": {"e10_cache_path": str(tmp_path / "nvm")}}
    given: dict[str, Any] = {"cache": cache, "rawfiles": {"layout": "rawfiles"}}.get(way, {})

    def forget(at: int) -> int:
        system = InterruptedCall()
        f = pnc_vol.File(tmp_path / f"{at}.nc", "w", system=system, **given)
        f["a"] = np.arange(300)
        f["b"] = [-1]
        system.at = at
        del f
        calls = at - system.at
        with pnc_vol.File(tmp_path / f"{at}.nc", system=system) as again:
            assert (again["a"][...].tolist(), again["b"][0]) == (list(range(300)), -1), at
        return calls

    with plugins.restored():
        if way == "rawfiles":
            options.load_plugins("rawfiles")
        count = forget(0)
        assert count > 5
        for n in range(1, count + 1):
            assert forget(n) >= n


class InterruptedRemoval(HookedSystem):
    """Ctrl-C at the n-th removal of a file from when `at` is set to n."""

    at = 0

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name == "unlink":
            self.at -= 1
            if not self.at:
                raise KeyboardInterrupt
        return super().call(name, args, kwargs)


@pytest.mark.filterwarnings("ignore::pnc_vol.PncVolWarning")
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_a_close_that_is_interrupted_while_a_log_is_removed_leaves_nothing_open(tmp_path: Path, n: int) -> None:
    """No descriptor of the log is closed twice, and that of the file, with its lock, is closed."""
    path, before = tmp_path / "x.nc", open_now()
    system = InterruptedRemoval()
    f = pnc_vol.File(path, "w", burst_buf=True, system=system)
    f["a"] = [1, 2, 3]
    system.at = n
    with pytest.raises(KeyboardInterrupt):
        f.close()
    assert open_now() <= before
    with pnc_vol.File(path, "r+", recover=True) as f:
        assert f["a"][...].tolist() == [1, 2, 3]


def test_a_rank_whose_close_is_interrupted_leaves_nothing_open(tmp_path: Path) -> None:
    """It leaves the file, and the others hear of that."""
    before = open_now()

    def program(comm: Any) -> str:
        system = InterruptedRemoval()
        f = pnc_vol.File(tmp_path / "x.nc", "w", comm=comm, driver="posix", burst_buf=True, system=system)
        f["a"] = [1, 2, 3]
        system.at = 2 * comm.rank
        try:
            f.close()
        except (KeyboardInterrupt, pnc_vol.RankError) as error:
            return type(error).__name__
        return "closed"

    assert virtual_ranks.run(2, program, timeout=2)[1] == "KeyboardInterrupt"
    assert open_now() <= before
    with pnc_vol.File(tmp_path / "x.nc", "r+", recover=True) as f:
        assert f["a"][...].tolist() == [1, 2, 3]
