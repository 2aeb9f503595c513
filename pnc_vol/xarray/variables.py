"""A dataset of xarray becomes datasets of the file, and values go to them.

Knows: encoded variables of xarray, groups of an open file. Does not know: decoding, dask, ranks.

Rules
-----
1. In the root group a dimension of xarray is a NetCDF dimension of that name, as any engine writes it; so a file
   without groups contains nothing but NetCDF. In other groups, and where NetCDF has no such dimension (one of length 0,
   an unlimited one that is not the first axis), names are labels, and coordinates scales of
   HDF5.
2. What is a type in this package takes the place of xarray's attribute for it: bool, enums, strings as characters.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray
from xarray.backends.common import WritableCFDataStore
from xarray.backends.netcdf3 import coerce_nc3_dtype, encode_nc3_variable
from xarray.coding.strings import CharacterArrayCoder, EncodedStringCoder

from pnc_vol.api.dataset import Dataset
from pnc_vol.api.file import File
from pnc_vol.api.group import Group
from pnc_vol.errors import DefinitionError, PncVolWarning, RangeError, did_you_mean
from pnc_vol.mapping.dimensions import name_axes
from pnc_vol.mapping.dtypes import Element, element_for, string_dtype
from pnc_vol.mapping.tree import DatasetNode
from pnc_vol.warn import warn_outside
from pnc_vol.xarray.jobs import is_dask
from pnc_vol.xarray.stores import datasets_of

__all__ = ["Definer", "Encoder", "attribute", "check_encoding", "check_names", "encoding_of", "is_chars"]

_IGNORED = (
    "zlib", "szip", "bzip2", "blosc", "zstd", "complevel", "fletcher32", "contiguous", "chunksizes", "shuffle",
    "compression", "compression_opts", "significant_digits", "quantize_mode", "blosc_shuffle", "szip_coding",
    "szip_pixels_per_block", "endian", "least_significant_digit",
)  # fmt: skip
"""Encodings of other engines that a NetCDF classic file has no use for."""
_KNOWN = ("_FillValue", "dtype", "units", "calendar", "scale_factor", "add_offset", "char_dim_name", "_Encoding")
_DROPPED = ("source", "original_shape", "preferred_chunks", "coordinates", "grid_mapping", "missing_value", "_Unsigned")
_LOSSY = ("zlib", "szip", "bzip2", "blosc", "zstd", "compression", "fletcher32", "shuffle")


def check_encoding(name: str, given: Mapping[str, Any]) -> None:
    """Refuse encodings that nobody knows, and warn of those that are not stored.

    Raises
    ------
    ValueError
        An unknown name.
    """
    unknown = [key for key in given if key not in (*_IGNORED, *_KNOWN, *_DROPPED)]
    if unknown:
        near = did_you_mean(unknown[0], _KNOWN)
        raise ValueError(f"unexpected encoding parameters for variable {name!r}: {unknown}{near}. Known: {_KNOWN}")
    if any(given.get(key) for key in _LOSSY):
        warn_outside(f"variable {name!r}: a NetCDF classic file stores values without compression", PncVolWarning)


def check_names(name: Any, dims: tuple[Any, ...]) -> None:
    """Refuse names of variables and dimensions that would be paths.

    Raises
    ------
    ValueError
    """
    if any("/" in str(one) for one in (name, *dims)):
        raise ValueError(
            f"Forward slashes '/' are not allowed in variable and dimension names (got {name!r} with the dimensions "
            f"{dims}). They separate the names of groups: use group= or a DataTree"
        )


def is_chars(variable: xarray.Variable) -> bool:
    """Return whether the last axis of an encoded variable is the length of strings."""
    return bool(variable.dtype == np.dtype("S1") and variable.ndim > 0)


class Definer:
    """Defines the variables of one dataset of xarray in a group.

    Parameters
    ----------
    file : File
    group : Group
    unlimited : set of str
        Dimensions that can grow.
    sizes : mapping of str to int
        Lengths of dimensions, of which variables may have a part only.
    """

    def __init__(self, file: File, group: Group, unlimited: set[str], sizes: Mapping[str, int]) -> None:
        self.file, self.group, self.unlimited, self.sizes = file, group, unlimited, sizes
        self.root = group.name == "/"
        self._labelled: list[tuple[Dataset, tuple[str, ...]]] = []

    def declare(self, variables: Mapping[str, xarray.Variable]) -> None:
        """Declare the dimensions of a root group, the unlimited one first.

        Raises
        ------
        ValueError
            One of them has another length in the file.
        """
        tree = self.file.id.node.tree
        there = {dim.name: dim.size for dim in tree.file_dims.order} if self.root else {}
        records = any(not size for size in there.values())
        outer = [tuple(map(str, var.dims[: var.ndim - is_chars(var)])) for var in variables.values()]
        used = {dim: self.sizes[dim] for dims in outer for dim in dims}
        for dim in sorted(used, key=lambda dim: dim not in self.unlimited):
            if there.get(dim, 0) not in (0, used[dim]):
                raise ValueError(
                    f"Unable to update size for existing dimension {dim!r} ({used[dim]} != {there[dim]}); write to "
                    "another file or group, or use append_dim= or region="
                )
            if dim in self.unlimited:
                if self.root and not records and all(dim not in dims[1:] for dims in outer):
                    self.file.create_dimension(dim, None)
                    records = True
            elif self.root and used[dim] and dim not in there:
                self.file.create_dimension(dim, used[dim])

    def define(self, name: str, variable: xarray.Variable, shape: tuple[int, ...]) -> Dataset:
        """Make the dataset of an encoded variable.

        Parameters
        ----------
        name : str
        variable : Variable, as it is to be stored.
        shape : tuple of int, lengths of its axes in the file at first.

        Raises
        ------
        ValueError
            The file has something else of this name, or it has a type that NetCDF lacks.
        """
        attrs = dict(variable.attrs)
        chars = is_chars(variable)
        outer = shape[:-1] if chars else shape
        element = _element(variable, attrs)
        fill = attrs.pop("_FillValue", None)
        if element.is_string and fill is not None:
            attrs["_FillValue"], fill = fill, None
        if name in self.group:
            raise ValueError(f"{name!r} in {self.group.name!r} of the file is no variable that xarray can write")
        made = self._made(name, variable, element, outer, fill)
        for key, value in attrs.items():
            made.attrs[key] = attribute(value)
        return made

    def found(self, name: str, shape: tuple[int, ...], *, resize: bool) -> Dataset:
        """Return a variable of the file that is written into, as long as that asks for, if it is to be made longer
        now."""
        dataset = self.group[name]
        if resize and dataset.shape != shape:
            dataset.resize(shape)
        return dataset

    def _made(
        self, name: str, variable: xarray.Variable, element: Element, outer: tuple[int, ...], fill: Any
    ) -> Dataset:
        dims = tuple(map(str, variable.dims))
        limits = tuple(None if dim in self.unlimited else n for dim, n in zip(dims, outer, strict=False))
        plain = self.root and self._plain(dims, outer)
        made: Dataset = self.group.create_dataset(
            name,
            outer,
            element.dtype if element.kind != "vlen_string" else np.dtype(f"S{element.itemsize}"),
            maxshape=limits if None in limits else None,
            fillvalue=fill,
        )
        node: DatasetNode = made.id.node
        if element.kind == "vlen_string":
            node.element = element
        if plain:
            try:
                name_axes(node, dims)
            except DefinitionError:
                node.tree.remove(node)
                raise
        else:
            if len(dims) > len(outer):
                node.element = node.element._replace(trailing_names=dims[-1:])
            self._labelled.append((made, dims[: len(outer)]))
        return made

    def _plain(self, dims: tuple[str, ...], outer: tuple[int, ...]) -> bool:
        """Return whether every axis can use the NetCDF dimension of its name."""
        declared = {dim.name: dim.size for dim in self.file.id.node.tree.file_dims.order}
        for axis, (dim, size) in enumerate(zip(dims, outer, strict=False)):
            if declared.get(dim, -1) != (0 if dim in self.unlimited else size):
                return False
            if dim in self.unlimited and axis:
                return False
        return len(set(dims)) == len(dims)

    def attach(self) -> None:
        """Label the axes of variables that have no dimensions of their names, and attach their coordinates."""
        scales = self._coordinates()
        for made, dims in self._labelled:
            own = made.id.node
            if len(dims) == 1 and own.name == dims[0] and own.scale is None:
                made.make_scale(dims[0])
                scales[dims[0]] = made
        for made, dims in self._labelled:
            own_shape = made.shape or ()
            for axis, dim in enumerate(dims):
                scale = scales.get(dim)
                if scale is not None and scale == made:
                    continue
                if scale is not None and scale.shape == own_shape[axis : axis + 1] and not made.is_scale:
                    made.dims[axis].attach_scale(scale)
                else:
                    made.dims[axis].label = dim

    def _coordinates(self) -> dict[str, Dataset]:
        """Return scales of this group and of those above it, by name; the nearest of a name."""
        found: dict[str, Dataset] = {}
        group: Group = self.group
        while True:
            for one in datasets_of(group.id.node):
                if one.node.scale_name and len(one.node.shape or ()) == 1:
                    found.setdefault(one.name, group[one.name])
            if group.name == "/":
                return found
            group = group.parent


def _element(variable: xarray.Variable, attrs: dict[str, Any]) -> Element:
    """Return how a variable is stored; attributes that its type stands for are removed."""
    dtype = variable.dtype
    if dtype.kind == "S":
        width = variable.shape[-1] if variable.ndim and dtype.itemsize == 1 else dtype.itemsize
        if attrs.get("_Encoding") == "utf-8":
            del attrs["_Encoding"]
            return element_for(string_dtype("utf-8"), width=max(1, width))
        return element_for(np.dtype(f"S{max(1, width)}"))
    if attrs.get("dtype") == "bool" and dtype == np.dtype("i1"):
        del attrs["dtype"]
        return element_for(np.dtype(bool))
    for stated in (dtype, variable.encoding.get("dtype")):
        members = (getattr(stated, "metadata", None) or {}).get("enum")
        if members:
            return element_for(np.dtype(dtype.str, metadata={"enum": dict(members)}))
    try:
        # an order of bytes needs a marker, and no reader of NetCDF asks for it; `str` of a compound has no fields
        return element_for(np.dtype(dtype.newbyteorder("=").str if dtype.names is None else object))
    except TypeError as error:
        raise ValueError(f"unsupported dtype for a NetCDF variable: {dtype}") from error


def attribute(value: Any) -> Any:
    """Return an attribute of xarray as this package stores it.

    Raises
    ------
    TypeError
        It is neither text, nor numbers, nor a list of these.

    Examples
    --------
    >>> attribute(["a", "b"]), attribute(b"K"), attribute(True)
    (['a', 'b'], 'K', True)
    """
    if isinstance(value, np.bytes_ | bytes):
        try:
            return np.bytes_(value) if b"\0" in value else value.decode()
        except UnicodeDecodeError:
            return np.bytes_(value)
    if isinstance(value, np.ndarray) and value.dtype.kind == "U":
        return str(value) if value.ndim == 0 else value.astype(object)
    if isinstance(value, np.ndarray):
        # see `_element`
        return value.astype(value.dtype.newbyteorder("="), copy=False)
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, Mapping):
        raise DefinitionError(f"{value!r} is no attribute: give text, numbers or a list of these")
    return value


# ----------------------------------------------------- how variables that the file lacks are encoded


class Encoder(WritableCFDataStore):
    """Encodes variables for a NetCDF classic file; xarray's conventions do the most."""

    def __init__(self, version: int, comm: Any) -> None:
        self._version, self._comm = version, comm

    def encode(self, variables: Any, attributes: Any) -> Any:
        """Encode variables and attributes.

        Raises
        ------
        RangeError
            A time is missing, and would become a number that reads as a time.
        """
        return super().encode({name: _with_all_times(name, var) for name, var in variables.items()}, attributes)

    def encode_attribute(self, a: Any) -> Any:
        return _older(a) if self._version < 5 else a

    def encode_variable(self, variable: xarray.Variable, name: Any = None) -> xarray.Variable:
        if self._version < 5:
            attrs = {key: self.encode_attribute(value) for key, value in variable.attrs.items()}
            # xarray refuses attributes that this package can store: it gets those that it looks at
            seen = {key: attrs[key] for key in ("units", "_FillValue", "_Encoding") if key in attrs}
            made = encode_nc3_variable(xarray.Variable(variable.dims, variable._data, seen, variable.encoding), name)
            made.attrs = {**made.attrs, **attrs}
            return made
        variable = EncodedStringCoder(allows_unicode=False).encode(variable, name=name)
        if self._comm is not None and variable.dtype.kind == "S":
            width = max(self._comm.allgather(variable.dtype.itemsize))
            variable = variable.copy(deep=False, data=variable.data.astype(f"S{width}"))
        return CharacterArrayCoder().encode(variable, name=name)


def _with_all_times(name: Any, variable: xarray.Variable) -> xarray.Variable:
    """Return a variable that is refused if a time of it is missing, and the number for it would read as another time:
    xarray casts NaN to integers, of which it reads only the least one of 64 bits as a missing time."""
    dtype, described = variable.encoding.get("dtype"), {**variable.encoding, **variable.attrs}
    filled = any(described.get(key) is not None for key in ("_FillValue", "missing_value"))
    if filled or variable.dtype.kind not in "MmO" or dtype in (None, str) or np.dtype(dtype).kind not in "iu":
        return variable
    if np.dtype(dtype) == np.int64:
        return variable
    check = functools.partial(_refuse_missing, str(name), np.dtype(dtype))
    if not is_dask(variable._data):
        check(np.asarray(variable.data))
        return variable
    data = variable._data.map_blocks(check, dtype=variable.dtype, meta=np.empty((0,) * variable.ndim, variable.dtype))
    return variable.copy(deep=False, data=data)


def _refuse_missing(name: str, dtype: np.dtype[Any], values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if pd.isnull(values).any():
        raise RangeError(
            f"variable {name!r}: a time is missing (NaT), and the encoding has the integer type {dtype} without a "
            f"_FillValue, so that it would read as another time. Add a _FillValue to the encoding, such as "
            f"encoding={{{name!r}: {{'dtype': '{dtype}', '_FillValue': {np.iinfo(dtype).max}}}}}, or take a float type"
        )
    return values


def _older(value: Any) -> Any:
    """Return an attribute as xarray has it for the formats that lack unsigned and 64-bit integers.

    Examples
    --------
    >>> _older(7), _older(np.uint8([1, 2])), _older(1 << 40)
    (np.int32(7), array([1, 2], dtype=int8), 1099511627776)
    """
    numbers = np.asarray(value)
    if numbers.dtype.kind not in "iu":
        return value
    try:
        return coerce_nc3_dtype(numbers)[()]
    except ValueError:
        # the file refuses it, and its error names the attribute
        return value


_CF = ("units", "calendar", "scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned")
"""Attributes that describe how values are encoded."""


def encoding_of(encoded: xarray.Variable, original: xarray.Variable) -> dict[str, Any]:
    """Return the encoding with which a variable was encoded, so that other ranks encode theirs alike."""
    found = dict(original.encoding)
    found.update({key: encoded.attrs[key] for key in _CF if key in encoded.attrs and key not in original.attrs})
    if original.dtype.kind in "MmO" and encoded.dtype.kind in "iuf":
        found["dtype"] = encoded.dtype
    return found
