"""A file of records can be checked by its reader: one header, then records of 64 bytes, appended and never changed.

Knows: the bytes of such a file. Does not know: files, what the fields of a record mean.

States of the end of such a file, which `RecordWriter` writes and `decode_records` reads:

=========  ==========================  =========  ======================================================================
state      event                       next       on disk, and what a reader makes of it
=========  ==========================  =========  ======================================================================
(none)     a file is made              made       zeros alone: nothing was recorded
made       the header is appended      whole      a header, and behind it no record
whole      a record is being appended  appending  bytes behind the last record that are none yet: torn, and dropped
appending  it and its table are there  whole      one record more
appending  an error, an interruption   whole      the end is cut off, or else the next record is written over it
whole      space is reserved           whole      zeros behind the last record: not even torn
any        a kill                      (same)     as it was: what `Tail` has stored is the kernel's
any        a power failure             (same)     any of the bytes since the last sync: torn where the first is missing,
                                                  damaged if a valid record stands behind that
=========  ==========================  =========  ======================================================================

Rules
-----
1. All numbers are little-endian. Header and records fill multiples of 64 bytes: none crosses a sector of a disk.
2. Only the valid prefix is used: records count up to the first one that is short, has a wrong CRC, or breaks the
   sequence. Valid records after such a one mean damage, and are reported.
3. The file's random id goes into each CRC, so that a record that an earlier use of the file left behind is never valid.
4. A format may have a slot behind the header, which the writer changes in place; no CRC covers it, and what it says is
   believed only as far as something else agrees. The version of a file tells how large it is.
5. Many small pieces are compared with their CRCs at once (`first_wrong`). The CRC of adjacent pieces together follows
   from those of the pieces: each is moved over the bytes behind its piece, a linear operation (zlib's
   ``crc32_combine``), and all are added. So one pass of zlib over some KiB checks all pieces in them. A single wrong
   piece is always found, as its own CRC would find it. Several of one block whose errors cancel out pass with a
   probability of 2^-32, which is that of one wrong piece whose CRC is right by chance.
6. Ranks of a node may share a file in blocks (`Share`), as those of the C library of PnetCDF do
   (``nc_burst_buf_shared_logs``).
7. In some formats a record may have a table: bytes behind it, filled up to a multiple of 64 with zeros. The record has
   their number and their CRC, and counts if the table is whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from struct import Struct
from typing import Any, NamedTuple, Protocol
from zlib import crc32

import numpy as np
import numpy.typing as npt

from pnc_vol.errors import LogError

__all__ = [
    "CRC",
    "RECORD_BODY",
    "RECORD_BYTES",
    "SHARED_BLOCK",
    "SLOT_BYTES",
    "Bytes",
    "ReadData",
    "RecordFormat",
    "RecordHeader",
    "RecordLog",
    "RecordTail",
    "RecordWriter",
    "Share",
    "crc_of_range",
    "decode_header",
    "decode_records",
    "encode_header",
    "encode_record",
    "first_wrong",
]

Bytes = bytes | bytearray | memoryview

ReadData = Callable[[int, int], Bytes]
"""``(offset, nbytes)`` to bytes of a file; fewer where it ends."""

RECORD_BYTES = SLOT_BYTES = 64
RECORD_BODY = Struct("<HHIQQQQQQI")
CRC = Struct("<I")
_TABLE_BYTES_AT = 16
"""Where a record has the number of bytes of its table."""
_HEADER = Struct("<8sII16s16sIIII")
_PLAIN, _WITH_SLOT, _WITH_LARGE_SLOT = 1, 2, 3
"""Versions of a file: of a format without slots; with one of 64 bytes, with one as large as the format says."""

_MOST_PATH = 1 << 16
_CHUNK = 8 << 20
_BLOCK = 64
"""Records whose CRCs are checked at once."""

_RESIDUE = 0x2144DF1C
"""CRC-32 of bytes that end with their own CRC, little-endian."""


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """One kind of record file.

    Parameters
    ----------
    name : str
        What messages call such a file.
    magic : bytes[8]
    kinds : mapping of int to str
        The kinds of records, 1 to 65535, and their names.
    fields : tuple of seven str
        What a record says: an unsigned integer of 32 bits, five of 64 bits, one of 32 bits. In a format with tables the
        first two are ``table_crc`` and ``table_bytes``.
    slot : int
        Bytes of the largest slot that a file may have, a multiple of 64; 0 if none has one.

    Attributes
    ----------
    dtype : dtype
        One record: ``size``, ``kind``, the first field, ``sequence``, the other fields, ``crc``.

    Examples
    --------
    >>> notes = RecordFormat("note log", b"notes...", {1: "note"}, ("a", "b", "c", "d", "e", "f", "g"))
    >>> notes.dtype.itemsize
    64
    """

    name: str
    magic: bytes
    kinds: Mapping[int, str]
    fields: tuple[str, str, str, str, str, str, str]
    slot: int = 0
    dtype: np.dtype[np.void] = field(init=False)

    def __post_init__(self) -> None:
        first, *others = self.fields
        names = ["size", "kind", first, "sequence", *others, "crc"]
        formats = ["<u2", "<u2", "<u4", *6 * ["<u8"], "<u4", "<u4"]
        object.__setattr__(self, "dtype", np.dtype({"names": names, "formats": formats}))

    @property
    def has_tables(self) -> bool:
        """Whether a record may have a table."""
        return self.fields[:2] == ("table_crc", "table_bytes")


class RecordHeader(NamedTuple):
    """The header of a file of records.

    file : bytes[16], identity of the file that the records are about; zeros if they name none.
    rank, num_ranks : int, of the job that wrote.
    path : str, of the file that the records are about. Never followed; a check only.
    log_id : bytes[16], random, new whenever the file is begun.
    """

    file: bytes
    rank: int
    num_ranks: int
    path: str
    log_id: bytes = bytes(16)


class RecordLog(NamedTuple):
    """A decoded file of records.

    header : RecordHeader
    begin : int, where the records begin in the file.
    records : ndarray of `RecordFormat.dtype`, the valid prefix.
    torn_bytes : int, bytes after it that are not just reserved.
    tear : str, what is wrong with the first record that does not count; "" if nothing is.
    later : int, valid records that follow such a one: more than the end is damaged.
    slot : bytes, a multiple of 64; b"" in a format that has none.
    tables : list of memoryview, of each record, filled up to a multiple of 64; none in a format without tables.
    """

    header: RecordHeader
    begin: int
    records: npt.NDArray[np.void]
    torn_bytes: int
    tear: str
    later: int
    slot: bytes = b""
    tables: Sequence[memoryview] = ()

    @property
    def end(self) -> int:
        """Where the valid records end in the file."""
        return self.begin + RECORD_BYTES * len(self.records) + sum(map(len, self.tables))


# ------------------------------------------------------------------------------------------ writing


def encode_header(form: RecordFormat, header: RecordHeader, slot: int = 0) -> bytes:
    """Return the bytes of a header, a multiple of 64, and of an empty slot, of 64 bytes or as many as the format says.

    Raises
    ------
    LogError
        A field does not fit.

    Examples
    --------
    >>> notes = RecordFormat("note log", b"notes...", {1: "note"}, ("a", "b", "c", "d", "e", "f", "g"))
    >>> len(encode_header(notes, RecordHeader(bytes(16), 0, 4, "out.nc")))
    128
    """
    path = header.path.encode("utf-8", "surrogateescape")
    for name, value in (("log_id", header.log_id), ("file", header.file)):
        if len(value) != 16:
            raise LogError(f"{name} is 16 bytes, not {len(value)}", field=name, value=value)
    if not 0 <= header.rank < header.num_ranks < 2**31 or len(path) > _MOST_PATH:
        raise LogError(f"rank {header.rank} of {header.num_ranks}, path of {len(path)} bytes", field="rank")
    size = -(-(_HEADER.size + len(path) + 4) // RECORD_BYTES) * RECORD_BYTES
    version = next(number for number, nbytes in _slots(form).items() if nbytes == slot)
    ids = header.log_id, header.file, header.rank, header.num_ranks
    fields = _HEADER.pack(form.magic, version, size + slot, *ids, len(path), RECORD_BYTES)
    head = (fields + path).ljust(size - 4, b"\0")
    return head + CRC.pack(crc32(head)) + bytes(slot)


def _slots(form: RecordFormat) -> dict[int, int]:
    """Return bytes of the slot in a file of each version that a format may have."""
    return {_WITH_SLOT: SLOT_BYTES, _WITH_LARGE_SLOT: form.slot} if form.slot else {_PLAIN: 0}


def encode_record(seed: int, kind: int, sequence: int, first: int, *others: int) -> bytes:
    """Return one record; nothing is checked.

    Parameters
    ----------
    seed : int, zlib's CRC-32 of the file's id.
    kind : int
    sequence : int, one more than the record before; the first is 1.
    first, others : int, the seven fields in the order of `RecordFormat.fields`.

    Examples
    --------
    >>> len(encode_record(0, 1, 1, 0, 0, 0, 0, 0, 0, 0))
    64
    """
    body = RECORD_BODY.pack(RECORD_BYTES, kind, first, sequence, *others)
    return body + CRC.pack(crc32(body, seed))


class RecordTail(Protocol):
    """The part of `append_log.tail.Tail` that a file of records is written through."""

    end: int

    def append(self, data: bytes) -> None: ...

    def append_head(self, data: bytes) -> None: ...

    def take_back(self, end: int) -> None: ...


class RecordWriter:
    """A file of records that is being written; making one appends the header.

    Parameters
    ----------
    form : RecordFormat
    tail : RecordTail, of an empty file.
    header : RecordHeader; the file gets another id.
    slot : int, see `encode_header`

    Attributes
    ----------
    log_id : bytes[16]
    seed : int, CRC of it.
    begin : int, where the records begin in the file; a slot is right before it.
    sequence : int, of the last record.

    Raises
    ------
    OSError
        There is no room.

    Examples
    --------
    >>> import tempfile
    >>> from pnc_vol.append_log.tail import Tail
    >>> from pnc_vol.system import REAL
    >>> notes = RecordFormat("note log", b"notes...", {1: "note"}, ("a", "b", "c", "d", "e", "f", "g"))
    >>> with tempfile.TemporaryFile() as made:
    ...     writer = RecordWriter(notes, Tail(REAL, made.fileno(), 4096), RecordHeader(bytes(16), 0, 1, "x"))
    ...     writer.add(1, 7, 0, 0, 0, 0, 0, 9)
    ...     found = decode_records(notes, made.read()).records
    >>> found["a"].tolist(), found["g"].tolist()
    ([7], [9])
    """

    __slots__ = ("begin", "log_id", "seed", "sequence", "tail")

    def __init__(self, form: RecordFormat, tail: RecordTail, header: RecordHeader, slot: int = 0) -> None:
        self.tail = tail
        self.log_id = os.urandom(16)
        self.seed = crc32(self.log_id)
        self.sequence = 0
        head = encode_header(form, header._replace(log_id=self.log_id), slot)
        self.begin = len(head)
        tail.append_head(head)

    def add(self, kind: int, *fields: int) -> None:
        """Append a record.

        Raises
        ------
        OSError
            There is no room; no record was added.
        """
        self.add_all(kind, [fields])

    def add_all(self, kind: int, rows: Sequence[tuple[int, ...]]) -> None:
        """Append records of one kind: all, or none.

        Raises
        ------
        OSError
            There is no room; no record was added.
        """
        records = (encode_record(self.seed, kind, self.sequence + i, *row) for i, row in enumerate(rows, 1))
        self._append(b"".join(records), len(rows))

    def add_with_table(self, kind: int, table: Sequence[Bytes], *others: int) -> None:
        """Append a record and its table, in a format with tables: both, or an error and none.

        Parameters
        ----------
        table : sequence of bytes, the pieces of the table.
        others : int, the fields behind ``table_crc`` and ``table_bytes``, which are the first two.

        Raises
        ------
        OSError
            There is no room; no record was added.
        """
        nbytes = sum(map(len, table))
        pieces = (*table, bytes(-nbytes % RECORD_BYTES))
        crc = 0
        for piece in pieces:
            crc = crc32(piece, crc)
        record = encode_record(self.seed, kind, self.sequence + 1, crc, nbytes, *others)
        self._append(b"".join((record, *pieces)), 1)

    def _append(self, data: bytes, count: int) -> None:
        tail, end, sequence = self.tail, self.tail.end, self.sequence
        try:
            tail.append(data)
            self.sequence += count
        except BaseException:
            # An interrupt may come behind the append: two records with one sequence number would count as damage. It
            # may come before the end is moved, too: what then lies behind the end would look like a record under way.
            self.sequence = sequence
            tail.take_back(end)
            raise


# ------------------------------------------------------------------------------------------ reading


def decode_records(form: RecordFormat, data: Bytes) -> RecordLog:
    """Decode a file of records.

    Raises
    ------
    LogError
        Its header is cut off or wrong.

    Examples
    --------
    >>> notes = RecordFormat("note log", b"notes...", {1: "note"}, ("a", "b", "c", "d", "e", "f", "g"))
    >>> head = encode_header(notes, RecordHeader(bytes(16), 0, 1, "out.nc"))
    >>> record = encode_record(crc32(bytes(16)), 1, 1, 0, 0, 0, 0, 0, 0, 0)
    >>> found = decode_records(notes, head + record + b"torn")
    >>> found.records["sequence"].tolist(), found.torn_bytes
    ([1], 4)
    """
    header, begin = decode_header(form, data)
    view, seed = memoryview(data)[begin:], crc32(header.log_id)
    records, tables = _apart(form, view)
    whole = np.frombuffer(records, form.dtype)
    right = _right_crcs(records, whole.size, seed)
    valid = (whole["size"] == RECORD_BYTES) & np.isin(whole["kind"], list(form.kinds))
    valid &= whole["sequence"] == np.arange(1, whole.size + 1)
    valid[right:] = False
    n = int(valid.argmin()) if not valid.all() else whole.size
    # A record whose table is not whole was being appended.
    have = zip(tables[:n], whole["table_crc"][:n].tolist(), strict=True) if tables else ()
    counted = next((i for i, (table, crc) in enumerate(have) if crc32(table) != crc), n)
    found = RecordLog(header, begin, whole[:counted], 0, "", 0, tables=tables[:counted])
    at = found.end - begin
    torn, tear, later = len(view) - at, "", 0
    if not np.frombuffer(view[at:], np.uint8).any():
        # Space that the writer had reserved, and did not come to use.
        torn = 0
    if torn:
        what = "is cut off" if n == whole.size else "is wrong" if n == right else "breaks the sequence"
        what = what if counted == n else "has no whole table"
        tear = f"record {counted + 1} at byte {begin + at} {what}; the last {torn} bytes are dropped"
        behind = at + RECORD_BYTES * (counted < n)
        places = range(behind, len(view) // RECORD_BYTES * RECORD_BYTES, RECORD_BYTES)
        later = sum(crc32(view[at : at + RECORD_BYTES], seed) == _RESIDUE for at in places)
    slot = bytes(data[begin - _slots(form)[_HEADER.unpack_from(data)[1]] : begin])
    return found._replace(torn_bytes=torn, tear=tear, later=later, slot=slot)


def _apart(form: RecordFormat, view: memoryview) -> tuple[memoryview, list[memoryview]]:
    """Return the records one behind another, as if all were right, and their tables; none of a format without
    tables."""
    if not form.has_tables:
        return view[: len(view) // RECORD_BYTES * RECORD_BYTES], []
    records: list[memoryview] = []
    tables: list[memoryview] = []
    at = 0
    while at + RECORD_BYTES <= len(view) and (not records or records[-1][0] == RECORD_BYTES):
        records.append(view[at : at + RECORD_BYTES])
        at += RECORD_BYTES
        nbytes = int.from_bytes(records[-1][_TABLE_BYTES_AT:][:8], "little")
        tables.append(view[at : at + nbytes + -nbytes % RECORD_BYTES])
        at += len(tables[-1])
    return memoryview(b"".join(records)), tables


def _right_crcs(records: memoryview, count: int, seed: int) -> int:
    """Return how many records, from the first, have the right CRC: looked at one by one only in a block where one has
    not.

    Bytes that end with their own CRC have the same CRC, whatever they are, and so have so many records: an error in one
    of them always shows, as it would in its own CRC.
    """
    nothing = crc32(bytes(RECORD_BYTES))
    alike = _RESIDUE ^ crc32(bytes(RECORD_BYTES), seed) ^ nothing
    block = 0
    for _ in range(_BLOCK):
        block = crc32(bytes(RECORD_BYTES), block) ^ nothing ^ alike
    first, step = 0, _BLOCK * RECORD_BYTES
    while first + _BLOCK <= count and crc32(records[first * RECORD_BYTES :][:step]) == block:
        first += _BLOCK
    while first < count and crc32(records[first * RECORD_BYTES :][:RECORD_BYTES], seed) == _RESIDUE:
        first += 1
    return first


def decode_header(form: RecordFormat, data: Bytes) -> tuple[RecordHeader, int]:
    """Return the header of a file of records, and where the records begin.

    Raises
    ------
    LogError
        It is cut off or wrong.
    """
    name = form.name
    if len(data) < 2 * RECORD_BYTES:
        raise LogError(f"a {name} of {len(data)} bytes ends inside its header", offset=len(data), field="header")
    fields: tuple[Any, ...] = _HEADER.unpack_from(data)
    magic, version, size, log_id, file, rank, ranks, length, record = fields
    slots = _slots(form)
    slot = slots.get(version, 0)
    for offset, what, value, right in (
        (0, "magic", magic, magic == form.magic),
        (8, "version", version, version in slots),
        (12, "header_bytes", size, 2 * RECORD_BYTES + slot <= size <= len(data) and size % RECORD_BYTES == 0),
        (48, "rank", rank, rank < ranks),
        (56, "path_len", length, length <= size - slot - _HEADER.size - 4),
        (60, "record_bytes", record, record == RECORD_BYTES),
    ):
        if not right:
            raise LogError(f"{what} of the {name} is {value!r}", offset=offset, field=what, value=value)
    at = size - slot - 4
    (crc,) = CRC.unpack_from(data, at)
    if crc32(memoryview(data)[:at]) != crc:
        raise LogError(f"the header of the {name} has a wrong CRC", offset=at, field="crc", value=crc)
    path = bytes(data[_HEADER.size : _HEADER.size + length]).decode("utf-8", "surrogateescape")
    return RecordHeader(file, rank, ranks, path, log_id), size


def crc_of_range(read: ReadData, begin: int, end: int, crc: int = 0) -> int | None:
    """Return zlib's CRC-32 of the bytes of a file between two offsets, read piece by piece; None if the file is
    shorter.

    Parameters
    ----------
    crc : int, of the bytes before them, to go on with.

    Examples
    --------
    >>> crc_of_range(lambda at, n: b"abcd"[at : at + n], 1, 4) == crc32(b"bcd")
    True
    """
    while begin < end:
        piece = read(begin, min(_CHUNK, end - begin))
        if not len(piece):
            return None
        crc, begin = crc32(piece, crc), begin + len(piece)
    return crc


# ------------------------------------------------------------------------------------ bytes of ranks that share a file


SHARED_BLOCK = 8 << 20
"""Bytes of a block in a file that several ranks of a node share."""


class Share(NamedTuple):
    """A file that the ranks of a node share: block i of rank c of n is block ``i * n + c`` of the file.

    channel, channels : int, c and n.
    """

    channel: int
    channels: int

    def pieces(self, offset: int, nbytes: int) -> list[tuple[int, int]]:
        """Return where bytes of a rank's own log stand in the file: (offset, nbytes) pairs.

        >>> Share(1, 2).pieces(SHARED_BLOCK - 8, 16) == [(2 * SHARED_BLOCK - 8, 8), (3 * SHARED_BLOCK, 8)]
        True
        """
        pieces, end = [], offset + nbytes
        while offset < end:
            number, inside = divmod(offset, SHARED_BLOCK)
            length = min(SHARED_BLOCK - inside, end - offset)
            pieces.append(((number * self.channels + self.channel) * SHARED_BLOCK + inside, length))
            offset += length
        return pieces

    def size_of(self, physical: int) -> int:
        """Return the number of bytes that a rank may have in a file of so many bytes."""
        rounds, rest = divmod(physical, self.channels * SHARED_BLOCK)
        return rounds * SHARED_BLOCK + min(max(rest - self.channel * SHARED_BLOCK, 0), SHARED_BLOCK)

    def part_of(self, whole: bytes | memoryview) -> bytes:
        """Return a rank's own bytes of a whole file."""
        return b"".join(whole[at : at + n] for at, n in self.pieces(0, self.size_of(len(whole))))

    def cuts(self, offset: int, end: int) -> bool:
        """Return whether bytes of one post lie in two blocks."""
        return offset // SHARED_BLOCK != (end - 1) // SHARED_BLOCK


# --------------------------------------------------------------------------------------------------- many CRCs at once


CRCs = npt.NDArray[np.uint32]
Int64 = npt.NDArray[np.int64]

BLOCK = 4 << 10
"""Bytes of pieces compared at once: a call of zlib then costs little, and a CRC is moved by 12 bits at most."""


def first_wrong(data: memoryview, bounds: Int64, crcs: CRCs) -> int:
    """Return the first piece that has not the CRC that it should have; their number if all are right.

    Parameters
    ----------
    data : memoryview of bytes
    bounds : int64[n + 1], increasing: piece i is ``data[bounds[i] : bounds[i + 1]]``.
    crcs : uint32[n], of the pieces, as zlib has them.

    Examples
    --------
    >>> pieces = [b"ab", b"", b"cde", b"f"]
    >>> bounds = np.array([0, 2, 2, 5, 6])
    >>> crcs = np.array([crc32(piece) for piece in pieces], np.uint32)
    >>> first_wrong(memoryview(b"abcdef"), bounds, crcs), first_wrong(memoryview(b"abcdeF"), bounds, crcs)
    (4, 3)
    """
    if not len(crcs):
        return 0
    begin, end = bounds[:-1], bounds[1:]
    large = end - begin > BLOCK
    opens = np.diff(begin // BLOCK, prepend=-1) > 0
    opens |= large
    opens[1:] |= large[:-1]
    firsts = np.flatnonzero(opens)
    lasts = np.append(firsts[1:], len(crcs))
    behind = np.repeat(end[lasts - 1], lasts - firsts) - end
    sums = np.bitwise_xor.reduceat(_moved(crcs, behind), firsts).tolist()
    blocks = zip(firsts.tolist(), begin[firsts].tolist(), end[lasts - 1].tolist(), sums, strict=True)
    for first, low, high, wanted in blocks:
        if crc32(data[low:high]) != wanted:
            pieces = zip(bounds[first:-1].tolist(), bounds[first + 1 :].tolist(), crcs[first:].tolist(), strict=True)
            return first + next(i for i, (a, b, crc) in enumerate(pieces) if crc32(data[a:b]) != crc)
    return len(crcs)


def _moved(crcs: CRCs, behind: Int64) -> CRCs:
    """Return what each CRC adds to that of bytes which go on for `behind` bytes after its piece."""
    found = crcs.copy()
    for bit in range(int(behind.max()).bit_length()):
        some = np.flatnonzero(behind >> bit & 1)
        of = found[some].view(np.uint8).reshape(-1, 4)
        first, second, third, fourth = _over_zeros(bit)
        found[some] = first[of[:, 0]] ^ second[of[:, 1]] ^ third[of[:, 2]] ^ fourth[of[:, 3]]
    return found


@cache
def _over_zeros(bit: int) -> CRCs:
    """Return uint32[4, 256]: what each byte of a CRC, in this machine's order, becomes when ``2**bit`` bytes follow."""
    zeros = bytes(1 << bit)
    none = crc32(zeros)
    tables = np.zeros((4, 256), np.uint32)
    of_bytes = np.array([1], "u4").view(np.uint8)
    order = range(4) if of_bytes[0] else range(3, -1, -1)
    for place, table in zip(order, tables, strict=True):
        for k in range(8):
            table[1 << k : 2 << k] = table[: 1 << k] ^ np.uint32(crc32(zeros, 1 << (8 * place + k)) ^ none)
    return tables
