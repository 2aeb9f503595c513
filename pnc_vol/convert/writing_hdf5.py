"""Values written to HDF5 files exactly as they are.

Knows: h5py's low-level calls. Does not know: where values come from.

Rules
-----
1. h5py guesses what an array of arrays is: rows of equal length become one array with an axis more, which it then
   refuses. Arrays of varying length and references are therefore written with the type and the shape that they have.
2. Everything else goes through h5py's own assignment.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pnc_vol.mapping.composite import ragged_base
from pnc_vol.mapping.special import Dtype, metadata_of

__all__ = ["create_attribute", "write_block"]


def write_block(dataset: Any, selection: tuple[slice, ...], values: Any) -> None:
    """Write a block of values to a dataset.

    Parameters
    ----------
    dataset : h5py.Dataset
    selection : tuple of slice, one for each axis, with both ends and without steps
    values : array of the block's shape and the dataset's type
    """
    if not _of_objects(dataset.dtype):
        dataset[selection] = values
        return
    import h5py

    shape = tuple(axis.stop - axis.start for axis in selection)
    space = dataset.id.get_space()
    memory = h5py.h5s.create_simple(shape) if shape else h5py.h5s.create(h5py.h5s.SCALAR)
    if shape:
        space.select_hyperslab(tuple(axis.start for axis in selection), shape)
    array = _exact(values, dataset.dtype, shape)
    dataset.id.write(memory, space, array, h5py.h5t.py_create(dataset.dtype))


def create_attribute(obj: Any, name: str, value: Any, shape: tuple[int, ...], dtype: Dtype) -> None:
    """Give an object of h5py's an attribute.

    Parameters
    ----------
    value : array-like of `shape` and `dtype`
    """
    if not _of_objects(dtype):
        obj.attrs.create(name, value, shape=shape, dtype=dtype)
        return
    import h5py

    space = h5py.h5s.create_simple(shape) if shape else h5py.h5s.create(h5py.h5s.SCALAR)
    made = h5py.h5a.create(
        obj.id, name.encode("utf-8", "surrogateescape"), h5py.h5t.py_create(dtype, logical=True), space
    )
    made.write(_exact(value, dtype, shape), mtype=h5py.h5t.py_create(dtype))


def _of_objects(dtype: Dtype) -> bool:
    """Whether values of a type are or hold arrays of varying length, or references."""
    if "ref" in metadata_of(dtype) or ragged_base(dtype) is not None:
        return True
    if dtype.names is not None:
        return any(_of_objects(dtype[name]) for name in dtype.names)
    return dtype.subdtype is not None and _of_objects(dtype.subdtype[0])


def _exact(values: Any, dtype: Dtype, shape: tuple[int, ...]) -> Any:
    """The values as a contiguous array of exactly this type and shape."""
    if dtype.subdtype is not None:
        return _exact(values, dtype.subdtype[0], shape + dtype.subdtype[1])
    if dtype.names is not None:
        array = np.asarray(values)
        fields = np.empty(shape, dtype)
        for name in dtype.names:
            np.copyto(
                fields[name],
                _exact(array[name].reshape(shape + dtype[name].shape), dtype[name], shape),
                casting="unsafe",
            )
        return fields
    if dtype.kind != "O":
        return np.ascontiguousarray(np.asarray(values, dtype).reshape(shape))
    base = ragged_base(dtype)
    made = np.empty(int(np.prod(shape, dtype=np.int64)), dtype)
    if shape:
        items = np.asarray(values, object).reshape(shape).ravel().tolist()
    else:
        items = [values.item() if isinstance(values, np.ndarray) and not values.shape else values]
    for at, item in enumerate(items):
        made[at] = item if base is None else _row(item, base)
    return made.reshape(shape)


def _row(item: Any, base: Dtype) -> Any:
    if item is None or np.ndim(item) == 0:
        return np.empty(0, base)
    return _exact(item, base, (len(item),))
