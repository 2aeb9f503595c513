"""Datasets that are made when somebody asks for them: most of a large file are never looked at.

To make two objects for each variable was half of the time of opening a file of 100,000 variables.

Knows: trees, variables of a header, what variables of one kind have in common. Does not know: bytes.

Rules
-----
1. A table of nodes holds, for a dataset that nobody asked for, what it is made of: `Tree.datasets` its `Plan`, which
   variables of one kind share, and the root's children its uid. Its keys and their order are those of the nodes.
2. Whoever takes a value out gets a node. What takes all of them out makes all, and the tables are as others from then
   on. Two threads that ask for the same dataset get the same node.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from functools import partial
from itertools import groupby
from threading import Lock
from typing import Any, TypeVar, cast

from pnc_vol.format.model import Var
from pnc_vol.mapping.dtypes import Element
from pnc_vol.mapping.tree import DatasetNode, GroupNode, Tree

__all__ = ["Plan", "Unread", "attach_scales", "fillvalue_of", "itemsizes_of", "lengths_of", "read_all"]

Plan = tuple[
    Element, tuple[int, ...], tuple[tuple[str, str | None], ...], tuple[int, ...], tuple[int | None, ...] | None
]
"""Element, dimensions of the axes, their labels and names, shape and maxshape of a variable."""

K = TypeVar("K")
V = TypeVar("V")
_get: Any = dict.get
_NOT_MADE = (int, tuple)


class _Made(dict[K, V]):
    """Nodes that are all made."""

    __slots__ = ("unread",)
    unread: Unread


class _Table(_Made[K, V]):
    """Nodes of which some are not made."""

    __slots__ = ()

    def __getitem__(self, key: K) -> V:
        found = dict.__getitem__(self, key)
        kind = type(found)
        return cast(V, self.unread.node(cast(int, found if kind is int else key))) if kind in _NOT_MADE else found

    def get(self, key: K, default: Any = None) -> Any:
        found = _get(self, key, default)
        kind = type(found)
        return self.unread.node(found if kind is int else cast(int, key)) if kind in _NOT_MADE else found

    def values(self) -> ValuesView[V]:  # type: ignore[override]
        self.unread.make_all()
        return dict.values(self)

    def items(self) -> ItemsView[K, V]:  # type: ignore[override]
        self.unread.make_all()
        return dict.items(self)

    def pop(self, key: K, *default: Any) -> Any:
        self.get(key)
        return dict.pop(self, key, *default)

    def __iter__(self) -> Iterator[K]:
        # With this, `dict` and `|` ask for the values one by one, as everybody does.
        return dict.__iter__(self)


class Unread:
    """The datasets of one tree that nobody asked for.

    Attributes
    ----------
    variables : sequence of Var; that of a dataset is the one with the number of its uid.
    coordinates : mapping of int to DatasetNode, the coordinate variable of each dimension that has one.
    left : int, datasets that are not made.
    """

    def __init__(self, tree: Tree, variables: tuple[Var, ...]) -> None:
        self.tree, self.variables = tree, variables
        self.coordinates: Mapping[int, DatasetNode] = {}
        self.lock = Lock()
        self.left = 0
        self.root = tree.root
        self.datasets: _Table[int, DatasetNode] = _Table()
        self.children: _Table[str, GroupNode | DatasetNode] = _Table(tree.root.children)
        for table in (self.datasets, self.children):
            table.unread = self
        tree.datasets, tree.root.children = self.datasets, self.children

    def put_off(self, plan: Plan, uids: Sequence[int], names: Iterable[str]) -> None:
        """Add datasets to the root that are made later."""
        if not self.left:
            self._use(_Table)
        self.left += len(uids)
        self.datasets.update(dict.fromkeys(uids, plan))  # type: ignore[arg-type]
        self.children.update(zip(names, uids, strict=True))  # type: ignore[arg-type]

    def node(self, uid: int) -> Any:
        """The dataset of that uid; made if it is not."""
        datasets = self.datasets
        with self.lock:
            found = _get(datasets, uid)
            if type(found) is not tuple:
                return found
            element, visible, names, shape, limits = found
            name, _, attrs, _, _ = self.variables[uid]
            node = DatasetNode(self.tree, name, self.root, attrs, uid, element, shape, limits, None, names, None, name)
            if self.coordinates:
                attach_scales(node, visible, self.coordinates)
            datasets[uid] = self.children[name] = node
            self.left -= 1
            if not self.left:
                self._use(_Made)
            return node

    def make_all(self) -> None:
        """Make all nodes; the tables are as others from then on."""
        entries: list[tuple[int, Any]] = list(dict.items(self.datasets))
        for uid, plan in entries:
            if type(plan) is tuple:
                self.node(uid)
        with self.lock:
            self._use(_Made)

    def _use(self, kind: type) -> None:
        """Nodes are all made, or not: a table that need not look is faster."""
        tables: list[Any] = [self.datasets, self.children]
        for table in tables:
            table.__class__ = kind


def attach_scales(node: DatasetNode, visible: Iterable[int], coordinates: Mapping[int, DatasetNode]) -> None:
    """Attach the coordinate variables of its dimensions to the axes of a dataset, in the place of their labels."""
    if coordinates.keys().isdisjoint(visible):
        return
    # a placeholder has axes without dimensions
    for axis, index in zip(node.axes, visible, strict=False):
        scale = coordinates.get(index)
        if scale is not None:
            axis.label = ""
            if scale is not node:
                axis.scales.append(scale)


def itemsizes_of(datasets: Mapping[int, DatasetNode], uids: Iterable[int]) -> list[int]:
    """Bytes of an element of some datasets in the file; none is made for that.

    Examples
    --------
    >>> itemsizes_of({}, ())
    []
    """
    if type(datasets) is not _Table:
        return [datasets[uid].element.file_dtype.itemsize for uid in uids]
    sizes: list[int] = []
    # Those of one plan, one after another, have one entry in common.
    for one, several in groupby(map(partial(_get, datasets), uids)):
        element = one[0] if type(one) is tuple else one.element
        sizes += [element.file_dtype.itemsize] * len(list(several))
    return sizes


def lengths_of(datasets: dict[int, DatasetNode]) -> dict[int, int]:
    """How many datasets have each number of records; none is made for that.

    Examples
    --------
    >>> lengths_of({})
    {}
    """
    found: dict[int, int] = {}
    entries: list[Any] = list(dict.values(datasets))
    for one in entries:
        if type(one) is tuple:
            shape, limits = one[3], one[4]
        elif one.is_placeholder:
            continue
        else:
            shape, limits = one.shape, one.maxshape
        if limits and limits[0] is None:
            found[shape[0]] = found.get(shape[0], 0) + 1
    return found


def fillvalue_of(datasets: Mapping[int, DatasetNode], uid: int) -> bytes | None:
    """The fill value of a dataset, which is not made for that: what is looked at closely is made at once."""
    found = _get(datasets, uid)
    return None if type(found) is tuple else found.fillvalue


def read_all(tree: Tree) -> None:
    """Make all datasets of a tree."""
    tree.datasets, tree.root.children = dict(tree.datasets), dict(tree.root.children)
