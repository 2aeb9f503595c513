"""Commit records beside the two logs: which of their bytes are whole, cancelled, or in the file already.

Knows: the bytes of the commit log file. Does not know: entries, files, when a record is due.

Rules
-----
1. One header, then records of 64 bytes, little-endian, appended and never changed.
2. Only the valid prefix is used: records count up to the first one that is short, has a wrong CRC, or breaks the
   sequence. Valid records after such a one mean damage, and are reported.
3. The log's random id goes into each CRC, so that a record that an earlier use of the file left behind is never valid.
4. A commit covers the bytes of both logs between the previous commit and itself. One commit may cover many
   entries: what it costs is what a group of posts costs.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from pnc_vol.errors import LogError
from pnc_vol.format.model import Finding
from pnc_vol.log.entries import Bytes

__all__ = [
    "COMMIT",
    "FILL",
    "FLUSHED",
    "MAGIC",
    "RECORD",
    "RECORD_BODY",
    "RECORD_BYTES",
    "RECORD_KINDS",
    "RESET",
    "SUFFIX",
    "TOMBSTONE",
    "WHOLE",
    "CommitLog",
    "CommitLogHeader",
    "decode_commit_log",
    "encode_commit",
    "encode_commit_log_header",
    "encode_fill",
    "encode_record",
]

SUFFIX = ".commit"
MAGIC = b"PncVolBB"
VERSION = 1
RECORD_BYTES = 64

COMMIT, TOMBSTONE, FILL, FLUSHED, RESET = 1, 2, 3, 4, 5
RECORD_KINDS = {COMMIT: "commit", TOMBSTONE: "tombstone", FILL: "fill", FLUSHED: "flushed", RESET: "reset"}

WHOLE = 2**64 - 1
"""``number`` of a fill of all there is along the first dimension."""

RECORD = np.dtype(
    {
        "names": [
            "size", "kind", "meta_crc", "sequence", "request", "epoch", "meta_end", "data_end", "number", "data_crc",
            "crc",
        ],
        "formats": ["<u2", "<u2", "<u4", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u4", "<u4"],
    }
)  # fmt: skip
"""One record. Of a fill, ``meta_crc`` is the variable, ``data_end`` the first index and ``number`` how many."""

_HEADER = Struct("<8sII16s16sIIII")
RECORD_BODY = Struct("<HHIQQQQQQI")
_CRC = Struct("<I")
_MOST_PATH = 1 << 16


class CommitLogHeader(NamedTuple):
    """The header of a commit log.

    log_id : bytes[16], random, new whenever the logs are begun anew.
    file : bytes[16], identity of the file when the log was begun (`disk.identity`); replay refuses another file.
        Zeros in logs of earlier versions, which name none.
    rank, num_ranks : int, of the job that wrote.
    path : str, the file that the log is for. Never followed; a check only.
    """

    log_id: bytes
    file: bytes
    rank: int
    num_ranks: int
    path: str


class CommitLog(NamedTuple):
    """A decoded commit log.

    header : CommitLogHeader
    records : ndarray of `RECORD`, the valid prefix.
    end : int, where it ends in the file.
    torn_bytes : int, bytes after it that are not just reserved.
    damaged : bool, valid records stand after one that is not: more than a torn tail.
    findings : tuple of Finding
    """

    header: CommitLogHeader
    records: npt.NDArray[np.void]
    end: int
    torn_bytes: int
    damaged: bool
    findings: tuple[Finding, ...]


# ------------------------------------------------------------------------------------------ writing


def encode_commit_log_header(header: CommitLogHeader) -> bytes:
    """The bytes of the header: a multiple of 64, so that no record crosses a sector of a disk.

    Raises
    ------
    LogError
        A field does not fit.

    Examples
    --------
    >>> len(encode_commit_log_header(CommitLogHeader(bytes(16), bytes(16), 0, 4, "out.nc")))
    128
    """
    path = header.path.encode("utf-8", "surrogateescape")
    for field, value in (("log_id", header.log_id), ("file", header.file)):
        if len(value) != 16:
            raise LogError(f"{field} is 16 bytes, not {len(value)}", field=field, value=value)
    if not 0 <= header.rank < header.num_ranks < 2**31 or len(path) > _MOST_PATH:
        raise LogError(f"rank {header.rank} of {header.num_ranks}, path of {len(path)} bytes", field="rank")
    size = -(-(_HEADER.size + len(path) + 4) // RECORD_BYTES) * RECORD_BYTES
    ids = header.log_id, header.file, header.rank, header.num_ranks
    head = (_HEADER.pack(MAGIC, VERSION, size, *ids, len(path), RECORD_BYTES) + path).ljust(size - 4, b"\0")
    return head + _CRC.pack(crc32(head))


def encode_record(
    kind: int,
    *,
    log_id: bytes,
    sequence: int,
    request: int = 0,
    epoch: int = 0,
    meta_end: int = 0,
    data_end: int = 0,
    number: int = 0,
    meta_crc: int = 0,
    data_crc: int = 0,
) -> bytes:
    """One record; nothing is checked.

    Parameters
    ----------
    kind : int
        `COMMIT`: the bytes of both logs up to `meta_end` and `data_end` are whole; `number` entries, the first of them
        of `request`; the CRCs are of the bytes since the commit before it (or the reset, or the logs' begin).
        `TOMBSTONE`: the entry that ends at `meta_end`, of `request`, is cancelled.
        `FLUSHED`: what ends up to `meta_end` is in the file.
        `RESET`: the logs go on at `meta_end` and `data_end`, over what was there, all of it in the file.
    log_id : bytes[16]
    sequence : int, one more than the record before; the first is 1.
    request, epoch, meta_end, data_end, number : int
    meta_crc, data_crc : int, zlib's CRC-32.

    Examples
    --------
    >>> len(encode_record(COMMIT, log_id=bytes(16), sequence=1, meta_end=160, data_end=104, number=1))
    64
    """
    body = RECORD_BODY.pack(
        RECORD_BYTES, kind, meta_crc, sequence, request, epoch, meta_end, data_end, number, data_crc
    )
    return body + _CRC.pack(crc32(body, crc32(log_id)))


def encode_commit(
    seed: int, sequence: int, request: int, epoch: int, meta_end: int, data_end: int, meta_crc: int, data_crc: int
) -> bytes:
    """The commit of one entry; `seed` is the CRC of the log's id. What `encode_record` makes, in half the time."""
    body = RECORD_BODY.pack(RECORD_BYTES, COMMIT, meta_crc, sequence, request, epoch, meta_end, data_end, 1, data_crc)
    return body + _CRC.pack(crc32(body, seed))


def encode_fill(
    varid: int,
    *,
    log_id: bytes,
    sequence: int,
    meta_end: int,
    first: int = 0,
    number: int = WHOLE,
    request: int = 0,
    epoch: int = 0,
) -> bytes:
    """A fill of a variable, after the entries that end up to `meta_end` and before those that follow.

    Parameters
    ----------
    varid : int
    log_id, sequence, request, epoch : as in `encode_record`
    meta_end : int, the end of the last commit.
    first, number : int, indices along the first dimension.
    """
    return encode_record(
        FILL,
        log_id=log_id,
        sequence=sequence,
        request=request,
        epoch=epoch,
        meta_end=meta_end,
        data_end=first,
        number=number,
        meta_crc=varid,
    )


# ------------------------------------------------------------------------------------------ reading


def decode_commit_log(data: Bytes) -> CommitLog:
    """Decode a commit log file.

    Raises
    ------
    LogError
        Its header is cut off or wrong.

    Examples
    --------
    >>> head = encode_commit_log_header(CommitLogHeader(bytes(16), bytes(16), 0, 1, "out.nc"))
    >>> found = decode_commit_log(head + encode_record(COMMIT, log_id=bytes(16), sequence=1) + b"torn")
    >>> found.records["sequence"].tolist(), found.torn_bytes
    ([1], 4)
    """
    header, begin = _header(data)
    view, seed = memoryview(data)[begin:], crc32(header.log_id)
    whole = np.frombuffer(view, RECORD, len(view) // RECORD_BYTES) if len(view) >= RECORD_BYTES else np.empty(0, RECORD)
    crcs = whole["crc"].tolist()
    at = range(0, RECORD_BYTES * whole.size, RECORD_BYTES)
    good = np.array([crc32(view[i : i + 60], seed) == crc for i, crc in zip(at, crcs, strict=True)], bool)
    valid = good & (whole["size"] == RECORD_BYTES) & np.isin(whole["kind"], list(RECORD_KINDS))
    valid &= whole["sequence"] == np.arange(1, whole.size + 1)
    n = int(valid.argmin()) if not valid.all() else whole.size
    torn = len(view) - n * RECORD_BYTES
    if not any(view[n * RECORD_BYTES :]):
        # Space that the writer had reserved, and did not come to use.
        torn = 0
    findings = []
    if torn:
        place = begin + n * RECORD_BYTES
        what = "is cut off" if n == whole.size else "is wrong" if not good[n] else "breaks the sequence"
        text = f"record {n + 1} at byte {place} {what}; the last {torn} bytes are dropped"
        findings.append(Finding("warning", place, f"record[{n + 1}]", torn, text))
    later = int(good[n:].sum())
    if later:
        text = f"{later} valid records follow an invalid one: more than the end of the commit log is damaged"
        findings.append(Finding("error", begin + n * RECORD_BYTES, f"record[{n + 1}]", later, text))
    return CommitLog(header, whole[:n], begin + n * RECORD_BYTES, torn, bool(later), tuple(findings))


def _header(data: Bytes) -> tuple[CommitLogHeader, int]:
    if len(data) < 2 * RECORD_BYTES:
        raise LogError(f"a commit log of {len(data)} bytes ends inside its header", offset=len(data), field="header")
    fields: tuple[Any, ...] = _HEADER.unpack_from(data)
    magic, version, size, log_id, file, rank, ranks, length, record = fields
    for offset, field, value, right in (
        (0, "magic", magic, magic == MAGIC),
        (8, "version", version, version == VERSION),
        (12, "header_bytes", size, 2 * RECORD_BYTES <= size <= len(data) and size % RECORD_BYTES == 0),
        (48, "rank", rank, rank < ranks),
        (56, "path_len", length, length <= size - _HEADER.size - 4),
        (60, "record_bytes", record, record == RECORD_BYTES),
    ):
        if not right:
            raise LogError(f"{field} of the commit log is {value!r}", offset=offset, field=field, value=value)
    (crc,) = _CRC.unpack_from(data, size - 4)
    if crc32(memoryview(data)[: size - 4]) != crc:
        raise LogError("the header of the commit log has a wrong CRC", offset=size - 4, field="crc", value=crc)
    path = bytes(data[_HEADER.size : _HEADER.size + length]).decode("utf-8", "surrogateescape")
    return CommitLogHeader(log_id, file, rank, ranks, path), size
