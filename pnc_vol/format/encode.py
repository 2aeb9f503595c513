"""A `Header` becomes the bytes of a file; most bytes are taken from the header before.

Knows: the grammar. Does not know: where variables should begin (`placing`), files, what a change means.

Rules
-----
1. What is written is what every reader takes: legal names, NUL padding, the true vsize, never STREAMING.
2. The size of a header is known without its begins, since these depend on it.
3. A header is a join of pieces. Of a new header each list and each variable is one. Of a header that was made of
   another one (`with_changes`) each change is one, and so is all that lies between two changes, which is taken from the
   bytes before: what has no bytes is what changed. Nothing is done for what did not, but that it is copied.
   (A join of 100,000 pieces of 160 bytes takes 2.4 ms, and one of three pieces of the same length 1.5 ms; to cut the
   pieces from a header that was read takes ten times as long, and they take more memory than the header.)
4. Begins are set in the joined pieces by one assignment, unless the pieces have them: those of variables that stay
   where they are, and of new ones that were placed before they were encoded.

Source: NetCDF classic format specification; PnetCDF's CDF-5 specification.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import accumulate, pairwise
from operator import attrgetter, itemgetter
from struct import pack_into
from types import MappingProxyType
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from pnc_vol.errors import DefinitionError
from pnc_vol.format.limits import check_attrs, check_decoded, check_limits, check_names
from pnc_vol.format.model import (
    ABSENT,
    ATTRIBUTE,
    DIMENSION,
    LITTLE,
    VARIABLE,
    WIDTHS,
    Attr,
    Header,
    Order,
    Var,
    Widths,
    inner_bytes,
    inner_sizes,
)

__all__ = [
    "Parts",
    "changed_parts",
    "check_limits",
    "check_names",
    "count_end",
    "encode",
    "encode_after",
    "encoded_empty",
    "header_size",
    "numrecs_bytes",
    "only_numrecs_differs",
    "take_as_read",
    "unplaced",
    "with_changes",
    "with_count",
    "with_zero_begins",
    "without",
]

Parts = Sequence[tuple[int, int, int]]
"""Where two headers differ: the first byte of each part, and where it ends in the old and in the new header; in order.
Only the last one may be longer in one of them."""

_GAP, _MOST_PARTS = 1024, 8
"""The shortest run of equal bytes that separates two parts of a header, and the most parts."""

_NUL = (b"", b"\0\0\0", b"\0\0", b"\0")
"""Padding by the length modulo 4 of what it follows."""

_MOST_LISTED = 64
"""Parts of a list of attributes that are replaced one by one."""

_MOST_KNOWN = 1 << 12
"""Entries from which on nothing more is remembered: memory."""

_Piece = bytes | bytearray | memoryview
_NO_CHANGES: Mapping[int, tuple[Attr, ...]] = MappingProxyType({})
_make = tuple.__new__
_begin_of, _definitions_of = itemgetter(4), attrgetter("vars", "dims", "attrs", "version")


def numrecs_bytes(header: Header) -> bytes:
    """Return the number of records as the file holds it, from byte 4 on."""
    return WIDTHS[header.version].number.pack(header.numrecs)


def with_count(encoded: bytes, count: bytes) -> bytes:
    """Return an encoded header with another number of records, as `numrecs_bytes` gives it."""
    return b"".join((encoded[:4], count, memoryview(encoded)[4 + len(count) :]))


def count_end(encoded: bytes) -> int:
    """Return where the number of records of an encoded header ends: it has 8 bytes in CDF-5, else 4."""
    return 12 if encoded[3:4] == b"\x05" else 8


def only_numrecs_differs(one: bytes, other: bytes) -> bool:
    """Return whether two encoded headers are the same but for the number of records, if for that.

    Examples
    --------
    >>> only_numrecs_differs(encode(Header(5)), encode(Header(5, 7)))
    True
    """
    behind = count_end(one)
    return len(one) == len(other) and one[:4] == other[:4] and one[behind:] == other[behind:]


def header_size(header: Header) -> int:
    """Return the bytes that `encode` would make.

    Examples
    --------
    >>> header_size(Header(5))
    48
    """
    return int((header.facts.encoded or _encoded(header)).at[-1])


def unplaced(header: Header) -> bytes:
    """Return the bytes of a header whose number of records and begins are 0."""
    w, encoded = WIDTHS[header.version], _encoded(header)
    made = bytearray(encoded.body())
    pack_into(w.number.format, made, 4, 0)
    _set_begins(made, encoded.at[3:] - w.begin, np.zeros(len(header.vars), np.int64), w)
    return bytes(made)


def with_zero_begins(header: Header, order: Order) -> bytes:
    """Return the bytes of a CDF-5 header in some byte order, with begins that are 0; attribute values stay as they are.

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
    made = bytearray().join(_HeaderWriter(widths).header(header))
    pack_into(widths.number.format, made, 4, header.numrecs)
    return bytes(made)


def encode(header: Header, *, check: bool = True) -> bytes:
    """Encode a header; what was encoded before, of it or of the header that it was made of, is used again.

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
    return _encoded(header).bytes_of(header)


def encode_after(before: Header, encoded: bytes, new: Header) -> bytes:
    """Return `encode` of the next header of a file, without checks of names; `encoded` itself if nothing changed.

    Bytes that another program wrote stay as they are, but for the number of records, as long as the definitions do.

    Parameters
    ----------
    before, encoded : Header, bytes
        What the file has; no bytes if it has none.
    new : Header, which `check_limits` has seen.
    """
    if encoded and before.facts.encoded is None and _definitions_of(before) == _definitions_of(new):
        made = with_count(encoded, numrecs_bytes(new))
    else:
        made = (new.facts.encoded or _encoded(new)).bytes_of(new)
    return encoded if made == encoded else made


T = TypeVar("T")


@cache
def encoded_empty(version: int) -> bytes:
    """Return the header of a file that has nothing yet."""
    return encode(Header(version))


# -------------------------------------------------------------------------------------------- bytes that are kept


_Change = tuple[int, int, "bytes | bytearray"]
"""The first byte of a part of a header, the byte behind it, and the bytes that take its place."""


class Encoded:
    """The bytes of the objects of a header, kept with the header (`Facts.encoded`).

    at : int64[variables + 3]
        Where the attributes of the file begin, the number of variables, and each variable, and where the last one ends.
    pieces : the bytes, to be joined.
    placed : the pieces have the begins of these variables; None if they have those of none.
    base, changes : what `pieces` was made of, as long as it is of use to `changed_parts`; b"" if nothing is known.
    """

    __slots__ = ("at", "base", "changes", "pieces", "placed")

    def __init__(
        self,
        at: npt.NDArray[np.int64],
        pieces: list[_Piece],
        placed: tuple[Var, ...] | None = None,
        base: bytes = b"",
        changes: Sequence[_Change] = (),
    ) -> None:
        self.at, self.pieces, self.placed, self.base, self.changes = at, pieces, placed, base, changes

    def body(self) -> bytes:
        """Return the pieces, joined; with some number of records."""
        if len(self.pieces) > 1:
            self.pieces = [b"".join(self.pieces)]
        return self.pieces[0]  # type: ignore[return-value]

    def bytes_of(self, header: Header) -> bytes:
        """Return all bytes of a header with these objects."""
        w, pieces, variables = WIDTHS[header.version], self.pieces, header.vars
        count = w.number.pack(header.numrecs)
        behind = 4 + len(count)
        if self.placed is not variables and self.placed != variables:
            # Begins are not among the changes.
            self.base = b""
            begins = np.fromiter(map(_begin_of, variables), np.int64, len(variables))
            if int(begins.min(initial=0)) < 0:
                name = variables[int(begins.argmin())].name
                raise DefinitionError(f"Variable {name!r} has no place in the file yet; lay out the header first.")
            made = bytearray().join(pieces)
            _set_begins(made, self.at[3:] - w.begin, begins, w)
            pieces = [made]
        elif len(pieces) == 1 and pieces[0][4:behind] != count:
            self.base, self.changes = self.body(), ()
        if len(pieces) > 1 or type(pieces[0]) is not bytes or pieces[0][4:behind] != count:
            pieces = [b"".join((pieces[0][:4], count, memoryview(pieces[0])[behind:], *pieces[1:]))]
        self.pieces, self.placed = pieces, variables
        return pieces[0]  # type: ignore[return-value]


def _encoded(header: Header) -> Encoded:
    """Return the bytes of a header's objects, made if nobody needed them before."""
    found: Encoded | None = header.facts.encoded
    if found is None:
        pieces = _HeaderWriter(WIDTHS[header.version]).header(header)
        ends = np.cumsum(np.fromiter(map(len, pieces), np.int64, len(pieces)))
        found = header.facts.encoded = Encoded(ends, [*pieces])
    return found


def _set_begins(made: bytearray, at: npt.NDArray[np.int64], begins: npt.NDArray[np.int64], w: Widths) -> None:
    """Set begins in the bytes of a header, or of its last variables; all fields are at multiples of 4."""
    words, at = np.frombuffer(made, ">u4"), at >> 2
    if w.begin == 8:
        words[at] = begins >> 32
        at += 1
    words[at] = begins & 0xFFFFFFFF


def take_as_read(header: Header, encoded: bytes) -> bool:
    """Keep the bytes that a header was decoded from, if `encode` would make the same; return whether it would.

    Parameters
    ----------
    header : Header, in which the decoder found nothing to say.
    encoded : bytes, what it was decoded from.

    Examples
    --------
    >>> from pnc_vol.format.decode import decode
    >>> raw = encode(Header(5, vars=(Var("a", (), (), 6, 132),)))
    >>> take_as_read(decode(raw, file_size=140).header, raw)
    True
    """
    w, var_at = WIDTHS[header.version], header.facts.var_at
    header.facts.var_at = None
    if not var_at or len(encoded) != var_at[-1] or encoded[4 : 4 + w.width] != w.number.pack(header.numrecs):
        return False
    entries = np.array(var_at, np.int64)
    words, last = np.frombuffer(encoded, ">u4"), (entries[1:] - w.begin >> 2) - 1
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
    attrs_at = len(_HeaderWriter(w).dimensions(header))
    at = np.concatenate(([attrs_at, var_at[0] - w.listing.size], entries))
    header.facts.encoded = Encoded(at, [encoded], header.vars)
    return True


# -------------------------------------------------------------------------------------- a header made of another one


def with_changes(
    header: Header,
    *,
    attrs: tuple[Attr, ...],
    own: Mapping[int, tuple[Attr, ...]] = _NO_CHANGES,
    gone: Sequence[int] = (),
    added: Header | None = None,
) -> Header:
    """Return the same definitions but for some objects; only these are checked and encoded, and the others keep their
    begins.

    Parameters
    ----------
    header : Header
    attrs : attributes of the file
    own : the attributes of variables that have others now, by their index
    gone : indices of variables that go, ascending
    added : variables of CDF-5 behind the others, without records; its dimensions, and maybe others behind them

    Raises
    ------
    DefinitionError
        Something that the version cannot hold.

    Examples
    --------
    >>> old = Header(5, vars=(Var("a", (), (), 6, 176), Var("b", (), (), 6, 184)))
    >>> new = with_changes(old, attrs=(), own={1: (Attr("units", 2, 1, b"K"),)}, gone=[0])
    >>> new.vars[0].attrs[0].name, encode(new) == encode(Header(5, vars=new.vars))
    ('units', True)
    """
    variables, facts, dims, sizes = header.vars, header.facts, header.dims, header.facts.inner_sizes
    if own:
        every = list(variables)
        for i, attributes in own.items():
            name, axes, _, code, begin = every[i]
            every[i] = _make(Var, (name, axes, attributes, code, begin))
        variables = tuple(every)
    if gone:
        variables, sizes = without(variables, gone), [*without(inner_sizes(header), gone)]
    if added is not None:
        check_limits(added)
        variables, dims, sizes = variables + added.vars, added.dims, (sizes or inner_sizes(header)) + inner_sizes(added)
    made = Header(header.version, header.numrecs, dims, attrs, variables)
    new = made.facts
    new.encoded, new.inner_sizes = _changed(header, made, own, gone), sizes
    new.record_vars = None if gone and facts.record_vars else facts.record_vars
    new.within_limits = facts.within_limits
    return made


def without(items: Sequence[T], gone: Sequence[int]) -> tuple[T, ...]:
    """Return all but those of some numbers, which ascend."""
    left = list(items)
    for i in reversed(gone):
        del left[i]
    return tuple(left)


def _changed(old: Header, new: Header, own: Mapping[int, tuple[Attr, ...]], gone: Sequence[int]) -> Encoded:
    """Return the bytes of a header that was made of another one; those of its attributes that are new are checked."""
    writer, known = _HeaderWriter(WIDTHS[old.version]), _encoded(old)
    w, at, n, kept = writer.w, known.at, len(old.vars), len(old.vars) - len(gone)
    changes, placed = list[_Change](), known.placed is old.vars or known.placed == old.vars
    if len(new.dims) != len(old.dims):
        start = 4 + w.number.size
        changes.append((start, int(at[0]), writer.dimensions(new)[start:]))
    if new.attrs is not old.attrs:
        changes += _list_changes(writer, int(at[0]), int(at[1]), old.attrs, new.attrs, "The file")
    if len(new.vars) != n:
        start = int(at[1])
        changes.append((start, start + w.listing.size, writer.listing(VARIABLE, len(new.vars))))
    for i in sorted((*own, *gone)):
        var, start, end = old.vars[i], int(at[i + 2]), int(at[i + 3])
        if i in own:
            start, end = start + len(writer.name(var.name)) + w.number.size * (1 + len(var.dims)), end - w.tail.size
            changes += _list_changes(writer, start, end, var.attrs, own[i], f"Variable {var.name!r}")
        else:
            changes.append((start, end, b""))
    at = _moved(at, changes)
    if gone:
        at = np.delete(at, np.array(gone) + 2)
    if len(new.vars) > kept:
        entries, end = writer.variables(new, new.vars[kept:]), int(known.at[-1])
        ends = np.fromiter(accumulate(map(len, entries)), np.int64, len(entries))
        made = bytearray().join(entries)
        placed = placed and new.vars[kept].begin >= 0
        if placed:
            begins = np.fromiter(map(_begin_of, new.vars[kept:]), np.int64, len(entries))
            _set_begins(made, ends - w.begin, begins, w)
        changes.append((end, end, made))
        at = np.concatenate((at, at[-1] + ends))
    base = known.body()
    known.base, known.changes = b"", ()
    return Encoded(at, _pieces(base, changes), new.vars if placed else None, base, changes)


def _moved(at: npt.NDArray[np.int64], changes: Iterable[_Change]) -> npt.NDArray[np.int64]:
    """Return where objects are after changes; what moves none is looked over."""
    ends, more = list[int](), list[int]()
    for start, end, made in changes:
        if len(made) != end - start:
            ends.append(end)
            more.append(len(made) - (end - start))
    if len(ends) < 2:
        # what most changes are, in a third of the time
        moved = at.copy() if ends else at
        if ends:
            moved[int(at.searchsorted(ends[0])) :] += more[0]
        return moved
    shifts = np.zeros(len(at), np.int64)
    np.add.at(shifts, at.searchsorted(ends), more)
    return at + shifts.cumsum()  # type: ignore[no-any-return]


def _pieces(base: bytes, changes: Iterable[_Change]) -> list[_Piece]:
    """Return the bytes of a header after changes."""
    old, at = memoryview(base), 0
    pieces: list[_Piece] = []
    for start, end, made in changes:
        pieces += (old[at:start], made)
        at = end
    return [*pieces, old[at:]]


def _list_changes(
    writer: _HeaderWriter, start: int, end: int, old: tuple[Attr, ...], new: tuple[Attr, ...], owner: str
) -> list[_Change]:
    """Return what makes one list of attributes, from `start` to `end`, of another one."""
    front = _same_front(old, new)
    if front == len(old):
        # Most changes add attributes at the end: of those that are there nothing is looked at.
        check_attrs(owner, new[front:], writer.version)
        listing = writer.listing(ATTRIBUTE, len(new))
        return [(start, start + len(listing), listing), (end, end, writer.entries(new[front:]))]
    back = _same_front(old[front:][::-1], new[front:][::-1])
    gone, made = old[front : len(old) - back], new[front : len(new) - back]
    begin_of_first = start + writer.w.listing.size
    # What stays is measured on the side where there is less of it.
    if front <= back:
        at = begin_of_first + writer.measure(old[:front])
    else:
        at = end - writer.measure(old[front:])
    found: list[_Change] = []
    if len(old) != len(new):
        found.append((start, begin_of_first, writer.listing(ATTRIBUTE, len(new))))
    seen = 0
    for begin, stop, fresh in _unlike(gone, made):
        check_attrs(owner, fresh, writer.version)
        first = at + writer.measure(gone[seen:begin])
        at, seen = first + writer.measure(gone[begin:stop]), stop
        found.append((first, at, writer.entries(fresh)))
    return found


def _unlike(old: tuple[Attr, ...], new: tuple[Attr, ...]) -> list[tuple[int, int, tuple[Attr, ...]]]:
    """Return which parts of a list of attributes are others in the new one: start, end, and what takes their place.

    What is added or gone is taken for the first of the list; where that does not leave few parts, all is one.
    """
    more = len(new) - len(old)
    gone, added = (0, more) if more >= 0 else (-more, 0)
    parts = [(0, gone)] if more else []
    for i, (one, other) in enumerate(zip(old[gone:], new[added:], strict=True), gone):
        if one is not other and one != other:
            if parts and parts[-1][1] == i:
                parts[-1] = parts[-1][0], i + 1
            elif len(parts) < _MOST_LISTED:
                parts.append((i, i + 1))
            else:
                parts = [(0, len(old))]
                break
    return [(start, stop, new[start + more if start else 0 : stop + more]) for start, stop in parts]


def _same_front(one: tuple[Attr, ...], other: tuple[Attr, ...]) -> int:
    """Return how many attributes are the same from the first one on."""
    low, high = 0, min(len(one), len(other))
    # To compare slices of the same objects takes few nanoseconds for each.
    if one[:high] == other[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low


# ------------------------------------------------------------------------------------------ where two headers differ


def changed_parts(old: bytes, new: bytes, header: Header | None = None) -> Parts:
    """Return where two encoded headers differ: in the number of records, and in a few ranges behind it.

    Parameters
    ----------
    old, new : bytes
    header : Header, optional
        What `new` was just encoded from: if it was made of that of `old`, the bytes are not compared.

    Examples
    --------
    >>> changed_parts(encode(Header(5)), encode(Header(5, 7)))
    [(4, 12, 12)]
    """
    behind = count_end(new)
    n = min(len(old), len(new))
    if old[:4] != new[:4] or n < behind:
        return [(0, len(old), len(new))]
    encoded: Encoded | None = None if header is None else header.facts.encoded
    if encoded is not None and encoded.base is old:
        changes, encoded.base, encoded.changes = encoded.changes, b"", ()
    else:
        changes = [(behind, n, new[behind:n]), (n, len(old), new[n:])]
    found = [(4, behind, behind)] if old[4:behind] != new[4:behind] else []
    for start, end, made in changes:
        if len(made) != end - start:
            # What moves all others is the last part.
            found.append((start, len(old), len(new)))
            break
        unlike = (np.frombuffer(made, "u1") != np.frombuffer(old, "u1", len(made), start)).nonzero()[0] + start
        if len(unlike):
            first, stop = int(unlike[0]), int(unlike[-1]) + 1
            split = (np.diff(unlike) > _GAP).nonzero()[0] if stop - first > _GAP else ()
            ends = [*(int(unlike[i]) + 1 for i in split), stop]
            found += zip([first, *(int(unlike[i + 1]) for i in split)], ends, ends, strict=True)
    return found if len(found) < 2 else _merged(found)


def _merged(parts: Sequence[tuple[int, int, int]]) -> Parts:
    """Return parts without small gaps between them, and no more than a few."""
    gaps = [after[0] - part[2] for part, after in pairwise(parts)]
    least = _GAP if len(gaps) < _MOST_PARTS else max(_GAP, sorted(gaps)[1 - _MOST_PARTS])
    found: list[tuple[int, int, int]] = []
    for part, gap in zip(parts, [least, *gaps], strict=False):
        if gap < least:
            found[-1] = found[-1][0], *part[1:]
        else:
            found.append(part)
    return found


# -------------------------------------------------------------------------------------------------------- the grammar


class _HeaderWriter:
    """Encodes objects; repeated names, and what variables of one kind have in common, are encoded once."""

    def __init__(self, widths: Widths) -> None:
        self.w = widths
        self.version = 5 if widths.width == 8 else 2 if widths.begin == 8 else 1
        self.names: dict[str, bytes] = {}
        # Of variables with these dimensions, attributes and type, what is behind their names.
        self.kinds: dict[tuple[tuple[int, ...], tuple[Attr, ...], int], bytes] = {}
        # The dimensions alone, and what is behind the attributes.
        self.shapes: dict[tuple[tuple[int, ...], int], tuple[bytes, bytes]] = {}

    def header(self, header: Header) -> list[bytes]:
        """Return all pieces: the dimensions, the attributes, the number of variables, the variables."""
        n = len(header.vars)
        pieces = [self.dimensions(header), self.attributes(header.attrs)]
        pieces.append(self.w.listing.pack(VARIABLE if n else ABSENT, n))
        return pieces + self.variables(header, header.vars)

    def dimensions(self, header: Header) -> bytes:
        """Return the beginning of a header, with its dimensions."""
        w = self.w
        n = len(header.dims)
        front = b"CDF" + bytes([header.version]) + w.number.pack(0) + w.listing.pack(DIMENSION if n else ABSENT, n)
        return front + b"".join([self.name(dim.name) + w.number.pack(dim.size) for dim in header.dims])

    def listing(self, tag: int, n: int) -> bytes:
        return self.w.listing.pack(tag if n else ABSENT, n)

    def name(self, text: str) -> bytes:
        raw = text.encode("utf-8", "surrogateescape")
        return self.w.number.pack(len(raw)) + raw + _NUL[len(raw) & 3]

    def attributes(self, attrs: tuple[Attr, ...]) -> bytes:
        pack = self.w.listing.pack
        return pack(ATTRIBUTE, len(attrs)) + self.entries(attrs) if attrs else pack(ABSENT, 0)

    def entries(self, attrs: tuple[Attr, ...]) -> bytes:
        """Return attributes, without their number."""
        names, pack = self.names, self.w.listing.pack
        pieces: list[bytes] = []
        for name, code, nelems, data in attrs:
            head = names.get(name)
            if head is None:
                head = names[name] = self.name(name)
            pieces += (head, pack(code, nelems), data, _NUL[len(data) & 3])
        return b"".join(pieces)

    def measure(self, attrs: tuple[Attr, ...]) -> int:
        """Return the bytes of attributes, without their number."""
        fields = self.w.number.size + self.w.listing.size
        total = 0
        for name, _, _, data in attrs:
            n = len(name) if name.isascii() else len(name.encode("utf-8", "surrogateescape"))
            total += fields + (n + 3 & -4) + (len(data) + 3 & -4)
        return total

    def variables(self, header: Header, chosen: Iterable[Var]) -> list[bytes]:
        """Return variables of a header, one by one, with begins that are 0."""
        pieces: list[bytes] = []
        put, number = pieces.append, self.w.number.pack
        lengths: dict[int, bytes] = {}
        dims: tuple[int, ...] | None = None
        attrs: tuple[Attr, ...] | None = None
        code = -1
        rest = b""
        for var in chosen:
            name = var[0]
            if var[1] is not dims or var[2] is not attrs or var[3] != code:
                _, dims, attrs, code, _ = var
                rest = self.rest(header, var)
            raw = name.encode() if name.isascii() else name.encode("utf-8", "surrogateescape")
            n = len(raw)
            length = lengths.get(n)
            if length is None:
                length = lengths[n] = number(n)
            put(length + raw + _NUL[n & 3] + rest)
        return pieces

    def rest(self, header: Header, var: Var) -> bytes:
        """Return what comes behind the name of a variable and its padding."""
        _, dims, attrs, code, _ = var
        known = self.kinds.get((dims, attrs, code))
        if known is not None:
            return known
        found = self.shapes.get((dims, code))
        if found is None:
            w = self.w
            shape = b"".join(map(w.number.pack, (len(dims), *dims)))
            vsize = (inner_bytes(header, var) + 3) & -4
            last = w.tail.pack(code, 0xFFFFFFFF if w.width == 4 and vsize > 0xFFFFFFFC else vsize, 0)
            found = self.shapes[dims, code] = shape, last
        made = found[0] + self.attributes(attrs) + found[1]
        if len(self.kinds) < _MOST_KNOWN:
            self.kinds[dims, attrs, code] = made
        return made
