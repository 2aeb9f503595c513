"""A `Header` to the bytes of a file.

Knows: the grammar. Does not know: where variables should begin (`placing`), files.

Rules
-----
1. What is written is what every reader takes: legal names, NUL padding, the true vsize, never STREAMING.
2. The size of a header is known without encoding it, since begins depend on it.

Source: NetCDF classic format specification; PnetCDF's CDF-5 specification.
"""

from __future__ import annotations

from collections import Counter

from pnc_vol.errors import DefinitionError
from pnc_vol.format.limits import check_limits, check_names
from pnc_vol.format.model import Attr, Header
from pnc_vol.format.sizes import inner_sizes
from pnc_vol.format.widths import ABSENT, ATTRIBUTE, DIMENSION, VARIABLE, WIDTHS, Widths

__all__ = ["check_limits", "check_names", "encode", "header_size", "numrecs_bytes"]

_NUL = (b"", b"\0\0\0", b"\0\0", b"\0")
"""Padding by the length modulo 4 of what it follows."""


def numrecs_bytes(header: Header) -> bytes:
    """Return the number of records as the file holds it, from byte 4 on."""
    return WIDTHS[header.version].number.pack(header.numrecs)


def header_size(header: Header) -> int:
    """Return the bytes that `encode` would make.

    Examples
    --------
    >>> header_size(Header(5))
    48
    """
    w = WIDTHS[header.version]
    width = w.width
    # Padded bytes of names, with their length field.
    known: dict[str, int] = {}

    def name(text: str) -> int:
        n = len(text) if text.isascii() else len(_raw(text))
        n = known[text] = width + ((n + 3) & -4)
        return n

    def attributes(attrs: tuple[Attr, ...]) -> int:
        total = (4 + width) + len(attrs) * (4 + width)
        for attr in attrs:
            total += (known.get(attr[0]) or name(attr[0])) + ((len(attr[3]) + 3) & -4)
        return total

    total = 4 + width + 2 * (4 + width) + attributes(header.attrs)
    for dim in header.dims:
        total += name(dim[0]) + width
    total += len(header.vars) * (width + width + w.tail.size)
    names = [var[0] for var in header.vars]
    lengths = map(len, names if "".join(names).isascii() else [_raw(text) for text in names])
    total += sum([(n + 3) & -4 for n in lengths]) + width * sum([len(var[1]) for var in header.vars])
    # Variables often share one tuple of attributes.
    lists = {id(var[2]): var[2] for var in header.vars}
    counts = Counter([id(var[2]) for var in header.vars])
    return total + sum(counts[key] * attributes(attrs) for key, attrs in lists.items())


def _raw(name: str) -> bytes:
    """A name as it is in the file."""
    return name.encode("utf-8", "surrogateescape")


def encode(header: Header, *, check: bool = True) -> bytes:
    """Encode a header.

    Parameters
    ----------
    header : Header
        All of its variables are placed (`placing.place`).
    check : bool
        Whether names must be legal. A header that was read from another program's file may hold names that are not;
        they are then written as they were. Limits are always checked.

    Raises
    ------
    DefinitionError
        Something that the version cannot hold, or a variable that is not placed.
    NameExistsError
        A name is there twice.

    Examples
    --------
    >>> encode(Header(1))[:4]
    b'CDF\\x01'
    """
    check_limits(header)
    if check:
        check_names(header)
    return _Writer(WIDTHS[header.version]).header(header)


_MOST_KNOWN = 1 << 12
"""Entries from which on nothing more is remembered: memory."""


class _Writer:
    """Collects the pieces; repeated names and dimension lists are encoded once."""

    def __init__(self, widths: Widths) -> None:
        self.w = widths
        self.names: dict[str, bytes] = {}
        self.pieces: list[bytes] = []

    def header(self, header: Header) -> bytes:
        w, put = self.w, self.pieces.append
        put(b"CDF" + bytes([header.version]) + w.number.pack(header.numrecs))
        put(self.listing(DIMENSION, len(header.dims)))
        for dim in header.dims:
            put(self.name(dim.name) + w.number.pack(dim.size))
        put(self.attributes(header.attrs))
        self.variables(header)
        return b"".join(self.pieces)

    def listing(self, tag: int, n: int) -> bytes:
        return self.w.listing.pack(tag if n else ABSENT, n)

    def name(self, text: str) -> bytes:
        raw = text.encode("utf-8", "surrogateescape")
        return self.w.number.pack(len(raw)) + raw + _NUL[len(raw) & 3]

    def attributes(self, attrs: tuple[Attr, ...]) -> bytes:
        names, pack = self.names, self.w.listing.pack
        pieces = [self.listing(ATTRIBUTE, len(attrs))]
        for name, code, nelems, data in attrs:
            head = names.get(name)
            if head is None:
                head = names[name] = self.name(name)
            pieces += (head, pack(code, nelems), data, _NUL[len(data) & 3])
        return b"".join(pieces)

    def variables(self, header: Header) -> None:
        w, put = self.w, self.pieces.append
        put(self.listing(VARIABLE, len(header.vars)))
        shapes: dict[tuple[int, ...], bytes] = {}
        # Variables often share one tuple of attributes.
        between: dict[tuple[tuple[int, ...], int], bytes] = {}
        lengths: dict[int, bytes] = {}
        small = w.width == 4
        number, tail = w.number.pack, w.tail.pack
        for (name, dims, attrs, code, begin), size in zip(header.vars, inner_sizes(header), strict=True):
            if begin < 0:
                raise DefinitionError(f"Variable {name!r} has no place in the file yet; place the header first.")
            raw = name.encode() if name.isascii() else _raw(name)
            n = len(raw)
            length = lengths.get(n)
            if length is None:
                length = lengths[n] = number(n)
            middle = between.get((dims, id(attrs)))
            if middle is None:
                shape = shapes.get(dims)
                if shape is None:
                    shape = shapes[dims] = b"".join(map(number, (len(dims), *dims)))
                middle = shape + self.attributes(attrs)
                if len(between) < _MOST_KNOWN:
                    between[dims, id(attrs)] = middle
            vsize = (size + 3) & -4
            end = tail(code, 0xFFFFFFFF if small and vsize > 0xFFFFFFFC else vsize, begin)
            put(length + raw + _NUL[n & 3] + middle + end)
