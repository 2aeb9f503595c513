"""xarray and dask read by ``engine="pnc_vol"`` and write by `pnc_vol.to_netcdf`.

=============  ==================================================================================
`engine`       what xarray finds under the entry point ``xarray.backends``
`stores`       a group of an open file as xarray's variables, attributes and dimensions, and what these are called
`writing`      `to_netcdf`: what its arguments mean; ``ds.pnc``, which importing this package registers
`defining`     one call of it on an open file: variables are defined, values are written, to a region if one is given
`variables`    how new variables are encoded, by xarray's conventions, and the datasets that they become
`stored`       values encoded by the encoding that a variable of the file has
`jobs`         arrays that are to be written at once, by dask's blocks, or by other processes; how much is written
=============  ==================================================================================
"""

from pnc_vol.optional import require

require("xarray", "xarray", "pnc_vol.to_netcdf and the engine 'pnc_vol'")

# registers ``ds.pnc``
from pnc_vol.xarray import writing  # noqa: E402

__all__ = ["writing"]
