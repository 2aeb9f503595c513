"""The last entries of a log, for which its job had not written a commit record when it was killed.

Knows: entries, the slot of a commit log. Does not know: files, what is replayed.

Rules
-----
1. The writer stores the values, the entry, and then the CRCs of all entries and values behind the last commit, as one
   word. So the group ends where the bytes have these CRCs; a kill at any moment leaves such an end.
2. The entries begin at the last commit, and follow each other in both logs without a gap.
3. A kill leaves no group of several entries without such an end, nor one whose entries cannot be read at all, nor one
   before which records are missing (they may have cancelled what would be replayed): that is damage.
"""

from __future__ import annotations

from zlib import crc32

import numpy as np

from pnc_vol.append_log.records import ReadData, RecordLog, crc_of_range, encode_record
from pnc_vol.log.commit_log import COMMIT, COMMIT_LOG, OPEN_GROUP
from pnc_vol.log.decoding import Log
from pnc_vol.log.encoding import FIRST_DATA

_AT_ONCE = 1 << 20

__all__ = ["commit_of_open_group", "with_record"]


def commit_of_open_group(commit_log: RecordLog, log: Log, read_data: ReadData) -> tuple[bytes, str]:
    """The commit record that the writer would have written next, and what is damaged.

    The record is b"" if there is no open group, or it is not whole; the text is "" if a kill explains what is there.

    Parameters
    ----------
    commit_log : RecordLog
    log : Log
    read_data : callable, see `recovery.scan.committed_entries`.
    """
    word, request, epoch, before = OPEN_GROUP.unpack(commit_log.slot) if commit_log.slot else (0, 0, 0, 0)
    if not request or not word or before < len(commit_log.records):
        return b"", ""
    if before > len(commit_log.records):
        missing = before - len(commit_log.records)
        return b"", f"{missing} records of the commit log are missing before the last entries"
    last = commit_log.records[commit_log.records["kind"] == COMMIT][-1:]
    begin, data_begin = log.header.entry_begin, FIRST_DATA
    if len(last):
        begin, data_begin = int(last["meta_end"][0]), int(last["data_end"][0])
    entries, read_data = log.entries, _ahead(read_data)
    first = int(np.searchsorted(entries.offset, begin))
    starts, lengths = (column[first:].tolist() for column in (entries.data_off, entries.data_len))
    seed, sequence, meta = crc32(commit_log.header.log_id), len(commit_log.records) + 1, memoryview(log.meta)
    record, meta_crc, at, end = b"", 0, begin, data_begin
    data_crc = 0
    for i, (start, length, size) in enumerate(zip(starts, lengths, entries.size[first:].tolist(), strict=True), 1):
        if start != end or (i == 1 and entries.offset[first] != begin):
            break
        end = start + length
        crc = crc_of_range(read_data, start, end, data_crc)
        if crc is None:
            break
        data_crc = crc
        meta_crc, at = crc32(meta[at : at + size], meta_crc), at + size
        if meta_crc ^ data_crc == word:
            record = encode_record(seed, COMMIT, sequence, meta_crc, request, epoch, at, end, i, data_crc)
    if record or len(starts) == 1:
        return record, ""
    return b"", "the last entries are not those that the commit log has the CRCs of"


def _ahead(read: ReadData) -> ReadData:
    """The same, for pieces that follow each other: small ones are read many at once."""
    begin, block = 0, memoryview(b"")

    def ahead(at: int, nbytes: int) -> memoryview:
        nonlocal begin, block
        if at < begin or at + nbytes > begin + len(block):
            begin, block = at, memoryview(read(at, max(nbytes, _AT_ONCE)))
        return block[at - begin : at - begin + nbytes]

    return ahead


def with_record(commit_log: RecordLog, record: bytes) -> RecordLog:
    """A commit log with one more record."""
    return commit_log._replace(records=np.append(commit_log.records, np.frombuffer(record, COMMIT_LOG.dtype)))
