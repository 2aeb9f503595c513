"""A `VirtualLayout` maps parts of other datasets into a virtual dataset, which is made of it in a file.

Knows: shapes and selections, h5py's classes. Does not know: how sources are read
(`virtual_data`), raw files (`raw_files`).

Rules
-----
1. What h5py refuses while a plan is made is refused here, so that a program fails where it would fail with h5py.
2. A source is not looked at when a virtual dataset is made: it may come into being later, or never.
"""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pnc_vol.api import paths, raw_files
from pnc_vol.api.dataset import Dataset
from pnc_vol.api.module import UNLIMITED
from pnc_vol.api.objects import Datatype, wrap
from pnc_vol.api.regions import other_selection
from pnc_vol.errors import ConversionError, DefinitionError, NotYetError, OperationError, SelectionValueError
from pnc_vol.extents.selection import Selection, select
from pnc_vol.mapping.elsewhere import Elsewhere, Evenly, Hyperslab, SourceMapping, add_elsewhere, element_of, problem

if TYPE_CHECKING:
    from pnc_vol.api import dataset_plan
    from pnc_vol.api.group import Group

__all__ = ["VirtualLayout", "VirtualSource", "building", "look_first_in", "make_external", "make_virtual"]

Shape = tuple[int, ...]
Limits = tuple[int | None, ...]


def _limits(value: int | Limits) -> Shape:
    wanted = (value,) if isinstance(value, int) else tuple(value)
    return tuple(UNLIMITED if limit is None else limit for limit in wanted)


class VirtualSource:
    """A dataset, or a part of one, that a virtual dataset shows.

    Parameters
    ----------
    path_or_dataset : str, path-like or Dataset
        Of a dataset all else is known; of a path, `name` and `shape` are needed.
    name : str, optional
        The dataset's path in its file.
    shape : int or tuple of int, optional
    dtype : dtype-like, optional
    maxshape : int or tuple of int or None, optional

    Raises
    ------
    TypeError
        Too much is said of a dataset, or too little of a path.

    Examples
    --------
    >>> VirtualSource("a.nc", "x", (20, 30))[5:10, ::3].shape
    (5, 10)
    """

    def __init__(
        self,
        path_or_dataset: Any,
        name: str | None = None,
        shape: int | Shape | None = None,
        dtype: npt.DTypeLike | None = None,
        maxshape: int | Limits | None = None,
    ) -> None:
        given = {"name": name, "shape": shape, "dtype": dtype, "maxshape": maxshape}
        if isinstance(path_or_dataset, Dataset):
            extra = [key for key, value in given.items() if value is not None]
            if extra:
                raise TypeError(f"If a Dataset object is passed, these must not be given as well: {', '.join(extra)}")
            found = path_or_dataset
            if found.shape is None:
                raise ConversionError("an empty dataset cannot be the source of a virtual dataset")
            self.path, self.name = found.file.filename, found.name
            self.dtype: np.dtype[Any] | None = found.dtype
            self._whole: Shape = found.shape
            self.maxshape = _limits(found.maxshape or found.shape)
        else:
            missing = [key for key in ("name", "shape") if given[key] is None]
            if missing:
                raise TypeError(f"with a path, these must be given as well: {', '.join(missing)}")
            self.path, self.name = path_or_dataset, name
            self.dtype = None if dtype is None else np.dtype(dtype)
            self._whole = (shape,) if isinstance(shape, int) else tuple(shape or ())
            self.maxshape = self._whole if maxshape is None else _limits(maxshape)
        self.selection: Selection | None = None
        self._key: Any = ()

    @property
    def shape(self) -> Shape:
        """Of what is selected."""
        return self._whole if self.selection is None else self.selection.result_shape

    def __getitem__(self, key: Any) -> VirtualSource:
        """Return a part of the source, by the indices of a dataset.

        Raises
        ------
        RuntimeError
            This is a part already.
        """
        if self.selection is not None:
            raise OperationError("VirtualSource objects can only be sliced once")
        part = copy.copy(self)
        part.selection, part._key = _selection(self._whole, key), key
        return part

    def region(self) -> Hyperslab:
        """Return the elements that are shown."""
        return _region(self._whole, self._key)


class VirtualLayout:
    """Which sources a virtual dataset is made of.

    Parameters
    ----------
    shape : int or tuple of int
    dtype : dtype-like
    maxshape : int or tuple of int or None, optional
    filename : str, optional
        The file that the dataset will be in, if it is known: sources in it are noted as ``"."``.

    Examples
    --------
    >>> layout = VirtualLayout((4, 10), "f8")
    >>> layout[0] = VirtualSource("a.nc", "x", (10,))
    >>> len(layout.sources)
    1
    """

    def __init__(
        self,
        shape: int | Shape,
        dtype: npt.DTypeLike,
        maxshape: int | Limits | None = None,
        filename: Any = None,
    ) -> None:
        self.shape: Shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.dtype = dtype.dtype if isinstance(dtype, Datatype) else np.dtype(dtype)
        self.maxshape = (maxshape,) if isinstance(maxshape, int) else maxshape
        self.sources: list[SourceMapping] = []
        self._filename = None if filename is None else os.fsdecode(filename)

    def __setitem__(self, key: Any, source: VirtualSource) -> None:
        """Say what is shown where.

        Raises
        ------
        ValueError
            The selections have a different number of elements, or are such as no virtual dataset has.
        """
        file = os.fsdecode(source.path)
        file = "." if self._filename is not None and file == self._filename else file
        made = SourceMapping(_region(self.shape, key), file, str(source.name), source.region())
        wrong = problem(made, self.shape)
        if wrong:
            raise SelectionValueError(f"Invalid mapping selections: {wrong}")
        self.sources.append(made)

    def sources_in(self, filename: str) -> tuple[SourceMapping, ...]:
        """Return the sources of a dataset in that file.

        Raises
        ------
        ValueError
            Another file was named when the layout was made.
        """
        if self._filename is not None and self._filename != filename:
            raise DefinitionError(f"the layout was made for the file {self._filename!r}, not for {filename!r}")
        return tuple(one._replace(file="." if one.file == filename else one.file) for one in self.sources)


def _selection(shape: Shape, key: Any) -> Selection:
    found = other_selection(shape, key)
    return select(shape, key) if found is None else found


def _region(shape: Shape, key: Any) -> Hyperslab:
    """Return the elements that an index selects; a slice that ends at ``UNLIMITED`` has no end."""
    chosen = _selection(shape, key)
    if chosen.listed is not None:
        raise SelectionValueError(
            "Invalid mapping selections: masks, points, and lists that are not increasing have no place in a virtual "
            "dataset; use slices, and one increasing list"
        )
    axes: list[Any] = []
    for axis in range(len(shape)):
        start, stride, count = chosen.start[axis], chosen.stride[axis], chosen.count[axis]
        if axis == chosen.axis and chosen.index is not None:
            axes.append(tuple(chosen.index.tolist()))
        elif stride == 1:
            axes.append(Evenly(start, 1, 1, count) if count else ())
        else:
            axes.append(Evenly(start, stride, count, 1))
    for axis in _endless(shape, key):
        step = chosen.stride[axis] if chosen.count[axis] > 1 else _step(key, axis, len(shape))
        axes[axis] = Evenly(chosen.start[axis], step, None, 1)
    return Hyperslab(shape, tuple(axes))


def _by_axis(key: Any, rank: int) -> list[Any]:
    """Return what an index says of each axis."""
    parts = list(key) if isinstance(key, tuple) else [key]
    at = next((i for i, part in enumerate(parts) if part is Ellipsis), None)
    if at is not None:
        parts[at : at + 1] = [slice(None)] * (rank - len(parts) + 1)
    return parts + [slice(None)] * (rank - len(parts))


def _endless(shape: Shape, key: Any) -> list[int]:
    return [
        axis
        for axis, part in enumerate(_by_axis(key, len(shape)))
        if isinstance(part, slice) and isinstance(part.stop, (int, np.integer)) and part.stop == UNLIMITED
    ]


def _step(key: Any, axis: int, rank: int) -> int:
    step = _by_axis(key, rank)[axis].step
    return 1 if step is None else int(step)


# -------------------------------------------------------------------------------------------------- making


@contextlib.contextmanager
def building(
    group: Group, name: Any, shape: Any, dtype: Any, maxshape: Any = None, fillvalue: Any = None
) -> Iterator[VirtualLayout]:
    """Yield a layout whose dataset is made at the end of the ``with`` block."""
    layout = VirtualLayout(shape, dtype, maxshape, group.file.filename)
    yield layout
    make_virtual(group, name, layout, fillvalue)


def make_virtual(group: Group, name: Any, layout: VirtualLayout, fillvalue: Any) -> Dataset:
    """Make a virtual dataset; see `Group.create_virtual_dataset`."""
    if not isinstance(layout, VirtualLayout):
        raise TypeError(f"a VirtualLayout is needed, not {layout!r}")
    sources = layout.sources_in(group.file.filename)
    limits = layout.maxshape
    if limits is not None:
        limits = tuple(limits)
        if len(limits) != len(layout.shape):
            raise DefinitionError("'maxshape' must have same rank as the shape of the layout")
        if any(limit is not None and limit < n for limit, n in zip(limits, layout.shape, strict=True)):
            raise DefinitionError(f"maxshape={limits} is smaller than shape={layout.shape}")
    element = element_of(layout.dtype)
    fill = fill_bytes(fillvalue, element.dtype)
    return make(group, name, element, limits, Elsewhere(layout.shape, fill, sources), {})


def fill_bytes(value: Any, dtype: np.dtype[Any]) -> bytes | None:
    """Return a fill value as one element in memory.

    Raises
    ------
    TypeError
        No way from the value to the type.
    ValueError
        Not one value, or one that does not fit the type.
    NotYetError
        Of objects: texts, arrays of varying length, references.
    """
    if value is None:
        return None
    if dtype.hasobject:
        raise NotYetError(f"fillvalue={value!r}: {dtype!r} has none here; leave fillvalue= out")
    found = raw_files.in_memory_form(np.asarray(value), dtype, "raise", "fillvalue")
    if found.shape != ():
        raise DefinitionError(f"fillvalue={value!r}: one value is needed")
    return found.tobytes()


def make(
    group: Group, name: Any, element: Any, limits: Limits | None, away: Elsewhere, prefixes: dict[str, str]
) -> Dataset:
    """Make a dataset whose data live elsewhere.

    Raises
    ------
    NotYetError
        A type, a file or a layout of files that cannot have such datasets.
    """
    session = group._id.check()
    if element.dtype.subdtype is not None:
        raise NotYetError(f"{element.dtype!r}: an array type cannot live elsewhere; give the shape of the arrays")
    with session.lock:
        session.check_open()
        if session.options.layout not in ("", "canonical") or session.file_set is not None:
            layout = session.options.layout or "blob"
            raise NotYetError(f"{layout=} has no virtual or external datasets; create the file without layout=")
        where = None if name is None else paths.slot(group.id.node, name, "create dataset")
        if where is not None:
            where.check_ends_in_name("create dataset")
            where.check_free("create dataset")
        group.id.handle.check_writable("create dataset")
        tree = session.defs.tree
        with tree.adding(None if where is None else where.group):
            above = None if where is None else where.open()
            node = add_elsewhere(tree, above, "" if where is None else where.leaf, element, limits, away)
            node.prefixes = prefixes
        return group._named(wrap(group.id.handle, node), name)  # type: ignore[no-any-return]


def make_external(
    group: Group, name: Any, plan: dataset_plan.DatasetPlan, external: Any, options: dict[str, Any]
) -> Dataset:
    """Make a dataset whose data lie in raw files; see ``create_dataset(external=...)``."""
    dtype, shape = plan.element.dtype, plan.shape
    filters = ("compression", "shuffle", "fletcher32", "scaleoffset")
    if options.get("chunks") or any(key in plan.ignored for key in filters):
        raise DefinitionError("external storage not supported with chunked layout; leave chunks and filters out")
    if shape is None:
        raise NotYetError("an Empty dataset has no elements that could be in raw files; leave external= out")
    if dtype.hasobject:
        raise ConversionError(f"{dtype!r}: raw files hold numbers, strings of fixed length, and compounds of these")
    nbytes = int(np.prod(shape, dtype=object)) * dtype.itemsize
    away = Elsewhere(shape, fill_bytes(options.get("fillvalue"), dtype), None, ())
    away = away._replace(segments=raw_files.segments_of(external, nbytes))
    made = make(group, name, element_of(dtype), plan.maxshape, away, _prefixes(options))
    if "track_order" in plan.ignored:
        made.id.node.ignored = {"track_order": True}
    if plan.data is not None and plan.data.size:
        made[...] = plan.data
    return made


def look_first_in(dataset: Any, options: Mapping[str, Any]) -> None:
    """Look for the files of a dataset in the folders of these options first, in this process."""
    dataset.id.node.prefixes = _prefixes(options)


def _prefixes(options: Mapping[str, Any]) -> dict[str, str]:
    return {key: os.fsdecode(options[key]) for key in ("efile_prefix", "virtual_prefix") if options.get(key)}
