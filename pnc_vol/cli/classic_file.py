"""Headers and values straight from a classic file, in blocks.

Knows: the file's bytes through `system`, headers through `format`. Does not know: h5py's view, text.

Rules
-----
1. A block has at most `BLOCK_BYTES` bytes and `BLOCK_VALUES` values, whatever the variable is.
2. What the header declares beyond the end of the file reads as zeros, as with the NetCDF libraries.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.api.arguments import is_address
from pnc_vol.api.file import File
from pnc_vol.convert.checking import with_header
from pnc_vol.disk.naming import check_place
from pnc_vol.extents.model import Runs
from pnc_vol.file.finding import is_set
from pnc_vol.format import sizes
from pnc_vol.format.decode import Decoded, decode
from pnc_vol.format.model import Header, Var
from pnc_vol.format.types import TYPES
from pnc_vol.layout.registry import refuse_other_layouts
from pnc_vol.system import REAL, System
from pnc_vol.system.full_io import read_at

__all__ = ["FileReader", "StoredFile", "open_stored"]

BLOCK_BYTES = 1 << 20
BLOCK_VALUES = 1 << 16

#: Records are read with what lies between them if the variable has at least this part of each.
DENSE = 8


class StoredFile:
    """A classic file, open for reading.

    Parameters
    ----------
    path : path-like
    system : System

    Raises
    ------
    FormatError
        The header is wrong.
    OSError
        The file cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str], *, system: System = REAL) -> None:
        self.system = system
        check_place(system.stat(path), os.fspath(path), exclusive=False)
        self.fd = system.open(path, os.O_RDONLY)
        try:
            self.decoded: Decoded = with_header(system, self.fd, partial(decode, tolerant_order=True))
            refuse_other_layouts(os.fspath(path), self.decoded.header)
        except BaseException:
            system.close(self.fd)
            raise
        self.header: Header = self.decoded.header
        self.nbytes: int = system.fstat(self.fd).st_size

    def __enter__(self) -> StoredFile:
        return self

    def __exit__(self, *exc: object) -> None:
        self.system.close(self.fd)

    def values(self, var: Var) -> Iterator[npt.NDArray[Any]]:
        """The values of a variable in C order, as 1-D arrays in native byte order."""
        dtype = TYPES[var.type].dtype
        inner = sizes.inner_bytes(self.header, var)
        if not sizes.is_record(self.header, var):
            pieces = self._range(var.begin, inner, dtype.itemsize)
        else:
            pieces = self._records(var, inner, dtype.itemsize)
        for piece in pieces:
            values = piece.view(dtype)
            yield values if dtype.kind == "S" else values.astype(dtype.newbyteorder("="))

    def _read(self, offset: int, nbytes: int) -> npt.NDArray[np.uint8]:
        data = bytearray(nbytes)
        read_at(self.system, self.fd, data, offset)
        return np.frombuffer(data, np.uint8)

    def _range(self, begin: int, nbytes: int, itemsize: int) -> Iterator[npt.NDArray[np.uint8]]:
        step = min(BLOCK_BYTES // itemsize, BLOCK_VALUES) * itemsize
        for at in range(0, nbytes, step):
            yield self._read(begin + at, min(step, nbytes - at))

    def _records(self, var: Var, inner: int, itemsize: int) -> Iterator[npt.NDArray[np.uint8]]:
        stride = sizes.record_size(self.header)
        numrecs = self.header.numrecs
        if inner == 0:
            return
        # The budget is one of values and, for records read with their surroundings, one of bytes.
        batch = min(BLOCK_VALUES * itemsize, BLOCK_BYTES) // inner
        if inner * DENSE >= stride:
            batch = min(batch, DENSE * BLOCK_BYTES // stride)
        if batch < 1:
            for record in range(numrecs):
                yield from self._range(var.begin + record * stride, inner, itemsize)
            return
        for first in range(0, numrecs, batch):
            count = min(batch, numrecs - first)
            start = var.begin + first * stride
            if inner * DENSE < stride:
                parts = [self._read(start + i * stride, inner) for i in range(count)]
                yield np.concatenate(parts)
                continue
            span = self._read(start, (count - 1) * stride + inner)
            rows = np.lib.stride_tricks.as_strided(span, (count, inner), (stride, 1))
            yield np.ascontiguousarray(rows).reshape(-1)


class FileReader:
    """A set of subfiles, as the classic file that it stands for, or a file under an address; like `StoredFile`.

    Parameters
    ----------
    path : str, the name of the set, or the address.

    Raises
    ------
    FormatError
        A subfile is missing or damaged.
    OSError
    """

    def __init__(self, path: str) -> None:
        self.file = File(path)
        self.session: Any = self.file.id.handle.session
        self.header: Header = self.session.disk.header
        # Subfiles that end before their data are not opened.
        one = self.session.file_set is None
        self.nbytes = self.session.disk.driver.size() if one else sizes.data_end(self.header)

    def __enter__(self) -> FileReader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.file.close()

    def values(self, var: Var) -> Iterator[npt.NDArray[Any]]:
        """See `StoredFile.values`; what is in no blob has the fill value."""
        disk = self.session.disk
        uid = disk.layout.uids[self.header.vars.index(var)]
        at, node = disk.layout.maps[uid], self.session.defs.tree.datasets[uid]
        fill = (node.fillvalue or b"").ljust(at.itemsize, b"\0")[: at.itemsize]
        total = math.prod(sizes.shape(self.header, var)) * TYPES[var.type].size // at.itemsize
        step = max(1, min(BLOCK_BYTES // at.itemsize, BLOCK_VALUES))
        for first in range(0, total, step):
            n = min(step, total - first)
            memory = np.frombuffer(bytearray(fill * n), np.uint8)
            disk.driver.read(at.extents(Runs(np.array([first]), np.array([n]))), memory)
            yield memory.view(TYPES[var.type].dtype)


def open_stored(path: str) -> StoredFile | FileReader:
    """A classic file, or a set of subfiles by its name, or what is under an address."""
    return FileReader(path) if is_address(path) or is_set(REAL, path) else StoredFile(path)
