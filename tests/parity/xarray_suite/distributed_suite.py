"""xarray's own tests of writing and reading on a cluster of dask, with this engine; see `suite`.

Left out are those of zarr, of xarray's locks and of its pickled file managers, which this engine has no part in.
"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("distributed")

from distributed.utils_test import cleanup, loop, loop_in_thread  # noqa: F401
from xarray.tests import test_distributed as theirs
from xarray.tests.test_distributed import (  # noqa: F401
    test_dask_distributed_write_netcdf_with_dimensionless_variables,
    test_open_mfdataset_can_open_files_with_cftime_index,
    test_open_mfdataset_multiple_files_parallel,
    test_open_mfdataset_multiple_files_parallel_distributed,
    tmp_netcdf_filename,
)

FORMATS = ["NETCDF3_CLASSIC", "NETCDF3_64BIT_DATA"]


@pytest.mark.parametrize("nc_format", FORMATS)
@pytest.mark.parametrize("compute", [True, False])
def test_dask_distributed_netcdf_roundtrip(
    loop: Any,  # noqa: F811
    tmp_netcdf_filename: str,  # noqa: F811
    nc_format: str,
    compute: bool,
) -> None:
    theirs.test_dask_distributed_netcdf_roundtrip(loop, tmp_netcdf_filename, "pnc_vol", nc_format, compute)


@pytest.mark.parametrize("nc_format", FORMATS)
def test_dask_distributed_read_netcdf_integration_test(
    loop: Any,  # noqa: F811
    tmp_netcdf_filename: str,  # noqa: F811
    nc_format: str,
) -> None:
    theirs.test_dask_distributed_read_netcdf_integration_test(loop, tmp_netcdf_filename, "pnc_vol", nc_format)
