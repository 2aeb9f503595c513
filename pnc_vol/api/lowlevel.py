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
from pnc_vol.api.hdf5_constants import CONSTANTS
from pnc_vol.api.ignored_options import FILTER_IDS
from pnc_vol.api.module import get_config, is_hdf5, version
from pnc_vol.api.objects import ExternalLink, HardLink, HLObject, SoftLink
from pnc_vol.mapping import special
from pnc_vol.mapping.references import Reference, RegionReference

__all__ = ["Standin", "contents"]

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
    return filter_code in FILTER_IDS.values() or filter_code >= CONSTANTS["h5z"]["FILTER_RESERVED"]


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
    named: dict[str, dict[str, Any]] = {
        "_errors": {"silence_errors": silence_errors, "unsilence_errors": silence_errors},
        "_objects": {"ObjectID": ids.ObjectID, "phil": threading.RLock(), "with_phil": with_phil},
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
        "_hl.links": {"HardLink": HardLink, "SoftLink": SoftLink, "ExternalLink": ExternalLink},
        "_hl.base": {
            "HLObject": HLObject, "is_hdf5": is_hdf5, "phil": threading.RLock(), "with_phil": with_phil,
        },
    }  # fmt: skip
    return {name: {**CONSTANTS.get(name, {}), **named.get(name, {})} for name in {**CONSTANTS, **named}}
