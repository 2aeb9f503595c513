"""The values of one variable are read when they are asked for.

Knows: datasets, elements, xarray's indexers. Does not know: names, attributes, groups.

Rules
-----
1. An array holds no values and no open file: it asks its store for the file at each read. So it can be pickled, and any
   number of threads may read it; no lock is held here.
2. What xarray decodes itself is given as it is stored: characters with an axis for the length, truth values as int8,
   enums as their integers. So the encoding is what other engines give, and is written again as it was read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from xarray.backends import BackendArray
from xarray.core import indexing

from pnc_vol.api.dataset import Dataset, dataset_of
from pnc_vol.mapping.dtypes import Element

if TYPE_CHECKING:
    from xarray.backends import FileManager

    from pnc_vol.api.file import File

__all__ = ["StoredArray", "Where", "found", "inner_axes", "shown_dtype"]

Where = tuple[str, tuple[str, ...]]
"""The path of a dataset, and the names of the parts that lead to a variable of it."""


def shown_dtype(element: Element) -> np.dtype[Any]:
    """Return the type of the values that xarray gets, before it decodes them."""
    kind = element.kind
    if element.is_string:
        return np.dtype("S1")
    if kind == "bool":
        return np.dtype("i1")
    if kind == "opaque":
        return np.dtype("u1")
    dtype = element.dtype.base
    return np.dtype(dtype.str) if kind == "enum" or dtype.metadata else dtype


def inner_axes(element: Element) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the lengths and names of the axes behind those of the dataset: of characters, of bytes, of an array
    type."""
    if element.kind in ("complex", "longdouble"):
        return (), ()
    return element.trailing, element.trailing_names


class StoredArray(BackendArray):
    """What xarray holds for a variable that it has not read.

    Parameters
    ----------
    manager : xarray.backends.FileManager
        Gives the open file, which stays open while it is used.
    where : (str, tuple of str)
        The dataset, and the parts on the way to the variable; see `Where`.
    element : Element
    shape : tuple of int
        Of the variable in xarray without inner axes: records may be more than the dataset has, and those that it lacks
        read as its fill value.
    """

    __slots__ = ("_bytes", "_inner", "_manager", "_outer", "_where", "_width", "dtype", "shape")

    def __init__(self, manager: FileManager[File], where: Where, element: Element, shape: tuple[int, ...]) -> None:
        self._manager, self._where, self._outer = manager, where, shape
        self._inner = inner_axes(element)[0]
        self._width = element.itemsize if element.is_string else 0
        self._bytes = element.is_string or element.kind == "opaque"
        self.shape = shape + self._inner
        self.dtype = shown_dtype(element)

    def __getitem__(self, key: indexing.ExplicitIndexer) -> npt.NDArray[Any]:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read)

    def _read(self, key: tuple[Any, ...]) -> npt.NDArray[Any]:
        outer, inner = key[: len(self._outer)], key[len(self._outer) :]
        values = np.asarray(self._values(outer))
        if self._width:
            # texts as wide as in the file
            values = np.asarray(values, dtype=f"S{self._width}")
        if self._bytes or values.dtype != self.dtype:
            # seen as another type, never converted
            shape = values.shape + (self._inner if self._bytes else ())
            values = np.ascontiguousarray(values).view(self.dtype).reshape(shape)
        if inner:
            taken = indexing.NumpyIndexingAdapter(values)
            values = np.asarray(
                taken.oindex[indexing.OuterIndexer((slice(None),) * (values.ndim - len(inner)) + inner)]
            )
        return values

    def _values(self, key: tuple[Any, ...]) -> Any:
        with self._manager.acquire_context() as file:
            dataset = found(file, self._where)
            if dataset.shape == self._outer or dataset.shape is None:
                return dataset[key]
            return _padded(dataset, key, self._outer)


def found(file: File, where: Where) -> Dataset:
    """Return the dataset of an open file."""
    path, parts = where
    dataset: Dataset = file[path]
    if not parts:
        return dataset
    node = dataset.id.node
    for part in parts:
        node = node.parts[part]
    return dataset_of(dataset.id.handle, node)


def _padded(dataset: Dataset, key: tuple[Any, ...], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return what a key selects of a dataset with fewer records than the others: fill values where it has none."""
    records = len(dataset)
    wanted = np.atleast_1d(np.arange(shape[0])[key[0]])
    there = wanted < records
    values = np.asarray(dataset[(wanted[there], *key[1:])])
    made = np.full((len(wanted), *values.shape[1:]), dataset.fillvalue, values.dtype)
    made[there] = values
    return made[0] if isinstance(key[0], (int, np.integer)) else made
