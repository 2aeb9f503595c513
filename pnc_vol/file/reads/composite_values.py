"""Datasets that take several variables are read and written through the variables.

Knows: parts of types (`mapping.composite`), the session's verbs, the size of the file. Does not know: how a part is
read or written.

Rules
-----
1. A compound is written and read field by field, with the selection that was asked for; a field alone touches its own
   variable only.
2. Arrays of varying length that are written are kept in memory, all of the dataset's, until the next flush lays them
   out anew: contiguous, in C order. So one rank alone can write them, and a log does not have them. Lengths and values
   that are in the file are not touched: both go to new variables, and the new header drops the old ones.
3. Memory follows what is asked for: lengths of rows that the file has are read in blocks, up to the last row that is
   wanted. What a file claims of rows is checked against the number of values that are there, and with the bytes of the
   file before it is allocated, if it is large.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.errors import FormatError, NotYetError, SelectionTypeError
from pnc_vol.extents.blocks import blocks
from pnc_vol.extents.model import Runs
from pnc_vol.extents.place import numbers
from pnc_vol.extents.selection import Selection, many, select, whole
from pnc_vol.file.reads.fetch import LARGE, elements_held
from pnc_vol.file.session import Session
from pnc_vol.mapping.composite import conform, is_ragged, ragged_base
from pnc_vol.mapping.dtypes import Dtype, Reference, RegionReference
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.warn import warn_once

__all__ = ["elsewhere", "keep_unflushed", "post_rows", "read", "region_of", "reshaped", "restore", "write"]

Array = npt.NDArray[Any]

_COUNT = 8
"""Bytes of the length of a row."""


# ----------------------------------------------------------------------------------------------- writing


def write(session: Session, node: DatasetNode, selection: Selection, values: Any, fields: tuple[str, ...] = ()) -> None:
    """Post ``node[selection] = values``.

    Parameters
    ----------
    fields : tuple of str
        Of a compound: write these fields alone; `values` are then of their types.

    Raises
    ------
    TypeError
        `values` do not convert, or cannot be broadcast.
    NotYetError
        Arrays of varying length, in a file that several ranks share.
    """
    dtype = node.element.dtype
    if node.away is not None:
        raise elsewhere(node, "written")
    if dtype.names is not None:
        _write_fields(session, node, selection, values, fields)
    elif is_ragged(dtype):
        _write_rows(session, node, selection, conform(values, dtype, session.options.on_overflow))
    elif dtype.subdtype is not None:
        base, inner = dtype.subdtype
        wanted = np.dtype((_given(base, values), inner))
        array = conform(values, wanted, session.options.on_overflow)
        lead = array.shape[: array.ndim - len(inner)]
        array = np.broadcast_to(array.reshape((*selection.broadcast(lead), *inner)), (*selection.result_shape, *inner))
        session.write(node.parts["values"], deeper(selection, inner), array)
    else:
        array = conform(values, dtype, session.options.on_overflow)
        flat = array.ravel().tolist()
        paths = np.array([item.path if isinstance(item, Reference) else "" for item in flat], object)
        session.write(node.parts["path"], selection, paths.reshape(array.shape))
        if "region" in node.parts:
            regions = np.array([item.region if isinstance(item, Reference) else "" for item in flat], object)
            session.write(node.parts["region"], selection, regions.reshape(array.shape))


def _write_fields(
    session: Session, node: DatasetNode, selection: Selection, values: Any, fields: tuple[str, ...]
) -> None:
    dtype = node.element.dtype
    assert dtype.names is not None
    own = isinstance(values, np.ndarray) and values.dtype.names is not None
    if len(fields) == 1 and not (own and fields[0] in values.dtype.names):
        # the values of one field, not wrapped in a compound
        session.write(node.parts[fields[0]], selection, values)
        return
    wanted = _given(np.dtype([(name, dtype[name]) for name in fields]) if fields else dtype, values)
    array = conform(values, wanted, session.options.on_overflow)
    for name in wanted.names or ():
        session.write(node.parts[name], selection, array[name])


def _given(dtype: Dtype, values: Any) -> Dtype:
    """Return a type with those fields only, of its compounds, that the values have, if they have any: HDF5 leaves the
    others as they are."""
    return _shared(dtype, values.dtype) if isinstance(values, np.ndarray) else dtype


def _shared(dtype: Dtype, source: Dtype) -> Dtype:
    if dtype.subdtype is not None:
        return np.dtype((_shared(dtype.subdtype[0], source.base), dtype.subdtype[1]))
    names = [name for name in dtype.names or () if name in (source.names or ())]
    return np.dtype([(name, _shared(dtype[name], source[name])) for name in names]) if names else dtype


def deeper(selection: Selection, inner: tuple[int, ...]) -> Selection:
    """Return the same elements, each with all of the axes `inner` behind it."""
    n = prod(inner)
    shape, result = selection.shape + inner, selection.result_shape + inner
    if selection.listed is not None:
        found = Runs(selection.listed.start * n, selection.listed.length * n)
        return selection._replace(shape=shape, result_shape=result, listed=found)
    return selection._replace(
        shape=shape,
        start=selection.start + (0,) * len(inner),
        count=selection.count + inner,
        stride=selection.stride + (1,) * len(inner),
        result_shape=result,
    )


# ----------------------------------------------------------------------------------------------- reading


def read(session: Session, node: DatasetNode, selection: Selection, fields: tuple[str, ...] = ()) -> Array:
    """Return the values of a selection; of a compound only `fields`, if some are given."""
    dtype = node.element.dtype
    if node.away is not None:
        raise elsewhere(node, "read")
    if dtype.names is not None:
        wanted = np.dtype([(name, dtype[name]) for name in fields]) if fields else dtype
        made = np.zeros(selection.result_shape, wanted)
        assert wanted.names is not None
        for name in wanted.names:
            made[name] = session.read(node.parts[name], selection)
        return made
    if is_ragged(dtype):
        return _read_rows(session, node, selection)
    if dtype.subdtype is not None:
        return np.asarray(session.read(node.parts["values"], deeper(selection, dtype.subdtype[1])))
    return _read_references(session, node, selection)


def elsewhere(node: DatasetNode, what: str) -> NotYetError:
    """Return the error for data that are in no variable of this file: `api` goes to where they are, in few
    operations."""
    return NotYetError(
        f"the data of {node.path!r} are in other datasets or raw files: they are {what} with ds[...] alone; "
        "'pnc-vol repack --materialize' makes an ordinary dataset of it"
    )


def _read_references(session: Session, node: DatasetNode, selection: Selection) -> Array:
    paths = session.read(node.parts["path"], selection)
    made = np.empty(paths.size, node.element.dtype)
    texts = [path.decode("utf-8", "surrogateescape") for path in paths.ravel().tolist()]
    if "region" in node.parts:
        regions = session.read(node.parts["region"], selection).ravel().tolist()
        made[:] = [
            RegionReference(path, None, region.decode("utf-8", "surrogateescape"))
            for path, region in zip(texts, regions, strict=True)
        ]
    else:
        made[:] = [Reference(path) for path in texts]
    return made.reshape(paths.shape)


# ------------------------------------------------------------------------------ arrays of varying length


def _write_rows(session: Session, node: DatasetNode, selection: Selection, rows: Array) -> None:
    if session.comm.size > 1:
        raise NotYetError(
            f"{node.path}: arrays of varying length cannot be written by several ranks; write them in a file of one "
            "rank, or as a flat dataset and the lengths of its rows"
        )
    if session.posted.queue.logged:
        warn_once(
            "arrays of varying length are kept in memory until the flush",
            f"{node.path}: they are not written to the log; flush them, or they are lost if the process is killed",
        )
    if rows.shape == () and selection.result_shape != ():
        fitted = np.empty(selection.result_shape, object)
        fitted.fill(rows[()])
    else:
        try:
            fitted = np.broadcast_to(rows.reshape(selection.broadcast(rows.shape)), selection.result_shape)
        except ValueError:
            raise SelectionTypeError(f"Can't broadcast {rows.shape} -> {selection.result_shape}") from None
    before = resident(session, node)
    if node.uid not in session.posted.rows_before:
        session.posted.rows_before[node.uid] = node, before.copy()
    before[numbers(selection)] = fitted.ravel()
    session.posted.ragged[node.uid] = node
    node.tree.touch()


def resident(session: Session, node: DatasetNode) -> Array:
    """Return all rows of a dataset, in memory: an array of objects with one axis."""
    size = prod(node.shape or ())
    if node.parts.rows is None:
        _check_rows(session, node)
        node.parts.rows = np.empty(size, object)
        node.parts.rows[:] = _stored_rows(session, node, whole(node.shape or ())).ravel()
    return np.asarray(node.parts.rows)


def _read_rows(session: Session, node: DatasetNode, selection: Selection) -> Array:
    dtype = node.element.dtype
    if node.parts.rows is None:
        return _stored_rows(session, node, selection)
    made = np.empty(selection.nelems, dtype)
    for at, number in enumerate(numbers(selection).tolist()):
        row = node.parts.rows[number]
        made[at] = row.copy() if isinstance(row, np.ndarray) else np.empty(0, _shown(dtype))
    return made.reshape(selection.result_shape)


def _shown(dtype: Dtype) -> Dtype:
    base = ragged_base(dtype)
    assert base is not None
    return base


def _check_rows(session: Session, node: DatasetNode) -> None:
    """Complain of a dataset with more rows than the file can hold, before something is made for each of them.

    Raises
    ------
    FormatError
    """
    count = node.parts["count"]
    size = prod(node.shape or ())
    if size * _COUNT > LARGE and (there := elements_held(session, count)) < size:
        raise FormatError(
            f"{node.path}: it claims {size} rows, and the file holds the lengths of {there}: it cannot be changed",
            field=count.cdf_name,
            value=size,
        )


def _stored_rows(session: Session, node: DatasetNode, selection: Selection) -> Array:
    """Return rows as the variables have them.

    Raises
    ------
    FormatError
        The rows take more values than there are.
    """
    values = node.parts["values"]
    base = _shown(node.element.dtype)
    total = (values.shape or (0,))[0]
    chosen = numbers(selection)
    starts, wanted = _places(session, node, chosen, total)
    if chosen.size and int(wanted.sum()):
        there = wanted > 0
        _check_values(session, node, values, int((starts + wanted)[there].max()), int(wanted.sum()))
        found = session.read(values, many((total,), starts[there, None], wanted[there, None]))
    else:
        found = np.empty(0, base)
    made = np.empty(chosen.size, node.element.dtype)
    ends = np.cumsum(wanted)
    for at, (end, length) in enumerate(zip(ends.tolist(), wanted.tolist(), strict=True)):
        made[at] = found[end - length : end].copy()
    return made.reshape(selection.result_shape)


def _places(session: Session, node: DatasetNode, chosen: Array, total: int) -> tuple[Array, Array]:
    """Return the first value and number of values of some rows, given by their numbers."""
    starts, wanted = np.zeros(chosen.size, np.int64), np.zeros(chosen.size, np.int64)
    if not chosen.size:
        return starts, wanted
    shape, count = node.shape or (), node.parts["count"]
    last, first, before = int(chosen.max()), 0, 0
    if last * _COUNT > LARGE:
        # behind the end of the file all lengths are 0
        last = min(last, elements_held(session, count) - 1)
    for block in blocks(shape, _COUNT, LARGE):
        if first > last:
            break
        counts = session.read(count, select(shape, block)).ravel()
        # as floats the sum cannot overflow, and what it rounds off is less than what would overflow below
        if counts.size and (
            int(counts.min()) < 0 or counts.sum(dtype=float) > 2**62 or before + int(counts.sum()) > total
        ):
            name = node.parts["values"].cdf_name
            raise FormatError(f"{node.path}: its rows take more values than the {total} of {name!r}")
        ends = before + np.cumsum(counts)
        here = (chosen >= first) & (chosen < first + counts.size)
        wanted[here] = counts[chosen[here] - first]
        starts[here] = ends[chosen[here] - first] - wanted[here]
        before, first = int(ends[-1]), first + counts.size
    return starts, wanted


def _check_values(session: Session, node: DatasetNode, values: DatasetNode, end: int, wanted: int) -> None:
    """Complain of rows whose values the file cannot hold.

    Raises
    ------
    FormatError
    """
    if wanted * max(1, values.element.itemsize) > LARGE and (there := elements_held(session, values)) < end:
        raise FormatError(
            f"{node.path}: its rows take {end} values of {values.cdf_name!r}, and the file holds {there}",
            field=values.cdf_name,
            value=end,
        )


def post_rows(session: Session) -> None:
    """Lay out what was written to arrays of varying length before a flush, and post it."""
    with session.posted.queue.in_memory():
        _lay_out_rows(session)


def _lay_out_rows(session: Session) -> None:
    ragged = session.posted.ragged
    while ragged:
        uid, node = next(reversed(ragged.items()))
        if node.tree.datasets.get(node.uid) is node and node.parts.rows is not None:
            _lay_out(session, node, node.parts.rows)
        # Not before: of rows that an interrupt came into, the next flush would not know.
        del ragged[uid]


def _lay_out(session: Session, node: DatasetNode, kept: Array) -> None:
    base = _shown(node.element.dtype)
    empty = np.empty(0, base)
    rows = [row if isinstance(row, np.ndarray) else empty for row in kept.tolist()]
    counts = np.array([len(row) for row in rows], np.int64)
    count = node.parts["count"]
    if count.uid in session.disk.layout.header_uids:
        count = node.tree.add_part(node, "count", count.element, count.shape or (), count.maxshape)
    session.write(count, whole(node.shape or ()), counts.reshape(node.shape or ()))
    old = node.parts["values"]
    part = node.tree.add_part(node, "values", old.element, (int(counts.sum()),))
    if part.shape != (0,):
        session.write(part, select(part.shape or (), ()), _joined(rows, base))


def _joined(rows: list[Array], base: Dtype) -> Array:
    if base.kind == "O":
        made = np.empty(sum(len(row) for row in rows), base)
        made[:] = [item for row in rows for item in row]
        return made
    return np.concatenate([row for row in rows if len(row)])


def reshaped(session: Session, node: DatasetNode, shape: tuple[int, ...]) -> Callable[[], None]:
    """Return what keeps the rows of a dataset that gets another shape; until it is called, nothing is changed."""
    if not is_ragged(node.element.dtype):
        return _nothing
    old, posted = node.shape or (), session.posted
    rows = _reshaped(resident(session, node), old, shape)
    _, before = posted.rows_before.get(node.uid, (node, None))
    before = rows.copy() if before is None else _reshaped(before, old, shape)

    def keep() -> None:
        node.parts.rows, posted.rows_before[node.uid], posted.ragged[node.uid] = rows, (node, before), node

    return keep


def _nothing() -> None:
    pass


def _reshaped(rows: Array, old: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    """Return rows of a dataset that has another shape now; None where there were none."""
    new = np.empty(shape, object)
    common = tuple(slice(0, min(a, b)) for a, b in zip(old, shape, strict=True))
    new[common] = rows.reshape(old)[common]
    return new.ravel()


def keep_unflushed(session: Session) -> None:
    """Note after a flush that what is in the file is no longer to be cancelled."""
    posted = session.posted
    left = {
        uid: (node, rows)
        for uid, (node, rows) in posted.rows_before.items()
        if uid in posted.ragged or any(posted.queue.has(part.uid) for part in node.parts.values())
    }
    posted.keep_rows(left)


def restore(session: Session) -> None:
    """Give arrays of varying length the rows that the file has, to be laid out by the next flush."""
    for uid, (node, rows) in session.posted.rows_before.items():
        node.parts.rows = rows
        session.posted.ragged[uid] = node
    session.posted.keep_rows({})


def region_of(selection: Selection) -> str:
    """Return a selection as the JSON of a region reference."""
    if selection.listed is not None:
        return json.dumps({"points": numbers(selection).tolist()}, separators=(",", ":"))
    axes: list[Any] = []
    for axis, (first, count, step) in enumerate(zip(selection.start, selection.count, selection.stride, strict=True)):
        if axis == selection.axis and selection.index is not None:
            axes.append({"list": selection.index.tolist()})
        else:
            axes.append([first, count, step])
    return json.dumps({"select": axes}, separators=(",", ":"))
