"""``File(...)`` opens a file: all ranks share errors of their arguments, and each gets one handle on a session.

Knows: communicators, hint files, the registry of open files. Does not know: what arguments mean (`arguments`), how a
session reads a header.

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
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pnc_vol.api.arguments import check, collective_timeout, hints_file, refuse_in_memory
from pnc_vol.api.ids import DatasetID, FileID, Given, GroupID, Handle, ObjectID, TypeID
from pnc_vol.api.objects import class_of
from pnc_vol.drivers.base import Driver
from pnc_vol.errors import CollectiveMismatchError, DefinitionError, OperationError, PncVolError
from pnc_vol.file.joining import open_shared
from pnc_vol.file.opening import Opening
from pnc_vol.file.registry import watch
from pnc_vol.late import late, load
from pnc_vol.ranks import comm as communicators
from pnc_vol.ranks.comm import ranks_by_text
from pnc_vol.system import closing_if_it_fails
from pnc_vol.warn import held_warnings, warn_outside

if TYPE_CHECKING:
    from pnc_vol.api import hints
    from pnc_vol.drivers import fileobj, memory
    from pnc_vol.drivers.memory import MemoryDriver
    from pnc_vol.file.open_file import OpenFile
    from pnc_vol.ranks import mpi_comm
else:
    # most programs open files by their path, without a hint file
    hints, fileobj, memory = late("pnc_vol.api.hints"), late("pnc_vol.drivers.fileobj"), late("pnc_vol.drivers.memory")
    mpi_comm = late("pnc_vol.ranks.mpi_comm")

__all__ = ["Given", "open_handle", "reopened", "root_in_memory", "start_swmr"]


def open_handle(given: Given) -> Handle:
    """Open a file, or share a session that is open; collective if there is a communicator.

    Raises
    ------
    OSError, ValueError, TypeError, KeyError
        As `File`.
    """
    if given.comm is not None:
        return _opened_by_ranks(given)
    in_file = hints_file(given)
    return _opened(communicators.serial(), *check(given, hints.read_hint_file(in_file) if in_file else None))


def root_in_memory(file_image: Any, keywords: dict[str, Any]) -> MemoryDriver:
    """Return the driver of a file that is kept in memory; see `File.in_memory`.

    Raises
    ------
    TypeError
        A keyword that means nothing for such a file, or an image that is no bytes-like object.
    """
    refuse_in_memory(file_image, keywords)
    return memory.MemoryDriver(memoryview(file_image).cast("B") if file_image else b"")


def _opened_by_ranks(given: Given) -> Handle:
    """Open a file on all ranks: an error of one is raised on all, and a warning that all have is shown once.

    A hint file is read by rank 0, after an exchange that says whether all name the same one.
    """
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
        ranks = mpi_comm.over(given.comm, timeout=timeout, file=file)
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
            checked = hints.prepared_from_file(ranks, in_file, lambda from_file: check(given, from_file))
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
        opening.driver = fileobj.FileObjectDriver(opening.target, writable=opening.writable, system=system)
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
    load(["pnc_vol.api.file"])
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
