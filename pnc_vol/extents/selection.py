"""The index of ``ds[...]`` becomes a `Selection`: which elements, in which order.

Knows: h5py's indexing rules, shapes. Does not know: variables, types, records, bytes.

Rules
-----
1. Whatever h5py accepts is accepted and means the same; what it refuses raises the same builtin, but for what it
   refuses for no reason: lists in any order, with an element several times, several of them (their outer product, not
   numpy's pairs: one list beside slices is crossed, too), steps below 0, a list of booleans on one axis. A fancy index
   equal to the axis' length is an `IndexError` (h5py: `OSError` from below).
2. Elements are numbered in C order, and every selection's elements come in C order of `result_shape`.
3. ``ds[i]``, ``ds[a:b]``, ``ds[...]`` are the common case: they meet few Python operations.
4. What can be a regular hyperslab becomes one: for instance index arrays with a constant step.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.errors import SelectionIndexError, SelectionTypeError, SelectionValueError
from pnc_vol.extents.model import Int64, Runs, Selection, Shape
from pnc_vol.extents.subarrays import checked_block, flatten, join_runs

__all__ = [
    "Selection",
    "crossed",
    "hyperslab",
    "increases",
    "index_array",
    "limits",
    "listed",
    "many",
    "regular",
    "select",
    "shown",
    "true_runs",
    "whole",
]


# --------------------------------------------------------------------------------------------------------------- fancy
# Index arrays and masks, checked and brought to integers, and the elements that several of them cross in.
#
# Knows: h5py's rules for one list, array or mask. Does not know: what else stands between the brackets.


SPARSE = 16
"""Elements for each that is selected, above which they are found one by one, and not the edges of their runs."""


def index_array(arg: Any, dim: int, axis: int, *, alone: bool) -> Int64:
    """Return elements that a list or array names on an axis of `dim` elements; `alone`: no other index stands beside
    it.

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
    """Return whether each element is beyond the one before."""
    return index.size < 2 or bool(np.all(index[1:] > index[:-1]))


def crossed(
    shape: tuple[int, ...],
    start: Sequence[int],
    count: Sequence[int],
    stride: Sequence[int],
    lists: Mapping[int, Int64],
    inner: int | None = None,
) -> Runs:
    """Return merged runs of the outer product of the axes' elements, in C order of the product.

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
    """Return (start, stride) of an increasing array with a constant step, or None."""
    if index.size < 2:
        return (int(index[0]) if index.size else 0), 1
    first, step = int(index[0]), int(index[1] - index[0])
    if int(index[-1]) != first + step * (index.size - 1) or np.any(np.diff(index) != step):
        return None
    return first, step


def true_runs(flags: npt.NDArray[np.bool_]) -> Runs:
    """Return runs of True.

    Examples
    --------
    >>> true_runs(np.array([True, True, False, True])).start.tolist()
    [0, 3]
    """
    # To find few elements is one pass over the mask, to find the ends of runs two.
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
    """Return the indices of an axis.

    Examples
    --------
    >>> limits(3)
    '(0-2)'
    """
    return f"(0-{dim - 1})" if dim else "empty dimension"


def shown(arg: slice) -> str:
    """Return a slice as it was written.

    Examples
    --------
    >>> shown(slice(None, 5, 0))
    ':5:0'
    """
    first, last, step = ("" if part is None else repr(part) for part in (arg.start, arg.stop, arg.step))
    return f"{first}:{last}" + (f":{step}" if step else "")


# The class's own constructor costs as much as all the rest of a simple index.
_make = tuple.__new__


def whole(shape: Shape) -> Selection:
    """Return everything.

    Examples
    --------
    >>> whole((2, 3)).single_run()
    (0, 6)
    """
    rank = len(shape)
    return _make(Selection, (shape, (0,) * rank, shape, (1,) * rank, 0, shape, -1, None, None))


def select(shape: Shape, args: Any) -> Selection:
    """Return what ``ds[args]`` selects in a dataset of this shape, by h5py's rules.

    Parameters
    ----------
    shape : tuple of int
        The dataset's shape, ``()`` for a scalar.
    args : object
        One index or a tuple of them: integers, slices, Ellipsis, lists or arrays of integers, or booleans (along one
        axis, or of the whole shape). No field names.

    Raises
    ------
    SelectionIndexError
        An index is out of range.
    SelectionTypeError
        An index of a type that does not select, a mask of the wrong shape.
    SelectionValueError
        More indices than axes, two ellipses, a step of 0, an index into a scalar.

    Examples
    --------
    >>> select((4, 6), (1, slice(0, 6, 2))).result_shape
    (3,)
    """
    several = type(args) is tuple
    if args is Ellipsis or (several and not args):
        return whole(shape)
    return _select(shape, args if several else (args,))


def _select(shape: Shape, args: tuple[Any, ...]) -> Selection:
    """Return any index, as a non-empty tuple."""
    for arg in args:
        if arg is None:
            raise SelectionTypeError("Indexing with None (or np.newaxis) is not supported")
    rank = len(shape)
    if rank == 0 or (len(args) == 1 and isinstance(args[0], (np.ndarray, Selection))):
        special = _scalar(args) if rank == 0 else _ready(shape, args[0])
        if special is not None:
            return special
    start, count, stride = [0] * rank, list(shape), [1] * rank
    result: list[int] = []
    given, at, dropped, seen = len(args), 0, 0, False
    lists: dict[int, Int64] = {}
    for arg in args:
        if arg is Ellipsis:
            if seen:
                raise SelectionValueError("Only one ellipsis may be used.")
            seen = True
            given -= 1
            if given > rank:
                raise _too_many(given, rank)
            result += shape[at : at + rank - given]
            at += rank - given
            continue
        if at >= rank:
            raise _too_many(given, rank)
        if type(arg) is slice:
            if arg.start is not None or arg.stop is not None or arg.step is not None:
                start[at], count[at], stride[at] = _slice(arg, shape[at])
                # CDF has no runs backwards: the elements are listed, and cost what a list costs.
                if stride[at] < 0:
                    lists[at] = start[at] + stride[at] * np.arange(count[at], dtype=np.int64)
            result.append(count[at])
        else:
            number = arg if type(arg) is int else _integer(arg)
            if number is not None:
                start[at] = _within(number, shape[at], at)
                count[at] = 1
                dropped |= 1 << at
            else:
                lists[at] = index_array(arg, shape[at], at, alone=len(args) == 1)
                count[at] = lists[at].size
                result.append(count[at])
        at += 1
    result += shape[at:]
    ordered = True
    for i, found in list(lists.items()):
        rises = increases(found)
        constant = regular(found) if rises else None
        # A list at equal distances is a slice, which takes one run or a few instead of one for each element.
        if constant is not None:
            start[i], stride[i] = constant
            del lists[i]
        ordered = ordered and rises
    # Several lists, and one that does not rise, are listed run by run.
    if len(lists) > 1 or not ordered:
        runs = crossed(shape, start, count, stride, lists)
        return listed(shape, runs, math.prod(result))._replace(result_shape=tuple(result))
    axis, index = next(iter(lists.items()), (-1, None))
    return _make(
        Selection,
        (shape, tuple(start), tuple(count), tuple(stride), dropped, tuple(result), axis, index, None),
    )


def _slice(arg: slice, dim: int) -> tuple[int, int, int]:
    """Return (start, count, stride) of a slice on an axis of `dim` elements; the stride is negative if the step is."""
    try:
        start, stop, step = arg.indices(dim)
    except ValueError as error:
        raise SelectionValueError(f"Step must not be 0 (got {shown(arg)}): {error}") from None
    except TypeError as error:
        raise SelectionTypeError(f"Slice {shown(arg)} cannot select: {error}") from None
    if step == 1:
        return (start, stop - start, 1) if stop > start else (0, 0, 1)
    count = len(range(start, stop, step))
    return (start, count, step if count > 1 else 1) if count else (0, 0, 1)


def _within(number: int, dim: int, axis: int) -> int:
    """Return the element that an integer names on an axis of `dim` elements."""
    at = number + dim if number < 0 else number
    if 0 <= at < dim:
        return at
    raise SelectionIndexError(f"Index ({number}) out of range for {limits(dim)} on axis {axis}")


def _integer(arg: Any) -> int | None:
    """Return the integer that `arg` stands for, or None if it is no integer."""
    try:
        return operator.index(arg)
    except TypeError:
        return None


def _too_many(given: int, rank: int) -> SelectionValueError:
    return SelectionValueError(f"{given} indexing arguments for {rank} dimensions")


def _scalar(args: tuple[Any, ...]) -> Selection:
    """Return the only element of a dataset without axes."""
    if len(args) == 1 and args[0] is Ellipsis:
        return whole(())
    raise SelectionValueError("Illegal slicing argument for scalar dataspace; use () or ...")


def _ready(shape: Shape, array: npt.NDArray[Any] | Selection) -> Selection | None:
    """Return a selection as it is, or by a boolean array of the whole shape; None for an array along the first axis."""
    if isinstance(array, Selection):
        if array.shape != shape:
            raise SelectionTypeError(f"Mismatched selection shape {array.shape}, the dataset's is {shape}")
        return array
    if array.dtype.kind != "b":
        return None
    if array.shape == shape:
        runs = true_runs(array.ravel())
        total = int(runs.length.sum())
        return listed(shape, runs, total)
    if array.shape != shape[:1]:
        raise SelectionTypeError(
            f"Boolean indexing array has incompatible shape {array.shape}, the dataset's is {shape}"
        )
    return None


def listed(shape: Shape, runs: Runs, total: int) -> Selection:
    """Return a list of merged runs, `total` elements, one-dimensional."""
    return _make(Selection, (shape, (), (total,), (), 0, (total,), -1, None, runs))


def hyperslab(
    shape: Shape, start: Sequence[int], count: Sequence[int], stride: Sequence[int] | None = None
) -> Selection:
    """Return a block given by start, count and stride, as in NetCDF's ``vara`` and ``vars``.

    Parameters
    ----------
    shape : tuple of int
    start, count, stride : sequences of int, one entry an axis
        `stride` is 1 everywhere by default. A count of 0 selects nothing.

    Raises
    ------
    SelectionValueError
        The number of entries is not the number of axes, a count is negative, a stride below 1.
    SelectionIndexError
        The block leaves the shape.

    Examples
    --------
    >>> hyperslab((4, 6), (1, 0), (2, 3), (1, 2))[1:4]
    ((1, 0), (2, 3), (1, 2))
    """
    first, number, step = checked_block(shape, start, count, stride)
    return _make(Selection, (shape, first, number, step, 0, number, -1, None, None))


def many(shape: Shape, starts: npt.ArrayLike, counts: npt.ArrayLike | None = None) -> Selection:
    """Return many blocks of one dataset, all elements of one after those of another, as in PnetCDF's ``varn``.

    Parameters
    ----------
    shape : tuple of int
    starts : integers (n, ndim), the first element of each block.
    counts : integers (n, ndim), elements along each axis; one element each by default.

    Returns
    -------
    Selection
        One-dimensional, of all blocks' elements.

    Raises
    ------
    SelectionTypeError
        `starts` or `counts` are not integers.
    SelectionValueError
        Their shapes are not (n, ndim), or a count is negative.
    SelectionIndexError
        A block leaves the shape; the first such row is named.

    Examples
    --------
    >>> many((4, 6), [[0, 1], [3, 0]], [[1, 2], [1, 6]]).result_shape
    (8,)
    """
    runs, total = flatten(shape, starts, counts)
    return listed(shape, runs, total)
