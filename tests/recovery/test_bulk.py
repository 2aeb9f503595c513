"""Recovery of many entries at once: as one by one, and in work that does not grow with each entry."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from itertools import pairwise
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pnc_vol
from pnc_vol.append_log.bulk_crc import first_wrong
from pnc_vol.log.encoding import DATA_MAGIC, LogHeader, encode_header, encode_vara, encode_varn, encode_vars
from pnc_vol.options import Options
from pnc_vol.recovery import redo

SHAPES: dict[str, tuple[int, ...]] = {"f": (3, 4, 2), "r": (5, 3), "one": (7,), "scalar": (), "z": (4,)}
TYPES = {"f": (9, "f8"), "r": (4, "i2"), "one": (8, "f4"), "scalar": (9, "f8"), "z": (9, "c16")}


@st.composite
def blocks(draw: st.DrawFn, shape: tuple[int, ...], strided: bool) -> tuple[list[int], list[int], list[int]]:
    start, count, stride = [], [], []
    for dim in shape:
        first = draw(st.integers(0, dim - 1))
        step = draw(st.integers(1, 3)) if strided else 1
        start.append(first)
        count.append(draw(st.integers(0 if strided else 1, (dim - 1 - first) // step + 1)))
        stride.append(step)
    return start, count, stride


@st.composite
def entries(draw: st.DrawFn) -> list[tuple[str, str, list[Any]]]:
    found = []
    for _ in range(draw(st.integers(1, 12))):
        name = draw(st.sampled_from(list(SHAPES)))
        kind = draw(st.sampled_from(["vara", "vars", "varn"] if SHAPES[name] and name != "z" else ["vara"]))
        number = draw(st.integers(1, 4)) if kind == "varn" else 1
        found.append((name, kind, [draw(blocks(SHAPES[name], kind == "vars")) for _ in range(number)]))
    return found


def made_log(folder: pathlib.Path, posts: list[tuple[str, str, list[Any]]]) -> dict[str, np.ndarray[Any, Any]]:
    """A file and a log without commit log; what the file should hold afterwards."""
    arrays = {name: np.zeros(shape, TYPES[name][1]) for name, shape in SHAPES.items()}
    with pnc_vol.File(folder / "x.nc", "w") as f:
        for name, array in arrays.items():
            f.create_dataset(name, array.shape, array.dtype, maxshape=(None, 3) if name == "r" else None)
    names, data, made, value = list(SHAPES), DATA_MAGIC, [], 1
    for name, kind, parts in posts:
        itype, array = TYPES[name][0], arrays[name]
        values = b""
        for start, count, stride in parts:
            box = tuple(slice(s, s + c * t, t) for s, c, t in zip(start, count, stride, strict=True))
            n = int(np.prod(count))
            new = np.arange(value, value + n).astype(array.dtype)
            array[box] = new.reshape(count)
            values += new.tobytes()
            value += n
        coords = [[*start, *([0] if name == "z" else [])] for start, _, _ in parts]
        counts = [[*count, *([2] if name == "z" else [])] for _, count, _ in parts]
        varid, at = names.index(name), (len(data), len(values))
        if kind == "varn":
            made.append(encode_varn(itype, varid, coords, counts, *at))
        elif kind == "vars":
            made.append(encode_vars(itype, varid, coords[0], counts[0], parts[0][2], *at))
        else:
            made.append(encode_vara(itype, varid, coords[0], counts[0], *at))
        data += values
    (folder / "x.nc_0_0.meta").write_bytes(encode_header(LogHeader("x.nc", num_entries=len(made))) + b"".join(made))
    (folder / "x.nc_0_0.data").write_bytes(data)
    return arrays


@settings(max_examples=80, deadline=None)
@given(posts=entries(), in_rows=st.booleans())
def test_rows_mean_what_entries_mean_one_by_one(
    posts: list[tuple[str, str, list[Any]]], in_rows: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("twins")
    wanted = made_log(folder, posts)
    with pytest.MonkeyPatch.context() as patch:
        if not in_rows:
            # The general way, for every entry.
            patch.setattr(redo, "fitting", lambda source, indices, *_: indices)
            original = redo.rows_of_entries
            patch.setattr(
                redo, "rows_of_entries", lambda source, _, find: original(source, _[:0], find)._replace(left=_)
            )
        report = pnc_vol.replay(folder / "x.nc", folder / "x.nc_0_0.meta")
    assert (report.replayed, report.failed) == (len(posts), 0)
    with pnc_vol.File(folder / "x.nc") as f:
        for name, array in wanted.items():
            there = f[name][...]
            if name == "r":
                there, array = np.zeros((5, 3), "i2"), array
                there[: len(f[name])] = f[name][...]
            np.testing.assert_array_equal(there, array)


def killed_job(folder: pathlib.Path, count: int) -> None:
    """A job of many small posts to several datasets, stopped before it flushed them."""
    code = f"""
import os, numpy as np, pnc_vol
hints = {{"nc_burst_buf": "enable", "nc_burst_buf_dirname": {str(folder)!r}}}
f = pnc_vol.File({str(folder / "f.nc")!r}, "w", hints=hints)
a = f.create_dataset("a", ({count}, 8), "f8")
b = f.create_dataset("b", (0,), "i4", maxshape=(None,))
s = f.create_dataset("s", ({count},), "S5")
b.resize(({count},))
f.flush()
for i in range({count}):
    a[i] = np.full(8, float(i))
    b[i : i + 1] = np.array([i], "i4")
    s[i] = b"%05d" % i
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def calls_of_recovery(folder: pathlib.Path, count: int) -> int:
    """Calls of Python functions that putting a log into its file takes."""
    folder.mkdir()
    killed_job(folder, count)
    calls = 0

    def count_call(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count_call)
    try:
        f = pnc_vol.File(folder / "f.nc", "r+", recover=True, hints={"nc_burst_buf_dirname": str(folder)})
    finally:
        sys.setprofile(None)
    with f:
        np.testing.assert_array_equal(f["a"][:, 3], np.arange(count))
        np.testing.assert_array_equal(f["b"][...], np.arange(count))
        assert f["s"][...].tolist() == [b"%05d" % i for i in range(count)]
    return calls


def test_the_calls_of_a_recovery_do_not_grow_with_the_entries(tmp_path: pathlib.Path) -> None:
    calls_of_recovery(tmp_path / "warm", 3)
    few, many = (calls_of_recovery(tmp_path / str(count), count) for count in (500, 4000))
    assert many - few < 1000, f"{few} calls for 1,500 entries, {many} for 12,000"


def test_a_recovery_goes_in_parts_that_fit_the_budget(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed_job(tmp_path, 2000)
    parts: list[int] = []
    original = redo.rows_of_entries
    monkeypatch.setattr(
        redo, "rows_of_entries", lambda s, some, find: (parts.append(len(some)), original(s, some, find))[1]
    )
    options = Options(buffer_size=64 << 10)
    with pnc_vol.File(
        tmp_path / "f.nc",
        "r+",
        recover=True,
        buffer_size=options.buffer_size,
        hints={"nc_burst_buf_dirname": str(tmp_path)},
    ) as f:
        np.testing.assert_array_equal(f["a"][:, 0], np.arange(2000))
    assert sum(parts) == 6000
    assert max(parts) * 160 <= options.buffer_size


# --------------------------------------------------------------------------------------- many CRCs


@settings(max_examples=100, deadline=None)
@given(
    lengths=st.lists(st.sampled_from([0, 1, 7, 56, 64, 300, 4096, 9000]), max_size=60),
    bit=st.integers(0, 10**9),
    seed=st.integers(0, 2**32),
)
def test_a_wrong_piece_is_found_as_its_own_crc_would(lengths: list[int], bit: int, seed: int) -> None:
    data = bytearray(np.random.default_rng(seed).bytes(sum(lengths)))
    bounds = np.cumsum([0, *lengths])
    crcs = np.array([crc32(data[a:b]) for a, b in pairwise(bounds.tolist())], np.uint32)
    assert first_wrong(memoryview(data), bounds, crcs) == len(lengths)
    if data:
        data[bit // 8 % len(data)] ^= 1 << bit % 8
        one_by_one = [crc32(data[a:b]) == crc for a, b, crc in zip(bounds[:-1], bounds[1:], crcs.tolist(), strict=True)]
        assert first_wrong(memoryview(data), bounds, crcs) == one_by_one.index(False)
