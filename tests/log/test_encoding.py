"""What is written is the document's bytes, and comes back as it was."""

from __future__ import annotations

import doctest
import importlib
import itertools
import struct
import timeit
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_entries import encode_entry, values_of

from pnc_vol.errors import LogError
from pnc_vol.log import encoding as layout
from pnc_vol.log.decoding import read_log
from pnc_vol.log.encoding import (
    ITYPES,
    NATIVE,
    NUM_ENTRIES_AT,
    Entry,
    LogHeader,
    encode_header,
    encode_vara,
    encode_varn,
    encode_vars,
    itype_of,
)


@pytest.mark.parametrize(
    "name", ["log.encoding", "log.entries", "log.decoding", "log.commit_log", "recovery.scan", "recovery.printing"]
)
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(f"pnc_vol.{name}")).failed == 0


def test_the_header_byte_by_byte() -> None:
    header = LogHeader("out.nc", "node1", 4, 3, 2, 7, byteorder="<")
    assert encode_header(header) == b"".join(
        [
            b"PnetCDF1",
            b"CDF5\0\0\0\0",
            struct.pack("<2i", 0, 0),
            struct.pack("<5q", 4, 3, 2, 7, 88),
            struct.pack("<i", 6) + b"out.nc\0\0",
            struct.pack("<i", 5) + b"node1\0\0\0",
        ]
    )
    big = encode_header(header._replace(byteorder=">", is_external=True))
    assert big[16:24] == bytes([0, 0, 0, 1, 0, 0, 0, 1])
    assert big[24:64] == struct.pack(">5q", 4, 3, 2, 7, 88)


def test_the_count_is_put_where_it_belongs() -> None:
    data = bytearray(encode_header(LogHeader("out.nc")))
    data[NUM_ENTRIES_AT : NUM_ENTRIES_AT + 8] = struct.pack(NATIVE + "q", 1)
    assert bytes(data) == encode_header(LogHeader("out.nc", num_entries=1))


def test_entries_byte_by_byte() -> None:
    fixed = struct.pack(NATIVE + "q4i2q", 72, -3, 9, 5, 2, 8, 96)
    assert encode_vara(9, 5, (1, 2), [3, 4], 8, 96) == fixed + struct.pack(NATIVE + "4q", 1, 2, 3, 4)
    fixed = struct.pack(NATIVE + "q4i2q", 64, -4, 4, 3, 1, 104, 6)
    assert encode_vars(4, 3, [0], [3], [2], 104, 6) == fixed + struct.pack(NATIVE + "3q", 0, 3, 2)
    fixed = struct.pack(NATIVE + "q4i2q", 104, 2, 9, 0, 2, 138, 16)
    coords = struct.pack(NATIVE + "8q", 3, 0, 3, 2, 1, 1, 1, 1)
    assert encode_varn(9, 0, [[3, 0], [3, 2]], [[1, 1], [1, 1]], 138, 16) == fixed + coords
    assert len(encode_vara(6, 2, (), (), 8, 4)) == 40


def test_the_way_of_most_posts_is_short() -> None:
    arguments = 9, 5, (100, 200), (3, 4), 8, 96
    best = min(timeit.repeat(lambda: encode_vara(*arguments), number=2000, repeat=5)) / 2000
    assert best < 20e-6  # 1 to 2 microseconds on a machine that is not busy


@pytest.mark.parametrize("code", sorted(ITYPES))
def test_types_have_one_code(code: int) -> None:
    dtype = np.dtype(NATIVE + ITYPES[code])
    assert itype_of(dtype) == (code if code != layout.LONG else 10)
    assert itype_of(dtype.newbyteorder(">")) == itype_of(dtype)


@pytest.mark.parametrize("dtype", ["f2", "c8", "S2", "U1", "O", "?"])
def test_types_that_no_log_has(dtype: str) -> None:
    with pytest.raises(LogError, match="holds no values of type"):
        itype_of(dtype)


@pytest.mark.parametrize(
    "make",
    [
        lambda: encode_header(LogHeader("a\0b")),
        lambda: encode_header(LogHeader("a", num_ranks=-1)),
        lambda: encode_header(LogHeader("a", format=b"CDF5")),
        lambda: encode_varn(9, 0, [[1, 2]], [[1]], 8, 8),
        lambda: encode_varn(9, 0, np.zeros((0, 2)), np.zeros((0, 2)), 8, 8),
    ],
)
def test_what_cannot_be_written_is_refused(make: Callable[[], bytes]) -> None:
    with pytest.raises(LogError):
        make()


# --------------------------------------------------------------------------------------- there and back


def entry(kind: str, start: Any, count: Any, stride: Any = None, itype: int = 9, varid: int = 0, at: int = 8) -> Entry:
    starts, counts = np.array(start, np.int64), np.array(count, np.int64)
    n = int(counts.prod(axis=1).sum()) * np.dtype(ITYPES[itype]).itemsize
    strides = None if stride is None else np.array(stride, np.int64)
    return Entry(kind, itype, varid, starts.shape[1], at, n, starts, counts, strides)


@st.composite
def logs(draw: st.DrawFn) -> tuple[LogHeader, list[Entry]]:
    order = draw(st.sampled_from("<>"))
    entries, at = [], 8
    for _ in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(["var", "var1", "vara", "vars", "varn"]))
        ndims = draw(st.integers(0, 4))
        n = draw(st.integers(1, 5)) if kind == "varn" else 1
        far, few = st.integers(0, 2**50), st.integers(0, 3)

        def rows(numbers: st.SearchStrategy[int], n: int = n, ndims: int = ndims) -> Any:
            return np.array(draw(st.lists(numbers, min_size=n * ndims, max_size=n * ndims)), np.int64).reshape(n, ndims)

        counts = np.ones((n, ndims), np.int64) if kind == "var1" else rows(few)
        stride = rows(st.integers(1, 2**40), 1)[0] if kind == "vars" else None
        code = draw(st.sampled_from([code for code in ITYPES if code != layout.LONG]))
        made = entry(kind, rows(far), counts, stride, code, draw(st.integers(0, 2**31 - 1)), at)
        entries.append(made)
        at += made.data_len
    text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
    ranks = draw(st.integers(1, 2**31 - 1))
    rank = draw(st.integers(0, ranks - 1))
    most = max((e.ndims for e in entries), default=0)
    path, node = draw(text), draw(text)
    return LogHeader(path, node, ranks, rank, most, len(entries), byteorder=order), entries


def same(a: Entry, b: Entry) -> bool:
    return all(np.array_equal(getattr(a, f), getattr(b, f)) for f in Entry.__slots__ if f not in ("offset", "size"))


@settings(deadline=None, max_examples=150)
@given(logs())
def test_there_and_back(made: tuple[LogHeader, list[Entry]]) -> None:
    header, entries = made
    head = encode_header(header)
    bodies = [encode_entry(e, byteorder=header.byteorder) for e in entries]
    size = 8 + sum(e.data_len for e in entries)
    log = read_log(head + b"".join(bodies), size)
    assert log.header == header._replace(entry_begin=len(head))
    assert (log.layout, log.findings, log.torn_bytes, log.counted) == ("documented", (), 0, len(entries))
    assert len(log.entries) == len(entries)
    assert all(same(a, b) for a, b in zip(log.entries, entries, strict=True))
    places = list(itertools.accumulate([len(head), *map(len, bodies)]))
    assert [e.offset for e in log.entries] == places[:-1]
    assert log.entries.end.tolist() == places[1:]
    check_rows(log.entries, entries)


def check_rows(found: Any, entries: list[Entry]) -> None:
    """The columns hold what the entries hold, one row for each sub-request."""
    seen: dict[int, list[Any]] = {i: [] for i in range(len(entries))}
    for rows in found.rows():
        stride = rows.start * 0 if rows.stride is None else rows.stride
        for i, *numbers in zip(rows.entry.tolist(), rows.start, rows.count, stride, strict=True):
            seen[i].append([a.tolist() for a in numbers])
    for i, e in enumerate(entries):
        if not e.ndims:
            assert seen[i] == [[[], [], []]]
            continue
        stride = [0] * e.ndims if e.stride is None else e.stride.tolist()
        assert seen[i] == [[s, c, stride] for s, c in zip(e.start.tolist(), e.count.tolist(), strict=True)]


@settings(deadline=None, max_examples=10)
@given(logs())
def test_cut_at_every_byte(made: tuple[LogHeader, list[Entry]]) -> None:
    header, entries = made
    head = encode_header(header)
    bodies = [encode_entry(e, byteorder=header.byteorder) for e in entries]
    ends = list(itertools.accumulate([len(head), *map(len, bodies)]))
    whole = head + b"".join(bodies)
    size = 8 + sum(e.data_len for e in entries)
    for cut in range(len(whole)):
        if cut < len(head):
            with pytest.raises(LogError):
                read_log(whole[:cut], size)
            continue
        log = read_log(whole[:cut], size)
        n = sum(end <= cut for end in ends) - 1
        assert (len(log.entries), log.torn_bytes) == (n, cut - ends[n])
        assert all(same(a, b) for a, b in zip(log.entries, entries[:n], strict=True))


def test_a_whole_variable_has_no_coordinates() -> None:
    made = Entry("var", 6, 1, 2, 8, 24, np.zeros((1, 2), np.int64), np.full((1, 2), -1))
    log = read_log(encode_header(LogHeader("x", num_entries=1)) + encode_entry(made), 32)
    assert same(log.entries[0], made)
    assert log.entries[0].size == 40
    assert log.entries.whole.tolist() == [True]
    assert list(log.entries.rows()) == []


def test_values_in_the_types_of_the_file_are_left_to_the_file() -> None:
    made = entry("vara", [[0]], [[3]])
    body = encode_entry(made)[:32] + struct.pack(NATIVE + "q", 6) + encode_entry(made)[40:]
    log = read_log(encode_header(LogHeader("x", num_entries=1, is_external=True)) + body, 14)
    assert (log.counted, log.entries[0].data_len, log.torn_bytes) == (1, 6, 0)


@pytest.mark.parametrize(("size", "dtype"), [(4, "i4"), (8, "i8")])
def test_a_long_is_as_long_as_its_data(size: int, dtype: str) -> None:
    body = encode_vara(layout.LONG, 0, (0,), (3,), 8, 3 * size)
    log = read_log(encode_header(LogHeader("x", num_entries=1)) + body, 8 + 3 * size)
    data = b"PnetCDF1" + np.array([1, -2, 3], dtype).tobytes()
    assert values_of(log, 0, data).tolist() == [1, -2, 3]
    short = read_log(encode_header(LogHeader("x", num_entries=1)) + body, 8 + 3 * size - 1)
    assert (len(short.entries), short.counted) == (0, 0)


def test_an_entry_that_is_not_there() -> None:
    log = read_log(encode_header(LogHeader("x")), 8)
    with pytest.raises(IndexError, match="no entry 0"):
        log.entries[0]
