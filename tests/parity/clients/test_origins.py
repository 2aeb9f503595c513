"""HDF5 files that other libraries write, converted to NetCDF and back: the libraries read the same from both.

The libraries run in a process of their own, on h5py. `tests/shared/deep.py` compares the files; what differs must be
in the reports.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import h5py
import pytest
from deep import differences

from pnc_vol.convert.hdf5 import convert

PROGRAM = Path(__file__).with_name("programs") / "origins.py"
ORIGINS = {
    "tables": ("tables",), "pandas": ("pandas", "tables"), "anndata": ("anndata", "scipy"), "hickle": ("hickle",),
    "matlab": ("hdf5storage", "mat73"),
}  # fmt: skip
"""The functions of the program, and what each needs."""


def told_by(origin: str, path: Path, *more: str) -> str:
    command = [sys.executable, "-W", "ignore", str(PROGRAM), origin, str(path), *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=path.parent)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("origin", ORIGINS)
def test_a_file_there_and_back(origin: str, tmp_path: Path) -> None:
    for name in ORIGINS[origin]:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed (pip install pnc-vol[clients])")
    source, there, back = (tmp_path / name for name in ("a.h5", "a.nc", "b.h5"))
    before = told_by(origin, source, "write")
    reports = [convert(source, there), convert(there, back)]
    assert [loss for report in reports for loss in report.lost] == []
    assert told_by(origin, back) == before
    told = {entry[0] for report in reports for entry in (*report.dropped, *report.by_convention)}
    with h5py.File(source) as first, h5py.File(back) as second:
        assert [(path, what) for path, what in differences(first, second) if path not in told] == []
