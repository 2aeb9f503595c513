"""`few_runs` and `place_many` turn an index or a selection into runs of elements, and these into byte extents.

Knows: selections, begins, element sizes, how records interleave. Does not know: files, types, requests.

Rules
-----
1. Runs come in memory order, as long as they can be, and none is empty.
2. The record dimension is axis 0. A record variable's records lie `record_size` bytes apart, so none of
   its runs crosses a multiple of `inner`, the elements of one record.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from pnc_vol.extents.model import Extents, Int64, Runs, Selection, before, cut_at, spread

if TYPE_CHECKING:
    from pnc_vol.extents.model import Selection

__all__ = [
    "FewRuns", "elements", "few_runs", "numbers", "picked_runs", "place", "place_many", "runs", "split_rows",
]  # fmt: skip

_ALL = slice(None)


Shape = tuple[int, ...]
FewRuns = tuple[int, int, Shape, int, int]
"""First element, elements of a run, shape of the result, number of runs, elements between two begins; in C order."""


def few_runs(shape: Shape, args: Any) -> FewRuns | None:
    """Return the runs that an index selects, if they are of equal length at equal distances: one, a block, a column, a
    step.

    As `runs` of its selection, for what most posts and reads are, without a selection; None for all other indices.

    Examples
    --------
    >>> few_runs((4, 6), (1, slice(2, 4)))
    (8, 2, (2,), 1, 0)
    >>> few_runs((4, 6), (slice(1, 3), slice(2, 4)))
    (8, 2, (2, 2), 2, 6)
    >>> few_runs((4, 6), slice(0, 4, 2))
    (0, 6, (2, 6), 2, 12)
    """
    kind = type(args)
    if kind is int and shape:
        rest = shape[1:]
        at = args + shape[0] if args < 0 else args
        if not 0 <= at < shape[0]:
            return None
        # a row of a table is what most are
        length = rest[0] if len(rest) == 1 else math.prod(rest)
        return at * length, length, rest, 1, 0
    if kind is slice:
        if shape and args.step is None:
            # what most are: in half of the time
            start, stop, dim = args.start, args.stop, shape[0]
            if start is None and stop is None and dim:
                return 0, dim if len(shape) == 1 else math.prod(shape), shape, 1, 0
            if type(start) is int and type(stop) is int and 0 <= start < stop <= dim:
                if len(shape) == 1:
                    return start, stop - start, (stop - start,), 1, 0
                rest = shape[1:]
                length = math.prod(rest)
                return start * length, (stop - start) * length, (stop - start, *rest), 1, 0
        args = (args,)
    elif args is Ellipsis:
        return (0, math.prod(shape), shape, 1, 0) if shape else None
    if type(args) is not tuple or len(args) > len(shape):
        return None
    # What the axes so far select: `number` runs of `length`, the first at `start`, the others `step` further each.
    start, length, number, step = 0, 1, 1, 0
    result: list[int] = []
    for arg, dim in zip(args, shape, strict=False):
        if type(arg) is int:
            at, count = arg + dim if arg < 0 else arg, 1
            if not 0 <= at < dim:
                return None
        elif type(arg) is slice:
            at, stop, stride = arg.start, arg.stop, 1
            if arg.step is not None or type(at) is not int or type(stop) is not int or not 0 <= at < stop <= dim:
                try:
                    at, stop, stride = arg.indices(dim)
                except (TypeError, ValueError):
                    return None
                if stride < 1 or stop <= at:
                    return None
            count = -(-(stop - at) // stride)
            result.append(count)
            if stride > 1 and count > 1:
                # A second axis with gaps takes runs at unequal distances.
                if number > 1 or length > 1:
                    return None
                start, number, step = start * dim + at, count, stride
                continue
        else:
            return None
        start, step = start * dim + at, step * dim
        # An axis of which a part is left out: from one run there come as many as it had elements.
        if length > 1 and count != dim:
            if number > 1:
                return None
            number, step, length = length, dim, 1
        length *= count
    rest = shape[len(args) :]
    inner = math.prod(rest)
    return start * inner, length * inner, (*result, *rest), number, step * inner


def picked_runs(shape: Shape, args: Any) -> tuple[Any, int, Shape, int, int] | None:
    """Do as `few_runs` does, of a list, an array or a mask that picks rows in ascending order: the first element of
    each row.

    None for all other indices. Rows that are all neighbours are one run; else each row is a run, though some adjoin: to
    join them takes longer than the flush, which does it for all posts together.

    Examples
    --------
    >>> picked_runs((4, 6), [0, 3])
    (array([ 0, 18]), 6, (2, 6), 2, 0)
    >>> picked_runs((4, 6), (1, [0, 3]))
    (array([6, 9]), 1, (2,), 2, 0)
    """
    start = 0
    if type(args) is tuple:
        # behind numbers, and with nothing but slices of all behind it, as users say `ds[rows, :]` and `ds[t, cells]`
        if not 0 < len(args) <= len(shape):
            return None
        axis = 0
        while type(args[axis]) is int:
            at, dim = args[axis], shape[axis]
            at += dim if at < 0 else 0
            axis += 1
            if not 0 <= at < dim or axis == len(args):
                return None
            start = start * dim + at
        for arg in args[axis + 1 :]:
            if type(arg) is not slice or arg != _ALL:
                return None
        args, shape = args[axis], shape[axis:]
    if type(args) is list:
        try:
            args = np.array(args)
        except (ValueError, OverflowError):
            return None
    if type(args) is not np.ndarray or args.ndim != 1 or not shape:
        return None
    kind, dim, rest = args.dtype.kind, shape[0], shape[1:]
    if kind == "b":
        if len(args) != dim:
            return None
        args = args.nonzero()[0]
    elif kind != "i" and kind != "u":
        return None
    first: Int64 = args.astype(np.int64, copy=False)
    number = len(first)
    if number < 2 or first[0] < 0 or first[-1] >= dim:
        return None
    # Strictly ascending, so that the first and the last, which were looked at, bound all others.
    if int(np.minimum.reduce(first[1:] - first[:-1])) < 1:
        return None
    length = math.prod(rest)
    if first[-1] - first[0] == number - 1:
        return (int(first[0]) + start * dim) * length, number * length, (number, *rest), 1, 0
    return (first + start * dim) * length, length, (number, *rest), number, 0


def runs(selection: Selection, *, record: bool) -> Runs:
    """Return the selection as runs of elements, in the order in which the elements lie in memory.

    Parameters
    ----------
    selection : Selection
    record : bool
        Axis 0 is the record dimension: no run crosses from one record to the next.

    Examples
    --------
    >>> from pnc_vol.extents.selection import select
    >>> runs(select((4, 6), (slice(1, 3), slice(0, 2))), record=False).start.tolist()
    [6, 12]
    >>> runs(select((4, 6), slice(1, 3)), record=True).length.tolist()
    [6, 6]
    """
    inner = math.prod(selection.shape[1:])
    one = selection.single_run()
    if one is not None:
        start, length = one
        if length == 0:
            return Runs(np.empty(0, np.int64), np.empty(0, np.int64))
        found = Runs(np.array([start], np.int64), np.array([length], np.int64))
        return split_rows(found, inner) if record else found
    if selection.listed is not None:
        return split_rows(selection.listed, inner) if record else selection.listed
    lists = {} if selection.index is None else {selection.axis: selection.index}
    from pnc_vol.extents.selection import crossed

    return crossed(
        selection.shape, selection.start, selection.count, selection.stride, lists, inner if record else None
    )


def split_rows(whole: Runs, inner: int) -> Runs:
    """Cut runs at the multiples of `inner`; the argument itself if none crosses one.

    Examples
    --------
    >>> split_rows(Runs(np.array([4]), np.array([4])), 6).start.tolist()
    [4, 6]
    """
    start, length, owner = cut_at(*whole, inner)
    return whole if owner is None else Runs(start, length)


def numbers(selection: Selection) -> Int64:
    """Return the numbers of the selected elements in C order of the dataset, in the order of the selection.

    Examples
    --------
    >>> from pnc_vol.extents.selection import select
    >>> numbers(select((4, 6), (slice(1, 3), slice(0, 2)))).tolist()
    [6, 7, 12, 13]
    """
    found = runs(selection, record=False)
    owner, step = spread(found.length)
    return found.start[owner] + step


def place(runs: Runs, *, begin: int, itemsize: int, inner: int | None, record_size: int) -> Extents:
    """Return where runs of one variable lie in the file.

    Parameters
    ----------
    runs : Runs, made with ``record=True`` for a record variable.
    begin : int, bytes from the start of the file to the variable's first element.
    itemsize : int, bytes of an element in the file.
    inner : int or None
        Elements of one record; None for a variable without the record dimension.
    record_size : int, bytes from one record to the next; not looked at if `inner` is None.

    Returns
    -------
    Extents
        In the order of the runs; ``place`` counts bytes of the elements' file form from 0.

    Examples
    --------
    >>> place(Runs(np.array([3, 7]), np.array([1, 1])), begin=100, itemsize=8, inner=2, record_size=24).offset.tolist()
    [132, 180]
    """
    start, length = runs
    if inner is None:
        offset = start * itemsize
        offset += begin
    else:
        # A record of no elements has no runs, but must not divide by 0.
        record, within = np.divmod(start, max(inner, 1))
        offset = record * record_size + within * itemsize
        offset += begin
    nbytes = length * itemsize
    return Extents(offset, nbytes, before(nbytes))


def place_many(
    begin: Int64, itemsize: Int64, inner: Int64, record_size: Int64, start: Int64, length: Int64
) -> tuple[Int64, Int64]:
    """Return `place` for runs of many variables at once, one row a run.

    Parameters
    ----------
    begin : int64[n], bytes, of the run's variable.
    itemsize : int64[n], bytes of an element in the file.
    inner : int64[n], elements of one record, 0 for a variable without the record dimension.
    record_size : int64[n], bytes from one record to the next.
    start, length : int64[n], elements; no run of a record variable crosses a record.

    Returns
    -------
    offset : int64[n], bytes from the start of the file.
    nbytes : int64[n]

    Examples
    --------
    >>> one = np.ones(2, np.int64)
    >>> place_many(one * 100, one * 8, np.array([0, 2]), one * 24, one * 3, one)[0].tolist()
    [124, 132]
    """
    records = inner.nonzero()[0]
    if records.size == inner.size:
        # all have records: nothing is picked out
        record, offset = np.divmod(start, inner)
        offset *= itemsize
        offset += record * record_size
    else:
        offset = start * itemsize
        if records.size:
            record, within = np.divmod(start[records], inner[records])
            offset[records] = record * record_size[records] + within * itemsize[records]
    offset += begin
    return offset, length * itemsize


def elements(selection: Selection) -> tuple[Any, ...]:
    """Return what stands between the brackets of a numpy array for the same elements.

    numpy pairs several lists, and moves an axis that has one beside an integer to the front; a selection does neither.

    Returns
    -------
    tuple
        Indices of an array of the selection's `shape`, whose elements have its `result_shape`; basic ones, which give
        a view, if nothing was listed.

    Examples
    --------
    >>> from pnc_vol.extents.selection import select
    >>> np.arange(12).reshape(3, 4)[elements(select((3, 4), ([2, 0], [0, 3])))].tolist()
    [[8, 11], [0, 3]]
    """
    shape, start, count, stride, dropped, result, axis, index, listed = selection
    if listed is not None:
        found = np.unravel_index(numbers(selection), shape)
        return tuple(each.reshape(result) for each in found)
    if index is None:
        slices = (slice(a, a + n * step, step) for a, n, step in zip(start, count, stride, strict=True))
        return tuple(start[i] if dropped >> i & 1 else each for i, each in enumerate(slices))
    axes = [a + step * np.arange(n) for a, n, step in zip(start, count, stride, strict=True)]
    axes[axis] = index
    kept = [i for i in range(len(shape)) if not dropped >> i & 1]
    return tuple(each.reshape([each.shape[i] for i in kept]) for each in np.ix_(*axes))
