"""h5py's views of mappings: the keys, values and items of groups and attributes.

Knows: Python's mapping protocol, h5py's reprs. Does not know: objects, files.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, MutableMapping, ValuesView
from typing import Any

__all__ = ["ItemsViewHDF5", "KeysViewHDF5", "MappingHDF5", "MutableMappingHDF5", "ValuesViewHDF5"]


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
