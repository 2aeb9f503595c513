"""After each close of a file that was written: other programs look at it.

netCDF4 must open the file and read every variable and attribute; of every fourth file, because it is a process each
time, ``ncvalidator`` must find nothing.

Knows: paths of files. Does not know: tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import warnings
from typing import Any

import netCDF4

from pnc_vol.pending.session import Session

found: list[str] = []
"""What was wrong with files that were closed since somebody looked."""
counts = {"files": 0}

EVERY = 4
MOST_ELEMENTS = 1 << 20
"""Elements of a variable that are read; the suite has some of terabytes."""


def check(path: str) -> None:
    """Let the others look.

    Raises
    ------
    AssertionError
        One of them finds something, or cannot read.
    """
    if counts["files"] % EVERY == 0 and shutil.which("ncvalidator") is not None:
        told = subprocess.run(["ncvalidator", "-q", path], capture_output=True, text=True, timeout=60, check=False)
        assert told.returncode == 0, f"ncvalidator: {told.stdout}{told.stderr}"
    with warnings.catch_warnings(), netCDF4.Dataset(path) as data:
        warnings.simplefilter("ignore")
        data.ncattrs()
        for name, variable in data.variables.items():
            # NetCDF's own conventions would be applied to values that are not meant so
            variable.set_auto_maskandscale(False)
            variable.set_auto_chartostring(False)
            for attr in variable.ncattrs():
                variable.getncattr(attr)
            if variable.size <= MOST_ELEMENTS:
                assert variable[...].shape == variable.shape, name


def install() -> None:
    """Check every file when it is closed."""
    original = Session.close

    def close(self: Any) -> None:
        written = not self.closed and self.writable and self.location is not None
        original(self)
        if written and os.path.exists(self.path):
            try:
                check(os.path.realpath(self.path))
            except Exception as problem:
                # not raised here: tests swallow what a close in their tearDown raises
                found.append(f"{type(problem).__name__}: {problem}")
            counts["files"] += 1

    Session.close = close  # type: ignore[method-assign]
