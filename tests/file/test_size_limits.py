"""What a version has no room for is refused when it is defined: nothing that was posted is lost at the close."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

import pnc_vol
from pnc_vol.errors import DefinitionError

GIB = 1 << 30


def sparse(path: pathlib.Path, version: str) -> Any:
    return pnc_vol.File(path, "w", format=version)


def test_a_variable_behind_a_large_one(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.nc"
    with sparse(path, "CDF-1") as f:
        f["small"] = np.array([1, 2, 3], "i2")
        f.create_dataset("large", (3, GIB), "i1")
        for shape, maxshape in (((2,), None), ((1, 2), (None, 2))):
            with pytest.raises(DefinitionError, match=r"'large' has 3221225472 bytes; CDF-1 holds at most"):
                f.create_dataset("g/next", shape, "i1", maxshape=maxshape)
        assert sorted(f) == ["large", "small"]
        f["large"][2, -1] = 7
    with pnc_vol.File(path) as f:
        assert (f["small"][2], f["large"][2, -1]) == (3, 7)


def test_many_that_are_too_much_together(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.nc"
    with sparse(path, "CDF-1") as f:
        for i in range(3):
            f.create_dataset(f"v{i}", (GIB * 3 // 4,), "i1")[-1] = i
        with pytest.raises(DefinitionError, match=r"'v3' would begin at byte \d+; CDF-1 reaches 2147483647"):
            f["v3"] = np.ones(1)
        del f["v2"]
        f["v3"] = np.array([1.0, 2.0])
    with pnc_vol.File(path) as f:
        assert (f["v0"][-1], f["v1"][-1], f["v3"][:].tolist()) == (0, 1, [1, 2])


def test_what_a_file_has_already_counts(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.nc"
    with sparse(path, "CDF-2") as f:
        f.create_dataset("large", (5, GIB), "i1")
    with pnc_vol.File(path, "r+") as f:
        with pytest.raises(DefinitionError, match="CDF-2 holds at most"):
            f["next"] = 1.0
        f["large"][4, 5] = 3
    with pnc_vol.File(path) as f:
        assert (list(f), f["large"][4, 5]) == (["large"], 3)


@pytest.mark.parametrize("version", ["CDF-1", "CDF-2"])
def test_more_records_than_can_be_counted(tmp_path: pathlib.Path, version: str) -> None:
    with sparse(tmp_path / "x.nc", version) as f:
        x = f.create_dataset("x", (3,), "i1", maxshape=(None,))
        x[:] = 1, 2, 3
        with pytest.raises(DefinitionError, match=f"{version} holds at most 2147483647"):
            x.resize(1 << 31, axis=0)
        assert x.shape == (3,)
        y = f.create_dataset("y", (3, 2), "i1", maxshape=(3, 1 << 40))
        with pytest.raises(DefinitionError, match=f"{version} holds at most"):
            y.resize(1 << 34, axis=1)
        assert y.shape == (3, 2)
        y[2] = 5, 6
    with pnc_vol.File(tmp_path / "x.nc") as f:
        assert (f["x"][:].tolist(), f["y"][2].tolist()) == ([1, 2, 3], [5, 6])
