"""How ``File(...)`` opens a file: its keywords checked, the ranks agreed, one handle on a session.

Knows: h5py's keywords and ours, the words for drivers, communicators, the registry of open files. Does not know: how
a session reads a header.

Rules
-----
1. A keyword of h5py that means nothing for CDF is checked as h5py checks it and then accepted, so that a ported script
   runs; what would change the file (a user block) is refused by name.
2. A keyword of ours goes to `pnc_vol.options`; an unknown keyword raises `TypeError`.
"""

from __future__ import annotations

import json
import operator
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pnc_vol import comm as communicators
from pnc_vol import options
from pnc_vol.api.hdf5_drivers import registered_drivers
from pnc_vol.api.hints import hints_in_force, prepared_from_file, read_hint_file
from pnc_vol.api.ids import Handle
from pnc_vol.drivers.base import Driver
from pnc_vol.drivers.fileobj import FileObjectDriver, is_file_object
from pnc_vol.drivers.memory import MemoryDriver
from pnc_vol.drivers.stack import knows, stack_capabilities
from pnc_vol.errors import (
    CollectiveMismatchError,
    DefinitionError,
    NotFoundError,
    NotYetError,
    OperationError,
    PncVolError,
    did_you_mean,
)
from pnc_vol.file.forgotten import watch
from pnc_vol.file.open_file import open_shared
from pnc_vol.recovery.leftovers import look_after_leftovers
from pnc_vol.system import System
from pnc_vol.warn import held_warnings, warn_outside

if TYPE_CHECKING:
    from pnc_vol.api.ids import Handle
    from pnc_vol.file.open_file import OpenFile
    from pnc_vol.hint_files import HintFile, Match

__all__ = [
    "check_keywords",
    "driver_stack",
    "file_name",
    "hints_in_force",
    "open_handle",
    "refuse_remote",
    "root_in_memory",
    "start_swmr",
]

NOT_IN_MEMORY = ("mode", "driver", "locking", "backing_store", "fileobj", "comm", "userblock_size", "swmr")
"""Keywords of `File` that `File.in_memory` does not take."""
MODES = ("r", "r+", "w", "w-", "x", "a")
LATEST = "v114"
_LIBVER = ("earliest", "v108", "v110", "v112", "v114", "latest")
_H5PY_DRIVERS = ("split", "family", "direct", "ros3", "windows")


@dataclass(frozen=True, slots=True)
class OpenArguments:
    """The arguments of `File`, checked.

    driver : str, the word to show; keeps_file : bool, whether there is a file that others can open.
    """

    driver: str
    keeps_file: bool
    libver: tuple[str, str]
    options: options.Options
    swmr: bool = False


Prepared = tuple[str, OpenArguments, str, Any]
"""Path, arguments, the resolved path ("" if there is no file), and the file-like object."""


def open_handle(
    name: Any, mode: str, driver: Any, comm: Any, info: Any, hints: Any, h5: dict[str, Any], kwds: dict[str, Any]
) -> Handle:
    """Open a file, or share a session that is open; collective if there is a communicator.

    Parameters
    ----------
    name, mode, driver, comm, info, hints : as `File` was given them
    h5 : dict
        h5py's keywords.
    kwds : dict
        All others.

    Raises
    ------
    OSError, ValueError, TypeError, KeyError
        As `File`.
    """
    in_file = options.hints_file(kwds.pop("hints_file", None))
    if is_file_object(name) or "fileobj" in kwds or driver == "memory":
        # there is no path to match
        in_file = ""
    prepare = partial(_prepared, name, mode, driver, comm, info, hints, h5, kwds)
    if comm is None:
        return _opened(None, mode, *prepare(read_hint_file(in_file) if in_file else None))
    return _opened_by_ranks(comm, kwds.get("collective_timeout", 300.0), mode, prepare, in_file)


def root_in_memory(file_image: Any, keywords: Mapping[str, Any]) -> MemoryDriver:
    """The driver of a file that is kept in memory; see `File.in_memory`.

    Raises
    ------
    TypeError
        A keyword that means nothing for such a file, or an image that is no bytes-like object.
    """
    for key in keywords:
        if key in NOT_IN_MEMORY or (file_image and key in ("track_order", "track_times", "fs_strategy")):
            raise TypeError(f"File.in_memory() got an unexpected keyword argument {key!r}")
    return MemoryDriver(memoryview(file_image).cast("B") if file_image else b"")


def _prepared(
    name: Any, mode: str, driver: Any, comm: Any, info: Any, hints: Any, h5: dict[str, Any], kwds: dict[str, Any],
    from_file: HintFile | None = None,
) -> Prepared:  # fmt: skip
    """What a process does by itself before it opens a file."""
    kwds = dict(kwds)
    path, driver, target = file_name(name, driver, kwds)
    matched = None if from_file is None else from_file.match(path)
    arguments = check_keywords(mode, driver, comm, info, hints, h5, kwds, matched)
    real = arguments.options.system.realpath(os.path.abspath(path)) if arguments.keeps_file else ""
    return path, arguments, real, target


def _opened_by_ranks(
    comm: Any, timeout: Any, mode: str, prepare: Callable[..., Prepared], in_file: str = ""
) -> Handle:  # fmt: skip
    """Open a file on all ranks: an error of one is raised on all, and a warning that all have is shown once.

    A hint file is read by rank 0, after an exchange that says whether all name the same one.
    """
    prepared, failure = None, None
    with held_warnings() as held:
        try:
            prepared = prepare()
            timeout = prepared[1].options.collective_timeout
        except Exception as error:
            failure = error
    patience = timeout if timeout is None or isinstance(timeout, (int, float)) else 300.0
    try:
        ranks = communicators.over(comm, timeout=patience)
    except (TypeError, PncVolError):
        # There are no other ranks to tell.
        raise failure or sys.exc_info()[1] from None  # type: ignore[misc]
    said = json.dumps([in_file, *(text for text, _ in held)]).encode()
    try:
        told = [json.loads(one) for one in ranks.exchange("open", said, error=failure)]
        named = {one[0] for one in told}
        if len(named) > 1:
            names = ", ".join(sorted(repr(one) for one in named))
            text = f"ranks open the file with different hint files: {names}. Give the same on every rank"
            raise ranks.on_all(CollectiveMismatchError(text))
        if in_file:
            prepared = prepared_from_file(ranks, in_file, prepare)
            ranks.timeout = prepared[1].options.collective_timeout
    except BaseException as error:
        if ranks.in_step(error):
            ranks.close()
        raise
    shown = told[0][1:] if ranks.rank else []
    for text, category in held:
        if text not in shown:
            warn_outside(text, category)
    assert prepared is not None
    return _opened(ranks, mode, *prepared)


def _opened(ranks: Any, mode: str, path: str, arguments: OpenArguments, real: str, target: Any) -> Handle:
    """Open a session or join one, and watch the handle, so that a forgotten file is closed one day."""
    opts = arguments.options
    root, target = _root_of(target, mode, opts.system)
    comm = ranks or communicators.serial()
    session, ref = open_shared(
        path, real, mode, options=opts, comm=comm, root=root, target=target, look_after=look_after_leftovers
    )
    handle = Handle(
        session,
        ref,
        path,
        arguments.driver,
        arguments.libver,
        real,
        writable=ref.writable,
        swmr=arguments.swmr,
    )
    watch(handle, ref, path)
    return handle


def file_name(name: Any, driver: Any, keywords: dict[str, Any]) -> tuple[str, Any, Any]:
    """What the file is called, the word for its driver, and the object that is the file.

    Parameters
    ----------
    name : str, bytes, path-like or file-like object
    driver : as given
    keywords : dict
        ``fileobj`` is taken out.

    Returns
    -------
    tuple
        The path, or how the object shows itself; the driver; the object, or None if there is a path.

    Raises
    ------
    TypeError
        The name is none of these, or the driver ``"fileobj"`` was given no object.
    ValueError
        An object with another driver, or two objects.
    """
    if is_file_object(name):
        if driver not in (None, "fileobj"):
            raise DefinitionError("Driver must be 'fileobj' for file-like object if specified.")
        if keywords.pop("fileobj", name) is not name:
            raise DefinitionError("fileobj= and the file name are different objects; give one of them")
        return repr(name).encode("ascii", "replace").decode(), "fileobj", name
    target = keywords.pop("fileobj", None)
    if target is not None and not isinstance(target, Driver) and driver != "fileobj":
        raise TypeError("fileobj= is for driver='fileobj'")
    if driver == "fileobj" and not is_file_object(target):
        raise TypeError(f"driver='fileobj' needs an object with read() and seek(), not {target if target else name!r}")
    path = os.fsdecode(name)
    if target is None and not _takes_addresses(driver):
        refuse_remote(path)
    return path, driver, target


_REMOTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def _takes_addresses(driver: Any) -> bool:
    """Whether a path means something to this driver alone."""
    if not isinstance(driver, str) or driver in ("core", "fileobj", "sec2", "stdio", *_H5PY_DRIVERS):
        return False
    try:
        return stack_capabilities(driver).own_paths
    except ValueError:
        # `driver_stack` complains of it
        return False


def refuse_remote(path: str) -> None:
    """Refuse the address of a file on another computer.

    Raises
    ------
    NotYetError

    Examples
    --------
    >>> refuse_remote("folder/file.nc")
    """
    found = _REMOTE.match(path)
    if found is not None:
        raise NotYetError(
            f"{path}: remote files ({found.group()}...) are not supported; copy the file here, or open it with a "
            "library for such addresses and give the file object to File()"
        )


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
        block = _integer(keywords.pop("block_size", 1 << 16))
        if not 0 <= block < 1 << 64:
            raise OverflowError(f"block_size={block}: a number of bytes of at most 64 bits is needed")
        # HDF5's core driver puts the file on disk at close unless told otherwise: the same file, by a shorter way
        return "core", "posix" if _integer(keywords.pop("backing_store", True)) else "memory"
    if driver == "fileobj":
        if getattr(comm, "size", 1) > 1:
            raise DefinitionError("a file-like object belongs to one process; several ranks cannot share it")
        return "fileobj", "fileobj"
    if driver is None:
        return ("sec2", "") if comm is None else ("mpio", "")
    if driver in ("sec2", "stdio"):
        return driver, "posix"
    if driver in _H5PY_DRIVERS:
        raise NotYetError(f"driver {driver!r} of HDF5 is not supported; use None, 'memory' or 'mpio'")
    if not isinstance(driver, str):
        raise DefinitionError(f"Unknown driver type {driver!r}; a text such as 'posix' or 'trace | posix' is needed")
    # To ask for all names is to read what every installed package says of itself.
    if "|" not in driver and not knows(driver):
        if driver in registered_drivers():
            raise NotYetError(f"driver {driver!r} was registered for HDF5 and cannot open a CDF file; use None")
        if driver.isidentifier():
            raise DefinitionError(f"Unknown driver type {driver!r}")
    if stack_capabilities(driver).collective and comm is None:
        raise TypeError(f"driver={driver!r} needs comm=, such as mpi4py's MPI.COMM_WORLD")
    return driver, driver


def check_keywords(
    mode: str | None, driver: Any, comm: Any, info: Any, hints: Any, h5: Mapping[str, Any], kwds: Mapping[str, Any],
    from_file: Match | None = None,
) -> OpenArguments:  # fmt: skip
    """Check all that `File` was told.

    Parameters
    ----------
    mode, driver, comm, info, hints : as given
    h5 : h5py's keywords
    kwds : all others
    from_file : Match, optional
        What a hint file says of the file.

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
            raise TypeError(
                f"{key!r} is an invalid keyword argument for File(){did_you_mean(key, options.keyword_names())}"
            )
    if mode not in MODES:
        raise DefinitionError(f"Invalid mode {mode!r}; must be one of r, r+, w, w-, x, a")
    libver = _libver(h5.get("libver"))
    _check_h5(mode, h5)
    interval = h5.get("alignment_interval", 1)
    if interval != 1:
        others["alignment_interval"] = interval
    # what was not given leaves the word to a hint file
    given = {
        key: value for key, value in (("driver", stack), ("locking", h5.get("locking"))) if value not in ("", None)
    }
    resolved = options.resolve({**others, **given, "hints": hints}, info=info, from_file=from_file)
    if stack in ("fileobj", "memory"):
        # the environment may have another stack in mind for files
        resolved = replace(resolved, driver=stack)
    keeps_file = stack != "fileobj" and (not resolved.driver or stack_capabilities(resolved.driver).keeps_file)
    if h5.get("swmr") and mode != "r":
        text = "swmr=True only affects read ('r') mode. To write, set f.swmr_mode = True after opening the file."
        warn_outside(text)
    return OpenArguments(word, keeps_file, libver, resolved, bool(h5.get("swmr")) and mode == "r")


def _root_of(target: Any, mode: str, system: System) -> tuple[Driver | None, Any]:
    """The driver that holds the bytes of a file that has no path, and the object that is the file."""
    if target is None or isinstance(target, Driver):
        return target, None
    return FileObjectDriver(target, writable=mode != "r", system=system), target


def start_swmr(session: OpenFile, handle: Handle, value: bool) -> None:
    """Note that others read a file while it is written (collective); see `File.swmr_mode`."""
    if not value:
        raise DefinitionError("It is not possible to forcibly switch SWMR mode off.")
    if not handle.writable:
        raise OperationError("Unable to start swmr writing (no write intent on file)")
    if session.swmr:
        raise OperationError("Unable to start swmr writing (file already in SWMR writing mode)")
    if session.disk.created and handle.libver[0] in ("earliest", "v108"):
        raise OperationError("Unable to start swmr writing: create the file with libver='latest'")
    session.flush(what="swmr_mode")
    session.start_swmr()


def _integer(value: Any) -> int:
    try:
        return int(value) if not isinstance(value, (str, bytes)) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"an integer is required, not {value!r}") from None


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
    weight = h5.get("rdcc_w0")
    if weight is not None and not 0 <= weight <= 1:
        raise DefinitionError("Raw data cache w0 value must be between 0.0 and 1.0 inclusive")
