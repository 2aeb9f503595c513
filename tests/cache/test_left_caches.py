"""Which of the caches under the name of a file are the file's: after a kill, a replacement, an ordinary end."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from killed_caches import stores_of
from kills import Ending, forked, kill_after, killed_job

import pnc_vol
from pnc_vol.cache.extent_log import EPOCH, PendingHeader
from pnc_vol.cache.recovery import look_after_caches
from pnc_vol.convert.hdf5 import convert
from pnc_vol.errors import LockedError, LogError, LogRefusedError, PncVolWarning
from pnc_vol.extents.model import one_extent
from pnc_vol.settings.options import resolve
from pnc_vol.testing.driver_suite import extents_of
from pnc_vol.testing.faults import FaultSystem, HookedSystem


def written(path: Path, nvm: Path, value: int, mode: str = "w", **hints: str) -> None:
    asked = {"e10_cache_path": str(nvm), **hints}
    with pnc_vol.File(path, mode, hints=asked) as f:
        f.require_dataset("x", (100,), "i4")[...] = value
        f.flush()


def hints_of(nvm: Path) -> dict[str, str]:
    """A cache that holds all its data until the close."""
    return {"e10_cache_path": str(nvm), "e10_cache_flush_flag": "flush_onclose"}


def killed(path: Path, nvm: Path, value: int, **options: Any) -> None:
    """A process with a cache that holds all its data is killed after a flush."""

    def work(f: Any) -> None:
        f.require_dataset("x", (100,), "i4")[...] = value
        f.flush()

    killed_job(path, work, "a", hints=hints_of(nvm), **options)


def contents(path: Path) -> set[int]:
    with pnc_vol.File(path) as f:
        return set(f["x"][...].tolist())


def test_a_cache_that_is_kept_after_an_ordinary_end_is_never_carried_again(tmp_path: Path, nvm: Path) -> None:
    path = tmp_path / "x.nc"
    written(path, nvm, 1, e10_cache_discard_flag="disable")
    (kept,) = nvm.iterdir()
    assert pnc_vol.replay(path, kept).carried == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for mode in ("r", "r+"):
            pnc_vol.File(path, mode, recover=True).close()
    assert not kept.exists(), "it is old from here on"
    written(path, nvm, 3, "r+", e10_cache_discard_flag="disable")
    with open(path, "r+b") as file:
        # Another program writes to it.
        file.write(file.read().replace(b"\0\0\0\3", b"\0\0\0\4"))
    before = path.read_bytes()
    pnc_vol.replay(path)
    assert path.read_bytes() == before


def test_the_caches_of_a_file_that_is_gone_do_not_keep_those_of_the_new_one_back(tmp_path: Path, nvm: Path) -> None:
    path = tmp_path / "x.nc"
    written(path, nvm, 0)
    killed(path, nvm, 10)
    (old,) = nvm.iterdir()
    with pytest.warns(PncVolWarning, match="of another file that had this name"):
        pnc_vol.File(path, "w").close()
    killed(path, nvm, 20)
    report = pnc_vol.replay(path)
    assert report.caches == 1
    assert any("of another file" in message for message in report.messages)
    assert list(nvm.iterdir()) == [old], "what it holds is kept"
    with pytest.raises(LogRefusedError, match="another file"):
        pnc_vol.replay(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PncVolWarning)
        assert contents(path) == {20}


def test_a_damaged_cache_keeps_nobody_from_reading_the_file(tmp_path: Path, nvm: Path) -> None:
    path = tmp_path / "x.nc"
    written(path, nvm, 0)
    killed(path, nvm, 10)
    log = next(nvm.glob("*/*.extents"))
    data = bytearray(log.read_bytes())
    data[20] ^= 4
    log.write_bytes(data)
    with pytest.warns(PncVolWarning, match="left data in caches"):
        pnc_vol.File(path).close()
    for call in (lambda: pnc_vol.File(path, "r+", recover=True), lambda: pnc_vol.replay(path)):
        with pytest.raises(LogError, match="wrong CRC"):
            call()
    assert log.exists()


def test_a_length_that_no_file_can_have_is_an_error_of_the_log(tmp_path: Path, nvm: Path) -> None:
    path = tmp_path / "x.nc"
    written(path, nvm, 3)
    (held,) = stores_of(path, [nvm])
    held.store.hold(PendingHeader(1, one_extent(0, 4), np.zeros(4, np.uint8), 1 << 61))
    held.store.log.note(EPOCH, 1)
    held.close_files(keep=True)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # file systems differ in the longest file that they take
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 40, before[1]))
    try:
        with pytest.raises(LogError, match=f"0.extents: the file is to have {1 << 61} bytes"):
            pnc_vol.replay(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert next(nvm.glob("*/*.extents")).exists()


def test_an_opening_takes_away_no_cache_that_is_just_being_made(tmp_path: Path, nvm: Path) -> None:
    """Its files are there, and are not locked yet: they look like those that a kill left."""
    path = tmp_path / "x.nc"
    written(path, nvm, 3)
    hints = {"e10_cache_path": str(nvm), "e10_cache_flush_flag": "flush_onclose"}
    options = resolve({"hints": hints})

    class Beside(HookedSystem):
        """Before the n-th call of the opening another job opens the file."""

        def __init__(self, n: int) -> None:
            super().__init__()
            self.left = n

        def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            self.left -= 1
            if not self.left:
                look_after_caches(str(path), options, writable=True, replaced=False)
            return super().call(name, args, kwargs)

    for n in count(1):
        system = Beside(n)
        f = pnc_vol.File(path, "r+", hints=hints, system=system)
        opened = system.left > 0
        system.left = -1
        (folder,) = nvm.iterdir()
        assert sorted(one.name for one in folder.iterdir()) == ["0.cache", "0.extents"], n
        f.close()
        assert not list(nvm.iterdir()), n
        if opened:
            break
    assert n > 30


PLAIN: dict[str, Any] = {}
LATER = {
    "no cache": PLAIN,
    "the same cache": {"hints": {"e10_cache_flush_flag": "flush_none"}},
    "carried at the close": {"hints": {"e10_cache_flush_flag": "flush_onclose"}},
    "a log": {"burst_buf": True},
    "at the close, durable": {"durable": True},
}


@pytest.mark.parametrize("mode", ["r+", "a"])
@pytest.mark.parametrize("later", LATER)
@pytest.mark.parametrize("end", ["kept", "killed"])
def test_a_cache_is_never_older_than_its_file(tmp_path: Path, nvm: Path, end: str, later: str, mode: str) -> None:
    """A file that has caches is opened for writing when they were carried, or given up."""
    path = tmp_path / "x.nc"
    written(path, nvm, 0)
    if end == "kept":
        with pytest.warns(PncVolWarning, match="flush_none"):
            written(path, nvm, 1, "r+", e10_cache_flush_flag="flush_none")
    else:
        killed(path, nvm, 1)
    options = dict(LATER[later])
    if later in ("the same cache", "carried at the close"):
        options["hints"] = {"e10_cache_path": str(nvm), **options["hints"]}
    before = path.read_bytes()
    with pytest.raises(LogRefusedError, match=r"recover=True .*covered by the older data of these caches"):
        pnc_vol.File(path, mode, **options)
    assert path.read_bytes() == before
    with pytest.warns(PncVolWarning, match="left data in caches"), pnc_vol.File(path) as f:
        assert set(f["x"][...].tolist()) <= {0, 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PncVolWarning)
        with pnc_vol.File(path, mode, recover=True, **options) as f:
            assert set(f["x"][...].tolist()) == {1}
            f["x"][...] = 2
        if later == "the same cache":
            pnc_vol.replay(path)
    assert not list(nvm.iterdir())
    pnc_vol.File(path, "r+", recover=True).close()
    assert contents(path) == {2}


def test_caches_are_not_carried_into_a_file_that_another_process_writes(tmp_path: Path, nvm: Path) -> None:
    path = tmp_path / "x.nc"
    written(path, nvm, 0)

    def hold(pipe: int) -> None:
        with pnc_vol.File(path, "r+"):
            os.write(pipe, b".")
            os.read(os.pipe()[0], 1)

    child, reading = forked(hold)
    os.read(reading, 1)
    killed(path, nvm, 1, locking=False)
    before = path.read_bytes()
    for call in (lambda: pnc_vol.replay(path), lambda: pnc_vol.File(path, "r+", recover=True)):
        with pytest.raises(LockedError):
            call()
    assert path.read_bytes() == before
    kill_after(child, reading, 0)
    assert pnc_vol.replay(path).caches == 1
    assert contents(path) == {1}


def test_a_replay_that_another_process_was_quicker_with_is_no_error(tmp_path: Path, nvm: Path) -> None:
    """It removed the folder of the cache after this process had found it, and before it locked the file."""
    path = tmp_path / "x.nc"
    written(path, nvm, 1)
    killed(path, nvm, 2)

    class Slower(HookedSystem):
        def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            locks = name in ("record_lock", "flock") and os.path.samestat(os.fstat(args[0]), path.stat())
            if locks and list(nvm.iterdir()):
                pnc_vol.replay(path)
            return super().call(name, args, kwargs)

    with pnc_vol.File(path, "r+", recover=True, system=Slower()) as f:
        assert set(f["x"][...].tolist()) == {2}
    assert not list(nvm.iterdir())


def test_repack_refuses_a_file_whose_caches_hold_data(tmp_path: Path, nvm: Path) -> None:
    path = tmp_path / "x.nc"
    written(path, nvm, 0)
    killed(path, nvm, 1)
    with pytest.raises(LogRefusedError, match="repack afterwards"):
        pnc_vol.repack(path)
    pnc_vol.replay(path)
    pnc_vol.repack(path)
    assert contents(path) == {1}


@pytest.mark.parametrize("way", ["replay", "recover", "command"])
@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("cache", [False, True])
def test_a_set_of_subfiles_is_recovered_by_its_name(
    tmp_path: Path, nvm: Path, cache: bool, log: bool, way: str
) -> None:
    path = tmp_path / "set.nc"

    def work(f: Any) -> None:
        x = f.create_dataset("x", (100,), "i4")
        x[...] = 1
        f.flush()
        x[:50] = 2
        if not log:
            f.flush()

    killed_job(path, work, layout="blob", burst_buf=log, hints=hints_of(nvm) if cache else {})
    if way == "replay":
        report = pnc_vol.replay(path)
        assert (report.logs, report.caches) == (int(log), int(cache))
    elif way == "recover":
        pnc_vol.File(path, "r+", recover=True).close()
    else:
        done = subprocess.run(
            [sys.executable, "-m", "pnc_vol.cli", "replay", str(path)], check=True, capture_output=True
        )
        assert done.stdout
    assert not list(nvm.iterdir())
    with pnc_vol.File(path) as f:
        assert f["x"][...].tolist() == [2] * 50 + [1] * 50


def test_a_note_that_is_a_link_is_not_followed(tmp_path: Path, nvm: Path) -> None:
    path, elsewhere = tmp_path / "x.nc", tmp_path / "elsewhere"
    written(path, nvm, 0)
    killed(path, nvm, 1)
    (note,) = tmp_path.glob(".x.nc.pncc")
    note.rename(elsewhere)
    note.symlink_to(elsewhere)
    assert pnc_vol.replay(path).caches == 0
    note.unlink()
    elsewhere.rename(note)
    assert pnc_vol.replay(path).caches == 1


def test_a_kill_in_a_new_layout_leaves_caches_of_a_file_that_never_got_its_name(tmp_path: Path) -> None:
    """They are removed by a replay, with the file's own."""
    two = ended = at = 0
    while not ended:
        folder = tmp_path / str(at)
        path, nvm, system = folder / "x.nc", folder / "nvm", Ending()
        nvm.mkdir(parents=True)
        written(path, nvm, 0)

        def work(f: Any, system: Ending = system, at: int = at) -> None:
            f["x"][...] = 10
            f.flush()
            f.attrs["long"] = "a" * 100_000
            system.left = at
            f.flush()
            system.left = -1
            f.attrs["returned"] = 1
            f.flush()

        killed_job(path, work, "r+", hints=hints_of(nvm), system=system)
        two += len(list(nvm.iterdir())) == 2
        pnc_vol.replay(path, hints={"e10_cache_path": str(nvm)})
        assert not list(nvm.iterdir())
        assert contents(path) == {10}
        with pnc_vol.File(path) as f:
            ended = "returned" in f.attrs
        at += 1
    assert two
    assert at > 10


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_of_a_fork_closes_no_descriptor_of_a_file_that_was_closed(tmp_path: Path, nvm: Path) -> None:
    path = tmp_path / "x.nc"
    f = pnc_vol.File(path, "w", hints={"e10_cache_path": str(nvm)})
    driver = f.id.check().disk.driver
    f["x"] = 1
    f.close()
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(40)]
    child = os.fork()
    if not child:
        code = 1
        try:
            for fd in taken:
                os.fstat(fd)
            code = 0
        finally:
            os._exit(code)
    for fd in taken:
        os.close(fd)
    assert os.waitpid(child, 0)[1] == 0
    assert driver is not None, "it was alive in the child"


def test_what_another_node_holds_stays_noted_when_this_node_has_ended(tmp_path: Path, nvm: Path) -> None:
    """Nodes have their caches in directories of one name, each on a disk of its own."""
    path, away = tmp_path / "x.nc", tmp_path / "disk of the other node"
    away.mkdir()
    written(path, nvm, 0)
    written(path, nvm, 1)
    before = path.read_bytes()
    at = before.rindex(b"\0\0\0\1" * 100)
    stores = stores_of(path, [nvm, away], named=[os.uname().nodename, "elsewhere"], flush="flush_none")
    stores[1].write(extents_of((at, 8, 0)), np.array([0, 0, 0, 7] * 2, np.uint8))
    for store in stores:
        store.end_epoch()
    for rank, store in enumerate(stores):
        store.queue.stop()
        store.close_files(keep=rank == 1)
    assert not list(nvm.iterdir())
    for recover in (False, True):
        with pytest.raises(LogRefusedError, match=r"cannot be read here: elsewhere:.*covered by the older data"):
            pnc_vol.File(path, "r+", recover=recover)
    assert path.read_bytes() == before
    (folder,) = away.iterdir()
    assert pnc_vol.replay(path, folder, partial=True).caches == 1
    with pnc_vol.File(path, "r+") as f:
        assert f["x"][:3].tolist() == [7, 7, 1]


def test_a_cache_that_may_not_be_looked_into_keeps_its_file_from_being_written(tmp_path: Path, nvm: Path) -> None:
    path = tmp_path / "x.nc"
    written(path, nvm, 0)
    killed(path, nvm, 1)
    (folder,) = nvm.iterdir()
    folder.chmod(0o770)
    for recover in (False, True):
        with pytest.raises(LogRefusedError, match=r"cannot be read here: .*chmod 700"):
            pnc_vol.File(path, "r+", recover=recover)
    with pytest.raises(LogRefusedError, match=r"cannot be read here: .*chmod 700"):
        pnc_vol.replay(path)
    with pytest.warns(PncVolWarning, match="chmod 700"), pnc_vol.File(path) as f:
        assert not f["x"][...].any()
    folder.chmod(0o700)
    with pnc_vol.File(path, "r+", recover=True) as f:
        assert f["x"][...].all()


def test_a_cache_in_a_folder_of_the_hints_that_no_note_names_is_told_of_alone(tmp_path: Path, nvm: Path) -> None:
    """Anybody may make such a folder in a directory that users share."""
    path = tmp_path / "x.nc"
    written(path, nvm, 0)
    killed(path, nvm, 1)
    (folder,) = nvm.iterdir()
    folder.chmod(0o770)
    (tmp_path / ".x.nc.pncc").unlink()
    with pytest.warns(PncVolWarning, match="chmod 700"):
        pnc_vol.File(path, "r+", hints={"e10_cache_path": str(nvm)}).close()


def test_caches_that_were_brought_here_and_carried_are_not_missed(tmp_path: Path, nvm: Path) -> None:
    path, brought = tmp_path / "x.nc", tmp_path / "brought"
    written(path, nvm, 0)
    killed(path, nvm, 1)
    nvm.rename(brought)
    with pytest.raises(LogRefusedError, match="cannot be read here"):
        pnc_vol.File(path, "r+")
    assert pnc_vol.replay(path, list(brought.iterdir())).caches == 1
    with pnc_vol.File(path, "r+") as f:
        assert f["x"][...].all()
    assert not (tmp_path / ".x.nc.pncc").exists()


def convert_over(path: Path) -> None:
    source = path.with_suffix(".h5")
    with h5py.File(source, "w") as f:
        f["x"] = np.full(100, 5, "i4")
    convert(source, path, overwrite=True)


def replay_over(path: Path) -> None:
    with pnc_vol.File(path.with_name("set"), "w", layout="blob") as f:
        f["x"] = np.full(100, 5, "i4")
    pnc_vol.replay(path.with_name("set"), output=path, overwrite=True)


def set_over(path: Path) -> None:
    with pnc_vol.File(path, "w", layout="blob") as f:
        f["x"] = np.full(100, 5, "i4")
    assert not path.exists()
    with pnc_vol.File(path, "w") as f:
        f["x"] = np.full(100, 5, "i4")


def write_over(path: Path) -> None:
    with pnc_vol.File(path, "w") as f:
        f["x"] = np.full(100, 5, "i4")


@pytest.mark.parametrize("way", [convert_over, replay_over, set_over, write_over])
def test_a_file_that_is_replaced_takes_no_data_of_the_old_one(
    tmp_path: Path, nvm: Path, way: Callable[[Path], None]
) -> None:
    path = tmp_path / "x.nc"
    written(path, nvm, 0)
    killed(path, nvm, 1)
    (folder,) = nvm.iterdir()
    os.link(path, tmp_path / "other name")
    with pytest.warns(PncVolWarning, match="of another file that had this name"):
        way(path)
    assert (folder / "replaced").exists()
    # As if the file system had given the number to the new file.
    new = path.read_bytes()
    (tmp_path / "other name").write_bytes(new)
    os.replace(tmp_path / "other name", path)
    with pytest.warns(PncVolWarning, match="of another file that had this name"):
        pnc_vol.File(path, "r+", recover=True).close()
    assert path.read_bytes() == new


def test_a_folder_is_named_once(tmp_path: Path, nvm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "x.nc"
    written(path, nvm, 0)
    killed(path, nvm, 1)
    with pytest.raises(LogRefusedError) as caught:
        pnc_vol.File(path, "r+", hints={"e10_cache_path": "nvm"})
    assert str(caught.value).count("pnccache-") == 1
    with pnc_vol.File(path, "r+", hints={"e10_cache_path": "nvm"}, recover=True) as f:
        assert f["x"][...].all()


def test_a_new_layout_that_failed_leaves_no_cache(tmp_path: Path) -> None:
    """Its cache is of a file that has no name any more; a recovery would refuse it, and that of the file with it."""
    system = FaultSystem(fail_at=0, mode="once", calls=("pwrite", "pread_into", "copy_range"))
    path, hints = str(tmp_path / "x.nc"), {"e10_cache_path": str(tmp_path), "e10_cache_flush_flag": "flush_none"}
    failed = 0
    for at in range(1, 100):
        with pnc_vol.File(path, "w", header_reserve=0) as f:
            f.create_dataset("x", data=np.arange(2000.0))
        system.count, system.fail_at = 0, at
        with warnings.catch_warnings(), suppress(OSError):
            warnings.simplefilter("ignore", pnc_vol.PncVolWarning)
            with suppress(pnc_vol.FlushError), pnc_vol.File(path, "r+", hints=hints, system=system) as f:
                f["x"][:10] = 1
                f.create_dataset("y", data=np.ones(500))
        fired = system.fail_at and system.count >= at
        system.fail_at = 0
        failed += bool(fired)
        pnc_vol.replay(path, hints=hints)
        with pnc_vol.File(path) as f:
            assert set(f["x"][:10].tolist()) <= set(range(10))
            np.testing.assert_array_equal(f["x"][10:], np.arange(10.0, 2000))
        if not fired:
            break
    assert failed > 5
