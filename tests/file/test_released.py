"""Whatever ends an opening, nothing of it stays: descriptors, locks, temporary files, threads.

Random programs are interrupted, or fail, at any other place (`tests/engine`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interrupts import Interrupts

import pnc_vol

WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "log": {"burst_buf": True},
    "blob": {"layout": "blob"},
    "named at the close": {"publish": "close"},
    "cache": {"hints": {"e10_cache_path": "FOLDER"}},
}


def options_of(way: str, folder: Path) -> dict[str, Any]:
    (folder / "nvm").mkdir(exist_ok=True)
    given = dict(WAYS[way])
    return given | ({"hints": {"e10_cache_path": str(folder / "nvm")}} if "hints" in given else {})


# in a destructor
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("way", ["plain", "cache"])
def test_a_forgotten_file_whose_close_is_interrupted_loses_nothing(tmp_path: Path, way: str) -> None:
    """Python prints the Ctrl-C of a destructor and goes on, so that nobody would close the file once more."""

    def forget(name: str, interrupts: Any) -> Any:
        f = pnc_vol.File(tmp_path / name, "w", **options_of(way, tmp_path))
        f["a"] = np.arange(300)
        with interrupts:
            del f
        with pnc_vol.File(tmp_path / name) as again:
            assert again["a"][...].tolist() == list(range(300)), interrupts.where
        return interrupts

    forget("first.nc", Interrupts(0, KeyboardInterrupt))
    counted = forget("counted.nc", Interrupts(0, KeyboardInterrupt))
    happened = [forget(f"{n}.nc", counted.at_line(n)).happened for n in range(1, counted.count + 1, 41)]
    assert sum(happened) > 10
