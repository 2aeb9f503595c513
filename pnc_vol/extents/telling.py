"""Texts of messages about an index that is out of range, or values that do not fit.

Knows: shapes. Does not know: selections, datasets.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["limits", "misfit", "shown"]

Shape = tuple[int, ...]


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


def misfit(axes: Sequence[int], target: Shape, source: Shape) -> str:
    """Which axis it is that values do not fit.

    Parameters
    ----------
    axes : sequence of int
        The dataset's axis of each axis of `target`; none if there are no such axes.
    target, source : shapes of the selection and of the values

    Examples
    --------
    >>> misfit((0, 2), (4, 6), (5,))
    'axis 2 takes 6 values or 1, not 5'
    """
    if len(axes) != len(target):
        return f"{target[0]} elements are selected"
    for axis, wanted, n in zip(reversed(axes), reversed(target), reversed(source), strict=False):
        if n not in (1, wanted):
            return f"axis {axis} takes {wanted} values{' or 1' if wanted != 1 else ''}, not {n}"
    return f"the selection has {len(target)} axes, the values have {len(source)}"
