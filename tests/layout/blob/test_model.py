"""Random programs on ranks and emulated nodes give the same in blobs as in the canonical layout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pnc_vol
from pnc_vol.testing.mpi import missing, run_mpi

PROGRAM = Path(__file__).parents[2] / "mpi/ranks_blob_model.py"

on_ranks = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.mark.parametrize("between", ["nothing", "grown", "defined"])
def test_records_that_were_cut_off_do_not_come_back(tmp_path: Path, between: str) -> None:
    half = pnc_vol.Decomposition.from_runs([0], [4], (8,))
    with pnc_vol.File(tmp_path / "x.nc", "w", layout="blob") as f:
        ds = f.create_dataset("v", (2, 8), "i4", maxshape=(None, 8), decomposition=half)
        ds[...] = 5
        f.flush()
        if between == "grown":
            ds.resize(4, axis=0)
        ds.resize(0, axis=0)
        if between == "defined":
            f.create_dataset("w", (3,), "i4")
        f.flush()
        ds.resize(2, axis=0)
        ds[:, 0] = 7
        f.flush()
        np.testing.assert_array_equal(ds[...], [[7, 0, 0, 0, 0, 0, 0, 0]] * 2)
    with pnc_vol.File(tmp_path / "x.nc") as f:
        np.testing.assert_array_equal(f["v"][...], [[7, 0, 0, 0, 0, 0, 0, 0]] * 2)


def run(
    folder: Path, ranks: int, nodes: int, first: int, count: int, *, timeout: float = 120, layout: str = "blob"
) -> None:
    env = {"MPIR_CVAR_NUM_CLIQUES": str(nodes)}
    told = run_mpi(ranks, PROGRAM, folder, first, count, layout, env=env, timeout=timeout).stdout
    assert f"{count} programs" in told


@on_ranks
@pytest.mark.parametrize(("ranks", "nodes"), [(1, 1), (2, 2), (3, 2), (4, 3)])
def test_blobs_read_like_the_canonical_layout(tmp_path: Path, ranks: int, nodes: int) -> None:
    run(tmp_path, ranks, nodes, 1000 * ranks, 6)


@on_ranks
@pytest.mark.parametrize(("ranks", "nodes"), [(1, 1), (2, 2), (4, 3)])
def test_hdf5_blobs_read_like_the_canonical_layout(tmp_path: Path, ranks: int, nodes: int) -> None:
    run(tmp_path, ranks, nodes, 500 + 1000 * ranks, 6, layout="hdf5blob")


@on_ranks
@pytest.mark.nightly
@pytest.mark.parametrize(("ranks", "nodes"), [(1, 1), (2, 1), (2, 2), (3, 1), (3, 3), (4, 1), (4, 2), (4, 3)])
def test_many_programs(tmp_path: Path, ranks: int, nodes: int) -> None:
    run(tmp_path, ranks, nodes, 10_000 * ranks + 1000 * nodes, 200, timeout=1200)
