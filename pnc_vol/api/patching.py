"""`patch` puts this package, and modules that stand for h5py's, in the place of h5py.

The modules have the names of h5py's low-level modules that programs read: constants, checks, the HDF5 version. What
opens, makes or changes something in h5py's low-level interface is not here.

Knows: ``sys.modules``, h5py's names and numbers. Does not know: files.

Rules
-----
1. `patch` never replaces an h5py that was imported, unless told to: objects of both would be mixed in one program.
2. Under `patch`, ``h5py`` has this package's own classes and functions; its ``__version__`` alone is h5py's, because
   programs compare it with the h5py that they need.
3. A name that is here tells the truth about the files of this package, or about what is accepted: `filter_avail` is
   true of every filter that ``create_dataset`` takes, though none is applied.
4. A name that is not here is an `AttributeError` that says so.
"""

from __future__ import annotations

import functools
import importlib.machinery
import sys
import threading
import types
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from pnc_vol.api import attrs, dataset, dims, filters, group, hdf5_files, ids, mappings, objects, storage_info, views
from pnc_vol.api.filters import FILTER_IDS
from pnc_vol.api.module import UNLIMITED, get_config, is_hdf5, version
from pnc_vol.errors import OperationError
from pnc_vol.mapping import dtypes
from pnc_vol.mapping.dtypes import Reference, RegionReference
from pnc_vol.optional import is_patched, note_real, real_modules, take_h5py_out

__all__ = ["patch", "submodule"]

F = TypeVar("F", bound=Callable[..., Any])


class Standin(types.ModuleType):
    """Stands for a module of h5py."""

    def __init__(self, name: str, names: Mapping[str, Any]) -> None:
        super().__init__(name, "Stands for h5py's module of this name.")
        # a module without a spec makes `importlib.util.find_spec("h5py")` an error
        self.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=name in ("h5py", "h5py._hl"))
        self.__package__ = name
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} (pnc_vol) has no attribute {name!r}")
        raise AttributeError(
            f"module {self.__name__!r} (pnc_vol) has no attribute {name!r}: of h5py's low-level interface only what is "
            "read is here, not what opens or changes something"
        )


class _H5py(Standin):
    """Stands for h5py: this package's names, and the version of the h5py whose interface it has."""

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


@functools.cache
def _standins() -> dict[str, types.ModuleType]:
    """Return the modules that stand for h5py and for the submodules that its users import."""
    package = sys.modules["pnc_vol"]
    modules: dict[str, types.ModuleType] = {"h5py": _H5py(package)}
    for name, names in _contents(package).items():
        modules[f"h5py.{name}"] = Standin(f"h5py.{name}", names)
    modules |= {"h5py.filters": filters, "h5py._hl.filters": filters, "h5py.version": version}
    for name, made in modules.items():
        parent, _, leaf = name.rpartition(".")
        if parent:
            setattr(modules[parent], leaf, made)
    return modules


def _contents(package: types.ModuleType) -> dict[str, dict[str, Any]]:
    """Return the names and what they are, by the name of the module below ``h5py``."""
    phil = {"phil": threading.RLock(), "with_phil": with_phil}
    links = {name: getattr(objects, name) for name in ("HardLink", "SoftLink", "ExternalLink")}
    types_ = {name: getattr(dtypes, name) for name in dtypes.__all__ if name.endswith("_dtype")}
    bases = {name: getattr(module, name) for module in (dtypes, mappings) for name in module.__all__}
    named: dict[str, dict[str, Any]] = {
        "_errors": {"silence_errors": silence_errors, "unsilence_errors": silence_errors},
        "_objects": {"ObjectID": ids.ObjectID, **phil},
        "h5": {"get_config": get_config, "get_libversion": get_libversion},
        "h5a": {"AttrID": ids.AttributeID},
        "h5d": {"DatasetID": ids.DatasetID},
        "h5ds": {"is_scale": is_scale},
        "h5f": {"FileID": ids.FileID, "is_hdf5": is_hdf5},
        "h5g": {"GroupID": ids.GroupID},
        "h5r": {"Reference": Reference, "RegionReference": RegionReference},
        "h5s": {"SpaceID": storage_info.Space},
        "h5t": {**types_, "TypeID": storage_info.StoredType},
        "h5z": {"filter_avail": filter_avail},
        "_hl": {},
        "_hl.attrs": {"AttributeManager": attrs.AttributeManager},
        "_hl.base": {"HLObject": objects.HLObject, "is_hdf5": is_hdf5, **phil, **bases},
        "_hl.dataset": {
            "Dataset": dataset.Dataset, "AsStrView": views.AsStrView, "AsTypeView": views.AsTypeView,
            "FieldsView": views.FieldsView, "Empty": dtypes.Empty,
        },
        "_hl.datatype": {"Datatype": objects.Datatype},
        "_hl.dims": {"DimensionManager": dims.DimensionManager, "DimensionProxy": dims.DimensionProxy},
        "_hl.files": {"File": package.File},
        "_hl.group": {"Group": group.Group, **links},
    }  # fmt: skip
    return {name: {**CONSTANTS.get(name, {}), **named.get(name, {})} for name in {**CONSTANTS, **named}}


def submodule(name: str) -> types.ModuleType:
    """Return a module of h5py that this package stands for, such as ``"h5t"``."""
    return _standins()[f"h5py.{name}"]


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
    present = sys.modules.get("h5py")
    if present is not None and not isinstance(present, Standin) and not force:
        raise OperationError(
            "patch(): the real h5py is imported already; call pnc_vol.patch() before anything imports h5py, "
            "or patch(force=True) if no object of it will be used"
        )
    return _Patch()


class _Patch(AbstractContextManager[Any]):
    """A patch that is in force from the moment it is made."""

    def __init__(self) -> None:
        self._saved = take_h5py_out()
        if not isinstance(self._saved.get("h5py"), Standin):
            note_real(self._saved)
        sys.modules.update(_standins())

    def undo(self) -> None:
        """Put everything back as it was."""
        take_h5py_out()
        sys.modules.update(self._saved or real_modules())
        if not is_patched():
            hdf5_files.end_of_patch()

    def __enter__(self) -> _Patch:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.undo()


# ------------------------------------------------------------------------------ names of low-level modules


def get_libversion() -> tuple[int, int, int]:
    """Return the HDF5 release whose interface this package stands for; no HDF5 library is used."""
    return version.hdf5_version_tuple


def filter_avail(filter_code: int) -> bool:
    """Return whether ``create_dataset`` takes a filter of this number; nothing is compressed.

    Examples
    --------
    >>> filter_avail(1), filter_avail(5)
    (True, False)
    """
    return filter_code in FILTER_IDS.values() or filter_code >= CONSTANTS["h5z"]["FILTER_RESERVED"]


def is_scale(dset: ids.DatasetID) -> bool:
    """Return whether a dataset is a dimension scale.

    Raises
    ------
    ClosedFileError
        The file is closed, or the dataset was deleted.
    """
    return dset.check_node().scale is not None


def silence_errors() -> None:
    """Do nothing: there is no HDF5 library that prints errors."""


def with_phil(function: F) -> F:
    """Return the function as it is: files have locks of their own."""
    return function


# fmt: off
CONSTANTS: dict[str, dict[str, int]] = {
    "h5": {
        "ITER_INC": 0, "ITER_DEC": 1, "ITER_NATIVE": 2, "INDEX_NAME": 0, "INDEX_CRT_ORDER": 1,
    },
    "h5d": {
        "COMPACT": 0, "CONTIGUOUS": 1, "CHUNKED": 2, "ALLOC_TIME_DEFAULT": 0, "ALLOC_TIME_LATE": 2,
        "ALLOC_TIME_EARLY": 1, "ALLOC_TIME_INCR": 3, "SPACE_STATUS_NOT_ALLOCATED": 0, "SPACE_STATUS_PART_ALLOCATED": 1,
        "SPACE_STATUS_ALLOCATED": 2, "FILL_TIME_ALLOC": 0, "FILL_TIME_NEVER": 1, "FILL_TIME_IFSET": 2,
        "FILL_VALUE_UNDEFINED": 0, "FILL_VALUE_DEFAULT": 1, "FILL_VALUE_USER_DEFINED": 2, "VIRTUAL": 3,
        "VDS_FIRST_MISSING": 0, "VDS_LAST_AVAILABLE": 1,
    },
    "h5f": {
        "ACC_TRUNC": 2, "ACC_EXCL": 4, "ACC_RDWR": 1, "ACC_RDONLY": 0, "ACC_SWMR_WRITE": 32, "ACC_SWMR_READ": 64,
        "SCOPE_LOCAL": 0, "SCOPE_GLOBAL": 1, "CLOSE_DEFAULT": 0, "CLOSE_WEAK": 1, "CLOSE_SEMI": 2, "CLOSE_STRONG": 3,
        "OBJ_FILE": 1, "OBJ_DATASET": 2, "OBJ_GROUP": 4, "OBJ_DATATYPE": 8, "OBJ_ATTR": 16, "OBJ_ALL": 31,
        "OBJ_LOCAL": 32, "UNLIMITED": UNLIMITED, "LIBVER_EARLIEST": 0, "LIBVER_LATEST": 4, "LIBVER_V18": 1,
        "LIBVER_V110": 2, "LIBVER_V112": 3, "LIBVER_V114": 4, "LIBVER_V200": 5, "FILE_IMAGE_OPEN_RW": 1,
        "FSPACE_STRATEGY_FSM_AGGR": 0, "FSPACE_STRATEGY_PAGE": 1, "FSPACE_STRATEGY_AGGR": 2, "FSPACE_STRATEGY_NONE": 3,
    },
    "h5fd": {
        "MEM_DEFAULT": 0, "MEM_SUPER": 1, "MEM_BTREE": 2, "MEM_DRAW": 3, "MEM_GHEAP": 4, "MEM_LHEAP": 5, "MEM_OHDR": 6,
        "MEM_NTYPES": 7, "MPIO_INDEPENDENT": 0, "MPIO_COLLECTIVE": 1, "CORE": 576460752303423488,
        "FAMILY": 576460752303423489, "LOG": 576460752303423490, "MPIO": -1, "MPIPOSIX": -1,
        "MULTI": 576460752303423491, "SEC2": 576460752303423493, "DIRECT": -1, "STDIO": 576460752303423495,
        "ROS3D": -1, "WINDOWS": -1, "LOG_LOC_READ": 2, "LOG_LOC_WRITE": 4, "LOG_LOC_SEEK": 8, "LOG_LOC_IO": 14,
        "LOG_FILE_READ": 16, "LOG_FILE_WRITE": 32, "LOG_FILE_IO": 48, "LOG_FLAVOR": 64, "LOG_NUM_READ": 128,
        "LOG_NUM_WRITE": 256, "LOG_NUM_SEEK": 512, "LOG_NUM_IO": 1920, "LOG_TIME_OPEN": 2048, "LOG_TIME_READ": 8192,
        "LOG_TIME_WRITE": 16384, "LOG_TIME_SEEK": 32768, "LOG_TIME_CLOSE": 131072, "LOG_TIME_IO": 260096,
        "LOG_ALLOC": 262144, "LOG_ALL": 1048575, "fileobj_driver": 576460752303423496,
    },
    "h5g": {
        "CRT_ORDER_TRACKED": 1, "UNKNOWN": -1, "LINK": 3, "GROUP": 0, "DATASET": 1, "TYPE": 2, "LINK_ERROR": -1,
        "LINK_HARD": 0, "LINK_SOFT": 1,
    },
    "h5i": {
        "INVALID_HID": -1, "BADID": -1, "FILE": 1, "GROUP": 2, "DATASPACE": 4, "DATASET": 5, "ATTR": 7,
        "GENPROP_CLS": 10, "GENPROP_LST": 11, "DATATYPE": 3,
    },
    "h5l": {
        "TYPE_HARD": 0, "TYPE_SOFT": 1, "TYPE_EXTERNAL": 64,
    },
    "h5o": {
        "TYPE_GROUP": 0, "TYPE_DATASET": 1, "TYPE_NAMED_DATATYPE": 2, "COPY_SHALLOW_HIERARCHY_FLAG": 1,
        "COPY_EXPAND_SOFT_LINK_FLAG": 2, "COPY_EXPAND_EXT_LINK_FLAG": 4, "COPY_EXPAND_REFERENCE_FLAG": 8,
        "COPY_WITHOUT_ATTR_FLAG": 16, "COPY_PRESERVE_NULL_FLAG": 32,
    },
    "h5p": {
        "CRT_ORDER_TRACKED": 1, "CRT_ORDER_INDEXED": 2,
    },
    "h5r": {
        "OBJECT": 0, "DATASET_REGION": 1,
    },
    "h5s": {
        "SELECT_NOOP": -1, "SELECT_SET": 0, "SELECT_OR": 1, "SELECT_AND": 2, "SELECT_XOR": 3, "SELECT_NOTB": 4,
        "SELECT_NOTA": 5, "SELECT_APPEND": 6, "SELECT_PREPEND": 7, "SELECT_INVALID": 8, "UNLIMITED": UNLIMITED,
        "NO_CLASS": -1, "SCALAR": 0, "SIMPLE": 1, "NULL": 2, "SEL_ERROR": -1, "SEL_NONE": 0, "SEL_POINTS": 1,
        "SEL_HYPERSLABS": 2, "SEL_ALL": 3,
    },
    "h5t": {
        **storage_info.CLASSES, "COMPLEX": 11, "SGN_NONE": 0, "SGN_2": 1, "ORDER_LE": 0,
        "ORDER_BE": 1, "ORDER_VAX": 2, "ORDER_NONE": 4, "DIR_DEFAULT": 0, "DIR_ASCEND": 1, "DIR_DESCEND": 2,
        "STR_NULLTERM": 0, "STR_NULLPAD": 1, "STR_SPACEPAD": 2, "NORM_IMPLIED": 0, "NORM_MSBSET": 1, "NORM_NONE": 2,
        "CSET_ASCII": 0, "PAD_ZERO": 0, "PAD_ONE": 1, "PAD_BACKGROUND": 2, "ORDER_NATIVE": 0, "BKG_NO": 0,
        "BKG_TEMP": 1, "BKG_YES": 2, "VARIABLE": UNLIMITED, "CSET_UTF8": 1,
    },
    "h5z": {
        "CLASS_T_VERS": 1, "FILTER_LZF": 32000, "FILTER_ERROR": -1, "FILTER_NONE": 0, "FILTER_ALL": 0,
        "FILTER_DEFLATE": 1, "FILTER_SHUFFLE": 2, "FILTER_FLETCHER32": 3, "FILTER_SZIP": 4, "FILTER_NBIT": 5,
        "FILTER_SCALEOFFSET": 6, "FILTER_RESERVED": 256, "FILTER_MAX": 65535, "FLAG_DEFMASK": 255, "FLAG_MANDATORY": 0,
        "FLAG_OPTIONAL": 1, "FLAG_INVMASK": 65280, "FLAG_REVERSE": 256, "FLAG_SKIP_EDC": 512,
        "SZIP_ALLOW_K13_OPTION_MASK": 1, "SZIP_CHIP_OPTION_MASK": 2, "SZIP_EC_OPTION_MASK": 4,
        "SZIP_NN_OPTION_MASK": 32, "SZIP_MAX_PIXELS_PER_BLOCK": 32, "SO_FLOAT_DSCALE": 0, "SO_FLOAT_ESCALE": 1,
        "SO_INT": 2, "SO_INT_MINBITS_DEFAULT": 0, "FILTER_CONFIG_ENCODE_ENABLED": 1, "FILTER_CONFIG_DECODE_ENABLED": 2,
        "ERROR_EDC": -1, "DISABLE_EDC": 0, "ENABLE_EDC": 1, "NO_EDC": 2,
    },
}
# fmt: on
"""The constants by module. `LIBVER_LATEST` is that of HDF5 1.14, whose interface this package stands for."""
