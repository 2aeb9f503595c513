"""A forgotten file whose close is interrupted; random programs are interrupted at any other place (`tests/engine`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interrupts import Interrupts

import pnc_vol


# in a destructor
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("way", ["plain", "cache"])
def test_a_forgotten_file_whose_close_is_interrupted_loses_nothing(tmp_path: Path, way: str) -> None:
    """Python prints the Ctrl-C of a destructor and goes on, so that nobody would close the file once more."""

    (tmp_path / "nvm").mkdir()
    options: Any = {"hints": {"e10_cache_path": str(tmp_path / "nvm")}} if way == "cache" else {}

    def forget(name: str, interrupts: Any) -> Any:
        f = pnc_vol.File(tmp_path / name, "w", **options)
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
