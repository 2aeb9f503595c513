"""What a commit log says of a log: commits, tombstones, fills, flushes, and what a crash leaves of them."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pnc_vol.append_log.records import SLOT_BYTES, RecordHeader, decode_records, encode_header, encode_record
from pnc_vol.errors import LogError
from pnc_vol.log import encoding
from pnc_vol.log.commit_log import COMMIT, COMMIT_LOG, FILL, FLUSHED, TOMBSTONE, WHOLE
from pnc_vol.log.decoding import read_log
from pnc_vol.log.encoding import LogHeader, encode_vara, encode_varn
from pnc_vol.recovery.open_group import commit_of_open_group
from pnc_vol.recovery.printing import log_text
from pnc_vol.recovery.scan import CANCELLED, COMMITTED, STATES, Fill, Verdict, committed_entries

ID = bytes(range(16))
OTHER = bytes(range(1, 17))


@dataclass
class Writer:
    """Three files in memory, written as the rules say."""

    log_id: bytes = ID
    meta: bytearray = field(default_factory=lambda: bytearray(encoding.encode_header(LogHeader("/p/out.nc", "node"))))
    data: bytearray = field(default_factory=lambda: bytearray(b"PnetCDF1"))
    commit: bytearray = field(init=False)
    sequence: int = 0
    epoch: int = 0

    def __post_init__(self) -> None:
        self.commit = bytearray(
            encode_header(COMMIT_LOG, RecordHeader(self.log_id, bytes(16), 0, 1, "/p/out.nc"), SLOT_BYTES)
        )
        self.begin = self.at = len(self.meta)
        self.data_at, self.waiting = 8, 0
        self.ends: list[int] = []

    def post(self, n: int = 2, varid: int = 0) -> None:
        """One entry and its data, without a commit."""
        values = np.arange(n, dtype="i4").tobytes()
        self.meta += encode_vara(6, varid, (10 * len(self.ends),), (n,), len(self.data), len(values))
        self.data += values
        self.ends.append(len(self.meta))
        self.waiting += 1

    def record(self, kind: int, **fields: int) -> None:
        self.sequence += 1
        told = {"epoch": self.epoch} | fields
        values = [told.pop(name, 0) for name in COMMIT_LOG.fields]
        assert not told
        self.commit += encode_record(crc32(self.log_id), kind, self.sequence, *values)

    def vouch(self, request: int = 0) -> None:
        meta, data = self.meta[self.at :], self.data[self.data_at :]
        self.at, self.data_at = len(self.meta), len(self.data)
        self.record(
            COMMIT,
            request=request,
            meta_end=self.at,
            data_end=self.data_at,
            number=self.waiting,
            meta_crc=crc32(meta),
            data_crc=crc32(data),
        )
        self.waiting = 0

    def posts(self, n: int) -> None:
        for _ in range(n):
            self.post()
            self.vouch(request=100 + len(self.ends))

    def fill(self, varid: int, first: int = 0, number: int = WHOLE, **fields: int) -> None:
        self.record(FILL, meta_crc=varid, meta_end=self.at, data_end=first, number=number, **fields)

    def judge(self, *, check: bool = True) -> Verdict:
        log = read_log(bytes(self.meta), len(self.data))
        commit_log = decode_records(COMMIT_LOG, bytes(self.commit))
        return committed_entries(log, commit_log, (lambda at, n: self.data[at : at + n]) if check else None)

    def text(self) -> str:
        return log_text(read_log(bytes(self.meta), len(self.data)), decode_records(COMMIT_LOG, bytes(self.commit)))


def states(verdict: Verdict) -> str:
    """First letters."""
    return "".join(STATES[code][0] for code in verdict.state.tolist())


def test_each_post_with_its_commit() -> None:
    w = Writer()
    w.posts(3)
    verdict = w.judge()
    assert (states(verdict), verdict.replay.tolist(), verdict.request.tolist()) == ("ccc", [0, 1, 2], [101, 102, 103])
    assert (verdict.damaged, verdict.findings, verdict.fills) == (False, (), ())


def test_one_commit_for_a_group() -> None:
    w = Writer()
    for _ in range(3):
        w.post()
    w.vouch(request=7)
    w.posts(1)
    verdict = w.judge()
    assert (states(verdict), verdict.request.tolist()) == ("cccc", [7, -1, -1, 104])


def test_what_no_commit_vouches_for_is_torn() -> None:
    w = Writer()
    w.posts(2)
    w.post()
    verdict = w.judge()
    assert (states(verdict), verdict.replay.tolist(), verdict.damaged) == ("cct", [0, 1], False)
    assert "1 entries from byte" in verdict.findings[0].message


def test_nothing_is_replayed_twice() -> None:
    w = Writer()
    w.posts(2)
    w.record(FLUSHED, meta_end=w.at)
    w.epoch = 1
    w.posts(2)
    verdict = w.judge()
    assert (states(verdict), verdict.replay.tolist(), verdict.epoch.tolist()) == ("ffcc", [2, 3], [0, 0, 1, 1])
    w.record(FLUSHED, meta_end=w.at)
    assert w.judge().replay.size == 0


def test_a_flush_that_got_half_way() -> None:
    w = Writer()
    w.posts(4)
    w.record(FLUSHED, meta_end=w.ends[1])
    assert states(w.judge()) == "ffcc"


def test_a_cancelled_request_does_not_come_back() -> None:
    w = Writer()
    w.posts(3)
    w.record(TOMBSTONE, request=102, meta_end=w.ends[1])
    verdict = w.judge()
    assert (verdict.state.tolist(), verdict.replay.tolist()) == ([COMMITTED, CANCELLED, COMMITTED], [0, 2])
    assert verdict.totals() == {"committed": 2, "cancelled": 1}
    w.record(FLUSHED, meta_end=w.at)
    assert w.judge().totals() == {"cancelled": 1, "flushed": 2}


def test_a_tombstone_for_what_is_in_the_file_is_told() -> None:
    w = Writer()
    w.posts(1)
    w.record(FLUSHED, meta_end=w.at)
    w.record(TOMBSTONE, request=101, meta_end=w.ends[0])
    verdict = w.judge()
    assert (states(verdict), verdict.damaged) == ("f", False)
    assert "was already in the file" in verdict.findings[0].message


def test_fills_have_their_place_among_the_writes() -> None:
    w = Writer()
    w.fill(4)
    w.posts(1)
    w.fill(5)
    w.posts(1)
    assert w.judge().fills == (Fill(4, 0, -1, 0, 0, 0), Fill(5, 0, -1, 1, 0, 0))
    w.record(FLUSHED, meta_end=w.ends[0])
    assert w.judge().fills == ()
    w.record(FLUSHED, meta_end=w.at)
    w.fill(6, first=3, number=2, request=9, epoch=1)
    assert w.judge().fills == (Fill(6, 3, 2, 2, 9, 1),)


def test_logs_cut_after_a_flush() -> None:
    w = Writer()
    w.posts(3)
    w.fill(1)
    w.record(FLUSHED, meta_end=w.at)
    del w.meta[w.begin :], w.data[8:]
    verdict = w.judge()
    assert (len(verdict.state), verdict.fills, verdict.damaged) == (0, (), False)


# ------------------------------------------------------------------------------------------------- crashes


def build(chance: random.Random) -> tuple[Writer, list[tuple[int, int, int]]]:
    """A log with groups, and the sizes of the three files before each commit record."""
    w, points = Writer(), []
    for _ in range(6):
        for _ in range(chance.randint(1, 3)):
            w.post(chance.randint(0, 4))
        points.append((len(w.meta), len(w.data), len(w.commit)))
        w.vouch()
    return w, points


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.data())
def test_any_prefix_of_the_files_keeps_whole_groups(seed: int, draw: st.DataObject) -> None:
    """Data is written first, then entries, then the commit: what was committed is all there, in order."""
    w, points = build(random.Random(seed))
    k = draw.draw(st.integers(0, len(points) - 1))
    meta, data, commit = points[k]
    before = (w.begin, 8) if k == 0 else points[k - 1][:2]
    stage = draw.draw(st.sampled_from(["data", "entry", "commit"]))
    if stage == "data":
        data, meta = draw.draw(st.integers(before[1], data)), before[0]
    elif stage == "entry":
        meta = draw.draw(st.integers(before[0], meta))
    else:
        commit += draw.draw(st.integers(0, 63))
    committed = sum(end <= before[0] for end in w.ends)
    del w.meta[meta:], w.data[data:], w.commit[commit:]
    verdict = w.judge()
    assert verdict.replay.tolist() == list(range(committed))
    assert not verdict.damaged


def test_the_commit_log_cut_at_every_byte() -> None:
    w = Writer()
    w.posts(4)
    whole, head = bytes(w.commit), len(w.commit) - 4 * 64
    for cut in range(len(whole)):
        if cut < head:
            with pytest.raises(LogError):
                decode_records(COMMIT_LOG, whole[:cut])
            continue
        found = decode_records(COMMIT_LOG, whole[:cut])
        assert (len(found.records), found.torn_bytes, bool(found.later)) == (
            (cut - head) // 64,
            (cut - head) % 64,
            False,
        )
        w.commit = bytearray(whole[:cut])
        assert w.judge().replay.tolist() == list(range((cut - head) // 64))


def test_a_bit_anywhere_in_the_three_files_is_noticed() -> None:
    """Each bit of entries, data and records is vouched for; what follows the wrong one is not replayed."""
    w = Writer()
    w.posts(3)
    head = len(w.commit) - 3 * 64
    for name, begin in (("meta", w.begin), ("data", 8), ("commit", head)):
        for at in range(begin, len(getattr(w, name))):
            whole = bytes(getattr(w, name))
            getattr(w, name)[at] ^= 1 << (at % 8)
            verdict = w.judge()
            part = (at - begin) * 3 // (len(whole) - begin)
            assert verdict.replay.tolist() == list(range(part)), (name, at)
            # The last group may be torn; an earlier one cannot be, if a later one is whole.
            assert verdict.damaged == (part < 2), (name, at)
            getattr(w, name)[:] = whole
    assert w.judge().replay.tolist() == [0, 1, 2]


def test_data_is_checked_only_where_it_can_be() -> None:
    w = Writer()
    w.posts(2)
    w.data[9] ^= 1
    assert w.judge(check=False).replay.tolist() == [0, 1]
    assert w.judge().replay.tolist() == []


def test_what_is_in_the_file_need_not_be_whole() -> None:
    w = Writer()
    w.posts(2)
    w.record(FLUSHED, meta_end=w.at)
    w.posts(1)
    w.data[9] ^= 1
    assert (states(w.judge()), w.judge().damaged) == ("ffc", False)


def test_large_data_is_checked_piece_by_piece() -> None:
    w = Writer()
    w.post(5 << 20)
    w.vouch()
    asked: list[int] = []

    def read(at: int, n: int) -> bytes:
        asked.append(n)
        return bytes(w.data[at : at + n])

    log, commit_log = read_log(bytes(w.meta), len(w.data)), decode_records(COMMIT_LOG, bytes(w.commit))
    assert committed_entries(log, commit_log, read).replay.tolist() == [0]
    assert max(asked) <= 8 << 20
    assert len(asked) == 3


# -------------------------------------------------------------------------------------------------- damage


def test_a_record_of_another_life_of_the_file_is_not_valid() -> None:
    w, old = Writer(), Writer(log_id=OTHER)
    w.posts(1)
    old.posts(3)
    w.commit += old.commit[len(w.commit) :]
    found = decode_records(COMMIT_LOG, bytes(w.commit))
    assert (len(found.records), found.later, found.torn_bytes) == (1, 0, 128)


@pytest.mark.parametrize("skip", [0, 2, 5])
def test_a_gap_in_the_sequence_ends_the_prefix(skip: int) -> None:
    w = Writer()
    w.posts(1)
    w.sequence += skip - 1 if skip else -1
    w.posts(1)
    found = decode_records(COMMIT_LOG, bytes(w.commit))
    assert (len(found.records), bool(found.later)) == (1, True)
    assert "breaks the sequence" in found.tear
    assert w.judge().replay.tolist() == [0]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda w: w.record(TOMBSTONE, meta_end=w.begin + 3),
        lambda w: w.record(TOMBSTONE, meta_end=2**63),
        lambda w: w.record(FLUSHED, meta_end=w.at + 56),
        lambda w: w.record(COMMIT, meta_end=w.begin, data_end=8),
        lambda w: w.record(COMMIT, meta_end=w.at, data_end=w.data_at, number=1),
        lambda w: w.record(COMMIT, request=2**64 - 1, meta_end=w.at, data_end=w.data_at),
        lambda w: w.record(COMMIT, meta_end=w.at, data_end=w.data_at, number=2**64 - 1),
    ],
)
def test_a_record_that_contradicts_the_log_is_damage(spoil: object) -> None:
    w = Writer()
    w.posts(2)
    spoil(w)  # type: ignore[operator]
    verdict = w.judge()
    assert verdict.damaged
    assert verdict.replay.tolist() == [0, 1]


def test_a_fill_in_the_wrong_place_is_damage() -> None:
    w = Writer()
    w.posts(1)
    w.post()
    w.at = len(w.meta)
    w.fill(1)
    assert w.judge().damaged
    assert w.judge().fills == ()


def test_the_commit_log_of_another_log_is_refused() -> None:
    w = Writer()
    log = read_log(bytes(w.meta), 8)
    for rank, ranks, name in ((1, 2, "rank"), (0, 2, "num_ranks")):
        other = decode_records(
            COMMIT_LOG, encode_header(COMMIT_LOG, RecordHeader(ID, bytes(16), rank, ranks, "x"), SLOT_BYTES)
        )
        with pytest.raises(LogError, match="another log") as caught:
            committed_entries(log, other)
        assert caught.value.field == name


@pytest.mark.parametrize(
    ("at", "value", "name"),
    [(0, 0x51, "magic"), (8, 1, "version"), (8, 4, "version"), (12, 1, "header_bytes"), (15, 1, "header_bytes"),
     (48, 9, "rank"), (58, 1, "path_len"), (60, 0, "record_bytes"), (20, 0, "crc")],
)  # fmt: skip
def test_a_wrong_header_is_told(at: int, value: int, name: str) -> None:
    head = bytearray(encode_header(COMMIT_LOG, RecordHeader(ID, bytes(16), 0, 4, "/p/\udcff.nc"), SLOT_BYTES))
    assert decode_records(COMMIT_LOG, bytes(head)).header == RecordHeader(ID, bytes(16), 0, 4, "/p/\udcff.nc")
    head[at] = value
    with pytest.raises(LogError) as caught:
        decode_records(COMMIT_LOG, bytes(head))
    assert caught.value.field == name


@pytest.mark.parametrize(
    "header",
    [
        RecordHeader(b"short", bytes(16), 0, 1, ""),
        RecordHeader(ID, b"", 0, 1, ""),
        RecordHeader(ID, ID, 1, 1, ""),
        RecordHeader(ID, ID, 0, 1, "x" * 70000),
    ],
)
def test_a_header_that_cannot_be_written(header: RecordHeader) -> None:
    with pytest.raises(LogError):
        encode_header(COMMIT_LOG, header, SLOT_BYTES)


@pytest.mark.parametrize("seed", range(4))
def test_only_log_errors_escape(seed: int) -> None:
    """Records with right CRCs and wrong contents too: a log is anybody's file."""
    chance = random.Random(seed)
    numbers = [0, 1, 2, 8, 2**31, 2**63 - 1, 2**63, 2**64 - 1]
    for _ in range(120):
        w, _points = build(chance)
        for _ in range(chance.randint(1, 5)):
            kind = chance.choice([0, 1, 2, 3, 4, 5, 6])
            ends = [*w.ends, w.at, w.begin, *numbers]
            fields = {
                name: chance.choice(ends if name.endswith("end") else numbers)
                for name in ("meta_end", "data_end", "number", "request")
            }
            w.record(kind, **fields)
        if chance.random() < 0.5:
            w.commit[chance.randrange(len(w.commit))] ^= 1 << chance.randrange(8)
        try:
            verdict = w.judge()
        except LogError:
            continue
        assert set(verdict.replay.tolist()) == set(np.flatnonzero(verdict.state == 0).tolist())
        w.text()


# ------------------------------------------------------------------------------------------------ printing


def test_a_log_as_text() -> None:
    w = Writer()
    w.posts(3)
    w.record(TOMBSTONE, meta_end=w.ends[1])
    values = np.arange(4, dtype="f8").tobytes()
    w.meta += encode_varn(9, 7, [[1, 2], [3, 4]], [[1, 2], [1, 2]], len(w.data), len(values))
    w.data += values
    lines = w.text().splitlines()
    assert lines[0] == "file        /p/out.nc"
    assert "1 tombstone" in lines[4]
    assert lines[7].split() == ["0", "committed", "vara", "0", "int", "0", "2", "-", "8", "8"]
    assert lines[8].split()[:3] == ["1", "cancelled", "vara"]
    assert lines[10].split() == ["3", "torn", "varn", "2", "7", "double", "1,2..", "1,2..", "-", "32", "32"]
    assert lines[12] == "4 entries, 272 bytes, 56 bytes of data: 2 committed, 1 torn, 1 cancelled"
    assert lines[13].startswith("warning: 1 entries from byte")


def test_text_is_bounded_and_harmless() -> None:
    meta = encoding.encode_header(LogHeader("/p/\x1b[2J\n\udcff.nc", num_entries=1000))
    meta += b"".join(encode_vara(9, 0, (i,) * 12, (1,) * 12, 8 + 8 * i, 8) for i in range(1000))
    log = read_log(meta + b"torn", 8008)
    text = log_text(log, limit=3)
    assert len(text.splitlines()) == 13
    assert "997 more entries" in text
    assert "\\x1b[2J\\n\\udcff" in text
    assert "0,0,0,0,0,0,0,0,.." in text
    assert "last 4 bytes are dropped" in text
    assert len(log_text(log, limit=None).splitlines()) > 1000
    assert "more entries" in log_text(log, limit=0)


def test_the_flag_of_records_is_in_the_crc() -> None:
    """Kind and size are covered as well as the rest."""
    w = Writer()
    w.posts(1)
    at = len(w.commit) - 64
    for value in (1, 2, 3, 4, 5):
        struct.pack_into("<H", w.commit, at + 2, value)
        assert len(decode_records(COMMIT_LOG, bytes(w.commit)).records) == (value == COMMIT)


# ------------------------------------------------------------------------------------------ the open group


class Opened(Writer):
    """Posts behind the last commit, as a job leaves them that is killed."""

    def leave(self, count: int) -> bytes:
        """The record that a recovery finds for the open group; the word in the slot is that after so many entries."""
        last = read_log(bytes(self.meta), len(self.data)).entries[count - 1]
        data_end = last.data_off + last.data_len
        word = crc32(self.meta[self.at : self.ends[count - 1]]) ^ crc32(self.data[self.data_at : data_end])
        whole = bytearray(self.commit)
        at = len(encode_header(COMMIT_LOG, RecordHeader(self.log_id, bytes(16), 0, 1, "/p/out.nc"), SLOT_BYTES)) - 64
        struct.pack_into("<QQQQ", whole, at, word, 7, self.epoch, (len(whole) - at) // 64 - 1)
        self.commit = whole
        return self.found()

    def found(self) -> bytes:
        log = read_log(bytes(self.meta), len(self.data))
        commit_log = decode_records(COMMIT_LOG, bytes(self.commit))
        return commit_of_open_group(commit_log, log, lambda at, n: self.data[at : at + n])[0]


@pytest.mark.parametrize("committed", [0, 2])
def test_entries_behind_the_last_commit_count_up_to_the_word_in_the_slot(committed: int) -> None:
    w = Opened()
    w.posts(committed)
    for n in (3, 1, 0, 4):
        w.post(n)
    for count in range(committed + 1, committed + 5):
        w.commit += w.leave(count)
        verdict = w.judge()
        assert states(verdict) == "c" * count + "t" * (committed + 4 - count)
        assert verdict.request.tolist()[committed:count] == [7] + [-1] * (count - committed - 1)
        del w.commit[-64:]
    # A post that was being stored when the job was killed: nothing, a part, or all of it is there.
    meta, data = bytes(w.meta), bytes(w.data)
    w.leave(committed + 2)
    for at in range(w.ends[committed + 1], len(meta), 8):
        w.meta = bytearray(meta[:at]) + bytes(len(meta) - at)
        assert int(np.frombuffer(w.found(), COMMIT_LOG.dtype)["number"][0]) == 2
    w.meta, w.data = bytearray(meta), bytearray(data)


def test_a_bit_anywhere_in_the_open_group_drops_it() -> None:
    w = Opened()
    w.posts(1)
    for _ in range(3):
        w.post()
    assert w.leave(4)
    head = len(w.commit) - 64 - 64
    for name, begin, end in (("meta", w.at, len(w.meta)), ("data", w.data_at, len(w.data)), ("commit", head, head + 8)):
        for at in range(begin, end):
            getattr(w, name)[at] ^= 1 << (at % 8)
            assert not w.found(), (name, at)
            getattr(w, name)[at] ^= 1 << (at % 8)
    assert w.found()


def test_records_that_are_missing_before_the_open_group_are_damage() -> None:
    w = Opened()
    w.posts(2)
    w.post()
    record = w.leave(3)
    whole = bytes(w.commit)
    for cut in (1, 40, 64, 70, 128):
        w.commit = bytearray(whole[:-cut])
        log = read_log(bytes(w.meta), len(w.data))
        found, why = commit_of_open_group(
            decode_records(COMMIT_LOG, bytes(w.commit)), log, lambda at, n: w.data[at : at + n]
        )
        assert found == b""
        assert f"{1 + (cut > 64)} records of the commit log are missing" in why
    # A kill between the commit of the group and the slot.
    w.commit = bytearray(whole + record)
    assert w.found() == b""
    assert states(w.judge()) == "ccc"
