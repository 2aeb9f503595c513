"""``pnc-vol dump`` prints the text form of a classic file, as ncdump does, from its header and its bytes.

Knows: standard output, the bytes of a file. Does not know: CDL (`cdl`), h5py's view of a file.

Rules
-----
1. A block of values has at most `BLOCK_BYTES` bytes and `BLOCK_VALUES` values, whatever the variable is.
2. What the header declares beyond the end of the file reads as zeros, as with the NetCDF libraries.
3. A file on this machine is read without `File`, which would take as long to load as the rest of the command.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.cli import cdl
from pnc_vol.cli.arguments import Options, Parser, Verb, add_allow_sparse
from pnc_vol.cli.errors import FAILED, expected, fail
from pnc_vol.cli.show import on_disk
from pnc_vol.convert.declared_size import DeclaredSize, declared_by, declared_by_header, refuse_sparse, with_bytes
from pnc_vol.disk.naming import check_place
from pnc_vol.extents.model import Runs
from pnc_vol.file.file_sets import is_set
from pnc_vol.format import model
from pnc_vol.format.decode import Decoded, decode
from pnc_vol.format.model import CHAR, TYPES, Header, Var
from pnc_vol.mapping.names import marker_attr
from pnc_vol.system import REAL, exists, is_folder
from pnc_vol.system.full_io import read_at

__all__ = ["VERBS"]

BLOCK_BYTES = 1 << 20
BLOCK_VALUES = 1 << 16

#: Records are read with what lies between them if the variable has at least this part of each.
DENSE = 8


def _arguments(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE", help="A NetCDF classic file; - is standard input.")
    parser.flag("-h", "--header", help="Print the header only, no data.")
    parser.add_argument("-v", "--variables", metavar="NAMES", help="Print data of these variables only (x,y,z).")
    add_allow_sparse(parser)


def command(options: Options) -> int:
    """Print a file as CDL, the text that ncgen reads, just as ncdump does."""
    file = options.file
    with expected(file, code=FAILED), on_disk(file) as path, _open_stored(path) as stored:
        wanted = options.variables.split(",") if options.variables is not None else None
        known = {var.name for var in stored.header.vars}
        for name in wanted or ():
            if name not in known:
                fail(file, f"there is no variable {name!r}; see pnc-vol dump -h", FAILED)
        if not options.header:
            refuse_sparse(file, stored.declared(), allowed=options.allow_sparse)
        name = re.split(r"/", path)[-1]
        stem = name.rpartition(".")[0] if "." in name else name
        sections = None if options.header else _sections(stored, wanted)
        terminal = sys.stdout.isatty()
        out = sys.stdout.buffer
        for part in cdl.document(stem, stored.header, sections):
            out.write(_for_terminal(part) if terminal else part)
        out.flush()
    return 0


def _for_terminal(part: bytes) -> bytes:
    """Return the text with each byte of what is not printable as an escape: ncdump prints it as it is, and a terminal
    obeys it."""
    text = part.decode("utf-8", "surrogateescape")
    if text.isprintable():
        return part
    shown = (c if c in "\n\t" or c.isprintable() else _escaped(c) for c in text)
    return "".join(shown).encode("utf-8")


def _escaped(character: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogateescape"))


def _sections(stored: DumpedFile | OpenedFile, wanted: list[str] | None) -> Iterator[bytes]:
    """Yield the data of each variable that has any."""
    for var in stored.header.vars:
        shape = model.shape(stored.header, var)
        if (wanted is not None and var.name not in wanted) or 0 in shape:
            continue
        rows = cdl.TextRows(var, shape) if var.type == CHAR else cdl.Rows(var, shape)
        for values in stored.values(var):
            yield from rows.feed(values)


class DumpedFile:
    """A classic file, open for reading.

    Parameters
    ----------
    path : str

    Raises
    ------
    FormatError
        The header is wrong.
    OSError
        The file cannot be read.
    """

    def __init__(self, path: str) -> None:
        check_place(REAL.stat(path), path, exclusive=False)
        self.fd = REAL.open(path, os.O_RDONLY)
        try:
            read, nbytes = partial(read_at, REAL, self.fd), REAL.fstat(self.fd).st_size
            decoded: Decoded = with_bytes(read, nbytes, partial(decode, tolerant_order=True))
            self.header: Header = decoded.header
            if marker_attr(self.header.attrs) is not None:
                from pnc_vol.layout.registry import refuse_other_layouts

                refuse_other_layouts(path, self.header)
        except BaseException:
            REAL.close(self.fd)
            raise

    def declared(self) -> DeclaredSize:
        """Return what the header declares, and how much of it is there."""
        return declared_by_header(self.header, REAL.fstat(self.fd).st_size)

    def __enter__(self) -> DumpedFile:
        return self

    def __exit__(self, *exc: object) -> None:
        REAL.close(self.fd)

    def values(self, var: Var) -> Iterator[npt.NDArray[Any]]:
        """Yield the values of a variable in C order, as 1-D arrays in native byte order."""
        dtype = TYPES[var.type].dtype
        inner = model.inner_bytes(self.header, var)
        if not model.is_record(self.header, var):
            pieces = self._range(var.begin, inner, dtype.itemsize)
        else:
            pieces = self._records(var, inner, dtype.itemsize)
        for piece in pieces:
            values = piece.view(dtype)
            yield values if dtype.kind == "S" else values.astype(dtype.newbyteorder("="))

    def _read(self, offset: int, nbytes: int) -> npt.NDArray[np.uint8]:
        data = bytearray(nbytes)
        read_at(REAL, self.fd, data, offset)
        return np.frombuffer(data, np.uint8)

    def _range(self, begin: int, nbytes: int, itemsize: int) -> Iterator[npt.NDArray[np.uint8]]:
        step = min(BLOCK_BYTES // itemsize, BLOCK_VALUES) * itemsize
        for at in range(0, nbytes, step):
            yield self._read(begin + at, min(step, nbytes - at))

    def _records(self, var: Var, inner: int, itemsize: int) -> Iterator[npt.NDArray[np.uint8]]:
        stride = model.record_size(self.header)
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


class OpenedFile:
    """A set of subfiles, as the classic file that it stands for, or a file under an address; like `DumpedFile`."""

    def __init__(self, file: Any) -> None:
        self.file, self.session = file, file.id.handle.session
        self.header: Header = self.session.disk.header

    def declared(self) -> DeclaredSize:
        """See `DumpedFile.declared`."""
        return declared_by(self.file)

    def __enter__(self) -> OpenedFile:
        return self

    def __exit__(self, *exc: object) -> None:
        self.file.close()

    def values(self, var: Var) -> Iterator[npt.NDArray[Any]]:
        """See `DumpedFile.values`; what is in no blob has the fill value."""
        disk = self.session.disk
        uid = disk.layout.uids[self.header.vars.index(var)]
        at, node = disk.layout.maps[uid], self.session.defs.tree.datasets[uid]
        fill = (node.fillvalue or b"").ljust(at.itemsize, b"\0")[: at.itemsize]
        total = math.prod(model.shape(self.header, var)) * TYPES[var.type].size // at.itemsize
        step = max(1, min(BLOCK_BYTES // at.itemsize, BLOCK_VALUES))
        for first in range(0, total, step):
            n = min(step, total - first)
            memory = np.frombuffer(bytearray(fill * n), np.uint8)
            disk.driver.read(at.extents(Runs(np.array([first]), np.array([n]))), memory)
            yield memory.view(TYPES[var.type].dtype)


def _open_stored(path: str) -> DumpedFile | OpenedFile:
    """Return a classic file, or a set of subfiles by its name, or what is under an address."""
    if (exists(REAL, path) and not is_folder(REAL, path)) or not ("://" in path or is_set(REAL, path)):
        return DumpedFile(path)
    from pnc_vol.api.file import File

    return OpenedFile(File(path))


VERBS: dict[str, Verb] = {"dump": (_arguments, command)}
