"""pnc_vol provides h5py's objects over NetCDF CDF-5 files: ``import pnc_vol as h5py``.

Reads and writes are posted as requests and completed together at a flush, which is collective under MPI.

A map of the package, in the order in which data pass through it:

=========================  ==========================================================================================
`api`                      the objects that users have: files, groups, datasets, attributes, dimension scales
`file`                     one open file: definitions, what is on disk, requests; open, post, read, flush, close
`queue`                    what was posted and waits for a flush
`flush`, `exchange`        the plan of a flush and its execution; how ranks write together
`layout`, `disk`           where the elements of a variable are; names, locks, journals, publishing of files
`mapping`, `format`        how HDF5's objects are represented in a NetCDF header; a header to bytes and back
`extents`                  indices to elements to ranges of bytes
`drivers`                  what reads and writes bytes: posix, mpio, memory, and drivers stacked on them
-------------------------  ------------------------------------------------------------------------------------------
`settings`                 every option of a file, and hint files
`ranks`, `system`          the only way to MPI, and the only way to the operating system's files
`errors`, `warn`           every exception; warnings and loggers
`plugins`, `optional`      what is found by a name; packages that may be missing
`interruptions`, `late`    Ctrl-C between two lines; modules that are loaded when they are used
-------------------------  ------------------------------------------------------------------------------------------
`burst`, `cache`           plug-ins: the write-ahead log, the node-local write cache; both recover after a kill
`blob`, `remote`           plug-ins: sets of subfiles; files under addresses
`append_log`               log files that only grow, for the first two
`recovery`                 ``replay``: what the plug-ins left is put into files
-------------------------  ------------------------------------------------------------------------------------------
`convert`, `xarray`        other formats and whole files; xarray and dask
`cli`, `viewer`, `bench`   the command ``pnc-vol``, files in a browser, measurements
`testing`                  test suites and faults for those who write a driver, a store or a layout
=========================  ==========================================================================================

Importing this package imports neither h5py nor mpi4py; h5py is needed only to read and write HDF5 files (the extra
``hdf5``).

Examples
--------
>>> import pnc_vol as h5py
>>> with h5py.File("example.nc", "w", driver="memory") as f:
...     ds = f.create_dataset("t", (2, 3), "f8")
...     ds[0] = [1, 2, 3]
...     f.flush()
...     float(ds[0, 1])
2.0
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pnc_vol import errors
from pnc_vol.errors import *  # noqa: F403

if TYPE_CHECKING:
    from pnc_vol.api import filters
    from pnc_vol.api.attrs import AttributeManager
    from pnc_vol.api.dataset import Dataset
    from pnc_vol.api.file import File
    from pnc_vol.api.group import Group
    from pnc_vol.api.module import UNLIMITED, get_config, is_hdf5, version
    from pnc_vol.api.objects import Datatype, ExternalLink, HardLink, HLObject, SoftLink
    from pnc_vol.api.opening import register_driver, registered_drivers, unregister_driver
    from pnc_vol.api.patching import patch
    from pnc_vol.api.regions import MultiBlockSlice
    from pnc_vol.api.virtual import VirtualLayout, VirtualSource
    from pnc_vol.convert.checking import check
    from pnc_vol.convert.link import link
    from pnc_vol.convert.map_files import read_decompositions
    from pnc_vol.convert.repack import repack
    from pnc_vol.convert.report import LossError
    from pnc_vol.extents.decomposition import Decomposition
    from pnc_vol.file.deferred import finalize
    from pnc_vol.mapping.dtypes import (
        Empty,
        Reference,
        RegionReference,
        check_complex_dtype,
        check_dtype,
        check_enum_dtype,
        check_opaque_dtype,
        check_ref_dtype,
        check_string_dtype,
        check_vlen_dtype,
        complex_compat_dtype,
        enum_dtype,
        opaque_dtype,
        ref_dtype,
        regionref_dtype,
        special_dtype,
        string_dtype,
        vlen_dtype,
    )
    from pnc_vol.queue.request import Request
    from pnc_vol.recovery import replay
    from pnc_vol.xarray.writing import to_netcdf as to_netcdf

__version__ = "0.1.0"

__all__ = [
    "UNLIMITED", "AttributeManager", "Dataset", "Datatype", "Decomposition", "Empty", "ExternalLink", "File", "Group",
    "HLObject", "HardLink", "LossError", "MultiBlockSlice", "Reference", "RegionReference", "Request", "SoftLink",
    "VirtualLayout", "VirtualSource", "__version__", "check", "check_complex_dtype", "check_dtype",
    "check_enum_dtype", "check_opaque_dtype", "check_ref_dtype", "check_string_dtype", "check_vlen_dtype",
    "complex_compat_dtype", "enum_dtype", "filters", "finalize", "get_config", "is_hdf5", "link", "opaque_dtype",
    "patch", "read_decompositions", "ref_dtype", "regionref_dtype", "register_driver", "registered_drivers", "repack",
    "replay", "special_dtype", "string_dtype", "unregister_driver", "version", "vlen_dtype",
]  # fmt: skip
__all__ += errors.__all__

_MODULES = {
    "api.attrs": "AttributeManager",
    "api.dataset": "Dataset",
    "api.file": "File",
    "api.filters": "filters",
    "api.group": "Group",
    "api.module": "UNLIMITED get_config is_hdf5 version",
    "api.objects": "Datatype ExternalLink HLObject HardLink SoftLink",
    "api.opening": "register_driver registered_drivers unregister_driver",
    "api.patching": "patch",
    "api.regions": "MultiBlockSlice",
    "api.virtual": "VirtualLayout VirtualSource",
    "convert.checking": "check",
    "convert.link": "link",
    "convert.map_files": "read_decompositions",
    "convert.repack": "repack",
    "convert.report": "LossError",
    "extents.decomposition": "Decomposition",
    "file.deferred": "finalize",
    "mapping.dtypes": """Empty Reference RegionReference check_complex_dtype check_dtype check_enum_dtype
        check_opaque_dtype check_ref_dtype check_string_dtype check_vlen_dtype complex_compat_dtype enum_dtype
        opaque_dtype ref_dtype regionref_dtype special_dtype string_dtype vlen_dtype""",
    "queue.request": "Request",
    "recovery": "replay",
    "xarray.writing": "to_netcdf",
}
_WHERE = {name: module for module, names in _MODULES.items() for name in names.split()}
"""Where each name is: its module is loaded when the name is first asked for, so that the command ``pnc-vol`` and a
program that needs little load little. What `import pnc_vol` saves, the first ``pnc_vol.File`` takes."""

_SUBMODULES = (
    "_errors", "_hl", "_objects", "h5", "h5a", "h5d", "h5ds", "h5f", "h5fd", "h5g", "h5i", "h5l",
    "h5o", "h5p", "h5r", "h5s", "h5t", "h5z",
)  # fmt: skip
"""Modules of h5py that this package stands for, as attributes of itself."""


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module("pnc_vol.api.patching").submodule(name)
    if name not in _WHERE:
        raise AttributeError(f"module 'pnc_vol' has no attribute {name!r}")
    module = importlib.import_module(f"pnc_vol.{_WHERE[name]}")
    found = globals()[name] = module if name == "filters" else getattr(module, name)
    return found


def __dir__() -> list[str]:
    # needs xarray, which ``from pnc_vol import *`` must not
    return [*__all__, "to_netcdf"]
