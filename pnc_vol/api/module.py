"""h5py has these functions beside its classes: `is_hdf5`, `get_config`, `version`.

Knows: the first bytes of files, installed packages. Does not know: open files.

Rules
-----
1. Nothing is imported to find out whether it is there.
"""

from __future__ import annotations

import os
import stat
import sys
import types
from typing import Any

import numpy as np

from pnc_vol.file.file_sets import file_with_header
from pnc_vol.system import REAL

__all__ = ["UNLIMITED", "Config", "get_config", "is_hdf5", "version"]

UNLIMITED = 2**64 - 1
"""HDF5's word for an axis without limit."""


def is_hdf5(fname: str | bytes | os.PathLike[str]) -> bool:
    """Return True for a file that looks like one that `File` or h5py opens: NetCDF classic, or HDF5; or a set of
    subfiles.

    Parameters
    ----------
    fname : str, bytes or path-like

    Examples
    --------
    >>> is_hdf5("there is no such file")
    False
    """
    # Loaded when it is asked for: a program that creates a file looks into none.
    from pnc_vol.disk.existing import HDF5, NETCDF, kind_of

    path = file_with_header(REAL, os.path.abspath(os.fsdecode(fname)))
    try:
        if not stat.S_ISREG(REAL.stat(path).st_mode):
            return False
        fd = REAL.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        return kind_of(REAL, fd) in (NETCDF, HDF5)
    except OSError:
        return False
    finally:
        REAL.close(fd)


class Config:
    """Settings that h5py keeps for the whole process; made by `get_config`.

    mpi : bool, True if mpi4py is installed.
    track_order : bool, list members and attributes of new objects in the order of their creation, unless their
        ``track_order=`` says otherwise.
    complex_names, bool_names, read_byte_strings : kept for code that sets them; without effect.
    """

    default_file_mode = "r"
    ros3 = False
    direct_vfd = False
    has_native_complex = False
    vds_min_hdf5_version = (1, 9, 233)
    swmr_min_hdf5_version = (1, 9, 178)

    def __init__(self) -> None:
        self.track_order = False
        self._complex_names = ("r", "i")
        self._bool_names = (b"FALSE", b"TRUE")
        self.read_byte_strings = False

    @property
    def mpi(self) -> bool:
        """True if files can be shared by MPI ranks."""
        if "mpi4py" in sys.modules:
            return sys.modules["mpi4py"] is not None
        import importlib.util  # takes as long as many modules of the package

        return importlib.util.find_spec("mpi4py") is not None

    @property
    def complex_names(self) -> tuple[str, str]:
        """Names of the two parts of a complex number in HDF5."""
        return self._complex_names

    @complex_names.setter
    def complex_names(self, names: Any) -> None:
        self._complex_names = _pair("complex_names", names)

    @property
    def bool_names(self) -> tuple[Any, Any]:
        """Names of False and True in HDF5."""
        return self._bool_names

    @bool_names.setter
    def bool_names(self, names: Any) -> None:
        self._bool_names = _pair("bool_names", names)


def _pair(what: str, names: Any) -> tuple[Any, Any]:
    if not isinstance(names, (tuple, list)) or len(names) != 2:
        raise TypeError(f"{what} must be a length-2 sequence of names")
    return names[0], names[1]


_config = Config()


def get_config() -> Config:
    """Return the one `Config` of this process."""
    return _config


# ------------------------------------------------------------------------------------------------ version


class VersionTuple(tuple[Any, ...]):
    """``(major, minor, bugfix, pre, post, dev)``, with these names, as h5py has it."""

    __slots__ = ()
    major = property(lambda self: self[0])
    minor = property(lambda self: self[1])
    bugfix = property(lambda self: self[2])
    pre = property(lambda self: self[3])
    post = property(lambda self: self[4])
    dev = property(lambda self: self[5])


class _Version(types.ModuleType):
    """The version of h5py whose interface this package has; `info` describes this package."""

    version = "3.16.0"
    version_tuple = VersionTuple((3, 16, 0, None, None, None))
    api_version = "1.8"
    api_version_tuple = (1, 8)
    hdf5_version = "1.14.0"
    hdf5_version_tuple = (1, 14, 0)
    hdf5_built_version_tuple = (1, 14, 0)

    @property
    def info(self) -> str:
        """A text for bug reports."""
        from importlib.metadata import version as installed  # takes as long to import as the rest of the package

        return "\n".join(
            (
                "Summary of the pnc_vol configuration",
                "------------------------------------",
                f"pnc_vol     {installed('pnc-vol')}",
                f"h5py's API  {self.version}",
                "files       NetCDF classic: CDF-1, CDF-2, CDF-5 (no HDF5 library)",
                f"Python      {sys.version}",
                f"platform    {sys.platform}",
                f"numpy       {np.__version__}",
                f"mpi4py      {'found' if _config.mpi else 'not found'}",
                "",
            )
        )


version = _Version("pnc_vol.version", _Version.__doc__)
