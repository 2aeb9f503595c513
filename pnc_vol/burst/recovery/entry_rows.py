"""`EntryRows` presents very many entries of a log as rows of the queue, and others one by one.

Knows: entries as columns, shapes and elements of datasets, how a log of ours writes values; elements of all kinds,
also those with hidden dimensions (strings, complex numbers, arrays). Does not know: where entries come from, which
dataset they mean, files.

Rules
-----
1. Nothing here is done for each entry in Python: entries of all variables with as many axes are looked at together.
   (To make, check and post an entry by itself took 70 to 190 µs, and a log may have millions.)
2. `fitting` and `rows_of_entries` never refuse anything; what is not plain is left to `check_entry` and
   `values_of_entry`, which take an entry each.
3. Rows mean what `session.write` would do with the entry: elements in C order, records that are not in the dataset any
   more left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.burst.definition_writer import LoggedVariable
from pnc_vol.burst.encoding import NATIVE, LogEntry
from pnc_vol.burst.entries import Coordinates, Entries
from pnc_vol.burst.recovery.sources import LogSource
from pnc_vol.errors import LogError
from pnc_vol.extents.model import Int64, before, spread
from pnc_vol.extents.selection import Selection, hyperslab
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.queue.batches import COLUMNS, NO_ROWS, Rows

if TYPE_CHECKING:
    from pnc_vol.file.open_file import OpenFile

__all__ = [
    "EntryRows", "alike_and_whole", "check_entry", "fitting", "part_of_elements", "rows_of_entries", "values_of_entry",
]  # fmt: skip

Flags = npt.NDArray[np.bool_]
Shape = tuple[int, ...]

_ANY = 2**62
"""How long a string of varying length may be in a log."""


class EntryRows(NamedTuple):
    """Entries as rows.

    rows : int64[n, 5], see `queue.batches`; the first column is the entry's place in what was asked for, addresses are
        bytes of the data log.
    widths, units : dict of uid to int, bytes of an element, and of a value to be swapped.
    left : int64[k], entries that are not among them.
    """

    rows: Rows
    widths: Mapping[int, int]
    units: Mapping[int, int]
    left: Int64


class _Axes(NamedTuple):
    """The datasets of some blocks, one row a block.

    known : bool[n], the log's number means a dataset.
    axes : int64[n], of the elements; hidden ones follow.
    shape : int64[n, ndims], hidden dimensions included.
    record : bool[n]
    text : bool[n]
    which : int64[n], its place in `nodes`.
    nodes : list of DatasetNode or None
    """

    known: Flags
    axes: Int64
    shape: Int64
    record: Flags
    text: Flags
    which: Int64
    nodes: list[DatasetNode | None]


def _axes_of(
    entries: Entries,
    found: Coordinates,
    find: Callable[[int], DatasetNode | None],
    length: Callable[[DatasetNode], int],
) -> _Axes:
    numbers, which = entries.variables(found.entry)
    ndims = found.start.shape[1]
    nodes = [find(number) for number in numbers.tolist()]
    facts = np.zeros((len(nodes), 4), np.int64)
    shape = np.zeros((len(nodes), ndims), np.int64)
    for i, node in enumerate(nodes):
        if node is None:
            continue
        trailing: Shape = node.element.trailing
        if node.element.kind == "vlen_string":
            trailing = (_ANY,) * len(trailing)
        own = node.shape or ()
        if node.is_record:
            own = (length(node), *own[1:])
        if len(own) + len(trailing) == ndims:
            facts[i] = True, len(own), node.is_record, node.element.is_string
            shape[i] = own + trailing
    known, axes, record, text = facts[which].T
    return _Axes(known > 0, axes, shape[which], record > 0, text > 0, which, nodes)


def _fits(entries: Entries, found: Coordinates, axes: _Axes) -> Flags:
    """Return bool[n]: blocks of elements that are in their dataset, all of them there, and none of them cut by a
    stride."""
    start, count, shape = found.start, found.count, axes.shape
    fits: Flags = axes.known & ((entries.itype[found.entry] == 1) == axes.text)
    if not start.shape[1]:
        return fits
    last = start + count - 1
    inside = (start >= 0) & (count > 0)
    if found.stride is not None:
        last = start + (count - 1) * found.stride
        hidden = np.arange(start.shape[1]) >= axes.axes[:, None]
        inside &= ~hidden | (found.stride == 1) | (count == 1)
    inside &= last < shape
    fits &= inside.all(axis=1)
    return fits


def fitting(
    source: LogSource,
    indices: Int64,
    find: Callable[[int], DatasetNode | None],
    length: Callable[[DatasetNode], int],
) -> Int64:
    """Return those of some entries (increasing) that may not fit: the others do.

    Parameters
    ----------
    find : callable
        The dataset of a variable's number in the log; None if there is none.
    length : callable
        Records that a record dataset may have at most.
    """
    entries = source.log.entries
    fits = np.zeros(len(entries), bool)
    for found in entries.rows(indices):
        axes = _axes_of(entries, found, find, length)
        fits[found.entry] = True
        fits[found.entry[~_fits(entries, found, axes)]] = False
    return indices[~fits[indices]]


def rows_of_entries(source: LogSource, indices: Int64, find: Callable[[int], DatasetNode | None]) -> EntryRows:
    """Return rows of those of some entries (increasing) whose values the log has as our own logs have them.

    A dataset of which one entry is not so has none: the order of its entries is kept elsewhere.
    """
    entries, header = source.log.entries, source.log.header
    nothing = EntryRows(NO_ROWS, {}, {}, indices)
    begin, end = entries.data_off[indices], (entries.data_off + entries.data_len)[indices]
    if header.byteorder != NATIVE or header.is_external or bool((begin[1:] < end[:-1]).any()):
        return nothing
    tables = [nothing.rows]
    widths: dict[int, int] = {}
    units: dict[int, int] = {}
    plain = np.zeros(len(entries), bool)
    for found in entries.rows(indices):
        axes = _axes_of(entries, found, find, lambda node: (node.shape or (0,))[0])
        formats = _formats(axes.nodes, ours=source.commit_log is not None, widths=widths, units=units)
        rows, able = _rows(entries, found, axes, formats[axes.which])
        plain[found.entry] = True
        plain[found.entry[~able]] = False
        tables.append(rows)
    rows = np.concatenate(tables)
    places = np.full(len(entries), -1, np.int64)
    places[indices] = np.arange(len(indices))
    # All entries of a variable, or none.
    varid = entries.varid[indices]
    odd = varid[~plain[indices]]
    mixed = np.isin(varid, odd) if len(odd) else np.zeros(len(varid), bool)
    plain[indices[mixed]] = False
    if mixed.any():
        rows = rows[plain[rows[:, 0]]]
    rows[:, 0] = places[rows[:, 0]]
    return EntryRows(rows, widths, units, indices[mixed])


def _formats(nodes: list[DatasetNode | None], *, ours: bool, widths: dict[int, int], units: dict[int, int]) -> Int64:
    """Return int64[n, 4] of each dataset: its type in a log (0: values have to be looked at), numbers and bytes of an
    element, uid."""
    formats = np.zeros((len(nodes), 4), np.int64)
    for i, node in enumerate(nodes):
        if node is None or node.element.kind in ("vlen_string", "composite"):
            continue
        if ours or node.element.kind == "number":
            known = LoggedVariable(node)
            widths[node.uid], units[node.uid] = known.itemsize, known.unit
            formats[i] = known.itype, known.itemsize // known.unit, known.itemsize, node.uid
    return formats


def _rows(entries: Entries, found: Coordinates, axes: _Axes, formats: Int64) -> tuple[Rows, Flags]:
    """Return rows of whole elements in the type of the file, and which of all blocks are that."""
    start, shape, record = found.start, axes.shape, axes.record
    able = (formats[:, 0] > 0) & (entries.itype[found.entry] == formats[:, 0]) & axes.known
    stride = np.ones_like(start) if found.stride is None else found.stride
    count = found.count.copy()
    if start.shape[1]:
        hidden = np.arange(start.shape[1]) >= axes.axes[:, None]
        able &= (~hidden | ((start == 0) & (count == shape))).all(axis=1)
        room = np.clip(-((start[:, 0] - shape[:, 0]) // stride[:, 0]), 0, count[:, 0])
        count[:, 0] = np.where(record, room, count[:, 0])
        inside = (start >= 0) & (count >= 0) & ((count == 0) | (start + (count - 1) * stride < shape))
        able &= inside.all(axis=1)
    unit = formats[:, 2] // np.maximum(formats[:, 1], 1)
    # Values of a block that is left out are passed over all the same.
    ahead = before(found.count.prod(axis=1))
    heads = np.flatnonzero(np.diff(found.entry, prepend=-1))
    ahead -= np.repeat(ahead[heads], np.diff(np.append(heads, len(ahead))))
    address = entries.data_off[found.entry] + ahead * unit
    block = np.arange(len(able))
    if not able.all():
        block = np.flatnonzero(able)
        start, count, stride, shape = (column[block] for column in (start, count, stride, shape))
        record = record[block]
    at, length, step, of = _runs(start, count, stride, shape, record)
    block = block[of]
    number = formats[block, 1]
    rows = np.empty((len(block), COLUMNS), np.int64)
    rows[:, 0] = found.entry[block]
    rows[:, 1] = at // number
    rows[:, 2] = length // number
    rows[:, 3] = address[block] + step * length * unit[block]
    rows[:, 4] = formats[block, 3]
    return rows, able


def _runs(start: Int64, count: Int64, stride: Int64, shape: Int64, record: Flags) -> tuple[Int64, Int64, Int64, Int64]:
    """Return blocks, each in a shape of its own, as runs; none goes on into the next record.

    Returns
    -------
    at, length, step, of : int64[runs], first value and number of values, place in its block, and the block.
    """
    n, ndims = start.shape
    weight = np.ones_like(shape)
    for axis in range(ndims - 2, -1, -1):
        weight[:, axis] = weight[:, axis + 1] * shape[:, axis + 1]
    outer, length, whole = count.copy(), np.ones(n, np.int64), np.ones(n, bool)
    for axis in range(ndims - 1, -1, -1):
        joined = whole & ((stride[:, axis] == 1) | (count[:, axis] == 1))
        if not axis:
            joined &= ~record
        length[joined] *= count[joined, axis]
        outer[joined, axis] = 1
        whole = joined & (count[:, axis] == shape[:, axis])
    pieces = outer.prod(axis=1) * (length > 0)
    if bool((pieces == 1).all()):
        # What nearly all entries are.
        return (start * weight).sum(axis=1), length, np.zeros_like(length), np.arange(n)
    of, step = spread(pieces)
    at, left = (start * weight).sum(axis=1)[of], step
    for axis in range(ndims - 1, -1, -1):
        left, i = np.divmod(left, outer[of, axis])
        at += i * (weight * stride)[of, axis]
    return at, length[of], step, of


Array = npt.NDArray[Any]


def values_of_entry(node: DatasetNode, flat: Array, shape: tuple[int, ...], hidden: Int64) -> Array:
    """Return whole elements from their parts.

    Parameters
    ----------
    flat : array, in memory form, hidden dimensions included.
    shape : tuple of int, of the elements.
    hidden : int64[k], sizes of the hidden dimensions.
    """
    element = node.element
    if element.is_string:
        width = int(hidden[0])
        return np.ascontiguousarray(flat).view(f"S{width}").reshape(shape)
    if element.kind == "complex":
        dtype = flat.dtype
        return np.ascontiguousarray(flat).view(np.dtype(f"{dtype.byteorder}c{2 * dtype.itemsize}")).reshape(shape)
    if element.kind == "bool":
        true: npt.NDArray[np.bool_] = flat != 0
        return true.reshape(shape)
    if element.kind == "array":
        return flat.reshape(*shape, *element.trailing)
    if element.kind in ("opaque", "longdouble"):
        return np.ascontiguousarray(flat).view(np.dtype(element.dtype.str)).reshape(shape)
    if element.kind == "datetime":
        native = element.dtype.newbyteorder("=")
        return flat.astype("i8").view(native).astype(element.dtype).reshape(shape)
    return flat.reshape(shape)


def part_of_elements(
    session: OpenFile, node: DatasetNode, selection: Selection, flat: Array, start: Int64, count: Int64
) -> Array:
    """Return whole elements, of which a log has parts: as they are now, with the parts put in.

    Parameters
    ----------
    start, count : int64[k], the parts along the hidden dimensions.
    """
    element = node.element
    shape = selection.result_shape
    now = session.read(node, selection)
    if element.is_string:
        width = max(element.itemsize, int(start[0] + count[0]))
        parts = np.ascontiguousarray(np.asarray(now).astype(f"S{width}")).view("S1").reshape(*shape, width)
    else:
        value = np.dtype(f"f{element.itemsize // 2}")
        parts = np.array(now, np.dtype(f"c{element.itemsize}")).view(value).reshape(*shape, *element.trailing)
    box: tuple[Any, ...] = tuple(slice(int(s), int(s) + int(c)) for s, c in zip(start, count, strict=True))
    parts[(..., *box)] = flat.reshape(*shape, *count.tolist())
    return values_of_entry(node, parts.reshape(-1), shape, np.array(parts.shape[len(shape) :], np.int64))


def alike_and_whole(node: DatasetNode, entry: LogEntry, shape: tuple[int, ...]) -> bool:
    """Return whether the sub-requests of an entry can be posted in one: whole elements, as wide, all in the shape."""
    rank = len(shape)
    if (entry.count < 0).any() or (rank and bool((entry.start[:, 0] + entry.count[:, 0] > shape[0]).any())):
        return False
    begin, width = entry.start[:, rank:], entry.count[:, rank:]
    return not begin.any() and bool((width == width[0]).all()) and whole_elements(node, begin[0], width[0])


def whole_elements(node: DatasetNode, start: Int64, count: Int64) -> bool:
    """Return whether the hidden dimensions are written whole; a string of varying length is as wide as it is."""
    if node.element.kind == "vlen_string":
        return not start.any() and bool((count >= 1).all()) and int(count[0]) != 0
    return not start.any() and tuple(count.tolist()) == node.element.trailing


def blocks_of(entry: LogEntry, node: DatasetNode, shape: tuple[int, ...]) -> Iterator[tuple[Int64, slice]]:
    """Start, count and stride of each block of an entry as one array, and which of its values are its."""
    full = np.array((*shape, *node.element.trailing), np.int64)
    step = np.ones(entry.ndims, np.int64) if entry.stride is None else entry.stride
    at = 0
    for start, count in zip(entry.start, entry.count, strict=True):
        count = np.where(count < 0, full, count)
        last = at + int(count.prod())
        yield np.stack((start, count, step)), slice(at, last)
        at = last


def check_entry(node: DatasetNode, entry: LogEntry, shape: tuple[int, ...]) -> None:
    """Raise if an entry cannot be one of this dataset, which has at most this shape."""
    element, rank = node.element, len(shape)
    if entry.ndims != rank + len(element.trailing):
        raise LogError(f"it has {entry.ndims} dimensions, the variable {rank + len(element.trailing)}", field="ndims")
    if (entry.itype == 1) != element.is_string:
        raise LogError("text and numbers cannot be converted to each other", field="itype", value=entry.itype)
    for block, parts in blocks_of(entry, node, shape):
        if parts.start != parts.stop:
            hyperslab(shape, *block[:, :rank].tolist())
        begin, width, step = block[:, rank:]
        if bool(((step != 1) & (width > 1)).any()):
            raise LogError("a stride selects parts of elements", field="stride")
        if element.kind != "vlen_string" and bool((begin + width > np.array(element.trailing, np.int64)).any()):
            raise LogError("it goes beyond an element", field="count")
