"""Records of blobs that are cut off and made again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pnc_vol


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
