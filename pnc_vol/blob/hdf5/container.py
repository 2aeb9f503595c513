"""h5py makes and searches the HDF5 file around the two datasets of bytes, without touching their content.

Knows: the names and properties of the two datasets, drivers. Does not know: what is in them.

Rules
-----
1. Only h5py reads and writes the structure of the file. It does so through a file-like object: every byte goes through
   the drivers of the file, whatever these are.
2. The two datasets are 1-D, unsigned bytes, contiguous, allocated when they are made and not filled: their content is
   at two known places, and is written there without h5py.
3. What h5py makes depends on the two sizes alone, times are not stored: it is the same on every rank.
4. h5py is imported when a container is made or searched, and not before; it is an optional package.
"""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

import numpy as np

from pnc_vol.drivers.base import Driver
from pnc_vol.errors import FormatError
from pnc_vol.interruptions import is_interruption
from pnc_vol.optional import require_h5py

__all__ = ["DATA", "HEADER", "Container", "Stored", "find", "make"]

HEADER = "header_blob"
DATA = "data_blob"

_ALIGNMENT = 2048
"""Bytes: the header is at this byte in files of the C program, too."""

_LEAST_ALIGNED = 512
"""Bytes of the smallest piece that is aligned: what HDF5 writes of its own is smaller, and lies in front."""


class Stored(NamedTuple):
    """A dataset of bytes.

    offset, nbytes : int, bytes from the start of the file, and bytes of its content.
    """

    offset: int
    nbytes: int

    @property
    def end(self) -> int:
        """The byte behind it."""
        return self.offset + self.nbytes


class Container(NamedTuple):
    """Where the two datasets of an HDF5 file are.

    header, data : Stored
    """

    header: Stored
    data: Stored


class _Recorder:
    """A file-like object that keeps the pieces written to it, without the gaps between them."""

    # It inherits nothing: HDF5 goes on calling its methods after Ctrl-C in one of them, and while an exception is set
    # Python finds no attribute of a base class.

    def __init__(self) -> None:
        self.pieces: dict[int, bytes] = {}
        self.nbytes = 0
        self._at = 0

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self.nbytes)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def write(self, data: memoryview) -> int:
        piece = bytes(data)
        self.pieces[self._at] = piece
        self.seek(len(piece), 1)
        self.nbytes = max(self.nbytes, self._at)
        return len(piece)

    def truncate(self, nbytes: int | None = None) -> int:
        self.nbytes = self._at if nbytes is None else nbytes
        return self.nbytes

    def flush(self) -> None:
        pass

    def read(self, nbytes: int = -1) -> bytes:
        # never called; h5py accepts an object as a file only if it has this method
        raise OSError("a file that is being made is not read")


class _DriverReader:
    """A file-like object to read a file of a driver."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._nbytes = driver.size()
        self._at = 0

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._nbytes)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, memory: memoryview) -> int:
        array = np.frombuffer(memory, np.uint8)
        got = self._driver.read_one(array, self._at) if array.size else 0
        self._at += got
        return got

    def read(self, nbytes: int = -1) -> bytes:
        found = bytearray(max(0, self._nbytes - self._at) if nbytes < 0 else nbytes)
        return bytes(found[: self.readinto(memoryview(found))])

    def flush(self) -> None:
        pass


def make(header_nbytes: int, data_nbytes: int) -> tuple[Container, list[tuple[int, bytes]], int]:
    """Return a container for content of these sizes.

    Returns
    -------
    container : Container
    pieces : list of (int, bytes)
        What has to be written besides the content: offsets and bytes, sorted, about a kilobyte.
    nbytes : int, bytes of the file.

    Raises
    ------
    MissingPackageError
        h5py is not installed.

    Examples
    --------
    >>> make(1000, 600)[0]
    Container(header=Stored(offset=2048, nbytes=1000), data=Stored(offset=4096, nbytes=600))
    """
    h5py = require_h5py("Writing an HDF5 blob file")
    made = _Recorder()
    options = {"libver": ("latest", "latest"), "alignment_threshold": _LEAST_ALIGNED, "alignment_interval": _ALIGNMENT}
    try:
        with h5py.File(made, "w", **options) as f:
            header = _create(h5py, f, HEADER, header_nbytes)
            data = _create(h5py, f, DATA, data_nbytes)
    except BaseException as error:
        raise _interruption_behind(error) or error from None
    # HDF5 allocates nothing for a dataset without bytes, so h5py has no offset for it.
    end = header_nbytes if header is None else header + header_nbytes
    container = Container(Stored(header or 0, header_nbytes), Stored(end if data is None else data, data_nbytes))
    return container, sorted(made.pieces.items()), made.nbytes


def _interruption_behind(error: BaseException | None) -> BaseException | None:
    """Return Ctrl-C, or no memory, in a method that HDF5 called, which h5py passes on as an error of another class."""
    while error is not None and not is_interruption(error):
        error = error.__cause__ or error.__context__
    return error


def _create(h5py: ModuleType, f: object, name: str, nbytes: int) -> int | None:
    h5d = h5py.h5d
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_layout(h5d.CONTIGUOUS)
    properties.set_alloc_time(h5d.ALLOC_TIME_EARLY)
    properties.set_fill_time(h5d.FILL_TIME_NEVER)
    properties.set_obj_track_times(False)
    space = h5py.h5s.create_simple((nbytes,))
    found: int | None = h5d.create(f.id, name.encode(), h5py.h5t.STD_U8LE, space, properties).get_offset()  # type: ignore[attr-defined]
    return found


def find(driver: Driver, path: str) -> Container:
    """Return where the two datasets of a file are.

    Parameters
    ----------
    driver : Driver, of the whole file.
    path : str, for messages.

    Raises
    ------
    FormatError
        The file is no HDF5 file that h5py can read, lacks one of the datasets, or one of them is not stored as it
        has to be, or lies beyond the end of the file.
    MissingPackageError
        h5py is not installed.
    """
    h5py = require_h5py(f"Reading {path}")
    try:
        with h5py.File(_DriverReader(driver), "r") as f:
            header, data = (_stored(h5py, f, name, path) for name in (HEADER, DATA))
    except FormatError:
        raise
    except SystemError as error:
        raise _interruption_behind(error) or error from None
    # h5py raises errors of many types for damaged files
    except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
        raise FormatError(
            f"{path}: h5py cannot read this as an HDF5 blob file: {error}", offset=0, field="HDF5"
        ) from error
    if header.offset < data.end and data.offset < header.end and header.nbytes and data.nbytes:
        raise FormatError(
            f"{path}: /{HEADER} (bytes {header.offset} to {header.end}) and /{DATA} (bytes {data.offset} to "
            f"{data.end}) overlap in the file",
            offset=max(header.offset, data.offset),
            field=DATA,
        )
    size = driver.size()
    for name, stored in ((HEADER, header), (DATA, data)):
        if stored.end > size:
            raise FormatError(
                f"{path}: /{name} has {stored.nbytes} bytes from byte {stored.offset} on, and the file ends at byte "
                f"{size}: it was cut, or not written to its end",
                offset=size,
                field=name,
                value=size,
            )
    return Container(header, data)


def _stored(h5py: ModuleType, f: object, name: str, path: str) -> Stored:
    def refuse(what: str) -> FormatError:
        needed = f"an HDF5 blob file has /{HEADER} and /{DATA}, 1-D datasets of unsigned bytes that are contiguous"
        other = "'pnc-vol convert' converts other HDF5 files"
        return FormatError(f"{path}: /{name} {what}; {needed}; {other}", offset=0, field=name)

    found = f.get(name)  # type: ignore[attr-defined]
    if found is None:
        raise refuse("is missing")
    if not isinstance(found, h5py.Dataset):
        raise refuse("is not a dataset")
    if found.ndim != 1:
        raise refuse(f"has {found.ndim} dimensions")
    if found.dtype != np.uint8:
        raise refuse(f"has the type {found.dtype}")
    properties = found.id.get_create_plist()
    if properties.get_layout() != h5py.h5d.CONTIGUOUS or properties.get_external_count():
        raise refuse("is not contiguous in this file")
    offset = found.id.get_offset()
    if offset is None and found.size:
        raise refuse("has no content: it was made, but never written")
    return Stored(offset or 0, found.size)
