"""`read_log` decodes the bytes of a metadata log into a `Log`, whichever program wrote it.

Knows: the three layouts, what each release of the C library really writes, and how to tell them apart. Does not know:
files, commit logs, what is to be replayed.

Rules
-----
1. A header that contradicts itself is a `LogError`. Entries are followed as far as they are valid; what is left
   is reported among the findings and in ``torn_bytes``.
2. The byte order is taken from ``num_ranks``, which makes sense in one order only. The flag then tells the old layout,
   where its meaning is the other way round.
3. ``PnetCDF1`` is the documented layout. ``PnetCDF0`` may be any: each way to read the header that holds together is
   tried, and the one that leads to the most entries is right.

Source: PnetCDF, README.burst_buffering.md, its older form, and behaviour of its releases 1.10 to 1.15.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from struct import Struct
from typing import NamedTuple, NoReturn

import numpy as np

from pnc_vol.append_log.records import SHARED_BLOCK, Bytes
from pnc_vol.burst.encoding import LogHeader
from pnc_vol.burst.entries import NEW, OLD, OLDEST, Entries, Fault, Form, follow
from pnc_vol.errors import LogError
from pnc_vol.format.model import Finding

__all__ = ["Log", "count_channels", "read_log"]

_FIXED = 64
"""Bytes of every header before its strings."""

_FORMATS = (b"CDF", b"\x89HDF\r\n\x1a\n", b"BP")


class Log(NamedTuple):
    """A decoded metadata log.

    header : LogHeader, with the count and the begin that are meant, wherever the writer put them.
    entries : Entries, all that can be believed, also those beyond the count.
    layout : str, ``"documented"``, ``"c-library"`` or ``"older"``.
    writer : str, who writes such bytes, as far as they tell.
    findings : tuple of Finding, what is odd. Whether it is damage `recovery.scan` says, which knows the commit log.
    torn_bytes : int, bytes after the last entry, dropped.
    counted : int, entries that the header counts and that are there.
    meta : bytes-like, what was decoded.
    """

    header: LogHeader
    entries: Entries
    layout: str
    writer: str
    findings: tuple[Finding, ...]
    torn_bytes: int
    counted: int
    meta: Bytes


class _HeaderReading(NamedTuple):
    """One interpretation of the bytes of a header."""

    layout: str
    writer: str
    header: LogHeader
    form: Form = NEW
    kinds: dict[int, int] | None = None
    itypes: dict[int, int] | None = None
    note: str = ""


def read_log(meta: Bytes, data_size: int) -> Log:
    """Decode a metadata log.

    Parameters
    ----------
    meta : bytes-like
        The whole metadata log, of one rank.
    data_size : int
        Bytes of the data log beside it.

    Raises
    ------
    LogError
        It is no log, its header contradicts itself, or it is one that several ranks share.

    Examples
    --------
    >>> from pnc_vol.burst.encoding import encode_header, encode_vara
    >>> header = encode_header(LogHeader("out.nc", num_entries=1))
    >>> log = read_log(header + encode_vara(9, 0, (0, 0), (2, 6), 8, 96), 104)
    >>> log.layout, log.counted, log.entries[0].kind
    ('documented', 1, 'vara')
    """
    order, flag, version = _start(meta)
    refused: list[LogError] = []
    best: tuple[_HeaderReading, Entries, Fault | None] | None = None
    for reading in _readings(meta, order, flag, version, refused):
        entries, fault = follow(
            meta,
            reading.header.entry_begin,
            data_size=data_size,
            byteorder=order,
            form=reading.form,
            contiguous=reading.layout == "c-library",
            external=reading.header.is_external,
            kinds=reading.kinds,
            itypes=reading.itypes,
        )
        if best is None or len(entries) > len(best[1]):
            best = reading, entries, fault
    if best is None:
        raise refused[0]
    if (
        best[0].layout == "c-library"
        and len(meta) >= SHARED_BLOCK + 8
        and meta[SHARED_BLOCK : SHARED_BLOCK + 7] == b"PnetCDF"
    ):
        _refuse(
            SHARED_BLOCK,
            "magic",
            bytes(meta[SHARED_BLOCK : SHARED_BLOCK + 8]),
            "begins the log of another rank: separate the logs of the ranks first",
        )
    return _log(meta, *best)


def _log(meta: Bytes, reading: _HeaderReading, entries: Entries, fault: Fault | None) -> Log:
    header, found = reading.header, []
    counted = min(header.num_entries, len(entries))
    if reading.note:
        found.append(Finding("warning", 56, "entry_begin", header.num_entries, reading.note))
    end = int(entries.end[-1]) if len(entries) else header.entry_begin
    torn = len(meta) - end
    if torn >= 8 and not np.frombuffer(meta, np.uint8, torn, end).any():
        # The writer reserves space ahead, so zeros at the end are no damage.
        torn, fault = 0, None
    if fault is not None:
        text = f"{fault.message}; the last {torn} bytes are dropped"
        found.append(Finding("warning", fault.offset, fault.field, fault.value, text))
    return Log(header, entries, reading.layout, reading.writer, tuple(found), torn, counted, meta)


# -------------------------------------------------------------------------------------------- header


def _refuse(offset: int, field: str, value: object, what: str) -> NoReturn:
    raise LogError(f"{field} at byte {offset} is {value!r}: it {what}", offset=offset, field=field, value=value)


def _start(meta: Bytes) -> tuple[str, bytes, int]:
    """Return byte order, the flag's four bytes, the digit."""
    if len(meta) < _FIXED + 4:
        raise LogError(
            f"a log of {len(meta)} bytes ends inside its header", offset=len(meta), field="header", value=len(meta)
        )
    magic, kind = bytes(meta[:8]), bytes(meta[8:16])
    if magic[:7] != b"PnetCDF" or not 0x30 <= magic[7] <= 0x39:
        _refuse(0, "magic", magic, "is not that of a burst-buffer log (PnetCDF and a digit)")
    if magic[7:] not in b"01":
        _refuse(0, "magic", magic, "has an unknown version")
    if not kind.startswith(_FORMATS):
        _refuse(8, "format", kind, "is neither CDF, nor HDF5, nor BP")
    for order in "<>":
        (ranks,) = Struct(f"{order}q").unpack_from(meta, 24)
        if 0 < ranks < 2**31:
            return order, bytes(meta[16:20]), magic[7] - 0x30
    _refuse(24, "num_ranks", bytes(meta[24:32]), "is not a number of ranks in either byte order")


def _readings(meta: Bytes, order: str, flag: bytes, version: int, refused: list[LogError]) -> Iterator[_HeaderReading]:
    """Return all consistent interpretations of the header, the likeliest first."""
    big = order == ">"
    new = flag == (b"\0\0\0\1" if big else bytes(4))
    old = flag == bytes(4) if big else flag in (b"\0\0\0\1", b"\1\0\0\0")
    if not new and not (old and version == 0):
        _refuse(16, "big_endian", flag, f"contradicts num_ranks, which is {'big' if big else 'little'}-endian")
    ways: list[Callable[[Bytes, str, int], Iterator[_HeaderReading]]]
    if new:
        ways = [_documented] if version == 1 else [*_C_LIBRARY, _first_release, _documented]
    else:
        ways = [_older]
    for way in ways:
        try:
            yield from way(meta, order, version)
        except LogError as error:
            refused.append(error)


class _Cursor:
    """A place in the header; every length is compared with the bytes that are left."""

    def __init__(self, meta: Bytes, order: str) -> None:
        self.meta, self.order, self.at = meta, order, _FIXED

    def number(self, field: str, kind: str = "i") -> int:
        reader = Struct(self.order + kind)
        if self.at + reader.size > len(self.meta):
            _refuse(self.at, field, len(self.meta) - self.at, "is all that remains of the header")
        value = int(reader.unpack_from(self.meta, self.at)[0])
        self.at += reader.size
        return value

    def text(self, field: str, length: int, after: int) -> str:
        """Return `length` bytes and `after` bytes of NUL."""
        at = self.at
        if not 0 <= length <= len(self.meta) - at - after:
            _refuse(at, f"{field} length", length, f"is more than the {len(self.meta) - at} bytes that are left")
        data = bytes(self.meta[at : at + length])
        if b"\0" in data:
            _refuse(at, field, data, "holds a NUL")
        self.at += length
        self.zeros(field, after)
        return data.decode("utf-8", "surrogateescape")

    def zeros(self, field: str, n: int) -> None:
        data = bytes(self.meta[self.at : self.at + n])
        if data != bytes(n):
            _refuse(self.at, f"padding of {field}", data, f"should be {n} bytes of NUL")
        self.at += n

    def padded(self, field: str) -> str:
        """Return INT32 length, bytes, NUL to the next multiple of 4: a name of the documents."""
        length = self.number(f"{field} length")
        return self.text(field, length, -length % 4)


def _header(cursor: _Cursor, version: int, path: str, processor: str, ndims: int, count: int, begin: int) -> LogHeader:
    """Make the header, after the checks that all layouts share."""
    meta, order = cursor.meta, cursor.order
    (external,) = Struct(f"{order}i").unpack_from(meta, 20)
    ranks, rank = Struct(f"{order}2q").unpack_from(meta, 24)
    if external not in (0, 1):
        _refuse(20, "is_external", external, "is neither 0 nor 1")
    if not 0 <= rank < ranks:
        _refuse(32, "rank_id", rank, f"is not one of the ranks: there are {ranks}")
    for field, value in (("num_entries", count), ("max_ndims", ndims)):
        if value < 0:
            _refuse(56, field, value, "is below zero")
    if not cursor.at <= begin <= len(meta):
        _refuse(56, "entry_begin", begin, f"is not between the header's end, {cursor.at}, and the log's, {len(meta)}")
    return LogHeader(
        path, processor, ranks, rank, ndims, count, begin, order, bool(external), bytes(meta[8:16]), version
    )


def _fields(meta: Bytes, order: str) -> tuple[int, int, int]:
    """Return the three numbers at 40, 48 and 56."""
    first, second, third = Struct(f"{order}3q").unpack_from(meta, 40)
    return first, second, third


def _documented(meta: Bytes, order: str, version: int) -> Iterator[_HeaderReading]:
    cursor = _Cursor(meta, order)
    path, processor = cursor.padded("basename"), cursor.padded("proc_name")
    ndims, count, begin = _fields(meta, order)
    yield _HeaderReading(
        "documented", "pnc_vol" if version else "", _header(cursor, version, path, processor, ndims, count, begin)
    )


def _c_library(
    meta: Bytes, order: str, version: int, *, width: str, writer: str, rounded: int
) -> Iterator[_HeaderReading]:
    """Read the C library's layout: one NUL ends a string, a length is not aligned, the count is in entry_begin."""
    cursor = _Cursor(meta, order)
    path = cursor.text("basename", cursor.number("basename length", width), 1)
    processor = cursor.text("proc_name", cursor.number("proc_name length"), 1)
    # The writer adds the strings to the size of its C struct, whose last field is padded to 8 or 4 bytes.
    spare = 8 if width == "q" else 4
    begin = -(-(cursor.at + spare) // rounded) * rounded
    cursor.zeros("header", begin - cursor.at)
    _, _, count = _fields(meta, order)
    note = "the number of entries is in place of entry_begin, as the C library writes it"
    header = _header(cursor, version, path, processor, 0, count, begin)
    yield _HeaderReading("c-library", writer, header, note=note)


_C_LIBRARY = [
    partial(_c_library, width="q", rounded=16, writer="PnetCDF 1.13 or later"),
    partial(_c_library, width="i", rounded=16, writer="PnetCDF 1.12.3"),
    partial(_c_library, width="i", rounded=4, writer="PnetCDF 1.11 to 1.12.2"),
]


def _first_release(meta: Bytes, order: str, version: int) -> Iterator[_HeaderReading]:
    """Read the first release's layout: fields as in the older document, entries as today, kinds above zero."""
    cursor = _Cursor(meta, order)
    length = cursor.number("basename length")
    path = cursor.text("basename", length, 4 + -length % 4)
    begin, ndims, count = _fields(meta, order)
    if begin != cursor.at:
        _refuse(40, "entry_begin", begin, f"is not {cursor.at}, where the header ends")
    header = _header(cursor, version, path, "", ndims, count, begin)
    yield _HeaderReading("c-library", "PnetCDF 1.10", header, kinds={-kind: kind for kind in (-1, -2, -3, -4)})


def _older(meta: Bytes, order: str, version: int) -> Iterator[_HeaderReading]:
    cursor = _Cursor(meta, order)
    path = cursor.padded("basename")
    begin, ndims, count = _fields(meta, order)
    swapped = {2: 3, 3: 2}
    # "Not used", says the document of entries_offset: where it cannot be right, entries follow the header.
    for at in (begin, cursor.at) if cursor.at < begin <= len(meta) else (cursor.at,):
        header = _header(cursor, version, path, "", ndims, count, at)
        for form in (OLD, OLDEST):
            yield _HeaderReading("older", f"entries of {form.name}", header, form, itypes=swapped)


# -------------------------------------------------------------------------------- logs that ranks share


def count_channels(meta: Bytes, *, block: int = SHARED_BLOCK) -> int:
    """Count the ranks that share a metadata log of the C library by their headers, at the start of their first blocks.

    Parameters
    ----------
    meta : bytes-like, the shared metadata log.
    block : int, bytes of a block.

    Examples
    --------
    >>> count_channels(b"PnetCDF0" + bytes(24) + b"PnetCDF0", block=32)
    2
    """
    starts = range(0, len(meta), block)
    return next((i for i, at in enumerate(starts) if bytes(meta[at : at + 8]) != b"PnetCDF0"), len(starts))
