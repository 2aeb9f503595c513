"""The files that E3SM-IO's C program wrote: the F case, h1, 16 ranks on two nodes, 2 records."""

from __future__ import annotations

import functools
import gzip
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "../shared/data/e3sm/reference"
HDF5_BLOBS = ("f_h5_blob_h1.h5.0000", "f_h5_blob_h1.h5.0001")
NETCDF_BLOBS = ("f_pnc_blob_h1.nc.0000", "f_pnc_blob_h1.nc.0001")
CANONICAL = "f_pnc_canonical_h1.nc"


@functools.cache
def _content(name: str) -> bytes | None:
    packed = FOLDER / f"{name}.gz"
    return gzip.decompress(packed.read_bytes()) if packed.exists() else None


def content(name: str) -> bytes:
    """The bytes of one of the files; the test is skipped where they are not."""
    found = _content(name)
    if found is None:
        pytest.skip(f"{FOLDER}/{name}.gz is missing: the files of the C program are not part of the project")
    return found
