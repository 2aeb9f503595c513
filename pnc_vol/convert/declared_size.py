"""The size of the values that a file declares is compared with what it holds and what there is room for.

Knows: sizes of datasets, stored bytes, free space. Does not know: values, conversions.

Rules
-----
1. A header of some bytes can declare terabytes: nothing is read or written in full before that is compared with
   what is stored.
2. A file is sparse if what it declares besides the stored values is above `LEAST` bytes and above `TIMES` the size of
   the file. A file of which little was written yet is sparse, too, so the user may allow it.
3. What does not fit the free space is refused before the first byte is written.
4. Of a file whose header alone is looked at, only so many bytes are read as its reader asks for (`with_bytes`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pnc_vol.disk.existing import open_existing
from pnc_vol.errors import LimitError, NeedBytes, NotCDFError
from pnc_vol.file.file_sets import files_of
from pnc_vol.format.check import short_data
from pnc_vol.format.model import Header, inner_sizes, record_vars
from pnc_vol.system import REAL, free_bytes

if TYPE_CHECKING:
    from pnc_vol.file.session import Session

__all__ = [
    "LEAST",
    "TIMES",
    "DeclaredSize",
    "declared_by",
    "declared_by_header",
    "missing_data",
    "refuse_full",
    "refuse_sparse",
    "refuse_wide",
    "with_bytes",
]

T = TypeVar("T")

# Both are arbitrary: no limit tells a harmful file from an honest one of which little was written. So there is no other
# rule than that the user may allow it.
LEAST = 64 << 20
TIMES = 4
MOST_WIDENED = 64
"""How many times more strings may take than they did, when all have the width of the longest."""
_MOST_PACKED = 1100
"""How many times smaller than its values a stored chunk may be: deflate's limit is 1,032."""


class DeclaredSize(NamedTuple):
    """Bytes of values.

    declared : int, that there should be.
    held : int, of these, that are stored.
    nbytes : int, size of the file.
    largest : str, the object that lacks most.
    """

    declared: int
    held: int
    nbytes: int
    largest: str


def declared_by_header(header: Header, nbytes: int) -> DeclaredSize:
    """Return what the header of a classic file of `nbytes` bytes declares.

    Examples
    --------
    >>> from pnc_vol.format.model import Dim, Var
    >>> declared_by_header(Header(5, dims=(Dim("x", 10),), vars=(Var("a", (0,), (), 4, 100),)), 120)
    DeclaredSize(declared=40, held=20, nbytes=120, largest='a')
    """
    return _declared(header, nbytes, short_data(header, nbytes))


def _declared(header: Header, nbytes: int, missing: Sequence[tuple[str, int]]) -> DeclaredSize:
    records = set(record_vars(header))
    sizes = inner_sizes(header)
    declared = sum(size * (header.numrecs if i in records else 1) for i, size in enumerate(sizes))
    largest = max(missing, key=lambda entry: entry[1], default=("", 0))[0]
    return DeclaredSize(declared, declared - sum(count for _, count in missing), nbytes, largest)


def missing_data(session: Session) -> list[tuple[str, int]]:
    """Return the variables of which an open file, or set of subfiles, does not have all bytes, and how many bytes are
    missing; see `short_data`."""
    disk = session.disk
    if not disk.layout.several_files:
        return short_data(disk.header, disk.driver.size())
    found = []
    for name in files_of(REAL, disk.path) if session.file_set is not None else ():
        with suppress(NotCDFError):  # the HDF5 library opens no file that was cut
            existing = open_existing(REAL, name, name)
            REAL.close(existing.fd)
            found += short_data(existing.decoded.header, existing.size)
    return found


def declared_by(file: Any, *, follow_external: bool = False) -> DeclaredSize:
    """Return what an open file, of h5py or of ours, declares.

    Parameters
    ----------
    follow_external : bool
        Count datasets whose values are in other files, too.
    """
    if hasattr(file.id, "get_filesize"):
        return _declared_by_hdf5(file, follow_external=follow_external)
    session = file.id.handle.session
    disk = session.disk
    return _declared(disk.header, disk.driver.size(), missing_data(session))


def _declared_by_hdf5(file: Any, *, follow_external: bool) -> DeclaredSize:
    import h5py

    # a NetCDF file loads nothing of HDF5
    from pnc_vol.convert.inspect_hdf5 import bare_dimension, outside

    found: list[tuple[str, Any]] = []
    file.visititems(lambda path, obj: found.append((f"/{path}", obj)) if isinstance(obj, h5py.Dataset) else None)
    declared = held = most = 0
    largest = ""
    for path, dataset in found:
        if (not follow_external and outside(dataset)) or bare_dimension(dataset) or dataset.shape is None:
            continue
        wanted, there = _of_dataset(dataset)
        declared, held = declared + wanted, held + there
        if wanted - there > most:
            most, largest = wanted - there, path
    return DeclaredSize(declared, held, int(file.id.get_filesize()), largest)


def _of_dataset(dataset: Any) -> tuple[int, int]:
    """Return bytes of the values of a dataset of h5py, and how many of them are stored."""
    itemsize = int(dataset.id.get_type().get_size())
    declared = prod(dataset.shape) * itemsize
    stored = int(dataset.id.get_storage_size())
    if dataset.chunks is not None and dataset.id.get_create_plist().get_nfilters():
        chunks = int(dataset.id.get_num_chunks()) * prod(dataset.chunks) * itemsize
        stored = min(chunks, _MOST_PACKED * stored)
    return declared, min(stored, declared)


def refuse_sparse(path: str, size: DeclaredSize, *, allowed: bool) -> None:
    """Refuse a file that declares far more than it holds.

    Raises
    ------
    LimitError
        With the numbers, and what allows it.
    """
    packed = max(size.nbytes, size.held)
    missing = size.declared - min(size.held, packed)
    if allowed or missing <= LEAST or missing <= TIMES * size.nbytes:
        return
    raise LimitError(
        f"{path}: it claims {size.declared} bytes of values, and the file has {size.nbytes}; {missing} are not "
        f"stored, most of them of {size.largest!r}. If that is meant (they read as fill values), allow it: "
        "--allow-sparse, or allow_sparse=True",
        field=size.largest,
        value=size.declared,
    )


def refuse_full(folder: str, needed: int) -> None:
    """Refuse if a file system has no room for a new file.

    Raises
    ------
    OSError
        ENOSPC, with the numbers.
    """
    try:
        free = free_bytes(folder or ".")
    except OSError:
        # the attempt to write will tell
        return
    if needed > free:
        text = f"{needed} bytes of values are to be written, and {free} are free; free some space, or write elsewhere"
        raise OSError(errno.ENOSPC, text, os.path.join(folder, ""))


def refuse_wide(source: str, path: str, nbytes: int, held: int, *, allowed: bool) -> None:
    """Refuse strings of which a few are so long that a common width for all takes far more than they do.

    Parameters
    ----------
    nbytes, held : int
        Bytes of all strings with the width of the longest, and as they are.

    Raises
    ------
    LimitError
    """
    if not allowed and nbytes - held > max(LEAST, MOST_WIDENED * held):
        raise LimitError(
            f"{source}: the strings of {path} have {held} bytes; in NetCDF all get the width of the longest, and take "
            f"{nbytes}. If that is meant, allow it: --allow-sparse, or allow_sparse=True",
            field=path,
            value=nbytes,
        )


def with_bytes(read: Callable[[bytearray, int], int], nbytes: int, ask: Callable[..., T]) -> T:
    """Return the result of `ask` for the first bytes of a file; it is given more until it does not raise `NeedBytes`.

    Parameters
    ----------
    read : callable
        Reads into a buffer, from an offset on; the number of bytes.
    nbytes : int
        Of the file.
    ask : callable
        ``ask(data, file_size=...)``, as `format.decode.decode` and `format.check.check` are.
    """
    wanted = min(nbytes, 1 << 16)
    while True:
        data = bytearray(wanted)
        got = read(data, 0)
        try:
            return ask(memoryview(data)[:got], file_size=nbytes)
        except NeedBytes as more:
            if got < wanted:
                raise OSError(errno.EIO, "the file became shorter while it was read; try again") from None
            wanted = more.nbytes
