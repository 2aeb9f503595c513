"""The recovery scan reads a log and its commit log, and decides what is to be replayed, and in which order.

Knows: what each kind of record means for the entries. Does not know: the file that they go to, how they are replayed.

Rules
-----
1. With a commit log, its commits decide. Without one (the logs of the C library) the count in the header does.
2. A commit counts if both CRCs hold. The first that does not ends the log: what it vouches for, and all after it, is
   torn. If it was the last, the tail is torn, as a crash leaves it; if others follow, the log is damaged.
   Commits are looked at many at once (`_Commits`), the few other records one by one among them.
3. What is in the file already is not checked, and not replayed.
4. Whatever replays the entries and fills in the order given here, from any point where all before it is done, ends
   with the same file: they overwrite.

The entries behind the last commit record, the open group, have none if the job was killed (`burst.commit_log`):

5. The writer stores the values, the entry, and then the CRCs of all entries and values behind the last commit, as one
   word. So the group ends where the bytes have these CRCs; a kill at any moment leaves such an end.
6. The entries begin at the last commit, and follow each other in both logs without a gap.
7. A kill leaves no group of several entries without such an end, nor one whose entries cannot be read at all, nor one
   before which records are missing (they may have cancelled what would be replayed): that is damage.
8. Small posts are in the slot itself. Those that were on their way to the logs are in both, and the slot counts.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from pnc_vol.append_log.records import SLOT_BYTES, ReadData, RecordLog, crc_of_range, encode_record, first_wrong
from pnc_vol.burst.commit_log import COMMIT, COMMIT_LOG, FILL, FLUSHED, IN_LOGS, IN_SLOT, OPEN_GROUP, TOMBSTONE, WHOLE
from pnc_vol.burst.decoding import Log
from pnc_vol.burst.encoding import FIRST_DATA, NUM_ENTRIES_AT
from pnc_vol.burst.recent_posts import posts_with_crc, split
from pnc_vol.errors import LogError
from pnc_vol.extents.blocks import groups
from pnc_vol.extents.model import Int64
from pnc_vol.format.model import Finding
from pnc_vol.system.two_threads import in_two_threads

__all__ = [
    "CANCELLED", "COMMITTED", "DONE", "STATES", "TORN", "UNCOUNTED", "Fill", "SlotGroup", "Verdict",
    "commit_of_open_group", "committed_entries", "group_in_slot", "with_record", "without_tail",
]  # fmt: skip

COMMITTED, TORN, CANCELLED, DONE, UNCOUNTED = range(5)
STATES = ("committed", "torn", "cancelled", "flushed", "uncounted")
"""Names of the states of an entry. ``"uncounted"``: beyond the count of a log without commit log: flushed before, or a
post that never returned; the log does not tell which."""

_MOST = 2**63 - 1

_PLACES = ("request", "epoch", "meta_end", "data_end")
"""Fields of a record that no program makes larger than that."""

_AT_ONCE = 4 << 20
"""Bytes of a log that are read at once to be compared with their CRCs."""


class Fill(NamedTuple):
    """A fill that is to be replayed.

    varid : int
    first, number : int, indices along the first dimension; ``number`` is -1 for all of them.
    before : int, index of the entry that it precedes: after all entries of a smaller index.
    request, epoch : int
    """

    varid: int
    first: int
    number: int
    before: int
    request: int
    epoch: int


class Verdict(NamedTuple):
    """What a log comes to.

    state : int8[n], of each entry of the log, an index into `STATES`.
    replay : int64[m], indices of the entries to replay, in order.
    fills : tuple of Fill, to be replayed among them, in order.
    request : int64[n], the request of an entry; -1 if it is not known: a commit names that of its first entry.
    epoch : int64[n], flushes before the entry, as its writer counted; 0 without commit log.
    damaged : bool, something is wrong that no crash of the writer explains.
    findings : tuple of Finding, of the commit log and of the two together; those of the log are in the log.
    """

    state: npt.NDArray[np.int8]
    replay: Int64
    fills: tuple[Fill, ...]
    request: Int64
    epoch: Int64
    damaged: bool
    findings: tuple[Finding, ...]

    def totals(self) -> dict[str, int]:
        """Number of entries by state, states without any left out."""
        counts = np.bincount(self.state, minlength=len(STATES)).tolist()
        return {name: n for name, n in zip(STATES, counts, strict=True) if n}


def committed_entries(
    log: Log, commit_log: RecordLog | None = None, read_data: ReadData | None = None, *, uncounted: bool = False
) -> Verdict:
    """Judge each entry of a log.

    Parameters
    ----------
    log : Log
    commit_log : RecordLog or None
    read_data : callable or None
        ``lambda offset, nbytes: data[offset : offset + nbytes]``, to check the data's CRCs; None: they are not checked.
    uncounted : bool
        Without commit log, also replay entries beyond the header's count.

    Raises
    ------
    LogError
        The commit log is that of another log.

    Examples
    --------
    >>> from pnc_vol.burst.encoding import LogHeader, encode_header, encode_vara
    >>> from pnc_vol.burst.decoding import read_log
    >>> log = read_log(encode_header(LogHeader("out.nc")) + encode_vara(6, 0, (0,), (2,), 8, 8), 16)
    >>> committed_entries(log).totals(), committed_entries(log, uncounted=True).replay.tolist()
    ({'uncounted': 1}, [0])
    """
    if commit_log is not None:
        return _Scan(log, commit_log, read_data).verdict()
    return _by_count(log, uncounted)


def _by_count(log: Log, uncounted: bool) -> Verdict:
    n, counted, promised = len(log.entries), log.counted, log.header.num_entries
    state = np.full(n, UNCOUNTED, np.int8)
    state[:counted] = COMMITTED
    findings = []
    if counted < promised:
        at = NUM_ENTRIES_AT if log.layout == "documented" else 56
        text = f"the header counts {promised} entries, {counted} can be read"
        findings.append(Finding("error", at, "num_entries", promised, text))
    elif counted < n:
        at = int(log.entries.offset[counted])
        text = f"{n - counted} entries beyond the {counted} of the header's count: flushed, or never counted"
        findings.append(Finding("warning", at, f"entry[{counted}]", counted, text))
    replay = np.arange(n if uncounted else counted)
    no_request = np.full(n, -1, np.int64)
    return Verdict(state, replay, (), no_request, np.zeros(n, np.int64), counted < promised, tuple(findings))


def without_tail(verdict: Verdict, log: Log, first: int) -> Verdict:
    """Return a verdict without the entries from one on whose dataset the log does not explain.

    A post writes its dataset's definition first, and a kill keeps the order. A crash of the node may lose it, and then
    the last group with it, as it may lose that group's own bytes; if a commit follows, more than the end is damaged.
    """
    state = verdict.state.copy()
    left = np.flatnonzero((state == COMMITTED) & (np.arange(len(state)) >= first))
    state[left] = TORN
    text = f"entry {first} writes to variable {log.entries.varid[first]}, whose definition is not there"
    # of a group only the first entry has its request
    damaged = bool((verdict.request[left[1:]] >= 0).any())
    finding = Finding(
        "error" if damaged else "warning", int(log.entries.offset[first]), f"entry[{first}]", len(left), text
    )
    return verdict._replace(
        state=state,
        replay=np.flatnonzero(state == COMMITTED),
        fills=tuple(fill for fill in verdict.fills if fill.before <= first),
        damaged=verdict.damaged or damaged,
        findings=(*verdict.findings, finding),
    )


class _Record(NamedTuple):
    """One row of `COMMIT_LOG.dtype`."""

    size: int
    kind: int
    meta_crc: int
    sequence: int
    request: int
    epoch: int
    meta_end: int
    data_end: int
    number: int
    data_crc: int
    crc: int


class _Commits:
    """The commits of a log as columns, and how many of them, from the first, count.

    Parameters
    ----------
    records : ndarray of `COMMIT_LOG.dtype`, the commits alone.
    log : Log
    flushed_end : int, what ends up to there in the metadata log is in the file, and need not be whole any more.
    read_data : callable or None, see `committed_entries`.

    Attributes
    ----------
    meta_end, data_end : int64[n + 1], where the logs end before each of them, and after the last.
    done : int64[n + 1], entries that end there.
    good : int, commits that count.
    why : tuple of (damaged, offset, value, text), about the next one, if there is one.
    """

    def __init__(self, records: npt.NDArray[np.void], log: Log, flushed_end: int, read_data: ReadData | None) -> None:
        self.records = records
        self.meta_end, self.data_end = (
            np.append(first, records[name].astype(np.int64))
            for first, name in ((log.header.entry_begin, "meta_end"), (FIRST_DATA, "data_end"))
        )
        ends = log.entries.end
        self.done = np.searchsorted(ends, self.meta_end, side="right")
        self.done[0] = 0
        self.why: tuple[bool, int, int, str] | None = None
        self.good = len(records)
        self._look(records["meta_end"] > np.uint64(flushed_end), ends, memoryview(log.meta), read_data)

    def _look(self, alive: npt.NDArray[np.bool_], ends: Int64, meta: memoryview, read_data: ReadData | None) -> None:
        """Find the first that does not count: each of these looks at fewer of them."""
        records, meta_end, data_end, done = self.records, self.meta_end, self.data_end, self.done
        large = np.logical_or.reduce([records[name] > _MOST for name in _PLACES])
        if (i := self._first(large)) < self.good:
            value = max(_Record(*records[i].tolist()))
            self._stop(i, True, value, value, "a field is too large for a file")
        back = (meta_end[1:] < meta_end[:-1]) | (data_end[1:] < data_end[:-1])
        if (i := self._first(back)) < self.good:
            end = int(meta_end[i + 1])
            self._stop(i, True, end, end, f"a commit ends at {end}, before the previous one")
        ordered = self.good
        number = np.diff(done)
        ends_there = (done[1:] == 0) | (np.append(0, ends)[done[1:]] == meta_end[1:])
        odd = alive & ((records["number"] != number.astype(np.uint64)) | ~ends_there)
        if (i := self._first(odd)) < self.good:
            end = int(meta_end[i + 1])
            text = f"a commit of {records['number'][i]} entries ends at byte {end}, where {number[i]} can be read"
            self._stop(i, True, end, end, text)
        first = self._first(alive)
        # One that is counted wrong is torn in the first place if its bytes are.
        for which, bounds, crcs in (("metadata", meta_end, "meta_crc"), ("data", data_end, "data_crc")):
            last = min(self.good + 1, ordered)
            read = read_data if which == "data" else lambda at, n: meta[at : at + n]
            if read is None:
                continue
            i = first + _first_torn(read, bounds[first : last + 1], records[crcs][first:last])
            if i < last:
                begin, end = int(bounds[i]), int(bounds[i + 1])
                sequence = records["sequence"][i]
                text = f"bytes {begin} to {end} of the {which} log do not match the CRC in record {sequence}"
                self._stop(i, False, begin, end, text)

    def _first(self, found: npt.NDArray[np.bool_]) -> int:
        """Return the first of those that count so far of which it is true."""
        found = found[: self.good]
        return int(found.argmax()) if found.any() else self.good

    def _stop(self, i: int, damaged: bool, offset: int, value: int, text: str) -> None:
        self.good, self.why = i, (damaged, offset, value, text)


def _first_torn(read: ReadData, bounds: Int64, crcs: npt.NDArray[np.uint32]) -> int:
    """Return the first piece between bounds whose CRC is another one, read some MiB at a time; their number if none
    is."""
    torn = [len(crcs)]
    lock = threading.Lock()

    def look(first: int, last: int, _: npt.NDArray[np.uint8]) -> None:
        if first >= torn[0]:
            return
        begin, end = int(bounds[first]), int(bounds[last])
        if last - first == 1:
            wrong = first if crc_of_range(read, begin, end) != crcs[first] else last
        else:
            data = memoryview(read(begin, end - begin))
            there = int(np.searchsorted(bounds[first : last + 1] - begin, len(data), side="right")) - 1
            wrong = first + first_wrong(data, bounds[first : first + there + 1] - begin, crcs[first : first + there])
        if wrong < last:
            with lock:
                torn[0] = min(torn[0], wrong)

    in_two_threads((partial(look, *some) for some in groups(bounds[:-1], bounds[1:], _AT_ONCE)), 0)
    return torn[0]


class _Scan:
    """One log, one commit log, and what was found so far."""

    def __init__(self, log: Log, commit_log: RecordLog, read_data: ReadData | None) -> None:
        self.log = log
        ours, theirs = log.header, commit_log.header
        for field, a, b in (("rank", theirs.rank, ours.rank_id), ("num_ranks", theirs.num_ranks, ours.num_ranks)):
            if a != b:
                raise LogError(f"the commit log is of another log: its {field} is {a}, not {b}", field=field, value=a)
        self.findings: list[Finding] = []
        self.damaged = commit_log.later > 0
        at, number = commit_log.end, f"record[{len(commit_log.records) + 1}]"
        if commit_log.tear:
            self.findings.append(Finding("warning", at, number, commit_log.torn_bytes, commit_log.tear))
        if self.damaged:
            n = commit_log.later
            text = f"{n} valid records follow an invalid one: more than the end of the commit log is damaged"
            self.findings.append(Finding("error", at, number, n, text))
        self.records = commit_log.records
        flushes = self.records["meta_end"][self.records["kind"] == FLUSHED]
        # A commit whose bytes are in the file need not be whole any more.
        self.flushed_end = int(flushes.max()) if flushes.size else 0
        self.places = np.flatnonzero(self.records["kind"] == COMMIT)
        self.commits = _Commits(self.records[self.places], log, self.flushed_end, read_data)
        self.ends = log.entries.end
        n = len(log.entries)
        self.state = np.full(n, TORN, np.int8)
        self.request, self.epoch = np.full(n, -1, np.int64), np.zeros(n, np.int64)
        self.fills: list[Fill] = []

    def verdict(self) -> Verdict:
        commits, places, records = self.commits, self.places, self.records
        self._commit(commits.good)
        stop = len(records) if commits.good == len(places) else int(places[commits.good])
        for i in np.flatnonzero(records["kind"][:stop] != COMMIT).tolist():
            before = int(np.searchsorted(places, i))
            done, meta_end = int(commits.done[before]), int(commits.meta_end[before])
            if not self._take(_Record(*records[i].tolist()), done, meta_end):
                stop = i
                self.state[done:], self.request[done:], self.epoch[done:] = TORN, -1, 0
                break
        else:
            if commits.why is not None:
                damaged, offset, value, text = commits.why
                number = f"record[{records['sequence'][stop]}]"
                self.findings.append(Finding("error" if damaged else "warning", offset, number, value, text))
                self.damaged |= damaged
        later = int((places > stop).sum())
        if later:
            record = _Record(*records[stop].tolist())
            self._wrong(record, later, f"{later} commits stand after record {record.sequence}")
        state = self.state
        left = int((state == TORN).sum())
        if left:
            done = int(commits.done[np.searchsorted(places, stop)])
            at = int(self.log.entries.offset[done])
            text = f"{left} entries from byte {at} on were not committed, or have changed"
            self.findings.append(Finding("warning", at, f"entry[{done}]", left, text))
        replay = np.flatnonzero(state == COMMITTED)
        return Verdict(state, replay, tuple(self.fills), self.request, self.epoch, self.damaged, tuple(self.findings))

    def _commit(self, good: int) -> None:
        """The entries of the first commits count."""
        records, done = self.commits.records[:good], self.commits.done[: good + 1]
        number = np.diff(done)
        last = int(done[-1])
        self.state[:last] = COMMITTED
        some = number > 0
        self.request[done[:-1][some]] = records["request"][some].astype(np.int64)
        self.epoch[:last] = np.repeat(records["epoch"].astype(np.int64), number)

    def _take(self, record: _Record, done: int, meta_end: int) -> bool:
        """Return one record that is no commit, behind so many entries; False if it, and all after it, does not
        count."""
        end = record.meta_end
        if max(record.request, record.epoch, end, record.data_end) > _MOST:
            return self._wrong(record, max(record), "a field is too large for a file")
        if record.kind == FILL:
            if end != meta_end:
                return self._wrong(record, end, f"a fill is at {end}, commits end at {meta_end}")
            every = -1 if record.number == WHOLE else min(record.number, _MOST)
            self.fills.append(Fill(record.meta_crc, record.data_end, every, done, record.request, record.epoch))
            return True
        if end > meta_end:
            return self._wrong(record, end, f"a record is for byte {end}, commits end at {meta_end}")
        if record.kind == FLUSHED:
            n = int(np.searchsorted(self.ends, end, side="right"))
            self.state[:n] = np.where(self.state[:n] == CANCELLED, CANCELLED, DONE)
            self.fills = [fill for fill in self.fills if fill.before > n]
            return True
        assert record.kind == TOMBSTONE
        return self._cancel(record, done)

    def _cancel(self, record: _Record, done: int) -> bool:
        end = record.meta_end
        if end <= self.flushed_end and end > (int(self.ends[-1]) if len(self.ends) else 0):
            # The writer was stopped while it cut the log: the entry is in the file's past, and its bytes are gone.
            return True
        i = int(np.searchsorted(self.ends, end))
        if i >= done or self.ends[i] != end:
            return self._wrong(record, end, f"no entry that can be cancelled ends at byte {end}")
        if self.state[i] == DONE:
            text = f"record {record.sequence} cancels entry {i}, which was already in the file"
            self.findings.append(Finding("warning", end, f"record[{record.sequence}]", i, text))
        else:
            self.state[i] = CANCELLED
        return True

    def _wrong(self, record: _Record, value: int, text: str) -> bool:
        self.findings.append(Finding("error", value, f"record[{record.sequence}]", value, text))
        self.damaged = True
        return False


_AHEAD = 1 << 20


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
    read_data : callable, see `committed_entries`.
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
            begin, block = at, memoryview(read(at, max(nbytes, _AHEAD)))
        return block[at - begin : at - begin + nbytes]

    return ahead


def with_record(commit_log: RecordLog, record: bytes) -> RecordLog:
    """Return a commit log with one more record."""
    return commit_log._replace(records=np.append(commit_log.records, np.frombuffer(record, COMMIT_LOG.dtype)))
