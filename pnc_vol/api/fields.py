"""Fields of compound datasets, and elements that a region reference names: what else may stand between the brackets.

Knows: field names in an index, the JSON of a region. Does not know: how a field is read.

Rules
-----
1. Names in an index are fields, wherever they stand in it; the rest selects elements.
2. One name gives the field's own values, a list of names a compound of these fields.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pnc_vol.api.views import AbstractView
from pnc_vol.errors import SelectionTypeError, SelectionValueError, did_you_mean
from pnc_vol.extents.selection import Selection, many, select
from pnc_vol.mapping.references import RegionReference

if TYPE_CHECKING:
    from pnc_vol.api.dataset import Dataset

__all__ = ["FieldsView", "fields_of", "region_selection", "split_names"]


def split_names(args: Any) -> tuple[Any, tuple[str, ...]]:
    """An index without the field names in it, and the names."""
    if isinstance(args, str):
        return (), (args,)
    if isinstance(args, tuple) and any(isinstance(arg, str) for arg in args):
        rest = tuple(arg for arg in args if not isinstance(arg, str))
        return rest[0] if len(rest) == 1 else rest, tuple(arg for arg in args if isinstance(arg, str))
    return args, ()


def fields_of(dtype: np.dtype[Any], names: Sequence[str], *, writing: bool = False) -> np.dtype[Any]:
    """The compound of some fields of a type.

    Raises
    ------
    ValueError
        No compound (a TypeError when `writing`), or no such field.
    """
    if dtype.names is None:
        if writing:
            raise SelectionTypeError("Illegal slicing argument (not a compound dataset)")
        raise SelectionValueError("Field names only allowed for compound types")
    for name in names:
        if name not in dtype.names:
            near = did_you_mean(name, dtype.names)
            raise SelectionValueError(
                f"Field {name} does not appear in this type. It has {', '.join(dtype.names)}{near}"
            )
    return np.dtype([(name, dtype[name]) for name in names])


class FieldsView(AbstractView):
    """Reads some fields of a compound dataset.

    Parameters
    ----------
    dset : Dataset
    names : str, whose values alone are read, or a list of str
    """

    def __init__(self, dset: Dataset, names: str | Sequence[str]) -> None:
        super().__init__(dset)
        self._names = (names,) if isinstance(names, str) else tuple(names)
        self._one = isinstance(names, str)
        self._fields = fields_of(dset.dtype, self._names)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._fields[self._names[0]] if self._one else self._fields

    def __getitem__(self, args: Any) -> Any:
        found = self._dset._read(args, None, self._names)
        return found[self._names[0]] if self._one else found


def region_selection(shape: tuple[int, ...], reference: RegionReference) -> Selection:
    """The elements that a region reference names.

    Raises
    ------
    ValueError
        It names none, or is not for a dataset of this shape.
    """
    try:
        said = json.loads(reference.region)
        if "points" in said:
            points = np.array(said["points"], np.int64)
            starts = np.stack(np.unravel_index(points, shape), axis=-1)
            return many(shape, starts, np.ones_like(starts))
        axes = said["select"]
        if len(axes) != len(shape):
            raise ValueError("rank")
        return select(shape, tuple(map(_axis, axes, shape)))
    except (ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError) as problem:
        raise SelectionValueError(f"{reference!r} does not fit a dataset of shape {shape}: {problem}") from None


def _axis(said: Any, n: int) -> Any:
    if isinstance(said, dict):
        return said["list"]
    first, count, step = said
    if first < 0 or count < 0 or step < 1 or (count and first + (count - 1) * step >= n):
        # numpy and HDF5 would cut such a slice, and show other elements than were meant
        raise ValueError(f"{said} in an axis of {n}")
    return slice(first, first + (count - 1) * step + 1 if count else first, step)
