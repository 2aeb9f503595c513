"""Datasets of a file that was opened are made when somebody asks for them: whatever was asked first, all is there."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import everything
import netCDF4
import numpy as np
import pytest

import pnc_vol

MANY = [f"v{i}" for i in range(20)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Variables of one kind, of which some have attributes, and a few that are looked at."""
    made = tmp_path / "x.nc"
    with netCDF4.Dataset(made, "w", format="NETCDF3_64BIT_DATA") as data:
        data.createDimension("t", None)
        data.createDimension("x", 3)
        data.createVariable("x", "f8", ("x",))[:] = [1, 2, 3]
        for i, name in enumerate(MANY):
            data.createVariable(name, "f4", ("t", "x"))[:] = np.full((2, 3), i)
            if i % 2:
                data[name].units = "K"
        data.createVariable("filled", "f4", ("t", "x"), fill_value=5)
        data.createVariable("odd name", "i4", ("x",))
    return made


def test_it_is_the_same_file_in_whatever_order_it_is_asked_for(path: Path) -> None:
    whole = everything.portrait(path)
    for seed in range(5):
        names = [*MANY, "x", "filled", "odd name"]
        random.Random(seed).shuffle(names)
        with pnc_vol.File(path) as f:
            for name in names[:7]:
                ds = f[name]
                assert (ds.name, name in f, f.get("none"), list(f)) == (f"/{name}", True, None, sorted(names))
                assert f.get(name) == ds == f[f"/{name}"]
            assert dict(everything.seen(f)) == whole
            assert [f["v3"].shape, f["v3"].maxshape, f["v3"].attrs["units"]] == [(2, 3), (None, 3), "K"]
            assert [dim.keys() for dim in f["v3"].dims] == [[], ["x"]]


def test_threads_get_the_same_dataset(path: Path) -> None:
    with pnc_vol.File(path) as f, ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda i: f[MANY[i % 20]], range(400)))
        assert len(set(found)) == len(MANY)
        assert [one[1, 2] for one in found[:20]] == list(range(20))


def test_what_is_deleted_is_no_scale_of_what_is_made_later(path: Path) -> None:
    with pnc_vol.File(path, "r+") as f:
        del f["x"]
        assert all(not len(dim) for name in f for dim in f[name].dims)
