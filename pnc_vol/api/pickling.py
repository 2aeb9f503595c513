"""Handles can be pickled if their file is open for reading; the pickle opens the file again.

Knows: the arguments that a file was opened with, paths of objects. Does not know: pickles; bytes of files.

Rules
-----
1. A pickle holds no data: the name of the file, the keywords of `File`, and the path of the object. Whoever loads it
   opens the file with mode ``"r"``; in a process that has it open this is one more handle on the same session.
2. What the pickle would not bring along is refused with the reason: posted writes, the bytes of a file in memory, a
   Python object that is the file, a communicator, an object without a name.
3. A path is made absolute, since the other process may have another working directory; an address stays as it is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pnc_vol.api.ids import FileID, Handle, ObjectID
from pnc_vol.api.objects import class_of
from pnc_vol.late import load

__all__ = ["reduced", "reopened"]


def reduced(oid: ObjectID) -> tuple[Any, ...]:
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
    found: ObjectID = file.id if whole else file[name].id
    return found


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
