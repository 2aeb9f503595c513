"""A log that somebody cuts while its job runs: the flush says so, and brings neither a signal nor zeros to the file."""

from __future__ import annotations

import os
import pathlib
import traceback
from typing import Any

import numpy as np
import pytest

import pnc_vol
from pnc_vol.errors import LogError
from pnc_vol.testing.faults import TraceSystem

SUFFIXES = (".meta", ".data", ".commit", ".defs")


def cut(path: pathlib.Path, left: int) -> None:
    os.truncate(path, left)


def regrown(path: pathlib.Path, left: int) -> None:
    """Cut, and written on behind the former end: zeros stand where values were."""
    nbytes = path.stat().st_size
    os.truncate(path, left)
    os.truncate(path, nbytes)


def in_a_child(work: Any) -> None:
    """A signal ends the child alone."""
    child = os.fork()
    if not child:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("how", [cut, regrown])
@pytest.mark.parametrize("left", [0, 100])
def test_a_log_that_was_cut_is_told_at_the_flush(
    suffix: str, how: Any, left: int, tmp_path: pathlib.Path, logs: pathlib.Path
) -> None:
    if how is regrown and suffix in (".meta", ".defs"):
        pytest.skip("what a flush does not read does no harm to it; a replay compares it")

    def work() -> None:
        path = tmp_path / "x.nc"
        f = pnc_vol.File(path, "w", burst_buf=True, burst_buf_dirname=str(logs))
        x = f.create_dataset("x", (400,), "f8")
        y = f.create_dataset("y", (9,), "i4", fillvalue=7)
        x[:300] = np.arange(300.0) + 1
        f.flush()
        for i in range(300):
            x[i] = i + 2
        y[:] = 3
        (file,) = logs.rglob(f"*{suffix}")
        how(file, left)
        for _ in range(2):
            with pytest.raises(LogError, match=f"{suffix}.*Another process changed it"):
                f.flush()
        f.cancel()
        y[:5] = 4
        f.flush()
        x[399] = 5
        f.close()
        with pnc_vol.File(path) as f:
            assert f["x"][:300].tolist() == [*range(1, 301)]
            assert f["x"][399] == 5
            assert f["y"][:].tolist() == [4] * 5 + [7] * 4
        assert not list(logs.iterdir())

    in_a_child(work)


def test_what_a_flush_asks_of_a_log(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    """Four sizes, the commit records and the posts that are compared: one call each; none if nothing was posted."""
    system = TraceSystem()
    with pnc_vol.File(tmp_path / "x.nc", "w", burst_buf=True, burst_buf_dirname=str(logs), system=system) as f:
        x = f.create_dataset("x", (4,), "f8")
        f.flush()
        x[0] = 1
        before = len(system.log)
        f.flush()
        calls = [call.name for call in system.log[before:]]
        assert calls.count("fstat") <= 6
        before = len(system.log)
        f.flush()
        assert "fstat" not in [call.name for call in system.log[before:]]


def test_a_small_log_is_read_back_at_once(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    """The calls of a flush do not grow with the posts that it compares."""
    system = TraceSystem()
    with pnc_vol.File(tmp_path / "x.nc", "w", burst_buf=True, burst_buf_dirname=str(logs), system=system) as f:
        x = f.create_dataset("x", (3000,), "f8")
        f.flush()
        reads = []
        for count in (10, 3000):
            for i in range(count):
                x[i] = i
            before = len(system.log)
            f.flush()
            reads.append(sum("pread" in call.name for call in system.log[before:]))
        assert reads[1] <= reads[0] <= 6
