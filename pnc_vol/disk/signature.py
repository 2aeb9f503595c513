"""The kind of a file is recognised by its first bytes.

Knows: the signatures of NetCDF classic, HDF5 and compressed files. Does not know: headers; whether the file is sound.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pnc_vol.system import System
from pnc_vol.system.full_io import read_at

__all__ = ["HDF5", "HDF5_SIGNATURE", "NETCDF", "Read", "kind_by", "kind_of", "says_what"]

Read = Callable[[bytearray | memoryview, int], int]
"""``read(buffer, offset)`` fills the buffer as far as the file goes, and tells how far."""

NETCDF = "netcdf"
HDF5 = "hdf5"
HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_PACKED = {
    b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"PK\3\4": "zip",
}  # fmt: skip


def kind_of(system: System, fd: int) -> str:
    """Return the kind of an open file.

    Returns
    -------
    str
        `NETCDF` for classic NetCDF, `HDF5` (NetCDF-4 as well), the name of a packer, or ``""``.

    Raises
    ------
    OSError
        It cannot be read.
    """
    return kind_by(partial(read_at, system, fd), system.fstat(fd).st_size)


def kind_by(read: Read, nbytes: int) -> str:
    """Return the kind of what has `nbytes` bytes and is read by `read`; see `kind_of`."""
    first = bytearray(min(nbytes, 8))
    del first[read(first, 0) :]
    if first[:3] == b"CDF" and len(first) > 3 and first[3] in (1, 2, 5):
        return NETCDF
    for signature, name in _PACKED.items():
        if first.startswith(signature):
            return name
    # HDF5 may keep a block of the user's own in front: the signature stands at 0, 512, 1024, 2048...
    at, found = 0, bytearray(8)
    while at + 8 <= nbytes:
        if read(found, at) == 8 and found == HDF5_SIGNATURE:
            return HDF5
        at = 2 * at or 512
    return ""


def says_what(kind: str) -> str:
    """Return a sentence for who wanted a NetCDF classic file; empty if nothing is known.

    Examples
    --------
    >>> says_what("gzip")
    'this is a file compressed with gzip, not a NetCDF classic file; decompress it first'
    """
    if kind == HDF5:
        return (
            "this is an HDF5 (or NetCDF-4) file, not a NetCDF classic file; "
            "'pnc-vol convert IN OUT' or pnc_vol.convert.hdf5.convert converts it"
        )
    return f"this is a file compressed with {kind}, not a NetCDF classic file; decompress it first" if kind else ""
