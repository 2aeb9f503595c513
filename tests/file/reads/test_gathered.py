"""Reads of variables that share a map: its order is kept while variables move, and is used for others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pnc_vol

N = 40
BLOB, REST = slice(13, 21), slice(2, 36, 3)


@pytest.mark.parametrize("names", ["a", "abc"])
@pytest.mark.parametrize("records", [False, True])
def test_blobs_and_supplement_that_adjoin_today(tmp_path: Path, records: bool, names: str) -> None:
    """Definitions move the supplement, and other variables and records have it elsewhere."""
    path = tmp_path / "f.nc"
    shape: Any = (2, N) if records else (N,)
    with pnc_vol.File(path, "w", layout="blob") as f:
        model = {}
        for name, dtype in zip(names, ("i4", "f8", "i4"), strict=False):
            f.create_dataset(name, shape, dtype, maxshape=(None, N) if records else None)
            model[name] = np.zeros(shape, dtype)
        # the blob of the last variable is followed by the only supplement
        for at, value, of in ((BLOB, 29, names), (REST, 43, names[-1])):
            for name in of:
                f[name][..., at] = model[name][..., at] = value
            f.flush()
        for k in range(20):
            for name in model:
                assert (f[name][...] == model[name]).all(), (k, name)
            f.create_dataset(f"new{k}", (7 + k,), "i4")
            f.flush()
    pnc_vol.replay(path, output=tmp_path / "one.nc")
    for name in (path, tmp_path / "one.nc"):
        with pnc_vol.File(name) as f:
            for each in model:
                assert (f[each][...] == model[each]).all(), name
