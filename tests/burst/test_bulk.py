"""Recovery of many entries at once: as one by one, and in work that does not grow with each entry."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from counted_work import calls_of
from hypothesis import given, settings
from hypothesis import strategies as st
from kills import logged_job
from log_bytes import Log

import pnc_vol
from pnc_vol.append_log.records import first_wrong

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


def made_log(folder: Path, posts: list[tuple[str, str, list[Any]]]) -> dict[str, np.ndarray[Any, Any]]:
    """A file and a log without commit log; what the file should hold afterwards."""
    arrays = {name: np.zeros(shape, TYPES[name][1]) for name, shape in SHAPES.items()}
    with pnc_vol.File(folder / "x.nc", "w") as f:
        for name, array in arrays.items():
            f.create_dataset(name, array.shape, array.dtype, maxshape=(None, 3) if name == "r" else None)
    names, log, value = list(SHAPES), Log(), 1
    for name, kind, parts in posts:
        array, values = arrays[name], b""
        for start, count, stride in parts:
            box = tuple(slice(s, s + c * t, t) for s, c, t in zip(start, count, stride, strict=True))
            n = int(np.prod(count))
            new = np.arange(value, value + n).astype(array.dtype)
            array[box] = new.reshape(count)
            values += new.tobytes()
            value += n
        pair = name == "z"  # a complex number is two of them
        starts = [x for start, _, _ in parts for x in [*start, *([0] if pair else [])]]
        counts = [x for _, count, _ in parts for x in [*count, *([2] if pair else [])]]
        rows = [starts, counts, parts[0][2]] if kind == "vars" else [starts, counts]
        log.add(len(parts) if kind == "varn" else kind, TYPES[name][0], names.index(name), *rows, data=values)
    log.leave(folder)
    return arrays


@settings(max_examples=80, deadline=None)
@given(posts=entries())
def test_many_entries_mean_what_each_means(
    posts: list[tuple[str, str, list[Any]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("twins")
    wanted = made_log(folder, posts)
    report = pnc_vol.replay(folder / "x.nc", folder / "x.nc_0_0.meta")
    assert (report.replayed, report.failed) == (len(posts), 0)
    with pnc_vol.File(folder / "x.nc") as f:
        for name, array in wanted.items():
            there = f[name][...]
            np.testing.assert_array_equal(there, array[: len(there)] if there.ndim else array)
            assert there.size == array.size or (name == "r" and not array[len(there) :].any())


def killed_job(folder: Path, count: int) -> None:
    """A job of many small posts to several datasets, stopped before it flushed them."""

    def work(f: Any) -> None:
        a = f.create_dataset("a", (count, 8), "f8")
        b = f.create_dataset("b", (0,), "i4", maxshape=(None,))
        s = f.create_dataset("s", (count,), "S5")
        b.resize((count,))
        f.flush()
        for i in range(count):
            a[i] = np.full(8, float(i))
            b[i : i + 1] = np.array([i], "i4")
            s[i] = b"%05d" % i

    logged_job(folder / "f.nc", folder, work)


@pytest.mark.parametrize("budget", [64 << 20, 64 << 10])
def test_the_calls_of_a_recovery_do_not_grow_with_the_entries(budget: int, tmp_path: Path) -> None:
    """With a budget that is small it goes in parts."""
    calls = []
    for count in (3, 500, 4000):
        folder = tmp_path / str(count)
        folder.mkdir()
        killed_job(folder, count)
        files = []
        options = {"recover": True, "burst_buf_dirname": str(folder), "buffer_size": budget}
        calls.append(calls_of(lambda: files.append(pnc_vol.File(folder / "f.nc", "r+", **options))))  # noqa: B023
        with files[0] as f:
            np.testing.assert_array_equal(f["a"][:, 3], np.arange(count))
            np.testing.assert_array_equal(f["b"][...], np.arange(count))
            assert f["s"][...].tolist() == [b"%05d" % i for i in range(count)]
    _, few, many = calls
    if budget > 1 << 20:
        assert many - few < 1000, f"{few} calls for 1,500 entries, {many} for 12,000"
    else:
        # some for each part that fits the budget, with 160 bytes for an entry
        assert many - few > 100 * (10_500 * 160 // budget)


def test_the_calls_of_a_replay_grow_with_the_datasets_and_not_with_their_square(tmp_path: Path) -> None:
    each = []
    for n in (20, 80, 320):
        folder = tmp_path / str(n)
        folder.mkdir()

        def work(f: Any, n: int = n) -> None:
            datasets = [f.create_dataset(f"v{i}", (2,), "i4") for i in range(n)]
            f.flush()
            for dataset in datasets:
                dataset[:] = 1

        logged_job(folder / "f.nc", folder, work)
        each.append(calls_of(lambda: pnc_vol.replay(folder / "f.nc", burst_buf_dirname=str(folder))) / n)  # noqa: B023
    assert each[2] <= 1.05 * each[1]


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
