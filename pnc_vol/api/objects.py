"""`HLObject` has what all objects of a file have in common; named types and h5py's link classes are here, too.

Knows: ids, attributes. Does not know: groups, datasets and files; their classes are registered here when they are
defined (`stands_for`), so that an object can give its parent and its file without a cycle of imports.

Rules
-----
1. An object is two references: its id, and through it the session and the node. It keeps no state of its own, so
   that any number of objects may stand for one dataset.
2. Whatever touches the tree or the data first calls ``self._id.check()``; a closed file or a deleted object is a
   `ClosedFileError` there. ``bool(obj)``, ``repr(obj)``, ``obj.id`` and ``==`` always work.
"""

from __future__ import annotations

import os
from abc import ABCMeta
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from pnc_vol.api import paths
from pnc_vol.api.ids import DatasetID, GroupID, Handle, ObjectID, TypeID
from pnc_vol.errors import DefinitionError, printable
from pnc_vol.mapping.dtypes import Reference
from pnc_vol.mapping.tree import DatasetNode, GroupNode

if TYPE_CHECKING:
    from pnc_vol.api.attrs import AttributeManager
    from pnc_vol.api.file import File
    from pnc_vol.api.group import Group
    from pnc_vol.api.regions import RegionProxy

__all__ = ["Datatype", "ExternalLink", "HLObject", "HardLink", "SoftLink", "class_of", "stands_for", "wrap"]

What = Literal["file", "group", "dataset"]
C = TypeVar("C", bound=type)

_classes: dict[str, Any] = {}
"""The class for each kind of object, registered by the module that defines it; that of attributes when it is used."""


def stands_for(what: What) -> Callable[[C], C]:
    """Register the class of a kind of object; a class decorator.

    Parameters
    ----------
    what : {"file", "group", "dataset"}
    """

    def register(cls: C) -> C:
        _classes[what] = cls
        return cls

    return register


def class_of(what: What) -> Any:
    """Return the class of a kind of object."""
    return _classes[what]


def wrap(handle: Handle, node: Any) -> Any:
    """Return the object of a node: a group, a dataset or a named type.

    Parameters
    ----------
    handle : Handle
    node : GroupNode, DatasetNode or TypeNode
    """
    if isinstance(node, DatasetNode):
        return _classes["dataset"](DatasetID(handle, node))
    if isinstance(node, GroupNode):
        return _classes["group"](GroupID(handle, node))
    return Datatype(TypeID(handle, node))


class HLObject(metaclass=ABCMeta):  # noqa: B024 (h5py's own class is registered)
    """A group, a dataset or a file.

    Parameters
    ----------
    oid : ObjectID
        The `id` of another object.
    """

    def __init__(self, oid: ObjectID) -> None:
        self._id = oid

    @property
    def id(self) -> ObjectID:
        """Identifies the object; true while it can be used; ``Group(obj.id)`` makes another object for it."""
        return self._id

    @property
    def file(self) -> File:
        """The file that this object is in."""
        self._id.check()
        return _classes["file"](self._id)  # type: ignore[no-any-return]

    @property
    def name(self) -> str | None:
        """The full path by which it was reached; None when the file is closed or the object was deleted.

        It has links in it if there are some on the way, as in h5py, as long as they lead to the object.
        """
        node = self._id.node
        if not self._id.valid or (node.parent is None and node is not node.tree.root):
            return None
        return self._by_links() or node.path

    def _by_links(self) -> str | None:
        """Return the path by which links led to the object, if they still do."""
        reached, node = getattr(self._id, "reached", None), self._id.node
        return reached if reached is not None and paths.lookup(node.tree.root, reached) is node else None

    def _named(self, made: Any, name: object) -> Any:
        """Return `made`, which remembers by which path it was reached from here, if links are on it."""
        own_id: Any = self._id
        if name is not None and (own_id.reached is not None or own_id.node.tree.links):
            path = paths.asked(own_id.reached or own_id.node.path, name)
            if path != made.id.node.path:
                made.id.reached = path
        return made

    @property
    def parent(self) -> Group:
        """The group that holds this object; the root is its own parent.

        Raises
        ------
        ValueError
            The object was deleted or the file is closed.
        """
        self._id.check()
        node = self._id.node
        if node.parent is None and node is not node.tree.root:
            raise DefinitionError("Parent of an anonymous object is undefined")
        reached = self._by_links()
        if reached is not None:
            return self.file[reached.rpartition("/")[0] or "/"]  # type: ignore[no-any-return]
        return wrap(self._id.handle, node.parent or node)  # type: ignore[no-any-return]

    @property
    def attrs(self) -> AttributeManager:
        """The attributes."""
        made = _classes.get("attributes")
        if made is None:
            # Asked for at each attribute: an import of its own each time would take as long as the rest.
            from pnc_vol.api.attrs import AttributeManager

            made = _classes["attributes"] = AttributeManager
        return made(self)

    @property
    def ref(self) -> Reference:
        """A reference to this object: ``f[obj.ref]`` opens it."""
        node = self._id.check_node()
        return Reference(node.path, node)

    @property
    def regionref(self) -> RegionProxy:
        """Makes references to elements of a dataset: ``ds.regionref[2:4]``."""
        from pnc_vol.api.regions import RegionProxy

        self._id.check()
        return RegionProxy(self)

    def __eq__(self, other: object) -> bool:
        if hasattr(other, "id"):
            return bool(self._id == other.id)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self._id)

    def __bool__(self) -> bool:
        return self._id.valid

    def _repr_html_(self) -> str:
        from pnc_vol.api.display import html_of

        return html_of(self)


class Datatype(HLObject, metaclass=ABCMeta):
    """A type that has a name in a file, and attributes; made by ``f[name] = dtype``.

    Parameters
    ----------
    bind : TypeID
        The `id` of another `Datatype`.

    Raises
    ------
    ValueError
        Not a `TypeID`.

    Examples
    --------
    >>> import pnc_vol
    >>> with pnc_vol.File("example.nc", "w", driver="memory") as f:
    ...     f["point"] = np.dtype([("x", "f4"), ("y", "f4")])
    ...     f.create_dataset("track", (3,), dtype=f["point"]).dtype.names
    ('x', 'y')
    """

    def __init__(self, bind: ObjectID) -> None:
        if not isinstance(bind, TypeID):
            raise ValueError(f"{bind} is not a TypeID")
        super().__init__(bind)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type."""
        found: np.dtype[Any] = self._id.check_node().dtype
        return found

    def __repr__(self) -> str:
        if not self:
            return "<Closed HDF5 named type>"
        return printable(f'<HDF5 named type "{self._id.node.name}" (dtype {self.dtype.str})>')


class HardLink(metaclass=ABCMeta):  # noqa: B024 (h5py's own class is registered)
    """What ``group.get(name, getlink=True)`` gives: the object is in this file."""


class SoftLink(metaclass=ABCMeta):  # noqa: B024 (h5py's own class is registered)
    """A path that stands for another object of the same file.

    Parameters
    ----------
    path : str

    Examples
    --------
    >>> SoftLink("/a/b")
    <SoftLink to "/a/b">
    """

    def __init__(self, path: object) -> None:
        self._path = str(path)

    @property
    def path(self) -> str:
        """Where the link points to."""
        return self._path

    def __repr__(self) -> str:
        return printable(f'<SoftLink to "{self.path}">')


class ExternalLink(metaclass=ABCMeta):  # noqa: B024 (h5py's own class is registered)
    """A path in another file.

    Parameters
    ----------
    filename : str, bytes or path-like
    path : str
    """

    def __init__(self, filename: str | bytes | os.PathLike[str], path: str) -> None:
        self._filename = os.fsdecode(filename)
        self._path = path

    @property
    def path(self) -> str:
        """The object's path in that file."""
        return self._path

    @property
    def filename(self) -> str:
        """The other file."""
        return self._filename

    def __repr__(self) -> str:
        return printable(f'<ExternalLink to "{self.path}" in file "{self.filename}"')
