"""xarray finds this engine under the entry point ``xarray.backends``: ``open_dataset(path, engine="pnc_vol")``.

Knows: xarray's interface of engines, how files are opened. Does not know: variables, decoding.

Rules
-----
1. Importing this module registers ``ds.pnc`` too: whoever has opened a file with this engine can write with it.
2. Other engines come first where they can read a file: xarray asks those of its own first, and this one after them. It
   accepts NetCDF's classic formats and sets of subfiles alone.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping
from io import BytesIO
from typing import Any

import xarray
from xarray.backends import BackendEntrypoint, CachingFileManager
from xarray.backends.file_manager import FileManager
from xarray.backends.store import StoreBackendEntrypoint

from pnc_vol.api.file import File
from pnc_vol.file.file_sets import file_with_header
from pnc_vol.system import REAL
from pnc_vol.system.full_io import read_at
from pnc_vol.xarray import writing as writing
from pnc_vol.xarray.stores import GroupStore, group_paths, node_of

__all__ = ["PncVolBackendEntrypoint"]

MAGIC = (b"CDF\x01", b"CDF\x02", b"CDF\x05")


class PncVolBackendEntrypoint(BackendEntrypoint):
    """NetCDF files of the classic formats (CDF-1, CDF-2, CDF-5), with the groups and types of HDF5 that pnc_vol writes.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> pnc_vol.to_netcdf(xr.Dataset({"t": ("x", np.arange(3.0))}), "engine.nc", group="ocean")
    >>> with xr.open_dataset("engine.nc", engine="pnc_vol", group="ocean") as ds:
    ...     ds["t"].values.tolist()
    [0.0, 1.0, 2.0]
    """

    description = "Open NetCDF classic files (CDF-1, CDF-2, CDF-5) and sets of subfiles using pnc_vol"
    supports_groups = True
    # xarray finds them out for registered engines alone, not for a class that is given as ``engine=``
    open_dataset_parameters = (
        "filename_or_obj", "mask_and_scale", "decode_times", "concat_characters", "decode_coords", "drop_variables",
        "use_cftime", "decode_timedelta", "group", "options", "storage_options",
    )  # fmt: skip

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Return whether it is a NetCDF file of a classic format, or the name of a set of subfiles."""
        return _magic(filename_or_obj) in MAGIC

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        mask_and_scale: Any = True,
        decode_times: Any = True,
        concat_characters: Any = True,
        decode_coords: Any = True,
        drop_variables: str | Iterable[str] | None = None,
        use_cftime: Any = None,
        decode_timedelta: Any = None,
        group: str | None = None,
        options: Mapping[str, Any] | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> xarray.Dataset:
        """Open one group; see `xarray.open_dataset`.

        Parameters
        ----------
        group : str, optional
            Path of the group; the root group by default.
        options : mapping, optional
            Keyword arguments of `pnc_vol.File`, such as ``{"driver": "trace | posix"}``.
        storage_options : mapping, optional
            Of a file at a URL (``https://``, ``s3://``, ...), as `pnc_vol.File` takes them.

        Raises
        ------
        OSError
            The file cannot be opened, or has no such group.
        """
        manager, source = _manager(filename_or_obj, options, storage_options)
        decoding = {
            "mask_and_scale": mask_and_scale,
            "decode_times": decode_times,
            "concat_characters": concat_characters,
            "decode_coords": decode_coords,
            "drop_variables": drop_variables,
            "use_cftime": use_cftime,
            "decode_timedelta": decode_timedelta,
        }
        return _decoded(manager, source, _absolute(group), decoding)

    def open_datatree(self, filename_or_obj: Any, **kwargs: Any) -> xarray.DataTree:
        """Open a group and all below it; see `xarray.open_datatree`."""
        groups = self.open_groups_as_dict(filename_or_obj, **kwargs)
        try:
            tree = xarray.DataTree.from_dict(groups)
        except Exception:
            for dataset in groups.values():
                dataset.close()
            raise
        for path, dataset in groups.items():
            tree[path].set_close(dataset._close)
        return tree

    def open_groups_as_dict(
        self,
        filename_or_obj: Any,
        *,
        group: str | None = None,
        options: Mapping[str, Any] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        **decoding: Any,
    ) -> dict[str, xarray.Dataset]:
        """Open a group and all below it, as datasets by path; see `xarray.open_groups`.

        Raises
        ------
        OSError
            The file cannot be opened, or has no such group.
        """
        manager, source = _manager(filename_or_obj, options, storage_options)
        above = _absolute(group)
        with manager.acquire_context() as file:
            try:
                paths = list(group_paths(node_of(file, above)))
            except OSError:
                manager.close()
                raise
        start = 0 if above == "/" else len(above)
        return {path[start:] or "/": _decoded(manager, source, path, decoding) for path in paths}


def _absolute(group: str | None) -> str:
    return "/" + (group or "").strip("/")


def _decoded(manager: FileManager[File], source: str, path: str, decoding: dict[str, Any]) -> xarray.Dataset:
    try:
        store = GroupStore(manager, source, path)
        made = StoreBackendEntrypoint().open_dataset(store, **decoding)
    except BaseException:
        manager.close()
        raise
    return made


def _manager(
    name: Any, options: Mapping[str, Any] | None, storage_options: Mapping[str, Any] | None
) -> tuple[FileManager[File], str]:
    """Return what opens the file, again if need be, and the file's name."""
    given = dict(options or {})
    if storage_options:
        given["storage_options"] = dict(storage_options)
    # a manager's own arguments have to be hashable, which mappings are not
    opened = functools.partial(File, **given) if given else File
    if isinstance(name, (bytes, bytearray, memoryview)):
        return CachingFileManager(_in_memory, bytes(name)), "<memory>"
    if isinstance(name, (str, os.PathLike)):
        path = os.fspath(name)
        if "://" not in path:
            path = os.path.abspath(os.path.expanduser(path))
        return CachingFileManager(opened, path, mode="r"), path
    return CachingFileManager(opened, name, mode="r"), getattr(name, "name", "") or "<file object>"


def _in_memory(content: bytes) -> File:
    return File(BytesIO(content), "r")


def _magic(name: Any) -> bytes:
    """Return the first bytes of what is to be opened; of a set of subfiles, those of its first file."""
    if isinstance(name, (bytes, bytearray, memoryview)):
        return bytes(name[:4])
    if isinstance(name, (str, os.PathLike)):
        path = os.path.expanduser(os.fspath(name))
        try:
            fd = REAL.open(file_with_header(REAL, path), os.O_RDONLY)
        except OSError:
            return b""
        first = memoryview(bytearray(4))
        try:
            read_at(REAL, fd, first, 0)
        except OSError:  # a folder
            return b""
        finally:
            REAL.close(fd)
        return bytes(first)
    try:
        at = name.tell()
        name.seek(0)
        found = name.read(4)
        name.seek(at)
    except (AttributeError, OSError):
        return b""
    return bytes(found)
