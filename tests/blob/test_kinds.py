"""Datasets of every kind of element in blobs: an element may have dimensions of its own, which no map has."""

from __future__ import annotations

from pathlib import Path

import netCDF4
import numpy as np
import pytest

import pnc_vol
from pnc_vol.testing.mpi import missing, run_mpi

PROGRAM = Path(__file__).parents[1] / "mpi/ranks_blob_kinds.py"


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.parametrize(("ranks", "nodes"), [(1, 1), (3, 2)])
def test_every_kind_of_element_comes_back(tmp_path: Path, ranks: int, nodes: int) -> None:
    env = {"MPIR_CVAR_NUM_CLIQUES": str(nodes)}
    told = run_mpi(ranks, PROGRAM, tmp_path, "blob", "hdf5blob", env=env).stdout
    assert told.count("all kinds of blob") == told.count("all kinds of hdf5blob") == ranks
    with netCDF4.Dataset(tmp_path / "blob.0000") as nc:
        partitioned = ranks > 1
        assert nc["text"].dimensions == (("D1.nelems" if partitioned else "dim_6"), "strlen_8")


def test_check_looks_at_the_markers_of_the_set_and_not_of_its_subfiles(tmp_path: Path) -> None:
    """A marker describes the variables of the set; in a subfile these have the shapes of blobs."""
    with pnc_vol.File(tmp_path / "x.nc", "w", layout="blob") as f:
        rows = f.create_dataset("rows", (6,), np.dtype([("x", "f8"), ("name", "S3")]))
        rows[:3] = np.zeros(3, rows.dtype)
    assert [finding.field for finding in pnc_vol.check(tmp_path / "x.nc")] == ["D1"]
