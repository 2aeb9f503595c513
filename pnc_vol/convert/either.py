"""`open_either` opens a file for reading, whichever of the two formats it has.

Knows: signatures, h5py's `File` and ours. Does not know: what is done with the file.

Rule: nothing of HDF5 is loaded for a NetCDF file.
"""

from __future__ import annotations

import os
from typing import Any, Literal

from pnc_vol.api.file import File
from pnc_vol.api.hdf5_files import open_hdf5
from pnc_vol.api.opening import is_address
from pnc_vol.disk import existing
from pnc_vol.disk.naming import check_place
from pnc_vol.errors import NotCDFError
from pnc_vol.file.file_sets import is_set
from pnc_vol.system import REAL, System
from pnc_vol.system.full_io import read_at

__all__ = ["Kind", "kind_of", "open_either"]

Kind = Literal["hdf5", "netcdf"]


def kind_of(path: str | os.PathLike[str], *, system: System = REAL) -> Kind:
    """Return whether a file is HDF5 or classic NetCDF, by its first bytes.

    Parameters
    ----------
    path : path-like
    system : System

    Raises
    ------
    NotCDFError
        It is neither.
    OSError
        It cannot be read.
    """
    path = os.fspath(path)
    if is_address(os.fsdecode(path)) or is_set(system, path):
        # `File` opens both, whichever format the subfiles or the file at the address have
        return "netcdf"
    check_place(system.stat(path), path, exclusive=False)
    fd = system.open(path, os.O_RDONLY)
    try:
        kind = existing.kind_of(system, fd)
        head = bytearray(8)
        length = read_at(system, fd, head, 0)
    finally:
        system.close(fd)
    if kind == existing.NETCDF:
        return "netcdf"
    if kind == existing.HDF5:
        return "hdf5"
    begins = f"a file that begins with {bytes(head[:length])!r}" if length else "an empty file"
    found = f"a file packed with {kind}" if kind else begins
    raise NotCDFError(
        f"Neither HDF5 nor classic NetCDF: {found}; give a file that h5py or netCDF4 opens.", offset=0, field="magic"
    )


def open_either(path: str | os.PathLike[str], *, kind: Kind | None = None) -> Any:
    """Open a file for reading: an h5py file, or ours, which looks the same.

    Raises
    ------
    NotCDFError, OSError
        As `kind_of`, and what opening raises.
    MissingPackageError
        It is an HDF5 file, and h5py is not installed.
    """
    if (kind or kind_of(path)) == "netcdf":
        return File(os.fspath(path), "r")
    from pnc_vol.convert.link_state import warn_if_stale

    opened = open_hdf5(path)
    warn_if_stale(path, opened)
    return opened
