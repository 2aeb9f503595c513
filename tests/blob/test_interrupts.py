"""Ctrl-C, or no memory, at any line of a flush or the close of a set of subfiles: nothing stays open or is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interrupts import SWEEP, AtCall, Interrupts, interrupted, sweep, sweep_closes

import pnc_vol


@SWEEP
@pytest.mark.filterwarnings("ignore:.*kept in:pnc_vol.errors.PncVolWarning")
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("cached", [False, True], ids=["plain", "cache"])
@pytest.mark.parametrize("layout", ["blob", "hdf5blob"])
def test_nothing_stays_open(layout: str, cached: bool, error: type[BaseException], most: int, tmp_path: Path) -> None:
    def opened(n: int) -> pnc_vol.File:
        folder = tmp_path / str(n)
        folder.mkdir()
        options: dict[str, Any] = {"hints": {"e10_cache_path": str(folder)}} if cached else {}
        f = pnc_vol.File(tmp_path / f"{n}.nc", "w", layout=layout, **options)
        f["x"] = np.arange(10)
        f.flush()
        f["x"][5] = 50
        return f

    def look(n: int, trouble: AtCall) -> None:
        try:
            with pnc_vol.File(tmp_path / f"{n}.nc") as f:
                assert f["x"][5] in ((5, 50) if trouble.happened else (50,))
        except FileNotFoundError:
            # which gets its names when it is closed
            assert layout == "hdf5blob"
            assert trouble.happened

    sweep_closes(opened, look, error, most)


@SWEEP
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("layout", ["blob", "hdf5blob"])
def test_a_flush_is_called_again(layout: str, error: type[BaseException], most: int, tmp_path: Path) -> None:
    """What an interrupted flush has decided of maps, the next one decides anew."""

    def opened(n: int) -> pnc_vol.File:
        f = pnc_vol.File(tmp_path / f"{n}.nc", "w", layout=layout)
        f["x"] = np.arange(10)
        f.create_dataset("y", (8,), "i4", decomposition=pnc_vol.Decomposition.from_runs([0], [4], (8,)))[:4] = 5
        f.create_dataset("z", (40, 3000), "i4")[1:39, 7:9] = 6
        return f

    def read(f: pnc_vol.File) -> list[int]:
        return [f["x"][9], f["y"][3], f["z"][1, 7], int(f["z"][...].sum())]

    with opened(-2) as f:
        f.flush()
    counted = Interrupts(0, error)
    with opened(-1) as f, counted:
        f.flush()

    def once(n: int, trouble: AtCall) -> None:
        with opened(n) as f:
            interrupted(trouble, f.flush)
            assert read(f) == [9, 5, 6, 456]
            f["x"][9] = 8
        with pnc_vol.File(tmp_path / f"{n}.nc") as f:
            assert read(f) == [8, 5, 6, 456]

    sweep(counted, most, once)
