"""References of one file become references of another one that was made from it.

Knows: h5py's references and regions, ours, which object of the target stands for which of the source. Does not know:
how values are read or written.

Rules
-----
1. A reference is followed in the source to the object itself, never to a name: an object with several names has one
   place in the target.
2. What a reference names and the target does not have becomes a null reference, and is counted in `missing`.
3. Types are translated with all they are made of: compounds, array types and arrays of varying length of references.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from pnc_vol.api.copying import refers
from pnc_vol.api.hdf5_files import is_foreign
from pnc_vol.convert import inspect_hdf5
from pnc_vol.errors import NotYetError
from pnc_vol.mapping.composite import ragged_base
from pnc_vol.mapping.dtypes import Dtype, Reference, RegionReference, metadata_of, ref_dtype, regionref_dtype

__all__ = ["MOST_POINTS", "Meanings", "References", "items_of"]

MOST_POINTS = 1 << 20
"""Elements of a region that is no hyperslab, above which it is not translated: each is a number in the target."""


class References:
    """Translates references, in one direction.

    Parameters
    ----------
    source, target : File
    to_netcdf : bool
        The source is h5py's, the target ours; else the other way round.

    Attributes
    ----------
    missing : int, references translated to null because the target has not what they name.
    """

    def __init__(self, source: Any, target: Any, *, to_netcdf: bool) -> None:
        self.source, self.target = source, target
        self.to_netcdf = to_netcdf
        self.missing = 0
        self.places: dict[Any, str] = {}
        """Path in the target of each object of the source that was made there."""

    def note(self, member: Any, path: str) -> None:
        """Say that the target has an object of the source, and where."""
        self.places[inspect_hdf5.identity(member)] = path

    def place_of(self, member: Any) -> str | None:
        """Return the path in the target of what was made for an object of the source; None if nothing was."""
        return self.places.get(inspect_hdf5.identity(member))

    def dtype(self, dtype: Dtype) -> Dtype:
        """Return the type as the target's library has it; a type without references is returned as it is."""
        if not refers(dtype):
            return dtype
        kind = metadata_of(dtype).get("ref")
        if kind is not None:
            return self._kinds()[kind.__name__]
        if dtype.names is not None:
            assert dtype.fields is not None
            return np.dtype(
                {
                    "names": list(dtype.names),
                    "formats": [self.dtype(dtype.fields[name][0]) for name in dtype.names],
                    "offsets": [dtype.fields[name][1] for name in dtype.names],
                    "itemsize": dtype.itemsize,
                }
            )
        if dtype.subdtype is not None:
            return np.dtype((self.dtype(dtype.subdtype[0]), dtype.subdtype[1]))
        base = ragged_base(dtype)
        assert base is not None
        return np.dtype("O", metadata={"vlen": self.dtype(base)})

    def _kinds(self) -> dict[str, Dtype]:
        if self.to_netcdf:
            return {"Reference": ref_dtype, "RegionReference": regionref_dtype}
        import h5py

        return {"Reference": h5py.ref_dtype, "RegionReference": h5py.regionref_dtype}

    def values(self, values: Any, dtype: Dtype, shape: tuple[int, ...]) -> Any:
        """Return values of the source's `dtype` with each reference translated.

        Parameters
        ----------
        values : array or scalar of `dtype`, as the source's library reads it
        dtype : the source's type
        shape : tuple of int
            Of the elements: a scalar of varying length is read as an array, too.

        Returns
        -------
        ndarray
            Of the type that `dtype` gives and of `shape`; of an array type, of its base, with the axes of both.
        """
        if not refers(dtype):
            return values
        if dtype.subdtype is not None:
            return self.values(values, dtype.subdtype[0], shape + dtype.subdtype[1])
        if dtype.names is not None:
            array = np.asarray(values).reshape(shape)
            fields = np.empty(shape, self.dtype(dtype))
            for name in dtype.names:
                # not ``fields[name] = ...``: of a scalar, numpy would store an array of no axes as an object
                np.copyto(fields[name], self.values(array[name], dtype[name], shape), casting="unsafe")
            return fields
        base = ragged_base(dtype)
        made = np.empty(prod(shape), self.dtype(dtype))
        for at, item in enumerate(items_of(values, shape)):
            if base is None:
                made[at] = self.follow(item)
            elif item is None or np.ndim(item) == 0:
                # a row that was never written
                made[at] = np.empty(0, self.dtype(base))
            else:
                made[at] = self.values(item, base, (len(item),))
        return made.reshape(shape)

    # --------------------------------------------------------------------------------------- one reference

    def follow(self, reference: Any) -> Any:
        """Return the target's reference to the same thing; null for a null one, and for what the target does not
        have."""
        return self._ours(reference) if self.to_netcdf else self._hdf5(reference)

    def _ours(self, reference: Any) -> Reference:
        import h5py

        region = isinstance(reference, h5py.RegionReference)
        null = RegionReference() if region else Reference()
        if not reference:
            return null
        try:
            found = h5py.h5r.dereference(reference, self.source.id)
            path = self.places.get(inspect_hdf5.identity_of(found)) if found is not None else None
            if path is not None and region:
                return RegionReference(path, None, _region_of(h5py.h5r.get_region(reference, self.source.id)))
        except (OSError, KeyError, RuntimeError, ValueError, NotYetError):
            # it leads to what was deleted, or to nothing at all
            path = None
        if path is None:
            self.missing += 1
            return null
        return Reference(path)

    def _hdf5(self, reference: Any) -> Any:
        import h5py

        region = isinstance(reference, RegionReference)
        null = h5py.RegionReference() if region else h5py.Reference()
        if not reference:
            return null
        try:
            path = self.places[inspect_hdf5.identity(self.source[reference.path])]
            found = self.target[path]
            return _region_in(found, reference) if region else found.ref
        except (OSError, KeyError, RuntimeError, ValueError, TypeError):
            self.missing += 1
            return null


def items_of(values: Any, shape: tuple[int, ...]) -> list[Any]:
    """Return the elements of an array of objects with the axes `shape`."""
    if shape:
        return np.asarray(values, object).reshape(shape).ravel().tolist()
    # what is read of a scalar is its value, or an array without axes that holds it
    return [values.item() if isinstance(values, np.ndarray) and not values.shape else values]


# --------------------------------------------------------------------------------------------------- compared


class Meanings:
    """What the references of one file lead to, in words that are the same in a copy of the file.

    Parameters
    ----------
    file : File, of h5py or of ours
    """

    def __init__(self, file: Any) -> None:
        self.file = file
        self._names: dict[Any, str] | None = None

    def values(self, values: Any) -> Any:
        """Return an array of values with a tuple in the place of each reference."""
        made = np.empty(np.shape(values), object)
        for at, item in np.ndenumerate(np.asarray(values)):
            made[at] = self._plain(item)
        return made

    def _plain(self, item: Any) -> Any:
        if isinstance(item, np.void):
            return tuple(map(self._plain, item.tolist()))
        if isinstance(item, np.ndarray | list | tuple):
            return [self._plain(each) for each in item]
        # first: where HDF5 files are opened as they are, h5py's references count as ours, too
        if is_foreign(item):
            import h5py

            return self._meaning(
                item, lambda: self.file[item], lambda: _region_of(h5py.h5r.get_region(item, self.file.id))
            )
        if isinstance(item, Reference):
            return self._meaning(item, lambda: self.file[item.path], lambda: item.region)
        return item

    def _meaning(self, item: Any, follow: Callable[[], Any], region: Callable[[], str]) -> tuple[str, str]:
        if not item:
            return "", ""
        try:
            key = inspect_hdf5.identity(follow())
            return self.names().get(key, "an object without a name"), region() if "Region" in type(
                item
            ).__name__ else ""
        except (OSError, KeyError, RuntimeError, ValueError, TypeError, NotYetError):
            return "nothing", ""

    def names(self) -> dict[Any, str]:
        """Return the first path of each object, by the order of the names."""
        if self._names is None:
            found = {inspect_hdf5.identity(self.file["/"]): "/"}
            self.file.visititems(lambda path, obj: found.setdefault(inspect_hdf5.identity(obj), f"/{path}") and None)
            self._names = found
        return self._names


# ----------------------------------------------------------------------------------------------------- regions


def _region_of(space: Any) -> str:
    """Return the selection of an HDF5 dataspace as the JSON of a region.

    Raises
    ------
    NotYetError
        It has more than `MOST_POINTS` elements and is no plain hyperslab.
    """
    import h5py

    shape = space.get_simple_extent_dims()
    kind = space.get_select_type()
    if kind == h5py.h5s.SEL_ALL:
        return _spelled({"select": [[0, n, 1] for n in shape]})
    if kind == h5py.h5s.SEL_NONE:
        return _spelled({"select": [[0, 0, 1] for _ in shape]})
    if kind == h5py.h5s.SEL_HYPERSLABS and space.is_regular_hyperslab():
        start, stride, count, block = space.get_regular_hyperslab()
        axes = list(zip(start, stride, count, block, strict=True))
        if all(size == 1 or n == 1 for _, _, n, size in axes):
            return _spelled(
                {
                    "select": [
                        [int(a), int(n), int(max(step, 1))] if size == 1 else [int(a), int(size), 1]
                        for a, step, n, size in axes
                    ]
                }
            )
    if space.get_select_npoints() > MOST_POINTS:
        raise NotYetError(f"a region of {space.get_select_npoints()} elements that is no hyperslab")
    return _spelled({"points": _points(space, kind, shape).tolist()})


def _points(space: Any, kind: int, shape: tuple[int, ...]) -> Any:
    """Return the numbers, in C order, of the elements that a dataspace selects."""
    import h5py

    if kind == h5py.h5s.SEL_POINTS:
        return np.ravel_multi_index(tuple(space.get_select_elem_pointlist().T.astype(np.int64)), shape)
    parts = []
    for first, last in space.get_select_hyper_blocklist():
        axes = np.ix_(*(np.arange(a, b + 1) for a, b in zip(first.tolist(), last.tolist(), strict=True)))
        parts.append(np.ravel_multi_index(np.broadcast_arrays(*axes), shape).ravel())
    return np.sort(np.concatenate(parts))


def _spelled(region: dict[str, Any]) -> str:
    return json.dumps(region, separators=(",", ":"))


def _region_in(dataset: Any, reference: RegionReference) -> Any:
    """Return a region reference of h5py to the same elements of its dataset.

    Raises
    ------
    ValueError, KeyError, TypeError
        The region does not fit the dataset.
    """
    import h5py

    region = json.loads(reference.region)
    space = dataset.id.get_space()
    shape = dataset.shape
    if "points" in region:
        points = np.stack(np.unravel_index(np.array(region["points"], np.int64), shape), axis=-1)
        space.select_elements(points)
    elif any(isinstance(axis, dict) for axis in region["select"]):
        lists = [
            np.array(axis["list"]) if isinstance(axis, dict) else axis[0] + axis[2] * np.arange(axis[1])
            for axis in region["select"]
        ]
        if prod(map(len, lists)) > MOST_POINTS:
            raise ValueError("a region of too many elements")
        space.select_elements(np.stack([grid.ravel() for grid in np.meshgrid(*lists, indexing="ij")], axis=-1))
    elif any(axis[1] == 0 for axis in region["select"]):
        space.select_none()
    else:
        first, count, step = zip(*region["select"], strict=True)
        space.select_hyperslab(tuple(first), tuple(count), tuple(step))
    return h5py.h5r.create(dataset.id, b".", h5py.h5r.DATASET_REGION, space)
