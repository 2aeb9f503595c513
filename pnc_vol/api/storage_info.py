"""``ds.id`` shows how a dataset is stored: type, space, creation properties. They are read, never changed.

Knows: nodes of the tree, h5py's names for what is asked. Does not know: HDF5's objects; these are values.

Rules
-----
1. Answers agree with the dataset's properties: the layout is chunked if ``ds.chunks`` says so.
2. What has no meaning for CDF says so: chunks have no places in the file, because there are none.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pnc_vol.api.dataset_plan import fill_of
from pnc_vol.api.filters import chunks_of, filters_of
from pnc_vol.api.module import UNLIMITED
from pnc_vol.mapping.dtypes import (
    check_enum_dtype,
    check_opaque_dtype,
    check_ref_dtype,
    check_string_dtype,
    check_vlen_dtype,
)
from pnc_vol.mapping.elsewhere import Evenly, Hyperslab
from pnc_vol.mapping.tree import DatasetNode

__all__ = [
    "CLASSES",
    "INDEXED",
    "TRACKED",
    "AccessProperties",
    "CreationProperties",
    "ElsewhereProperties",
    "GroupProperties",
    "RegionSpace",
    "Space",
    "StoredType",
    "VDSmap",
    "creation_properties",
    "storage_size",
]

Shape = tuple[int, ...]

CLASSES = {
    "NO_CLASS": -1, "INTEGER": 0, "FLOAT": 1, "TIME": 2, "STRING": 3, "BITFIELD": 4, "OPAQUE": 5, "COMPOUND": 6,
    "REFERENCE": 7, "ENUM": 8, "VLEN": 9, "ARRAY": 10,
}  # fmt: skip
"""HDF5's classes of types."""
TRACKED, INDEXED = 1, 2
"""HDF5's flags of an order of creation."""


@dataclass(frozen=True, slots=True, eq=False)
class StoredType:
    """The type of a dataset's elements, as h5py shows it.

    dtype : dtype, with h5py's metadata.

    Examples
    --------
    >>> StoredType(np.dtype("f4")).get_class() == CLASSES["FLOAT"]
    True
    """

    dtype: np.dtype[Any]

    def py_dtype(self) -> np.dtype[Any]:
        """Return the same as a dtype."""
        return self.dtype

    def get_class(self) -> int:
        """Return one of `CLASSES`. A bool is an enum and a complex number a compound, as h5py stores them in HDF5."""
        dtype = self.dtype
        for check, name in (
            (check_string_dtype, "STRING"), (check_vlen_dtype, "VLEN"), (check_enum_dtype, "ENUM"),
            (check_ref_dtype, "REFERENCE"), (check_opaque_dtype, "OPAQUE"),
        ):  # fmt: skip
            if check(dtype):
                return CLASSES[name]
        if dtype.subdtype is not None:
            return CLASSES["ARRAY"]
        kinds = {"i": "INTEGER", "u": "INTEGER", "f": "FLOAT", "b": "ENUM", "c": "COMPOUND", "S": "STRING"}
        return CLASSES[kinds.get(dtype.kind, "OPAQUE") if dtype.names is None else "COMPOUND"]

    def get_size(self) -> int:
        """Return the number of bytes of an element in memory."""
        return self.dtype.itemsize

    def is_variable_str(self) -> bool:
        """Return whether the elements are strings of varying length."""
        info = check_string_dtype(self.dtype)
        return info is not None and bool(info.length is None)

    def get_cset(self) -> int:
        """Return ``h5t.CSET_ASCII`` or ``CSET_UTF8``.

        Raises
        ------
        TypeError
            These are no strings.
        """
        info = check_string_dtype(self.dtype)
        if info is None:
            raise TypeError(f"{self.dtype} is no type of strings and has no character set")
        return int(info.encoding == "utf-8")

    def get_strpad(self) -> int:
        """Return ``h5t.STR_NULLTERM`` for strings of varying length, else ``STR_NULLPAD``."""
        return 0 if self.is_variable_str() else 1

    def committed(self) -> bool:
        """Return False: it is no named type."""
        return False

    def equal(self, other: Any) -> bool:
        """Return whether the other type is the same."""
        return bool(self == other)

    def __eq__(self, other: object) -> bool:
        return bool(self.dtype == getattr(other, "dtype", None))

    def __hash__(self) -> int:
        return hash(self.dtype)


@dataclass(frozen=True, slots=True)
class Space:
    """The shape of a dataset.

    shape : tuple of int, or None for an empty dataset.
    maxshape : tuple of int or None.
    """

    shape: Shape | None
    maxshape: tuple[int | None, ...] | None = None

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape or ())

    def get_simple_extent_ndims(self) -> int:
        """Number of axes."""
        return self.rank

    def get_simple_extent_dims(self, maxdims: bool = False) -> tuple[int | None, ...]:
        """Return the shape, or with `maxdims` how far it may grow."""
        return (self.maxshape or self.shape or ()) if maxdims else self.shape or ()

    def get_simple_extent_npoints(self) -> int:
        """Number of elements."""
        return 0 if self.shape is None else prod(self.shape)

    def get_simple_extent_type(self) -> int:
        """Return ``h5s.NULL``, ``SCALAR`` or ``SIMPLE``."""
        return 2 if self.shape is None else int(bool(self.shape))

    def is_simple(self) -> bool:
        """Return True."""
        return True


class RegionSpace(Space):
    """The elements of a region, as h5py's dataspaces show them.

    region : Hyperslab
    """

    def __init__(self, region: Hyperslab) -> None:
        super().__init__(region.shape, region.shape)
        object.__setattr__(self, "region", region)

    region: Hyperslab

    def get_regular_hyperslab(self) -> tuple[Shape, Shape, Shape, Shape]:
        """Start, stride, count and block of each axis; a count of ``UNLIMITED`` has no limit.

        Raises
        ------
        ValueError
            Lists of indices are no such hyperslab.
        """
        if not self.is_regular_hyperslab():
            raise ValueError("Not a regular hyperslab selection")
        rows = [(a.start, a.stride, UNLIMITED if a.count is None else a.count, a.block) for a in self._evenly()]
        start, stride, count, block = zip(*rows, strict=True) if rows else ((), (), (), ())
        return start, stride, count, block

    def _evenly(self) -> list[Evenly]:
        return [along for along in self.region.axes if isinstance(along, Evenly)]

    def is_regular_hyperslab(self) -> bool:
        """Return whether the elements along each axis are evenly spaced blocks."""
        return len(self._evenly()) == len(self.region.axes)

    def get_select_type(self) -> int:
        """Return ``h5s.SEL_HYPERSLABS``."""
        return 2

    def get_select_npoints(self) -> int:
        """Return how many elements there are; an unlimited selection has those of one block."""
        return prod(self.region.counts())

    def get_select_bounds(self) -> tuple[Shape, Shape]:
        """Return the first and the last element along each axis."""
        ends = self.region.ends()
        first = [along.start if isinstance(along, Evenly) else along[0] for along in self.region.axes]
        return tuple(first), tuple(max(end - 1, low) for end, low in zip(ends, first, strict=True))


class VDSmap(NamedTuple):
    """A part of a virtual dataset and what it shows.

    vspace, src_space : RegionSpace, the elements of the virtual dataset, and those of the source.
    file_name, dset_name : str, the source.
    """

    vspace: RegionSpace
    file_name: str
    dset_name: str
    src_space: RegionSpace


@dataclass(frozen=True, slots=True)
class CreationProperties:
    """The creation properties that were given for a dataset; CDF has no filters.

    chunks : tuple of int or None.
    filters : mapping of name to number, those that were asked for.
    fillvalue : scalar.
    has_fill : bool, whether the fill value was given.
    fill_time : str, "alloc", "never" or "ifset", as it was asked for.
    """

    chunks: Shape | None
    filters: dict[str, int]
    fillvalue: Any
    has_fill: bool
    fill_time: str = "ifset"

    def get_layout(self) -> int:
        """Return ``h5d.CHUNKED`` if `chunks` were asked for, else ``h5d.CONTIGUOUS``."""
        return 1 if self.chunks is None else 2

    def get_chunk(self) -> Shape:
        """Return the chunk shape.

        Raises
        ------
        ValueError
            There is none.
        """
        if self.chunks is None:
            raise ValueError("the dataset is contiguous and has no chunks; see get_layout()")
        return self.chunks

    def get_nfilters(self) -> int:
        """Return how many filters were asked for; none is applied."""
        return len(self.filters)

    def get_filter(self, index: int) -> tuple[int, int, tuple[int, ...], bytes]:
        """Number, flags, settings and name of a filter that was asked for."""
        name, number = list(self.filters.items())[index]
        return number, 1, (), name.encode()

    def get_filter_by_id(self, number: int) -> tuple[int, tuple[int, ...], bytes] | None:
        """Return flags, settings and name of a filter; None if it was not asked for."""
        found = [name for name, filter_id in self.filters.items() if filter_id == number]
        return (1, (), found[0].encode()) if found else None

    def fill_value_defined(self) -> int:
        """Return ``h5d.FILL_VALUE_DEFAULT`` or ``FILL_VALUE_USER_DEFINED``."""
        return 2 if self.has_fill else 1

    def get_fill_value(self, value: Any) -> None:
        """Put the fill value into an array."""
        value[...] = self.fillvalue

    def get_fill_time(self) -> int:
        """Return ``h5d.FILL_TIME_ALLOC``, ``FILL_TIME_NEVER`` or ``FILL_TIME_IFSET``, as it was asked for."""
        return ("alloc", "never", "ifset").index(self.fill_time)

    def get_external_count(self) -> int:
        """Return how many raw files hold the data."""
        return 0


@dataclass(frozen=True, slots=True)
class ElsewhereProperties(CreationProperties):
    """The creation properties of a dataset whose data live elsewhere.

    raw : list of (name, offset, size), or None.
    maps : list of VDSmap
    """

    raw: list[tuple[str, int, int]] | None = None
    maps: Sequence[Any] = ()

    def get_layout(self) -> int:
        """Return ``h5d.VIRTUAL`` or ``CONTIGUOUS``."""
        return 3 if self.raw is None else 1

    def get_external_count(self) -> int:
        """Return how many raw files hold the data."""
        return len(self.raw or ())

    def get_external(self, index: int = 0) -> tuple[bytes, int, int]:
        """Name, offset and size of a raw file."""
        name, offset, size = (self.raw or [])[index]
        return name.encode("utf-8", "surrogateescape"), offset, size

    def get_virtual_count(self) -> int:
        """Return how many sources there are."""
        return len(self.maps)

    def get_virtual_filename(self, index: int = 0) -> str:
        """Return the file of a source."""
        return str(self.maps[index].file_name)

    def get_virtual_dsetname(self, index: int = 0) -> str:
        """Return the path of a source in its file."""
        return str(self.maps[index].dset_name)

    def get_virtual_vspace(self, index: int = 0) -> Space:
        """Return the elements that show a source."""
        return self.maps[index].vspace  # type: ignore[no-any-return]

    def get_virtual_srcspace(self, index: int = 0) -> Space:
        """Return the elements of a source that are shown."""
        return self.maps[index].src_space  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class AccessProperties:
    """The access properties that were given for a dataset in this process: folders to look for other files in.

    given : mapping of keyword of ``create_dataset`` to folder.
    folder : str, of the file.
    """

    given: Mapping[str, Any]
    folder: str

    def _prefix(self, key: str) -> bytes:
        found = self.given.get(key, "")
        text = found if isinstance(found, str) else os.fsdecode(found)
        return os.fsencode(text.replace("${ORIGIN}", self.folder))

    def get_efile_prefix(self) -> bytes:
        """Return where raw files are looked for first."""
        return self._prefix("efile_prefix")

    def get_virtual_prefix(self) -> bytes:
        """Return where files of virtual datasets are looked for first."""
        return self._prefix("virtual_prefix")


@dataclass(frozen=True, slots=True)
class GroupProperties:
    """The creation properties of a group.

    tracked : bool, whether its members and attributes are listed in the order in which they were made.
    """

    tracked: bool

    def get_link_creation_order(self) -> int:
        """Return ``h5p.CRT_ORDER_TRACKED | CRT_ORDER_INDEXED``, or 0."""
        return TRACKED | INDEXED if self.tracked else 0

    get_attr_creation_order = get_link_creation_order


def creation_properties(node: DatasetNode) -> CreationProperties:
    """Return the creation properties that were given for a dataset."""
    return CreationProperties(
        chunks_of(node),
        dict(filters_of(node)),
        fill_of(node),
        node.fillvalue is not None,
        node.ignored.get("fill_time", "ifset"),
    )


def storage_size(node: Any) -> int:
    """Return the number of bytes that the elements of a dataset take in the file, those not flushed yet included."""
    if node.parts:
        return sum(map(storage_size, node.parts.values()))
    return 0 if node.shape is None else prod(node.shape) * int(node.element.itemsize)
