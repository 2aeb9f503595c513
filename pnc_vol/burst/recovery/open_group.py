"""The last entries of a log have no commit record if its job was killed; this module finds those that are whole.

Knows: entries, the slot of a commit log. Does not know: files, what is replayed.

Rules
-----
1. The writer stores the values, the entry, and then the CRCs of all entries and values behind the last commit, as one
   word. So the group ends where the bytes have these CRCs; a kill at any moment leaves such an end.
2. The entries begin at the last commit, and follow each other in both logs without a gap.
3. A kill leaves no group of several entries without such an end, nor one whose entries cannot be read at all, nor one
   before which records are missing (they may have cancelled what would be replayed): that is damage.
4. Small posts are in the slot itself. Those that were on their way to the logs are in both, and the slot counts.
"""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

import numpy as np

from pnc_vol.append_log.records import SLOT_BYTES, ReadData, RecordLog, crc_of_range, encode_record
from pnc_vol.burst.commit_log import COMMIT, COMMIT_LOG, IN_LOGS, IN_SLOT, OPEN_GROUP
from pnc_vol.burst.decoding import Log
from pnc_vol.burst.encoding import FIRST_DATA
from pnc_vol.burst.recent_posts import posts_with_crc, split

_AT_ONCE = 1 << 20

__all__ = ["SlotGroup", "commit_of_open_group", "group_in_slot", "with_record"]


class _SlotHead(NamedTuple):
    """The open group as the slot tells of it.

    word : int, its CRC.
    request : int, of its first entry.
    epoch : int
    where : int, `IN_LOGS` or `IN_SLOT`.
    begin, data_begin : int, where it begins in the two logs.
    """

    word: int
    request: int
    epoch: int
    where: int
    begin: int
    data_begin: int


def _slot_head(commit_log: RecordLog, log: Log) -> tuple[_SlotHead | None, str]:
    """Return the open group, None if there is none; and what is damaged."""
    word, request, epoch, before, where = OPEN_GROUP.unpack_from(commit_log.slot)
    if not request or not word or before < len(commit_log.records):
        return None, ""
    if before > len(commit_log.records):
        missing = before - len(commit_log.records)
        return None, f"{missing} records of the commit log are missing before the last entries"
    last = commit_log.records[commit_log.records["kind"] == COMMIT][-1:]
    begin, data_begin = log.header.entry_begin, FIRST_DATA
    if len(last):
        begin, data_begin = int(last["meta_end"][0]), int(last["data_end"][0])
    return _SlotHead(word, request, epoch, where, begin, data_begin), ""


class SlotGroup(NamedTuple):
    """The open group, where its posts are in the slot.

    record : bytes, of its commit.
    begin, data_begin : int, where in the two logs its entries and values belong.
    entries, values : bytes
    """

    record: bytes
    begin: int
    data_begin: int
    entries: bytes
    values: bytes

    def fill(self, view: memoryview, offset: int) -> int:
        """Fill what is asked for of the data log, from `offset` on, as far as the values go; returns how many bytes."""
        some = self.values[offset - self.data_begin :][: len(view)]
        view[: len(some)] = some
        return len(some)


def group_in_slot(commit_log: RecordLog, log: Log, data_size: int) -> tuple[SlotGroup | None, str]:
    """Return the posts that are in the slot, None if there are none; and what is damaged.

    The second is "" if a kill explains what is there.

    Parameters
    ----------
    commit_log : RecordLog
    log : Log, which may have such posts too: they were on their way.
    data_size : int, bytes of the data log.
    """
    head, damaged = _slot_head(commit_log, log)
    if head is None or head.where != IN_SLOT:
        return None, damaged
    if len(log.meta) < head.begin or data_size < head.data_begin:
        return None, "the logs end before what was posted last"
    posts = memoryview(commit_log.slot)[SLOT_BYTES:]
    ends = posts_with_crc(posts, head.word, head.data_begin)
    if not len(ends):
        return None, "the last posts are not those that the commit log has the CRC of"
    apart = split(np.frombuffer(posts, np.uint8)[: ends[-1]], ends)
    entries, values = apart.entries.tobytes(), apart.values.tobytes()
    until = head.begin + len(entries), head.data_begin + len(values)
    return SlotGroup(
        _commit(commit_log, crc32(entries), head, until, len(ends), crc32(values)), *head[-2:], entries, values
    ), ""


def _commit(
    commit_log: RecordLog, meta_crc: int, head: _SlotHead, ends: tuple[int, int], number: int, data_crc: int
) -> bytes:
    seed, sequence = crc32(commit_log.header.log_id), len(commit_log.records) + 1
    return encode_record(seed, COMMIT, sequence, meta_crc, head.request, head.epoch, *ends, number, data_crc)


def commit_of_open_group(commit_log: RecordLog, log: Log, read_data: ReadData) -> tuple[bytes, str]:
    """Return the commit record that the writer would have written next, and what is damaged.

    The record is b"" if there is no open group, or it is not whole; the text is "" if a kill explains what is there.

    Parameters
    ----------
    commit_log : RecordLog
    log : Log
    read_data : callable, see `recovery.scan.committed_entries`.
    """
    head, damaged = _slot_head(commit_log, log)
    if head is None or head.where != IN_LOGS:
        return b"", damaged
    begin, data_begin, word = head.begin, head.data_begin, head.word
    entries, read_data = log.entries, _ahead(read_data)
    first = int(np.searchsorted(entries.offset, begin))
    starts, lengths = (column[first:].tolist() for column in (entries.data_off, entries.data_len))
    meta = memoryview(log.meta)
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
            record = _commit(commit_log, meta_crc, head, (at, end), i, data_crc)
    if record or len(starts) == 1:
        return record, ""
    return b"", "the last entries are not those that the commit log has the CRCs of"


def _ahead(read: ReadData) -> ReadData:
    """Return the same, for pieces that follow each other: small ones are read many at once."""
    begin, block = 0, memoryview(b"")

    def ahead(at: int, nbytes: int) -> memoryview:
        nonlocal begin, block
        if at < begin or at + nbytes > begin + len(block):
            begin, block = at, memoryview(read(at, max(nbytes, _AT_ONCE)))
        return block[at - begin : at - begin + nbytes]

    return ahead


def with_record(commit_log: RecordLog, record: bytes) -> RecordLog:
    """Return a commit log with one more record."""
    return commit_log._replace(records=np.append(commit_log.records, np.frombuffer(record, COMMIT_LOG.dtype)))
