"""h5grove's content classes read these objects of either library.

Knows: what h5grove asks an object of h5py, and h5py's types, which have its answers. Does not know: HTTP, open files.

Rules
-----
1. What h5grove does is h5grove's: kinds, selections, statistics, encodings. Here is only what it asks the objects. It
   gets them, and no link file of them (`convert.link`), which would have to be written and kept up to date, and shows
   compounds as groups, and bookkeeping.
2. A link out of the file is shown, and not followed: what is read is the file that the user named.
3. Beside each numeric dataset there is a group that is in no file, for the page to draw the dataset over its axes:
   ``//line/PATH``, ``//map/PATH``. No path of an object begins so. It is a NeXus group (``NXdata``) of the values
   without packing and fill values, and the axes: h5web draws over axes only what such a group describes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import h5py
import numpy as np
from h5grove.content import (
    DatasetContent,
    DatatypeContent,
    EntityContent,
    ExternalLinkContent,
    GroupContent,
    ResolvedEntityContent,
    SoftLinkContent,
)
from h5grove.utils import PathError, get_type_metadata, hdf_path_join, parse_slice

from pnc_vol.convert import inspect_hdf5
from pnc_vol.mapping.dtypes import check_ref_dtype
from pnc_vol.viewer.coordinates import Decoding, axes_of, is_numeric, label_of, name_of, place_of

__all__ = ["content_of", "first_of", "json_value", "paths_below", "shape_of_selection"]

VIEWS = ("//line/", "//map/")

_STRING = h5py.string_dtype()
_TROUBLE = (KeyError, OSError, RuntimeError, TypeError, ValueError)
"""What h5py raises for a member that is there, and cannot be opened."""


_MOST_COLUMNS = 256
"""A compound of more is shown as it is, one element at a time."""
_MOST_LOOKED_AT = 501
"""Objects among which the dataset to begin with is looked for, the root included."""


class Column(NamedTuple):
    """A field of a compound, or one element of a field that is an array or a compound.

    name : str, such as ``"position[0]"`` or ``"star.mass"``.
    dtype : dtype
    place : tuple, a field and an index in its array for each level.
    """

    name: str
    dtype: np.dtype[Any]
    place: tuple[tuple[str, tuple[int, ...]], ...]

    def of(self, values: Any) -> Any:
        """Return the column of an array of compounds."""
        for field, index in self.place:
            values = values[field][(..., *index)]
        return values


def columns(dtype: np.dtype[Any], above: str = "", place: tuple[Any, ...] = ()) -> Iterator[Column]:
    """Yield the columns of a table of compounds: h5web has tables only of numbers and texts.

    Examples
    --------
    >>> [column.name for column in columns(np.dtype([("id", "i4"), ("position", "f4", (2,))]))]
    ['id', 'position[0]', 'position[1]']
    """
    for field in dtype.names or ():
        element = dtype[field]
        for index in np.ndindex(element.shape):
            name = f"{above}{field}[{','.join(map(str, index))}]" if index else f"{above}{field}"
            inner = (*place, (field, index))
            if element.base.names:
                yield from columns(element.base, f"{name}.", inner)
            else:
                yield Column(name, element.base, inner)


def stored_type(dtype: np.dtype[Any]) -> Any:
    """Return what HDF5 calls a type of ours."""
    try:
        return h5py.h5t.py_create(dtype, logical=True)
    except TypeError:
        return h5py.h5t.py_create(h5py.ref_dtype if check_ref_dtype(dtype) else np.dtype("V1"), logical=True)


class _LowLevel:
    """What h5grove asks the id of a dataset, or of an attribute."""

    def __init__(self, shape: tuple[int, ...] | None, dtype: np.dtype[Any]) -> None:
        self.shape = shape
        self._dtype = dtype

    def get_type(self) -> Any:
        return stored_type(self._dtype)

    def get_create_plist(self) -> Any:
        return h5py.h5p.create(h5py.h5p.DATASET_CREATE)


class _Attributes(Mapping[str, Any]):
    """The attributes of an object of a file, without the bookkeeping of scales."""

    def __init__(self, obj: Any) -> None:
        self._obj = obj
        hidden = inspect_hdf5.bookkeeping(obj)
        self._names = [name for name in obj.attrs if name not in hidden]

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise PathError(f"{name!r} is not an attribute of {self._obj.name}")
        return json_value(self._obj.attrs[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def get_id(self, name: str) -> Any:
        found = self._obj.attrs.get_id(name)
        return found if inspect_hdf5.is_hdf5(self._obj) else _LowLevel(found.shape, found.dtype)


class _Texts(dict[str, Any]):
    """Attributes that are in no file: texts, and lists of texts."""

    def get_id(self, name: str) -> _LowLevel:
        value = self[name]
        return _LowLevel(() if isinstance(value, str) else (len(value),), _STRING)


class _Dataset:
    """A dataset as h5grove reads it: of a file, or made of others."""

    def __init__(
        self,
        shape: tuple[int, ...] | None,
        dtype: np.dtype[Any],
        attrs: Mapping[str, Any],
        read: Callable[[Any], Any],
        *,
        oid: Any = None,
        chunks: tuple[int, ...] | None = None,
    ) -> None:
        self.shape = shape
        self.ndim = len(shape or ())
        self.dtype = dtype
        self.attrs = attrs
        self.chunks = chunks
        self.id = oid or _LowLevel(shape, dtype)
        self._read = read

    def __getitem__(self, selection: Any) -> Any:
        return self._read(selection)


class _Described(DatasetContent):  # type: ignore[misc]
    """A dataset of a file, with the names of its dimensions, which h5grove does not have; `columns` of compounds."""

    def __init__(self, path: str, dataset: _Dataset, dimensions: list[str]) -> None:
        super().__init__(path, dataset)
        self._dimensions = dimensions
        found = list(itertools.islice(columns(dataset.dtype), _MOST_COLUMNS + 1))
        plain = len(found) == len(dataset.dtype.names or ())
        self._columns = [] if plain or len(found) > _MOST_COLUMNS else found
        self._row = np.dtype([(column.name, column.dtype) for column in self._columns])

    def metadata(self, depth: int = 1) -> Any:
        found = super().metadata(depth)
        if self._columns:
            found = {**found, "type": get_type_metadata(stored_type(self._row))}
        return {**found, "dimensions": self._dimensions} if any(self._dimensions) else found

    def data(self, selection: Any = None, flatten: bool = False, dtype: str | None = "origin") -> Any:
        values = super().data(selection, flatten, dtype)
        if not self._columns or not isinstance(values, np.ndarray | np.void):
            return values
        table = np.asarray(values)
        rows = np.empty(table.shape, self._row)
        for column in self._columns:
            rows[column.name] = column.of(table)
        return rows[()]


class _Members(GroupContent):  # type: ignore[misc]
    """A group, with what its members are."""

    def __init__(self, path: str, attrs: Mapping[str, Any], members: Callable[[], list[EntityContent]]) -> None:
        super().__init__(path, SimpleNamespace(attrs=attrs), None)
        self._members = members

    def metadata(self, depth: int = 1) -> Any:
        found = ResolvedEntityContent.metadata(self)
        if depth > 0:
            found["children"] = [member.metadata(depth - 1) for member in self._members()]
        return found


def content_of(file: Any, path: str) -> EntityContent:
    """Return the metadata of an object, as h5grove has it.

    Parameters
    ----------
    file : an open file of h5py, or of ours.
    path : str
        From the root, or that of a view.

    Raises
    ------
    PathError
        There is no such object.
    """
    for prefix in VIEWS:
        if path.startswith(prefix):
            return _view(file, prefix, path)
    if path in ("", "/"):
        return _content(file, "/", file["/"])
    try:
        link = file.get(path, getlink=True)
    except _TROUBLE:
        link = None
    if link is None:
        raise PathError(f"{path} is not a valid path in the file")
    if type(link).__name__ == "ExternalLink":
        return ExternalLinkContent(path, link)
    try:
        found = file[path]
    except _TROUBLE:
        found = None
    if found is None or found.file.filename != file.filename:
        if type(link).__name__ == "SoftLink":
            return SoftLinkContent(path, link)
        raise PathError(f"{path} is not a valid path in the file: it cannot be opened, or is in another file")
    return _content(file, path, found)


def _content(file: Any, path: str, obj: Any) -> EntityContent:
    attrs = _Attributes(obj)
    kind = inspect_hdf5.kind_of_object(obj)
    if kind == "group":
        return _Members(path, attrs, lambda: [_member(file, hdf_path_join(path, name)) for name in obj])
    own = obj.id if inspect_hdf5.is_hdf5(obj) else None
    if kind == "type":
        return DatatypeContent(path, SimpleNamespace(id=own or stored_type(obj.dtype), attrs=attrs))
    # h5grove asks the id of an object of h5py; there are types of HDF5 that numpy does not have
    has_dtype = own is None or isinstance(own.get_type(), h5py.h5t.TypeCompoundID)
    dtype = obj.dtype if has_dtype else _STRING
    # CDF has no chunks, and what `chunks` shows there of records and of options that were ignored would mislead.
    chunks = obj.chunks if own is not None else None
    names = [name_of(obj, number) for number in range(len(obj.shape or ()))]
    dataset = _Dataset(obj.shape, dtype, attrs, _reader(obj), oid=own, chunks=chunks)
    return _Described(path, dataset, names)


def _member(file: Any, path: str) -> EntityContent:
    """Return a member of a group; of one that cannot be opened there is only the name."""
    try:
        return content_of(file, path)
    except PathError:
        return EntityContent(path)


def _reader(dataset: Any) -> Callable[[Any], Any]:
    return lambda selection: dataset[selection]


# ------------------------------------------------------------------------------------------------------ views


def _view(file: Any, prefix: str, path: str) -> EntityContent:
    """Return the group ``//map/PATH`` of a dataset, or a member of it."""
    inner = path[len(prefix) - 1 :]
    dataset, name = file.get(inner), ""
    if not hasattr(dataset, "shape"):
        inner, _, name = inner.rpartition("/")
        dataset = file.get(inner or "/")
    if not hasattr(dataset, "shape") or dataset.file.filename != file.filename:
        raise PathError(f"{path} is not a valid path: there is no such dataset")
    members = dict(_members_of_view(dataset, even=prefix == "//map/")) if is_numeric(dataset) else {}
    if name:
        if name not in members:
            raise PathError(f"{path} is not a valid path: the view has no {name!r}")
        return DatasetContent(path, members[name])
    axes = [each for each in members if each != "values"]
    shown = _Texts(NX_class="NXdata", signal="values", axes=axes) if members else _Texts()
    return _Members(path, shown, lambda: [DatasetContent(f"{path}/{each}", made) for each, made in members.items()])


def _members_of_view(dataset: Any, *, even: bool) -> Iterator[tuple[str, _Dataset]]:
    points = place_of(dataset) if even else None
    axes = points or axes_of(dataset, even=even)
    turned = [] if points else [number for number, axis in enumerate(axes) if axis.reversed]
    decoding = Decoding.of(dataset)
    label = _Texts(long_name=label_of(dataset))
    yield "values", _Dataset(dataset.shape, decoding.dtype, label, lambda at: decoding(_turned(dataset, turned, at)))
    for number, axis in enumerate(axes):
        values = np.arange(dataset.shape[number]) if axis.values is None else axis.values
        attrs = _Texts(long_name=axis.label or f"D{number}", **({"units": axis.units} if axis.units else {}))
        yield f"axis{number}", _Dataset(values.shape, values.dtype, attrs, _reader(values))


def _turned(dataset: Any, axes: list[int], selection: Any) -> Any:
    """Return a selection of values whose `axes` run backwards; a single index is that of the file."""
    if not axes:
        return dataset[selection]
    given = list(selection) if isinstance(selection, tuple) and selection != () else []
    chosen = [*given, *[slice(None)] * (dataset.ndim - len(given))]
    back = []
    for axis in axes:
        if isinstance(chosen[axis], slice):
            run = range(dataset.shape[axis])[::-1][chosen[axis]]
            chosen[axis] = slice(run[-1], run[0] + 1, -run.step) if run and run.step < 0 else slice(0, 0)
            back.append(sum(isinstance(each, slice) for each in chosen[:axis]))
    return np.flip(dataset[tuple(chosen)], tuple(back))


# ---------------------------------------------------------------------------------------------- questions beside


def paths_below(file: Any, path: str) -> list[str]:
    """Return the paths of a group and of all that is below it, each object once."""
    base = content_of(file, path)
    if not isinstance(base, GroupContent):
        raise PathError(f"{path} is not a group")
    found, seen, waiting = [base.path], set(), [(base.path, file[base.path])]
    while waiting:
        at, group = waiting.pop()
        if (who := inspect_hdf5.identity(group)) in seen:
            continue
        seen.add(who)
        for name in group:
            inner = hdf_path_join(at, name)
            found.append(inner)
            link = group.get(name, getlink=True)
            member = group.get(name) if type(link).__name__ == "HardLink" else None
            if member is not None and inspect_hdf5.kind_of_object(member) == "group":
                waiting.append((inner, member))
    return sorted(found)


def first_of(file: Any) -> str:
    """Return the dataset to begin with: the first of two axes or more, else the first of one that is no scale; else the
    root."""
    second = "/"
    for path in paths_below(file, "/")[:_MOST_LOOKED_AT]:
        obj = file.get(path, getlink=True) and file.get(path) if path != "/" else None
        if obj is None or not hasattr(obj, "shape") or not is_numeric(obj):
            continue
        if len(obj.shape) > 1:
            return path
        if second == "/" and inspect_hdf5.scale_name(obj) is None:
            second = path
    return second


def shape_of_selection(shape: tuple[int, ...], selection: str | None) -> tuple[int, ...]:
    """Return the shape of what a selection of h5grove reads.

    Raises
    ------
    IndexError, ValueError, TypeError
        The selection does not fit.

    Examples
    --------
    >>> shape_of_selection((4, 5, 6), "1,:,::2")
    (5, 3)
    """
    empty = np.broadcast_to(np.empty((), bool), shape)
    return empty.shape if selection is None else empty[parse_slice(selection)].shape


def json_value(value: Any) -> Any:
    """Return a value as JSON can have it: texts for bytes and references, None for what is empty."""
    if isinstance(value, (np.ndarray, np.generic)):
        if value.dtype.kind not in "biufc":
            return json_value(value.tolist())
        # orjson takes numbers of this machine's byte order alone
        return value.astype(value.dtype.newbyteorder("="), copy=False)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if isinstance(value, (list, tuple)):
        return [json_value(each) for each in value]
    if isinstance(value, complex):
        return [value.real, value.imag]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, int):
        return value
    return None if type(value).__name__ == "Empty" else str(value)
