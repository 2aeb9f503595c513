"""Logs of other writers are read: the C library's samples, its releases, the older document; hostile bytes are refused.

The writers here spell the bytes field by field, and share nothing with the encoder of the package.
"""

from __future__ import annotations

import random
import struct
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from c_logs import c_entry, c_log, old_entry, old_log, three
from log_entries import values_of

from pnc_vol.append_log.shared_blocks import SHARED_BLOCK, shared_pieces
from pnc_vol.errors import FormatError, LogError
from pnc_vol.log.decoding import Log, count_channels, read_log
from pnc_vol.log.encoding import LogHeader, encode_header, encode_vara
from pnc_vol.recovery.printing import log_text
from pnc_vol.recovery.scan import committed_entries

SAMPLES = Path(__file__).parents[3] / "shared" / "data" / "burst_buffer"


def said(log: Log, data: bytes) -> list[Any]:
    return [
        (
            e.kind,
            e.varid,
            e.start.tolist(),
            e.count.tolist(),
            None if e.stride is None else e.stride.tolist(),
            v.tolist(),
        )
        for i, e in enumerate(log.entries)
        for v in [values_of(log, i, data)]
    ]


THREE = [
    ("vara", 0, [[0, 0]], [[2, 6]], None, list(range(12))),
    ("vars", 3, [[0]], [[3]], [2], [7, 8, 9]),
    ("varn", 3, [[1], [4]], [[1], [1]], None, [70, 71]),
    ("vara", 2, [[]], [[]], None, [42]),
]


# ------------------------------------------------------------------------------- samples of the C library


@pytest.mark.parametrize(
    ("name", "ranks", "rank", "counted"),
    [("small_np1", 1, 0, 0), ("small_np2", 2, 0, 0), ("small_np2", 2, 1, 0), ("small_crash", 1, 0, 8)],
)
def test_samples_hold_what_was_written(name: str, ranks: int, rank: int, counted: int) -> None:
    base = SAMPLES / name / f"small.nc_0_{rank}"
    if not base.with_name(base.name + ".meta").exists():
        pytest.skip("../shared/data/burst_buffer is missing: samples of the C library are not part of the project")
    meta, data = (base.with_name(base.name + suffix).read_bytes() for suffix in (".meta", ".data"))
    log = read_log(meta, len(data))
    a = (np.arange(12) + 100 * rank).tolist()
    assert said(log, data) == [
        ("vara", 0, [[2 * rank, 0]], [[2, 6]], None, a),
        ("vara", 1, [[rank, 0]], [[1, 6]], None, [0.5, 1.5, 2.5, 3.5, 4.5, 5.5]),
        ("vars", 3, [[0]], [[3]], [2], [7, 8, 9]),
        ("vara", 2, [[]], [[]], None, [42]),
        ("varn", 0, [[3, 0], [3, 2], [3, 4]], [[1, 1]] * 3, None, [9000, 9001, 9002]),
        ("varn", 3, [[1], [4]], [[1], [1]], None, [70, 71]),
        ("vara", 1, [[0, 2]], [[1, 1]], None, [3.25]),
        ("vara", 3, [[5]], [[1]], None, [1000]),
    ]
    assert [log.entries.dtype(i, "<").str for i in range(8)] == ["<f8", "<f4", "<i2", "<i4", "<f8", "<i2", "<f4", "<i2"]
    assert (log.layout, log.torn_bytes, log.counted) == ("c-library", 0, counted)
    assert (log.header.num_ranks, log.header.rank_id, log.header.processor) == (ranks, rank, "vm")
    assert log.header.path.startswith("/scratch/bblogs/small")
    assert log.header.path.endswith("/small.nc")
    assert f"8 {'committed' if counted else 'uncounted'}" in log_text(log)


# ----------------------------------------------------------------------------------- releases and layouts


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("generation", ["1.11", "1.12.3", "1.13"])
@pytest.mark.parametrize("path", [b"/p/f.nc", b"/p/ff.nc", b"/p/fff.nc", b"/p/ffff.nc", "/p/ä\x1b.nc".encode()])
@pytest.mark.parametrize("node", [b"", b"n", b"a-longer-node-name"])
def test_c_library_of_each_release(order: str, generation: str, path: bytes, node: bytes) -> None:
    entries, data = three(order)
    log = read_log(c_log(entries, path=path, node=node, order=order, generation=generation, ranks=(4, 3)), len(data))
    assert said(log, data) == THREE
    assert (log.layout, log.header.byteorder, log.counted, log.torn_bytes) == ("c-library", order, 4, 0)
    assert (log.header.path.encode(), log.header.processor.encode()) == (path, node)
    assert (log.header.num_ranks, log.header.rank_id) == (4, 3)
    assert not [f for f in log.findings if f.severity == "error"]


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("path", [b"/p/f.nc", b"/p/ff.nc", b"/p/fff.nc", b"/p/ffff.nc"])
def test_c_library_of_the_first_release_counts_kinds_upwards(order: str, path: bytes) -> None:
    entries = [
        c_entry(-3, 9, 0, 8, 96, [0, 0], [2, 6], [0, 0], order=order),
        c_entry(-4, 4, 3, 104, 6, [0], [3], [2], order=order),
    ]
    flipped = [e[:8] + struct.pack(order + "i", -struct.unpack_from(order + "i", e, 8)[0]) + e[12:] for e in entries]
    data = three(order)[1][:110]
    log = read_log(c_log(flipped, path=path, order=order, generation="1.10"), len(data))
    assert said(log, data) == THREE[:2]
    assert (log.layout, log.writer, log.header.path.encode()) == ("c-library", "PnetCDF 1.10", path)


def test_counts_that_are_absent_are_ones() -> None:
    log = read_log(c_log([c_entry(2, 4, 3, 8, 4, [1, 4])]), 12)
    assert log.entries[0].count.tolist() == [[1], [1]]
    (rows,) = log.entries.rows()
    assert (rows.entry.tolist(), rows.start.tolist(), rows.count.tolist()) == ([0, 0], [[1], [4]], [[1], [1]])


def test_entries_of_before_a_flush_are_known_to_be_stale() -> None:
    """After a flush the C library starts again at the first entry, over what is there."""
    old, data = three()
    new = [c_entry("vara", 9, 0, 8, 96, [2, 0], [2, 6], [0, 0])]
    log = read_log(c_log([*new, *old[1:]], count=1), len(data))
    assert (log.counted, len(log.entries)) == (1, 4)
    verdict = committed_entries(log)
    assert (verdict.replay.tolist(), verdict.totals(), verdict.damaged) == (
        [0],
        {"committed": 1, "uncounted": 3},
        False,
    )
    assert committed_entries(log, uncounted=True).replay.tolist() == [0, 1, 2, 3]
    # Another shape: the old entries do not line up, and their data does not follow.
    log = read_log(c_log([c_entry("vara", 9, 0, 8, 8, [5], [1], [0]), *old[1:]], count=1), len(data))
    assert (log.counted, len(log.entries), log.torn_bytes) == (1, 1, sum(map(len, old[1:])))
    assert not [f for f in log.findings if f.severity == "error"]


def test_a_count_beyond_the_entries_is_damage() -> None:
    entries, data = three()
    log = read_log(c_log(entries, count=6), len(data))
    verdict = committed_entries(log)
    assert (log.counted, verdict.damaged, verdict.replay.tolist()) == (4, True, [0, 1, 2, 3])
    assert [(f.severity, f.offset, f.field, f.value) for f in verdict.findings] == [("error", 56, "num_entries", 6)]
    log = read_log(c_log(entries), 104)
    assert (log.counted, log.torn_bytes) == (1, sum(map(len, entries[1:])))
    assert "entry[1].data_len" in {f.field for f in log.findings}
    assert committed_entries(log).damaged


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("nreqs", [True, False])
@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("begin", [None, 0, 10**12])
def test_the_older_document(order: str, nreqs: bool, native: bool, begin: int | None) -> None:
    def entry(*args: Any) -> bytes:
        return old_entry(*args, order=order, nreqs=nreqs)

    entries = [
        entry("vara", 9, 0, 8, 96, [0, 0], [2, 6], [0, 0]),
        entry("vars", 4, 3, 104, 6, [0], [3], [2]),
        entry(2, 4, 3, 110, 4, [1, 4], [1, 1], [0]),
        entry("vara", 6, 2, 114, 4, [], [], []),
        entry("vara", 2, 4, 118, 2, [0], [2], [0]),
        entry("vara", 3, 5, 120, 2, [0], [2], [0]),
        entry(2, 4, 3, 122, 4, [1, 4], [1, 1]),
    ]
    data = three(order)[1] + b"\xff\xfe\xff\xfe" + np.array([1, 2], order + "i2").tobytes()
    log = read_log(old_log(entries, order=order, begin=begin, native=native), len(data))
    last = [
        ("vara", 4, [[0]], [[2]], None, [255, 254]),
        ("vara", 5, [[0]], [[2]], None, [-1, -2]),
        ("varn", 3, [[1], [4]], [[1], [1]], None, [1, 2]),
    ]
    assert said(log, data) == THREE + last
    assert (log.layout, log.counted, log.torn_bytes, log.header.path) == ("older", 7, 0, "out.nc")


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("path", ["f.nc", "ff.nc", "fff.nc", "ffff.nc"])
def test_the_documented_layout_under_the_digit_of_the_c_library(order: str, path: str) -> None:
    _, data = three(order)
    meta = encode_header(LogHeader(path, "node", num_entries=1, byteorder=order))
    entry = c_entry("vara", 9, 0, 8, 96, [0, 0], [2, 6], order=order)
    log = read_log(b"PnetCDF0" + meta[8:] + entry, len(data))
    assert said(log, data) == THREE[:1]
    assert (log.layout, log.counted, log.header.path) == ("documented", 1, path)


def test_a_gap_before_the_first_entry_is_skipped() -> None:
    meta = bytearray(encode_header(LogHeader("f.nc", num_entries=1)))
    struct.pack_into("<q" if LogHeader("").byteorder == "<" else ">q", meta, 56, len(meta) + 24)
    log = read_log(bytes(meta) + b"x" * 24 + encode_vara(6, 0, (0,), (1,), 8, 4), 12)
    assert (len(log.entries), log.header.entry_begin) == (1, len(meta) + 24)


# ------------------------------------------------------------------------------------------ shared logs


def test_a_log_that_ranks_share_is_taken_apart() -> None:
    block, entries = 64, three()[0]
    logs = [c_log(entries, ranks=(3, rank)) for rank in range(3)]
    shared = bytearray(3 * block * (-(-len(logs[0]) // block)))
    for rank, log in enumerate(logs):
        at = 0
        for place, n in shared_pieces(rank, 3, 0, len(log), block=block):
            shared[place : place + n] = log[at : at + n]
            at += n
    assert count_channels(shared, block=block) == 3
    for rank, log in enumerate(logs):
        again = b"".join(shared[at : at + n] for at, n in shared_pieces(rank, 3, 0, len(log), block=block))
        assert again == log
        assert read_log(again, 118).header.rank_id == rank


def test_a_shared_log_is_not_taken_for_one_of_a_rank() -> None:
    one = c_log(three()[0])
    with pytest.raises(LogError, match="another rank"):
        read_log(one + bytes(SHARED_BLOCK - len(one)) + one, 118)


# ------------------------------------------------------------------------------------------------ hostile


def put(meta: bytes, at: int, form: str, value: int) -> bytes:
    changed = bytearray(meta)
    struct.pack_into("<" + form, changed, at, value)
    return bytes(changed)


@pytest.mark.parametrize(
    ("at", "form", "value", "field"),
    [
        (0, "B", 0x51, "magic"),
        (7, "B", 0x32, "magic"),
        (8, "B", 0x44, "format"),
        (16, "i", 1, "big_endian"),
        (20, "i", 2, "is_external"),
        (24, "q", 0, "num_ranks"),
        (24, "q", -1, "num_ranks"),
        (32, "q", 1, "rank_id"),
        (32, "q", -1, "rank_id"),
        (48, "q", -1, "num_entries"),
        (56, "q", 8, "entry_begin"),
        (56, "q", 2**40, "entry_begin"),
        (64, "i", -1, "basename length"),
        (64, "i", 2**31 - 1, "basename length"),
        (68, "B", 0, "basename"),
    ],
)
def test_a_wrong_header_is_told_with_its_place(at: int, form: str, value: int, field: str) -> None:
    meta = put(encode_header(LogHeader("out.nc", "node", byteorder="<")), at, form, value)
    with pytest.raises(LogError) as caught:
        read_log(meta, 8)
    assert caught.value.field == field
    assert isinstance(caught.value, FormatError)
    assert caught.value.offset is not None


@pytest.mark.parametrize(
    ("at", "form", "value", "field"),
    [
        (0, "q", 32, "esize"),
        (0, "q", 73, "esize"),
        (0, "q", -8, "esize"),
        (0, "q", 2**62, "esize"),
        (8, "i", 0, "api_kind"),
        (8, "i", -5, "api_kind"),
        (8, "i", 2**31 - 1, "esize"),
        (12, "i", 0, "itype"),
        (12, "i", 12, "itype"),
        (12, "i", 8, "data_len"),
        (16, "i", -1, "varid"),
        (20, "i", -1, "ndims"),
        (20, "i", 2**31 - 1, "ndims"),
        (20, "i", 1, "esize"),
        (24, "q", 0, "data_off"),
        (24, "q", 2**63 - 1, "data_off"),
        (24, "q", 100, "data_len"),
        (32, "q", -96, "data_len"),
        (32, "q", 88, "data_len"),
        (40, "q", -1, "start"),
        (40, "q", 2**63 - 1, "start"),
        (56, "q", -2, "start"),
        (56, "q", 2**61 + 2, "data_len"),
        (64, "q", 2**62, "data_len"),
    ],
)
def test_a_wrong_entry_ends_the_log(at: int, form: str, value: int, field: str) -> None:
    header = encode_header(LogHeader("out.nc", num_entries=2, byteorder="<"))
    good = c_entry("vara", 9, 0, 8, 96, [0, 0], [2, 6])
    log = read_log(header + good + put(good, at, form, value) + good, 104)
    assert (len(log.entries), log.counted, log.torn_bytes) == (1, 1, 2 * len(good))
    faults = [f for f in log.findings if f.field.startswith("entry[1]")]
    assert [(f.field, f.offset) for f in faults] == [(f"entry[1].{field}", len(header) + len(good))]


@pytest.mark.parametrize("stride", [0, -1, 2**62])
def test_strides_that_lead_nowhere(stride: int) -> None:
    log = read_log(c_log([c_entry("vars", 4, 3, 8, 6, [0], [3], [stride])]), 14)
    assert len(log.entries) == 0
    # With one element, no stride is too far.
    log = read_log(c_log([c_entry("vars", 4, 3, 8, 2, [0], [1], [max(stride, 1)])]), 14)
    assert len(log.entries) == 1


def test_a_log_cut_anywhere_keeps_what_is_whole() -> None:
    entries, data = three()
    whole = c_log(entries)
    begin = len(whole) - sum(map(len, entries))
    ends = [begin + sum(map(len, entries[:n])) for n in range(len(entries) + 1)]
    for cut in range(len(whole)):
        if cut < begin:
            with pytest.raises(LogError):
                read_log(whole[:cut], len(data))
            continue
        log = read_log(whole[:cut], len(data))
        n = sum(end <= cut for end in ends) - 1
        assert (len(log.entries), log.torn_bytes) == (n, cut - ends[n])
        assert said(log, data) == THREE[:n]


def _samples() -> list[bytes]:
    entries, _ = three()
    old = [old_entry("vara", 9, 0, 8, 96, [0, 0], [2, 6], [0, 0]), old_entry(2, 4, 3, 110, 4, [1, 4], [1, 1], [0])]
    documented = encode_header(LogHeader("out.nc", "node", num_entries=4, byteorder="<")) + b"".join(entries)
    return [c_log(entries), c_log(entries, generation="1.11"), old_log(old), documented]


@pytest.mark.parametrize("seed", range(8))
def test_only_log_errors_escape(seed: int) -> None:
    chance = random.Random(seed)
    interesting = [0, 1, -1, 2**31 - 1, -(2**31), 2**62, 2**63 - 1, -(2**63), 8, 40, 1024, 1025]
    samples = _samples()
    for _ in range(250):
        meta = bytearray(chance.choice(samples))
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(meta) - 8)
            if chance.random() < 0.5:
                meta[at] = chance.randrange(256)
            elif chance.random() < 0.7:
                struct.pack_into("<q", meta, at & ~3, chance.choice(interesting))
            else:
                del meta[at : at + chance.randint(1, 9)]
        size = chance.choice([0, 8, 118, 2**40])
        try:
            log = read_log(bytes(meta), size)
        except LogError:
            continue
        for entry in log.entries:
            assert 0 <= entry.data_off <= entry.data_off + entry.data_len <= size
            assert (entry.start >= 0).all()
        rows = sum(len(found.entry) for found in log.entries.rows())
        assert rows <= len(meta)
        log_text(log)


def test_nothing_is_made_for_what_a_field_claims() -> None:
    huge = struct.pack("<q4i2q", 40, 2**31 - 1, 1, 0, 0, 8, 2**31 - 1)
    meta = c_log([huge], count=2**62)
    tracemalloc.start()
    began = time.perf_counter()
    log = read_log(meta, 2**40)
    text = log_text(log)
    assert sum(len(found.entry) for found in log.entries.rows()) == 1
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()
    assert time.perf_counter() - began < 5
    assert "varn 2147483647" in text


def test_many_entries_are_read_at_once() -> None:
    n = 100_000
    body = b"".join(encode_vara(9, i & 7, (i, 0), (1, 6), 8 + 48 * i, 48) for i in range(n))
    meta = encode_header(LogHeader("out.nc", num_entries=n)) + body
    times = []
    for _ in range(3):
        began = time.process_time()
        log = read_log(meta, 8 + 48 * n)
        times.append(time.process_time() - began)
    assert (len(log.entries), log.findings) == (n, ())
    (rows,) = log.entries.rows()
    assert (rows.start[:, 0] == np.arange(n)).all()
    assert min(times) < 1.0
