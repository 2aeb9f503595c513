"""`Group` is h5py's: a mapping from names to groups and datasets.

Knows: paths, the tree. Making things is `creating.py`'s. Does not know: data, requests, headers.

Rules
-----
1. Members are listed by name, as h5py lists them, or with `track_order` in the order of their creation.
2. A change is checked whole before anything is changed: a refused ``create_dataset("a/b/c")`` makes no group.
3. Links other than an object's own place are `linking.py`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from pnc_vol.api import paths
from pnc_vol.api.creating import Creating, also_outside
from pnc_vol.api.dataset import Dataset, dataset_of
from pnc_vol.api.ids import GroupID, ObjectID
from pnc_vol.api.mappings import Visiting
from pnc_vol.api.module import get_config
from pnc_vol.api.objects import ExternalLink, HLObject, SoftLink, stands_for, wrap
from pnc_vol.errors import DefinitionError, NotFoundError, OtherFileError, ReadOnlyKeyError, printable
from pnc_vol.late import late
from pnc_vol.mapping.tree import DatasetNode, GroupNode

if TYPE_CHECKING:
    from pnc_vol.api import linking
else:
    # few programs make or follow links
    linking = late("pnc_vol.api.linking")

__all__ = ["Group"]

Found = GroupNode | DatasetNode


@stands_for("group")
class Group(Creating, Visiting):
    """A group of a file.

    Parameters
    ----------
    bind : GroupID
        The `id` of another `Group`, or of a `File`.

    Raises
    ------
    ValueError
        Not a `GroupID`.

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

    # before that of a mapping, which knows only its own names
    _ipython_key_completions_ = Visiting._ipython_key_completions_

    def _wrap(self, node: Found | paths.Outside, name: object = None) -> Any:
        """Return the object of a node, to which `name` led from here."""
        if type(node) is DatasetNode:
            return self._named(dataset_of(self._id.handle, node), name)
        if isinstance(node, GroupNode):
            return self._named(Group(GroupID(self._id.handle, node)), name)
        if isinstance(node, paths.Outside):
            return linking.follow(self._id, node)
        return self._named(wrap(self._id.handle, node), name)

    # ------------------------------------------------------------------------------------- the mapping

    def __getitem__(self, name: Any) -> Any:
        """Return the object of that path.

        Raises
        ------
        KeyError
            There is none.
        """
        if type(name) is str:
            # What most names are: a dataset's of this group. One look at a table, which needs no lock.
            oid = self._id
            oid.check_for_name()
            member = oid.node.children.get(name)
            if type(member) is DatasetNode and oid.reached is None:
                return dataset_of(oid.handle, member)
        elif not isinstance(name, bytes):
            if type(name).__name__ in ("Reference", "RegionReference"):
                return self._referred(name)
            raise TypeError(f"Accessing a group is done with bytes or str, not {type(name)}")
        oid = self._id
        session = oid.check_for_name()
        with session.lock:
            session.check_open()
            return self._wrap(paths.find(oid.node, name), name)

    def _referred(self, reference: Any) -> Any:
        """Return the object that a reference names.

        Raises
        ------
        ValueError
            It is null, or one of the real h5py.
        KeyError
            Its object is gone.
        """
        session = self._id.check_for_name()
        if not reference:
            raise DefinitionError("Invalid HDF5 object reference: it is null")
        if not hasattr(reference, "path"):
            raise DefinitionError("Invalid HDF5 object reference: it is of an HDF5 file; use it with that file")
        with session.lock:
            session.check_open()
            return self._wrap(paths.find(session.defs.tree.root, reference.path))

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
        """Return the object of that path, or `default`.

        Parameters
        ----------
        name : str
        default : object
        getclass : bool
            Give the object's class.
        getlink : bool
            Give the link: a `HardLink`, `SoftLink` or `ExternalLink`; or with `getclass` its class.
        elink_mode : str, optional
            To open another file with, if an external link leads there.
        elink_swmr : bool, optional
            `File.swmr_mode` of that file, if it is opened for reading.
        elink_locking
            Accepted; files are not locked.

        Raises
        ------
        ValueError
            `elink_mode` asks for writing, and this file is open for reading; or either of them is another one than this
            file has, and its `swmr_mode` was set.
        RuntimeError
            Another mode than ``"r"`` and ``"r+"``.
        """
        if getlink:
            link = linking.link_at(self, name)
            return default if link is None else type(link) if getclass else link
        try:
            plain = elink_mode is None and elink_swmr is None
            found = self[name] if plain else self._opened(name, elink_mode, elink_swmr)
        except KeyError:
            return default
        if not getclass:
            return found
        # Also of what the real h5py has opened.
        return next((kind for kind in (Group, Dataset) if isinstance(found, kind)), type(found))

    def _opened(self, name: Any, elink_mode: Any, elink_swmr: Any) -> Any:
        session = self._id.check_for_name()
        how = linking.access(self._id, elink_mode, elink_swmr)
        with session.lock:
            session.check_open()
            node = paths.find(self._node, name)
            return linking.follow(self._id, node, *how) if isinstance(node, paths.Outside) else self._wrap(node, name)

    def __setitem__(self, name: Any, obj: Any) -> None:
        """Make a dataset of the value; a link, if it is an object of this file or a link; a named type, if it is a
        dtype.

        Raises
        ------
        OSError
            The name is taken; or it is in another file, where values are stored by `create_dataset` alone.
        """
        if name is None:
            raise TypeError("expected bytes, NoneType found")
        session = self._id.check()
        with session.lock:
            session.check_open()
            # first what is asked for most; links are asked for by classes that other classes can be registered with
            if self._made_plainly(session, name, None, None, obj) is not None:
                return
        self._set_item(name, obj)

    def _set_item(self, name: Any, obj: Any) -> None:
        """Do as `__setitem__` does with any object."""
        session = self._id.check()
        with session.lock:
            session.check_open()
            if type(obj).__module__.startswith("h5py."):
                from pnc_vol.api.hdf5_files import given

                obj = given(obj)
            if HLObject in type(obj).__mro__ or isinstance(obj, (SoftLink, ExternalLink, np.dtype)):
                self._set_link(name, obj)
                return
            options = {"track_order": True} if get_config().track_order else {}
            try:
                self._made(session, name, None, None, obj, options, as_link=True)
            except paths.LeadsOutside as link:
                # as h5py, which makes the dataset in this file and then links it
                raise OtherFileError(f"{link}; use create_dataset to make it there") from None

    @also_outside
    def _set_link(self, name: Any, obj: Any) -> None:
        linking.make_link(self, name, obj)

    @also_outside
    def __delitem__(self, name: str | bytes) -> None:
        """Delete an object and all below it.

        Raises
        ------
        KeyError
            There is none; or the file is open for reading.
        """
        session = self._id.check()
        with session.lock:
            session.check_open()
            text = paths.text_of(name, stored=True)
            if not text:
                raise DefinitionError("Couldn't delete link (the name is an empty string)")
            if not paths.components(text):
                raise NotFoundError("Couldn't delete link (a group cannot delete itself)")
            place = paths.link_of(self._node, name)
            if place is None:
                raise paths.missing(self._node, name, f"Couldn't delete link ({name!r} doesn't exist)")
            if not self._id.handle.writable:
                raise ReadOnlyKeyError(f"Couldn't delete link {name!r} (no write intent on file)")
            above, leaf = place
            if leaf in above.links:
                linking.remove_link(above, leaf)
            elif session.defs.tree.links:
                linking.remove(above.children[leaf])
            else:
                session.defs.tree.remove(above.children[leaf])

    def __len__(self) -> int:
        self._id.check()
        return len(self._node.children) + len(self._node.links)

    def __iter__(self) -> Iterator[str]:
        session = self._id.check()
        with session.lock:
            session.check_open()
            names = self._node.listed()
        yield from names

    def __reversed__(self) -> Iterator[str]:
        yield from reversed(list(self))

    def __contains__(self, name: object) -> bool:
        if not self._id:
            return False
        node = self._node
        if not node.tree.links:
            return paths.lookup(node, name) is not None
        if not paths.components(paths.text_of(name, stored=True)):
            return paths.lookup(node, name) is not None
        try:
            return paths.link_of(node, name) is not None
        except paths.LeadsOutside:
            # a member of a group of another file counts if there is an object
            return self.get(name) is not None  # type: ignore[arg-type]

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
        """Move an object to another path; missing groups on the way are created.

        Parameters
        ----------
        source, dest : str
            The old and the new path, relative to this group or absolute.

        Raises
        ------
        ValueError
            There is no such object, the new path is taken or lies inside the object, or the file is open for reading.

        Examples
        --------
        >>> with pnc_vol.File("move.nc", "w") as f:
        ...     f["draft"] = [1, 2]
        ...     f.move("draft", "results/final")
        ...     f["results/final"].shape
        (2,)
        """
        if source == dest:
            return
        try:
            self._move(source, dest)
        except paths.LeadsOutside:
            linking.move_outside(self, source, dest)

    def _move(self, source: str | bytes, dest: str | bytes) -> None:
        session = self._id.check()
        with session.lock:
            session.check_open()
            place = paths.link_of(self._node, source)
            if place is None:
                near = paths.missing(self._node, source, f"Unable to move link (name doesn't exist): {source!r}")
                raise DefinitionError(str(near))
            slot = paths.slot(self._node, dest, "move link")
            slot.check_free("move link")
            if place[1] in place[0].links:
                self._id.handle.check_writable("move link")
                linking.moved_link(*place, slot)
                return
            node = place[0].children[place[1]]
            above: GroupNode | None = slot.group
            while above is not None:
                if above is node:
                    raise DefinitionError(f"Unable to move link: {dest!r} is inside {source!r}")
                above = above.parent
            self._id.handle.check_writable("move link")
            session.defs.tree.move(node, slot.open(), slot.leaf)

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
            Copy what such links lead to in the place of the links.
        expand_refs : bool
            Copy what references in the copy name, too, beside the copy unless it is part of it, and let them name
            these copies. Otherwise they keep their paths.
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

        Examples
        --------
        >>> with pnc_vol.File("copy.nc", "w") as f:
        ...     f["run1/t"] = [1.0, 2.0]
        ...     f.copy("run1", "run2")
        ...     f["run2/t"][:].tolist()
        [1.0, 2.0]
        """
        from pnc_vol.api.copying import How, copy_into

        how = How(shallow, expand_soft, expand_external, expand_refs, not without_attrs)
        copy_into(self, source, dest, name, how)

    def __repr__(self) -> str:
        if not self:
            return "<Closed HDF5 group>"
        return printable(f'<HDF5 group "{self.name}" ({len(self)} members)>')
