"""The index of ``ds[...]`` as a `Selection`: which elements, in which order.

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
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.errors import SelectionIndexError, SelectionTypeError, SelectionValueError
from pnc_vol.extents.fancy import crossed, increases, index_array, limits, regular, shown, true_runs
from pnc_vol.extents.model import Int64, Runs, Selection, Shape
from pnc_vol.extents.subarrays import checked_block, flatten

__all__ = ["Selection", "hyperslab", "listed", "many", "select", "whole"]


# The class's own constructor costs as much as all the rest of a simple index.
_make = tuple.__new__


def whole(shape: Shape) -> Selection:
    """Everything.

    Examples
    --------
    >>> whole((2, 3)).single_run()
    (0, 6)
    """
    rank = len(shape)
    return _make(Selection, (shape, (0,) * rank, shape, (1,) * rank, 0, shape, -1, None, None))


def select(shape: Shape, args: Any) -> Selection:
    """What ``ds[args]`` selects in a dataset of this shape, by h5py's rules.

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
    kind = type(args)
    if kind is int:
        if shape:
            dim = shape[0]
            at = args + dim if args < 0 else args
            if 0 <= at < dim:
                rest = shape[1:]
                extra = len(rest)
                start = (at,) + (0,) * extra
                return _make(Selection, (shape, start, (1, *rest), (1,) * (1 + extra), 1, rest, -1, None, None))
    elif args is Ellipsis:
        return whole(shape)
    elif kind is slice:
        if shape:
            first, length, step = _slice(args, shape[0])
            if step > 0:
                rest = shape[1:]
                extra = len(rest)
                result = (length, *rest)
                start = (first,) + (0,) * extra
                return _make(Selection, (shape, start, result, (step,) + (1,) * extra, 0, result, -1, None, None))
    elif kind is tuple:
        return _select(shape, args) if args else whole(shape)
    return _select(shape, (args,))


def _select(shape: Shape, args: tuple[Any, ...]) -> Selection:
    """Any index, as a non-empty tuple."""
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
        if constant is not None:
            start[i], stride[i] = constant
            del lists[i]
        ordered = ordered and rises
    if len(lists) > 1 or not ordered:
        runs = crossed(shape, start, count, stride, lists)
        return listed(shape, runs, math.prod(result))._replace(result_shape=tuple(result))
    axis, index = next(iter(lists.items()), (-1, None))
    return _make(
        Selection,
        (shape, tuple(start), tuple(count), tuple(stride), dropped, tuple(result), axis, index, None),
    )


def _slice(arg: slice, dim: int) -> tuple[int, int, int]:
    """(start, count, stride) of a slice on an axis of `dim` elements; the stride is negative if the step is."""
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
    """The element that an integer names on an axis of `dim` elements."""
    at = number + dim if number < 0 else number
    if 0 <= at < dim:
        return at
    raise SelectionIndexError(f"Index ({number}) out of range for {limits(dim)} on axis {axis}")


def _integer(arg: Any) -> int | None:
    """The integer that `arg` stands for, or None if it is no integer."""
    try:
        return operator.index(arg)
    except TypeError:
        return None


def _too_many(given: int, rank: int) -> SelectionValueError:
    return SelectionValueError(f"{given} indexing arguments for {rank} dimensions")


def _scalar(args: tuple[Any, ...]) -> Selection:
    """The only element of a dataset without axes."""
    if len(args) == 1 and args[0] is Ellipsis:
        return whole(())
    raise SelectionValueError("Illegal slicing argument for scalar dataspace; use () or ...")


def _ready(shape: Shape, array: npt.NDArray[Any] | Selection) -> Selection | None:
    """A selection as it is, or by a boolean array of the whole shape; None for an array along the first axis."""
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
    """A list of merged runs, `total` elements, one-dimensional."""
    return _make(Selection, (shape, (), (total,), (), 0, (total,), -1, None, runs))


def hyperslab(
    shape: Shape, start: Sequence[int], count: Sequence[int], stride: Sequence[int] | None = None
) -> Selection:
    """A block given by start, count and stride, as in NetCDF's ``vara`` and ``vars``.

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
    """Many blocks of one dataset, all elements of one after those of another, as in PnetCDF's ``varn``.

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
