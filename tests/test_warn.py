"""What loggers of the program are told, and that it costs nothing without them."""

from __future__ import annotations

import logging
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from kills import killed_job
from other_process import fresh

import pnc_vol


def test_loggers_are_told_what_happens(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "pnc_vol")
    path = tmp_path / "a.nc"
    with pnc_vol.File(path, "w", header_reserve=0) as f:
        f["x"] = np.arange(10.0)
        f.flush()
        f.attrs["long"] = "x" * 100_000
        f.flush()
    told = {(record.name, record.levelname, record.getMessage().partition(": ")[2]) for record in caplog.records}
    assert ("pnc_vol.file", "DEBUG", "opened for writing, 1 ranks, layout canonical") in told
    assert ("pnc_vol.file", "DEBUG", "closed") in told
    assert [text for name, level, text in told if level == "INFO" and "definitions moved 80 bytes" in text]
    assert [text for name, _, text in told if name == "pnc_vol.flush" and "80 bytes, independent" in text]
    with pytest.warns(pnc_vol.PncVolWarning), pnc_vol.File(tmp_path / "b.nc", "w") as f:
        f.create_dataset("x", (4,), "f4", chunks=(2,), scaleoffset=None, fletcher32=True)
    assert any(record.name == "pnc_vol" and record.levelname == "WARNING" for record in caplog.records)


def test_a_replay_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pnc_vol")
    path = tmp_path / "a.nc"

    def work(f: pnc_vol.File) -> None:
        d = f.create_dataset("x", (4,), "f8")
        f.flush()
        d[:] = 7

    killed_job(path, work, burst_buf=True)
    with pnc_vol.File(path, "r+", recover=True) as f:
        assert f["x"][:].tolist() == [7] * 4
    assert [record.getMessage() for record in caplog.records if record.name == "pnc_vol.recovery"] == [
        f"{os.path.realpath(path)}: logs of a killed job were replayed: 1 requests from 1 logs"
    ]


def ignored_chunks() -> None:
    warnings.simplefilter("ignore")
    with pnc_vol.File("x", "w", driver="memory") as f:
        f.create_dataset("x", (4,), "f4", chunks=(2,))


def test_nothing_is_printed_without_a_handler() -> None:
    done = fresh(ignored_chunks)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_progress_of_a_flush(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    with pnc_vol.File(tmp_path / "a.nc", "w") as f:
        f.create_dataset("x", (4, 1_000_000), "f4")
        f.flush()
        f["x"].iput(np.s_[:], np.ones((4, 1_000_000), "f4"))
        f.flush(progress=lambda done, total: calls.append((done, total)))
        assert len(calls) > 4
        assert calls == sorted(calls)
        assert calls[-1] == (16_000_000, 16_000_000)
        f["x"][0] = 2
        f.flush()
        assert calls[-1] == (16_000_000, 16_000_000)

        def broken(done: int, total: int) -> None:
            raise KeyboardInterrupt

        f["x"][1] = 3
        with pytest.raises(KeyboardInterrupt):
            f.flush(progress=broken)
        f.flush()
        assert f["x"][:3, 0].tolist() == [2, 3, 1]
