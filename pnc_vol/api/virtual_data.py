"""Virtual datasets are read and written where their sources are; datasets whose data live elsewhere have an id for it.

Knows: regions, how a source is opened (`linking`). Does not know: markers, how a plan is made (`virtual`), how raw
files are read (`raw_files`).

Rules
-----
1. Each read and write opens the sources that it touches, and closes them again: what another process did is seen.
   A read has at most `MOST_OPEN` files open; a write has all, because it writes nothing if one of them cannot be.
2. A source whose file or dataset is not there reads as the fill value. A file that may not be followed to, that is
   damaged, or that is too small is an error: its values would be wrong without anybody noticing.
3. Sources are read in the order in which they were defined, in pieces of `PIECE` bytes; a later one wins.
4. A write goes to the sources at once, or nowhere: elements that no source has are an error before anything is written.
5. A virtual dataset of virtual datasets is followed as often as links are (`linking.one_step`), so that a cycle ends.
6. The shape of an unlimited virtual dataset is that of its sources whenever the dataset is used; in a file that is open
   for reading, when it is first used, as in HDF5.
7. ``Dataset(other.id)`` goes the same way: it is the id that knows.
"""

from __future__ import annotations

import contextlib
import copyreg
import re
from collections.abc import Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.api import linking, raw_files
from pnc_vol.api.dataset_plan import fill_of
from pnc_vol.api.hdf5_files import is_foreign, with_rows
from pnc_vol.api.ids import DatasetID, Handle
from pnc_vol.api.objects import class_of
from pnc_vol.api.storage_info import CreationProperties, ElsewhereProperties, RegionSpace, VDSmap
from pnc_vol.api.views import as_type
from pnc_vol.errors import ConversionError, NotYetError, SourceError
from pnc_vol.extents.model import Selection
from pnc_vol.extents.place import numbers
from pnc_vol.extents.selection import select
from pnc_vol.mapping.composite import conform
from pnc_vol.mapping.dtypes import check_string_dtype, check_vlen_dtype
from pnc_vol.mapping.elsewhere import Evenly, Indices, SourceMapping, common

if TYPE_CHECKING:
    from pnc_vol.file.open_file import OpenFile

__all__ = ["ElsewhereID", "missing"]

Array = npt.NDArray[Any]
Shape = tuple[int, ...]

PIECE = 32 << 20
"""Bytes that are read of a source at a time."""
MOST_NAMED = 10
"""Missing sources that are named."""
MOST_OPEN = 64
"""Files that are open at a time while sources are read; a process may not have more than some hundreds open."""


class _Found(NamedTuple):
    """A dataset of a source, opened.

    source : SourceMapping
    number : int, of the block that it is, of sources whose name has a number; else -1.
    dataset : Dataset, ours or h5py's.
    """

    source: SourceMapping
    number: int
    dataset: Any


class _Sources:
    """The sources of a virtual dataset, each file opened once while this is in use."""

    def __init__(self, oid: DatasetID, mode: str) -> None:
        self.oid, self.mode = oid, mode
        self.node: Any = oid.node
        self.files: dict[str, Any] = {}
        self.step = contextlib.ExitStack()
        self.closing = contextlib.ExitStack()

    def __enter__(self) -> _Sources:
        if not self.step.enter_context(linking.one_step()):
            self.step.close()
            raise SourceError(
                f"{self.node.path!r}: virtual datasets lead from one to the next too often; they form a circle"
            )
        return self

    def __exit__(self, *error: object) -> None:
        with self.step:
            self.closing.close()

    def dataset(self, file: str, name: str) -> Any:
        """Return the dataset of that name; None if it is not there.

        What is read of it is read before the next one is asked for: its file may be closed then.
        """
        if file not in self.files:
            if self.mode == "r" and len(self.files) >= MOST_OPEN:
                self.closing.close()
                self.files.clear()
            self.files[file] = self._file(file)
        opened = self.files[file]
        try:
            found = None if opened is None else opened[name]
        except KeyError:
            return None
        if found is not None and not hasattr(found, "shape"):
            raise SourceError(f"{self.node.path!r}: its source {name!r} in {file!r} is no dataset")
        return found

    def _file(self, name: str) -> Any:
        """Return the file of that name; None if there is none."""
        handle = self.oid.handle
        if name == ".":
            return class_of("file")(self.oid)
        if self.mode == "r+" and handle.session.comm.size > 1:
            raise NotYetError(
                f"{self.node.path!r}: ranks that share a file cannot write to its sources in other files; "
                "write to the sources themselves"
            )
        prefix = self.node.prefixes.get("virtual_prefix", "")
        found, wrong = linking.open_other(self.oid, name, self.mode, prefix=prefix)
        if found is None:
            if isinstance(wrong, FileNotFoundError):
                return None
            why = linking.why_not(wrong, handle)
            raise SourceError(f"{self.node.path!r}: its source {name!r} cannot be opened: {why}") from None
        if getattr(found.id, "handle", None) is not handle:
            self.closing.callback(found.close)
        return found

    def found(self, shape: Shape, asked: list[Indices]) -> Iterator[_Found]:
        """Yield the sources that are there, of elements that are asked for; no others are opened."""
        for source in self.node.sources_near(asked):
            if not source.is_numbered:
                if source.to.unlimited < 0 and not _meet(asked, source.to.indices()):
                    continue
                dataset = self.dataset(_plain(source.file), _plain(source.name))
                if dataset is not None:
                    yield _Found(source, -1, dataset)
                continue
            axis = source.to.unlimited
            along = source.to.axes[axis]
            for number in along.blocks_of(asked[axis], along.whole(shape[axis])):
                dataset = self.numbered(source, number)
                if dataset is not None:
                    yield _Found(source, number, dataset)

    def numbered(self, source: SourceMapping, number: int) -> Any:
        return self.dataset(_with_number(source.file, number), _with_number(source.name, number))


def _meet(asked: Sequence[Indices], there: Sequence[Indices]) -> bool:
    """Return whether two regions have an element in common."""
    return all(len(common(one, other)[0]) for one, other in zip(asked, there, strict=True))


def _with_number(name: str, number: int) -> str:
    """Return a name with the number of a block in the place of ``%b``; ``%%`` is a percent sign, as in HDF5."""
    return re.sub("%[b%]", lambda found: str(number) if found[0] == "%b" else "%", name)


def _plain(name: str) -> str:
    """Return a name without a number; ``%%`` is a percent sign, as in HDF5."""
    return name.replace("%%", "%")


def current_shape(oid: DatasetID) -> Shape:
    """Return the shape that a virtual dataset has by its sources: that of an unlimited one is as long as they are."""
    node: Any = oid.node
    away = node.away
    shape = list(away.shape)
    endless = node.endless()
    if not endless:
        return tuple(shape)
    with _Sources(oid, "r") as sources:
        for axis in endless:
            shape[axis] = max(_end(sources, one, axis) for one in away.sources)
            limit = (node.maxshape or away.shape)[axis]
            if limit is not None:
                shape[axis] = min(shape[axis], limit)
    return tuple(shape)


def missing(oid: DatasetID) -> str:
    """Return the sources that are not there, as one text, "" if all are; their elements read as the fill value.

    A virtual dataset whose sources have numbers ends where the first number is missing, so none of those are.
    """
    node: Any = oid.node
    with _Sources(oid, "r") as sources:
        found = [
            f"{one.name!r} in {one.file!r}"
            for one in node.away.sources or ()
            if not one.is_numbered and sources.dataset(_plain(one.file), _plain(one.name)) is None
        ]
    return ", ".join(found[:MOST_NAMED]) + (f" and {len(found) - MOST_NAMED} more" if found[MOST_NAMED:] else "")


def _end(sources: _Sources, source: SourceMapping, axis: int) -> int:
    """Return how long an axis is at least, by one source."""
    if source.to.unlimited != axis:
        return source.to.ends()[axis]
    along: Any = source.to.axes[axis]
    if source.is_numbered:
        count = 0
        while sources.numbered(source, count) is not None:
            count += 1
        return int(along.end(count))
    dataset = sources.dataset(source.file, source.name)
    return 0 if dataset is None else int(along.end(_blocks(source, dataset)))


def _blocks(source: SourceMapping, dataset: Any) -> int:
    """Return blocks of a source without limit."""
    along = source.of.axes[source.of.unlimited]
    assert isinstance(along, Evenly)
    return along.whole(dataset.shape[source.of.unlimited])


# ----------------------------------------------------------------------------------------------- elements


class _Piece(NamedTuple):
    """Elements that are asked for, and where a source has them.

    places : list of Indices, in what is read or written, along the axes of the virtual dataset.
    ordinals : list of Indices, in the region of the virtual dataset.
    to, of : list of Indices, that region, and that of the source.
    """

    places: list[Indices]
    ordinals: list[Indices]
    to: list[Indices]
    of: list[Indices]


def _asked(selection: Selection) -> list[Indices]:
    """Return the indices of a selection along each axis."""
    return [
        selection.index
        if axis == selection.axis and selection.index is not None
        else range(start, start + count * step, step)
        for axis, (start, count, step) in enumerate(
            zip(selection.start, selection.count, selection.stride, strict=True)
        )
    ]


def _piece(found: _Found, asked: list[Indices]) -> _Piece | None:
    """Return what a source has of what is asked for; None if that is nothing."""
    source, number, dataset = found
    blocks = 0
    if source.to.unlimited >= 0 and number < 0:
        blocks = _blocks(source, dataset)
    to, of = source.to.indices(blocks), source.of.indices(blocks)
    if number >= 0:
        along = source.to.axes[source.to.unlimited]
        assert isinstance(along, Evenly)
        to[source.to.unlimited] = along.block_of(number)
    places: list[Indices] = []
    ordinals: list[Indices] = []
    for wanted, there in zip(asked, to, strict=True):
        ours, its = common(wanted, there)
        if not len(ours):
            return None
        places.append(ours)
        ordinals.append(its)
    ends = [int(part[-1]) + 1 if len(part) else 0 for part in of]
    if len(ends) != len(dataset.shape) or any(end > n for end, n in zip(ends, dataset.shape, strict=True)):
        raise SourceError(
            f"the source {source.name!r} in {source.file!r} has shape {dataset.shape}, and elements up to "
            f"{tuple(ends)} of it are shown"
        )
    return _Piece(places, ordinals, to, of)


def _parts(piece: _Piece, itemsize: int) -> Iterator[_Piece]:
    """Yield a piece in parts of `PIECE` bytes."""
    counts = [len(part) for part in piece.places]
    axis = next((i for i, n in enumerate(counts) if n > 1), -1)
    rest = itemsize * prod(counts[axis + 1 :])
    step = max(1, PIECE // max(1, rest))
    if axis < 0 or counts[axis] <= step:
        yield piece
        return
    for low in range(0, counts[axis], step):
        places, ordinals = list(piece.places), list(piece.ordinals)
        places[axis], ordinals[axis] = places[axis][low : low + step], ordinals[axis][low : low + step]
        part = piece._replace(places=places, ordinals=ordinals)
        # A row may be larger than a piece.
        yield from [part] if step > 1 or rest <= PIECE else _parts(part, itemsize)


def _taken(along: Indices, ordinals: Indices) -> Indices:
    """Return some of the indices of an axis."""
    if isinstance(along, range) and isinstance(ordinals, range):
        return along[ordinals.start : ordinals.stop : ordinals.step] if len(ordinals) else range(0)
    found: npt.NDArray[np.int64] = np.asarray(along, np.int64)[_as_index(ordinals)]
    return found


def _as_index(part: Indices) -> Any:
    """Return what selects the elements along an axis of an array."""
    return slice(part.start, part.stop, part.step) if isinstance(part, range) else part


def _source_index(piece: _Piece) -> list[Indices] | None:
    """Return the elements of the source along each of its axes; None if the regions have other axes than one
    another."""
    ours = [axis for axis, part in enumerate(piece.to) if len(part) != 1]
    its = [axis for axis, part in enumerate(piece.of) if len(part) != 1]
    if [len(piece.to[axis]) for axis in ours] != [len(piece.of[axis]) for axis in its]:
        return None
    found = list(piece.of)
    for axis, other in zip(ours, its, strict=True):
        found[other] = _taken(piece.of[other], piece.ordinals[axis])
    return found


def _get(dataset: Any, wanted: Sequence[Indices]) -> Array:
    """Return elements of a source: slices and one list are read as they are, of any more lists what is between."""
    keys: list[Any] = []
    later: list[Any] = []
    lists = 0
    for part in wanted:
        if isinstance(part, range):
            keys.append(slice(part.start, part[-1] + 1, part.step))
            later.append(slice(None))
        elif lists == 0:
            keys.append(part)
            later.append(slice(None))
            lists += 1
        else:
            keys.append(slice(int(part[0]), int(part[-1]) + 1))
            later.append(part - part[0])
    found = _values(dataset, tuple(keys))
    for axis, index in enumerate(later):
        if not isinstance(index, slice):
            found = np.take(found, index, axis)
    return found


def _numbers(piece: _Piece) -> tuple[npt.NDArray[np.int64], ...]:
    """Return the elements of the source, one by one, in the order of what is asked for."""
    grid = np.ix_(*[np.asarray(part, np.int64) for part in piece.ordinals])
    flat = np.ravel_multi_index(grid, [len(part) for part in piece.to]).ravel() if piece.to else np.zeros(1, np.int64)
    there = np.unravel_index(flat, [len(part) for part in piece.of]) if piece.of else ()
    return tuple(np.asarray(part, np.int64)[at] for part, at in zip(piece.of, there, strict=True))


def _values(dataset: Any, selection: Any) -> Array:
    found = dataset[selection]
    return np.asarray(with_rows(found, dataset.dtype, dataset.shape) if is_foreign(dataset) else found)


def _scattered(dataset: Any, elements: tuple[npt.NDArray[np.int64], ...]) -> Array:
    if not elements:
        return np.asarray(dataset[()]).reshape(1)
    box = tuple(slice(int(part.min()), int(part.max()) + 1) for part in elements)
    found = _values(dataset, box)
    return found[tuple(part - low.start for part, low in zip(elements, box, strict=True))]


# --------------------------------------------------------------------------------------------- reading, writing


def read(oid: DatasetID, selection: Selection) -> Array:
    """Return the elements of a selection.

    Raises
    ------
    SourceError
        A source cannot be read, or may not be.
    ConversionError
        Its type does not convert.
    """
    node: Any = oid.node
    if selection.listed is not None:
        return _read_listed(oid, selection)
    dtype = node.element.dtype
    out = np.full(selection.count, fill_of(node) if not dtype.hasobject else None, dtype)
    if dtype.hasobject and dtype.names is None:
        out.fill(_empty(dtype))
    if out.size:
        asked = _asked(selection)
        with _Sources(oid, "r") as sources:
            for found in sources.found(node.shape, asked):
                whole = _piece(found, asked)
                for piece in () if whole is None else _parts(whole, dtype.itemsize):
                    _put(out, piece.places, _read_piece(found, piece, dtype))
    return out.reshape(selection.result_shape)


def _empty(dtype: np.dtype[Any]) -> Any:
    """Return what objects are where there is no source."""
    base = check_vlen_dtype(dtype)
    return b"" if check_string_dtype(dtype) is not None else None if base is None else np.empty(0, base)


def _read_piece(found: _Found, piece: _Piece, dtype: np.dtype[Any]) -> Array:
    index = _source_index(piece)
    if index is None:
        values = _scattered(found.dataset, _numbers(piece))
    else:
        values = _get(found.dataset, index)
    return _converted(values, dtype).reshape([len(part) for part in piece.places])


def _put(out: Array, places: list[Indices], values: Array | bool) -> None:
    if all(isinstance(part, range) for part in places):
        out[tuple(map(_as_index, places))] = values
    else:
        out[np.ix_(*[np.asarray(part, np.int64) for part in places])] = values


def _converted(values: Array, dtype: np.dtype[Any]) -> Array:
    """Return what a source has, as the type of the virtual dataset; a number that is too large becomes the largest."""
    source = values.dtype
    row = check_vlen_dtype(dtype)
    if row is not None and row != check_vlen_dtype(source):
        made = np.empty(values.shape, dtype)
        for at, item in np.ndenumerate(values):
            made[at] = _converted(item, row)
        return made
    if source == dtype:
        return values
    if dtype.names is not None or source.names is not None:
        return conform(values, dtype, "clip") if dtype.names is not None else _refused(source, dtype)
    if dtype.kind in "iu" and source.kind in "iuf":
        return as_type(values, dtype)
    same = dtype.kind == source.kind or (source.kind in "biuf" and dtype.kind in "biufc")
    if dtype.kind == "O" or source.kind == "O":
        text = source.kind in "SO" and dtype.kind in "SO"
        return values.astype(dtype) if text else _refused(source, dtype)
    return values.astype(dtype) if same else _refused(source, dtype)


def _refused(source: np.dtype[Any], dtype: np.dtype[Any]) -> Array:
    raise ConversionError(f"Can't read {source!r} of a source as {dtype!r} (no conversion path)")


def _read_listed(oid: DatasetID, selection: Selection) -> Array:
    """Return elements in any order: what is between the first and the last is read, row by row, and picked."""
    node: Any = oid.node
    shape, dtype = selection.shape, node.element.dtype
    wanted = numbers(selection)
    out = np.empty(wanted.size, dtype)
    inner = prod(shape[1:])
    step = max(1, PIECE // max(1, inner * dtype.itemsize))
    rows = wanted // inner if inner else wanted
    for first in np.unique(rows // step).tolist() if wanted.size else ():
        low, high = first * step, min((first + 1) * step, shape[0])
        ours = np.flatnonzero((rows >= low) & (rows < high))
        block = read(oid, select(shape, slice(low, high)))
        out[ours] = block.reshape(-1)[wanted[ours] - low * inner]
    return out.reshape(selection.result_shape)


def write(oid: DatasetID, selection: Selection, values: Any, fields: tuple[str, ...]) -> None:
    """Write the elements of a selection to the sources.

    Raises
    ------
    SourceError
        Elements that no source has.
    NotYetError
        Single fields, or elements in any order.
    """
    node: Any = oid.node
    if fields or selection.listed is not None:
        what = "single fields" if fields else "masks and lists that are not increasing"
        raise NotYetError(f"{node.path!r} is a virtual dataset: {what} cannot be written; write to its sources")
    dtype = node.element.dtype
    limit = oid.handle.session.options.on_overflow
    array = conform(values, dtype, limit) if dtype.names is not None else np.asarray(values)
    array = np.broadcast_to(array.reshape(selection.broadcast(array.shape)), selection.result_shape)
    array = array.reshape(selection.count)
    asked = _asked(selection)
    if not array.size:
        return
    with _Sources(oid, "r+") as sources:
        pieces = [(found, _piece(found, asked)) for found in sources.found(node.shape, asked)]
        covered = np.zeros(array.shape, bool)
        for _, piece in pieces:
            if piece is not None:
                _put(covered, piece.places, True)
        if not covered.all():
            raise SourceError(
                f"{node.path!r} is a virtual dataset, and no source has some of the elements to be written"
            )
        for found, whole in pieces:
            for piece in () if whole is None else _parts(whole, array.dtype.itemsize):
                _write_piece(found, piece, array[np.ix_(*[np.asarray(part, np.int64) for part in piece.places])])


def _write_piece(found: _Found, piece: _Piece, values: Array) -> None:
    index = _source_index(piece)
    if index is None:
        for at, value in zip(zip(*_numbers(piece), strict=True), values.ravel(), strict=True):
            found.dataset[tuple(map(int, at))] = value
        return
    lists = [axis for axis, part in enumerate(index) if not isinstance(part, range)]
    if len(lists) < 2:
        keys = [slice(p.start, p[-1] + 1, p.step) if isinstance(p, range) else p for p in index]
        found.dataset[tuple(keys)] = values.reshape([len(part) for part in index])
        return
    raise NotYetError(f"several lists at once cannot be written to {found.source.name!r}; write to it itself")


# ------------------------------------------------------------------------------------------------ the id


class ElsewhereID(DatasetID):
    """Identifies a dataset whose data live elsewhere."""

    __slots__ = ("known",)

    def __init__(self, handle: Handle, node: Any) -> None:
        super().__init__(handle, node)
        self.known = False

    def __reduce__(self) -> Any:
        return copyreg.dispatch_table[DatasetID](self)

    def check(self) -> OpenFile:
        """Do as `DatasetID.check` does; the shape follows the sources."""
        session = super().check()
        if self.node.away.sources and not (self.known and not self.handle.writable):
            # First, because a source may be this very dataset.
            self.known = True
            self.node.shape = current_shape(self)
        return session

    def read(self, selection: Selection) -> npt.NDArray[Any]:
        """Return the elements of a selection."""
        if self.node.away.segments is None:
            return read(self, selection)
        return raw_files.read(self, selection)

    def write(self, selection: Selection, values: Any, fields: tuple[str, ...]) -> None:
        """Write the elements of a selection, at once."""
        if self.node.away.segments is None:
            write(self, selection, values, fields)
        else:
            raw_files.write(self, selection, values, fields)

    def external(self) -> list[tuple[str, int, int]] | None:
        """Return what ``ds.external`` gives."""
        segments = self.node.away.segments
        return None if segments is None else raw_files.shown(segments)

    def sources(self) -> list[VDSmap]:
        """Return what ``ds.virtual_sources()`` gives."""
        sources = self.node.away.sources or ()
        return [VDSmap(RegionSpace(to), file, name, RegionSpace(of)) for to, file, name, of in sources]

    def get_create_plist(self) -> CreationProperties:
        """Return the creation properties of the dataset."""
        away = self.check_node().away
        plain = super().get_create_plist()
        has_fill = away.fill is not None
        return ElsewhereProperties(None, {}, plain.fillvalue, has_fill, "ifset", self.external(), self.sources())

    def get_storage_size(self) -> int:
        """Return the number of bytes that the elements take in raw files; 0 of a virtual dataset."""
        node = self.check_node()
        return 0 if node.away.segments is None else int(np.prod(node.shape, dtype=object)) * node.element.dtype.itemsize

    def get_offset(self) -> int | None:
        """Return None: no element is in this file."""
        self.check()
        return None
