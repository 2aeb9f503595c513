"""Programs of others, run on files: a test that needs one that is not installed is skipped."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

DEBIAN = {"ncvalidator": "pnetcdf-bin", "gdalinfo": "gdal-bin"}


def needed(name: str) -> str:
    """Where a program is; without it the test is skipped."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed (Debian: {DEBIAN.get(name, 'netcdf-bin')})")
    return found


def raw(name: str, *args: Any) -> bytes:
    """What a program prints, which must end without an error."""
    done = subprocess.run([needed(name), *map(str, args)], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tool(name: str, *args: Any) -> str:
    return raw(name, *args).decode()


def generated(path: Path, kind: str, cdl: str) -> Path:
    """A file that ncgen makes of a text, in one of its kinds."""
    path.with_suffix(".cdl").write_text(cdl)
    raw("ncgen", "-k", kind, "-o", path, path.with_suffix(".cdl"))
    return path


def assert_valid(path: Path) -> None:
    """To PnetCDF, without a warning."""
    told = tool("ncvalidator", path)
    assert "arning" not in told, told
