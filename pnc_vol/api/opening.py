"""What ``File(...)`` may be told: h5py's keywords, ours, and the words for drivers.

Knows: keywords and what they may be. Does not know: sessions, how a file is opened.

Rules
-----
1. A keyword of h5py that means nothing for CDF is checked as h5py checks it and then accepted, so that a ported script
   runs; what would change the file (a user block) or what readers see (SWMR) is refused by name.
2. A keyword of ours goes to `pnc_vol.options`; a keyword of nobody is a `TypeError`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pnc_vol import options
from pnc_vol.api.absent import registered_drivers
from pnc_vol.drivers.stack import registered, root_keeps_file
from pnc_vol.errors import DefinitionError, NotFoundError, NotYetError

__all__ = ["LATEST", "MODES", "Wish", "check_keywords", "driver_stack", "file_name"]

MODES = ("r", "r+", "w", "w-", "x", "a")
LATEST = "v114"
_LIBVER = ("earliest", "v108", "v110", "v112", "v114", "latest")
_H5PY_DRIVERS = ("split", "family", "direct", "ros3", "fileobj", "windows")


@dataclass(frozen=True, slots=True)
class Wish:
    """What `File` was asked for, checked.

    driver : str, the word to show; keeps_file : bool, whether there is a file.
    """

    driver: str
    keeps_file: bool
    libver: tuple[str, str]
    options: options.Options


def file_name(name: Any) -> str:
    """The path as text.

    Raises
    ------
    TypeError
        Not str, bytes or path-like.
    NotYetError
        A file-like object.
    """
    if hasattr(name, "read") and hasattr(name, "seek"):
        raise NotYetError("file-like objects are not supported; give a path, or use driver='memory'")
    return os.fsdecode(name)


def driver_stack(driver: Any, comm: Any, keywords: dict[str, Any]) -> tuple[str, str]:
    """The word to show as `File.driver`, and the stack to open.

    Parameters
    ----------
    driver : str or None
    comm : communicator or None
    keywords : dict
        Those of the core driver are taken out.

    Raises
    ------
    ValueError
        A driver that does not exist.
    TypeError
        ``"mpio"`` without a communicator.
    """
    if driver == "core":
        keywords.pop("block_size", None)
        # HDF5's core driver puts the file on disk at close unless told otherwise: the same file, by a shorter way
        return "core", "posix" if keywords.pop("backing_store", True) else "memory"
    if driver is None:
        return ("sec2", "") if comm is None else ("mpio", "")
    if driver in ("sec2", "stdio"):
        return driver, "posix"
    if driver in _H5PY_DRIVERS:
        raise NotYetError(f"driver {driver!r} of HDF5 is not supported; use None, 'memory' or 'mpio'")
    if not isinstance(driver, str):
        raise DefinitionError(f"Unknown driver type {driver!r}; a text such as 'posix' or 'trace | posix' is needed")
    if driver in registered_drivers() - set(registered()):
        raise NotYetError(f"driver {driver!r} was registered for HDF5 and cannot carry a CDF file; use None")
    if driver.isidentifier() and driver not in registered():
        raise DefinitionError(f"Unknown driver type {driver!r}")
    root_keeps_file(driver)
    if driver.rpartition("|")[2].strip().startswith("mpio") and comm is None:
        raise TypeError("driver='mpio' needs comm=, such as mpi4py's MPI.COMM_WORLD")
    return driver, driver


def check_keywords(
    mode: str | None, driver: Any, comm: Any, info: Any, hints: Any, h5: Mapping[str, Any], kwds: Mapping[str, Any]
) -> Wish:
    """Check all that `File` was told.

    Parameters
    ----------
    mode, driver, comm, info, hints : as given
    h5 : h5py's keywords
    kwds : all others

    Raises
    ------
    TypeError, ValueError, KeyError
        As h5py does.
    NotYetError
        Something that CDF files, or this version, do not have.
    """
    others = dict(kwds)
    word, stack = driver_stack(driver, comm, others)
    for key in others:
        if key not in options.keyword_names():
            raise TypeError(f"{key!r} is an invalid keyword argument for File()")
    if mode not in MODES:
        raise DefinitionError("Invalid mode; must be one of r, r+, w, w-, x, a")
    libver = _libver(h5.get("libver"))
    _check_h5(mode, h5)
    interval = h5.get("alignment_interval", 1)
    if interval != 1:
        others["alignment_interval"] = interval
    resolved = options.resolve({**others, "driver": stack, "hints": hints}, info=info)
    return Wish(word, not resolved.driver or root_keeps_file(resolved.driver), libver, resolved)


def _libver(libver: Any) -> tuple[str, str]:
    low, high = (libver or "earliest", "latest") if not isinstance(libver, tuple) else libver
    for word in (low, high):
        if word not in _LIBVER:
            raise NotFoundError(f"libver={libver!r}: {word!r} is not one of {', '.join(_LIBVER)}")
    return (LATEST if low == "latest" else low, LATEST if high == "latest" else high)


def _check_h5(mode: str, h5: Mapping[str, Any]) -> None:
    strategy, block, locking = h5.get("fs_strategy"), h5.get("userblock_size"), h5.get("locking")
    if strategy:
        if mode not in ("w", "w-", "x"):
            raise DefinitionError("Unable to set file space strategy of an existing file")
        if strategy not in ("fsm", "page", "aggregate", "none"):
            raise DefinitionError("Invalid file space strategy type")
    if locking not in (None, True, False, "true", "false", "best-effort"):
        raise DefinitionError(f"Unsupported locking value: {locking}")
    if h5.get("track_times") not in (True, False, None):
        raise TypeError("track_times must be either True or False")
    if block is not None:
        if mode in ("r", "r+"):
            raise DefinitionError("User block may only be specified when creating a file")
        try:
            block = int(block)
        except (TypeError, ValueError):
            raise DefinitionError("User block size must be an integer") from None
        if block:
            raise NotYetError(f"userblock_size={block}: a CDF file begins with its header and has no user block")
    if h5.get("swmr"):
        raise NotYetError("swmr=True is not supported: readers see what was flushed; open the file again to see more")
    weight = h5.get("rdcc_w0")
    if weight is not None and not 0 <= weight <= 1:
        raise DefinitionError("Raw data cache w0 value must be between 0.0 and 1.0 inclusive")
