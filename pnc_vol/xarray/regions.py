"""A region says which part of a file a dataset is written to: slices by dimension, given or looked up.

Knows: datasets of xarray, pandas' indexes. Does not know: files, encodings, ranks.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd
import xarray
from xarray import conventions

__all__ = ["Region", "sliced"]

Region = Mapping[str, slice | Literal["auto"]] | Literal["auto"]


def sliced(
    dataset: xarray.Dataset, region: Region | None, stored: Mapping[Any, xarray.Variable], *, fresh: bool
) -> tuple[xarray.Dataset, dict[str, slice]]:
    """Return the slices of a region; and the dataset without the coordinates that the region was looked up by.

    Parameters
    ----------
    dataset : Dataset
    region : mapping, "auto" or None
    stored : mapping
        The variables of the file, as they are stored.
    fresh : bool
        The file is new, so that nothing can be looked up in it.

    Raises
    ------
    ValueError, TypeError, KeyError
        As `xarray.Dataset.to_zarr` raises them.
    """
    if region is None:
        return dataset, {}
    wanted: dict[str, Any] = dict.fromkeys(map(str, dataset.dims), "auto") if region == "auto" else {**region}
    strange = [dim for dim in wanted if dim not in dataset.dims]
    if strange:
        raise ValueError(f"region= has {strange[0]!r}, which is no dimension of the dataset: {tuple(dataset.dims)}")
    looked_up: list[Hashable] = []
    for dim, given in wanted.items():
        size = dataset.sizes[dim]
        if isinstance(given, str) and given == "auto":
            if fresh:
                raise ValueError("region='auto' needs a file that exists: use mode='r+' or 'a'")
            wanted[dim] = _found(dim, dataset, stored)
            looked_up.append(dim)
            continue
        if not isinstance(given, slice):
            raise TypeError(f"region[{dim!r}]={given!r}: give a slice or 'auto'")
        start = given.start or 0
        stop = start + size if given.stop is None else given.stop
        if given.step not in (None, 1) or start < 0 or stop - start != size:
            raise ValueError(f"region[{dim!r}]={given}: the dataset has {size} along it; give that many")
        wanted[dim] = slice(start, stop)
    return dataset.drop_vars([dim for dim in looked_up if dim in dataset.variables]), wanted


def _found(dim: str, dataset: xarray.Dataset, stored: Mapping[Any, xarray.Variable]) -> slice:
    """Return where the values of a coordinate are in the file; from 0 on if the dataset has no such coordinate."""
    size = dataset.sizes[dim]
    if dim not in dataset.variables:
        return slice(0, size)
    if dim not in stored:
        raise KeyError(f"region= looks for the coordinate {dim!r}, which the file does not have; give a slice for it")
    there = pd.Index(conventions.decode_cf_variable(dim, stored[dim]).values)
    try:
        at = there.get_indexer(dataset[dim].values)
    except pd.errors.InvalidIndexError:
        raise ValueError(f"the coordinate {dim!r} of the file has values twice; give a slice for it") from None
    if (at < 0).any():
        raise KeyError(
            f"not all values of the coordinate {dim!r} are in the file, whose length a region does not change; use "
            "append_dim= for new ones"
        )
    if (np.diff(at) != 1).any():
        raise ValueError(f"the values of the coordinate {dim!r} are not side by side in the file, in the same order")
    return slice(int(at[0]), int(at[-1]) + 1) if size else slice(0, 0)
