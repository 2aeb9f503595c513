"""Groups and attributes are mappings: they have h5py's views of keys, values and items, and visit all below a group.

Knows: Python's mapping protocol, h5py's reprs, nodes of the tree. Does not know: objects, data.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, MutableMapping, ValuesView
from typing import Any

from pnc_vol.mapping.tree import GroupNode, Node

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
        return any(value == own for own in self)

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
        """Return the names, in the order of iteration."""
        return KeysViewHDF5(self)

    def values(self) -> ValuesViewHDF5:
        """Return the objects, in the order of iteration."""
        return ValuesViewHDF5(self)

    def items(self) -> ItemsViewHDF5:
        """Return pairs of name and object."""
        return ItemsViewHDF5(self)

    def _ipython_key_completions_(self) -> list[str]:
        return sorted(self.keys())


class MutableMappingHDF5(MappingHDF5, MutableMapping[str, Any]):
    """The same, which can be changed."""


COMPLETIONS = 1000
"""Paths that a completion of names looks at."""


class Visiting:
    """The part of `Group` that visits everything below it."""

    _id: Any
    _wrap: Callable[..., Any]
    get: Callable[..., Any]
    keys: Callable[[], KeysView[str]]

    def visit(self, func: Callable[[str], Any]) -> Any:
        """Call `func` with the path of each object below this group, sorted; stop at the first result.

        Parameters
        ----------
        func : callable
            ``func(path)``; each object is visited once, whatever names it has.

        Returns
        -------
        object
            The first result of `func` that is not None; else None.

        Raises
        ------
        ValueError
            The file is closed.
        """
        return self._visited(lambda path, node: func(path))

    def tree(self, *, attributes: bool = False) -> str:
        """Return what is below this group, as text with one object in a line.

        Parameters
        ----------
        attributes : bool
            Show attributes too.

        Returns
        -------
        str
            An interactive session shows it as it is; at most 500 objects. A star marks an axis that can grow.

        Raises
        ------
        ValueError
            The file is closed.

        Examples
        --------
        >>> with File("example.nc", "w", driver="memory") as f:
        ...     f["model/depth"] = [5.0, 10.0]
        ...     f["model/depth"].attrs["units"] = "m"
        ...     f["model"].tree(attributes=True)
        /model
        └── depth  (2) float64
            └── @units = 'm'
        """
        from pnc_vol.api.display import tree_of

        self._id.check()
        return tree_of(self, attributes=attributes)

    def _ipython_key_completions_(self) -> list[str]:
        """Return the names of the members, then the paths of what is further below."""
        below: list[str] = []

        def note(path: str) -> bool | None:
            below.append(path)
            # a result ends the visit
            return True if len(below) >= COMPLETIONS else None

        self.visit(note)
        return [*sorted(self.keys()), *(path for path in below if "/" in path)]

    def visititems(self, func: Callable[[str, Any], Any]) -> Any:
        """Do as `visit` does, with the object as a second argument.

        Parameters
        ----------
        func : callable
            ``func(path, object)``

        Raises
        ------
        ValueError
            The file is closed.

        Examples
        --------
        >>> with pnc_vol.File("visit.nc", "w") as f:
        ...     f["a/x"] = 1
        ...     f.visititems(lambda path, obj: print(path, type(obj).__name__))
        a Group
        a/x Dataset
        """
        return self._visited(lambda path, node: func(path, self._wrap(node, path)))

    def visit_links(self, func: Callable[[str], Any]) -> Any:
        """Call `func` with the path of each link below this group, sorted, wherever it leads.

        Parameters
        ----------
        func : callable
            ``func(path)``

        Raises
        ------
        ValueError
            The file is closed.
        """
        return self._visited(lambda path, node: func(path), links=True)

    def visititems_links(self, func: Callable[[str, Any], Any]) -> Any:
        """Do as `visit_links` does, with the link as a second argument.

        Parameters
        ----------
        func : callable
            ``func(path, link)``

        Raises
        ------
        ValueError
            The file is closed.
        """
        return self._visited(lambda path, node: func(path, self.get(path, getlink=True)), links=True)

    def _visited(self, func: Callable[[str, Any], Any], *, links: bool = False) -> Any:
        session = self._id.check()
        with session.lock:
            session.check_open()
            node = self._id.node
            listed = list(_walk(node, "", {id(node)}, links))
        for path, node in listed:
            result = func(path, node)
            if result is not None:
                return result
        return None


def _walk(group: GroupNode, prefix: str, seen: set[int], links: bool) -> Iterator[tuple[str, Any]]:
    """Yield the paths and nodes below a group, parents first, each level by name, each object once; with `links` every
    link."""
    for name in sorted({**group.children, **group.links} if group.links else group.children):
        node: Any = group.children.get(name)
        if node is None:
            entry = group.links[name]
            node = getattr(entry, "node", entry if isinstance(entry, Node) else None)
        known = node is None or id(node) in seen
        if links or not known:
            yield prefix + name, node
        if not known:
            seen.add(id(node))
            if isinstance(node, GroupNode):
                yield from _walk(node, f"{prefix}{name}/", seen, links)
