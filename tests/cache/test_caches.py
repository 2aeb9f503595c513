"""Caches of killed jobs: what a flush had promised is in the file after the recovery."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tracemalloc
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from killed_caches import stores_of
from kills import forked, kill_after, killed_job
from log_bytes import printed

import pnc_vol
from pnc_vol.append_log.records import RECORD_BYTES, decode_records
from pnc_vol.cache.extent_log import FORMAT, HEADER
from pnc_vol.errors import LogError, LogRefusedError, PncVolWarning
from pnc_vol.testing.driver_suite import extents_of
from pnc_vol.testing.faults import HookedSystem, Stopped, StopSystem


@pytest.mark.parametrize("options", ["", ", flush=flush_onclose", ", threads=3"])
@pytest.mark.parametrize("flushes", [1, 9, 23])
def test_a_killed_writer(tmp_path: Path, nvm: Path, options: str, flushes: int) -> None:
    path = str(tmp_path / "x.nc")

    def write(pipe: int) -> None:
        with pnc_vol.File(path, "w", driver=f"cache(path='{nvm}'{options}) | posix") as f:
            r = f.create_dataset("r", (0, 5000), maxshape=(None, 5000), dtype="f8")
            g = f.create_dataset("g", (4000,), dtype="i4")
            for k in range(40):
                r.resize((k + 1, 5000))
                r[k] = g[:] = k
                f.attrs["k"] = k
                f.flush()
                os.write(pipe, b".")

    last = kill_after(*forked(write), flushes)[0] - 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PncVolWarning)
        with pnc_vol.File(path) as f:
            there = f["r"].shape[0] if "r" in f else 0
            assert there <= last + 2
            for k in range(there):
                assert (f["r"][k] == k).all(), "the header never gets ahead of the data"
    report = pnc_vol.replay(path)
    assert not list(nvm.iterdir())
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")], "no note is left"
    with pnc_vol.File(path) as f:
        assert f["r"].shape[0] in (last + 1, last + 2)
        for k in range(last + 1):
            assert (f["r"][k] == k).all(), (k, report)
        assert set(f["g"][:].tolist()) <= {last, last + 1}
        assert f.attrs["k"] in (last, last + 1)


@pytest.fixture
def left(tmp_path: Path, nvm: Path) -> Path:
    """A file whose job was killed with all in its cache: data, their header, and data of a flush that did not come."""

    def work(f: Any) -> None:
        x = f.create_dataset("x", (1, 40), "u1", maxshape=(None, 40))
        x[0] = 1
        f.flush()
        x.resize(2, axis=0)
        x[1] = 3
        f.id.check().drain()

    hints = {"e10_cache_path": str(nvm), "e10_cache_flush_flag": "flush_onclose"}
    killed_job(tmp_path / "x.nc", work, hints=hints)
    return tmp_path / "x.nc"


def contents(path: Path) -> dict[str, Any]:
    with pnc_vol.File(path) as f:
        return {name: f[name][...].tolist() for name in f}


def test_what_no_flush_had_promised_is_not_carried(left: Path, nvm: Path) -> None:
    (folder,) = nvm.iterdir()
    text = printed(folder)
    assert "epoch 1: 40 bytes in 1 extents" in text
    assert "header of epoch 1: " in text
    report = pnc_vol.replay(left)
    assert (report.caches, report.carried) == (1, 40)
    assert report.headers
    assert contents(left) == {"x": [[1] * 40]}


@pytest.mark.parametrize("suffix", ["cache", "extents"])
@pytest.mark.parametrize("cut", [True, False])
def test_a_file_that_was_cut_or_flipped_is_never_carried_in_silence(
    left: Path, nvm: Path, suffix: str, cut: bool
) -> None:
    (target,) = nvm.glob(f"*/*.{suffix}")
    whole, before, folder = target.read_bytes(), left.read_bytes(), target.parent
    end = len(whole.rstrip(b"\0"))
    noticed = 0
    # of the cache file the bytes that a flush had promised; 40 others follow
    for at in range(end - 80, end - 40) if suffix == "cache" else range(0, end, 7):
        data = bytearray(whole[:at] if cut else whole)
        if not cut:
            data[at] ^= 16
        target.write_bytes(data)
        left.write_bytes(before)
        copy = shutil.copytree(folder, folder.parent / "copies" / folder.name)
        try:
            report = pnc_vol.replay(left, copy, any_file=True)
        except LogError:
            noticed += 1
            assert left.read_bytes() == before, "nothing is changed"
        else:
            # Of a log that is torn as a kill tears it, an earlier state of the file is what it tells of.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PncVolWarning)
                assert contents(left) in ({"x": [[1] * 40]}, {}), (at, report)
            assert report.messages or suffix == "extents" or left.read_bytes() != before, at
        shutil.rmtree(copy.parent)
    assert noticed


def unpublished(f: Any) -> None:
    x = f.create_dataset("x", (300_000,), "i4")
    r = f.create_dataset("r", (0, 10), "i4", maxshape=(None, 10))
    for k in range(5):
        x[:] = k
        r.resize((k + 1, 10))
        r[k] = k
        f.flush()


@pytest.mark.parametrize("options", ["", ", flush=flush_onclose"])
@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("recover", [False, True])
def test_a_file_that_was_not_published_is_recovered_under_its_temporary_name(
    tmp_path: Path, nvm: Path, options: str, there: bool, recover: bool
) -> None:
    path = tmp_path / "x.nc"
    if there:
        with pnc_vol.File(path, "w") as f:
            f["old"] = 1
    killed_job(path, unpublished, publish="close", driver=f"cache(path='{nvm}'{options}) | posix")
    (work,) = tmp_path.glob(".*.pnctmp")
    told = f"did not have its final name yet (publish='close'): replay it into '{work}'"
    with pytest.raises(LogRefusedError, match=re.escape(told)):
        pnc_vol.replay(path)
    with pytest.warns(PncVolWarning, match=re.escape(str(work))), pnc_vol.File(path, "a", recover=True) as f:
        assert sorted(f) == ["old"][:there]
    if recover:
        with pnc_vol.File(work, "r+", recover=True):
            pass
    else:
        assert pnc_vol.replay(work).headers
    with pnc_vol.File(work) as f:
        assert (f["x"][:] == 4).all()
        assert f["r"][:].tolist() == [[k] * 10 for k in range(5)]
    assert not list(nvm.iterdir())
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted([work.name, "nvm", "x.nc"])


def test_a_log_that_is_begun_anew_keeps_what_is_held(
    tmp_path: Path, nvm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The header of each epoch waits for another rank, while many epochs of this one are carried."""
    monkeypatch.setattr("pnc_vol.cache.local_store._LOG_LIMIT", 1000)
    path = tmp_path / "x"
    path.write_bytes(bytes(100))
    first, second = stores = stores_of(path, [nvm] * 2)
    second.write(extents_of((50, 8, 0)), np.full(8, 7, np.uint8))
    sizes = set()
    for epoch in range(1, 60):
        first.write(extents_of((100, 50, 0)), np.full(50, epoch, np.uint8))
        if epoch % 20 == 1:
            first.hold(epoch % 7, bytes([epoch] * 2), 0)
        for store in stores:
            store.end_epoch()
        first.queue.drain()
        first._idle()
        assert first.store is not None
        sizes.add(first.store.log.nbytes)
    assert first.store is not None
    assert [held.epoch for held in first.store.held] == [1, 21, 41]
    assert max(sizes) < 2500
    for store in stores:
        store.queue.stop()
        store.forget()
    report = pnc_vol.replay(path)
    assert (report.caches, report.headers) == (2, 3)
    assert (
        path.read_bytes() == b"\x15\x15\1" + bytes(3) + b"\x29" * 2 + bytes(42) + b"\7" * 8 + bytes(42) + b"\x3b" * 50
    )


def test_a_cache_that_one_rank_kept_needs_no_others(tmp_path: Path, nvm: Path) -> None:
    """Ranks that have closed the file leave an empty log until the last one of the folder has ended."""
    path = tmp_path / "x"
    path.write_bytes(bytes(100))
    stores = stores_of(path, [nvm] * 3)
    stores[1].write(extents_of((50, 8, 0)), np.full(8, 7, np.uint8))
    stores[1].end_epoch()
    for rank, store in enumerate(stores):
        store.queue.stop()
        store.close_files(keep=rank == 1)
    report = pnc_vol.replay(path)
    assert report.caches == 3
    assert path.read_bytes()[50:58] == b"\7" * 8
    assert not list(nvm.iterdir())
    assert sorted(one.name for one in tmp_path.iterdir()) == ["nvm", "x"], "nor is a note left"


def test_caches_of_another_host_are_named_and_given_up_only_when_told(tmp_path: Path, nvm: Path) -> None:
    path, away = tmp_path / "x.nc", tmp_path / "away"
    killed_job(path, unpublished, driver=f"cache(path='{nvm}', flush=flush_onclose) | posix")
    nvm.rename(away)
    where = re.escape(f"cannot be read here: {os.uname().nodename}:{nvm}/pnccache-x.nc-")
    with pytest.warns(PncVolWarning, match=where), pnc_vol.File(path) as f:
        assert not len(f)
    with pytest.raises(LogRefusedError, match=where):
        pnc_vol.replay(path)
    away.rename(nvm)
    shutil.copytree(nvm, away)
    assert pnc_vol.replay(path, list(nvm.iterdir())).headers
    with pnc_vol.File(path) as f:
        assert f["r"].shape == (5, 10)
    shutil.rmtree(nvm)
    assert "given up" in pnc_vol.replay(path, partial=True).messages[0]
    with pnc_vol.File(path) as f:
        assert (f["x"][:] == 4).all()


def test_a_number_of_ranks_that_no_job_has_takes_no_memory(left: Path, nvm: Path) -> None:
    (log,) = nvm.glob("*/*.extents")
    content = bytearray(log.read_bytes())
    size = int.from_bytes(content[12:16], "little")
    content[52:56] = (2**31 - 1).to_bytes(4, "little")
    content[size - 4 : size] = crc32(content[: size - 4]).to_bytes(4, "little")
    log.write_bytes(content)
    tracemalloc.start()
    with pytest.raises(LogRefusedError, match="of 2147483647 ranks the caches of ranks 1, 2, 3, 4, 5, 6, 7, 8, "):
        pnc_vol.replay(left)
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("last", [False, True])
def test_a_table_that_a_power_failure_took_is_missed_only_if_the_log_needs_it(
    left: Path, nvm: Path, last: bool
) -> None:
    """The end of a log is what a kill explains; a record that counts behind it is not."""
    (log,) = nvm.glob("*/*.extents")
    content, before = log.read_bytes(), left.read_bytes()
    found = decode_records(FORMAT, content)
    ends = found.begin + np.cumsum([RECORD_BYTES + len(table) for table in found.tables])
    which = np.flatnonzero(found.records["kind"] == HEADER)[-1]
    end, table = int(ends[which]), len(found.tables[which])
    assert which < len(ends) - 1
    log.write_bytes(content[: end - table] + bytes(table) + (b"" if last else content[end:]))
    if not last:
        with pytest.raises(LogError, match="valid records follow one that is not"):
            pnc_vol.replay(left, log.parent)
        assert left.read_bytes() == before
        return
    report = pnc_vol.replay(left, log.parent)
    assert any("bytes at the ends of extent logs dropped" in one for one in report.messages)
    assert (report.carried, left.read_bytes()) == (0, before)


def test_a_note_that_cannot_be_removed_keeps_the_folder_that_it_names(tmp_path: Path, nvm: Path) -> None:
    """What a note names and is not there is taken for lost: the file could never be written again."""

    class Kept(HookedSystem):
        def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if name == "unlink" and args[0].endswith(".pncc"):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return super().call(name, args, kwargs)

    path, hints = tmp_path / "x.nc", {"e10_cache_path": str(nvm)}
    with pnc_vol.File(path, "w", hints=hints, system=Kept()) as f:
        f["a"] = [1, 2, 3]
    with pnc_vol.File(path, "r+", hints=hints) as f:
        assert f["a"][...].tolist() == [1, 2, 3]
    assert [one.name for one in tmp_path.iterdir() if one.name != "x.nc"] == ["nvm"]
    assert not list(nvm.iterdir())


def test_a_folder_that_somebody_removes_leaves_no_note(tmp_path: Path, nvm: Path) -> None:
    """Its files are open, and all of it is carried: nothing is lost, and the file can be written again."""
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "w", hints={"e10_cache_path": str(nvm), "e10_cache_flush_flag": "flush_onclose"}) as f:
        f["a"] = [1, 2, 3]
        f.flush()
        shutil.rmtree(nvm)
        f["a"][0] = 9
    with pnc_vol.File(path, "r+") as f:
        assert f["a"][:].tolist() == [9, 2, 3]
    assert list(tmp_path.iterdir()) == [path]


def test_a_cache_whose_second_file_cannot_be_made_leaves_no_descriptor(tmp_path: Path, nvm: Path) -> None:
    class Full(HookedSystem):
        def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if name == "open" and str(args[0]).endswith(".extents"):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return super().call(name, args, kwargs)

    before = len(os.listdir("/proc/self/fd"))
    with (
        pytest.warns(PncVolWarning),
        pnc_vol.File(tmp_path / "x.nc", "w", hints={"e10_cache_path": str(nvm)}, system=Full()) as f,
    ):
        f["a"] = [1, 2, 3]
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_replay_that_is_killed_leaves_a_file_that_can_be_read(tmp_path: Path, nvm: Path) -> None:
    path = tmp_path / "x.nc"
    hints = {"e10_cache_path": str(nvm), "e10_cache_flush_flag": "flush_onclose"}

    def write(f: Any) -> None:
        f["x"] = np.full(100, 7)
        f.flush()

    def look() -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PncVolWarning)
            with pnc_vol.File(path) as f:
                assert "x" not in f or set(f["x"][...].tolist()) == {7}
                return "x" in f

    seen = []
    for at in range(1, 1000):
        pnc_vol.File(path, "w").close()
        killed_job(path, write, "a", hints=hints)
        system = StopSystem(stop_at=at, torn=100, calls=("pwrite", "pwritev"))
        with suppress(Stopped):
            pnc_vol.replay(path, system=system)
        done = not system.fired
        system.bury()
        seen.append(look())
        if done:
            break
        pnc_vol.replay(path)
        assert look()
    assert seen == sorted(seen)
    assert 1 < seen.count(False) < len(seen) - 1, "in some write the new header is in the journal already"
