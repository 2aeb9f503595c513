"""A selection of an array in memory, as a numpy index.

Knows: selections, numpy's indexing. Does not know: files.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pnc_vol.extents.model import Selection
from pnc_vol.extents.place import numbers

__all__ = ["elements"]


def elements(selection: Selection) -> tuple[Any, ...]:
    """What stands between the brackets of a numpy array for the same elements.

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
