"""Indices that select one run of elements, or a few equal ones, as most posts and reads do, without a `Selection`.

Knows: shapes, integers, slices. Does not know: what anything else between brackets means; `selection` does.
"""

from __future__ import annotations

from math import prod
from typing import Any

__all__ = ["FewRuns", "few_runs"]

Shape = tuple[int, ...]
FewRuns = tuple[int, int, Shape, int, int]
"""First element, elements of a run, shape of the result, number of runs, elements between two begins; in C order."""


def few_runs(shape: Shape, args: Any) -> FewRuns | None:
    """The runs that are selected, if they are one or a few of equal length at equal distances: a block, a column.

    None if the indices take a selection.

    Examples
    --------
    >>> few_runs((4, 6), (1, slice(2, 4)))
    (8, 2, (2,), 1, 0)
    >>> few_runs((4, 6), (slice(1, 3), slice(2, 4)))
    (8, 2, (2, 2), 2, 6)
    """
    kind = type(args)
    if not shape:
        return (0, 1, (), 1, 0) if kind is tuple and not args else None
    if kind is int:
        rest = shape[1:]
        at = args + shape[0] if args < 0 else args
        if not 0 <= at < shape[0]:
            return None
        # a row of a table is what most are
        length = rest[0] if len(rest) == 1 else prod(rest)
        return at * length, length, rest, 1, 0
    if kind is slice:
        start, stop, length = args.start, args.stop, shape[0]
        if args.step is None:
            # what most are: in half of the time
            if start is None and stop is None and length:
                return 0, length if len(shape) == 1 else prod(shape), shape, 1, 0
            if type(start) is int and type(stop) is int and 0 <= start < stop <= length:
                if len(shape) == 1:
                    return start, stop - start, (stop - start,), 1, 0
                rest = shape[1:]
                length = prod(rest)
                return start * length, (stop - start) * length, (stop - start, *rest), 1, 0
        args = (args,)
    elif args is Ellipsis or (kind is tuple and not args):
        return 0, prod(shape), shape, 1, 0
    elif kind is not tuple or len(args) > len(shape):
        return None
    start, length, number, step = 0, 1, 1, 0
    result: list[int] = []
    for arg, dim in zip(args, shape, strict=False):
        if type(arg) is int:
            at, count = arg + dim if arg < 0 else arg, 1
            if not 0 <= at < dim:
                return None
        elif type(arg) is slice:
            at, stop = arg.start, arg.stop
            if arg.step is not None or type(at) is not int or type(stop) is not int or not 0 <= at < stop <= dim:
                try:
                    at, stop, stride = arg.indices(dim)
                except (TypeError, ValueError):
                    return None
                if stride != 1 or stop <= at:
                    return None
            count = stop - at
            result.append(count)
        else:
            return None
        start = start * dim + at
        step *= dim
        if length > 1 and count != dim:
            if number > 1:
                return None
            number, step, length = length, dim, 1
        length *= count
    for dim in shape[len(args) :]:
        start *= dim
        length *= dim
        step *= dim
        result.append(dim)
    return start, length, tuple(result), number, step
