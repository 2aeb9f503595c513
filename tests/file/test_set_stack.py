"""A blob set over the burst-buffer log and over a node-local cache, on one process."""

from __future__ import annotations

import io
import os
import pathlib
import warnings

import numpy as np
import pytest
from kills import forked, kill_after

import pnc_vol

LOG, CACHE = "log", "cache"
STACKS = [(), (LOG,), (CACHE,), (LOG, CACHE)]


def hints(folder: pathlib.Path, stack: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    if LOG in stack:
        found |= {"nc_burst_buf": "enable", "nc_burst_buf_dirname": str(folder)}
    if CACHE in stack:
        found |= {"e10_cache": "enable", "e10_cache_path": str(folder)}
    return found


def write(path: pathlib.Path, layout: str, given: dict[str, str], **options: object) -> None:
    """Fixed and growing variables, in and outside of their maps, over three flushes."""
    with pnc_vol.File(path, "w", layout=layout, hints=given, **options) as f:
        f.attrs["title"] = "stack"
        x = f.create_dataset("x", (6, 10), "f8", fillvalue=-1.0)
        r = f.create_dataset("g/r", (0, 8), "i4", maxshape=(None, 8))
        x[1:4, 2:5] = np.arange(9.0).reshape(3, 3)
        f.flush()
        for turn in range(5):
            r.resize(turn + 1, axis=0)
            r[turn, 1:7:2] = turn
            x[turn, 0] = 10 * turn
            f.flush()
        x[2, 3] = 99


def content(path: pathlib.Path) -> dict[str, object]:
    with pnc_vol.File(path) as f:
        return {"x": f["x"][...].tolist(), "r": f["g/r"][...].tolist(), "title": f.attrs["title"]}


@pytest.mark.parametrize("stack", STACKS, ids=lambda stack: "+".join(stack) or "plain")
def test_a_set_reads_as_the_canonical_file(tmp_path: pathlib.Path, stack: tuple[str, ...]) -> None:
    (tmp_path / "nvm").mkdir()
    write(tmp_path / "canonical.nc", "canonical", {})
    write(tmp_path / "set.nc", "blob", hints(tmp_path / "nvm", stack))
    assert content(tmp_path / "set.nc") == content(tmp_path / "canonical.nc")
    assert os.listdir(tmp_path / "nvm") == []


@pytest.mark.parametrize("stack", STACKS[1:], ids="+".join)
@pytest.mark.parametrize("flushes", [1, 2, 5, 9])
def test_what_a_killed_writer_had_is_recovered(tmp_path: pathlib.Path, stack: tuple[str, ...], flushes: int) -> None:
    """With a log what was posted, with a cache what was flushed."""
    nvm, path = tmp_path / "nvm", tmp_path / "set.nc"
    nvm.mkdir()

    def job(pipe: int) -> None:
        f = pnc_vol.File(path, "w", layout="blob", hints=hints(nvm, stack) | {"e10_cache_flush_flag": "flush_onclose"})
        x = f.create_dataset("x", (100, 4), "i8")
        r = f.create_dataset("r", (0, 5), "i4", maxshape=(None, 5))
        x[0, 1:3] = 1
        f.flush()
        os.write(pipe, b".")
        for turn in range(1, 100):
            r.resize(turn, axis=0)
            r[turn - 1, :2] = turn
            x[turn] = turn
            f.flush()
            os.write(pipe, b".")
            x[turn, 0] = -turn
        os.write(pipe, b".")

    said, _ = kill_after(*forked(job), flushes, 0.0)
    with warnings.catch_warnings():
        # that a killed job left something is what this is about
        warnings.simplefilter("ignore")
        with pnc_vol.File(path, "r+", recover=True, hints=hints(nvm, stack)) as f:
            x, r = f["x"][...], f["r"][...]
    assert len(r) >= said - 1
    assert x[0].tolist() == [0, 1, 1, 0]
    for turn in range(1, said):
        assert x[turn, 1:].tolist() == [turn] * 3
        assert x[turn, 0] in (turn, -turn)
        assert r[turn - 1].tolist() == [turn, turn, 0, 0, 0]
    if LOG in stack:
        # posted after one flush and before the next
        assert all(x[turn, 0] == -turn for turn in range(1, said - 1))


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


def test_a_file_in_memory_is_one_file() -> None:
    """The environment may ask for subfiles of all files of a program."""
    target = io.BytesIO()
    with pnc_vol.File(target, "w", layout="blob") as f:
        f["x"] = np.arange(5)
    with pnc_vol.File(target, "r", layout="blob") as f:
        assert f["x"][...].tolist() == [0, 1, 2, 3, 4]
