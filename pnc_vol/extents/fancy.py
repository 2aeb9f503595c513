"""Index arrays and masks, checked and brought to integers, and the elements that several of them cross in.

Knows: h5py's rules for one list, array or mask. Does not know: what else stands between the brackets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.errors import SelectionIndexError, SelectionTypeError
from pnc_vol.extents.model import Int64, Runs
from pnc_vol.extents.subarrays import join_runs

__all__ = ["crossed", "increases", "index_array", "limits", "regular", "shown", "true_runs"]

Shape = tuple[int, ...]

SPARSE = 16
"""Elements for each that is selected, above which they are found one by one, and not the edges of their runs."""


def index_array(arg: Any, dim: int, axis: int, *, alone: bool) -> Int64:
    """Elements that a list or array names on an axis of `dim` elements; `alone`: no other index stands beside it.

    Raises
    ------
    SelectionTypeError, SelectionIndexError
        As in `selection.select`.

    Examples
    --------
    >>> index_array([0, -1], 5, 0, alone=True).tolist()
    [0, 4]
    """
    if isinstance(arg, (list, tuple, range)) and len(arg) == 0:
        return np.empty(0, np.int64)
    if not isinstance(arg, (list, tuple, range, np.ndarray)):
        raise SelectionTypeError(
            f"Selection can't process {arg!r} on axis {axis}: give an integer, a slice, or a list or array of integers "
            "or booleans"
        )
    try:
        array = np.asarray(arg)
    except (ValueError, OverflowError):
        raise SelectionTypeError(f"Only 1D arrays of integers are allowed for fancy indexing (axis {axis})") from None
    if array.ndim != 1:
        raise SelectionTypeError(f"Only 1D arrays allowed for fancy indexing, not {array.ndim}D (axis {axis})")
    if array.dtype.kind == "b":
        if array.size != dim:
            if alone:
                raise SelectionTypeError(
                    f"Boolean indexing array has incompatible shape {array.shape}; axis {axis} has {dim} elements"
                )
            raise SelectionTypeError(
                f"boolean index of {array.size} did not match indexed array of {dim} on axis {axis}"
            )
        return np.flatnonzero(array).astype(np.int64, copy=False)
    if array.dtype.kind not in "iu":
        raise SelectionTypeError(f"Indexing arrays must have integer dtypes, not {array.dtype} (axis {axis})")
    if array.size == 0:
        return np.empty(0, np.int64)
    # Looked at before the conversion: an unsigned value above int64 must not turn into a valid one.
    if int(array.max()) >= dim or int(array.min()) < -dim:
        wrong = array[(array >= dim) | (array < -dim)][0]
        raise SelectionIndexError(f"Fancy indexing out of range for {limits(dim)} on axis {axis}: {wrong}")
    index: Int64 = array.astype(np.int64)
    index[index < 0] += dim
    return index


def increases(index: Int64) -> bool:
    """Whether each element is beyond the one before."""
    return index.size < 2 or bool(np.all(index[1:] > index[:-1]))


def crossed(
    shape: tuple[int, ...],
    start: Sequence[int],
    count: Sequence[int],
    stride: Sequence[int],
    lists: Mapping[int, Int64],
    inner: int | None = None,
) -> Runs:
    """Merged runs of the outer product of the axes' elements, in C order of the product.

    Parameters
    ----------
    start, count, stride : of each axis
    lists : elements of the axes that have an index array instead, in any order and as often as wanted
    inner : int, optional
        Elements of a record, from which no run goes to the next; axis 0 is then that of the records.

    Examples
    --------
    >>> [column.tolist() for column in crossed((3, 4), [0, 0], [2, 2], [1, 1], {0: np.array([2, 0])})]
    [[8, 0], [2, 2]]
    """
    if 0 in count:
        return Runs(np.empty(0, np.int64), np.empty(0, np.int64))
    weights = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    # From the last axis inwards: axes taken in full, then one contiguous stretch, make up a run.
    axis = len(shape) - 1
    first = 0 if inner is None else 1
    length = 1
    base = 0
    while axis >= first and axis not in lists and count[axis] == shape[axis]:
        length *= shape[axis]
        axis -= 1
    if axis >= first and axis not in lists and (stride[axis] == 1 or count[axis] == 1):
        base = start[axis] * weights[axis]
        length *= count[axis]
        axis -= 1
    found = np.array([base], np.int64)
    gaps = True
    for outer in range(axis + 1):
        if outer in lists:
            found = np.add.outer(found, lists[outer] * weights[outer]).ravel()
            gaps = False
        elif count[outer] == 1:
            found += start[outer] * weights[outer]
        else:
            step = stride[outer] * weights[outer]
            positions = np.arange(count[outer], dtype=np.int64)
            positions *= step
            positions += start[outer] * weights[outer]
            found = np.add.outer(found, positions).ravel()
            gaps = gaps and stride[outer] == 1
    made = Runs(found, np.full(found.size, length, np.int64))
    # Only steps and index arrays can end a row where the next one begins.
    return made if gaps else join_runs(made, inner)


def regular(index: Int64) -> tuple[int, int] | None:
    """(start, stride) of an increasing array with a constant step, or None."""
    if index.size < 2:
        return (int(index[0]) if index.size else 0), 1
    first, step = int(index[0]), int(index[1] - index[0])
    if int(index[-1]) != first + step * (index.size - 1) or np.any(np.diff(index) != step):
        return None
    return first, step


def true_runs(flags: npt.NDArray[np.bool_]) -> Runs:
    """Runs of True.

    Examples
    --------
    >>> true_runs(np.array([True, True, False, True])).start.tolist()
    [0, 3]
    """
    if np.count_nonzero(flags) < flags.size // SPARSE:
        at = np.flatnonzero(flags).astype(np.int64, copy=False)
        return join_runs(Runs(at, np.ones_like(at)))
    edges = np.flatnonzero(flags[1:] != flags[:-1])
    edges += 1
    bounds = np.concatenate(([0], edges, [flags.size])).astype(np.int64)
    first = 0 if flags.size and flags[0] else 1
    start = bounds[:-1][first::2]
    return Runs(start, bounds[1:][first::2] - start)


# -------------------------------------------------------------------------------- texts of messages


def limits(dim: int) -> str:
    """The indices of an axis.

    Examples
    --------
    >>> limits(3)
    '(0-2)'
    """
    return f"(0-{dim - 1})" if dim else "empty dimension"


def shown(arg: slice) -> str:
    """A slice as it was written.

    Examples
    --------
    >>> shown(slice(None, 5, 0))
    ':5:0'
    """
    first, last, step = ("" if part is None else repr(part) for part in (arg.start, arg.stop, arg.step))
    return f"{first}:{last}" + (f":{step}" if step else "")
