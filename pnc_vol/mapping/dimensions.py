"""Each axis of a dataset gets a dimension when a tree becomes a header.

Knows: axes, labels, scales, the names that are free. Does not know: variables' types, markers, attributes.

Rules
-----
1. A 1-D scale has a dimension of its own name (a coordinate variable); an axis with a scale uses the dimension of
   its first scale, if the lengths agree.
2. Else a label names the dimension, else the name the file gave it, if that name is free or has the same length; a
   name that would turn a dataset into a coordinate variable is not free for it.
3. Nameless axes share dimensions by their length, ``dim_<length>``; but two axes of one variable never share one, since
   programs that work by names of dimensions then take them for the same. The second nameless axis of a length uses
   ``dim_<length>_2``, and so on: the same ones in every variable, as the netCDF-4 library does it with HDF5 files.
   A variable that has one dimension twice in the file that was read, or by a label or scale, keeps it.
4. All record axes use the one record dimension: named after the first record scale attached to a record axis, else
   the first label, else the file's name, else ``record``.
5. A dimension without a name does not take the one of a dimension of another length that the file has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from pnc_vol.errors import DefinitionError
from pnc_vol.format.limits import check_name
from pnc_vol.format.model import Dim
from pnc_vol.mapping.names import legal_name
from pnc_vol.mapping.tree import Axis, DatasetNode, FileDims, Tree

PlainNames = Callable[[], set[str]]

__all__ = ["DimBook", "declare", "is_nameless", "label_of", "may_be_made", "name_axes"]

_NAMELESS = re.compile(r"dim_(\d+)(_\d+)?|record(_\d+)?")


def is_nameless(name: str, size: int) -> bool:
    """Return True if `name` is one that was made for a dimension without a name.

    Parameters
    ----------
    name : str
    size : int, 0 for the record dimension

    Examples
    --------
    >>> is_nameless("dim_3", 3), is_nameless("dim_3", 4), is_nameless("record", 0)
    (True, False, True)
    """
    found = _NAMELESS.fullmatch(name)
    if found is None:
        return False
    return size == 0 if found[1] is None else size != 0 and found[1] == str(size)


def may_be_made(name: str) -> bool:
    """Return True if a dimension without a name could be given this one, unless a variable has it.

    Examples
    --------
    >>> may_be_made("dim_3_2"), may_be_made("record_2"), may_be_made("lat")
    (True, True, False)
    """
    return _NAMELESS.fullmatch(name) is not None


def label_of(name: str, size: int) -> str:
    """Return the label of an axis whose dimension has this name and size (0: records): "" for a name that was made.

    Examples
    --------
    >>> label_of("lat", 180), label_of("dim_3", 3)
    ('lat', '')
    """
    return "" if is_nameless(name, size) else name


class DimBook:
    """The dimensions of a header that is being made.

    Parameters
    ----------
    nodes : datasets with their `cdf_name` set
    before : dimensions of the header that the nodes were read from

    Attributes
    ----------
    dims : list of Dim
    coordinates : for each dimension, the scale that is its coordinate variable, or None
    labels : for each dimension, the label that its name alone stands for
    records : datasets that have the record dimension
    unused : bool, of a header that was read: there are dimensions that no variable uses
    """

    unused = False

    def __init__(self, nodes: Iterable[DatasetNode], before: Iterable[Dim] = ()) -> None:
        self.dims: list[Dim] = []
        self.coordinates: list[DatasetNode | None] = []
        self.labels: list[str] = []
        self._ids: dict[str, int] = {}
        self._own: dict[int, int] = {}
        self._nameless: dict[int, list[int]] = {}
        self._given = dict(before)
        self._made = {name for name, size in self._given.items() if is_nameless(name, size)}
        self._record = -1
        self._plain_of: PlainNames = set
        plain = set[str]()
        self._known_plain: set[str] | None = plain
        self.records: list[DatasetNode] = []
        for node in nodes:
            # `is_record` and `is_placeholder`, as both are called here: this runs once for each variable of a file.
            shape, limits = node.shape or (), node.maxshape
            record = limits is not None and limits[:1] == (None,)
            if node.element.kind == "composite" or 0 in (shape[1:] if record else shape):
                continue
            if record:
                self.records.append(node)
            if len(shape) == 1:
                if node.scale is None:
                    plain.add(node.cdf_name)
                elif not record:
                    self._own[node.uid] = self._add(node.cdf_name, shape[0], node)
        if self.records:
            self._name_record(self.records)

    @classmethod
    def as_read(cls, dims: tuple[Dim, ...], coordinates: Mapping[int, DatasetNode], plain: PlainNames) -> DimBook:
        """Return the dimensions of a header that was read, as they are there.

        Parameters
        ----------
        dims : tuple of Dim
        coordinates : mapping of int to DatasetNode, the coordinate variable of each dimension that has one.
        plain : callable
            Returns the names of all datasets of one axis that are no scales; called when a dimension is to be found
            that has no name.
        """
        book = cls((), dims)
        for index, (name, size) in enumerate(dims):
            book._add(name, size, coordinates.get(index))
            if not size:
                book._record = index
        book._own = {node.uid: index for index, node in coordinates.items()}
        book._plain_of, book._known_plain = plain, None
        return book

    @property
    def _plain(self) -> set[str]:
        """The names of all datasets of one axis that are no scales."""
        if self._known_plain is None:
            self._known_plain = self._plain_of()
        return self._known_plain

    def place(self, node: DatasetNode) -> tuple[int, ...]:
        """Return the dimensions of a dataset's axes, as indices into `dims`; none for a placeholder."""
        if node.is_placeholder:
            return ()
        assert node.shape is not None
        own = self._own.get(node.uid)
        if own is not None:
            return (own,)
        first = [self._record] if node.is_record else []
        axes = node.seen_axes()
        for index in range(len(first), len(node.shape)):
            size, axis = node.shape[index], axes[index]
            # most have no name
            asks = axis.dim_name or axis.label or axis.scales
            found = self._named_axis(node, axis, size) if asks else None
            first.append(self._nameless_axis(node, first, size) if found is None else found)
        return tuple(first)

    def is_of_one(self, name: str) -> bool:
        """Return whether a dataset of one axis, which is no scale, has that name: its dimension has another one."""
        return name in self._plain

    def hidden(self, sizes: tuple[int, ...], names: tuple[str, ...]) -> tuple[int, ...]:
        """Return dimensions that the user does not see: widths of strings, parts of complex numbers."""
        found: list[int] = []
        for size, name in zip(sizes, names, strict=True):
            number, wanted, twice = 1, name, name in names[: len(found)]
            while (index := self._named(wanted, size)) is None or (index in found and not twice):
                number += 1
                wanted = f"{name}_{number}"
            found.append(index)
        return tuple(found)

    def come_plain(self, node: DatasetNode) -> bool:
        """Take note of a new dataset that is no scale; False if its name may change the dimensions of others."""
        shape = node.shape or ()
        if len(shape) == 1 and shape[0]:
            if node.cdf_name in self._ids:
                return False
            self._plain.add(node.cdf_name)
        return True

    def go_plain(self, node: DatasetNode) -> None:
        """Take note that a dataset that is no scale has gone, whose name no dimension has or could be given."""
        if self._known_plain is not None:
            self._known_plain.discard(node.cdf_name)

    def in_order(self, before: tuple[Dim, ...], spare: Container[str]) -> tuple[tuple[Dim, ...], list[int] | None]:
        """Return the dimensions in the order of an earlier header, and what becomes of each index (None: nothing).

        Those of the earlier header that no variable used (`spare`) stay, those that lost their variables go.
        """
        if not before:
            return tuple(self.dims), None
        kept: list[Dim] = []
        place: dict[int, int] = {}
        for dim in before:
            index = self._ids.get(dim.name)
            if index is None and dim.name in spare and (dim.size or self._record < 0):
                kept.append(dim)
                self._ids[dim.name] = -1
            elif index is not None and index >= 0 and index not in place:
                place[index] = len(kept)
                kept.append(self.dims[index])
        for index, dim in enumerate(self.dims):
            if index not in place:
                place[index] = len(kept)
                kept.append(dim)
        moved = [place[index] for index in range(len(self.dims))]
        return tuple(kept), None if moved == list(range(len(moved))) else moved

    # ------------------------------------------------------------------------------------------------- inner

    def _add(self, name: str, size: int, coordinate: DatasetNode | None = None) -> int:
        index = len(self.dims)
        self.dims.append(Dim(name, size))
        self.coordinates.append(coordinate)
        self.labels.append("" if coordinate is not None or is_nameless(name, size) else name)
        self._ids[name] = index
        return index

    def _named(self, name: str, size: int) -> int | None:
        """Return the dimension of that name, made if need be; None if the name has another length."""
        index = self._ids.get(name)
        if index is None:
            return self._add(name, size)
        return index if self.dims[index].size == size else None

    def _named_axis(self, node: DatasetNode, axis: Axis, size: int) -> int | None:
        """Return the dimension that an axis has by a scale, a label or the file that was read; None if it is
        nameless."""
        if axis.scales:
            own = self._own.get(axis.scales[0].uid)
            if own is not None and self.dims[own].size == size:
                return own
        wanted = self._wanted(axis, size)
        if wanted is not None and not (wanted == node.cdf_name and len(node.shape or ()) == 1):
            index = self._named(wanted, size)
            if index is not None and self.coordinates[index] is None:
                return index
        return None

    def _wanted(self, axis: Axis, size: int) -> str | None:
        """Return the name that an axis asks for; the one that was made for it goes when its length changes."""
        if axis.label:
            return legal_name(axis.label)
        name = axis.dim_name
        return None if name in self._made and not is_nameless(name, size) else name

    def _nameless_axis(self, node: DatasetNode, before: Collection[int], size: int) -> int:
        """Return the first nameless dimension of a length that no other axis of the dataset uses, or will use."""
        known = self._nameless.setdefault(size, [])
        if len(node.shape or ()) == 1 and not node.element.trailing:
            avoid: set[str | None] = set()
        else:
            avoid = {self.dims[index].name for index in before}
            avoid.update(map(self._wanted, node.seen_axes(), node.shape or ()), node.element.trailing_names)
        for index in known:
            if self.dims[index].name not in avoid:
                return index
        index = self._find_nameless(f"dim_{size}", size, avoid)
        known.append(index)
        return index

    def _find_nameless(self, base: str, size: int, avoid: Container[str | None] = ()) -> int:
        name, number = base, 1
        while True:
            free = name not in self._plain and name not in avoid and self._given.get(name, size) == size
            index = self._named(name, size) if free else None
            if index is not None and self.coordinates[index] is None:
                return index
            number += 1
            name = f"{base}_{number}"

    def _name_record(self, records: list[DatasetNode]) -> None:
        """Make the record dimension."""
        scales = {node.uid: node for node in records if node.scale is not None and len(node.shape or ()) == 1}
        attached = (scale.uid for node in records for scale in node.seen_axes()[0].scales[:1])
        for uid in chain((uid for uid in attached if uid in scales), scales):
            name = scales[uid].cdf_name
            if name not in self._ids:
                self._record = self._own[uid] = self._add(name, 0, scales[uid])
                return
        first = [node.seen_axes()[0] for node in records]
        labels = [legal_name(axis.label) for axis in first if axis.label]
        given = [axis.dim_name for axis in first if axis.dim_name]
        unused = [name for name, size in self._given.items() if not size]
        # one that is no scale, and would become the coordinate variable
        plain = {node.cdf_name for node in records if node.scale is None and len(node.shape or ()) == 1}
        for wanted in (*labels[:1], *given[:1], *unused):
            if wanted and wanted not in self._ids and wanted not in plain:
                self._record = self._add(wanted, 0)
                return
        self._record = self._find_nameless("record", 0)


# --------------------------------------------------------------------------------------------------- names by a program
# A program names dimensions, as NetCDF programs do: it declares them, and gives the axes by their names.
#
# Rules
# -----
# 1. A declared dimension keeps its place among the dimensions of the file, also if no variable uses it.
# 2. A dataset in the root of one axis whose dimension has its name is a coordinate variable: a scale that is attached
#    to every axis given by that name, whichever of the two was made first.
# 3. Names are checked before anything changes.


def declare(tree: Tree, name: str, size: int | None) -> None:
    """Add a dimension to those of the file, behind those that are there.

    Parameters
    ----------
    tree : Tree
    name : str
    size : int or None, None for the record dimension

    Raises
    ------
    DefinitionError
        A name that NetCDF does not allow, a length below 1, a name that has another length, a second record dimension.

    Examples
    --------
    >>> tree = Tree()
    >>> declare(tree, "time", None)
    >>> tree.file_dims.order
    (Dim(name='time', size=0),)
    """
    check_name(name)
    if size is not None and size < 1:
        raise DefinitionError(f"dimension {name!r}: its length is {size}; give 1 or more, or None for records")
    dim = Dim(name, size or 0)
    order, spare = tree.file_dims.order, tree.file_dims.spare
    for known in order:
        if known == dim:
            return
        if known.name == name:
            raise DefinitionError(
                f"dimension {name!r} has {_size_text(known.size)} in this file, {_size_text(dim.size)} was asked"
            )
        if not known.size and not dim.size:
            raise DefinitionError(
                f"dimension {name!r}: the file has the record dimension {known.name!r} already, and CDF has only one"
            )
    tree.file_dims = FileDims((*order, dim), spare | {name})
    tree.touch()


def name_axes(node: DatasetNode, names: Sequence[str]) -> None:
    """Give the axes of a new dataset names.

    Parameters
    ----------
    node : DatasetNode
    names : sequence of str, one for each axis, and one more if the length of its strings is to have a name

    Raises
    ------
    TypeError
        A name that is no text.
    DefinitionError
        Too few or too many names, a name that NetCDF does not allow or that has another length. Nothing has changed.
    """
    tree, shape, record = node.tree, node.shape or (), node.is_record
    # Programs give the axes of many datasets the same names; those of characters may name one axis more.
    kind = (names, shape, record) if type(names) is tuple and node.element.kind == "number" else None
    try:
        found = tree.file_dims.named.get(kind)
    except TypeError:
        kind = found = None
    if found is None:
        found = _checked(node, names)
        if kind is not None:
            tree.file_dims.named[kind] = found
    node.names = found
    if len(shape) == 1 and found[0][1] == node.name and node.parent is tree.root:
        node.scale = node.name
        for other in tree.datasets.values():
            _attach(other, (node,))
    children = tree.root.children
    scales = [_coordinate(children.get(name)) for _, name in found]  # type: ignore[arg-type]
    if any(scales):
        _attach(node, [scale for scale in scales if scale is not None])


def _checked(node: DatasetNode, names: Sequence[str]) -> tuple[tuple[str, str | None], ...]:
    """Label and name of each axis, if all names can be given."""
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"dims={names!r}: a name for each axis is needed, such as ('time', 'x')")
    given, shape = tuple(names), node.shape or ()
    hidden = node.element.trailing if node.element.is_string else ()
    if len(given) not in (len(shape), len(shape) + len(hidden)):
        more = ", or one more for the length of its strings" if hidden else ""
        raise DefinitionError(f"{node.path}: dims= has {len(given)} names, the dataset has {len(shape)} axes{more}")
    sizes = (0, *shape[1:]) if node.is_record else shape
    declared = dict(node.tree.file_dims.order)
    for name, size in zip(given, (*sizes, *hidden), strict=False):
        check_name(name)
        if declared.get(name, size) != size:
            raise DefinitionError(
                f"{node.path}: dimension {name!r} has {_size_text(declared[name])}, the axis {_size_text(size)}"
            )
    if len(given) > len(shape):
        node.element = node.element._replace(trailing_names=given[len(shape) :])
    return tuple((label_of(name, size), name) for name, size in zip(given, sizes, strict=False))


def _coordinate(node: Any) -> DatasetNode | None:
    """Return what stands in the root under the name of a dimension, if it is its coordinate variable."""
    if type(node) is DatasetNode and node.scale is not None and len(node.shape or ()) == 1:
        return node
    return None


def _attach(node: DatasetNode, scales: Iterable[DatasetNode]) -> None:
    """Attach coordinate variables to the axes that were given by their names, which take the place of labels."""
    for scale in scales:
        for index, (_, name) in enumerate(node.names):
            if name == scale.name:
                axis = node.axes[index]
                axis.label = ""
                if scale is not node and scale not in axis.scales:
                    axis.scales.append(scale)


def _size_text(size: int) -> str:
    return f"length {size}" if size else "records"
