"""The real h5py opens HDF5 files for reading as they are.

Knows: h5py's `File`, which classes its objects stand for. Does not know: HDF5; how a file of ours is opened.

Rules
-----
1. Only a file that ours could not be is looked at again: opening any other file costs nothing more.
2. What comes back are h5py's own objects. They pass ``isinstance`` of this package's classes, which is what programs
   ask.
3. Reading alone: an HDF5 file to be written is an error that says how to convert it.
"""

from __future__ import annotations

import errno
import functools
import inspect
import os
import re
from types import ModuleType
from typing import Any

import numpy as np

from pnc_vol.api.attrs import AttributeManager
from pnc_vol.api.objects import Datatype, ExternalLink, HardLink, HLObject, SoftLink, class_of
from pnc_vol.api.opening import is_address, is_file_object
from pnc_vol.disk.existing import HDF5, HDF5_SIGNATURE, kind_of
from pnc_vol.errors import OperationError
from pnc_vol.mapping.composite import ragged_base
from pnc_vol.mapping.dtypes import (
    Empty,
    Reference,
    RegionReference,
    check_ref_dtype,
    check_string_dtype,
    check_vlen_dtype,
)
from pnc_vol.optional import is_patched, require, require_h5py
from pnc_vol.settings import options
from pnc_vol.system import REAL

__all__ = [
    "admit", "end_of_patch", "instead", "is_foreign", "is_hdf5", "is_sound", "of_scales", "open_as_is", "open_hdf5",
    "with_rows",
]  # fmt: skip

_H5PY = frozenset(
    ("libver", "userblock_size", "swmr", "rdcc_nslots", "rdcc_nbytes", "rdcc_w0", "track_order", "page_buf_size",
     "min_meta_keep", "min_raw_keep", "locking", "driver", "backing_store", "block_size")
)  # fmt: skip
"""Keywords that h5py takes for a file that is read."""
_DRIVERS = (None, "sec2", "stdio", "core", "fileobj")
_own_copies: dict[Any, Any] = {}
"""``copy`` of h5py's `Group`, by this class, while another one is in its place."""


def is_foreign(thing: Any) -> bool:
    """Return whether this is an object of the real h5py."""
    return any(base.__module__.partition(".")[0] == "h5py" for base in type(thing).__mro__)


def is_sound(dataset: Any, name: str) -> bool:
    """Return whether HDF5's library made the attribute in which it keeps the scales or labels of a dataset's axes.

    One of another type ends the process when the library is asked for these.

    Parameters
    ----------
    dataset : h5py.Dataset
    name : {"DIMENSION_LIST", "DIMENSION_LABELS", "REFERENCE_LIST"}
    """
    if name not in dataset.attrs:
        return False
    found = dataset.attrs.get_id(name)
    if name == "DIMENSION_LABELS":
        text = check_string_dtype(found.dtype)
        sound = text is not None and text.length is None
    elif name == "REFERENCE_LIST":
        return bool(found.dtype.names == ("dataset", "dimension"))
    else:
        kind = check_ref_dtype(np.dtype(check_vlen_dtype(found.dtype)))
        sound = kind is not None and kind.__name__ == "Reference"
    return sound and found.shape == (len(dataset.shape or ()),)


def of_scales(dataset: Any) -> frozenset[str]:
    """Return the names of the attributes that HDF5's library made for the scales and labels of a dataset.

    Parameters
    ----------
    dataset : h5py.Dataset
    """
    made = {name for name in ("DIMENSION_LIST", "DIMENSION_LABELS", "REFERENCE_LIST") if is_sound(dataset, name)}
    return frozenset(made | {"CLASS", "NAME"} if dataset.is_scale else made)


def with_rows(values: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    """Return what h5py has read, with the right numbers in rows of varying length.

    h5py 3.16 gives rows of numbers of the other byte order the type of native ones, and leaves their bytes as they are.

    Parameters
    ----------
    values : array or scalar of `dtype`, as h5py returns it; its rows are changed in place
    dtype : that of h5py's dataset or attribute
    shape : tuple of int
        Of the elements: a scalar of varying length is read as its row.
    """
    if not dtype.hasobject:
        return values
    if dtype.subdtype is not None:
        return with_rows(values, dtype.subdtype[0], shape + dtype.subdtype[1])
    for name in dtype.names or ():
        with_rows(values[name], dtype[name], shape)
    base = ragged_base(dtype)
    if base is None or not (base.hasobject or (_leaves_bytes() and not base.isnative)):
        return values
    for row in np.asarray(values, object).flat if shape else (values,):
        if isinstance(row, np.ndarray) and base.hasobject:
            with_rows(row, base, row.shape)
        elif isinstance(row, np.ndarray) and row.dtype.isnative:
            row.byteswap(inplace=True)
    return values


@functools.cache
def _leaves_bytes() -> bool:
    """Return whether h5py reads rows of numbers of the other byte order as they are."""
    h5py = require_h5py("Reading an HDF5 file")
    with h5py.File("rows", "w", driver="core", backing_store=False) as probe:
        rows = probe.create_dataset("rows", (1,), h5py.vlen_dtype(np.dtype("i2").newbyteorder()))
        rows[0] = [1]
        return bool(rows[0][0] != 1)


def open_hdf5(name: Any, **options: Any) -> Any:
    """Open an HDF5 file for reading, with the real h5py.

    Raises
    ------
    MissingPackageError
        h5py is not installed.
    OSError
        It cannot be read; of a file that is cut short the message says so, in place of HDF5's own words.
    """
    h5py = _h5py(name)
    try:
        return h5py.File(name, "r", **options)
    except OSError as error:
        cut = re.search(r"truncated file: eof = (\d+), .*stored_eof = (\d+)", str(error))
        if cut is None:
            raise
        text = (
            f"the HDF5 file is truncated: {cut[1]} of {cut[2]} bytes are there. Copy it again; if its writer was ended "
            "before it closed the file, h5clear or the program that wrote it may help"
        )
        raise OSError(errno.EIO, text, _shown(name)) from error


def _h5py(name: Any) -> ModuleType:
    return require_h5py(f"Reading the HDF5 file {_shown(name)}")


def _shown(name: Any) -> str:
    return str(name) if is_file_object(name) else os.fsdecode(name)


def open_as_is(name: Any, **options: Any) -> Any:
    """Do as `open_hdf5` does; h5py's objects pass ``isinstance`` of this package's classes from then on."""
    admit(_h5py(name))
    return open_hdf5(name, **options)


def admit(found: ModuleType | None = None) -> None:
    """Let the objects of an h5py, by default of the real one, pass ``isinstance`` of this package's classes."""
    found = found or require_h5py("Using an object of h5py")
    for own, its in (
        (HLObject, found.HLObject),
        (class_of("group"), found.Group), (class_of("file"), found.File), (class_of("dataset"), found.Dataset),
        (Datatype, found.Datatype), (AttributeManager, found.AttributeManager), (Reference, found.Reference),
        (RegionReference, found.RegionReference), (SoftLink, found.SoftLink), (ExternalLink, found.ExternalLink),
        (HardLink, found.HardLink),
    ):  # fmt: skip
        own.register(its)
    if is_patched():
        _let_copies_come(found.Group)


def given(obj: Any) -> Any:
    """Return an object of h5py that is assigned to a name: a link, or a dataset, whose values are written.

    Raises
    ------
    OperationError
        A group or a file.
    """
    admit()
    if isinstance(obj, class_of("group")):
        raise OperationError(f"{obj!r} is in another file: use copy(), or an ExternalLink")
    return Empty(obj.dtype) if isinstance(obj, class_of("dataset")) and obj.shape is None else obj


def _let_copies_come(foreign: Any) -> None:
    """Let ``copy`` of h5py's groups copy into groups of ours, too: under a patch, a program knows one h5py."""
    if foreign in _own_copies:
        return
    theirs = _own_copies[foreign] = foreign.copy

    @functools.wraps(theirs)
    def copy(self: Any, source: Any, dest: Any, *args: Any, **keywords: Any) -> None:
        if isinstance(dest, class_of("group")) and not is_foreign(dest):
            dest.copy(source if isinstance(source, HLObject) else self[source], dest, *args, **keywords)
        else:
            theirs(self, source, dest, *args, **keywords)

    foreign.copy = copy


def end_of_patch() -> None:
    """Give h5py's groups their own ``copy`` back."""
    while _own_copies:
        foreign, theirs = _own_copies.popitem()
        foreign.copy = theirs


def instead(cls: type, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Return the HDF5 file that ``File(...)`` was asked for; None if it is none, or is not to be opened as it is."""
    if cls is not class_of("file"):
        # An object of a subclass was asked for, which h5py's is not.
        return None
    asked = inspect.signature(cls.__init__).bind(None, *args, **keywords).arguments
    asked = {**asked, **asked.pop("kwds", {})}
    name: Any = asked.get("fileobj") or asked.get("name")
    mode, comm = asked.get("mode", "r"), asked.get("comm")
    if mode != "r" or comm is not None or asked.get("driver") not in _DRIVERS:
        return None
    wanted = options.resolve({"hdf5": asked["hdf5"]} if "hdf5" in asked else {}).hdf5
    if wanted == "refuse" or (wanted == "auto" and not is_patched()):
        return None
    if not is_file_object(name) and is_address(os.fsdecode(name)):
        address = os.fsdecode(name)
        fsspec = require("fsspec", "remote", f"Reading {address}")
        name = fsspec.open(address, **(asked.get("storage_options") or {})).open()
    if not is_hdf5(name):
        return None
    return open_as_is(name, **{key: value for key, value in asked.items() if key in _H5PY and value is not None})


def is_hdf5(name: Any) -> bool:
    """Return whether a file, or an object that is one, has the signature of HDF5."""
    if is_file_object(name):
        name.seek(0)
        return bool(name.read(8) == HDF5_SIGNATURE)
    try:
        fd = REAL.open(os.fsdecode(name), os.O_RDONLY)
    except (OSError, TypeError):
        return False
    try:
        return kind_of(REAL, fd) == HDF5
    except OSError:
        return False
    finally:
        REAL.close(fd)
