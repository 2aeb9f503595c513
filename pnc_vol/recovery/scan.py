"""From a log and its commit log to a verdict: what is to be replayed, in which order.

Knows: what each kind of record means for the entries. Does not know: the file that they go to, how they are replayed.

Rules
-----
1. With a commit log, its commits decide. Without one (the logs of the C library) the count in the header does.
2. A commit counts if both CRCs hold. The first that does not ends the log: what it vouches for, and all after it, is
   torn. If it was the last, the tail is torn, as a crash leaves it; if others follow, the log is damaged.
3. What is in the file already is not checked, and not replayed.
4. Whatever replays the entries and fills in the order given here, from any point where all before it is done, ends
   with the same file: they overwrite.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from pnc_vol.append_log.records import ReadData, RecordLog, crc_of_range
from pnc_vol.errors import LogError
from pnc_vol.extents.model import Int64
from pnc_vol.format.model import Finding
from pnc_vol.log.commit_log import COMMIT, FILL, FLUSHED, TOMBSTONE, WHOLE
from pnc_vol.log.decoding import Log
from pnc_vol.log.encoding import FIRST_DATA, NUM_ENTRIES_AT

__all__ = [
    "CANCELLED",
    "COMMITTED",
    "DONE",
    "STATES",
    "TORN",
    "UNCOUNTED",
    "Fill",
    "Verdict",
    "committed_entries",
    "without_tail",
]

COMMITTED, TORN, CANCELLED, DONE, UNCOUNTED = range(5)
STATES = ("committed", "torn", "cancelled", "flushed", "uncounted")
"""Names of the states of an entry. ``"uncounted"``: beyond the count of a log without commit log: flushed before, or a
post that never returned; the log does not tell which."""

_MOST = 2**63 - 1


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
    >>> from pnc_vol.log.encoding import LogHeader, encode_header, encode_vara
    >>> from pnc_vol.log.decoding import read_log
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
    """A verdict without the entries from one on whose dataset the log does not explain.

    A post writes its dataset's definition first, and a kill keeps the order; a crash of the node may lose it.
    """
    state = verdict.state.copy()
    left = np.flatnonzero((state == COMMITTED) & (np.arange(len(state)) >= first))
    state[left] = TORN
    text = f"entry {first} writes to variable {log.entries.varid[first]}, whose definition is not there"
    damaged = len(left) > 1
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


class _Scan:
    """One log, one commit log, and what was found so far."""

    def __init__(self, log: Log, commit_log: RecordLog, read_data: ReadData | None) -> None:
        self.log, self.read_data, self.meta = log, read_data, memoryview(log.meta)
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
        self.ends: list[int] = log.entries.end.tolist()
        self.meta_end, self.data_end = ours.entry_begin, FIRST_DATA
        n = len(log.entries)
        self.state = np.full(n, TORN, np.int8)
        self.request, self.epoch = np.full(n, -1, np.int64), np.zeros(n, np.int64)
        self.fills: list[Fill] = []
        self.done = 0
        """Entries, from the first, that are committed."""

    def verdict(self) -> Verdict:
        kinds = self.records["kind"]
        flushes = self.records["meta_end"][kinds == FLUSHED]
        # A commit whose bytes are in the file need not be whole any more.
        self.flushed_end = int(flushes.max()) if flushes.size else 0
        for i, row in enumerate(self.records.tolist()):
            record = _Record(*row)
            if not self._take(record):
                later = int((kinds[i + 1 :] == COMMIT).sum())
                if later:
                    self._wrong(record, later, f"{later} commits stand after record {record.sequence}")
                break
        state = self.state
        left = int((state == TORN).sum())
        if left:
            at = int(self.log.entries.offset[self.done])
            text = f"{left} entries from byte {at} on were not committed, or have changed"
            self.findings.append(Finding("warning", at, f"entry[{self.done}]", left, text))
        replay = np.flatnonzero(state == COMMITTED)
        return Verdict(state, replay, tuple(self.fills), self.request, self.epoch, self.damaged, tuple(self.findings))

    def _take(self, record: _Record) -> bool:
        """One record; False if it, and all after it, does not count."""
        end = record.meta_end
        if max(record.request, record.epoch, end, record.data_end) > _MOST:
            return self._wrong(record, max(record), "a field is too large for a file")
        if record.kind == COMMIT:
            return self._commit(record)
        if record.kind == FILL:
            if end != self.meta_end:
                return self._wrong(record, end, f"a fill is at {end}, commits end at {self.meta_end}")
            every = -1 if record.number == WHOLE else min(record.number, _MOST)
            first = record.data_end
            self.fills.append(Fill(record.meta_crc, first, every, self.done, record.request, record.epoch))
            return True
        if end > self.meta_end:
            return self._wrong(record, end, f"a record is for byte {end}, commits end at {self.meta_end}")
        if record.kind == FLUSHED:
            n = bisect_right(self.ends, end)
            self.state[:n] = np.where(self.state[:n] == CANCELLED, CANCELLED, DONE)
            self.fills = [fill for fill in self.fills if fill.before > n]
            return True
        assert record.kind == TOMBSTONE
        return self._cancel(record)

    def _commit(self, record: _Record) -> bool:
        end = record.meta_end
        if end < self.meta_end or record.data_end < self.data_end:
            return self._wrong(record, end, f"a commit ends at {end}, before the previous one")
        if end > self.flushed_end and not self._whole(record):
            return False
        n = bisect_right(self.ends, end)
        if end > self.flushed_end and (n - self.done != record.number or (n and self.ends[n - 1] != end)):
            text = f"a commit of {record.number} entries ends at byte {end}, where {n - self.done} can be read"
            return self._wrong(record, end, text)
        self.state[self.done : n] = COMMITTED
        if n > self.done:
            self.request[self.done] = record.request
        self.epoch[self.done : n] = record.epoch
        self.done, self.meta_end, self.data_end = n, end, record.data_end
        return True

    def _whole(self, record: _Record) -> bool:
        """True if the bytes that the commit vouches for are those that were written."""
        meta = self.meta[self.meta_end : record.meta_end]
        if len(meta) != record.meta_end - self.meta_end or crc32(meta) != record.meta_crc:
            return self._torn(record, self.meta_end, record.meta_end, "metadata")
        if self.read_data is None or crc_of_range(self.read_data, self.data_end, record.data_end) == record.data_crc:
            return True
        return self._torn(record, self.data_end, record.data_end, "data")

    def _cancel(self, record: _Record) -> bool:
        end = record.meta_end
        if end <= self.flushed_end and end > (self.ends[-1] if self.ends else 0):
            # The writer was stopped while it cut the log: the entry is in the file's past, and its bytes are gone.
            return True
        i = bisect_left(self.ends, end)
        if i >= self.done or self.ends[i] != end:
            return self._wrong(record, end, f"no entry that can be cancelled ends at byte {end}")
        if self.state[i] == DONE:
            text = f"record {record.sequence} cancels entry {i}, which was already in the file"
            self.findings.append(Finding("warning", end, f"record[{record.sequence}]", i, text))
        else:
            self.state[i] = CANCELLED
        return True

    def _torn(self, record: _Record, begin: int, end: int, which: str) -> bool:
        text = f"bytes {begin} to {end} of the {which} log do not match the CRC in record {record.sequence}"
        self.findings.append(Finding("warning", begin, f"record[{record.sequence}]", end, text))
        return False

    def _wrong(self, record: _Record, value: int, text: str) -> bool:
        self.findings.append(Finding("error", value, f"record[{record.sequence}]", value, text))
        self.damaged = True
        return False
