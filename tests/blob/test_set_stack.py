"""What is told of a blob set whose log was left, and a set that is asked for a file in memory.

Random programs write sets over logs and caches, and are killed (`tests/engine`).
"""

from __future__ import annotations

import io
import os
import pathlib
import warnings

import numpy as np
import pytest
import virtual_ranks
from kills import forked, kill_after

import pnc_vol
from pnc_vol.ranks.comm import Comm
from pnc_vol.testing.faults import FaultSystem


def test_a_log_that_is_left_is_told_of(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "set.nc"

    def job(pipe: int) -> None:
        f = pnc_vol.File(path, "w", layout="blob", hints={"nc_burst_buf": "enable"})
        f.create_dataset("x", (4,), "i8")
        f.flush()
        f["x"][1] = 5
        os.write(pipe, b".")
        os.write(pipe, b".")
        os.read(os.pipe()[0], 1)

    kill_after(*forked(job), 1, 0.0)
    with pytest.warns(pnc_vol.PncVolWarning, match="set.nc.0000: a job that ended early left posted data"):
        pnc_vol.File(path).close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = pnc_vol.replay(str(tmp_path / "set.nc.0000"))
    assert report.replayed == 1
    with pnc_vol.File(path) as f:
        assert f["x"][...].tolist() == [0, 5, 0, 0]


def test_a_flush_whose_drain_failed_is_tried_again(tmp_path: pathlib.Path) -> None:
    """The maps of new datasets are agreed before the caches of the subfiles are drained."""
    path, hints = tmp_path / "set.nc", {"e10_cache_path": str(tmp_path)}
    failing = FaultSystem(fail_at=1, calls=("unlink",))
    f = pnc_vol.File(path, "w", layout="blob", publish="close", hints=hints, system=failing)
    f.create_dataset("early", (), "i4").iput((), 2).wait()
    f.create_dataset("x", (5, 4), "i4", maxshape=(5, 8)).resize(6, axis=1)
    with pytest.raises(OSError, match="call close"):
        f.close()
    f.close()
    with pnc_vol.File(path) as f:
        assert (f["early"][()], f["x"].shape, f["x"][...].any()) == (2, (5, 6), False)


def test_a_file_in_memory_is_one_file() -> None:
    """The environment may ask for subfiles of all files of a program."""
    target = io.BytesIO()
    with pnc_vol.File(target, "w", layout="blob") as f:
        f["x"] = np.arange(5)
    with pnc_vol.File(target, "r", layout="blob") as f:
        assert f["x"][...].tolist() == [0, 1, 2, 3, 4]


def test_records_of_which_ranks_post_different_columns(tmp_path: pathlib.Path) -> None:
    """A column of the map belongs to one rank; other ranks write their records of it beside those of that rank."""
    path = tmp_path / "set.nc"

    def program(comm: Comm) -> None:
        hints = {"e10_cache_path": str(tmp_path), "e10_cache_flush_flag": "flush_onclose"}
        with pnc_vol.File(path, "w", layout="blob", driver="cache | posix", comm=comm, hints=hints) as f:
            x = f.create_dataset("x", (3, 4), "i4", maxshape=(None, 5), fillvalue=7)
            x[np.arange(12).reshape(3, 4) // 3 % 3 == comm.rank] = 2

    virtual_ranks.run(3, program, nodes=3)
    with pnc_vol.File(path) as f:
        assert f["x"][...].tolist() == [[2] * 4] * 3
