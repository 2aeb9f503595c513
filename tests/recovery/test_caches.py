"""Caches of killed jobs: what a flush had promised is in the file after the recovery."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tracemalloc
import warnings
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

import pnc_vol
from pnc_vol.disk.journal import content_of, journal_path
from pnc_vol.drivers.base import Driver, OpenContext
from pnc_vol.drivers.cache import local_store
from pnc_vol.drivers.cache.cache_file import DATA
from pnc_vol.drivers.cache.extent_log import SUFFIX, TABLES
from pnc_vol.drivers.cache.held_bytes import HeldBytes
from pnc_vol.drivers.cache.hints import CacheHints
from pnc_vol.drivers.cache.job_caches import JobCaches
from pnc_vol.drivers.posix import PosixDriver
from pnc_vol.drivers.stack import open_stack
from pnc_vol.errors import LogError, LogRefusedError, PncVolWarning
from pnc_vol.extents.model import one_extent
from pnc_vol.format.edits import changed_parts
from pnc_vol.options import resolve
from pnc_vol.recovery.cache_folders import cache_text
from pnc_vol.recovery.caches import carry_caches, look_after_caches
from pnc_vol.system import REAL
from pnc_vol.testing.faults import Stopped, StopSystem

WRITER = """
import os, sys, pnc_vol
path, nvm, options = sys.argv[1:4]
with pnc_vol.File(path, "w", driver=f"cache(path='{nvm}'{options}) | posix") as f:
    r = f.create_dataset("r", (0, 5000), maxshape=(None, 5000), dtype="f8")
    g = f.create_dataset("g", (4000,), dtype="i4")
    for k in range(40):
        r.resize((k + 1, 5000))
        r[k] = g[:] = k
        f.attrs["k"] = k
        f.flush()
        os.write(1, b"%d\\n" % k)
"""


@pytest.fixture
def nvm(tmp_path: Path) -> Path:
    folder = tmp_path / "nvm"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("options", ["", ", flush=flush_onclose", ", threads=3"])
@pytest.mark.parametrize("flushes", [1, 9, 23])
def test_a_killed_writer(tmp_path: Path, nvm: Path, options: str, flushes: int) -> None:
    path = str(tmp_path / "x.nc")
    child = subprocess.Popen([sys.executable, "-c", WRITER, path, str(nvm), options], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    last = [int(child.stdout.readline()) for _ in range(flushes)][-1]
    os.kill(child.pid, signal.SIGKILL)
    last = max([last, *map(int, child.stdout.read().split())])
    child.wait()
    child.stdout.close()
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


@pytest.mark.parametrize("flag", ["flush_onclose", "flush_immediate"])
@pytest.mark.parametrize("limit", [1 << 20, 0])
def test_stopped_at_every_call(
    tmp_path: Path, nvm: Path, monkeypatch: pytest.MonkeyPatch, flag: str, limit: int
) -> None:
    """From some call on nothing happens any more; then the file is opened with ``recover=True``.

    With `limit` 0 the log is begun anew whenever all data are in the file.
    """
    monkeypatch.setattr(local_store, "_LOG_LIMIT", limit)
    stop_at, fired, path = 0, True, str(tmp_path / "x.nc")
    while fired:
        stop_at += 1
        system = StopSystem(REAL, stop_at=stop_at, torn=stop_at % 7)
        promised = 0
        driver = f"cache(path='{nvm}', flush={flag}) | posix"
        try:
            with pnc_vol.File(path, "w", driver=driver, system=system, durable=False) as f:
                x = f.create_dataset("x", (0, 50), maxshape=(None, 50), dtype="i4")
                for k in range(1, 4):
                    x.resize((k, 50))
                    x[:] = k
                    f.flush()
                    promised = k
                    f.id.check().disk.driver.drain()
        except (Stopped, OSError, RuntimeError):
            pass
        fired = system.fired
        system.bury()
        if not os.path.exists(path):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PncVolWarning)
            with pnc_vol.File(path, "r+", recover=True, hints={"e10_cache_path": str(nvm)}) as f:
                if promised:
                    assert f["x"].shape[0] >= promised
                    assert (f["x"][:promised] >= promised).all(), stop_at
        os.unlink(path)
        assert stop_at < 300
    assert stop_at > 20


def leave(path: Path, nvm: Path) -> Path:
    """A cache as a killed process leaves it: one epoch of data, its header, and one that was not complete."""
    path.write_bytes(bytes(100))
    driver = open_stack(f"cache(path='{nvm}', flush=flush_onclose) | posix", str(path))
    driver.write(one_extent(50, 40), np.full(40, 1, np.uint8))
    driver.order()
    driver.write(one_extent(0, 8), np.full(8, 2, np.uint8))
    driver.end_flush()
    driver.write(one_extent(92, 8), np.full(8, 3, np.uint8))
    abandoned(driver)
    (stem,) = nvm.glob(f"*/*{DATA}")
    return stem.with_suffix("")


def test_a_header_that_was_being_replaced_is_completed_first(tmp_path: Path, nvm: Path) -> None:
    """Its journal would otherwise be put over the header that the cache brings."""
    path = tmp_path / "x"
    stem = leave(path, nvm)
    old, new = bytes(8), b"\1" * 4 + bytes(4)
    Path(journal_path(str(path))).write_bytes(content_of(path.stat().st_ino, old, new, changed_parts(old, new)))
    os.truncate(path, 100)
    with open(path, "r+b") as file:
        file.write(new[:2])
    carry_caches(str(path), [str(stem.parent)], options=resolve({}))
    assert path.read_bytes()[:8] == b"\2" * 8
    assert not os.path.exists(journal_path(str(path)))


def test_what_no_flush_had_promised_is_not_carried(tmp_path: Path, nvm: Path) -> None:
    stem = leave(tmp_path / "x", nvm)
    done = carry_caches(str(tmp_path / "x"), [str(stem.parent)], options=resolve({}))
    assert (tmp_path / "x").read_bytes() == b"\2" * 8 + bytes(42) + b"\1" * 40 + bytes(10)
    assert (done.caches, done.nbytes, done.headers, done.epoch, done.dropped) == (1, 40, 1, 1, 8)


def abandoned(driver: Driver) -> None:
    """The process is killed."""
    driver._bytes.forget()  # type: ignore[attr-defined]
    driver.forget()  # type: ignore[attr-defined]


def test_what_was_held_is_cut_with_the_file(tmp_path: Path, nvm: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"")
    driver = open_stack(f"cache(path='{nvm}') | posix", str(path))
    driver.order()
    driver.write(one_extent(0, 30), np.full(30, 1, np.uint8))
    driver.grow(1000)
    driver.end_flush()
    driver.resize(20)
    abandoned(driver)
    carry_caches(str(path), list(map(str, nvm.iterdir())), options=resolve({}))
    assert path.read_bytes() == b"\1" * 20


def test_a_released_header_is_not_put_over_newer_data(tmp_path: Path, nvm: Path) -> None:
    """The log says of an epoch that it is released only when a later one is."""
    path = tmp_path / "x"
    path.write_bytes(b"")
    driver = open_stack(f"cache(path='{nvm}', flush=flush_onclose) | posix", str(path))
    driver.order()
    driver.write(one_extent(0, 30), np.full(30, 1, np.uint8))
    driver.end_flush()
    driver.release(1)
    driver.write(one_extent(10, 30), np.full(30, 2, np.uint8))
    driver.end_flush()
    abandoned(driver)
    carry_caches(str(path), list(map(str, nvm.iterdir())), options=resolve({}))
    assert path.read_bytes() == b"\1" * 10 + b"\2" * 30


def test_a_folder_that_is_not_looked_into_is_named(tmp_path: Path, nvm: Path) -> None:
    stem = leave(tmp_path / "x", nvm)
    stem.parent.chmod(0o770)
    options = resolve({"hints": {"e10_cache_path": str(nvm)}})
    told = f"cannot be read here: .*{re.escape(str(stem.parent))}: others may write to it"
    with pytest.raises(LogRefusedError, match=told):
        look_after_caches(str(tmp_path / "x"), options, writable=True, replaced=False)


@pytest.mark.parametrize("suffix", [DATA, SUFFIX, TABLES[0]])
@pytest.mark.parametrize("cut", [True, False])
def test_a_file_that_was_cut_or_flipped_is_never_carried_in_silence(
    tmp_path: Path, nvm: Path, suffix: str, cut: bool
) -> None:
    path = tmp_path / "x"
    stem = leave(path, nvm)
    target = stem.with_suffix(suffix)
    whole, before = target.read_bytes(), path.read_bytes()
    step = 1 if suffix == DATA else 7
    used = {DATA: range(50, 90), SUFFIX: range(64 * 8), TABLES[0]: range(70)}[suffix]
    noticed = 0
    for at in used[::step]:
        data = bytearray(whole[:at] if cut else whole)
        if not cut:
            data[at] ^= 16
        target.write_bytes(data)
        path.write_bytes(before)
        try:
            done = carry_caches(str(path), [str(stem.parent)], options=resolve({}))
        except LogError:
            noticed += 1
            assert path.read_bytes() == before, "nothing is changed"
        else:
            right = b"\2" * 8 + bytes(42) + b"\1" * 40 + bytes(10)
            found = path.read_bytes()
            # Of a log that is torn as a kill tears it, an earlier state of the file is what it tells of.
            assert found in (right, before) or done.messages or suffix == SUFFIX, (at, done)
            assert found[50:90] in (right[50:90], before[50:90])
    assert noticed


def test_a_missing_rank_is_named_and_nothing_is_done(tmp_path: Path, nvm: Path) -> None:
    from pnc_vol.drivers.cache.extent_log import EPOCH, ExtentLog, Subject

    path = tmp_path / "x"
    path.write_bytes(bytes(10))
    folder = nvm / "job"
    folder.mkdir()
    inode = b"inode\0\0\0" + path.stat().st_ino.to_bytes(8, "little")
    log = ExtentLog(REAL, str(folder / "2"), Subject(inode, 2, 4, str(path)))
    log.note(EPOCH, 5)
    log.close(keep=True)
    with pytest.raises(LogRefusedError, match=r"of 4 ranks the caches of ranks 0, 1, 3 are not there.*up to flush 5"):
        carry_caches(str(path), [str(folder)], options=resolve({}))
    assert carry_caches(str(path), [str(folder)], options=resolve({}), partial=True).caches == 1


def test_a_cache_as_text(tmp_path: Path, nvm: Path) -> None:
    stem = leave(tmp_path / "x", nvm)
    printed = "\n".join(cache_text(REAL, str(stem.parent)))
    assert "epoch 1: 40 bytes in 1 extents" in printed
    assert "header of epoch 1: 8 bytes" in printed


NAMELESS = """
import os, sys, pnc_vol
path, nvm, options = sys.argv[1:4]
f = pnc_vol.File(path, "w", publish="close", driver=f"cache(path='{nvm}'{options}) | posix")
x = f.create_dataset("x", (300_000,), "i4")
r = f.create_dataset("r", (0, 10), "i4", maxshape=(None, 10))
for k in range(5):
    x[:] = k
    r.resize((k + 1, 10))
    r[k] = k
    f.flush()
os._exit(0)
"""


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
    subprocess.run([sys.executable, "-c", NAMELESS, str(path), str(nvm), options], check=True)
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


def stores_of(path: Path, nvm: Path, ranks: int) -> list[HeldBytes]:
    """What the ranks of a job hold."""
    path.write_bytes(bytes(100))
    context = OpenContext(name=str(path))
    jobs = [JobCaches("job", rank, ranks, [("host", str(nvm))], {rank: str(nvm)}) for rank in range(ranks)]
    return [
        HeldBytes(PosixDriver.open(str(path), context), CacheHints("enable", str(nvm)), context, job) for job in jobs
    ]


def test_a_log_that_is_begun_anew_keeps_what_is_held(
    tmp_path: Path, nvm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The header of each epoch waits for another rank, while many epochs of this one are carried."""
    monkeypatch.setattr(local_store, "_LOG_LIMIT", 1000)
    path = tmp_path / "x"
    first, second = stores = stores_of(path, nvm, 2)
    second.write(one_extent(50, 8), np.full(8, 7, np.uint8))
    sizes = set()
    for epoch in range(1, 60):
        first.write(one_extent(100, 50), np.full(50, epoch, np.uint8))
        first.queue.order()
        if epoch % 20 == 1:
            first.write(one_extent(epoch % 7, 2), np.full(2, epoch, np.uint8))
        for store in stores:
            store.end_epoch()
        first.queue.drain()
        first._idle()
        assert first.store is not None
        sizes.add(first.store.log.nbytes)
    assert [held.epoch for held in first.queue.held()] == [1, 21, 41]
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
    stores = stores_of(path, nvm, 3)
    stores[1].write(one_extent(50, 8), np.full(8, 7, np.uint8))
    stores[1].end_epoch()
    for rank, store in enumerate(stores):
        store.queue.stop()
        store.let_go(keep=rank == 1)
    report = pnc_vol.replay(path)
    assert report.caches == 3
    assert path.read_bytes()[50:58] == b"\7" * 8
    assert not list(nvm.iterdir())
    assert sorted(one.name for one in tmp_path.iterdir()) == ["nvm", "x"], "nor is a note left"


def test_caches_of_another_host_are_named_and_given_up_only_when_told(tmp_path: Path, nvm: Path) -> None:
    path, away = tmp_path / "x.nc", tmp_path / "away"
    subprocess.run(
        [sys.executable, "-c", NAMELESS.replace('publish="close", ', ""), str(path), str(nvm), ", flush=flush_onclose"],
        check=True,
    )
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


def test_a_number_of_ranks_that_no_job_has_takes_no_memory(tmp_path: Path, nvm: Path) -> None:
    path = str(tmp_path / "x.nc")
    child = subprocess.Popen([sys.executable, "-c", WRITER, path, str(nvm), ""], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    child.stdout.readline()
    child.kill()
    child.communicate()
    (log,) = nvm.glob(f"*/*{SUFFIX}")
    content = bytearray(log.read_bytes())
    size = int.from_bytes(content[12:16], "little")
    content[52:56] = (2**31 - 1).to_bytes(4, "little")
    content[size - 4 : size] = crc32(content[: size - 4]).to_bytes(4, "little")
    log.write_bytes(content)
    tracemalloc.start()
    with pytest.raises(LogRefusedError, match="of 2147483647 ranks the caches of ranks 1, 2, 3, 4, 5, 6, 7, 8, "):
        pnc_vol.replay(path)
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()
