"""``File(...)`` opens a file: arguments are checked, ranks share errors of them, and each gets a handle on a session.

Knows: h5py's keywords and ours, names of drivers, communicators, hint files, the registry of open files. Does not know:
how a session reads a header.

Rules
-----
1. A keyword of h5py that means nothing for CDF is checked as h5py checks it and then accepted, so that a ported script
   runs; what would change the file (a user block) is refused by name.
2. A keyword of ours goes to `pnc_vol.settings.options`; an unknown keyword raises `TypeError`.

Rules of pickles
----------------
1. What a pickle keeps of an object is its id: the name of the file, the keywords of `File`, the path of the object, and
   no data. Whoever loads it opens the file with mode ``"r"``; in a process that has it open this is one more handle on
   the same session.
2. What the pickle would not bring along is refused with the reason: posted writes, the bytes of a file in memory, a
   Python object that is the file, a communicator, an object without a name.
3. A path is made absolute, since the other process may have another working directory; an address stays as it is.
"""

from __future__ import annotations

import copyreg
import importlib
import operator
import os
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pnc_vol.api.ids import DatasetID, FileID, Given, GroupID, Handle, ObjectID, TypeID
from pnc_vol.api.objects import class_of
from pnc_vol.drivers.base import Driver
from pnc_vol.drivers.stack import knows, registered, stack_capabilities
from pnc_vol.errors import (
    CollectiveMismatchError,
    DefinitionError,
    NotFoundError,
    NotYetError,
    OperationError,
    PncVolError,
    did_you_mean,
)
from pnc_vol.file.driver_stack import cached
from pnc_vol.file.opening import open_shared
from pnc_vol.file.opening_record import Opening
from pnc_vol.file.registry import watch
from pnc_vol.ranks import comm as communicators
from pnc_vol.ranks.comm import ranks_by_text
from pnc_vol.settings import options
from pnc_vol.system import closing_if_it_fails
from pnc_vol.warn import held_warnings, warn_outside

if TYPE_CHECKING:
    from pnc_vol.drivers.memory import MemoryDriver
    from pnc_vol.file.open_file import OpenFile
    from pnc_vol.settings.hint_files import HintFile, Match

__all__ = [
    "Given", "check", "collective_timeout", "hints_file", "is_address", "is_file_object", "open_handle",
    "refuse_in_memory", "refuse_remote", "register_driver", "registered_drivers", "reopened", "root_in_memory",
    "start_swmr", "unregister_driver",
]  # fmt: skip


def open_handle(given: Given) -> Handle:
    """Open a file, or share a session that is open; collective if there is a communicator.

    Raises
    ------
    OSError, ValueError, TypeError, KeyError
        As `File`.
    """
    if given.comm is not None:
        return _opened_by_ranks(given)
    in_file, from_file = hints_file(given), None
    if in_file:
        from pnc_vol.api.hints import read_hint_file

        from_file = read_hint_file(in_file)
    return _opened(communicators.serial(), *check(given, from_file))


def root_in_memory(file_image: Any, keywords: dict[str, Any]) -> MemoryDriver:
    """Return the driver of a file that is kept in memory; see `File.in_memory`.

    Raises
    ------
    TypeError
        A keyword that means nothing for such a file, or an image that is no bytes-like object.
    """
    from pnc_vol.drivers.memory import MemoryDriver

    refuse_in_memory(file_image, keywords)
    return MemoryDriver(memoryview(file_image).cast("B") if file_image else b"")


def _opened_by_ranks(given: Given) -> Handle:
    """Open a file on all ranks: an error of one is raised on all, and a warning that all have is shown once.

    A hint file is read by rank 0, after an exchange that says whether all name the same one.
    """
    from pnc_vol.ranks.mpi_comm import over

    # What fails before the ranks first meet goes with the first exchange, under the time limit that this rank asks for:
    # raised here at once, it would leave the others waiting, and name nobody.
    in_file, checked, failure = "", None, None
    with held_warnings() as held:
        try:
            in_file = hints_file(given)
            checked = check(given)
        except Exception as error:
            failure = error
    timeout = collective_timeout(given) if checked is None else checked[1].options.collective_timeout
    try:
        is_path = isinstance(given.name, (str, bytes, os.PathLike))
        file = repr(os.fsdecode(given.name)) if is_path else "this file"
        ranks = over(given.comm, timeout=timeout, file=file)
    except (TypeError, PncVolError):
        # There are no other ranks to tell.
        raise failure or sys.exc_info()[1] from None  # type: ignore[misc]
    try:
        named = ranks_by_text(ranks, "open", in_file or "", error=failure)
        warned = ranks.broadcast("open warnings", [text for text, _ in held])
        if len(named) > 1:
            names = ", ".join(sorted(repr(one) for one in named))
            text = f"ranks open the file with different hint files: {names}. Give the same on every rank"
            raise ranks.on_all(CollectiveMismatchError(text))
        if in_file:
            from pnc_vol.api.hints import prepared_from_file

            checked = prepared_from_file(ranks, in_file, lambda from_file: check(given, from_file))
            ranks.limit(checked[1].options.collective_timeout)
    except BaseException as error:
        if ranks.in_step(error):
            ranks.close()
        raise
    shown = warned if ranks.rank else []
    for text, category in held:
        if text not in shown:
            warn_outside(text, category)
    assert checked is not None
    return _opened(ranks, *checked)


def _opened(ranks: communicators.Comm, handle: Handle, opening: Opening) -> Handle:
    """Open a session or join one, and watch the handle, so that a file that nobody closes is closed one day."""
    system = opening.options.system
    if isinstance(opening.target, Driver):
        opening.driver, opening.target = opening.target, None
    elif opening.target is not None:
        from pnc_vol.drivers.fileobj import FileObjectDriver

        opening.driver = FileObjectDriver(opening.target, writable=opening.writable, system=system)
    ref = None
    with closing_if_it_fails(system, alone=ranks.size == 1):
        try:
            session, ref = open_shared(opening, ranks)
            handle.attach(session, ref)
            watch(handle, ref, handle.filename)
        except BaseException as error:
            if ref is not None:
                ref.abandon(f"{type(error).__name__}: {error}")
            raise
    return handle


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
    # a name of its own: a plain flush on another rank is another call, and found to be one
    session.flush(what="swmr_mode")
    session.start_swmr()


# ------------------------------------------------------------------------------------------------- pickles


def _reduced(oid: ObjectID) -> tuple[Any, ...]:
    """Return what a pickle keeps of an object's id: `reopened`, and its arguments.

    Raises
    ------
    TypeError
        It cannot be pickled; the text says why.
    ValueError
        The file is closed, or the object was deleted.
    """
    oid.check()
    node, handle = oid.node, oid.handle
    why = _reason(handle)
    if node.parent is None and node is not node.tree.root:
        why = "it has no name in the file"
    if why:
        raise TypeError(f"{oid!r} of {handle.filename!r} cannot be pickled: {why}")
    return reopened, (isinstance(oid, FileID), *_opening_of(handle), node.path)


for _kind in (DatasetID, FileID, GroupID, TypeID):
    copyreg.pickle(_kind, _reduced)


def reopened(whole: bool, path: str, keywords: Mapping[str, Any], name: str) -> ObjectID:
    """Return the id of an object, or of the `whole` file, in a file that is opened for reading.

    Raises
    ------
    OSError
        The file is gone, or cannot be read.
    KeyError
        There is no such object in it any more.
    """
    # a process that has only unpickled has not loaded the class
    importlib.import_module("pnc_vol.api.file")
    file = class_of("file")(path, "r", **keywords)
    return file.id if whole else file[name].id  # type: ignore[no-any-return]


def _reason(handle: Handle) -> str:
    """Return why nobody could open the file again as it was opened here; "" if that can be done."""
    given = handle.given
    if handle.writable:
        return "its file is open for writing, and what is posted stays with this process; open it with mode 'r'"
    if given.comm is not None:
        return "its file was opened with comm=, and a communicator stays with its processes; open it without comm="
    if handle.driver == "fileobj" or given.others.get("fileobj") is not None:
        return "its file is a Python object of this process; open it by its path or address"
    return ""


def _opening_of(handle: Handle) -> tuple[str, dict[str, Any]]:
    given = handle.given
    keywords = {**given.h5, **given.others}
    if given.driver is not None:
        keywords["driver"] = given.driver
    if given.hints or given.info is not None:
        # an MPI.Info stays here; what it says goes along
        keywords["hints"] = {**dict((given.info or {}).items()), **(given.hints or {})}
    own_path = handle.session.disk.driver.capabilities.own_paths
    return handle.filename if own_path else os.path.abspath(handle.filename), keywords


# ------------------------------------------------------------------------------------------------- arguments

NOT_IN_MEMORY = ("mode", "driver", "locking", "backing_store", "fileobj", "comm", "userblock_size", "swmr")
"""Keywords of `File` that `File.in_memory` does not take."""
MODES = ("r", "r+", "w", "w-", "x", "a")
LATEST = "v114"
_LIBVER = ("earliest", "v108", "v110", "v112", "v114", "v200", "latest")
_H5PY_DRIVERS = ("split", "family", "direct", "ros3", "windows")
_foreign: set[str] = set()
"""Names of drivers of HDF5 that a program registered."""


def is_file_object(thing: Any) -> bool:
    """Return whether `thing` is taken for a file-like object, as h5py does it.

    Examples
    --------
    >>> from io import BytesIO
    >>> is_file_object(BytesIO()), is_file_object("name.nc")
    (True, False)
    """
    return hasattr(thing, "read") and hasattr(thing, "seek")


def hints_file(given: Given) -> str:
    """Return the hint file to use, "" for none."""
    if is_file_object(given.name) or "fileobj" in given.others or given.driver == "memory":
        # there is no path to match
        return ""
    return options.hints_file(given.others.get("hints_file"))


def collective_timeout(given: Given) -> float | None:
    """Return the seconds to wait for other ranks, even if other arguments are wrong."""
    return options.collective_timeout(given.others, hints=given.hints, info=given.info)


def check(given: Given, from_file: HintFile | None = None) -> tuple[Handle, Opening]:
    """Check all arguments of `File`, and begin the records of its handle and of its opening with them.

    Parameters
    ----------
    given : Given
    from_file : HintFile, optional

    Returns
    -------
    Handle
        It has no session yet.
    Opening
        In the state "asked"; its target is the object that is the file, or None.

    Raises
    ------
    TypeError, ValueError, KeyError
        As h5py does.
    NotYetError
        Something that CDF files, or this version, do not have.
    """
    mode, h5, others = given.mode, given.h5, dict(given.others)
    others.pop("hints_file", None)
    path, driver, target = _file_name(given.name, given.driver, others)
    shown, stack = _driver_stack(driver, given.comm, others)
    for key in others:
        if key not in options.keyword_names():
            near = did_you_mean(key, options.keyword_names(), h5, ("mode", "driver", "comm", "info"))
            raise TypeError(f"{key!r} is an invalid keyword argument for File(){near}")
    if others.get("storage_options") and not isinstance(others["storage_options"], Mapping):
        raise TypeError(f"storage_options={others['storage_options']!r}: a mapping is needed, as fsspec takes it")
    if mode not in MODES:
        raise DefinitionError(f"Invalid mode {mode!r}; must be one of r, r+, w, w-, x, a")
    libver = _libver(h5.get("libver"))
    _check_h5(mode, h5)
    resolved = _options(given, stack, others, None if from_file is None else from_file.match(path))
    keeps_file = stack != "fileobj" and (not resolved.driver or stack_capabilities(resolved.driver).keeps_file)
    real = resolved.system.realpath(path) if keeps_file else ""
    named = real or ("" if target is not None or is_address(path) else resolved.system.realpath(path))
    if h5.get("swmr") and mode != "r":
        text = "swmr=True only affects read ('r') mode. To write, set f.swmr_mode = True after opening the file."
        warn_outside(text)
    swmr = bool(h5.get("swmr")) and mode == "r"
    handle = Handle(given, path, shown, libver, real=real, named=named, swmr=swmr)
    return handle, Opening(path, mode, resolved, real=real, target=target)


def _options(given: Given, stack: str, others: dict[str, Any], matched: Match | None) -> options.Options:
    # what was not given is left to a hint file
    if stack:
        others["driver"] = stack
    if given.h5.get("locking") is not None:
        others["locking"] = given.h5["locking"]
    if given.h5.get("alignment_interval", 1) != 1:
        others["alignment_interval"] = given.h5["alignment_interval"]
    resolved = options.resolve({**others, "hints": given.hints}, info=given.info, from_file=matched)
    if stack in ("fileobj", "memory"):
        # the environment may name another stack, for files
        return resolved._replace(driver=stack)
    return cached(resolved, shared=given.comm is not None, writable=given.mode != "r")


def refuse_in_memory(file_image: Any, keywords: Mapping[str, Any]) -> None:
    """Refuse what means nothing for a file that is kept in memory; see `File.in_memory`.

    Raises
    ------
    TypeError
    """
    for key in keywords:
        if key in NOT_IN_MEMORY or (file_image and key in ("track_order", "track_times", "fs_strategy")):
            raise TypeError(f"File.in_memory() got an unexpected keyword argument {key!r}")


def _file_name(name: Any, driver: Any, keywords: dict[str, Any]) -> tuple[str, Any, Any]:
    """Return the path, or how the object shows itself; the driver; the object, or None if there is a path.

    ``fileobj`` is taken out of `keywords`.
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
    if target is not None or "://" not in path:
        return path, driver, target
    if driver is None and is_address(path):
        driver = "remote"
    if not _takes_addresses(driver):
        refuse_remote(path, "leave driver= out, or end its stack with 'remote', to read the file there")
    return path, driver, target


_ADDRESS = r"(\w+::)*[A-Za-z][A-Za-z0-9+.-]+://"


def is_address(path: str) -> bool:
    """Return whether a path is an address, which fsspec opens; ``zip://a.nc::https://host/b.zip`` is one, too.

    Examples
    --------
    >>> is_address("https://host/a.nc"), is_address("folder/file.nc"), is_address("simplecache::s3://b/a.nc")
    (True, False, True)
    """
    return "://" in path and re.match(_ADDRESS, path) is not None


def _takes_addresses(driver: Any) -> bool:
    """Return whether a path means something to this driver alone."""
    if not isinstance(driver, str) or driver in ("core", "fileobj", "sec2", "stdio", *_H5PY_DRIVERS):
        return False
    try:
        return stack_capabilities(driver).own_paths
    except ValueError:
        # `_driver_stack` raises it
        return False


def refuse_remote(path: str, remedy: str) -> None:
    """Refuse an address where a file of the operating system is needed; `remedy` says what to do.

    Raises
    ------
    NotYetError

    Examples
    --------
    >>> refuse_remote("folder/file.nc", "")
    """
    if is_address(path):
        raise NotYetError(f"{path} is an address, and a file of this machine is needed: {remedy}")


def _driver_stack(driver: Any, comm: Any, keywords: dict[str, Any]) -> tuple[str, str]:
    """Return what `File.driver` shows, and the stack to open; the keywords of the core driver are taken out."""
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
        if driver in _foreign:
            raise NotYetError(f"driver {driver!r} was registered for HDF5 and cannot open a CDF file; use None")
        if driver.isidentifier():
            raise DefinitionError(f"Unknown driver type {driver!r}")
    if stack_capabilities(driver).collective and comm is None:
        raise TypeError(f"driver={driver!r} needs comm=, such as mpi4py's MPI.COMM_WORLD")
    return driver, driver


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


# ----------------------------------------------------------------------------------- names of drivers


def register_driver(name: str, set_fapl: Any) -> None:
    """Note the name of a driver of HDF5, for programs that register one when they start.

    No driver of HDF5 can read or write a CDF file; `File` refuses it by name. A driver of pnc_vol is registered by the
    entry points ``pnc_vol.drivers``.

    Parameters
    ----------
    name : str
    set_fapl : callable
        Not used.
    """
    _foreign.add(name)


def unregister_driver(name: str) -> None:
    """Remove a name that `register_driver` noted.

    Parameters
    ----------
    name : str

    Raises
    ------
    KeyError
        The name is not known.
    """
    _foreign.remove(name)


def registered_drivers() -> frozenset[str]:
    """Return the driver names that ``File(driver=...)`` takes, and those that were registered."""
    return frozenset(registered()) | {"sec2", "stdio", "core"} | _foreign
