"""xarray's own classes of tests for engines, with this one: generic ones, and those that write and read by default.

`swap` makes ``to_netcdf`` write with pnc_vol. Which tests pass is in ``passing.txt``, why others do not in
``not_passing.tsv``.
"""

from __future__ import annotations

import contextlib
from io import BytesIO
from typing import Any

import pytest
from xarray.tests import test_backends as theirs
from xarray.tests import test_backends_datatree as trees
from xarray.tests.conftest import *  # noqa: F403
from xarray.tests.test_backends_datatree import unaligned_datatree_nc  # noqa: F401


class TestFiles(theirs.NetCDF4Base):
    """All that files with groups have to do; some of it needs netCDF-4."""

    engine = "pnc_vol"


class TestFilesByDask(TestFiles):
    """The same, read by dask."""

    @contextlib.contextmanager
    def roundtrip(
        self, data: Any, save_kwargs: Any = None, open_kwargs: Any = None, allow_cleanup_failure: bool = False
    ):
        with super().roundtrip(data, save_kwargs, {"chunks": -1, **(open_kwargs or {})}) as ds:
            yield ds

    @pytest.mark.skip(reason="caching behavior differs for dask")
    def test_dataset_caching(self) -> None: ...


class TestClassicFiles(theirs.NetCDF3Only, theirs.CFEncodedBase):
    """Files of the older format, which lacks types."""

    engine = "pnc_vol"
    file_format = "NETCDF3_CLASSIC"


class TestInMemory(theirs.InMemoryNetCDFWithGroups):
    engine = "pnc_vol"


class TestFileObjects(theirs.CFEncodedBase, theirs.FileObjectNetCDF):
    engine = "pnc_vol"

    @contextlib.contextmanager
    def roundtrip(
        self, data: Any, save_kwargs: Any = None, open_kwargs: Any = None, allow_cleanup_failure: bool = False
    ):
        file = BytesIO()
        self.save(data, file, **(save_kwargs or {}))
        with self.open(file, **(open_kwargs or {})) as ds:
            yield ds


class TestByDefault(theirs.TestDask): ...


class TestManyFiles(theirs.TestOpenMFDatasetWithDataVarsAndCoordsKw): ...


class TestDataArrays(theirs.TestDataArrayToNetCDF): ...


class TestTrees(trees.NetCDFIOBase):
    engine = "pnc_vol"
