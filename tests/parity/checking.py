"""After each close of a file that was written: other programs look at it.

netCDF4 must open the file and read every variable and attribute, and ``ncvalidator`` must find nothing. The validator
is a process each time: of what comes after the first `ALL` files of a run, it sees every fourth.

Knows: paths of files. Does not know: tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import warnings
from typing import Any

import netCDF4

from pnc_vol.file.open_file import OpenFile

found: list[str] = []
"""What was wrong with files that were closed since somebody looked."""
counts = {"files": 0, "validated": 0}

ALL, EVERY = 2000, 4
MOST_ELEMENTS = 1 << 20
"""Elements of a variable that are read; the suite has some of terabytes."""


def check(path: str) -> None:
    """Let the others look.

    Raises
    ------
    AssertionError
        One of them finds something, or cannot read.
    """
    counts["files"] += 1
    wanted = counts["files"] <= ALL or counts["files"] % EVERY == 0
    if wanted and shutil.which("ncvalidator") is not None:
        told = subprocess.run(["ncvalidator", path], capture_output=True, text=True, timeout=60, check=False)
        text = told.stdout + told.stderr
        assert told.returncode == 0, f"ncvalidator: {text}"
        assert "arning" not in text, f"ncvalidator: {text}"
        counts["validated"] += 1
    with warnings.catch_warnings(), netCDF4.Dataset(path) as data:
        warnings.simplefilter("ignore")
        data.ncattrs()
        for name, variable in data.variables.items():
            # NetCDF's own conventions would be applied to values that are not meant so
            variable.set_auto_maskandscale(False)
            variable.set_auto_chartostring(False)
            for attr in variable.ncattrs():
                variable.getncattr(attr)
            read(name, variable)


def read(name: str, variable: Any) -> None:
    """All of a variable, or its ends if it is large."""
    if variable.size <= MOST_ELEMENTS:
        assert variable[...].shape == variable.shape, name
    else:
        for corner in (0, -1):
            assert variable[(corner,) * variable.ndim].shape == (), name


def install() -> None:
    """Check every file when it is closed."""
    original = OpenFile.close

    def close(self: Any, **how: Any) -> None:
        written = not self.closed and self.writable and self.disk.location is not None and self.comm.rank == 0
        original(self, **how)
        if written and os.path.exists(self.disk.path):
            try:
                check(os.path.realpath(self.disk.path))
            except Exception as problem:
                # not raised here: tests swallow what a close in their tearDown raises
                found.append(f"{type(problem).__name__}: {problem}")

    OpenFile.close = close  # type: ignore[method-assign]
