"""A `Header` to the bytes of a file.

Knows: the grammar. Does not know: where variables should begin (`placing`), files.

Rules
-----
1. What is written is what every reader takes: legal names, NUL padding, the true vsize, never STREAMING.
2. The size of a header is known without encoding it, since begins depend on it.

Source: NetCDF classic format specification; PnetCDF's CDF-5 specification.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from struct import pack_into
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.errors import DefinitionError
from pnc_vol.format.limits import check_decoded, check_limits, check_names
from pnc_vol.format.model import Attr, Header, Var
from pnc_vol.format.sizes import inner_bytes, inner_sizes
from pnc_vol.format.widths import ABSENT, ATTRIBUTE, DIMENSION, LITTLE, VARIABLE, WIDTHS, Order, Widths

__all__ = [
    "Frame",
    "Writer",
    "check_limits",
    "check_names",
    "encode",
    "encoded_empty",
    "frame_as_read",
    "frame_of",
    "header_size",
    "numrecs_bytes",
    "only_numrecs_differs",
    "unplaced",
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
    return len(frame_of(header).body)


def unplaced(header: Header) -> bytearray:
    """The bytes of a header whose number of records and begins are 0; not to be changed."""
    return frame_of(header).body


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
    made = Writer(widths).frame(header).body
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
    w, frame = WIDTHS[header.version], frame_of(header)
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


@cache
def encoded_empty(version: int) -> bytes:
    """The header of a file that has nothing yet."""
    return encode(Header(version))


_MOST_KNOWN = 1 << 12
"""Entries from which on nothing more is remembered: memory."""


class Frame(NamedTuple):
    """All bytes of a header but for the number of records and the begins, which are 0.

    begin_at : int64[variables], where the begins are; multiples of 4, as all fields.
    attrs_at, vars_at : int, where the lists of the file's attributes and of the variables begin.
    """

    body: bytearray
    begin_at: npt.NDArray[np.int64]
    attrs_at: int
    vars_at: int


def frame_of(header: Header) -> Frame:
    """The frame of a header: made when its size is asked for, and used when it is encoded."""
    found: Frame | None = header.derived.get("frame")
    if found is None:
        found = header.derived["frame"] = Writer(WIDTHS[header.version]).frame(header)
    return found


def frame_as_read(header: Header, encoded: bytes) -> bool:
    """Whether a header that was decoded is as `encode` would make it; its frame is then that of the file's bytes.

    Parameters
    ----------
    header : Header, in which the decoder found nothing to say.
    encoded : bytes, what it was decoded from.

    Examples
    --------
    >>> from pnc_vol.format.decode import decode
    >>> raw = encode(Header(5, vars=(Var("a", (), (), 6, 132),)))
    >>> frame_as_read(decode(raw, file_size=140).header, raw)
    True
    """
    w, var_at = WIDTHS[header.version], header.derived.pop("var_at", None)
    if not var_at or len(encoded) != var_at[-1] or encoded[4 : 4 + w.width] != w.number.pack(header.numrecs):
        return False
    begin_at = np.array(var_at[1:], np.int64) - w.begin
    body = bytearray(encoded)
    words, last = np.frombuffer(body, ">u4"), (begin_at >> 2) - 1
    # Of the fields that say twice what is there the sizes alone are read as anything between right and padded.
    padded = (np.array(inner_sizes(header), np.int64) + 3) & -4
    if w.width == 4:
        padded[padded > 0xFFFFFFFC] = 0xFFFFFFFF
    elif (words[last - 1] != padded >> 32).any():
        return False
    if (words[last] != padded & 0xFFFFFFFF).any():
        return False
    try:
        check_decoded(header)
    except DefinitionError:
        return False
    pack_into(w.number.format, body, 4, 0)
    for at in range(w.begin // 4):
        words[last + 1 + at] = 0
    vars_at = var_at[0] - w.listing.size
    attrs_at = len(Writer(w).dimensions(header))
    header.derived["frame"] = Frame(body, begin_at, attrs_at, vars_at)
    return True


class Writer:
    """Collects the pieces; repeated names, and what variables of one type and shape have, are encoded once."""

    def __init__(self, widths: Widths) -> None:
        self.w = widths
        self.names: dict[str, bytes] = {}
        # Their dimensions, and what is behind their attributes.
        self.kinds: dict[tuple[tuple[int, ...], int], tuple[bytes, bytes]] = {}

    def frame(self, header: Header) -> Frame:
        w = self.w
        pieces = [self.dimensions(header), self.attributes(header.attrs), self.listing(VARIABLE, len(header.vars))]
        first, attrs_at = sum(map(len, pieces)), len(pieces[0])
        variables = self.variables(header, header.vars)
        ends = np.cumsum(np.fromiter(map(len, variables), np.int64, len(variables)))
        vars_at = attrs_at + len(pieces[1])
        return Frame(bytearray().join(pieces + variables), ends + (first - w.begin), attrs_at, vars_at)

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
        return self.listing(ATTRIBUTE, len(attrs)) + self.entries(attrs)

    def entries(self, attrs: tuple[Attr, ...]) -> bytes:
        """Attributes, without their number."""
        names, pack = self.names, self.w.listing.pack
        pieces: list[bytes] = []
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
        _, dims, attrs, code, _ = var
        found = self.kinds.get((dims, code))
        if found is None:
            w = self.w
            shape = b"".join(map(w.number.pack, (len(dims), *dims)))
            vsize = (inner_bytes(header, var) + 3) & -4
            last = w.tail.pack(code, 0xFFFFFFFF if w.width == 4 and vsize > 0xFFFFFFFC else vsize, 0)
            found = self.kinds[dims, code] = shape, last
        return found[0] + self.attributes(attrs) + found[1]
