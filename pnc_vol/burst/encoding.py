"""`encode_header` and its siblings write the bytes of a metadata log in PnetCDF's documented layout.

Knows: PnetCDF's documented grammar, byte for byte. Does not know: files, variables, what a request is for, nor the
layouts that other writers use (`decoding` reads them).

Rules
-----
1. The documented layout as it is spelled: lengths of strings are INT32, strings are padded to 4 bytes and have no NUL
   of their own, entries follow the header at once, stride is there for ``vars`` alone.
2. The digit of the magic tells which bytes follow: ``PnetCDF1`` is this layout. The C library writes ``PnetCDF0``
   over other bytes.
3. An entry is 40 bytes and its coordinates. (The document also says 48; its own list of fields adds up to 40.)

Source: PnetCDF, README.burst_buffering.md, "Metadata file format".
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from struct import Struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.errors import LogError
from pnc_vol.extents.model import Int64

__all__ = [
    "CDF5",
    "DATA_MAGIC",
    "FIRST_DATA",
    "ITYPES",
    "KINDS",
    "LEAST_ENTRY",
    "LONG",
    "MAX_NDIMS_AT",
    "META_MAGIC",
    "NATIVE",
    "NUM_ENTRIES_AT",
    "VAR",
    "VAR1",
    "VARA",
    "VARS",
    "LogEntry",
    "LogHeader",
    "encode_header",
    "encode_vara",
    "encode_varn",
    "encode_vars",
    "itype_of",
    "row_packer",
]

META_MAGIC = DATA_MAGIC = b"PnetCDF1"
"""First bytes of both logs. The digit tells the layout."""

FIRST_DATA = len(DATA_MAGIC)
"""Where the data of the first entry starts in the data log."""

LEAST_ENTRY = 56
"""Bytes of an entry of a variable with one dimension."""

CDF5 = b"CDF5\0\0\0\0"
"""``format`` of a log for a CDF-5 file."""

NATIVE = "<" if sys.byteorder == "little" else ">"

VAR, VAR1, VARA, VARS = -1, -2, -3, -4
KINDS = {VAR: "var", VAR1: "var1", VARA: "vara", VARS: "vars"}
"""Names of the codes of ``api_kind`` below zero; a number above zero is ``varn`` with that many sub-requests."""

LONG = 13
"""``itype`` of a C ``long``: in the C library, not in its document."""

ITYPES = {
    1: "S1", 2: "i1", 3: "u1", 4: "i2", 5: "u2", 6: "i4", 7: "u4", 8: "f4", 9: "f8", 10: "i8", 11: "u8", LONG: "i8",
}  # fmt: skip
"""numpy's type of each code of ``itype``, the type of the values in memory."""

_CODES = {np.dtype(text).str[1:]: code for code, text in ITYPES.items() if code != LONG}

MAX_NDIMS_AT, NUM_ENTRIES_AT = 40, 48
"""Offsets of ``max_ndims`` and ``num_entries`` in a header of this layout."""


class LogHeader(NamedTuple):
    """The header of a metadata log.

    path : str, the file that the log is for, as its user named it. Never followed; a check only.
    processor : str, name of the node.
    num_ranks, rank_id : int, ranks of the job, and whose log this is.
    max_ndims : int, the most dimensions of any entry.
    num_entries : int, entries that the log says it holds.
    entry_begin : int, offset of the first entry; `encode_header` finds it itself.
    byteorder : str, ``"<"`` or ``">"``, of all numbers in both logs.
    is_external : bool, data is in the file's type and big-endian already.
    format : bytes[8], kind of file, `CDF5` for ours.
    version : int, the digit of the magic.
    """

    path: str
    processor: str = ""
    num_ranks: int = 1
    rank_id: int = 0
    max_ndims: int = 0
    num_entries: int = 0
    entry_begin: int = 0
    byteorder: str = NATIVE
    is_external: bool = False
    format: bytes = CDF5
    version: int = 1

    @property
    def big_endian(self) -> bool:
        """True if numbers are big-endian."""
        return self.byteorder == ">"


@dataclass(frozen=True, slots=True, eq=False)
class LogEntry:
    """One entry: a write of one variable.

    kind : str, ``"var"``, ``"var1"``, ``"vara"``, ``"vars"`` or ``"varn"``.
    itype : int, type of the values in memory, a key of `ITYPES`.
    varid, ndims : int
    data_off, data_len : int, bytes of its values in the data log.
    start, count : int64[n, ndims], one row for each sub-request of ``varn``, else one. A ``var`` without coordinates
        has counts of -1: the whole of each dimension.
    stride : int64[ndims] or None, of ``vars``.
    offset, size : int, where the entry stands in the metadata log.
    """

    kind: str
    itype: int
    varid: int
    ndims: int
    data_off: int
    data_len: int
    start: Int64
    count: Int64
    stride: Int64 | None = None
    offset: int = 0
    size: int = 0


def itype_of(dtype: npt.DTypeLike) -> int:
    """Return the code of a numpy type.

    Raises
    ------
    LogError
        The log has no such type.

    Examples
    --------
    >>> itype_of("f8"), itype_of("S1")
    (9, 1)
    """
    try:
        return _CODES[np.dtype(dtype).str[1:]]
    except KeyError:
        raise LogError(f"a log holds no values of type {np.dtype(dtype)}", field="itype", value=dtype) from None


# ------------------------------------------------------------------------------------------ writing


def encode_header(header: LogHeader) -> bytes:
    """Return the bytes of a header; the first entry follows them.

    Parameters
    ----------
    header : LogHeader
        ``entry_begin`` and ``version`` are not used: the first is what it comes to, the second 1.

    Raises
    ------
    LogError
        A field does not fit.

    Examples
    --------
    >>> len(encode_header(LogHeader("out.nc", "node1")))
    88
    """
    order = header.byteorder
    names = b"".join(
        _name(text, order, field) for text, field in ((header.path, "basename"), (header.processor, "proc_name"))
    )
    if len(header.format) != 8:
        raise LogError(f"format is 8 bytes, not {header.format!r}", offset=8, field="format", value=header.format)
    numbers = (header.num_ranks, header.rank_id, header.max_ndims, header.num_entries, 64 + len(names))
    for field, number in zip(("num_ranks", "rank_id", "max_ndims", "num_entries"), numbers, strict=False):
        if not 0 <= number < 2**63:
            raise LogError(f"{field} cannot be {number}", field=field, value=number)
    flags = (int(header.big_endian), int(header.is_external))
    return Struct(f"{order}8s8s2i5q").pack(META_MAGIC, header.format, *flags, *numbers) + names


def _name(text: str, order: str, field: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    if b"\0" in data:
        raise LogError(f"{field} {text!r} holds a NUL", field=field, value=text)
    return Struct(f"{order}i").pack(len(data)) + data + bytes(-len(data) % 4)


@cache
def _vara_packer(ndims: int) -> Callable[..., bytes]:
    return Struct(f"{NATIVE}q4i2q{2 * ndims}q").pack


def row_packer(itype: int, varid: int, rest: Sequence[int]) -> tuple[bytes, Callable[..., bytes], bytes]:
    """Return what makes the ``vara`` entries of one row of a variable, or of some elements of one that has one
    dimension.

    Parameters
    ----------
    rest : lengths of all dimensions but the first.

    Returns
    -------
    head : bytes[24], what is in front of data_off.
    pack : callable of data_off, data_len, the first index, and what follows it.
        What follows it is a number of elements if there is one dimension, else `row`.
    row : bytes

    Examples
    --------
    >>> _, pack, row = row_packer(9, 0, (6,))
    >>> pack(8, 48, 3, row) == encode_vara(9, 0, (3, 0), (1, 6), 8, 48)
    True
    """
    # Packing the numbers takes most of the time, so the fields that all posts share are packed once.
    n = len(rest)
    head = Struct(f"{NATIVE}q4i").pack(56 + 16 * n, VARA, itype, varid, 1 + n)
    row = Struct(f"{NATIVE}{2 * n + 1}q").pack(*(0,) * n, 1, *rest)
    return head, partial(Struct(f"{NATIVE}24s3q{f'{len(row)}s' if n else 'q'}").pack, head), row


def encode_vara(
    itype: int, varid: int, start: Sequence[int], count: Sequence[int], data_off: int, data_len: int
) -> bytes:
    """Return one ``vara`` entry in native byte order: the way of nearly every post, so nothing is checked.

    Examples
    --------
    >>> len(encode_vara(9, 0, (0, 0), (2, 6), 8, 96))
    72
    """
    n = len(start)
    return _vara_packer(n)(40 + 16 * n, VARA, itype, varid, n, data_off, data_len, *start, *count)


def encode_vars(
    itype: int,
    varid: int,
    start: Sequence[int],
    count: Sequence[int],
    stride: Sequence[int],
    data_off: int,
    data_len: int,
) -> bytes:
    """Return one ``vars`` entry.

    Examples
    --------
    >>> len(encode_vars(4, 3, [0], [3], [2], 128, 6))
    64
    """
    n = len(start)
    pack = Struct(f"{NATIVE}q4i2q{3 * n}q").pack
    return pack(40 + 24 * n, VARS, itype, varid, n, data_off, data_len, *start, *count, *stride)


def encode_varn(
    itype: int, varid: int, starts: npt.ArrayLike, counts: npt.ArrayLike, data_off: int, data_len: int
) -> bytes:
    """Return one ``varn`` entry.

    Parameters
    ----------
    itype, varid : int
    starts, counts : int64[n, ndims], one row for each sub-request, in the order of the data; n at least 1.
    data_off, data_len : int, bytes of the values in the data log.

    Raises
    ------
    LogError
        The arrays do not fit each other.

    Examples
    --------
    >>> len(encode_varn(9, 0, [[3, 0], [3, 2]], [[1, 1], [1, 1]], 138, 16))
    104
    """
    start, count = (np.asarray(a, np.int64) for a in (starts, counts))
    if start.ndim != 2 or start.shape != count.shape or not 1 <= start.shape[0] < 2**31:
        raise LogError(f"starts {start.shape} and counts {count.shape} must be two arrays (n, ndims)", field="start")
    n, ndims = start.shape
    fixed = Struct(f"{NATIVE}q4i2q").pack(40 + 16 * start.size, n, itype, varid, ndims, data_off, data_len)
    return fixed + start.tobytes() + count.tobytes()
