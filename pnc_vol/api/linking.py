"""Links of groups are made, shown, and followed into other files.

Knows: entries of `mapping.links`, h5py's link classes, how a file is opened. Does not know: data.

Rules
-----
1. An external link is followed when its object is asked for, never otherwise. A relative name is looked for beside the
   file that has the link, then in the working directory, as in HDF5.
2. Whatever is wrong with the other file is a KeyError, as in h5py. It says nothing of what is in that file.
3. A file that is not trusted may name any file: links lead to files below the folder of their own file, symbolic links
   resolved, unless the option ``external_links`` says otherwise. (h5py has no such limit.)
4. Links that lead from file to file are followed at most `MOST_STEPS` times, so that a circle ends.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from pnc_vol.api import hdf5_files, paths
from pnc_vol.api.ids import Handle, ObjectID
from pnc_vol.api.objects import ExternalLink, HardLink, HLObject, SoftLink, class_of
from pnc_vol.errors import (
    BlockedPathError,
    DefinitionError,
    FormatError,
    LockedError,
    MissingPackageError,
    NotCDFError,
    NotFoundError,
    OperationError,
    OtherFileError,
)  # fmt: skip
from pnc_vol.mapping.dtypes import element_for
from pnc_vol.mapping.links import MOST_STEPS, External, Hard, Soft, TypeNode, remove, remove_link
from pnc_vol.system import exists

if TYPE_CHECKING:
    from pnc_vol.api.group import Group
    from pnc_vol.mapping.tree import GroupNode

__all__ = [
    "follow", "group_outside", "link_at", "make_link", "may_open", "moved_link", "one_step", "open_other", "places",
    "remove", "remove_link", "why_not",
]  # fmt: skip


_STEPS: ContextVar[int] = ContextVar("_STEPS", default=0)
"""External links that are being followed, one out of the file of the other."""


def make_link(group: Group, name: Any, obj: Any) -> None:
    """Give a group a soft, external or hard link, or a named type.

    Raises
    ------
    OSError
        The name is taken.
    TypeError
        A type that cannot be stored.
    OtherFileError
        An object of another file: an OSError, and a RuntimeError.
    """
    session = group._id.check()
    node = group.id.node
    slot = paths.slot(node, name, "create link")
    slot.check_free("create link", as_link=True)
    group.id.handle.check_writable("create link")
    if isinstance(obj, SoftLink):
        entry: Any = Soft(_short(obj.path))
    elif isinstance(obj, ExternalLink):
        entry = External(obj.filename, _short(obj.path))
    elif isinstance(obj, np.dtype):
        dtype = element_for(obj).dtype
        above = slot.open()
        session.defs.tree.add_link(above, slot.leaf, TypeNode(session.defs.tree, slot.leaf, above, (), dtype))
        return
    else:
        obj._id.check()
        target = obj.id.node
        if target.tree is not session.defs.tree:
            raise OtherFileError(f"{target.path!r} is in another file: only an ExternalLink can refer to it")
        if target.parent is None and target is not session.defs.tree.root:
            # it had no name until now: this is its place
            session.defs.tree.move(target, slot.open(), slot.leaf)
            return
        entry = Hard(target)
    session.defs.tree.add_link(slot.open(), slot.leaf, entry)


def _short(path: str) -> str:
    """Return a path as HDF5 keeps it: without a slash too many."""
    return ("/" if path.startswith("/") else "") + "/".join(part for part in path.split("/") if part)


def link_at(group: Group, name: Any) -> Any:
    """Return the link of that name as h5py's object; None if there is none."""
    try:
        found = paths.link_of(group.id.node, name)
    except paths.LeadsOutside as outside:
        problem = outside.with_traceback(None)
        try:
            there: Any = follow(group.id, problem.outside)
        except KeyError:
            return None
        return there.get(problem.rest, getlink=True) if isinstance(there, class_of("group")) else None
    if found is None:
        # the root, or something in another file
        return HardLink() if name in group else None
    above, leaf = found
    entry = above.links.get(leaf)
    if isinstance(entry, Soft):
        return SoftLink(entry.path)
    if isinstance(entry, External):
        return ExternalLink(entry.filename, entry.path)
    return HardLink()


def moved_link(above: GroupNode, name: str, slot: paths.Slot) -> None:
    """Move a link, which is no object's place, from a group to a free place."""
    entry = above.links.pop(name)
    target = slot.open()
    if isinstance(entry, TypeNode):
        entry.parent, entry.name = target, slot.leaf
    above.tree.add_link(target, slot.leaf, entry)


def access(oid: ObjectID, mode: str | None = None, swmr: bool | None = None) -> tuple[str, bool]:
    """Return how another file is opened, the mode and the SWMR flag, as `Group.get` was told or the file of the link
    is.

    Raises
    ------
    ValueError
        It is to be opened for writing from a file that is open for reading, or in another way from one whose
        `swmr_mode` is set.
    RuntimeError
        Another mode than ``"r"`` and ``"r+"``.
    """
    handle = oid.handle
    own = "r+" if handle.writable else "r"
    if own == "r" and mode == "r+":
        raise DefinitionError(f"elink_mode={mode!r}: the file with the link is open for reading")
    flag = handle.session.swmr or handle.swmr
    # Each rank follows a link by itself: as writers of the other file they would be locked out by one another.
    usual = "r" if handle.session.comm.size > 1 else own
    wanted = usual if mode is None else mode, flag if swmr is None else bool(swmr)
    if own == "r+" and flag and wanted != (usual, True):
        raise DefinitionError("swmr_mode of the file with the link is set: other files are opened with the same mode")
    if wanted[0] not in ("r", "r+"):
        raise OperationError(f"Unsupported link access mode: {mode}")
    return wanted


def follow(oid: ObjectID, outside: paths.Outside, mode: str | None = None, swmr: bool | None = None) -> HLObject:
    """Return the object of another file that an external link leads to.

    Parameters
    ----------
    mode, swmr : optional
        To open the file with; by default as the file of the link is open.

    Raises
    ------
    KeyError
        No such file, or no such object in it.
    """
    mode, swmr = access(oid, mode, swmr)
    with one_step() as allowed:
        if not allowed:
            raise NotFoundError(
                f"Unable to open the external link to {outside.filename!r}: it is link number {MOST_STEPS} from file "
                "to file; the links form a circle"
            )
        return _followed(oid, outside, mode, swmr and mode == "r")


def group_outside(oid: ObjectID, problem: paths.LeadsOutside) -> Group:
    """Return the group of another file in which a path goes on.

    Raises
    ------
    BlockedPathError
        It leads nowhere, or to something else.
    """
    try:
        there = follow(oid, problem.outside)
    except NotFoundError as missing:
        raise BlockedPathError(f"{problem}: {missing}") from None
    if not isinstance(there, class_of("group")) or hdf5_files.is_foreign(there):
        raise BlockedPathError(f"{problem}: {there!r} is there, and no group of a NetCDF file")
    return there  # type: ignore[no-any-return]


def move_outside(group: Group, source: str | bytes, dest: str | bytes) -> None:
    """Move a link from a path to another one, of which at least one leads into another file.

    Raises
    ------
    DefinitionError
        They do not lead into the same file.
    """
    ends: list[paths.LeadsOutside] = []
    for look in (lambda: paths.link_of(group.id.node, source), lambda: paths.slot(group.id.node, dest, "move link")):
        try:
            look()
        except paths.LeadsOutside as end:
            # without its traceback, whose frames would keep the other file open
            ends.append(end.with_traceback(None))
    if len(ends) == 2:
        there, to = (group_outside(group.id, end) for end in ends)
        if there.file == to.file:
            there.move(ends[0].rest, posixpath.join(to.name or "/", ends[1].rest))
            return
    raise DefinitionError(f"Unable to move link: {ends[0]}, and a link stays in its file")


@contextlib.contextmanager
def one_step() -> Iterator[bool]:
    """Read what a file names in the block; yield whether it is one of at most `MOST_STEPS`, one out of another."""
    token = _STEPS.set(_STEPS.get() + 1)
    try:
        yield _STEPS.get() <= MOST_STEPS
    finally:
        _STEPS.reset(token)


def _followed(oid: ObjectID, outside: paths.Outside, mode: str, swmr: bool) -> HLObject:
    file, problem = open_other(oid, outside.filename, mode, swmr)
    if file is None:
        why = why_not(problem, oid.handle)
        raise NotFoundError(f"Unable to open the external link to {outside.filename!r}: {why}") from None
    try:
        return file[outside.path or "/"]  # type: ignore[no-any-return]
    except BaseException:
        if getattr(file.id, "handle", None) is not oid.handle:
            file.close()
        raise


def open_other(
    oid: ObjectID, filename: str, mode: str, swmr: bool = False, prefix: str = ""
) -> tuple[Any, Exception | None]:
    """Open a file that a file names, by the rules of external links.

    Parameters
    ----------
    prefix : str, a folder to look in first.

    Returns
    -------
    file : File, or None
    problem : why it cannot be opened, None if links may not lead to a file that is there.
    """
    handle = oid.handle
    if "\0" in filename:
        # no file has such a name, which the system takes for a mistake of the program
        return None, FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    file_class, options = class_of("file"), handle.session.options
    problem: Exception | None = None
    refused = False
    for path, real in places(handle, filename, prefix):
        if handle.session.comm.size > 1 and real == handle.real:
            # one rank alone may follow a link, and could not open the file that all share
            return file_class(oid), None
        if not may_open(real, handle):
            # One that HDF5 would find in the working directory is not the same as none.
            refused = refused or exists(options.system, real)
            continue
        try:
            return file_class(path, mode, swmr=swmr, external_links=options.external_links, system=options.system), None
        except OSError as error:
            if problem is None or isinstance(problem, FileNotFoundError):
                # its traceback would keep this frame, and so all that its callers have open
                problem = error.with_traceback(None)
            # Where only `flock` locks files, a file that the HDF5 library reads is locked before its header is read.
            if isinstance(error, NotCDFError | LockedError) and hdf5_files.is_hdf5(path):
                # Only to be read, whatever this file is open for.
                with contextlib.suppress(MissingPackageError):
                    return hdf5_files.open_as_is(path), None
                problem = MissingPackageError('reading HDF5 files needs h5py: pip install "pnc-vol[hdf5]"')
    return None, None if refused and isinstance(problem, FileNotFoundError) else problem


def places(handle: Handle, filename: str, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield where a file that a file names may be, and the same without symbolic links."""
    folder = handle.folder
    first = [os.path.join(prefix.replace("${ORIGIN}", folder), filename)] if prefix else []
    for path in dict.fromkeys((*first, os.path.join(folder, filename), filename)):
        yield path, handle.session.options.system.realpath(path)


def may_open(real: str, handle: Handle) -> bool:
    """Return whether a file may name that one; see the option ``external_links``."""
    allowed = handle.session.options.external_links
    return allowed == "any" or (allowed == "below" and _below(real, handle.folder))


def _below(path: str, folder: str) -> bool:
    """Return whether a resolved path is below a folder; nothing is below "", which stands for no folder."""
    return bool(folder) and os.path.commonpath((folder, path)) == folder


def why_not(problem: Exception | None, handle: Handle) -> str:
    """Return what is wrong with a link, without a byte of the file that it leads to."""
    options = handle.session.options
    if problem is None:
        if options.external_links == "none":
            return "external links are not followed (external_links='none')"
        if not handle.folder:
            return "its own file has no folder; if you trust it, open it with external_links='any'"
        return "it leads out of the folder of its own file; if you trust that, open the file with external_links='any'"
    if isinstance(problem, FileNotFoundError):
        return "there is no such file"
    if isinstance(problem, MissingPackageError):
        return str(problem)
    if isinstance(problem, FormatError):
        return "the file is no NetCDF classic file, or a damaged one"
    if type(problem) is OSError and problem.errno is None:
        # this process has it open in another way
        return str(problem)
    return os.strerror(problem.errno) if isinstance(problem, OSError) and problem.errno else type(problem).__name__
