"""Groups: h5py's `Group`, a mapping from names to groups and datasets.

Knows: paths, the tree. Making things is `creating.py`'s. Does not know: data, requests, headers.

Rules
-----
1. Members are listed by name, as h5py lists them, whatever the order of creation.
2. A change is checked whole before anything is changed: a refused ``create_dataset("a/b/c")`` makes no group.
3. All links are hard links with one name each; anything else is refused by name (`NotYetError`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from pnc_vol.api import create, paths
from pnc_vol.api.creating import Creating
from pnc_vol.api.dataset import Dataset
from pnc_vol.api.ids import DatasetID, GroupID, ObjectID
from pnc_vol.api.links import ExternalLink, HardLink, SoftLink
from pnc_vol.api.objects import HLObject
from pnc_vol.errors import DefinitionError, NotFoundError, NotYetError, OperationError, ReadOnlyKeyError
from pnc_vol.mapping.tree import DatasetNode, GroupNode

__all__ = ["Group"]

Found = GroupNode | DatasetNode


class Group(Creating):
    """A group of a file.

    Parameters
    ----------
    bind : GroupID
        The `id` of another `Group`, or of a `File`.

    Examples
    --------
    >>> import pnc_vol
    >>> with pnc_vol.File("example.nc", "w", driver="memory") as f:
    ...     g = f.create_group("model/run")
    ...     g["t"] = [1.0, 2.0]
    ...     list(f), f["model/run/t"].shape
    (['model'], (2,))
    """

    def __init__(self, bind: ObjectID) -> None:
        if not isinstance(bind, GroupID):
            raise ValueError(f"{bind} is not a GroupID")
        super().__init__(bind)

    def _wrap(self, node: Found) -> Group | Dataset:
        if isinstance(node, DatasetNode):
            return Dataset(DatasetID(self._id.handle, node))
        return Group(GroupID(self._id.handle, node))

    # ------------------------------------------------------------------------------------- the mapping

    def __getitem__(self, name: Any) -> Any:
        """The object of that path.

        Raises
        ------
        KeyError
            There is none.
        """
        if not isinstance(name, (str, bytes)):
            if type(name).__name__ in ("Reference", "RegionReference"):
                return self._referred(name)
            raise TypeError(f"Accessing a group is done with bytes or str, not {type(name)}")
        session = self._id.check_for_name()
        with session.lock:
            return self._wrap(paths.find(self._node, name))

    def _referred(self, reference: Any) -> Any:
        """The object that a reference names.

        Raises
        ------
        ValueError
            It is null.
        KeyError
            Its object is gone.
        """
        session = self._id.check_for_name()
        if not reference:
            raise DefinitionError("Invalid HDF5 object reference: it is null")
        with session.lock:
            return self._wrap(paths.find(session.tree.root, reference.path))

    def get(
        self,
        name: str | bytes,
        default: Any = None,
        getclass: bool = False,
        getlink: bool = False,
        elink_mode: Any = None,
        elink_locking: Any = None,
        elink_swmr: Any = None,
    ) -> Any:
        """The object of that path, or `default`.

        Parameters
        ----------
        name : str
        default : object
        getclass : bool
            Give the object's class.
        getlink : bool
            Give the link (always a `HardLink`), or with `getclass` its class.
        elink_mode, elink_locking, elink_swmr
            Accepted; there are no external links.
        """
        if not (getclass or getlink):
            try:
                return self[name]
            except KeyError:
                return default
        if name not in self:
            return default
        if getlink:
            return HardLink if getclass else HardLink()
        return Dataset if isinstance(self[name], Dataset) else Group

    def __setitem__(self, name: Any, obj: Any) -> None:
        """Make a dataset of the value.

        Raises
        ------
        OSError
            The name is taken.
        NotYetError
            Links to objects, and named types.
        """
        if isinstance(obj, (HLObject, SoftLink, ExternalLink)):
            what = "a second (hard) link to an object" if isinstance(obj, HLObject) else f"{obj!r}"
            raise NotYetError(f"{what} cannot be stored; use copy() or move(), or keep the path as a string attribute")
        if isinstance(obj, np.dtype):
            raise NotYetError(f"{obj!r}: named types cannot be stored; give the dtype where it is used")
        if name is None:
            raise TypeError("expected bytes, NoneType found")
        session = self._check()
        with session.lock:
            slot = paths.slot(self._node, name, "create link")
            plan = create.plan(None, None, obj, {})
            create.check_version(slot.asked, plan.element, plan.shape, session.version)
            slot.check_free("create link", as_link=True)
            session.check_writable("create dataset")
            self._make(slot, plan)

    def __delitem__(self, name: str | bytes) -> None:
        """Delete an object and all below it.

        Raises
        ------
        KeyError
            There is none; or the file is open for reading.
        """
        session = self._check()
        with session.lock:
            if not paths.text_of(name):
                raise DefinitionError("Couldn't delete link (the name is an empty string)")
            node = paths.find(self._node, name)
            if node.parent is None:
                raise NotFoundError("Couldn't delete link (the root group cannot be deleted)")
            if not session.writable:
                raise ReadOnlyKeyError(f"Couldn't delete link {name!r} (no write intent on file)")
            session.tree.remove(node)

    def __len__(self) -> int:
        self._check()
        return len(self._node.children)

    def __iter__(self) -> Iterator[str]:
        session = self._check()
        with session.lock:
            names = sorted(self._node.children)
        yield from names

    def __reversed__(self) -> Iterator[str]:
        yield from reversed(list(self))

    def __contains__(self, name: object) -> bool:
        if not self._id:
            return False
        return paths.lookup(self._node, name) is not None

    def clear(self) -> None:
        """Delete all members.

        Raises
        ------
        KeyError
            The file is open for reading.
        """
        for name in list(self):
            del self[name]

    # ------------------------------------------------------------------------------- moving and copying

    def move(self, source: str | bytes, dest: str | bytes) -> None:
        """Give an object another path; groups on the way to it are made.

        Raises
        ------
        ValueError
            There is no such object, the new path is taken or lies inside the object, or the file is open for reading.
        """
        if source == dest:
            return
        session = self._check()
        with session.lock:
            node = paths.lookup(self._node, source)
            if node is None:
                raise DefinitionError(f"Unable to move link (name doesn't exist): {source!r}")
            slot = paths.slot(self._node, dest, "move link")
            slot.check_free("move link")
            above: GroupNode | None = slot.group
            while above is not None:
                if above is node:
                    raise DefinitionError(f"Unable to move link: {dest!r} is inside {source!r}")
                above = above.parent
            session.check_writable("move link")
            session.tree.move(node, slot.open(), slot.leaf)

    def copy(
        self,
        source: Any,
        dest: Any,
        name: str | bytes | None = None,
        shallow: bool = False,
        expand_soft: bool = False,
        expand_external: bool = False,
        expand_refs: bool = False,
        without_attrs: bool = False,
    ) -> None:
        """Copy an object, within a file or to another file.

        Parameters
        ----------
        source : str, Group or Dataset
        dest : str or Group
            A new path, or the group to put the copy in.
        name : str, optional
            The copy's name in the group `dest`; by default the source's own.
        shallow : bool
            Of a group, copy only the immediate members.
        expand_soft, expand_external : bool
            Accepted; there are no soft or external links.
        expand_refs : bool
            Not supported: references in what is copied keep their paths.
        without_attrs : bool
            Leave the attributes behind.

        Raises
        ------
        RuntimeError
            There is no such object, or the new path is taken.
        KeyError
            There is no such object, and `dest` is a group.
        TypeError
            `dest` is a dataset.
        """
        from pnc_vol.api.copying import copy_object

        if expand_refs:
            raise NotYetError("copy(expand_refs=True) is not supported; copy what is referred to as well")
        origin = source if isinstance(source, HLObject) else self
        if isinstance(dest, HLObject) and not isinstance(dest, Group):
            raise TypeError("Destination must be path or Group object")
        target = dest if isinstance(dest, Group) else self
        reading, writing = origin._check(), target._check()
        with contextlib.ExitStack() as stack:
            # always in the same order, so that two copies in opposite directions cannot block each other
            for session in sorted({reading, writing}, key=id):
                stack.enter_context(session.lock)
            node = origin._id.node if isinstance(source, HLObject) else paths.lookup(self._node, source)
            if node is None:
                # h5py looks the source up for its name when it gets none: a KeyError there
                missing = NotFoundError if isinstance(dest, Group) and name is None else OperationError
                raise missing(f"Unable to copy object (object {source!r} doesn't exist)")
            if isinstance(dest, Group):
                dest = node.name if name is None else name
            slot = paths.slot(target._node, dest, "copy object")
            if not slot.leaf or (not slot.missing and slot.leaf in slot.group.children):
                raise OperationError(f"Unable to copy object to {dest!r} (destination object already exists)")
            writing.check_writable("copy object")
            copy_object(reading, node, writing, slot, shallow=shallow, with_attrs=not without_attrs)

    # --------------------------------------------------------------------------------------- visiting

    def visit(self, func: Callable[[str], Any]) -> Any:
        """Call `func` with the path of each object below this group, sorted; stop at the first result.

        Returns
        -------
        object
            The first thing that `func` returned which is not None.
        """
        return self._visited(lambda path, node: func(path))

    def visititems(self, func: Callable[[str, Any], Any]) -> Any:
        """As `visit`, with the object as a second argument."""
        return self._visited(lambda path, node: func(path, self._wrap(node)))

    def visit_links(self, func: Callable[[str], Any]) -> Any:
        """As `visit`: every object has one link."""
        return self.visit(func)

    def visititems_links(self, func: Callable[[str, Any], Any]) -> Any:
        """As `visit`, with a `HardLink` as a second argument."""
        return self._visited(lambda path, node: func(path, HardLink()))

    def _visited(self, func: Callable[[str, Found], Any]) -> Any:
        session = self._check()
        with session.lock:
            listed = list(_walk(self._node, ""))
        for path, node in listed:
            result = func(path, node)
            if result is not None:
                return result
        return None

    def __repr__(self) -> str:
        if not self:
            return "<Closed HDF5 group>"
        return f'<HDF5 group "{self.name}" ({len(self)} members)>'


def _walk(group: GroupNode, prefix: str) -> Iterator[tuple[str, Found]]:
    """Paths and nodes below a group, parents first, each level by name."""
    for name in sorted(group.children):
        node = group.children[name]
        yield prefix + name, node
        if isinstance(node, GroupNode):
            yield from _walk(node, f"{prefix}{name}/")
