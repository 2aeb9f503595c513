"""The HDF5 view of a file, in memory: groups, datasets, attributes, scales.

Knows: HDF5's objects. Does not know: headers, bytes, files, requests. `mapping.flatten` turns a tree into a
header and back; the objects of `api` refer to its nodes; `queue` knows the data of a node by its `uid`.

Rules
-----
1. A node is reached from its parent's `children`; `path` is derived, never stored.
2. `Tree.datasets` keeps creation order: that is the order of the variables in the header.
3. Code that changes anything calls `Tree.touch()`, or `touch_attributes()` or `touch_records()` if nothing
   else of one object changed: the next flush compares `version` with what it wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from pnc_vol.errors import DefinitionError
from pnc_vol.format.model import Attr, Dim
from pnc_vol.interruptions import done_whole
from pnc_vol.mapping.attributes import Attributes
from pnc_vol.mapping.dtypes import Element
from pnc_vol.mapping.names import DEEPEST

__all__ = [
    "NAMELESS", "NO_PARTS", "Axis", "Changes", "DatasetNode", "FileDims", "GroupNode", "Limits", "Node", "Shape",
    "Tree", "walk",
]  # fmt: skip


@dataclass(slots=True, eq=False, repr=False)
class Axis:
    """One axis of a dataset: its label and the scales attached to it.

    dim_name : str or None, name of the NetCDF dimension when the file gave one.
    only_label : bool, the label is HDF5's and no name that NetCDF gave: the marker says it.
    """

    label: str = ""
    scales: list[DatasetNode] = field(default_factory=list)
    dim_name: str | None = None
    only_label: bool = False


Shape = tuple[int, ...]
Limits = tuple[int | None, ...] | None

NAMELESS: tuple[tuple[str, str | None], ...] = (("", None),) * 64
"""Labels and names of axes that have none; more than any dataset has axes."""

_NAMELESS = tuple(NAMELESS[:n] for n in range(65))


@dataclass(slots=True, eq=False, repr=False)
class Node:
    """A named object below a group; the root has no parent and the name ``""``.

    known_attrs : those of the header as long as nobody asked for `attrs`, since few objects are ever looked at.
    """

    tree: Tree
    name: str
    parent: GroupNode | None
    known_attrs: Attributes | tuple[Attr, ...]

    @property
    def attrs(self) -> Attributes:
        """The attributes."""
        known = self.known_attrs
        if type(known) is tuple:
            known = self.known_attrs = Attributes(known, findings=self.tree.findings)
        return known  # type: ignore[return-value]

    @property
    def path(self) -> str:
        """Absolute path, ``"/"`` for the root; of what has no name, where it would be in the root."""
        names = []
        node: Node | None = self
        while node is not None and node.parent is not None:
            names.append(node.name)
            node = node.parent
        return "/" + "/".join(reversed(names))


@dataclass(slots=True, eq=False, repr=False)
class GroupNode(Node):
    """A group; `children` in creation order.

    links : what else has a name here, see `mapping.links`; empty in most groups.
    order : names in the order of creation, if members are to be listed by it; else None.
    """

    children: dict[str, GroupNode | DatasetNode] = field(default_factory=dict)
    links: dict[str, Any] = field(default_factory=dict)
    order: dict[str, None] | None = None

    def listed(self) -> list[str]:
        """The names of all members, in the order in which they are listed."""
        names = {**self.children, **self.links} if self.links else self.children
        if self.order is None:
            return sorted(names)
        return [name for name in {**self.order, **names} if name in names]

    def note(self, name: str) -> None:
        """Remember the order of a new name, if that matters here."""
        if self.order is not None:
            self.order.pop(name, None)
            self.order[name] = None


class Parts(dict[str, Any]):
    """The parts of a dataset, by name; `rows`: what `file.reads.composite_values` keeps of rows of varying length."""

    __slots__ = ("rows",)

    def __init__(self) -> None:
        super().__init__()
        self.rows: Any = None


NO_PARTS = Parts()
"""The parts of all datasets that have none; not to be changed."""

_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(slots=True, eq=False, repr=False)
class DatasetNode(Node):
    """A dataset.

    uid : int, never reused within a tree.
    element : Element, how one element is stored in the file.
    shape : tuple of int, or None for an empty (null) dataset.
    maxshape : tuple, or None when it equals `shape`.
    fillvalue : bytes, one element as in the file, or None for zeros (HDF5's default).
    names : tuple of (str, str or None), label and `Axis.dim_name` of each axis as long as nobody asked for `axes`.
    scale : str or None, the scale's name (maybe ``""``) when this dataset is a dimension scale.
    cdf_name : str, name of the variable once it has one.
    ignored : storage options of HDF5 that have no effect here and are remembered (chunks, compression...).
    parts : Parts, the variables of a dataset that takes several (`mapping.composite`), which no group has; mostly none.
    away : where the data are, if they are not in this file (`mapping.elsewhere`); None of all but a few.
    """

    away: ClassVar[Any] = None
    uid: int
    element: Element
    shape: tuple[int, ...] | None
    maxshape: tuple[int | None, ...] | None = None
    fillvalue: bytes | None = None
    names: tuple[tuple[str, str | None], ...] = ()
    scale: str | None = None
    cdf_name: str = ""
    ignored: Mapping[str, Any] = None  # type: ignore[assignment]
    parts: Parts = None  # type: ignore[assignment]
    made_axes: list[Axis] | None = None

    @property
    def owner(self) -> DatasetNode | None:
        """The dataset whose part this is."""
        parent: Node | None = self.parent
        return parent if type(parent) is DatasetNode else None

    @property
    def axes(self) -> list[Axis]:
        """The axes; made when they are first asked for."""
        if self.made_axes is None:
            self.made_axes = [Axis(label, [], name) for label, name in self.names]
        return self.made_axes

    def put_part(self, name: str, part: DatasetNode) -> None:
        """Make a dataset, whose `parent` this one is, a part."""
        if self.parts is NO_PARTS:
            self.parts = Parts()
        self.parts[name] = part

    def seen_axes(self) -> list[Axis]:
        """The axes, for reading: changes are lost unless `axes` was used before."""
        return self.made_axes or [Axis(label, [], name) for label, name in self.names]

    @property
    def is_record(self) -> bool:
        """True if axis 0 is the record dimension."""
        return self.maxshape is not None and len(self.maxshape) > 0 and self.maxshape[0] is None

    @property
    def is_placeholder(self) -> bool:
        """True if the variable holds no element: a null dataset, or a shape with a 0 in a fixed axis."""
        shape, limits = self.shape, self.maxshape
        if shape is None or self.element.kind == "composite":
            return True
        return 0 in (shape[1:] if limits and limits[0] is None else shape)


# Python 3.10 takes no dict as a default, hashable or not, and a default factory is a call for each dataset.
DatasetNode.__init__.__defaults__ = (None, None, (), None, "", _NOTHING, NO_PARTS, None)


class Changes(NamedTuple):
    """What changed since the last header: attributes of objects, records of datasets (what they were), new datasets."""

    attributes: set[Node]
    resized: dict[DatasetNode, int]
    added: list[DatasetNode]


@dataclass(slots=True, eq=False, repr=False)
class FileDims:
    """Dimensions that keep their order, read or declared, `spare` ones without variables; what `named_dims` found."""

    order: tuple[Dim, ...] = ()
    spare: frozenset[str] = frozenset()
    named: dict[Any, Any] = field(default_factory=dict)


class Tree:
    """All objects of one file."""

    def __init__(self, *, separator: str = "_") -> None:
        self.separator = separator
        self.root = GroupNode(self, "", None, ())
        self.datasets: dict[int, DatasetNode] = {}
        self.version = 0
        self.changed: Changes | None = None
        """None if more changed than `Changes` tells."""
        self.links = 0
        """Entries of `GroupNode.links`, at most: nothing looks for them while there are none."""
        self.all_groups: tuple[list[GroupNode], bool] | None = None
        """All groups but the root, and whether the paths of the datasets imply them; None until somebody asks."""
        self.next_uid = 0
        self.history: list[DatasetNode] = []
        """Datasets in the order in which they were defined since the last flush, deleted ones too."""
        self.records = 0
        """Records that the file has already: the record count never decreases."""
        self.findings: list[str] = []
        """What was wrong with markers when the tree was read from a header."""
        self.file_dims = FileDims()
        self.loose: set[int] = set()
        """Datasets without a name, in no group: they are dropped when the file is closed."""
        self.layout = ""
        """The layout of the data, if they do not lie as the NetCDF classic format has them; see `layout.registry`."""

    def touch(self) -> None:
        """Say that a definition changed."""
        self.version += 1
        self.changed = self.all_groups = None

    def touch_attributes(self, node: Node) -> None:
        """Say that attributes of an object changed, and nothing else."""
        self.version += 1
        if self.changed is not None:
            self.changed.attributes.add(node)

    def touch_records(self, node: DatasetNode, before: int) -> None:
        """Say that a dataset got another number of records, `before` it had, and that nothing else changed."""
        self.version += 1
        if self.changed is not None:
            self.changed.resized.setdefault(node, before)

    def add_group(self, parent: GroupNode, name: str) -> GroupNode:
        """Add a new, empty group below `parent`, unless that is too deep; the caller has checked the name."""
        depth, above = 1, parent.parent
        while above is not None:
            depth, above = depth + 1, above.parent
        if depth >= DEEPEST:
            raise DefinitionError(f"group {name[:60]!r}: a path has at most {DEEPEST} steps; use a flatter tree")
        node = GroupNode(self, name, parent, ())
        parent.children[name] = node
        parent.note(name)
        # Attributes of the file tell of groups, and nothing else does.
        self.touch_attributes(self.root)
        known = self.all_groups
        # A new group of the root is the last one of all, and no dataset names it.
        self.all_groups = ([*known[0], node], False) if known is not None and parent is self.root else None
        return node

    def add_dataset(
        self,
        parent: GroupNode | None,
        name: str,
        *,
        element: Element,
        shape: tuple[int, ...] | None,
        maxshape: tuple[int | None, ...] | None = None,
        fillvalue: bytes | None = None,
    ) -> DatasetNode:
        """Add a new dataset below `parent`, or to no group; the caller has checked name, shape and type."""
        node = self._new(parent, name, element, shape, maxshape, fillvalue)
        if parent is None:
            self.loose.add(node.uid)
        else:
            parent.children[name] = node
            parent.note(name)
        if element.kind == "composite" and shape is not None:
            self._add_parts(node)
        return node

    def add_plain(
        self, parent: GroupNode, name: str, element: Element, shape: Shape, maxshape: Limits = None
    ) -> DatasetNode:
        """As `add_dataset` for numbers, in fewer steps."""
        node = parent.children[name] = self._new(parent, name, element, shape, maxshape, None)
        if parent.order is not None:
            parent.note(name)
        return node

    def _new(
        self, parent: Any, name: str, element: Element, shape: Shape | None, maxshape: Limits, fillvalue: bytes | None
    ) -> DatasetNode:
        """A new dataset; nothing else changes in the header if it is in the root, where it names no group."""
        uid, names = self.next_uid, _NAMELESS[len(shape or ())]
        node = DatasetNode(self, name, parent, (), uid, element, shape, maxshape, fillvalue, names)
        self.next_uid, self.datasets[uid] = uid + 1, node
        self.history.append(node)
        self.version += 1
        if self.changed is not None and parent is self.root and parent.order is None:
            self.changed.added.append(node)
        else:
            self.changed = self.all_groups = None
        return node

    def _add_parts(self, node: DatasetNode) -> None:
        # Compounds are rare: what takes them apart is not loaded with the package.
        from pnc_vol.mapping.composite import add_parts

        add_parts(node)

    def add_part(
        self, owner: DatasetNode, name: str, element: Element, shape: Shape, maxshape: Limits = None
    ) -> DatasetNode:
        """Give a dataset a part, or a new one in the place of an old one, whose data are gone."""
        old = owner.parts.get(name)
        if old is not None:
            for found in walk(old):
                self.datasets.pop(found.uid, None)  # type: ignore[union-attr]
        part = self._new(owner, name, element, shape, maxshape, None)
        owner.put_part(name, part)
        if old is not None:
            part.cdf_name = old.cdf_name
        if element.kind == "composite":
            self._add_parts(part)
        return part

    def add_link(self, parent: GroupNode, name: str, entry: Any) -> None:
        """Give a group a link; the caller has checked the name."""
        parent.links[name] = entry
        parent.note(name)
        self.links += 1
        self.touch()

    def drop_loose(self) -> None:
        """Let go of the datasets without a name."""
        for uid in sorted(self.loose):
            node = self.datasets.get(uid)
            for found in walk(node) if node is not None else ():
                self.datasets.pop(found.uid, None)  # type: ignore[union-attr]
        if self.loose:
            self.loose.clear()
            self.touch()

    def remove(self, node: GroupNode | DatasetNode) -> None:
        """Take `node`, and all below it, out of the tree, also as a scale; of `links` knows `mapping.links.remove`."""
        self._take_out(node, {found.uid for found in walk(node) if isinstance(found, DatasetNode)})

    @done_whole
    def _take_out(self, node: GroupNode | DatasetNode, gone: set[int]) -> None:
        assert node.parent is not None
        node.parent.children.pop(node.name, None)
        for uid in gone:
            self.datasets.pop(uid, None)
        if gone:
            for left in self.datasets.values():
                for axis in left.made_axes or ():
                    if axis.scales:
                        axis.scales = [scale for scale in axis.scales if scale.uid not in gone]
        self.touch()

    def take_back(self, first: int, above: GroupNode | None, name: str) -> None:
        """Undo that `above` got something new of that name, however far it came; `first`: `next_uid` before that."""
        if above is not None:
            above.children.pop(name, None)
        for uid in [uid for uid in self.datasets if uid >= first]:
            self.next_uid = max(self.next_uid, uid + 1)
            del self.datasets[uid]
            self.loose.discard(uid)
        self.touch()

    @done_whole
    def move(self, node: GroupNode | DatasetNode, parent: GroupNode, name: str) -> None:
        """Move `node` to another group or name; its variable is renamed."""
        if node.parent is not None:
            node.parent.children.pop(node.name, None)
        elif isinstance(node, DatasetNode):
            self.loose.discard(node.uid)
        node.parent, node.name = parent, name
        parent.children[name] = node
        parent.note(name)
        for found in walk(node):
            if isinstance(found, DatasetNode):
                found.cdf_name = ""
        self.touch()


def walk(node: GroupNode | DatasetNode) -> Iterator[GroupNode | DatasetNode]:
    """The node and all below it, parts of datasets included, parents first, in creation order; any depth."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, GroupNode):
            stack.extend(reversed(node.children.values()))
        elif node.parts:
            stack.extend(reversed(node.parts.values()))
