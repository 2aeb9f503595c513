"""What a commit log says of a log: commits, tombstones, fills, flushes, and what a crash leaves of them."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from log_bytes import (
    COMMIT,
    FLUSHED,
    MAGIC,
    TOMBSTONE,
    Committed,
    commit_header,
    definition,
    documented,
    entry,
    leave,
    printed,
    states,
    told,
)

import pnc_vol
from pnc_vol.errors import LogError


class Writer(Committed):
    """A log of posts of two elements to elements 0, 10, 20, ... of a dataset."""

    def __init__(self, folder: Path, **more: Any) -> None:
        super().__init__(**more)
        self.folder = folder
        self.defs = definition(0, "/x", "<i4", [600]) + definition(1, "/r", "<i4", [9], record=True)

    def text(self) -> str:
        return printed(self.leave(self.folder), code=None)

    def judged(self) -> tuple[str, bool]:
        """The states of the entries, and whether the log is damaged."""
        text = self.text()
        return states(text), "damaged: no crash" in text

    def fills(self) -> int:
        found = [line.split()[0] for line in self.text().splitlines() if line.endswith("fills wait among the entries")]
        return int(found[0]) if found else 0

    def replayed(self, *numbers: int) -> None:
        """A replay puts these posts into the file, and no others."""
        path = self.folder / "x.nc"
        with pnc_vol.File(path, "w") as f:
            f["x"] = np.zeros(600, "i4")
            f.create_dataset("r", (9,), "i4", maxshape=(None,))
        report = pnc_vol.replay(path, self.leave(self.folder), any_file=True)
        assert (report.replayed, report.damaged) == (len(numbers), False)
        expected = np.zeros(600, "i4")
        for n in numbers:
            expected[10 * n : 10 * n + 2] = n + 1, n + 2
        with pnc_vol.File(path) as f:
            np.testing.assert_array_equal(f["x"][...], expected)


@pytest.fixture
def w(tmp_path: Path) -> Writer:
    return Writer(tmp_path)


def test_commits_of_one_post_and_of_groups(w: Writer) -> None:
    for _ in range(3):
        w.post()
    w.vouch(request=7)
    w.posts(2)
    assert w.judged() == ("ccccc", False)
    w.replayed(0, 1, 2, 3, 4)


def test_what_no_commit_vouches_for_is_torn(w: Writer) -> None:
    w.posts(2)
    w.post()
    assert w.judged() == ("cct", False)
    assert "1 entries from byte" in w.text()
    w.replayed(0, 1)


def test_nothing_is_replayed_twice(w: Writer) -> None:
    """Nor what a flush brought to the file that got half way; what is there need not be whole."""
    w.posts(2)
    w.record(FLUSHED, meta_end=w.at)
    w.epoch = 1
    w.posts(3)
    assert w.judged() == ("ffccc", False)
    w.replayed(2, 3, 4)
    w.record(FLUSHED, meta_end=w.ends[3])
    w.data[9] ^= 1
    assert w.judged() == ("ffffc", False)
    w.replayed(4)
    w.record(FLUSHED, meta_end=w.at)
    assert w.judged() == ("fffff", False)
    del w.meta[w.begin :], w.data[8:]
    assert w.judged() == ("", False), "it was cut"


def test_a_cancelled_request_does_not_come_back(w: Writer) -> None:
    w.posts(3)
    w.record(TOMBSTONE, request=102, meta_end=w.ends[1])
    assert w.judged() == ("cxc", False)
    w.replayed(0, 2)
    w.record(FLUSHED, meta_end=w.at)
    assert w.judged() == ("fxf", False)
    w.record(TOMBSTONE, request=101, meta_end=w.ends[0])
    assert w.judged() == ("fxf", False)
    assert "was already in the file" in w.text()


def test_fills_wait_until_a_flush_has_brought_what_is_before_them(w: Writer) -> None:
    w.fill(1)
    w.posts(1)
    w.fill(1)
    w.posts(1)
    assert w.fills() == 2
    w.record(FLUSHED, meta_end=w.ends[0])
    assert w.fills() == 0
    w.fill(1, first=3, number=2, request=9, epoch=1)
    assert w.fills() == 1


# ------------------------------------------------------------------------------------------------- crashes


def test_the_commit_log_cut_at_every_byte(w: Writer) -> None:
    w.posts(4)
    whole = bytes(w.commit)
    for cut in range(0, len(whole), 3):
        w.commit = bytearray(whole[:cut])
        if 0 < cut < w.head:
            with pytest.raises(LogError):
                pnc_vol.replay(w.folder / "x.nc", w.leave(w.folder))
        elif cut:
            n = (cut - w.head) // 64
            assert w.judged() == ("c" * n + "t" * (4 - n), False)


def flipped(content: bytearray, places: range) -> Iterator[int]:
    """Each place, with one bit of it flipped meanwhile."""
    for at in places:
        content[at] ^= 1 << (at % 8)
        yield at
        content[at] ^= 1 << (at % 8)


def test_a_bit_anywhere_in_the_three_files_is_noticed(w: Writer) -> None:
    """Each bit of entries, data and records is vouched for; what follows the wrong one is not replayed."""
    w.posts(3)
    for content, begin in ((w.meta, w.begin), (w.data, 8), (w.commit, w.head)):
        for at in flipped(content, range(begin, len(content))):
            part = (at - begin) * 3 // (len(content) - begin)
            letters, damaged = w.judged()
            assert letters.rstrip("t") == "c" * part, at
            # The last group may be torn; an earlier one cannot be, if a later one is whole.
            assert damaged == (part < 2), at
    assert w.judged() == ("ccc", False)


def test_large_data_is_checked_piece_by_piece(w: Writer) -> None:
    w.post(10 << 20)
    w.vouch()
    meta = w.leave(w.folder)
    assert told(meta)["to_replay"] == 1
    tracemalloc.start()
    try:
        told(meta)
        assert tracemalloc.get_traced_memory()[1] < 24 << 20
    finally:
        tracemalloc.stop()


# -------------------------------------------------------------------------------------------------- damage


def test_a_record_of_another_life_of_the_file_is_not_valid(w: Writer) -> None:
    old = Committed(log_id=bytes(range(1, 17)))
    w.posts(1)
    old.posts(3)
    w.commit += old.commit[len(w.commit) :]
    assert w.judged() == ("c", False)
    assert "the last 128 bytes are dropped" in w.text()


@pytest.mark.parametrize("skip", [0, 2, 5])
def test_a_gap_in_the_sequence_ends_the_prefix(skip: int, w: Writer) -> None:
    w.posts(1)
    w.sequence += skip - 1 if skip else -1
    w.posts(1)
    assert w.judged() == ("ct", True)
    assert "breaks the sequence" in w.text()


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (TOMBSTONE, {"meta_end": 3}),
        (TOMBSTONE, {"meta_end": 2**62}),
        (FLUSHED, {"meta_end": 1000}),
        (COMMIT, {"meta_end": 0, "data_end": 8}),
        (COMMIT, {"number": 1}),
        (COMMIT, {"request": 2**64 - 1}),
        (COMMIT, {"number": 2**64 - 1}),
    ],
)
def test_a_record_that_contradicts_the_log_is_damage(kind: int, wrong: dict[str, int], w: Writer) -> None:
    w.posts(2)
    ends = {"meta_end": w.at, "data_end": w.data_at} if kind == COMMIT else {}
    w.record(kind, **(ends | {name: value + w.begin * (name == "meta_end") for name, value in wrong.items()}))
    assert w.judged() == ("cc", True)


def test_a_fill_in_the_wrong_place_is_damage(w: Writer) -> None:
    w.posts(1)
    w.post()
    w.at = len(w.meta)
    w.fill(1)
    assert (w.judged(), w.fills()) == (("ct", True), 0)


@pytest.mark.parametrize(("rank", "ranks", "field"), [(1, 2, "rank"), (0, 2, "num_ranks")])
def test_the_commit_log_of_another_log_is_refused(rank: int, ranks: int, field: str, w: Writer) -> None:
    pnc_vol.File(w.folder / "x.nc", "w").close()
    w.commit = bytearray(commit_header(w.log_id, 2, rank=rank, ranks=ranks))
    with pytest.raises(LogError, match="another log") as caught:
        pnc_vol.replay(w.folder / "x.nc", w.leave(w.folder))
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("at", "value", "name"),
    [(0, 0x51, "magic"), (8, 4, "version"), (12, 1, "header_bytes"), (15, 1, "header_bytes"), (48, 9, "rank"),
     (58, 1, "path_len"), (60, 0, "record_bytes"), (20, 0, "crc")],
)  # fmt: skip
def test_a_wrong_header_is_told(at: int, value: int, name: str, w: Writer) -> None:
    pnc_vol.File(w.folder / "x.nc", "w").close()
    w.commit = bytearray(commit_header(w.log_id, 2, path=b"/p/\xff.nc"))
    assert told(w.leave(w.folder))["entries"] == 0
    w.commit[at] = value
    with pytest.raises(LogError) as caught:
        pnc_vol.replay(w.folder / "x.nc", w.leave(w.folder))
    assert caught.value.field == name


# ------------------------------------------------------------------------------------------------ printing


def test_a_log_as_text(w: Writer) -> None:
    w.posts(3)
    w.record(TOMBSTONE, meta_end=w.ends[1])
    values = np.arange(4, dtype="f8").tobytes()
    w.meta += entry(2, 9, 7, len(w.data), len(values), [1, 2, 3, 4], [1, 2, 1, 2])
    w.data += values
    lines = w.text().splitlines()[3:]
    assert lines[0] == "file        out.nc"
    assert "1 tombstone" in lines[4]
    assert lines[7].split() == ["0", "committed", "vara", "0", "int", "0", "2", "-", "8", "8"]
    assert lines[8].split()[:3] == ["1", "cancelled", "vara"]
    assert lines[10].split() == ["3", "torn", "varn", "2", "7", "double", "1,2..", "1,2..", "-", "32", "32"]
    assert lines[12] == "4 entries, 272 bytes, 56 bytes of data: 2 committed, 1 torn, 1 cancelled"
    assert lines[13].startswith("warning: 1 entries from byte")


def test_text_is_bounded_and_harmless(tmp_path: Path) -> None:
    entries = [entry("vara", 9, 0, 8 + 8 * i, 8, (i,) * 12, (1,) * 12) for i in range(1000)]
    meta = leave(tmp_path, documented(entries, path="/p/\x1b[2J\n.nc") + b"torn", MAGIC + bytes(8000))
    text = printed(meta, "--limit", 3)
    assert len(text.splitlines()) == 14
    assert "997 more entries" in text
    assert "\\x1b[2J\\n.nc" in text
    assert "0,0,0,0,0,0,0,0,.." in text
    assert "last 4 bytes are dropped" in text
    assert len(printed(meta, "--limit", 0).splitlines()) > 1000


@pytest.mark.parametrize("kind", [1, 2, 3, 4, 5])
def test_the_kind_of_a_record_is_in_its_crc(kind: int, w: Writer) -> None:
    w.posts(1)
    struct.pack_into("<H", w.commit, len(w.commit) - 62, kind)
    assert w.judged()[0] == ("c" if kind == COMMIT else "t")


# ------------------------------------------------------------------------------------------ the open group


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("committed", [0, 2])
def test_entries_behind_the_last_commit_count_up_to_the_word_in_the_slot(
    version: int, committed: int, tmp_path: Path
) -> None:
    w = Writer(tmp_path, version=version)
    w.posts(committed)
    for n in (3, 1, 0, 4):
        w.post(n)
    for count in range(committed + 1, committed + 5):
        w.open_group(count)
        assert w.judged() == ("c" * count + "t" * (committed + 4 - count), False)
    # A post that was being stored when the job was killed: nothing, a part, or all of it is there.
    meta = bytes(w.meta)
    w.open_group(committed + 2)
    for at in range(w.ends[committed + 1], len(meta), 8):
        w.meta = bytearray(meta[:at]) + bytes(len(meta) - at)
        letters, damaged = w.judged()
        assert (letters.rstrip("t"), damaged) == ("c" * (committed + 2), False)


def test_a_bit_anywhere_in_the_open_group_drops_it(w: Writer) -> None:
    w.posts(1)
    for _ in range(3):
        w.post()
    w.open_group(4)
    assert w.judged() == ("cccc", False)
    slot = w.head - w.slot
    for content, places in (
        (w.meta, range(w.at, len(w.meta))),
        (w.data, range(w.data_at, len(w.data))),
        (w.commit, range(slot, slot + 8)),
    ):
        for at in flipped(content, places):
            letters, damaged = w.judged()
            assert letters.rstrip("t") == "c", at
            # one entry that is torn is what a kill may leave
            assert damaged == (letters != "ct"), at
    assert w.judged() == ("cccc", False)


def test_records_that_are_missing_before_the_open_group_are_damage(w: Writer) -> None:
    w.posts(2)
    w.post()
    w.open_group(3)
    whole = bytes(w.commit)
    for cut in (1, 40, 64, 70, 128):
        w.commit = bytearray(whole[:-cut])
        assert w.judged() == ("c" * (1 - (cut > 64)) + "t" * (2 + (cut > 64)), True)
        assert f"{1 + (cut > 64)} records of the commit log are missing" in w.text()
    # A kill between the commit of the group and the slot.
    w.commit = bytearray(whole)
    w.vouch(request=7)
    assert w.judged() == ("ccc", False)
