"""``ds.pnc``: what this package does with a dataset or tree of xarray.

Knows: xarray's accessors. Does not know: files.
"""

from __future__ import annotations

import functools
from typing import Any

import xarray

from pnc_vol.xarray.writing import to_netcdf

__all__ = ["PncAccessor"]


@xarray.register_datatree_accessor("pnc")
@xarray.register_dataset_accessor("pnc")
class PncAccessor:
    """Methods of this package on an `xarray.Dataset` or `xarray.DataTree`."""

    def __init__(self, of: xarray.Dataset | xarray.DataTree) -> None:
        self._of = of

    @functools.wraps(to_netcdf)
    def to_netcdf(self, *args: Any, **kwargs: Any) -> Any:
        """As `pnc_vol.to_netcdf`, of this dataset or tree."""
        return to_netcdf(self._of, *args, **kwargs)
