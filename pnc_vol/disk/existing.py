"""A file that exists is opened by one descriptor, through which header and data belong together.

Knows: paths, descriptors, journals, header bytes. Does not know: ranks, variables; how data are read.

Rules
-----
1. A name may be given to another file at any moment. So the file is opened once; its header, and later its data, come
   from that descriptor, and the name is asked again after the journal was read: if it stands for another file by then,
   all begins anew.
2. A header may be overwritten at any moment by another process. So a reader reads it before and after it looks for a
   journal. If both readings and the size are the same, and the journal did not come or go, the header was whole.
3. Only a writer of the file completes a journal; a reader only reads it.
4. All of this is done here, for files of the operating system, and a driver is given the descriptor: otherwise each
   driver would have to do it again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from pnc_vol.disk.journal import recover
from pnc_vol.disk.naming import ATTEMPTS, replaced_too_often
from pnc_vol.drivers.base import Driver
from pnc_vol.errors import FormatError, NeedBytes, NotCDFError
from pnc_vol.extents.model import one_extent
from pnc_vol.format.decode import Decoded, decode
from pnc_vol.format.model import WIDTHS, Attr
from pnc_vol.format.source import DecodingHints
from pnc_vol.system import System
from pnc_vol.system.full_io import read_at

__all__ = [
    "HDF5", "HDF5_SIGNATURE", "NETCDF", "Existing", "header_of", "kind_of", "open_existing",
    "unchanged",
]  # fmt: skip

Read = Callable[[bytearray | memoryview, int], int]
"""``read(buffer, offset)`` fills the buffer as far as the file goes, and tells how far."""

NETCDF = "netcdf"
HDF5 = "hdf5"
HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_PACKED = {
    b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"PK\3\4": "zip",
}  # fmt: skip

_AT_ONCE = 10
"""Of these, those without a pause before them."""
_PAUSE = 0.001
_FIRST_READ, _PIECE, _READ_AHEAD = 64 << 10, 16 << 20, 64 << 20


class Existing(NamedTuple):
    """A file that was opened, or a driver that holds one.

    fd : int, its descriptor, which the caller closes; -1 of a driver.
    key : tuple of int, device and inode; zeros of a driver.
    size : int, bytes, when the header was read.
    decoded : Decoded
    content : bytes, the header.
    """

    fd: int
    key: tuple[int, int]
    size: int
    decoded: Decoded
    content: bytes


def open_existing(
    system: System,
    path: str,
    real: str,
    *,
    writable: bool = False,
    hold: Callable[[int], object] | None = None,
    like: Existing | None = None,
) -> Existing:
    """Open a file and read its header; a replacement of the header that was cut short is completed.

    Parameters
    ----------
    system : System
    path : str, for messages.
    real : str, the path without symbolic links.
    writable : bool
        Open for writing as well, and put a header that only the journal has in its place.
    hold : callable, optional
        Called with a descriptor that is open for writing, before the file is looked at: where it is locked.
    like : Existing, optional
        A file whose header probably has the same attributes: that of another subfile.

    Raises
    ------
    FormatError
        It is no CDF file, or its header is wrong; `path` is named.
    OSError
        It cannot be read; `errno.EBUSY` if other processes replace it all the time.
    """
    look = _as_writer if writable else partial(_as_reader, like=like)
    try:
        for attempt in range(ATTEMPTS):
            if attempt >= _AT_ONCE:
                time.sleep(_PAUSE)
            fd = system.open(real, os.O_RDWR if writable else os.O_RDONLY)
            try:
                if hold is not None:
                    hold(fd)
                found = look(system, fd, path, real)
            except BaseException:
                system.close(fd)
                raise
            if found is not None:
                return found
            system.close(fd)
    except OSError as error:
        # it names the file as the user did
        if error.errno and error.filename in (real, None):
            error.filename = path
        raise
    raise replaced_too_often(path)


def unchanged(system: System, path: str, known: Existing) -> bool:
    """Return whether the name still stands for a file that was read, with the same header in it; False if that is not
    sure."""
    real = system.realpath(path)
    try:
        fd = system.open(real, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        there = system.fstat(fd)
        begins = _begins_with(partial(read_at, system, fd), known.content)
    finally:
        system.close(fd)
    same = (there.st_dev, there.st_ino) == known.key and there.st_size == known.size and begins
    return same and recover(system, path, writable=False, target=real) is None


def _as_writer(system: System, fd: int, path: str, real: str) -> Existing | None:
    """Return the file, if the name still stands for it."""
    there = system.fstat(fd)
    key = there.st_dev, there.st_ino
    if _key_of(system, real) != key:
        return None
    recover(system, path, writable=True, target=real)
    # what a journal completes may be longer than the file was
    size = system.fstat(fd).st_size
    _, outcome = _parsed(path, size, partial(read_at, system, fd), None)
    decoded, content = _good(outcome)
    return Existing(fd, key, size, decoded, content)


def _as_reader(system: System, fd: int, path: str, real: str, like: Existing | None = None) -> Existing | None:
    """Return the file, if the name still stands for it and its header stood still."""
    there = system.fstat(fd)
    key, size = (there.st_dev, there.st_ino), there.st_size
    read = partial(read_at, system, fd)
    instead: bytes | None = None
    for look in range(ATTEMPTS):
        if look >= _AT_ONCE:
            time.sleep(_PAUSE)
        raw, outcome = _parsed(path, size, read, instead, like)
        journal = recover(system, path, writable=False, target=real)
        try:
            now = system.stat(real)
        except FileNotFoundError:
            return None
        if (now.st_dev, now.st_ino) != key:
            return None
        if journal == instead and now.st_size == size and _begins_with(read, raw):
            decoded, content = _good(outcome)
            return Existing(fd, key, size, decoded, content)
        instead, size = journal, now.st_size
    return None


def _begins_with(read: Read, content: bytes) -> bool:
    """Return whether a file still begins so; it is read in pieces."""
    for at in range(0, len(content), _PIECE):
        there = bytearray(min(_PIECE, len(content) - at))
        if read(memoryview(there), at) < len(there) or there != content[at : at + len(there)]:
            return False
    return True


def _key_of(system: System, path: str) -> tuple[int, int] | None:
    try:
        there = system.stat(path)
    except FileNotFoundError:
        return None
    return there.st_dev, there.st_ino


def header_of(root: Driver, path: str) -> Existing:
    """Return the header of what a driver holds.

    Raises
    ------
    FormatError, OSError
        As `open_existing`.
    """

    def read(buffer: bytearray | memoryview, offset: int) -> int:
        memory = np.frombuffer(buffer, np.uint8)
        return root.read(one_extent(offset, len(memory)), memory) if len(memory) else 0

    size = root.size()
    decoded, content = _good(_parsed(path, size, read, None)[1])
    return Existing(-1, (0, 0), size, decoded, content)


def _good(outcome: tuple[Decoded, bytes] | FormatError) -> tuple[Decoded, bytes]:
    if isinstance(outcome, FormatError):
        raise outcome
    return outcome


def _parsed(
    path: str, size: int, read: Read, instead: bytes | None, like: Existing | None = None
) -> tuple[bytes, tuple[Decoded, bytes] | FormatError]:
    """Return what the file begins with, and what that says: the header and its bytes, or an error.

    instead : bytes or None, the header where the file's own was not replaced in full.
    """
    wanted, first = min(size, _FIRST_READ), True
    known = () if like is None else _attributes(like)
    if like is not None:
        wanted = min(size, max(wanted, len(like.content) + _FIRST_READ))
    while True:
        memory = bytearray(wanted)
        raw = bytes(memoryview(memory)[: read(memoryview(memory), 0)])
        # A damaged header may say that it is as long as a large file, which is held once then, and in one form.
        del memory
        data = raw if instead is None else instead + raw[len(instead) :]
        try:
            # the file may end where the writing of its new header was cut short
            decoded = decode(data, file_size=max(size, len(instead or b"")), hints=DecodingHints(known, part=first))
        except NeedBytes as need:
            # Reading costs less than decoding anew what is known already.
            wanted, first = min(size, max(need.nbytes, min(16 * wanted, _READ_AHEAD))), False
            continue
        except NotCDFError as error:
            text = f"{path}: {says_what(kind_by(read, size)) or error}"
            return raw, NotCDFError(text, offset=error.offset, field=error.field, value=error.value)
        except FormatError as error:
            text = f"{path}: {error}"
            return raw, type(error)(text, offset=error.offset, field=error.field, value=error.value)
        return raw[: decoded.nbytes], (decoded, data[: decoded.nbytes])


def _attributes(of: Existing) -> list[tuple[bytes, tuple[Attr, ...]]]:
    """Return, for each variable, the bytes of its attributes, and what these say; none of a header with findings.

    Headers of files that belong together differ in sizes and begins, and most of the time goes into attributes.
    """
    header, found = of.decoded.header, list[tuple[bytes, tuple[Attr, ...]]]()
    if of.decoded.findings:
        return found
    w = WIDTHS[header.version]
    for var, at, after in zip(header.vars, of.decoded.var_at, of.decoded.var_at[1:], strict=False):
        name = w.number.unpack_from(of.content, at)[0]
        first = at + w.width + ((name + 3) & -4) + w.width * (1 + len(var.dims))
        found.append((of.content[first : after - w.tail.size], var.attrs))
    return found


# ----------------------------------------------------------------------------------------------------------- signature
# The kind of a file is recognised by its first bytes: NetCDF classic, HDF5, or compressed.


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
