"""Replaying: logs of the C library, logs that lie, and what a log of ours says of names, lengths and other ranks."""

from __future__ import annotations

import json
import pathlib
import shutil
import sys
import tracemalloc
from typing import Any

import numpy as np
import pytest
from kills import logged_job
from log_bytes import Log, line

import pnc_vol
from pnc_vol.errors import LogError, LogRefusedError

SAMPLES = pathlib.Path(__file__).parents[2] / "../shared/data/burst_buffer"
needs_samples = pytest.mark.skipif(not SAMPLES.exists(), reason="../shared/data/burst_buffer is not there")

A = np.array([range(6), range(6, 12), [0] * 6, [9000, 0, 9001, 0, 9002, 0]], float)
B = np.array([[0.5, 1.5, 3.25, 3.5, 4.5, 5.5]], "f4")
K = [7, 70, 8, 0, 71, 1000]


def sample(name: str, tmp_path: pathlib.Path) -> pathlib.Path:
    shutil.copytree(SAMPLES / name, tmp_path / name)
    return tmp_path / name


@needs_samples
def test_a_crash_of_the_c_library(tmp_path: pathlib.Path) -> None:
    folder = sample("small_crash", tmp_path)
    for _ in range(2):
        report = pnc_vol.replay(folder / "small.nc", folder / "small.nc_0_0.meta")
        assert (report.replayed, report.whole) == (8, True)
        with pnc_vol.File(folder / "small.nc") as f:
            np.testing.assert_array_equal(f["a"][...], A)
            np.testing.assert_array_equal(f["b"][...], B)
            assert f["k"][...].tolist() == K
            assert f["s"][()] == 42


@needs_samples
@pytest.mark.parametrize("ranks", [1, 2])
def test_logs_that_the_c_library_kept(ranks: int, tmp_path: pathlib.Path) -> None:
    folder = sample(f"small_np{ranks}", tmp_path)
    path = folder / "small.nc"
    with pnc_vol.File(path) as f:
        theirs = {name: f[name][...] for name in f}
    report = pnc_vol.replay(path, folder)
    assert (report.replayed, report.uncounted, report.whole) == (0, 8 * ranks, False)
    report = pnc_vol.replay(path, folder, uncounted=True)
    assert (report.replayed, report.whole) == (8 * ranks, True)
    with pnc_vol.File(path) as f:
        ours = {name: f[name][...] for name in f}
    a = A.copy()
    if ranks == 2:
        a[2] = np.arange(100, 106)
        # Rank 1 wrote its row before its three values; the C library kept the first.
        a[3] = [9000, 107, 9001, 109, 9002, 111]
        assert theirs["a"][3].tolist() == list(range(106, 112))
    differ = {(name, *place) for name in ours for place in np.argwhere(ours[name] != theirs[name]).tolist()}
    # What was never written is as it was; what was written twice has the last value here.
    unwritten = {("a", 2, i) for i in range(6)} | {("a", 3, i) for i in (1, 3, 5)}
    overlaps = {("b", 0, 2)} if ranks == 1 else {("a", 3, i) for i in (0, 2, 4)}
    assert differ - (unwritten if ranks == 1 else set()) == overlaps
    written = np.ones(a.shape, bool)
    if ranks == 1:
        written[2], written[3, 1::2] = False, False
    np.testing.assert_array_equal(ours["a"][written], a[written])
    assert ours["b"][0].tolist() == B[0].tolist()
    assert ours["s"] == 42
    assert [v for i, v in enumerate(ours["k"].tolist()) if i != 3] == [7, 70, 8, 71, 1000]


@needs_samples
def test_one_rank_of_two_is_refused_unless_asked_for(tmp_path: pathlib.Path) -> None:
    folder = sample("small_np2", tmp_path)
    with pytest.raises(LogRefusedError, match="ranks 1"):
        pnc_vol.replay(folder / "small.nc", folder / "small.nc_0_0.meta")
    report = pnc_vol.replay(folder / "small.nc", folder / "small.nc_0_0.data", partial=True, uncounted=True)
    assert report.replayed == 8


@needs_samples
def test_logs_are_refused_in_a_heap(tmp_path: pathlib.Path) -> None:
    folder = sample("small_np2", tmp_path)
    for suffix in ("meta", "data"):
        shutil.copy(folder / f"small.nc_0_0.{suffix}", folder / f"small.nc_1_0.{suffix}")
    with pytest.raises(LogRefusedError, match="a separate folder"):
        pnc_vol.replay(folder / "small.nc", folder)


# --------------------------------------------------------------------------- logs as the C library has them, made here


class Made(Log):
    """A log in the documented layout without commit log, for a file with fixed, record and text variables."""

    def __init__(self, tmp_path: pathlib.Path) -> None:
        super().__init__()
        self.path = tmp_path / "x.nc"
        with pnc_vol.File(self.path, "w") as f:
            f["f"] = np.zeros((3, 4))
            f.create_dataset("r", (1, 2), "i2", maxshape=(None, 2))
            f.create_dataset("s", (2,), "S6")
            f.create_dataset("c", (2,), "c16")

    def replay(self, **options: Any) -> Any:
        return pnc_vol.replay(self.path, self.leave(self.path.parent), **options)


@pytest.fixture
def made(tmp_path: pathlib.Path) -> Made:
    return Made(tmp_path)


def test_records_that_the_header_does_not_count_yet(made: Made) -> None:
    made.add("vara", 4, 1, (4, 0), (2, 2), data=np.array([1, 2, 3, 4], "i2").tobytes())
    made.add("vars", 4, 1, (0, 1), (3, 1), (3, 1), data=np.array([7, 8, 9], "i2").tobytes())
    assert made.replay().replayed == 2
    with pnc_vol.File(made.path) as f:
        assert f["r"][...].tolist() == [[0, 7], [0, 0], [0, 0], [0, 8], [1, 2], [3, 4], [0, 9]]


def test_parts_of_strings_and_of_complex_numbers(made: Made) -> None:
    made.add("vara", 1, 2, (0, 0), (2, 6), data=b"abcdefABCDEF")
    made.add("vara", 1, 2, (1, 2), (1, 3), data=b"xyz")
    made.add(2, 1, 2, (0, 5, 1, 0), (1, 1, 1, 2), data=b"!12")
    made.add("vara", 9, 3, (0, 0), (2, 2), data=np.array([1, 2, 3, 4.0]).tobytes())
    made.add("vara", 9, 3, (0, 1), (2, 1), data=np.array([5.0, 6]).tobytes())
    assert made.replay().replayed == 5
    with pnc_vol.File(made.path) as f:
        assert f["s"][...].tolist() == [b"abcde!", b"12xyzF"]
        assert f["c"][...].tolist() == [1 + 5j, 3 + 6j]


def test_values_of_another_type_are_converted(made: Made) -> None:
    made.add("vara", 6, 0, (0, 0), (1, 4), data=np.arange(4, dtype="i4").tobytes())
    made.add("vara", 6, 1, (0, 0), (1, 2), data=np.array([1, 70000], "i4").tobytes())
    made.add("vara", 8, 0, (1, 0), (1, 4), data=np.full(4, 0.5, "f4").tobytes())
    report = made.replay()
    assert (report.replayed, report.failed, report.whole) == (3, 1, False)
    assert any("entry 1, of /r" in message for message in report.messages)
    with pnc_vol.File(made.path) as f:
        assert f["f"][:2].tolist() == [[0, 1, 2, 3], [0.5] * 4]
        assert f["r"][0].tolist() == [0, 0]


def test_a_number_of_ranks_that_no_job_has_takes_no_memory(made: Made) -> None:
    made.add("vara", 9, 0, (0, 0), (1, 4), data=np.ones(4).tobytes())
    meta = made.leave(made.path.parent)
    content = bytearray(meta.read_bytes())
    content[24:32] = (2**31 - 1).to_bytes(8, sys.byteorder)
    meta.write_bytes(content)
    tracemalloc.start()
    with pytest.raises(LogRefusedError, match="of 2147483647 logs, and those of ranks 1, 2, 3, 4, 5, 6, 7, 8, "):
        pnc_vol.replay(made.path, meta)
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


HOSTILE: dict[str, tuple[Any, ...]] = {
    "variable": ("vara", 9, 4, (0, 0), (1, 1), 8),
    "dimensions": ("vara", 9, 0, (0,), (1,), 8),
    "start": ("vara", 9, 0, (3, 0), (1, 1), 8),
    "count": ("vara", 9, 0, (0, 1), (1, 4), 32),
    "stride": ("vars", 9, 0, (0, 0), (3, 1), (2, 1), 24),
    "varn": (2, 9, 0, (0, 0, 9, 0), (1, 1, 1, 1), 16),
    "text to numbers": ("vara", 1, 0, (0, 0), (1, 4), 4),
    "numbers to text": ("vara", 2, 2, (0, 0), (2, 6), 12),
    "beyond a string": ("vara", 1, 2, (0, 4), (2, 3), 6),
    "stride in a string": ("vars", 1, 2, (0, 0), (1, 3), (1, 2), 3),
    "far record": ("vara", 4, 1, (1 << 40, 0), (1, 2), 4),
    "far column": ("vara", 4, 1, (0, 1), (1, 2), 4),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_log_that_lies_changes_nothing(kind: str, made: Made) -> None:
    how, itype, varid, *coords, nbytes = HOSTILE[kind]
    made.add("vara", 9, 0, (0, 0), (1, 4), data=np.ones(4).tobytes())
    made.add(how, itype, varid, *coords, data=bytes(nbytes))
    before = made.path.read_bytes()
    for _ in range(2):
        with pytest.raises(LogError, match=r"is not possible|does not have|records"):
            made.replay()
        assert made.path.read_bytes() == before
    assert len(list(made.path.parent.iterdir())) == 3


# ------------------------------------------------------------------------------------------------- logs of ours


def test_records_that_were_cut_off_do_not_come_back(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    with pnc_vol.File(tmp_path / "x.nc", "w") as f:
        f.create_dataset("old", (8,), "i4", maxshape=(None,), fillvalue=-1)[:] = 5

    def work(f: Any) -> None:
        r = f.create_dataset("r", (6, 2), "i4", maxshape=(None, 2), fillvalue=-3)
        r[:] = 1
        r.resize(2, axis=0)
        f["old"].resize(3, axis=0)
        r.resize(5, axis=0)
        r[3] = 4
        f["old"][1] = 6
        r[0] = 9
        # to the length that it had
        same = f.create_dataset("same", (4,), "i4", maxshape=(None,))
        same[:] = 1
        same.resize(2, axis=0)
        same.resize(4, axis=0)
        same[0] = 2

    found = logged_job(tmp_path / "x.nc", logs, work, "r+")
    for _ in range(2):
        assert pnc_vol.replay(tmp_path / "x.nc", found).whole
        with pnc_vol.File(tmp_path / "x.nc") as f:
            assert f["r"][:].tolist() == [[9, 9], [1, 1], [-3, -3], [4, 4], [-3, -3]]
            assert f["old"][:].tolist() == [5, 6, 5]
            assert f["same"][:].tolist() == [2, 1, 0, 0]


def test_names_that_changed_hands(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    with pnc_vol.File(tmp_path / "x.nc", "w") as f:
        f["kept"], f["gone"], f["moved"] = [1, 1], [2, 2], [3, 3]

    def work(f: Any) -> None:
        f["kept"][0] = 10
        f["gone"][0] = 20
        del f["gone"]
        f["gone"] = [0.5, 0.25, 0.125]
        f.move("moved", "elsewhere")
        f.create_dataset("moved", (1,), "i1")[0] = 4
        f["elsewhere"][1] = 30

    found = logged_job(tmp_path / "x.nc", logs, work, "r+")
    for _ in range(2):
        assert pnc_vol.replay(tmp_path / "x.nc", found).whole
        with pnc_vol.File(tmp_path / "x.nc") as f:
            assert {name: f[name][:].tolist() for name in f} == {
                "kept": [10, 1], "gone": [0.5, 0.25, 0.125], "elsewhere": [3, 30], "moved": [4],
            }  # fmt: skip


def test_a_log_of_another_file_is_refused(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    with pnc_vol.File(tmp_path / "x.nc", "w") as f:
        f["x"] = [1, 2]
    found = logged_job(tmp_path / "x.nc", logs, lambda f: f["x"].__setitem__(0, 5), "r+")
    for name, value in (("x", [1.5, 2.5]), ("x", [1, 2, 3]), ("y", [1, 2])):
        with pnc_vol.File(tmp_path / "other.nc", "w") as f:
            f[name] = value
        before = (tmp_path / "other.nc").read_bytes()
        with pytest.raises(LogRefusedError, match="another file"):
            pnc_vol.replay(tmp_path / "other.nc", found)
        assert (tmp_path / "other.nc").read_bytes() == before
    shutil.copy(tmp_path / "x.nc", tmp_path / "copy.nc")
    with pytest.raises(LogRefusedError, match="another file"):
        pnc_vol.replay(tmp_path / "copy.nc", found)
    report = pnc_vol.replay(tmp_path / "copy.nc", found, any_file=True)
    assert report.replayed == 1
    assert "written for" in report.messages[0]


def redefined(tmp_path: pathlib.Path, logs: pathlib.Path, change: dict[str, Any]) -> Any:
    """A log that a killed job left, with a definition that says something else, and the right CRC."""
    found = logged_job(tmp_path / "x.nc", logs, lambda f: f.__setitem__("x", [1.0]))
    defs = found[0].with_suffix(".defs")
    base, first = defs.read_bytes().split(b"\n")[:2]
    defs.write_bytes(base + b"\n" + line(json.loads(first[9:]) | change))
    return found


@pytest.mark.parametrize("path", ["../evil", "/../evil", "/a/../b", "/", "", "//x", "/a\0b"])
def test_paths_in_definitions_lead_nowhere(path: str, tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    found = redefined(tmp_path, logs, {"path": path})
    before = (tmp_path / "x.nc").read_bytes()
    with pytest.raises(LogError, match="definition"):
        pnc_vol.replay(tmp_path / "x.nc", found)
    assert (tmp_path / "x.nc").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == [".x.nc.pncbb", "logs", "x.nc"]


@pytest.mark.parametrize(
    "change",
    [{"shape": [-1]}, {"shape": [1 << 62, 1 << 62]}, {"type": "O"}, {"type": ["x"]}, {"width": 0}, {"width": 1 << 40},
     {"record": True, "shape": []}, {"fill": "zz"}, {"varid": None}, {"shape": 3}],
)  # fmt: skip
def test_definitions_that_cannot_be(change: dict[str, Any], tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    found = redefined(tmp_path, logs, change)
    with pytest.raises(LogError):
        pnc_vol.replay(tmp_path / "x.nc", found)


@pytest.mark.parametrize(("sync", "left"), [("each", 2), ("none", 0)])
def test_what_is_damaged_is_salvaged_on_request(
    sync: str, left: int, tmp_path: pathlib.Path, logs: pathlib.Path
) -> None:
    """Up to the commit before it; what was posted without a sync has one commit for all."""

    def work(f: Any) -> None:
        x = f.create_dataset("x", (5,), "i4")
        f.flush()
        for i in range(5):
            x[i] = i + 1

    found = logged_job(tmp_path / "x.nc", logs, work, burst_buf_sync=sync)
    data = found[0].with_suffix(".data")
    content = bytearray(data.read_bytes())
    content[8 + 2 * 4] ^= 1
    data.write_bytes(content)
    before = (tmp_path / "x.nc").read_bytes()
    with pytest.raises(LogError, match="damaged"):
        pnc_vol.replay(tmp_path / "x.nc", found)
    assert (tmp_path / "x.nc").read_bytes() == before
    report = pnc_vol.replay(tmp_path / "x.nc", found, salvage=True)
    assert (report.replayed, report.torn, report.damaged, report.whole) == (left, 5 - left, True, False)
    with pnc_vol.File(tmp_path / "x.nc") as f:
        assert f["x"][:].tolist() == [1, 2, 0, 0, 0][:left] + [0] * (5 - left)


def test_a_torn_tail_is_dropped_and_told(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    def work(f: Any) -> None:
        x = f.create_dataset("x", (5,), "i4")
        for i in range(5):
            x[i] = i + 1

    found = logged_job(tmp_path / "x.nc", logs, work, burst_buf_sync="each")
    commits = found[0].with_suffix(".commit")
    content = commits.read_bytes().rstrip(b"\0")
    # In the middle of the last record, which is as a kill of the machine may leave it.
    commits.write_bytes(content[: -20 - (-len(content) % 64)])
    report = pnc_vol.replay(tmp_path / "x.nc", found)
    assert (report.replayed, report.torn, report.damaged, report.whole) == (4, 1, False, False)
    assert any("cut off" in message for message in report.messages)
    with pnc_vol.File(tmp_path / "x.nc") as f:
        assert f["x"][:].tolist() == [1, 2, 3, 4, 0]


def test_a_file_that_is_open_here_is_not_replayed_into(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    found = logged_job(tmp_path / "x.nc", logs, lambda f: f.__setitem__("x", [1.0]))
    with pytest.warns(pnc_vol.PncVolWarning):
        f = pnc_vol.File(tmp_path / "x.nc", "r+")
    with f, pytest.raises(OSError, match="open already"):
        pnc_vol.replay(tmp_path / "x.nc", found)


def test_a_dataset_that_was_cut_to_nothing(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    with pnc_vol.File(tmp_path / "x.nc", "w") as f:
        f.create_dataset("r", (4, 6), "i4", maxshape=(None, 6))[:] = 1
        f.create_dataset("other", (4,), "i1", maxshape=(None,))

    def work(f: Any) -> None:
        f["r"].resize(9, axis=0)
        f["r"].resize(0, axis=0)
        f["other"][1] = 3

    found = logged_job(tmp_path / "x.nc", logs, work, "r+")
    assert pnc_vol.replay(tmp_path / "x.nc", found).whole
    with pnc_vol.File(tmp_path / "x.nc", "r+") as f:
        assert f["r"].shape == (0, 6)
        assert f["other"][:].tolist() == [0, 3, 0, 0]
        f["r"].resize(4, axis=0)
        assert not f["r"][:].any()
