"""What h5py has beside its classes: `is_hdf5`, `get_config`, `version`, and `patch`, which puts us in its place.

Knows: the first bytes of files, installed packages, ``sys.modules``. Does not know: open files.

Rules
-----
1. Nothing is imported to find out whether it is there.
2. `patch` never replaces an h5py that was imported, unless told to: objects of both would meet in one program.
3. Under `patch`, ``h5py`` has this package's own classes and functions; its ``__version__`` alone is h5py's, because
   programs compare it with the h5py that they need.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import stat
import sys
import types
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from pnc_vol.errors import OperationError
from pnc_vol.system import REAL

__all__ = ["UNLIMITED", "Config", "get_config", "is_hdf5", "patch", "version"]

UNLIMITED = 2**64 - 1
"""HDF5's word for an axis without limit."""


def is_hdf5(fname: str | bytes | os.PathLike[str]) -> bool:
    """True for a file that looks like one that `File` or h5py opens: NetCDF classic, or HDF5.

    Parameters
    ----------
    fname : str, bytes or path-like

    Examples
    --------
    >>> is_hdf5("there is no such file")
    False
    """
    from pnc_vol.pending.recognise import HDF5, NETCDF, kind_of

    path = os.path.abspath(os.fsdecode(fname))
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
    track_order, complex_names, bool_names, read_byte_strings : kept for code that sets them; without effect.
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
    """The one `Config` of this process."""
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
    """Which h5py this package speaks like; `info` says what it is."""

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


# -------------------------------------------------------------------------------------------------- patch


class _Standin(types.ModuleType):
    """Stands for h5py or one of its submodules."""

    def __init__(self, name: str, names: Mapping[str, Any]) -> None:
        super().__init__(name, "Stands for h5py's module of this name.")
        # a module without a spec makes `importlib.util.find_spec("h5py")` an error
        self.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=name in ("h5py", "h5py._hl"))
        self.__package__ = name
        self.__dict__.update(names)


class _H5py(_Standin):
    """Stands for h5py: this package's names, and the version of the h5py that it speaks like."""

    def __init__(self, package: types.ModuleType) -> None:
        names = {name: value for name, value in package.__dict__.items() if not name.startswith("_")}
        super().__init__("h5py", {**names, "__all__": package.__all__, "__path__": []})
        self.__version__ = version.version
        self.__file__ = package.__file__
        self._package = package

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module 'h5py' (pnc_vol) has no attribute {name!r}")
        try:
            return getattr(self._package, name)
        except AttributeError:
            raise AttributeError(f"module 'h5py' (pnc_vol) has no attribute {name!r}") from None

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *dir(self._package)})


def _standins(package: types.ModuleType) -> dict[str, types.ModuleType]:
    """The modules that stand for h5py and for the submodules that its users import."""
    from pnc_vol.api import attrs, dataset, dims, filters, group, links, objects, views
    from pnc_vol.mapping import special

    based = {name: getattr(m, name) for m in (special, objects) for name in m.__all__}
    linked = {name: getattr(links, name) for name in links.__all__}
    modules: dict[str, types.ModuleType] = {"h5py": _H5py(package)}
    for name, names in {
        "h5py._hl": {},
        "h5py._hl.attrs": {"AttributeManager": attrs.AttributeManager},
        "h5py._hl.base": {**based, "is_hdf5": is_hdf5},
        "h5py._hl.dataset": {
            "Dataset": dataset.Dataset, "AsStrView": views.AsStrView, "AsTypeView": views.AsTypeView
        },
        "h5py._hl.dims": {"DimensionManager": dims.DimensionManager, "DimensionProxy": dims.DimensionProxy},
        "h5py._hl.files": {"File": package.File},
        "h5py._hl.group": {"Group": group.Group, **linked},
        "h5py.h5": {"get_config": get_config},
        "h5py.h5s": {"UNLIMITED": UNLIMITED},
    }.items():  # fmt: skip
        modules[name] = _Standin(name, names)
    modules |= {"h5py.filters": filters, "h5py.version": version}
    for name, made in modules.items():
        parent, _, leaf = name.rpartition(".")
        if parent:
            setattr(modules[parent], leaf, made)
    return modules


def patch(*, force: bool = False) -> AbstractContextManager[Any]:
    """Make ``import h5py`` give this package, in this process, from now on.

    Parameters
    ----------
    force : bool
        Also when the real h5py was imported; modules that hold it already keep it.

    Returns
    -------
    context manager
        Its exit, or ``undo()``, puts everything back as it was.

    Raises
    ------
    RuntimeError
        The real h5py was imported already.

    Examples
    --------
    >>> import pnc_vol
    >>> with pnc_vol.patch(force=True):
    ...     import h5py
    ...     h5py.File is pnc_vol.File
    True
    """
    package = sys.modules["pnc_vol"]
    present = sys.modules.get("h5py")
    if present is not None and not isinstance(present, _Standin) and not force:
        raise OperationError(
            "patch(): the real h5py is imported already; call pnc_vol.patch() before anything imports h5py, "
            "or patch(force=True) if no object of it will be used"
        )
    return _Patch(package)


class _Patch(AbstractContextManager[Any]):
    """A patch that is in force from the moment it is made."""

    def __init__(self, package: types.ModuleType) -> None:
        self._saved = {name: made for name, made in sys.modules.items() if _is_h5py(name)}
        for name in self._saved:
            del sys.modules[name]
        sys.modules.update(_standins(package))

    def undo(self) -> None:
        """Put everything back as it was."""
        for name in [name for name in sys.modules if _is_h5py(name)]:
            del sys.modules[name]
        sys.modules.update(self._saved)

    def __enter__(self) -> _Patch:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.undo()


def _is_h5py(name: str) -> bool:
    return name == "h5py" or name.startswith("h5py.")
