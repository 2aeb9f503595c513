"""What all objects of a file have in common, and h5py's views of mappings.

Knows: ids, locks. Does not know: what groups and datasets can do.

Rules
-----
1. An object is two references: its id, and through it the session and the node. It keeps no state of its own, so
   that any number of objects may stand for one dataset.
2. Whatever touches the tree or the data first calls ``self._check()``; a closed file or a deleted object is a
   `ClosedFileError` there. ``bool(obj)``, ``repr(obj)``, ``obj.id`` and ``==`` always work.
"""

from __future__ import annotations

import functools
from collections.abc import ItemsView, Iterator, KeysView, Mapping, MutableMapping, ValuesView
from typing import TYPE_CHECKING, Any

from pnc_vol.api.ids import ObjectID
from pnc_vol.errors import DefinitionError

if TYPE_CHECKING:
    from pnc_vol.api.attrs import AttributeManager
    from pnc_vol.api.file import File
    from pnc_vol.api.group import Group
    from pnc_vol.api.regions import RegionProxy
    from pnc_vol.file.session import Session
    from pnc_vol.mapping.references import Reference

__all__ = ["HLObject", "ItemsViewHDF5", "KeysViewHDF5", "MappingHDF5", "MutableMappingHDF5", "ValuesViewHDF5"]


class HLObject:
    """A group, a dataset or a file.

    Parameters
    ----------
    oid : ObjectID
        The `id` of another object.
    """

    def __init__(self, oid: ObjectID) -> None:
        self._id = oid

    def _check(self) -> Session:
        return self._id.check()

    @property
    def id(self) -> ObjectID:
        """Names the object; true while it can be used; ``Group(obj.id)`` makes another object for it."""
        return self._id

    @property
    def file(self) -> File:
        """The file that this object is in."""
        from pnc_vol.api.file import File

        self._check()
        return File(self._id)

    @property
    def name(self) -> str | None:
        """The full path; None when the file is closed or the object was deleted."""
        node = self._id.node
        return node.path if self._id.valid and (node.parent is not None or node is node.tree.root) else None

    @property
    def parent(self) -> Group:
        """The group that holds this object; the root is its own parent.

        Raises
        ------
        ValueError
            The object was deleted or the file is closed.
        """
        from pnc_vol.api.group import Group
        from pnc_vol.api.ids import GroupID

        self._check()
        node = self._id.node
        if node.parent is None and node is not node.tree.root:
            raise DefinitionError("Parent of an anonymous object is undefined")
        return Group(GroupID(self._id.handle, node.parent or node))

    @property
    def attrs(self) -> AttributeManager:
        """The attributes."""
        return _attribute_manager()(self)

    @property
    def ref(self) -> Reference:
        """A reference to this object: ``f[obj.ref]`` opens it."""
        from pnc_vol.mapping.references import Reference

        self._check()
        return Reference(self._id.node.path, self._id.node)

    @property
    def regionref(self) -> RegionProxy:
        """Makes references to elements of a dataset: ``ds.regionref[2:4]``."""
        from pnc_vol.api.regions import RegionProxy

        self._check()
        return RegionProxy(self)

    def __eq__(self, other: object) -> bool:
        if hasattr(other, "id"):
            return bool(self._id == other.id)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self._id)

    def __bool__(self) -> bool:
        return self._id.valid

    def __getnewargs__(self) -> Any:
        raise TypeError("h5py objects cannot be pickled")

    def __getstate__(self) -> Any:
        raise TypeError("h5py objects cannot be pickled")


@functools.cache
def _attribute_manager() -> type[AttributeManager]:
    # An import costs as much as reading an attribute, even one that was done before.
    from pnc_vol.api.attrs import AttributeManager

    return AttributeManager


class KeysViewHDF5(KeysView[str]):
    """The names; its repr lists them."""

    _mapping: Mapping[str, Any]

    def __iter__(self) -> Iterator[str]:
        return iter(self._mapping)

    def __repr__(self) -> str:
        return f"<KeysViewHDF5 {list(self)}>"

    __str__ = __repr__

    def __reversed__(self) -> Iterator[str]:
        yield from reversed(list(self._mapping))


class ValuesViewHDF5(ValuesView[Any]):
    """The objects."""

    _mapping: Mapping[str, Any]

    def __contains__(self, value: object) -> bool:
        return any(value == mine for mine in self)

    def __iter__(self) -> Iterator[Any]:
        for key in self._mapping:
            yield self._mapping.get(key)

    def __reversed__(self) -> Iterator[Any]:
        for key in reversed(list(self._mapping)):
            yield self._mapping.get(key)


class ItemsViewHDF5(ItemsView[str, Any]):
    """The names with their objects."""

    _mapping: Mapping[str, Any]

    def __contains__(self, item: object) -> bool:
        if not isinstance(item, tuple) or len(item) != 2:
            return False
        key, value = item
        return key in self._mapping and bool(value == self._mapping.get(key))

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        for key in self._mapping:
            yield key, self._mapping.get(key)

    def __reversed__(self) -> Iterator[tuple[str, Any]]:
        for key in reversed(list(self._mapping)):
            yield key, self._mapping.get(key)


class MappingHDF5(Mapping[str, Any]):
    """A mapping whose views have h5py's classes and reprs."""

    def keys(self) -> KeysViewHDF5:
        """The names, in the order of iteration."""
        return KeysViewHDF5(self)

    def values(self) -> ValuesViewHDF5:
        """The objects, in the order of iteration."""
        return ValuesViewHDF5(self)

    def items(self) -> ItemsViewHDF5:
        """Pairs of name and object."""
        return ItemsViewHDF5(self)

    def _ipython_key_completions_(self) -> list[str]:
        return sorted(self.keys())


class MutableMappingHDF5(MappingHDF5, MutableMapping[str, Any]):
    """The same, which can be changed."""
