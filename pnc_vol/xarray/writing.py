"""`to_netcdf` writes a dataset or tree of xarray: a new file, records behind those of a file, or a region of one.

Knows: what the arguments mean, whether this process writes or others do. Does not know: how variables are encoded,
defined and written (`defining`).

Rules
-----
1. What computes in threads of this process is posted and flushed like any other write: dask's blocks come one by one,
   so memory is bounded by what is computed at a time and by the file's `buffer_size`.
2. What other processes compute, or what is computed later, is written by them: the header is placed and the file closed
   before the first block, and the records are counted after the last one (`jobs`).
3. With ranks, every rank makes the same call with its own part of the data: with ``region=`` each writes its region;
   without, all have the same dataset, of which the first rank writes what is in memory, and each its share of dask's
   blocks. How new variables are encoded is decided on the first rank, for all.
4. A new file is written beside the one that it replaces, and takes its name when it is whole. If anything fails,
   nothing is flushed: the old file stays, and appended records do not count.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from numbers import Number
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray

from pnc_vol.api.file import File
from pnc_vol.disk.naming import beside, mode_of_new
from pnc_vol.system import REAL
from pnc_vol.xarray.defining import GroupPart, Region, Writing
from pnc_vol.xarray.jobs import PlacedFile, computed_elsewhere, is_dask

if TYPE_CHECKING:
    from dask.delayed import Delayed

__all__ = ["PncAccessor", "to_netcdf"]


def to_netcdf(
    data: xarray.Dataset | xarray.DataArray | xarray.DataTree,
    path: Any = None,
    *,
    mode: str | None = None,
    group: str | None = None,
    encoding: Mapping[Any, Any] | None = None,
    unlimited_dims: Any = None,
    compute: bool = True,
    append_dim: str | None = None,
    region: Region | None = None,
    fill_missing: bool = False,
    comm: Any = None,
    progress: bool | Callable[[int, int], object] | None = None,
    write_inherited_coords: bool = False,
    **options: Any,
) -> Delayed | memoryview | None:
    """Write a dataset or a tree of xarray into a NetCDF classic file (CDF-5 by default).

    Parameters
    ----------
    data : xarray.Dataset, DataArray or DataTree
    path : str, path-like or binary file object, optional
        Without it the bytes of the file are returned.
    mode : {"w", "w-", "x", "a", "r+"}, optional
        As of `File`. By default ``"w"``; ``"a"`` with `append_dim`, ``"r+"`` with `region`.
    group : str, optional
        The group to write to.
    encoding : mapping, optional
        By variable, as of `xarray.Dataset.to_netcdf`; of a tree, by path of the group and variable. What a classic file
        has no use for (compression, chunks) is not stored.
    unlimited_dims : str or iterable of str, optional
        The dimension that can grow; of a tree, by path of the group. By default that in ``data.encoding``. NetCDF's
        classic files have one, so a second one is an error.
    compute : bool
        False writes what is in memory and returns an object of dask that writes the rest and then counts the records.
        If it replaces another file, it has a temporary name until then.
    append_dim : str, optional
        Write behind what the file has along this dimension. Values are encoded as the file has them; what cannot be
        stored so without a change is an error.
    region : "auto", or mapping of str to slice or "auto", optional
        Write into this part of the variables of a file, whose length stays as it is. "auto" looks the values of the
        dataset's coordinate up in the file, as `xarray.Dataset.to_zarr` does; the coordinate is not written then.
    fill_missing : bool
        With `append_dim`: variables along this dimension that the dataset or the file lacks are filled with fill values
        where they have none, to be written later with `region`. By default they are an error.
    comm : mpi4py.MPI.Intracomm, optional
        Ranks that make this call together, each with its `region`; a new file is then as long as the regions of all.
    progress : bool or callable, optional
        Called with the bytes that are written and the bytes in all; True draws a bar. Of values that other processes
        write, or that are written later, dask shows the progress.
    write_inherited_coords : bool
        Write coordinates of a tree in each group that has them, not only in the one above.
    **options
        Keyword arguments of `File`, such as ``format="CDF-2"`` or ``hints={...}``.

    Returns
    -------
    dask.delayed.Delayed or memoryview or None

    Raises
    ------
    ValueError
        Names, shapes or arguments that do not fit each other or the file.
    RangeError
        A value that the file cannot hold as it encodes the variable.
    KeyError
        ``region="auto"``: values of a coordinate that the file does not have.
    TypeError
        Names or attributes that cannot be stored.
    OSError
        The file cannot be written.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> day = xr.Dataset({"t": (("time", "x"), np.ones((1, 3)))})
    >>> pnc_vol.to_netcdf(day, "days.nc", unlimited_dims="time")
    >>> pnc_vol.to_netcdf(day, "days.nc", append_dim="time")
    >>> with xr.open_dataset("days.nc", engine="pnc_vol") as ds:
    ...     dict(ds.sizes)
    {'time': 2, 'x': 3}
    """
    parts = _parts(data, group, encoding, unlimited_dims, write_inherited_coords)
    for part in parts:
        _check_names(part.dataset)
    if fill_missing and append_dim is None:
        raise ValueError("fill_missing= is for append_dim=, which is not given")
    if not (region is None or region == "auto" or isinstance(region, Mapping)):
        raise TypeError(f"region={region!r}: give 'auto', or a mapping of dimensions to slices")
    if comm is not None and not compute:
        raise ValueError("compute=False cannot be used with comm=: each rank writes its region at once")
    if path is None and (not compute or append_dim or region or mode not in (None, "w")):
        raise NotImplementedError(
            "to_netcdf() with compute=False is not yet implemented when returning a memoryview; nor are append_dim=, "
            "region= and modes: give a path"
        )
    if mode is None:
        mode = "a" if append_dim is not None else "r+" if region is not None else "w"
    lazy = any(is_dask(var._data) for part in parts for var in part.dataset.variables.values())
    later = not compute or (lazy and comm is None and computed_elsewhere())
    if path is None:
        with File.in_memory(**options) as file:
            Writing(file, parts, progress=progress).write()
            file.flush()
            identity: Any = file.id
            return memoryview(identity.get_file_image())
    name, mode, fresh = _absolute(path), "x" if mode == "w-" else mode, mode in ("w", "w-", "x")
    placed = _placed(name, mode, fresh=fresh, compute=compute) if later else None
    if placed is None:
        options.setdefault("publish", "close")
    opened = File(name if placed is None else placed.work, "x" if fresh and placed else mode, comm=comm, **options)
    with _undone(opened, placed) as file:
        writing = Writing(
            file, parts, fresh=fresh, placed=placed, append_dim=append_dim, region=region, fill_missing=fill_missing,
            comm=comm, progress=progress,
        )  # fmt: skip
        writing.write()
    return writing.rest(compute=compute) if later else None


@contextmanager
def _undone(file: File, placed: PlacedFile | None) -> Iterator[File]:
    """Yield the file, closed in the end; if anything fails, without what was written to it."""
    handle = file.id.handle
    try:
        yield file
    except BaseException as error:
        session = handle.session
        # else somebody else in this process has the file open, and what that one posted stays
        if session.comm.size > 1 or handle.ref.last:
            with suppress(OSError):
                # a log would bring it back
                session.cancel()
            session.abort(f"{type(error).__name__}: {error}")
        handle.close()
        if placed is not None:
            placed.discard()
        raise
    file.close()


def _placed(name: Any, mode: str, *, fresh: bool, compute: bool) -> PlacedFile:
    """Return the names of a file that other processes write.

    Raises
    ------
    OSError
        Nothing may be made or replaced under the name.
    """
    if not isinstance(name, str) or "://" in name:
        return PlacedFile(name, name)
    target = REAL.realpath(name)
    if not fresh:
        return PlacedFile(target, target)
    if mode_of_new(REAL, target, exclusive=mode == "x") is None and not compute:
        # what is computed later may be looked at before, if it replaces nothing
        return PlacedFile(target, target, new=True)
    return PlacedFile(target, beside(REAL, target, "pnctmp"), exclusive=mode == "x", new=True)


def _absolute(path: Any) -> Any:
    """Return the name of a file as `File` takes it; file objects, and addresses, which it refuses, as they are."""
    if not isinstance(path, str | os.PathLike):
        return path
    name = os.fspath(path)
    return name if "://" in name else os.path.abspath(os.path.expanduser(name))


def _parts(
    data: Any, group: str | None, encoding: Mapping[Any, Any] | None, unlimited: Any, inherited: bool
) -> list[GroupPart]:
    above = "/" + (group or "").strip("/")
    if isinstance(data, xarray.DataTree):
        if unlimited is not None and not isinstance(unlimited, Mapping):
            raise TypeError(
                f"unlimited_dims={unlimited!r}: that of a DataTree has the dimensions of each group, such as "
                "{'/': ['time']}"
            )
        by_path, limits = dict(encoding or {}), dict(unlimited or {})
        strange = set(by_path) - set(data.groups)
        if strange:
            raise ValueError(f"unexpected encoding group name(s) provided: {strange}")
        return [
            GroupPart(
                node.to_dataset(inherit=inherited or node is data),
                (above.rstrip("/") + "/" + ("" if node is data else node.relative_to(data))).rstrip("/") or "/",
                by_path.get(node.path, {}),
                limits.get(node.path),
            )
            for node in data.subtree
        ]
    if isinstance(data, xarray.DataArray):
        data = _with_name(data)
    if not isinstance(data, xarray.Dataset):
        raise TypeError(f"{type(data).__name__}: an xarray.Dataset, DataArray or DataTree is needed")
    return [GroupPart(data, above, encoding or {}, unlimited)]


def _with_name(array: xarray.DataArray) -> xarray.Dataset:
    """Return a dataset of one array, as `xarray.load_dataarray` looks for it."""
    if array.name is not None and array.name not in array.coords and array.name not in array.dims:
        return array.to_dataset()
    made = array.to_dataset(name="__xarray_dataarray_variable__")
    if array.name is not None:
        made.attrs["__xarray_dataarray_name__"] = array.name
    return made


def _check_names(dataset: xarray.Dataset) -> None:
    """Refuse names of variables and attributes that no file can have.

    Raises
    ------
    TypeError, ValueError
    """
    for name in dataset.variables:
        if name is None:
            continue
        if not isinstance(name, str):
            raise TypeError(f"Invalid name {name!r} for DataArray or Dataset key: must be either a string or None")
        if not name:
            raise ValueError(f"Invalid name {name!r} for DataArray or Dataset key: string must be length 1 or greater")
    for attrs in (dataset.attrs, *(var.attrs for var in dataset.variables.values())):
        for key, value in attrs.items():
            if not isinstance(key, str):
                raise TypeError(f"Invalid name for attr: {key!r} must be a string")
            if not key:
                raise ValueError(f"Invalid name for attr {key!r}: string must be length 1 or greater")
            if not isinstance(value, str | bytes | Number | np.ndarray | np.generic | list | tuple):
                raise TypeError(
                    f"Invalid value for attr {key!r}: {value!r}. Give text, numbers, or lists or arrays of these"
                )


@xarray.register_datatree_accessor("pnc")
@xarray.register_dataset_accessor("pnc")
@xarray.register_dataarray_accessor("pnc")
class PncAccessor:
    """Methods of this package on an `xarray.Dataset`, `xarray.DataArray` or `xarray.DataTree`."""

    def __init__(self, of: xarray.Dataset | xarray.DataArray | xarray.DataTree) -> None:
        self._of = of

    @functools.wraps(to_netcdf)
    def to_netcdf(self, *args: Any, **kwargs: Any) -> Any:
        """Do as `pnc_vol.to_netcdf` does, of this dataset, array or tree."""
        return to_netcdf(self._of, *args, **kwargs)
