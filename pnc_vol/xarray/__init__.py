"""xarray and dask: reading by ``engine="pnc_vol"``, writing by `pnc_vol.to_netcdf`.

=============  ==================================================================================
`engine`       what xarray finds under the entry point ``xarray.backends``
`stores`       a group of an open file as xarray's variables, attributes and dimensions
`arrays`       the values of one variable, read when they are asked for
`naming`       what the axes of datasets are called in xarray
`attributes`   attributes of a file as xarray has them
`writing`      `to_netcdf`: what its arguments mean
`defining`     one call of it on an open file: variables are defined, values are written
`variables`    the datasets that variables of xarray become
`encodings`    how new variables are encoded, by xarray's conventions
`stored`       values encoded by the encoding that a variable of the file has
`regions`      which part of a file a dataset is written to
`jobs`         arrays that are to be written at once, by dask's blocks, or by other processes
`offsets`      blocks that other processes write into the file by their offsets
`progress`     how much of a dataset has been written
`accessor`     ``ds.pnc``; importing this package registers it
=============  ==================================================================================
"""

from pnc_vol.optional import require

require("xarray", "xarray", "pnc_vol.to_netcdf and the engine 'pnc_vol'")

from pnc_vol.xarray import accessor  # noqa: E402

__all__ = ["accessor"]
