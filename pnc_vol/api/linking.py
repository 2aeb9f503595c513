"""Links of groups: made, shown, followed into other files.

Knows: entries of `mapping.links`, h5py's link classes, how a file is opened. Does not know: data.

Rules
-----
1. An external link is followed when its object is asked for, never otherwise. A relative name is looked for beside the
   file that has the link, then in the working directory, as in HDF5.
2. Whatever is wrong with the other file is a KeyError, as in h5py.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from pnc_vol.api import paths
from pnc_vol.api.ids import ObjectID
from pnc_vol.api.links import ExternalLink, HardLink, SoftLink
from pnc_vol.api.objects import HLObject
from pnc_vol.errors import DefinitionError, NotFoundError, OperationError
from pnc_vol.mapping.attributes import Attributes
from pnc_vol.mapping.dtypes import element_for
from pnc_vol.mapping.links import External, Hard, Soft, TypeNode
from pnc_vol.mapping.tree import GroupNode

if TYPE_CHECKING:
    from pnc_vol.api.group import Group

__all__ = ["expander", "follow", "link_at", "make_link", "moved_link"]


def make_link(group: Group, name: Any, obj: Any) -> None:
    """Give a group a soft, external or hard link, or a named type.

    Raises
    ------
    OSError
        The name is taken.
    TypeError
        A type that cannot be stored.
    RuntimeError
        An object of another file.
    """
    session = group._check()
    node = group.id.node
    slot = paths.slot(node, name, "create link")
    slot.check_free("create link", as_link=True)
    session.check_writable("create link")
    if isinstance(obj, SoftLink):
        entry: Any = Soft(_short(obj.path))
    elif isinstance(obj, ExternalLink):
        entry = External(obj.filename, _short(obj.path))
    elif isinstance(obj, np.dtype):
        dtype = element_for(obj).dtype
        above = slot.open()
        session.tree.add_link(above, slot.leaf, TypeNode(session.tree, slot.leaf, above, Attributes(), dtype))
        return
    else:
        obj._check()
        target = obj.id.node
        if target.tree is not session.tree:
            raise OperationError(f"{target.path!r} is in another file: only an ExternalLink can lead there")
        if target.parent is None and target is not session.tree.root:
            # it had no name until now: this is its place
            session.tree.move(target, slot.open(), slot.leaf)
            return
        if isinstance(target, TypeNode):
            raise OperationError(f"{target.path!r} is a named type: it can have one name only")
        entry = Hard(target)
    session.tree.add_link(slot.open(), slot.leaf, entry)


def _short(path: str) -> str:
    """As HDF5 keeps it: without a slash too many."""
    return ("/" if path.startswith("/") else "") + "/".join(part for part in path.split("/") if part)


def link_at(group: Group, name: Any) -> Any:
    """The link of that name as h5py's object; None if there is none."""
    found = paths.link_of(group.id.node, name)
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


def moved_link(group: Group, source: Any, slot: paths.Slot) -> bool:
    """Move a link, if `source` is one and not an object's place; True if it was."""
    found = paths.link_of(group.id.node, source)
    if found is None or found[1] not in found[0].links:
        return False
    above, leaf = found
    entry = above.links.pop(leaf)
    target = slot.open()
    if isinstance(entry, TypeNode):
        entry.parent, entry.name = target, slot.leaf
    group.id.node.tree.add_link(target, slot.leaf, entry)
    return True


def access(oid: ObjectID, mode: str | None = None, swmr: bool | None = None) -> tuple[str, bool]:
    """How another file is opened, the mode and the SWMR flag, as `Group.get` was told or the file of the link is.

    Raises
    ------
    ValueError
        It is to be opened for writing from a file that is open for reading, or in another way from one whose
        `swmr_mode` is set.
    RuntimeError
        Another mode than ``"r"`` and ``"r+"``.
    """
    handle = oid.handle
    own = "r+" if handle.session.writable else "r"
    if own == "r" and mode == "r+":
        raise DefinitionError(f"elink_mode={mode!r}: the file that has the link is open for reading")
    flag = handle.session.swmr or handle.swmr
    wanted = own if mode is None else mode, flag if swmr is None else bool(swmr)
    if own == "r+" and flag and wanted != ("r+", True):
        raise DefinitionError("swmr_mode of the file that has the link is set: others are opened from it in this way")
    if wanted[0] not in ("r", "r+"):
        raise OperationError(f"Unsupported link access mode: {mode}")
    return wanted


def follow(oid: ObjectID, outside: paths.Outside, mode: str | None = None, swmr: bool | None = None) -> HLObject:
    """The object of another file that an external link leads to.

    Parameters
    ----------
    mode, swmr : optional
        To open the file with; by default as the file of the link is open.

    Raises
    ------
    KeyError
        No such file, or no such object in it.
    """
    from pnc_vol.api.file import File

    handle = oid.handle
    mode, swmr = access(oid, mode, swmr)
    filename = outside.filename
    beside = os.path.join(os.path.dirname(handle.real), filename)
    problem: Exception | None = None
    for path in dict.fromkeys((beside, filename)):
        if handle.session.comm.size > 1 and handle.session.options.system.realpath(path) == handle.real:
            # one rank alone may follow a link, and could not open the file that all share
            return File(oid)[outside.path or "/"]  # type: ignore[no-any-return]
        try:
            file = File(path, mode, swmr=swmr and mode == "r")
        except OSError as error:
            problem = error if problem is None or isinstance(problem, FileNotFoundError) else problem
            continue
        return file[outside.path or "/"]  # type: ignore[no-any-return]
    raise NotFoundError(f"Unable to open the external link to {filename!r}: {problem}")


def expander(oid: ObjectID, *, soft: bool, external: bool) -> Any:
    """What `copy_object` copies in the place of a link."""
    opened: list[HLObject] = []

    def expand(group: GroupNode, entry: Any) -> Any:
        outside: Any = None
        if isinstance(entry, Soft) and soft:
            outside = paths.lookup(group, entry.path)
        elif isinstance(entry, External) and external:
            outside = paths.Outside(entry.filename, entry.path)
        if outside is None or not isinstance(outside, paths.Outside):
            return None if outside is None else (oid.handle.session, outside)
        try:
            found = follow(oid, outside, None if oid.handle.session.swmr else "r")
        except KeyError:
            return None
        # the file stays open as long as this copy goes on
        opened.append(found)
        return found.id.handle.session, found.id.node

    return expand
