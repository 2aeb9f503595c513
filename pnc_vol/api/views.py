"""``ds.astype(...)``, ``ds.asstr(...)`` and ``ds.fields(...)`` read a dataset through a conversion, or in part.

Knows: that a dataset can be read. Does not know: how.

Rules
-----
1. Nothing is read before the view is indexed.
2. A view has the dataset's shape; its dtype is that of what indexing gives.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pnc_vol.api.module import get_config
from pnc_vol.errors import ConversionError, SelectionTypeError, SelectionValueError, did_you_mean
from pnc_vol.extents.place import elements
from pnc_vol.extents.selection import select
from pnc_vol.format.numeric import converted, may_overflow
from pnc_vol.mapping.composite import conform
from pnc_vol.mapping.dtypes import check_string_dtype, metadata_of

if TYPE_CHECKING:
    from pnc_vol.api.dataset import Dataset

__all__ = [
    "AsStrView", "AsTypeView", "FieldsView", "as_type", "cast", "fields_of", "read_into", "split_names", "taken_from",
]  # fmt: skip


def cast(array: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return what was read, as another type.

    Raises
    ------
    ConversionError
        Between text and numbers, or from complex to real.
    """
    source = array.dtype
    if source == dtype and dtype.kind != "O":
        return array
    if source.kind == "c" and dtype.names is not None:
        # HDF5 has a complex number as a compound, whose fields have these names
        half = array.real.dtype
        source = np.dtype([(name, half) for name in get_config().complex_names])
        array = np.ascontiguousarray(array).view(source).reshape(array.shape)
    if dtype.names is not None and source.names is not None:
        return conform(array, dtype, "clip")
    if check_string_dtype(source) is not None:
        if dtype.kind in "TU":
            flat = [text.decode("utf-8") for text in array.ravel().tolist()]
            return np.array(flat, dtype=dtype).reshape(array.shape)
        if dtype.kind in "SO":
            return array.astype(dtype)
    elif source.kind == dtype.kind == "O":
        # rows and references; a type of h5py says more than that they are objects
        return conform(array, dtype, "clip") if metadata_of(dtype) else array
    elif source.kind in "biufc" and dtype.kind in "biufc" and (source.kind != "c" or dtype.kind == "c"):
        return as_type(array, dtype)
    raise ConversionError(f"Unable to read {source!r} as {dtype!r} (no appropriate function for conversion path)")


def as_type(array: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return an array as another type; numbers that it cannot hold become the nearest ones, as in HDF5."""
    numbers = array.dtype.kind in "biuf" and dtype.kind in "biuf"
    if numbers and may_overflow(array.dtype, dtype):
        return converted(array, dtype, "clip")
    return array.astype(dtype, copy=False)


class AbstractView(abc.ABC):
    """What the views share."""

    def __init__(self, dset: Dataset) -> None:
        self._dset = dset

    @property
    @abc.abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """Type of what indexing gives."""

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self._dset.ndim

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The dataset's shape."""
        return self._dset.shape

    @property
    def size(self) -> int | None:
        """Number of elements."""
        return self._dset.size

    def __len__(self) -> int:
        return len(self._dset)

    @abc.abstractmethod
    def __getitem__(self, args: Any) -> Any: ...

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError(
                f"{type(self).__name__}.__array__ received copy=False but memory allocation cannot be avoided on read"
            )
        return np.asarray(self[()], dtype=dtype or self.dtype)


class AsTypeView(AbstractView):
    """Reads as another type.

    Parameters
    ----------
    dset : Dataset
    dtype : dtype
    """

    def __init__(self, dset: Dataset, dtype: np.dtype[Any]) -> None:
        super().__init__(dset)
        self._dtype = dtype

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._dtype

    def __getitem__(self, args: Any) -> Any:
        return self._dset._read(args, self._dtype.base)


class AsStrView(AbstractView):
    """Reads strings as ``str``.

    Parameters
    ----------
    dset : Dataset of strings
    encoding, errors : as in ``bytes.decode``
    """

    def __init__(self, dset: Dataset, encoding: str, errors: str = "strict") -> None:
        super().__init__(dset)
        self.encoding = encoding
        self.errors = errors

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(object)

    def __getitem__(self, args: Any) -> Any:
        coded = self._dset[args]
        if isinstance(coded, bytes):
            return coded.decode(self.encoding, self.errors)
        texts = np.empty(coded.shape, dtype=object)
        texts.ravel()[...] = [text.decode(self.encoding, self.errors) for text in coded.ravel().tolist()]
        return texts


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


def split_names(args: Any) -> tuple[Any, tuple[str, ...]]:
    """Return an index without the field names in it, and the names."""
    if isinstance(args, str):
        return (), (args,)
    if isinstance(args, tuple) and any(isinstance(arg, str) for arg in args):
        rest = tuple(arg for arg in args if not isinstance(arg, str))
        return rest[0] if len(rest) == 1 else rest, tuple(arg for arg in args if isinstance(arg, str))
    return args, ()


def fields_of(dtype: np.dtype[Any], names: Sequence[str], *, writing: bool = False) -> np.dtype[Any]:
    """Return the compound of some fields of a type.

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


# ------------------------------------------------------------------------------------- arrays that are there


def read_into(dset: Dataset, dest: npt.NDArray[Any], source_sel: Any, dest_sel: Any) -> None:
    """Read (a part of) a dataset into (a part of) an array; see `Dataset.read_direct`.

    Raises
    ------
    TypeError
        The array cannot be written to, or shapes do not fit.
    """
    where = select(dest.shape, () if dest_sel is None else dest_sel)
    if not (isinstance(dest, np.ndarray) and dest.flags.writeable):
        raise TypeError("Array must be writable")
    # A part that numpy has as a view can be read into; any other index makes a copy. Masked arrays keep their masks.
    view = dest[elements(where)] if type(dest) is np.ndarray and where.index is None and where.listed is None else None
    part = view if isinstance(view, np.ndarray) else None
    found = dset._read(() if source_sel is None else source_sel, None, out=part)
    if part is not None and found is part:
        return
    values = np.asarray(found)
    _put(dest, elements(where), values.reshape(where.broadcast(values.shape)))


def _put(dest: npt.NDArray[Any], where: Any, values: npt.NDArray[Any]) -> None:
    """Store what was read in an array; fields of it that the dataset does not have stay as they are, as in HDF5."""
    shared = [name for name in dest.dtype.names or () if name in (values.dtype.names or ())]
    if not shared or dest.dtype == values.dtype:
        dest[where] = cast(values, dest.dtype)
        return
    for name in shared:
        _put(dest[name], where, values[name])


def taken_from(source: npt.NDArray[Any], source_sel: Any) -> npt.NDArray[Any]:
    """Return the part of an array that `Dataset.write_direct` writes.

    Raises
    ------
    TypeError
        It is no array.
    """
    part = select(source.shape, () if source_sel is None else source_sel)
    if not isinstance(source, np.ndarray):
        raise TypeError(f"Cannot write from {source!r}: give an array")
    taken: npt.NDArray[Any] = source[elements(part)]
    return taken
