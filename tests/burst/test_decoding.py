"""Logs of other writers are read: the C library's samples, its releases, both documents; hostile bytes are refused."""

from __future__ import annotations

import shutil
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from log_bytes import MAGIC, c_entry, c_log, documented, entry, leave, old_entry, old_log, printed, states, three, told

import pnc_vol
from pnc_vol.errors import FormatError, LogError

SAMPLES = Path(__file__).parents[3] / "shared" / "data" / "burst_buffer"
BLOCK = 8 << 20
"""Bytes of a block of files that ranks share."""

NOTHING: dict[str, Any] = {"a": [[0] * 6] * 4, "b": [[0] * 6] * 2, "s": 0, "k": [0] * 6, "u": [0, 0], "e": [0, 0]}
THREE = NOTHING | {"a": [[*range(6)], [*range(6, 12)], [0] * 6, [0] * 6], "s": 42, "k": [7, 70, 8, 0, 71, 9]}
"""What `three` leaves in a file that holds `NOTHING`."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file for the logs, its variables in the order of their numbers in entries."""
    with pnc_vol.File(tmp_path / "x.nc", "w") as f:
        for name, dtype in zip("abskue", ("f8", "f4", "i4", "i2", "u1", "i1"), strict=True):
            f[name] = np.zeros(np.shape(NOTHING[name]), dtype)
    return tmp_path / "x.nc"


def replay(path: Path, meta: bytes, data: bytes, **options: Any) -> Any:
    return pnc_vol.replay(path, leave(path.parent, meta, data), **options)


def contents(path: Path) -> dict[str, Any]:
    with pnc_vol.File(path) as f:
        return {name: f[name][...].tolist() for name in f}


# ------------------------------------------------------------------------------- samples of the C library


@pytest.mark.parametrize(
    ("name", "ranks", "rank", "counted"),
    [("small_np1", 1, 0, 0), ("small_np2", 2, 0, 0), ("small_np2", 2, 1, 0), ("small_crash", 1, 0, 8)],
)
def test_samples_are_what_was_written(name: str, ranks: int, rank: int, counted: int, path: Path) -> None:
    base = SAMPLES / name / f"small.nc_0_{rank}"
    if not base.with_name(base.name + ".meta").exists():
        pytest.skip("../shared/data/burst_buffer is missing: samples of the C library are not part of the project")
    meta = path.with_name("sample.meta")
    for suffix in (".meta", ".data"):
        shutil.copy(base.with_name(base.name + suffix), meta.with_suffix(suffix))
    said = told(meta)
    assert (said["layout"], said["torn_bytes"], said["entries"], said["counted"]) == ("c-library", 0, 8, counted)
    assert (said["ranks"], said["rank"], said["node"]) == (ranks, rank, "vm")
    assert said["file"].startswith("/scratch/bblogs/small")
    assert said["file"].endswith("/small.nc")
    text = printed(meta)
    assert states(text) == ("c" if counted else "u") * 8
    assert [line.split()[2:6] for line in text.splitlines()[7:15]] == [
        ["vara", "0", "double", f"{2 * rank},0"], ["vara", "1", "float", f"{rank},0"], ["vars", "3", "short", "0"],
        ["vara", "2", "int", "-"], ["varn", "3", "0", "double"], ["varn", "2", "3", "short"],
        ["vara", "1", "float", "0,2"], ["vara", "3", "short", "5"],
    ]  # fmt: skip
    report = pnc_vol.replay(path, meta, uncounted=True, partial=True)
    assert (report.replayed, report.failed) == (8, 0)
    a = np.zeros((4, 6))
    a[2 * rank : 2 * rank + 2] = np.arange(12).reshape(2, 6) + 100 * rank
    a[3, ::2] = [9000, 9001, 9002]
    b = np.zeros((2, 6))
    b[rank] = np.arange(6) + 0.5
    b[0, 2] = 3.25
    expected = {"a": a.tolist(), "b": b.tolist(), "s": 42, "k": [7, 70, 8, 0, 71, 1000]}
    assert contents(path) == NOTHING | expected


# ----------------------------------------------------------------------------------- releases and layouts


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("generation", ["1.11", "1.12.3", "1.13"])
@pytest.mark.parametrize("name", [b"/p/f.nc", b"/p/ff.nc", b"/p/fff.nc", b"/p/ffff.nc", "/p/ä\x1b.nc".encode()])
@pytest.mark.parametrize("node", [b"", b"n", b"a-longer-node-name"])
def test_c_library_of_each_release(order: str, generation: str, name: bytes, node: bytes, path: Path) -> None:
    entries, data = three(order)
    meta = c_log(entries, path=name, node=node, order=order, generation=generation, ranks=(4, 3))
    assert replay(path, meta, data, partial=True).replayed == 5
    assert contents(path) == THREE
    said = told(path.with_name("x.nc_0_0.meta"))
    assert (said["layout"], said["counted"], said["torn_bytes"], said["damaged"]) == ("c-library", 5, 0, False)
    assert (said["file"].encode(), said["node"].encode(), said["ranks"], said["rank"]) == (name, node, 4, 3)


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("name", [b"/p/f.nc", b"/p/ff.nc", b"/p/fff.nc", b"/p/ffff.nc"])
def test_c_library_of_the_first_release_counts_kinds_upwards(order: str, name: bytes, path: Path) -> None:
    entries, data = three(order)
    flipped = [e[:8] + struct.pack(order + "i", -struct.unpack_from(order + "i", e, 8)[0]) + e[12:] for e in entries]
    assert replay(path, c_log(flipped[:2], path=name, order=order, generation="1.10"), data[:110]).replayed == 2
    assert contents(path) == NOTHING | {"a": THREE["a"], "k": [7, 0, 8, 0, 9, 0]}
    text = printed(path.with_name("x.nc_0_0.meta"))
    assert "c-library (PnetCDF 1.10)" in text
    assert f"file        {name.decode()}" in text


def test_entries_of_before_a_flush_are_known_to_be_stale(path: Path) -> None:
    """After a flush the C library starts again at the first entry, over what is there."""
    old, data = three()
    new = c_entry("vara", 9, 0, 8, 96, [2, 0], [2, 6])
    report = replay(path, c_log([new, *old[1:]], count=1), data)
    assert (report.replayed, report.uncounted, report.damaged) == (1, 4, False)
    assert states(printed(path.with_name("x.nc_0_0.meta"))) == "cuuuu"
    assert replay(path, c_log([new, *old[1:]], count=1), data, uncounted=True).replayed == 5
    # Another shape: the old entries do not line up, and their data does not follow.
    report = replay(path, c_log([c_entry("vara", 9, 0, 8, 8, [2, 5], [1, 1]), *old[1:]], count=1), data)
    assert (report.replayed, report.torn_bytes, report.damaged) == (1, sum(map(len, old[1:])), False)


def test_a_count_beyond_the_entries_is_damage(path: Path) -> None:
    entries, data = three()
    for meta, size, replayed in ((c_log(entries, count=7), len(data), 5), (c_log(entries), 104, 1)):
        with pytest.raises(LogError, match=f"counts {7 - 2 * (size == 104)} entries, {replayed} can be read"):
            replay(path, meta, data[:size])
        assert contents(path) == NOTHING
    report = replay(path, meta, data[:104], salvage=True)
    assert (report.replayed, report.torn_bytes, report.damaged) == (1, sum(map(len, entries[1:])), True)


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("nreqs", [True, False])
@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("begin", [None, 0, 10**12])
def test_the_older_document(order: str, nreqs: bool, native: bool, begin: int | None, path: Path) -> None:
    def old(*args: Any) -> bytes:
        return old_entry(*args, order=order, nreqs=nreqs)

    entries = [
        old("vara", 9, 0, 8, 96, [0, 0], [2, 6], [0, 0]),
        old("vars", 4, 3, 104, 6, [0], [3], [2]),
        old(2, 4, 3, 110, 4, [1, 4], [1, 1], [0]),
        old("vara", 6, 2, 114, 4, [], [], []),
        old(1, 4, 3, 118, 2, [5], [1]),
        old("vara", 2, 4, 120, 2, [0], [2], [0]),
        old("vara", 3, 5, 122, 2, [0], [2], [0]),
    ]
    data = three(order)[1] + b"\xff\xfe\xff\xfe"
    assert replay(path, old_log(entries, order=order, begin=begin, native=native), data).whole
    assert contents(path) == THREE | {"u": [255, 254], "e": [-1, -2]}
    said = told(path.with_name("x.nc_0_0.meta"))
    assert (said["layout"], said["counted"], said["file"]) == ("older", 7, "out.nc")


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("digit", "01")
@pytest.mark.parametrize("name", ["f.nc", "ff.nc", "fff.nc", "ffff.nc"])
def test_the_document(order: str, digit: str, name: str, path: Path) -> None:
    """Also under the digit of the C library, and with a gap before the first entry."""
    entries, data = three(order)
    for gap in (0, 24):
        meta = documented(entries, path=name, order=order, magic=b"PnetCDF" + digit.encode(), gap=gap)
        assert replay(path, meta, data).whole
        assert contents(path) == THREE
        said = told(path.with_name("x.nc_0_0.meta"))
        assert (said["layout"], said["counted"], said["file"]) == ("documented", 5, name)


@pytest.mark.parametrize("dtype", ["i4", "i8"])
def test_a_long_is_as_long_as_its_data(dtype: str, path: Path) -> None:
    values = np.array([1, -2, 3], "<" + dtype).tobytes()
    meta = documented([entry("vara", 13, 3, 8, len(values), [0], [3])])
    assert replay(path, meta, MAGIC + values).replayed == 1
    assert contents(path)["k"] == [1, -2, 3, 0, 0, 0]
    with pytest.raises(LogError, match="counts 1 entries, 0 can be read"):
        replay(path, meta, MAGIC + values[:-1])


# ------------------------------------------------------------------------------------------ shared logs


def test_a_log_that_ranks_share_is_taken_apart(path: Path) -> None:
    """Block i of rank c of three is block 3 i + c of the file; one rank has more values than a block holds."""
    with pnc_vol.File(path, "r+") as f:
        f.create_dataset("large", (BLOCK,), "u1")
    large = np.arange(BLOCK, dtype=np.uint32).astype(np.uint8)
    posts = [
        (c_entry("vara", 9, 0, 8, 96, [0, 0], [2, 6]), np.arange(12.0).tobytes()),
        (c_entry("vara", 3, 6, 8, BLOCK, [0], [BLOCK]), large.tobytes()),
        (c_entry("vara", 6, 2, 8, 4, [], []), b"\x2a\0\0\0"),
    ]
    meta, data = bytearray(2 * BLOCK + 4096), bytearray(5 * BLOCK)
    for rank, (one, values) in enumerate(posts):
        log, values = c_log([one], ranks=(3, rank)), b"PnetCDF0" + values
        meta[rank * BLOCK : rank * BLOCK + len(log)] = log
        data[rank * BLOCK : rank * BLOCK + len(values[:BLOCK])] = values[:BLOCK]
        data[(3 + rank) * BLOCK : (3 + rank) * BLOCK + len(values[BLOCK:])] = values[BLOCK:]
    report = replay(path, bytes(meta), bytes(data))
    assert (report.logs, report.replayed, report.whole) == (3, 3, True)
    with pnc_vol.File(path) as f:
        assert (f["a"][:2].tolist(), f["s"][()]) == (THREE["a"][:2], 42)
        np.testing.assert_array_equal(f["large"][...], large)


# ------------------------------------------------------------------------------------------------ hostile


def put(meta: bytes, at: int, form: str, value: int) -> bytes:
    changed = bytearray(meta)
    struct.pack_into("<" + form, changed, at, value)
    return bytes(changed)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("magic", [(0, "B", 0x51), (7, "B", 0x32)]),
        ("format", [(8, "B", 0x44)]),
        ("big_endian", [(16, "i", 1)]),
        ("is_external", [(20, "i", 2)]),
        ("num_ranks", [(24, "q", 0), (24, "q", -1)]),
        ("rank_id", [(32, "q", 1), (32, "q", -1)]),
        ("num_entries", [(48, "q", -1)]),
        ("entry_begin", [(56, "q", 8), (56, "q", 2**40)]),
        ("basename length", [(64, "i", -1), (64, "i", 2**31 - 1)]),
        ("basename", [(68, "B", 0)]),
    ],
)
def test_a_wrong_header_is_told_with_its_place(field: str, wrong: list[Any], path: Path) -> None:
    for change in wrong:
        with pytest.raises(LogError) as caught:
            replay(path, put(documented([]), *change), MAGIC)
        assert caught.value.field == field
        assert isinstance(caught.value, FormatError)
        assert caught.value.offset is not None


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("esize", [(0, "q", 32), (0, "q", 73), (0, "q", -8), (0, "q", 2**62), (8, "i", 2**31 - 1)]),
        ("esize", [(20, "i", 1)]),
        ("api_kind", [(8, "i", 0), (8, "i", -5)]),
        ("itype", [(12, "i", 0), (12, "i", 12)]),
        ("varid", [(16, "i", -1)]),
        ("ndims", [(20, "i", -1), (20, "i", 2**31 - 1)]),
        ("data_off", [(24, "q", 0), (24, "q", 2**63 - 1)]),
        ("data_len", [(12, "i", 8), (24, "q", 100), (32, "q", -96), (32, "q", 88)]),
        ("data_len", [(56, "q", 2**61 + 2), (64, "q", 2**62)]),
        ("start", [(40, "q", -1), (40, "q", 2**63 - 1), (56, "q", -2)]),
    ],
)  # fmt: skip
def test_a_wrong_entry_ends_the_log(field: str, wrong: list[Any], path: Path) -> None:
    good = c_entry("vara", 9, 0, 8, 96, [0, 0], [2, 6])
    begin = len(documented([]))
    for change in wrong:
        meta = leave(path.parent, documented([good, put(good, *change), good], count=2), bytes(104))
        said = told(meta, code=2)
        assert (said["entries"], said["counted"], said["torn_bytes"]) == (1, 1, 2 * len(good))
        (finding,) = said["findings"]
        assert finding.startswith(f"entry[1].{field} ")
        assert f"at byte {begin + len(good)}" in finding


@pytest.mark.parametrize("stride", [0, -1, 2**62])
def test_strides_that_lead_nowhere(stride: int, path: Path) -> None:
    meta = leave(path.parent, c_log([c_entry("vars", 4, 3, 8, 6, [0], [3], [stride])]), bytes(14))
    assert told(meta, code=2)["entries"] == 0
    # With one element, no stride is too far.
    assert replay(path, c_log([c_entry("vars", 4, 3, 8, 2, [0], [1], [max(stride, 1)])]), bytes(10)).replayed == 1


@pytest.mark.parametrize("form", [c_log, documented])
def test_a_log_cut_anywhere_keeps_what_is_whole(form: Any, path: Path) -> None:
    entries, data = three()
    whole = form(entries)
    begin = len(whole) - sum(map(len, entries))
    ends = [begin + sum(map(len, entries[:n])) for n in range(len(entries) + 1)]
    before = path.read_bytes()
    for cut in range(0, len(whole), 7):
        path.write_bytes(before)
        if cut < begin:
            with pytest.raises(LogError):
                replay(path, whole[:cut], data)
            continue
        report = replay(path, whole[:cut], data, salvage=True)
        n = sum(end <= cut for end in ends) - 1
        assert (report.replayed, report.torn_bytes) == (n, cut - ends[n])
        found = contents(path)
        assert found == (NOTHING | {name: THREE[name] for name in "as"[: 1 + (n > 3)] if n} | {"k": found["k"]})


def test_nothing_is_made_for_what_a_field_claims(path: Path) -> None:
    huge = struct.pack("<q4i2q", 40, 2**31 - 1, 1, 0, 0, 8, 2**31 - 1)
    meta = leave(path.parent, c_log([huge], count=2**62), b"")
    with open(meta.with_suffix(".data"), "wb") as data:
        data.truncate(2**32)
    tracemalloc.start()
    try:
        assert "varn 2147483647" in printed(meta, code=2)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
