"""`pnc-vol repack` as its users meet it."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pytest
from other_process import calling

import pnc_vol


@pytest.fixture
def holes(tmp_path: Path) -> Path:
    with pnc_vol.File(tmp_path / "holes.nc", "w") as f:
        f["kept"] = np.arange(10.0)
        f["gone"] = np.ones(100_000)
        f.create_dataset("t", (1000,), "f8", maxshape=(None,))[...] = 1
    with pnc_vol.File(tmp_path / "holes.nc", "r+") as f:
        del f["gone"]
        f["t"].resize((10,))
    return tmp_path / "holes.nc"


def test_it_says_what_is_gained(holes, tmp_path, verb):
    size = holes.stat().st_size
    tried = verb("repack", "--dry-run", holes, code=0).out
    assert tried.splitlines()[0].endswith("KiB to gain")
    assert holes.stat().st_size == size
    copied = verb("repack", holes, tmp_path / "y.nc", code=0).out
    assert "  7.7 KiB of it were records that no dataset has" in copied.splitlines()
    done = verb("repack", "--in-place", holes, code=0).out
    assert done.splitlines()[1:] == tried.splitlines()[1:] == copied.splitlines()[1:]
    assert holes.read_bytes() == (tmp_path / "y.nc").read_bytes()
    assert verb("repack", "-i", holes, code=0).out == f"{holes}: {holes.stat().st_size} B, nothing to gain\n"
    assert verb("repack", "-n", holes, code=0).out == f"{holes}: {holes.stat().st_size} B, nothing to gain\n"
    assert "more" in verb("repack", "-i", "--header-reserve", 4096, holes, code=0).out
    assert verb("repack", "-i", "-q", holes, code=0).out == ""
    with pnc_vol.File(holes) as f:
        assert f["kept"][9] == 9
        assert f["t"].shape == (10,)


def test_what_is_wrong_is_one_line(holes, tmp_path, verb):
    (tmp_path / "text").write_text("hello")
    for args, said in (
        ((holes,), "--in-place"),
        ((holes, tmp_path / "y", "-i"), "not both"),
        ((tmp_path / "none", "-i"), "no such file"),
        ((tmp_path / "text", "-i"), "Not a NetCDF"),
        ((holes, tmp_path / "text"), "--overwrite"),
        ((holes, holes, "--overwrite"), "source itself"),
        ((holes, "-i", "--format", "HDF5"), "format"),
        ((holes, "-i", "--format", "CDF-0"), "format"),
    ):
        done = verb("repack", *args, code=2)
        assert done.out == ""
        assert said in done.err
        assert len(done.err.splitlines()) == 1
    with pnc_vol.File(holes, "r+") as f:
        f["big"] = 1
    assert "CDF-1 has no type" in verb("repack", "-i", "--format", "CDF-1", holes, code=2).err
    with pnc_vol.File(holes, "r+"):
        assert "open already" in verb("repack", "-i", holes, code=2).err
    assert sorted(os.listdir(tmp_path)) == ["holes.nc", "text"]


def repacked_slowly(path: str) -> None:
    """In a process of its own, until it is ended."""

    def slow(*_: object) -> None:
        print("inside", flush=True)
        while True:
            time.sleep(0.01)  # short naps: a signal just before a long one would be looked at after it

    importlib.import_module("pnc_vol.convert.new_files")._copy = slow  # type: ignore[attr-defined]
    sys.argv = ["pnc-vol", "repack", "-i", path]
    next(iter(entry_points(name="pnc-vol"))).load()()


def test_a_job_that_is_ended_leaves_nothing(holes, tmp_path):
    content = holes.read_bytes()
    with subprocess.Popen(calling(repacked_slowly, holes), stdout=subprocess.PIPE) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == b"inside\n"
        assert sorted(os.listdir(tmp_path)) == [".holes.nc.pncrepack", "holes.nc"]
        job.send_signal(signal.SIGTERM)
        job.wait(60)
    assert job.returncode == 128 + signal.SIGTERM
    assert os.listdir(tmp_path) == ["holes.nc"]
    assert holes.read_bytes() == content
