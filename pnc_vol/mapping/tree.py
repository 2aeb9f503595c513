"""The tree is the HDF5 view of a file in memory: groups, datasets, attributes, scales.

Knows: HDF5's objects. Does not know: headers, bytes, files, requests. `mapping.flatten` turns a tree into a
header and back; the objects of `api` refer to its nodes; `queue` knows the data of a node by its `uid`.

Rules
-----
1. A node is reached from its parent's `children`; `path` is derived, never stored.
2. `Tree.datasets` keeps creation order: that is the order of the variables in the header.
3. The classes of nodes are no dataclasses: to make the methods of these costs each start of a program milliseconds.
4. Code that changes anything calls `Tree.touch()`, or `touch_attributes()` or `touch_records()` if nothing
   else of one object changed: the next flush compares `version` with what it wrote.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from functools import lru_cache, partial
from itertools import groupby
from threading import Lock
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, cast

from pnc_vol.errors import DefinitionError
from pnc_vol.format.model import Attr, Dim, Var
from pnc_vol.interruptions import done_whole
from pnc_vol.mapping.attributes import Attributes
from pnc_vol.mapping.dtypes import Element
from pnc_vol.mapping.names import DEEPEST

__all__ = [
    "NAMELESS", "NO_PARTS", "Axis", "Changes", "DatasetNode", "FileDims", "GroupNode", "Limits", "Node", "Plan",
    "Shape", "Tree", "Unread", "attach_scales", "fillvalue_of", "itemsizes_of", "lengths_of", "plain_names", "read_all",
    "walk",
]  # fmt: skip


class Axis:
    """One axis of a dataset: its label and the scales attached to it.

    dim_name : str or None, name of the NetCDF dimension when the file gave one.
    only_label : bool, the label is HDF5's and no name that NetCDF gave: the marker says it.
    """

    __slots__ = ("dim_name", "label", "only_label", "scales")

    def __init__(self, label: str = "", dim_name: str | None = None) -> None:
        self.label, self.dim_name, self.only_label = label, dim_name, False
        self.scales: list[DatasetNode] = []


Shape = tuple[int, ...]
Limits = tuple[int | None, ...] | None

NAMELESS: tuple[tuple[str, str | None], ...] = (("", None),) * 64
"""Labels and names of axes that have none; more than any dataset has axes."""

_NAMELESS = tuple(NAMELESS[:n] for n in range(65))


class Node:
    """A named object below a group; the root has no parent and the name ``""``.

    known_attrs : those of the header as long as nobody asked for `attrs`, since few objects are ever looked at.
    """

    __slots__ = ("known_attrs", "name", "parent", "tree")

    def __init__(
        self, tree: Tree, name: str, parent: GroupNode | None, known_attrs: Attributes | tuple[Attr, ...]
    ) -> None:
        self.tree, self.name, self.parent, self.known_attrs = tree, name, parent, known_attrs

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


class GroupNode(Node):
    """A group; `children` in creation order.

    links : what else has a name here, see `mapping.links`; empty in most groups.
    order : names in the order of creation, if members are to be listed by it; else None.
    """

    __slots__ = ("children", "links", "order")

    def __init__(self, tree: Tree, name: str, parent: GroupNode | None, order: dict[str, None] | None = None) -> None:
        super().__init__(tree, name, parent, ())
        self.children: dict[str, GroupNode | DatasetNode] = {}
        self.links: dict[str, Any] = {}
        self.order = order

    def listed(self) -> list[str]:
        """Return the names of all members, in the order in which they are listed."""
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


class DatasetNode(Node):
    """A dataset.

    uid : int, never reused within a tree.
    element : Element, how one element is stored in the file.
    shape : tuple of int, or None for an empty (null) dataset.
    maxshape : tuple, or None when it equals `shape`.
    fillvalue : bytes, one element as in the file, or None for zeros (HDF5's default).
    names : tuple of (str, str or None), label and `Axis.dim_name` of each axis as long as nobody asked for `axes`.
    scale : str, the scale's name (maybe ``""``) when this dataset is a dimension scale; True if it is one without a
        name, as HDF5 makes it of what is attached to an axis; None if it is no scale.
    cdf_name : str, name of the variable once it has one.
    ignored : storage options of HDF5 that have no effect here and are remembered (chunks, compression...).
    parts : Parts, the variables of a dataset that takes several (`mapping.composite`), which no group has; mostly none.
    away : where the data are, if they are not in this file (`mapping.elsewhere`); None of all but a few.
    """

    __slots__ = (
        "cdf_name", "element", "fillvalue", "ignored", "made_axes", "maxshape", "names", "parts", "scale", "shape",
        "uid",
    )  # fmt: skip
    away: ClassVar[Any] = None

    def __init__(
        self,
        tree: Tree,
        name: str,
        parent: GroupNode | None,
        known_attrs: Attributes | tuple[Attr, ...],
        uid: int,
        element: Element,
        shape: tuple[int, ...] | None,
        maxshape: tuple[int | None, ...] | None = None,
        fillvalue: bytes | None = None,
        names: tuple[tuple[str, str | None], ...] = (),
        scale: str | Literal[True] | None = None,
        cdf_name: str = "",
    ) -> None:
        # Not the base class's: this runs for each of the datasets of a file.
        self.tree, self.name, self.parent, self.known_attrs = tree, name, parent, known_attrs
        self.uid, self.element, self.shape, self.maxshape, self.fillvalue = uid, element, shape, maxshape, fillvalue
        self.names, self.scale, self.cdf_name = names, scale, cdf_name
        self.ignored: Mapping[str, Any] = _NOTHING
        self.parts = NO_PARTS
        self.made_axes: list[Axis] | None = None

    @property
    def owner(self) -> DatasetNode | None:
        """The dataset whose part this is."""
        parent: Node | None = self.parent
        return parent if type(parent) is DatasetNode else None

    @property
    def axes(self) -> list[Axis]:
        """The axes; made when they are first asked for."""
        if self.made_axes is None:
            self.made_axes = [Axis(label, name) for label, name in self.names]
        return self.made_axes

    def put_part(self, name: str, part: DatasetNode) -> None:
        """Make a dataset, whose `parent` this one is, a part."""
        if self.parts is NO_PARTS:
            self.parts = Parts()
        self.parts[name] = part

    def seen_axes(self) -> list[Axis]:
        """Return the axes, for reading: changes are lost unless `axes` was used before."""
        return self.made_axes or _seen_axes(self.names)

    @property
    def scale_name(self) -> str:
        """The name of a dimension scale; "" of one without a name, and of any other dataset."""
        return self.scale if isinstance(self.scale, str) else ""

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


class Changes(NamedTuple):
    """What changed since the last header: attributes of objects, records of datasets (what they were), new datasets,
    and datasets that went, by uid."""

    attributes: set[Node]
    resized: dict[DatasetNode, int]
    added: list[DatasetNode]
    removed: dict[int, DatasetNode]


@lru_cache(1024)
def _seen_axes(names: tuple[tuple[str, str | None], ...]) -> list[Axis]:
    """Return axes that nobody has made, of all datasets with these labels and names of dimensions."""
    return [Axis(label, name) for label, name in names]


class FileDims:
    """Dimensions that keep their order, read or declared, `spare` ones without variables; `coordinates`: of a header
    that was read, the coordinate variable of each that has one; `named`: what `dimensions.name_axes` found."""

    __slots__ = ("coordinates", "named", "order", "spare")

    def __init__(self, order: tuple[Dim, ...] = (), spare: frozenset[str] = frozenset()) -> None:
        self.order, self.spare = order, spare
        self.coordinates: Mapping[int, DatasetNode] = {}
        self.named: dict[Any, Any] = {}


class Tree:
    """All objects of one file."""

    def __init__(self, *, separator: str = "_") -> None:
        self.separator = separator
        self.root = GroupNode(self, "", None)
        self.datasets: dict[int, DatasetNode] = {}
        self.version = 0
        self.changed: Changes | None = None
        """None if more changed than `Changes` tells."""
        self.links = 0
        """Entries of `GroupNode.links`, at most: nothing looks for them while there are none."""
        self.all_groups: tuple[list[GroupNode], dict[GroupNode, None] | None] | None = None
        """All groups but the root, parents first, and those of them that the path of no dataset names; None in place of
        the latter if the datasets name groups in another order. None until somebody asks."""
        self.group_attrs: Any = None
        """What `attribute_owners` keeps of the attributes of groups."""
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

    def renew_lock(self) -> None:
        """Renew the lock in a forked child: a thread that is not there may have held it."""
        unread = getattr(self.datasets, "unread", None)
        if unread is not None:
            unread.lock = Lock()

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
        node = GroupNode(self, name, parent)
        parent.children[name] = node
        parent.note(name)
        # Attributes of the file tell of groups, and nothing else does.
        self.touch_attributes(self.root)
        known, self.all_groups = self.all_groups, None
        if known is not None:
            groups, unnamed = known
            above = groups[-1] if groups else parent
            while above is not parent and above is not None:
                above = above.parent
            if above is parent:
                # The new group is the last one of all, and no dataset names it.
                groups.append(node)
                if unnamed is not None:
                    unnamed[node] = None
                self.all_groups = known
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
        """Do as `add_dataset` does for numbers, in fewer steps."""
        node = parent.children[name] = self._new(parent, name, element, shape, maxshape, None)
        if parent.order is not None:
            parent.note(name)
        return node

    def _new(
        self, parent: Any, name: str, element: Element, shape: Shape | None, maxshape: Limits, fillvalue: bytes | None
    ) -> DatasetNode:
        """Return a new dataset, which changes nothing else in the header but whether the file must name the groups."""
        uid, names = self.next_uid, _NAMELESS[len(shape or ())]
        node = DatasetNode(self, name, parent, (), uid, element, shape, maxshape, fillvalue, names)
        self.next_uid, self.datasets[uid] = uid + 1, node
        self.history.append(node)
        self.version += 1
        if self.changed is not None and type(parent) is GroupNode:
            self.changed.added.append(node)
            if parent.order is not None:
                # attributes of the file list the members in their order
                self.changed.attributes.add(self.root)
            if parent is not self.root:
                self._name_groups(parent, self.changed)
        else:
            self.changed = self.all_groups = None
        return node

    def _name_groups(self, parent: GroupNode, changed: Changes) -> None:
        """Note which groups the path of a new dataset in `parent` names: the attributes of the file list all groups,
        unless the datasets name all of them."""
        known = self.all_groups
        if known is None:
            if not isinstance(next(iter(parent.children.values()), None), DatasetNode):
                changed.attributes.add(self.root)
            return
        groups, unnamed = known
        if not unnamed or parent not in unnamed:
            return
        self.all_groups = None
        path: list[GroupNode] = []
        above: GroupNode | None = parent
        while above in unnamed:
            path.append(above)
            above = above.parent
        for node in reversed(path):
            if next(group for group in unnamed if group.parent is node.parent) is not node:
                # one that was created before it will be named after it, if at all
                self.all_groups = groups, None
                return
            del unnamed[node]
        if not unnamed:
            changed.attributes.add(self.root)
        self.all_groups = known

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
        self._take_out(node, {found.uid: found for found in walk(node) if isinstance(found, DatasetNode)})

    @done_whole
    def _take_out(self, node: GroupNode | DatasetNode, gone: dict[int, DatasetNode]) -> None:
        assert node.parent is not None
        node.parent.children.pop(node.name, None)
        for uid in gone:
            self.datasets.pop(uid, None)
        if any(found.scale is not None for found in gone.values()):
            for left in self.datasets.values():
                for axis in left.made_axes or ():
                    if axis.scales:
                        axis.scales = [scale for scale in axis.scales if scale.uid not in gone]
        changed = self.changed
        plain = isinstance(node, DatasetNode) and len(gone) == 1 and node.scale is None and node.maxshape is None
        alone = node.parent is self.root and self.root.order is None and not self.links
        if changed is None or not (plain and alone) or node in changed.added:
            self.touch()
        else:
            # Nothing else in the header tells of it, but for its dimensions.
            self.version += 1
            changed.attributes.discard(node)
            changed.removed.update(gone)

    def adding(self, above: GroupNode | None) -> Adding:
        """Return a context which, if it fails anywhere, takes back what was added to `above` and all new datasets."""
        return Adding(self, above)

    def take_back(self, first: int, above: GroupNode | None, names: Iterable[str]) -> None:
        """Undo that `above` got members of these names, however far it came; `first`: `next_uid` before that."""
        if above is not None:
            for name in names:
                above.children.pop(name, None)
                above.links.pop(name, None)
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


class Adding:
    """See `Tree.adding`; nothing else is taken out of the group meanwhile."""

    __slots__ = ("above", "children", "first", "links", "tree")

    def __init__(self, tree: Tree, above: GroupNode | None) -> None:
        self.tree, self.above, self.first = tree, above, tree.next_uid
        self.children, self.links = (0, 0) if above is None else (len(above.children), len(above.links))

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is not None:
            above = self.above
            # new names come last
            names = [] if above is None else [*above.children][self.children :] + [*above.links][self.links :]
            self.tree.take_back(self.first, above, names)


def walk(node: GroupNode | DatasetNode) -> Iterator[GroupNode | DatasetNode]:
    """Yield the node and all below it, parts of datasets included, parents first, in creation order; any depth."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, GroupNode):
            stack.extend(reversed(node.children.values()))
        elif node.parts:
            stack.extend(reversed(node.parts.values()))


# -------------------------------------------------------------------------------------------------------------- unread
# Datasets that are made when somebody asks for them: most of a large file are never looked at.
#
# To make two objects for each variable was half of the time of opening a file of 100,000 variables.
#
# Knows: trees, variables of a header, what variables of one kind have in common. Does not know: bytes.
#
# Rules
# -----
# 1. A table of nodes holds, for a dataset that nobody asked for, what it is made of: `Tree.datasets` its `Plan`, which
#    variables of one kind share, and the root's children its uid. Its keys and their order are those of the nodes.
# 2. Whoever takes a value out gets a node. What takes all of them out makes all, and the tables are as others from then
#    on. Two threads that ask for the same dataset get the same node.


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
        """Return the dataset of that uid; made if it is not."""
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
    """Return bytes of an element of some datasets in the file; none is made for that.

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
    """Return how many datasets have each number of records; none is made for that.

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


def plain_names(datasets: Mapping[int, DatasetNode], uids: Iterable[int], variables: Iterable[Var]) -> set[str]:
    """Return the names of those variables that are datasets of one axis and no scales; none is made for that.

    Examples
    --------
    >>> plain_names({}, (), ())
    set()
    """
    found = set[str]()
    for one, var in zip(map(partial(_get, datasets), uids), variables, strict=True):
        # Those that are not made are no scales; those that are gone have no entry.
        shape, scale = (one[3], None) if type(one) is tuple else (one.shape, one.scale) if one else ((), None)
        if scale is None and shape and len(shape) == 1:
            found.add(var[0])
    return found


def fillvalue_of(datasets: Mapping[int, DatasetNode], uid: int) -> bytes | None:
    """Return the fill value of a dataset, which is not made for that: what is looked at closely is made at once."""
    found = _get(datasets, uid)
    return None if type(found) is tuple else found.fillvalue


def read_all(tree: Tree) -> None:
    """Make all datasets of a tree."""
    tree.datasets, tree.root.children = dict(tree.datasets), dict(tree.root.children)
