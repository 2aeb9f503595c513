"""The names of h5py's low-level modules that programs read: constants, checks, and what HDF5 library this stands for.

Knows: h5py's names and numbers. Does not know: files. What opens, makes or changes something in h5py's low-level
interface is not here.

Rules
-----
1. A name that is here tells the truth about the files of this package, or about what is accepted: `filter_avail` is
   true of every filter that ``create_dataset`` takes, though none is applied.
2. A name that is not here is an `AttributeError` that says so.
"""

from __future__ import annotations

import importlib.machinery
import threading
import types
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pnc_vol.api import ids, storage_info
from pnc_vol.api.ignored_options import FILTER_IDS
from pnc_vol.api.module import get_config, is_hdf5, version
from pnc_vol.api.objects import ExternalLink, HardLink, HLObject, SoftLink
from pnc_vol.mapping import special
from pnc_vol.mapping.references import Reference, RegionReference

__all__ = ["Standin", "contents"]

F = TypeVar("F", bound=Callable[..., Any])

UNLIMITED = 2**64 - 1

_H5 = {"ITER_INC": 0, "ITER_DEC": 1, "ITER_NATIVE": 2, "INDEX_NAME": 0, "INDEX_CRT_ORDER": 1}
_H5D = {
    "COMPACT": 0, "CONTIGUOUS": 1, "CHUNKED": 2, "VIRTUAL": 3,
    "ALLOC_TIME_DEFAULT": 0, "ALLOC_TIME_EARLY": 1, "ALLOC_TIME_LATE": 2, "ALLOC_TIME_INCR": 3,
    "FILL_TIME_ALLOC": 0, "FILL_TIME_NEVER": 1, "FILL_TIME_IFSET": 2,
    "FILL_VALUE_UNDEFINED": 0, "FILL_VALUE_DEFAULT": 1, "FILL_VALUE_USER_DEFINED": 2,
    "SPACE_STATUS_NOT_ALLOCATED": 0, "SPACE_STATUS_PART_ALLOCATED": 1, "SPACE_STATUS_ALLOCATED": 2,
}  # fmt: skip
_H5F = {
    "UNLIMITED": UNLIMITED, "ACC_RDONLY": 0, "ACC_RDWR": 1, "ACC_TRUNC": 2, "ACC_EXCL": 4, "ACC_SWMR_WRITE": 32,
    "ACC_SWMR_READ": 64, "SCOPE_LOCAL": 0, "SCOPE_GLOBAL": 1, "CLOSE_DEFAULT": 0, "CLOSE_WEAK": 1, "CLOSE_SEMI": 2,
    "CLOSE_STRONG": 3, "OBJ_FILE": 1, "OBJ_DATASET": 2, "OBJ_GROUP": 4, "OBJ_DATATYPE": 8, "OBJ_ATTR": 16,
    "OBJ_ALL": 31, "OBJ_LOCAL": 32, "LIBVER_EARLIEST": 0, "LIBVER_V18": 1, "LIBVER_V110": 2, "LIBVER_V112": 3,
    "LIBVER_V114": 4, "LIBVER_LATEST": 4,
}  # fmt: skip
_H5S = {
    "NO_CLASS": -1, "SCALAR": 0, "SIMPLE": 1, "NULL": 2, "SEL_NONE": 0, "SEL_POINTS": 1, "SEL_HYPERSLABS": 2,
    "SEL_ALL": 3, "SELECT_SET": 0, "SELECT_OR": 1, "SELECT_AND": 2, "SELECT_XOR": 3,
}  # fmt: skip
_H5T = {
    "ORDER_LE": 0, "ORDER_BE": 1, "ORDER_VAX": 2, "ORDER_NONE": 4, "SGN_NONE": 0, "SGN_2": 1,
    "STR_NULLTERM": 0, "STR_NULLPAD": 1, "STR_SPACEPAD": 2, "CSET_ASCII": 0, "CSET_UTF8": 1, "VARIABLE": UNLIMITED,
    **storage_info.CLASSES,
}  # fmt: skip
_H5Z = {
    "FILTER_ERROR": -1, "FILTER_NONE": 0, "FILTER_ALL": 0, "FILTER_DEFLATE": 1, "FILTER_SHUFFLE": 2,
    "FILTER_FLETCHER32": 3, "FILTER_SZIP": 4, "FILTER_NBIT": 5, "FILTER_SCALEOFFSET": 6, "FILTER_LZF": 32000,
    "FILTER_RESERVED": 256, "FILTER_MAX": 65535, "FLAG_MANDATORY": 0, "FLAG_OPTIONAL": 1,
    "FILTER_CONFIG_ENCODE_ENABLED": 1, "FILTER_CONFIG_DECODE_ENABLED": 2,
}  # fmt: skip


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


def get_libversion() -> tuple[int, int, int]:
    """The HDF5 release whose interface this package stands for; no HDF5 library is used."""
    return version.hdf5_version_tuple


def filter_avail(filter_code: int) -> bool:
    """Whether ``create_dataset`` takes a filter of this number; nothing is compressed.

    Examples
    --------
    >>> filter_avail(1), filter_avail(5)
    (True, False)
    """
    return filter_code in FILTER_IDS.values() or filter_code >= _H5Z["FILTER_RESERVED"]


def is_scale(dset: ids.DatasetID) -> bool:
    """Whether a dataset is a dimension scale.

    Raises
    ------
    ClosedFileError
        The file is closed, or the dataset was deleted.
    """
    return dset.check_node().scale is not None


def silence_errors() -> None:
    """Nothing: there is no HDF5 library that prints errors."""


def with_phil(function: F) -> F:
    """The function as it is: files have locks of their own."""
    return function


def contents() -> dict[str, dict[str, Any]]:
    """Names and what they are, by the name of the module below ``h5py``."""
    types_ = {name: getattr(special, name) for name in special.__all__ if name.endswith("_dtype")}
    return {
        "_errors": {"silence_errors": silence_errors, "unsilence_errors": silence_errors},
        "_objects": {"ObjectID": ids.ObjectID, "phil": threading.RLock(), "with_phil": with_phil},
        "h5": {**_H5, "get_config": get_config, "get_libversion": get_libversion},
        "h5a": {"AttrID": ids.AttributeID},
        "h5d": {**_H5D, "DatasetID": ids.DatasetID},
        "h5ds": {"is_scale": is_scale},
        "h5f": {**_H5F, "FileID": ids.FileID, "is_hdf5": is_hdf5},
        "h5g": {"GroupID": ids.GroupID},
        "h5l": {"TYPE_HARD": 0, "TYPE_SOFT": 1, "TYPE_EXTERNAL": 64},
        "h5p": {"CRT_ORDER_TRACKED": storage_info.TRACKED, "CRT_ORDER_INDEXED": storage_info.INDEXED},
        "h5r": {"OBJECT": 0, "DATASET_REGION": 1, "Reference": Reference, "RegionReference": RegionReference},
        "h5s": {**_H5S, "UNLIMITED": UNLIMITED, "SpaceID": storage_info.Space},
        "h5t": {**_H5T, **types_, "TypeID": storage_info.StoredType},
        "h5z": {**_H5Z, "filter_avail": filter_avail},
        "_hl.links": {"HardLink": HardLink, "SoftLink": SoftLink, "ExternalLink": ExternalLink},
        "_hl.base": {
            "HLObject": HLObject, "is_hdf5": is_hdf5, "phil": threading.RLock(), "with_phil": with_phil,
        },
    }  # fmt: skip
