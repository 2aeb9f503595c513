"""Rows of varying length are read from the file; what its header claims is compared with its size first.

Knows: the parts of such a dataset, the size of the file. Does not know: rows that are kept in memory (`composite`).

Rules
-----
1. Memory follows what is asked for: lengths of rows are read in blocks, up to the last row that is wanted.
2. What is asked for is compared with the bytes of the file before it is allocated, if it is large.
3. What a file claims of rows is checked against the number of values that are there.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.errors import FormatError, ShortFileError
from pnc_vol.extents.blocks import blocks
from pnc_vol.extents.place import numbers
from pnc_vol.extents.selection import Selection, many, select
from pnc_vol.file.session import Session
from pnc_vol.mapping.composite import ragged_base
from pnc_vol.mapping.tree import DatasetNode

__all__ = ["LARGE", "check_rows", "check_width", "elements_held", "stored_rows"]

Array = npt.NDArray[Any]

LARGE = 1 << 20
"""Bytes from which on a claim is compared with the size of the file, which costs a call of the system."""

_COUNT = 8
"""Bytes of the length of a row."""


def elements_held(session: Session, node: DatasetNode) -> int:
    """Return the number of elements of a dataset, from the first one on, of which the file may hold something.

    All of them, where something is posted that is not in the file yet.
    """
    size = prod(node.shape or ())
    if node.parts:
        # a compound's fields have its axes; of other parts this number says nothing
        return min(
            (elements_held(session, part) for part in node.parts.values() if part.shape == node.shape), default=size
        )
    at = session.disk.layout.places.get(node.uid)
    if at is None or session.posted.queue.has(node.uid) or node.uid not in session.disk.layout.header_uids:
        return size
    return min(size, at.elements_below(session.disk.driver.size()))


def check_width(session: Session, node: DatasetNode) -> None:
    """Complain of a dataset with elements that are longer than the file.

    Raises
    ------
    ShortFileError
    """
    width, nbytes = node.element.itemsize, session.disk.driver.size()
    if width > nbytes and elements_held(session, node) < prod(node.shape or ()):
        raise ShortFileError(
            f"{node.path}: an element has {width} bytes, and the file {nbytes}: it holds no complete element",
            field=node.cdf_name,
            value=width,
        )


def check_rows(session: Session, node: DatasetNode) -> None:
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


def stored_rows(session: Session, node: DatasetNode, selection: Selection) -> Array:
    """Return rows as the variables have them.

    Raises
    ------
    FormatError
        The rows take more values than there are.
    """
    values = node.parts["values"]
    base = ragged_base(node.element.dtype)
    assert base is not None
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
