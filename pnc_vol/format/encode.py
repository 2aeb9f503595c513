"""A `Header` to the bytes of a file.

Knows: the grammar. Does not know: where variables should begin (`placing`), files.

Rules
-----
1. What is written is what every reader takes: legal names, NUL padding, the true vsize, never STREAMING.
2. The size of a header is known without encoding it, since begins depend on it.

Source: NetCDF classic format specification; PnetCDF's CDF-5 specification.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from struct import pack_into
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.errors import DefinitionError
from pnc_vol.format.limits import check_attrs, check_limits, check_names
from pnc_vol.format.model import Attr, Header, Var
from pnc_vol.format.sizes import inner_bytes
from pnc_vol.format.widths import ABSENT, ATTRIBUTE, DIMENSION, LITTLE, VARIABLE, WIDTHS, Order, Widths

__all__ = [
    "check_limits",
    "check_names",
    "encode",
    "header_size",
    "numrecs_bytes",
    "only_numrecs_differs",
    "unplaced",
    "with_attributes",
    "with_zero_begins",
]

_NUL = (b"", b"\0\0\0", b"\0\0", b"\0")
"""Padding by the length modulo 4 of what it follows."""


def numrecs_bytes(header: Header) -> bytes:
    """Return the number of records as the file holds it, from byte 4 on."""
    return WIDTHS[header.version].number.pack(header.numrecs)


def only_numrecs_differs(one: bytes, other: bytes) -> bool:
    """Whether two encoded headers are the same but for the number of records, if for that.

    Examples
    --------
    >>> only_numrecs_differs(encode(Header(5)), encode(Header(5, 7)))
    True
    """
    behind = 4 + WIDTHS[one[3]].number.size if one else 0
    return len(one) == len(other) and one[:4] == other[:4] and one[behind:] == other[behind:]


def header_size(header: Header) -> int:
    """Return the bytes that `encode` would make.

    Examples
    --------
    >>> header_size(Header(5))
    48
    """
    return len(_frame(header).body)


def unplaced(header: Header) -> bytearray:
    """The bytes of a header whose number of records and begins are 0; not to be changed."""
    return _frame(header).body


def with_zero_begins(header: Header, order: Order) -> bytes:
    """The bytes of a CDF-5 header in some byte order, with begins that are 0; attribute values stay as they are.

    Raises
    ------
    DefinitionError
        Something that CDF-5 cannot hold.

    Examples
    --------
    >>> with_zero_begins(Header(5, 7), "little")[4:12].hex()
    '0700000000000000'
    """
    check_limits(header)
    widths = LITTLE if order == "little" else WIDTHS[5]
    made = _Writer(widths).frame(header).body
    pack_into(widths.number.format, made, 4, header.numrecs)
    return bytes(made)


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
    w, frame = WIDTHS[header.version], _frame(header)
    begins = np.array([var[4] for var in header.vars], np.int64)
    if begins.size and int(begins.min()) < 0:
        name = header.vars[int(begins.argmin())].name
        raise DefinitionError(f"Variable {name!r} has no place in the file yet; lay out the header first.")
    # The frame serves again when it is as it was.
    del header.derived["frame"]
    pack_into(w.number.format, frame.body, 4, header.numrecs)
    words, at = np.frombuffer(frame.body, ">u4"), frame.begin_at >> 2
    if w.begin == 8:
        words[at] = begins >> 32
        at += 1
    words[at] = begins & 0xFFFFFFFF
    made = bytes(frame.body)
    pack_into(w.number.format, frame.body, 4, 0)
    words[at] = 0
    if w.begin == 8:
        words[at - 1] = 0
    header.derived["frame"] = frame
    return made


def with_attributes(header: Header, own: Mapping[int, tuple[Attr, ...]], attrs: tuple[Attr, ...]) -> Header:
    """The same definitions with other attributes; only these are checked and encoded.

    Parameters
    ----------
    header : Header
    own : the attributes of variables, by their index; those of the others stay
    attrs : attributes of the file

    Raises
    ------
    DefinitionError
        An attribute that the version cannot hold.

    Examples
    --------
    >>> old = Header(5, vars=(Var("a", (), (), 6), Var("b", (), (), 6)))
    >>> with_attributes(old, {1: (Attr("units", 2, 1, b"K"),)}, ()).vars[1].attrs[0].name
    'units'
    """
    variables = list(header.vars)
    for i, found in own.items():
        variables[i] = variables[i]._replace(attrs=found)
    made = replace(header, attrs=attrs, vars=tuple(variables))
    known = header.derived
    if "inner_sizes" in known:
        made.derived["inner_sizes"] = known["inner_sizes"]
    if known.get("within_limits"):
        check_attrs("The file", attrs, header.version)
        for i, found in own.items():
            check_attrs(f"Variable {variables[i].name!r}", found, header.version)
        made.derived["within_limits"] = True
    if "frame" in known:
        made.derived["frame"] = _Writer(WIDTHS[header.version]).changed(known["frame"], header, made, sorted(own))
    return made


_MOST_KNOWN = 1 << 12
"""Entries from which on nothing more is remembered: memory."""


class _Frame(NamedTuple):
    """All bytes of a header but for the number of records and the begins, which are 0.

    begin_at : int64[variables], where the begins are; multiples of 4, as all fields.
    """

    body: bytearray
    begin_at: npt.NDArray[np.int64]


def _frame(header: Header) -> _Frame:
    """The frame of a header: made when its size is asked for, and used when it is encoded."""
    found: _Frame | None = header.derived.get("frame")
    if found is None:
        found = header.derived["frame"] = _Writer(WIDTHS[header.version]).frame(header)
    return found


class _Writer:
    """Collects the pieces; repeated names and dimension lists are encoded once."""

    def __init__(self, widths: Widths) -> None:
        self.w = widths
        self.names: dict[str, bytes] = {}
        self.shapes: dict[tuple[int, ...], bytes] = {}

    def frame(self, header: Header) -> _Frame:
        w = self.w
        pieces = [self.dimensions(header), self.attributes(header.attrs), self.listing(VARIABLE, len(header.vars))]
        first = sum(map(len, pieces))
        variables = self.variables(header, header.vars)
        ends = np.cumsum(np.fromiter(map(len, variables), np.int64, len(variables)))
        return _Frame(bytearray().join(pieces + variables), ends + (first - w.begin))

    def changed(self, frame: _Frame, old: Header, new: Header, indices: list[int]) -> _Frame:
        """The frame of `new`, which has other attributes than `old`: of the file, and of the variables `indices`."""
        before, begin_at, at = memoryview(frame.body), frame.begin_at.copy(), 0
        pieces: list[bytes | memoryview] = []
        if new.attrs is not old.attrs:
            start, made = len(self.dimensions(old)), self.attributes(new.attrs)
            at = start + len(self.attributes(old.attrs))
            pieces += (before[:start], made)
            begin_at += start + len(made) - at
        was, now = ([header.vars[i] for i in indices] for header in (old, new))
        for i, gone, made in zip(indices, self.variables(old, was), self.variables(new, now), strict=True):
            end = int(frame.begin_at[i]) + self.w.begin
            pieces += (before[at : end - len(gone)], made)
            begin_at[i:] += len(made) - len(gone)
            at = end
        return _Frame(bytearray().join([*pieces, before[at:]]), begin_at)

    def dimensions(self, header: Header) -> bytes:
        """The beginning of a header, with its dimensions."""
        w = self.w
        pieces = [b"CDF" + bytes([header.version]) + w.number.pack(0), self.listing(DIMENSION, len(header.dims))]
        return b"".join(pieces + [self.name(dim.name) + w.number.pack(dim.size) for dim in header.dims])

    def listing(self, tag: int, n: int) -> bytes:
        return self.w.listing.pack(tag if n else ABSENT, n)

    def name(self, text: str) -> bytes:
        raw = _raw(text)
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

    def variables(self, header: Header, chosen: Iterable[Var]) -> list[bytes]:
        """Variables of a header, one by one."""
        pieces: list[bytes] = []
        put, number = pieces.append, self.w.number.pack
        # Variables often have all but the name in common.
        known: dict[tuple[tuple[int, ...], int, int], bytes] = {}
        lengths: dict[int, bytes] = {}
        dims: tuple[int, ...] | None = None
        attrs: tuple[Attr, ...] | None = None
        code = -1
        rest = b""
        for var in chosen:
            name = var[0]
            if var[1] is not dims or var[2] is not attrs or var[3] != code:
                _, dims, attrs, code, _ = var
                met = known.get((dims, id(attrs), code))
                if met is None:
                    met = self.rest(header, var)
                    if len(known) < _MOST_KNOWN:
                        known[dims, id(attrs), code] = met
                rest = met
            raw = name.encode() if name.isascii() else _raw(name)
            n = len(raw)
            length = lengths.get(n)
            if length is None:
                length = lengths[n] = number(n)
            put(length + raw + _NUL[n & 3] + rest)
        return pieces

    def rest(self, header: Header, var: Var) -> bytes:
        """What comes behind the name of a variable and its padding."""
        w, dims = self.w, var.dims
        shape = self.shapes.get(dims)
        if shape is None:
            shape = self.shapes[dims] = b"".join(map(w.number.pack, (len(dims), *dims)))
        vsize = (inner_bytes(header, var) + 3) & -4
        last = w.tail.pack(var.type, 0xFFFFFFFF if w.width == 4 and vsize > 0xFFFFFFFC else vsize, 0)
        return shape + self.attributes(var.attrs) + last
