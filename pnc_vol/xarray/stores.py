"""A group of an open file becomes xarray's variables, attributes and dimensions, whose values are read when asked for.

Knows: the tree of a file, xarray's variables and indexers. Does not know: decoding (xarray's own), how files are
opened.

Rules
-----
1. A file of another program gives what ``engine="netcdf4"`` gives, attributes and encodings included.
2. A compound or an array of varying length is shown as the variables of its parts, under the names that other programs
   show. A dataset without elements (null) is not shown: xarray has nothing like it.
3. Variables of a group that use the record dimension have one length there, as the dimension has: one that is shorter
   ends with fill values.

Of values:

4. An array holds no values and no open file: it asks its store for the file at each read. So it can be pickled, and any
   number of threads may read it; no lock is held here.
5. What xarray decodes itself is given as it is stored: characters with an axis for the length, truth values as int8,
   enums as their integers. So the encoding is what other engines give, and is written again as it was read.

Of attributes:

6. Without a marker, an attribute is what netCDF4 makes of it: text, one number, or a row of numbers. The marker adds
   shapes, lists of texts, truth values, complex numbers.
7. Attributes of a convention (``_Encoding``, ``dtype = "bool"``) are shown: xarray decodes them itself. Those of an
   enum are not: its members are in the type.

Of axes:

8. An axis has the name of its NetCDF dimension, as every other program shows it.
9. In a group, a scale of that group or of one above it gives its own name instead: the variable of ``/ocean/depth`` has
   the dimension ``ocean_depth``, and the axis is called ``depth``. In any group, so do a scale and a label where the
   dimension's name was only made for its length, and where there is none, because a length is 0.
10. Two lengths never have one name within a group, since xarray refuses that: then the dimension's name stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray
from xarray.backends import BackendArray
from xarray.backends.common import AbstractDataStore
from xarray.core import indexing
from xarray.core.utils import FrozenDict

from pnc_vol.api.dataset import Dataset, dataset_of
from pnc_vol.api.group import Group
from pnc_vol.format.model import Attr
from pnc_vol.mapping.attribute_encoding import Attribute, decode_attribute
from pnc_vol.mapping.attributes import Attributes
from pnc_vol.mapping.dimensions import is_nameless
from pnc_vol.mapping.dtypes import Element, metadata_of
from pnc_vol.mapping.names import MARKER
from pnc_vol.mapping.tree import Axis, DatasetNode, GroupNode, Node

if TYPE_CHECKING:
    from xarray.backends import FileManager

    from pnc_vol.api.file import File

__all__ = ["GroupDataset", "GroupStore", "datasets_of", "group_paths", "node_of"]

Where = tuple[str, tuple[str, ...]]
"""The path of a dataset, and the names of the parts that lead to a variable of it."""

CHUNK = 16 << 20
"""Bytes that dask is advised to read at once, at most, of a variable that has more."""


class GroupDataset(NamedTuple):
    """A dataset of a group, or a part of one.

    name : str, of the variable in xarray.
    where : Where
    node : DatasetNode
    """

    name: str
    where: Where
    node: DatasetNode


def node_of(file: File, path: str) -> GroupNode:
    """Return the group of an open file at a path.

    Raises
    ------
    OSError
        There is none, as with other engines.
    """
    try:
        found = file[path]
    except KeyError as error:
        raise OSError(f"group not found: {path!r} in {file.filename}") from error
    if not isinstance(found, Group):
        raise OSError(f"group not found: {path!r} in {file.filename} is a dataset; open the group that it is in")
    node: GroupNode = found.id.node
    return node


def group_paths(node: GroupNode) -> Iterator[str]:
    """Yield the paths of a group and of all below it."""
    yield node.path
    for child in node.children.values():
        if isinstance(child, GroupNode):
            yield from group_paths(child)


def datasets_of(group: GroupNode) -> list[GroupDataset]:
    """Return the datasets that are variables of a group, in the order of the file."""
    wanted = {child for child in group.children.values() if isinstance(child, DatasetNode)}
    order = {uid: at for at, uid in enumerate(group.tree.datasets)}
    found: list[GroupDataset] = []
    for node in sorted(wanted, key=lambda node: order[node.uid]):
        found += _leaves(node.name, (node.path, ()), node)
    return found


def _leaves(name: str, where: Where, node: DatasetNode) -> Iterator[GroupDataset]:
    if node.shape is None:
        return
    if not node.parts:
        yield GroupDataset(name, where, node)
    for part, child in node.parts.items():
        yield from _leaves(f"{name}_{part}", (where[0], (*where[1], part)), child)


class GroupStore(AbstractDataStore):
    """One group of a file that is open for reading.

    Parameters
    ----------
    manager : xarray.backends.FileManager
        Gives the open file.
    source : str
        Name of the file, for encodings.
    path : str
        Of the group.
    """

    def __init__(self, manager: FileManager[File], source: str, path: str = "/") -> None:
        self._manager, self._source, self.path = manager, source, path
        with manager.acquire_context() as file:
            group = node_of(file, path)
            self._header = _attributes_of(file)
            self._unlimited = {dim.name for dim in group.tree.file_dims.order if not dim.size and group.parent is None}
            self._attrs = _shown_attributes(group.attrs)
            self._variables = self._read(group)

    def _read(self, group: GroupNode) -> dict[str, xarray.Variable]:
        found = datasets_of(group)
        # a scale names its own axis first: others may have it attached to axes of another length
        scales_first = sorted(found, key=lambda one: one.node.scale is None)
        names = dict(zip((one.where for one in scales_first), _named_axes(_shapes(scales_first)), strict=True))
        records = max((one.node.shape[0] for one in found if one.node.is_record and one.node.shape), default=0)
        made: dict[str, xarray.Variable] = {}
        for one in found:
            made.setdefault(one.name, self._variable(one, names[one.where], records))
        return made

    def _variable(self, one: GroupDataset, dims: tuple[str, ...], records: int) -> xarray.Variable:
        node = one.node
        element = node.element
        shape = node.shape or ()
        if node.is_record:
            shape = (records, *shape[1:])
        for axis, (limit, name) in enumerate(zip(node.maxshape or (), dims, strict=False)):
            if limit is None and (axis or node.is_record):
                self._unlimited.add(name)
        data = indexing.LazilyIndexedArray(_StoredArray(self._manager, one.where, element, shape))
        dtype = _shown_dtype(element)
        members = metadata_of(element.dtype).get("enum") if element.kind == "enum" else None
        attrs = _shown_attributes(node.attrs, self._header.get(node.cdf_name, ()), enum=members is not None)
        encoding: dict[str, Any] = {"dtype": dtype, "source": self._source, "original_shape": data.shape}
        if members is not None:
            encoding["dtype"] = np.dtype(dtype.str, metadata={"enum": members, "enum_name": f"{node.name}_t"})
        if dtype.kind == "S" and "_FillValue" in attrs:
            attrs["_FillValue"] = np.bytes_(attrs["_FillValue"])
        if node.is_record and (chunk := _records_of_a_chunk(data.shape, dtype.itemsize)):
            encoding["preferred_chunks"] = dict(zip(dims, (chunk, *data.shape[1:]), strict=True))
        return xarray.Variable(dims, data, attrs, encoding)

    def get_variables(self) -> FrozenDict[str, xarray.Variable]:
        """Return the variables of the group."""
        return FrozenDict(self._variables)

    def get_attrs(self) -> FrozenDict[str, Any]:
        """Return the attributes of the group."""
        return FrozenDict(self._attrs)

    def get_dimensions(self) -> FrozenDict[str, int]:
        """Return the dimensions that variables use, and their lengths."""
        return FrozenDict({name: size for var in self._variables.values() for name, size in var.sizes.items()})

    def get_encoding(self) -> dict[str, Any]:
        """Return the unlimited dimensions."""
        return {"unlimited_dims": self._unlimited}

    def close(self) -> None:
        """Close the file, which is opened again if something is read."""
        self._manager.close()


def _records_of_a_chunk(shape: tuple[int, ...], itemsize: int) -> int:
    """Return how many records dask is to read at once; 0 for a variable that is small enough for one chunk.

    A power of two: where variables with records of different sizes meet, their chunks nest.
    """
    record = prod(shape[1:]) * itemsize
    if shape[0] * record <= CHUNK:
        return 0
    return 1 << max(1, CHUNK // record).bit_length() - 1


def _shapes(found: list[GroupDataset]) -> Iterator[tuple[tuple[tuple[str, str], ...], tuple[int, ...]]]:
    """Yield the names and lengths of the axes of each variable, inner ones included; records of all count as one
    length."""
    records = max((one.node.shape[0] for one in found if one.node.is_record and one.node.shape), default=0)
    for one in found:
        node = one.node
        owner = node.owner or node
        while owner.owner is not None:
            owner = owner.owner
        assert isinstance(owner.parent, GroupNode)
        shape = node.shape or ()
        if node.is_record:
            shape = (records, *shape[1:])
        sizes, inner = _inner_axes(node.element)
        yield _axis_names(node, owner.parent) + tuple((name, name) for name in inner), shape + sizes


def _attributes_of(file: File) -> dict[str, tuple[Attr, ...]]:
    """Return the attributes of each variable in the header, by its name there."""
    session = file.id.check()
    return {var.name: var.attrs for var in session.disk.header.vars}


# --------------------------------------------------------------------- what attributes are in xarray


def _shown_attributes(attributes: Attributes, raw: Iterable[Attr] = (), *, enum: bool = False) -> dict[str, Any]:
    """Return the attributes of a group or variable, in the order in which they are stored.

    Parameters
    ----------
    attributes : Attributes
        Those that users of h5py's interface see.
    raw : iterable of Attr
        All attributes of the variable in the header; none for a group.
    enum : bool
        The variable is an enum.

    Examples
    --------
    >>> _shown_attributes(Attributes((Attr("units", 2, 1, b"K"),)))
    {'units': 'K'}
    """
    found: dict[str, Any] = {}
    seen = {attr.name: name for name, attr in attributes.stored().items()}
    for attr in raw:
        name = seen.pop(attr.name, None)
        if name is not None:
            found[name] = _value(attributes[name])
        elif attr.name != MARKER and not enum:
            found[attr.name] = _value(decode_attribute(attr))
    for name in seen.values():
        found[name] = _value(attributes[name])
    return found


def _value(attribute: Attribute) -> Any:
    """Return a value as netCDF4 gives it: `str`, list of `str`, numpy scalar or array; empty text or row for an empty
    one."""
    value = attribute.value
    if value is None:
        return "" if attribute.dtype.kind in "OS" else np.empty(0, attribute.dtype)
    if value.dtype.kind == "S":
        value = np.array([_text(item) for item in value.ravel().tolist()], object).reshape(value.shape)
    if value.dtype.kind == "O":
        found = value.tolist()
        return found.replace("\0", "") if isinstance(found, str) else found
    return value[()] if value.ndim == 0 else value.copy()


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


# -------------------------------------------------------------------- what axes are called in xarray


def _axis_names(node: DatasetNode, group: GroupNode) -> tuple[tuple[str, str], ...]:
    """Return, for each axis, the name that is wanted in a group, and the one of its dimension.

    Parameters
    ----------
    node : DatasetNode, of the group
    group : GroupNode
    """
    shape = node.shape or ()
    found = []
    for index, (axis, size) in enumerate(zip(node.seen_axes(), shape, strict=True)):
        record = index == 0 and node.is_record
        given = axis.dim_name or f"dim_{size}"
        found.append((_wanted(node, axis, given, 0 if record else size, group), given))
    return tuple(found)


def _wanted(node: DatasetNode, axis: Axis, given: str, size: int, group: GroupNode) -> str:
    if group.parent is None and axis.dim_name is not None and not is_nameless(given, size):
        return given
    scale = node if node.scale is not None and len(node.shape or ()) == 1 else None
    if scale is None and axis.scales and _above(axis.scales[0], group):
        scale = axis.scales[0]
    return (scale.name if scale is not None else "") or axis.label or given


def _above(node: Node, group: GroupNode) -> bool:
    """Return whether a dataset is in the group, or in one above it."""
    step: GroupNode | None = group
    while step is not None:
        if node.parent is step:
            return True
        step = step.parent
    return False


def _named_axes(shapes: Iterable[tuple[tuple[tuple[str, str], ...], tuple[int, ...]]]) -> list[tuple[str, ...]]:
    """Return the names of the axes of all variables of a group: those that are wanted, as far as no name has two
    lengths.

    Parameters
    ----------
    shapes : iterable of (names, shape)
        Names as `_axis_names` gives them.

    Examples
    --------
    >>> _named_axes([((("x", "dim_2"),), (2,)), ((("x", "dim_3"),), (3,))])
    [('x',), ('dim_3',)]
    """
    sizes: dict[str, int] = {}
    named = []
    for names, shape in shapes:
        taken: list[str] = []
        for (wanted, given), size in zip(names, shape, strict=True):
            free = sizes.get(wanted, size) == size and wanted not in taken
            name = wanted if free or wanted == given else given
            number = 2
            while sizes.setdefault(name, size) != size:
                name, number = f"{given}_{number}", number + 1
            taken.append(name)
        named.append(tuple(taken))
    return named


# ------------------------------------------------------------------------- the values of one variable


def _shown_dtype(element: Element) -> np.dtype[Any]:
    """Return the type of the values that xarray gets, before it decodes them."""
    kind = element.kind
    if element.is_string:
        return np.dtype("S1")
    if kind == "bool":
        return np.dtype("i1")
    if kind == "opaque":
        return np.dtype("u1")
    dtype = element.dtype.base
    return np.dtype(dtype.str) if kind == "enum" or dtype.metadata else dtype


def _inner_axes(element: Element) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the lengths and names of the axes behind those of the dataset: of characters, of bytes, of an array
    type."""
    if element.kind in ("complex", "longdouble"):
        return (), ()
    return element.trailing, element.trailing_names


class _StoredArray(BackendArray):
    """What xarray holds for a variable that it has not read.

    Parameters
    ----------
    manager : xarray.backends.FileManager
        Gives the open file, which stays open while it is used.
    where : (str, tuple of str)
        The dataset, and the parts on the way to the variable; see `Where`.
    element : Element
    shape : tuple of int
        Of the variable in xarray without inner axes: records may be more than the dataset has, and those that it lacks
        read as its fill value.
    """

    __slots__ = ("_bytes", "_inner", "_manager", "_outer", "_where", "_width", "dtype", "shape")

    def __init__(self, manager: FileManager[File], where: Where, element: Element, shape: tuple[int, ...]) -> None:
        self._manager, self._where, self._outer = manager, where, shape
        self._inner = _inner_axes(element)[0]
        self._width = element.itemsize if element.is_string else 0
        self._bytes = element.is_string or element.kind == "opaque"
        self.shape = shape + self._inner
        self.dtype = _shown_dtype(element)

    def __getitem__(self, key: indexing.ExplicitIndexer) -> npt.NDArray[Any]:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read)

    def _read(self, key: tuple[Any, ...]) -> npt.NDArray[Any]:
        outer, inner = key[: len(self._outer)], key[len(self._outer) :]
        values = np.asarray(self._values(outer))
        if self._width:
            # texts as wide as in the file
            values = np.asarray(values, dtype=f"S{self._width}")
        if self._bytes or values.dtype != self.dtype:
            # seen as another type, never converted
            shape = values.shape + (self._inner if self._bytes else ())
            values = np.ascontiguousarray(values).view(self.dtype).reshape(shape)
        if inner:
            taken = indexing.NumpyIndexingAdapter(values)
            values = np.asarray(
                taken.oindex[indexing.OuterIndexer((slice(None),) * (values.ndim - len(inner)) + inner)]
            )
        return values

    def _values(self, key: tuple[Any, ...]) -> Any:
        with self._manager.acquire_context() as file:
            dataset = _dataset_at(file, self._where)
            if dataset.shape == self._outer or dataset.shape is None:
                return dataset[key]
            return _padded(dataset, key, self._outer)


def _dataset_at(file: File, where: Where) -> Dataset:
    """Return the dataset of an open file."""
    path, parts = where
    dataset: Dataset = file[path]
    if not parts:
        return dataset
    node = dataset.id.node
    for part in parts:
        node = node.parts[part]
    return dataset_of(dataset.id.handle, node)


def _padded(dataset: Dataset, key: tuple[Any, ...], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return what a key selects of a dataset with fewer records than the others: fill values where it has none."""
    records = len(dataset)
    wanted = np.atleast_1d(np.arange(shape[0])[key[0]])
    there = wanted < records
    values = np.asarray(dataset[(wanted[there], *key[1:])])
    made = np.full((len(wanted), *values.shape[1:]), dataset.fillvalue, values.dtype)
    made[there] = values
    return made[0] if isinstance(key[0], (int, np.integer)) else made
