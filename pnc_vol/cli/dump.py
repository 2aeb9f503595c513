"""``pnc-vol dump`` prints CDL, the text form of a classic file, as ncdump 4.9 does, from its header and its bytes.

Knows: standard output, the bytes of a file, ncdump's layout. Does not know: h5py's view of a file.

Rules
-----
1. A block of values has at most `BLOCK_BYTES` bytes and `BLOCK_VALUES` values, whatever the variable is.
2. What the header declares beyond the end of the file reads as zeros, as with the NetCDF libraries.
3. A file on this machine is read without `File`, which would take as long to load as the rest of the command.

Rules of the text
-----------------
1. The text is bytes: names and texts of a file may be no UTF-8, and are passed on as they are.
2. Numbers are turned into text by one formatting call for a whole block; Python sees lines, not values.
3. A value equal to the fill value is ``_``; for byte and ubyte only when ``_FillValue`` says so.

The layout was taken from what the tool prints; sizes and rules of wrapping are noted where they are used.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.cli.arguments import Options, Parser, Verb, add_allow_sparse
from pnc_vol.cli.errors import FAILED, expected, fail
from pnc_vol.cli.show import on_disk
from pnc_vol.convert.declared_size import DeclaredSize, declared_by, declared_by_header, refuse_sparse, with_bytes
from pnc_vol.disk.naming import check_place
from pnc_vol.extents.model import Runs
from pnc_vol.file.file_sets import is_set
from pnc_vol.format import model
from pnc_vol.format.decode import Decoded, decode
from pnc_vol.format.model import BYTE, CHAR, DOUBLE, FLOAT, TYPES, UBYTE, Attr, Header, Var, attr_values
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
        for part in document(stem, stored.header, sections):
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
        rows = TextRows(var, shape) if var.type == CHAR else Rows(var, shape)
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


# ------------------------------------------------------------------------------------------------------ text

#: Lines of values end before this column, and go on after four spaces.
LINE = 78
INDENT = "    "

SUFFIX = {1: "b", 3: "s", 4: "", 5: "f", 6: "", 7: "UB", 8: "US", 9: "U", 10: "LL", 11: "ULL"}
_KEYWORDS = frozenset({"variables", "dimensions", "data", "group", "types"})
_SPECIAL = re.compile(rb"""[ !"#$&'()*,:;<=>?\[\]\\^`{|}~]""")
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
_ESCAPES = {
    0x08: b"\\b",
    0x09: b"\\t",
    0x0A: b"\\n",
    0x0B: b"\\v",
    0x0C: b"\\f",
    0x0D: b"\\r",
    0x22: b'\\"',
    0x27: b"\\'",
    0x5C: b"\\\\",
}
_IN_ATTRIBUTE = re.compile(rb"[\x00-\x1f\x7f\"'\\]")
_IN_DATA = re.compile(rb"[\x00-\x1f\x7f-\xff\"'\\]")


def raw(name: str) -> bytes:
    """Return the bytes of a name as the file has them."""
    return name.encode("utf-8", "surrogateescape")


def escaped_name(name: str | bytes) -> bytes:
    """Return a name with a backslash before what is special in CDL.

    Examples
    --------
    >>> escaped_name("4 dx")
    b'\\\\4\\\\ dx'
    """
    data = raw(name) if isinstance(name, str) else name
    data = _SPECIAL.sub(lambda m: b"\\" + m.group(), data)
    data = _CONTROL.sub(lambda m: b"\\%%%02x" % m.group()[0], data)
    return b"\\" + data if data[:1].isdigit() else data


# --------------------------------------------------------------------------------------------------- the header


def header_lines(header: Header) -> Iterator[bytes]:
    """Yield the dimensions, variables and attributes, line by line with their ends."""
    names = [escaped_name(dim.name) for dim in header.dims]
    if header.dims:
        yield b"dimensions:\n"
    for name, dim in zip(names, header.dims, strict=True):
        if dim.size == 0:
            yield b"\t%s = UNLIMITED ; // (%d currently)\n" % (name, header.numrecs)
        else:
            yield b"\t%s = %d ;\n" % (name, dim.size)
    if header.vars:
        yield b"variables:\n"
    for var in header.vars:
        axes = b"(" + b", ".join(names[i] for i in var.dims) + b")" if var.dims else b""
        name = escaped_name(var.name)
        yield b"\t%s %s%s ;\n" % (TYPES[var.type].name.encode(), name, axes)
        owner = name + b" " if var.name in _KEYWORDS else name
        for attr in var.attrs:
            yield _attribute(owner, attr)
    if header.attrs:
        yield b"\n// global attributes:\n"
        for attr in header.attrs:
            yield _attribute(b"", attr)


def _attribute(owner: bytes, attr: Attr) -> bytes:
    if attr.type == CHAR or attr.nelems == 0:
        text = _quoted(attr.data, _IN_ATTRIBUTE, b'\\n",\n\t\t\t"')
    else:
        text = ", ".join(_attribute_values(attr)).encode()
    return b"\t\t%s:%s = %s ;\n" % (owner, escaped_name(attr.name), text)


def _quoted(data: bytes, special: re.Pattern[bytes], newline: bytes) -> bytes:
    """Return the text in quotes; NULs at its end are not shown, and a line break also breaks the line of CDL."""
    data = data.rstrip(b"\0")
    return b'"' + special.sub(lambda m: _escape(m.group()[0], newline), data) + b'"'


def _escape(code: int, newline: bytes) -> bytes:
    if code == 0x0A:
        return newline
    return _ESCAPES.get(code) or b"\\%03o" % code


def _attribute_values(attr: Attr) -> list[str]:
    values = attr_values(attr)
    assert not isinstance(values, bytes)
    suffix = SUFFIX[attr.type]
    if attr.type not in (FLOAT, DOUBLE):
        return [f"{value}{suffix}" for value in values.tolist()]
    digits = 7 if attr.type == FLOAT else 15
    return [_attribute_float(value, digits) + suffix for value in values.tolist()]


def _attribute_float(value: float, digits: int) -> str:
    """Return a number that shows that it is no integer: ``1.``, ``1.5``, ``1.e+20``."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    mantissa, e, exponent = f"{value:#.{digits}g}".partition("e")
    return mantissa.rstrip("0") + e + exponent


# --------------------------------------------------------------------------------------------------- the values


def fill_of(var: Var) -> Any:
    """Return the value that is shown as ``_``, as a numpy scalar; None if there is none."""
    for attr in var.attrs:
        if attr.name == "_FillValue" and attr.type == var.type and attr.nelems == 1:
            return attr_values(attr)[0]
    return None if var.type in (BYTE, UBYTE) else TYPES[var.type].fill_value


_C_FORMAT = re.compile(r"[^%\0]*%[-+ #0]*\d{0,3}(?:\.\d{0,3})?(?:hh|h|ll|l|L)?([diouxXeEfFgG])[^%\0]*\Z")


_UNSIGNED = re.compile(r"%[^a-zA-Z]*[ouxX]")


def value_format(var: Var) -> str:
    """Return how one value is printed: the variable's ``C_format`` if it fits its type, else ``%.7g``, ``%.15g`` or,
    for integers, an empty string."""
    floating = var.type in (FLOAT, DOUBLE)
    for attr in var.attrs:
        if attr.name == "C_format" and attr.type == CHAR and 0 < attr.nelems < 100:
            found = _C_FORMAT.match(attr.data.decode("latin-1"))
            if found and (found.group(1) in "eEfFgG") == floating:
                return re.sub(r"(?:hh|h|ll|l|L)(?=[a-zA-Z])", "", attr.data.decode("latin-1"), count=1)
    if not floating:
        return ""
    return "%.7g" if var.type == FLOAT else "%.15g"


def is_fill(values: npt.NDArray[Any], fill: Any) -> npt.NDArray[np.bool_]:
    """Return which values equal the fill value; floats within their type's precision, a NaN equals a NaN."""
    equal: npt.NDArray[np.bool_]
    if values.dtype.kind != "f":
        equal = values == fill
        return equal
    fill = values.dtype.type(fill)
    if np.isnan(fill):
        equal = np.isnan(values)
    elif np.isinf(fill):
        equal = values == fill
    else:
        with np.errstate(all="ignore"):
            near = np.abs(values - fill) <= np.abs(np.finfo(values.dtype).eps * fill)
        equal = near & ((values > 0) == (fill > 0))
    return equal


def tokens(values: npt.NDArray[Any], fmt: str, fill: Any) -> list[str]:
    """Return the text of each value of a 1-D array in native byte order."""
    hidden: Any = () if fill is None else is_fill(values, fill)
    if not fmt:
        texts = list(map(str, values.tolist()))
    else:
        if values.dtype.kind in "iu":
            # As in C: the format says whether the bits, of an int at least, have a sign.
            bits = 64 if values.dtype.itemsize == 8 else 32
            values = values.astype(f"{values.dtype.kind}{bits // 8}")
            values = values.view(f"u{bits // 8}" if _UNSIGNED.search(fmt) else f"i{bits // 8}")
        # "\0" cannot be in the format, so it separates what may hold spaces.
        texts = ("\0".join([fmt] * values.size) % tuple(values.tolist())).split("\0")
    if values.dtype.kind == "f":
        tail = "f" if values.dtype.itemsize == 4 else ""
        for i in np.flatnonzero(~np.isfinite(values)).tolist():
            value = values[i]
            texts[i] = ("NaN" if value != value else "Infinity" if value > 0 else "-Infinity") + tail
    for i in np.flatnonzero(hidden).tolist():
        texts[i] = "_"
    return texts


class Rows:
    """The data section of a variable that is not char, printed while its values come in.

    Parameters
    ----------
    var : Var
    shape : tuple of int
        No axis is 0.

    Examples
    --------
    >>> rows = Rows(Var("x", (0,), (), 4), (3,))
    >>> b"".join(rows.feed(np.array([1, 2, 3], "i4")))
    b'\\n x = 1, 2, 3 ;\\n'
    """

    def __init__(self, var: Var, shape: tuple[int, ...]) -> None:
        self.fmt, self.fill = value_format(var), fill_of(var)
        self.own_format = self.fmt not in ("", "%.7g", "%.15g")
        """The values may hold spaces, so that a line cannot be broken at any space."""
        self.ncols = shape[-1] if shape else 1
        self.left = int(np.prod(shape, dtype=object)) if shape else 1
        self.column = 0
        """Values of the current row that are already printed."""
        name = escaped_name(var.name).decode("utf-8", "surrogateescape")
        if len(shape) <= 1:
            # The first line is reckoned four columns beyond the name's bytes.
            self.opening, self.position = f"\n {name} = ", len(raw(var.name)) + 4
        else:
            self.opening, self.position = f"\n {name} =\n  ", 2

    def feed(self, values: npt.NDArray[Any]) -> Iterator[bytes]:
        """Yield the text for the next values, a 1-D array in native byte order."""
        texts = tokens(values, self.fmt, self.fill)
        out: list[str] = [self.opening]
        self.opening = ""
        at = 0
        while at < len(texts):
            n = min(self.ncols - self.column, len(texts) - at)
            self.column += n
            self.left -= n
            whole = self.column == self.ncols
            self.place(texts[at : at + n], whole, out)
            at += n
            if whole:
                self.column, self.position = 0, 2
                out.append(",\n  " if self.left else " ;\n")
        yield "".join(out).encode("utf-8", "surrogateescape")

    def place(self, texts: list[str], whole: bool, out: list[str]) -> None:
        """Put values of one row on lines; `whole` says that they end it."""
        line = ", ".join(texts) if whole else ", ".join(texts) + ", "
        if self.position + len(line) <= LINE:
            out.append(line)
            self.position += len(line)
        elif self.own_format:
            self.wrap_each(texts, whole, out)
        else:
            self.wrap(line, whole, out)

    def wrap(self, line: str, whole: bool, out: list[str]) -> None:
        """Break a line after the last value that fits; the values hold no space."""
        at, end = 0, len(line)
        while at < end:
            room = LINE - self.position
            if end - at <= room:
                out.append(line[at:])
                self.position += end - at
                return
            cut = line.rfind(" ", at, at + room) + 1 if room > 0 else 0
            if cut <= at:
                # Not even one value fits: it gets a line of its own, unless it is the last and has two characters.
                cut = line.find(" ", at) + 1 or end
                if cut == end and whole and cut - at <= 2:
                    out.append(line[at:])
                    self.position += end - at
                    return
                out.append("\n" + INDENT + line[at:cut])
                self.position = len(INDENT) + cut - at
                at = cut
                continue
            out.append(line[at:cut])
            self.position += cut - at
            at = cut
            if whole and end - at <= 2:
                out.append(line[at:])
                self.position += end - at
                return
            if at < end:
                out.append("\n" + INDENT)
                self.position = len(INDENT)

    def wrap_each(self, texts: list[str], whole: bool, out: list[str]) -> None:
        """Break before each value that does not fit; for formats that print spaces."""
        last = len(texts) - 1
        for i, text in enumerate(texts):
            token = text if whole and i == last else text + ", "
            if self.position + len(token) > LINE and len(token) > 2:
                out.append("\n" + INDENT)
                self.position = len(INDENT)
            out.append(token)
            self.position += len(token)


class TextRows:
    """The data section of a char variable: each row is one string.

    Parameters
    ----------
    var, shape
        As for `Rows`.
    """

    def __init__(self, var: Var, shape: tuple[int, ...]) -> None:
        self.ncols = shape[-1] if shape else 1
        self.left = int(np.prod(shape, dtype=object)) if shape else 1
        self.column = self.nuls = 0
        name = escaped_name(var.name)
        self.opening = b"\n %s = " % name if len(shape) <= 1 else b"\n %s =\n  " % name

    def feed(self, values: npt.NDArray[Any]) -> Iterator[bytes]:
        """Yield the text for the next values, a 1-D array of ``S1``."""
        data = values.tobytes()
        out: list[bytes] = [self.opening]
        self.opening = b""
        at = 0
        while at < len(data):
            if self.column == 0:
                out.append(b'"')
            n = min(self.ncols - self.column, len(data) - at)
            part = data[at : at + n]
            at += n
            self.column += n
            self.left -= n
            # NULs are shown only if something follows them in the row.
            bare = part.rstrip(b"\0")
            if bare:
                out.append(b"\\000" * self.nuls)
                out.append(_IN_DATA.sub(lambda m: _escape(m.group()[0], b'\\n",\n    "'), bare))
                self.nuls = n - len(bare)
            else:
                self.nuls += n
            if self.column == self.ncols:
                self.column = self.nuls = 0
                out.append(b'",\n  ' if self.left else b'" ;\n')
        yield b"".join(out)


def document(name: str, header: Header, sections: Iterable[bytes] | None) -> Iterator[bytes]:
    """Yield a whole document; `sections` is the data section, or None for the header alone."""
    yield b"netcdf %s {\n" % escaped_name(name)
    yield from header_lines(header)
    if sections is not None:
        if header.vars:
            yield b"data:\n"
        yield from sections
    yield b"}\n"
