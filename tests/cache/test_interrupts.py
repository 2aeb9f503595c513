"""Ctrl-C, or no memory, at any line of a file with a cache or a log: nothing stays open, and nothing waits."""

from __future__ import annotations

import fcntl
import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import virtual_ranks
from interrupts import SWEEP, AtCall, Call, Interrupts, interrupted, open_now, sweep, sweep_closes

import pnc_vol
from pnc_vol.append_log.private_folders import note_folders
from pnc_vol.append_log.records import RecordWriter
from pnc_vol.cache.held_bytes import HeldBytes
from pnc_vol.cache.local_store import LocalStore
from pnc_vol.cache.wrapper import CacheDriver
from pnc_vol.file import deferred
from pnc_vol.file.definitions import Definitions
from pnc_vol.file.epochs import Epochs
from pnc_vol.file.header_update import write_header
from pnc_vol.flush.transport import Transport
from pnc_vol.system import REAL, System

KINDS: dict[str, dict[str, Any]] = {
    "cache": {"hints": {"e10_cache_flush_flag": "flush_immediate"}},
    "coherent cache": {"hints": {"e10_cache": "coherent"}},
    "log": {"burst_buf": True},
    "memory": {},
}


def options(kind: str, folder: Path) -> dict[str, Any]:
    """The options of a file whose cache or log is in a folder, which is made."""
    folder.mkdir(exist_ok=True)
    given = {**KINDS[kind]}
    if "hints" in given:
        given["hints"] = {"e10_cache_path": str(folder), **given["hints"]}
    elif given:
        given["burst_buf_dirname"] = str(folder)
    return given


@SWEEP
@pytest.mark.filterwarnings("ignore:.*what was posted and is not in the file is kept:pnc_vol.errors.PncVolWarning")
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("kind", KINDS)
def test_a_close_is_called_again(kind: str, error: type[BaseException], most: int, tmp_path: Path) -> None:
    """After an interrupted close nothing is open while the user still has the file, and what was posted is there."""

    def opened(n: int) -> pnc_vol.File:
        f = pnc_vol.File(tmp_path / f"{n}.nc", "w", **options(kind, tmp_path / str(n)))
        f["x"] = np.arange(10)
        f.flush()
        f["x"][5] = 50
        return f

    def look(n: int, trouble: AtCall) -> None:
        with pnc_vol.File(tmp_path / f"{n}.nc", "r+", recover=True, **options(kind, tmp_path / str(n))) as f:
            assert f["x"][5] in ((5, 50) if trouble.happened else (50,))

    sweep_closes(opened, look, error, most)


@SWEEP
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("kind", KINDS)
def test_an_opening_gives_back_what_it_took(kind: str, error: type[BaseException], most: int, tmp_path: Path) -> None:
    def opening(n: int) -> None:
        f.append(pnc_vol.File(tmp_path / f"{n}.nc", "w", **options(kind, tmp_path / str(n))))

    f: list[pnc_vol.File] = []
    counted = Interrupts(0, error)
    for n, trouble in ((-2, Interrupts(0, error)), (-1, counted)):
        with trouble:
            opening(n)
        f.pop().close()
    before = open_now()

    def once(n: int, trouble: AtCall) -> None:
        interrupted(trouble, lambda: opening(n))
        while f:
            f.pop().close()
        assert open_now() == before

    sweep(counted, most, once)


def test_the_lock_of_a_note_is_given_back(tmp_path: Path) -> None:
    """Else the next change of the note would wait for it."""
    note = str(tmp_path / "note")
    counted = Interrupts(0, KeyboardInterrupt)
    for trouble in (Interrupts(0, KeyboardInterrupt), counted):
        with trouble:
            note_folders(REAL, note, [str(tmp_path)], durable=False)
    for n in range(1, counted.count + 1):
        try:
            with counted.at_line(n):
                note_folders(REAL, note, [str(tmp_path)], durable=False)
        except KeyboardInterrupt:
            # while the traceback holds what the functions had
            with open(note) as other:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


@SWEEP
@pytest.mark.parametrize("publish", ["create", "close"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_flush_is_completed_by_the_close(kind: str, publish: str, most: int, tmp_path: Path) -> None:
    """Also one that moves the data to a copy of the file, and one whose header a cache holds back."""

    def opened(n: int) -> pnc_vol.File:
        name, given = tmp_path / f"{n}.nc", options(kind, tmp_path / str(n))
        f = pnc_vol.File(name, "w", publish=publish, header_reserve=0, separator="_", **given)
        f["x"] = np.arange(10)
        f.flush()
        f["y"] = np.arange(5)
        f.attrs["more"] = "x" * 3000
        return f

    opened(-2).close()
    counted = Interrupts(0, KeyboardInterrupt)
    with opened(-1) as f, counted:
        f.flush()
    before = open_now()

    def once(n: int, trouble: AtCall) -> None:
        f = opened(n)
        interrupted(trouble, f.flush)
        f.close()
        assert open_now() == before
        with pnc_vol.File(tmp_path / f"{n}.nc") as f:
            assert (f["x"][...].tolist(), f["y"][...].tolist()) == (list(range(10)), list(range(5)))
            assert f.attrs["more"] == "x" * 3000

    sweep(counted, most, once)


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize("kind", ["cache", "coherent cache"])
def test_a_header_that_was_held_when_the_memory_ended_is_in_the_file_after_the_close(
    kind: str, deferred: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = options(kind, tmp_path / "nvm")
    if deferred:
        (tmp_path / "hints.json").write_text('{"Guardnames": "x.nc"}')
        given["hints_file"] = str(tmp_path / "hints.json")
    f = pnc_vol.File(tmp_path / "x.nc", "w", **given)
    f.flush()
    f["x"], f.attrs["more"] = np.arange(10), "x" * 3000
    real, failed = Definitions.flushed, []

    def flushed(defs: Definitions, header: Any) -> None:
        """There is no memory, once, behind the step that holds the header."""
        if not failed:
            failed.append(header)
            raise MemoryError
        real(defs, header)

    monkeypatch.setattr(Definitions, "flushed", flushed)
    if not deferred:
        with pytest.raises(MemoryError):
            f.flush()
    f.close()
    pnc_vol.finalize()
    assert failed
    with pnc_vol.File(tmp_path / "x.nc") as f:
        assert (f["x"][...].tolist(), f.attrs["more"]) == (list(range(10)), "x" * 3000)


@pytest.mark.parametrize("flag", ["flush_none", "flush_onclose"])
def test_a_copy_that_was_left_without_a_header_gets_all_of_it(
    flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory ended when the data of a flush were written that makes a new layout in a copy of the file."""
    given = options("cache", tmp_path / "nvm")
    given["hints"]["e10_cache_flush_flag"] = flag
    f = pnc_vol.File(tmp_path / "x.nc", "w", header_reserve=0, **given)
    f["x"] = np.arange(10)
    f.flush()
    f["y"], f.attrs["more"] = np.arange(5), "x" * 3000
    with monkeypatch.context() as patched:
        patched.setattr(Transport, "execute", lambda *given, **named: (_ for _ in ()).throw(MemoryError))
        with pytest.raises(MemoryError):
            f.flush()
    stays = pytest.warns(pnc_vol.errors.PncVolWarning, match="data stay in the cache file")
    with stays if flag == "flush_none" else nullcontext():
        f.close()
    with pnc_vol.File(tmp_path / "x.nc", "r+", recover=True) as f:
        assert (f["x"][...].tolist(), f["y"][...].tolist()) == (list(range(10)), list(range(5)))
        assert f.attrs["more"] == "x" * 3000


def test_a_header_of_an_interrupted_flush_is_not_recovered(tmp_path: Path) -> None:
    """Neither is a log damaged whose writer was interrupted: the job goes on, and is killed later."""

    def opened(n: int) -> pnc_vol.File:
        given = options("cache", tmp_path / str(n))
        given["hints"]["e10_cache_flush_flag"] = "flush_onclose"
        f = pnc_vol.File(tmp_path / f"{n}.nc", "w", **given)
        f["x"] = np.arange(10)
        f.sync()
        f.attrs["a"] = 1
        f["x"][0] = 7
        return f

    opened(-2).close()
    counted = Interrupts(0, KeyboardInterrupt)
    with opened(-1) as f, counted:
        f.flush()
    codes = {
        code.__code__ for code in (write_header, Epochs.hold, LocalStore.hold, RecordWriter.add, RecordWriter._append)
    }
    lines = [n for n, call in enumerate(counted._call_of, 1) if counted._noted[call].code in codes]
    wrong = {}
    for n in lines:
        trouble = counted.at_line(n)
        with opened(n) as f:
            interrupted(trouble, f.flush)
            del f.attrs["a"]
            f.flush()
            copy = tmp_path / f"killed{n}"
            copy.mkdir()
            shutil.copy(tmp_path / f"{n}.nc", copy / "x.nc")
            shutil.copytree(tmp_path / str(n), copy / "caches")
        try:
            pnc_vol.replay(copy / "x.nc", list((copy / "caches").iterdir()), any_file=True)
            with pnc_vol.File(copy / "x.nc") as f:
                assert (dict(f.attrs), f["x"][0]) == ({}, 7)
        except (AssertionError, OSError, pnc_vol.PncVolError) as error:
            wrong[f"line {n}, {trouble.where}"] = str(error)[:200]
    assert len(lines) > 40
    assert not wrong, "\n".join(f"{where}: {what}" for where, what in wrong.items())


@SWEEP
def test_an_interrupted_finalize_is_called_again(most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file whose close was deferred belongs to nobody else."""
    guard = tmp_path / "guard.json"
    guard.write_text(json.dumps({"Guardnames": "step"}))
    options_of = {"e10_cache_path": str(tmp_path)}

    def closed(n: int) -> None:
        with pnc_vol.File(tmp_path / f"step{n}.nc", "w", hints=options_of) as f:
            f["x"] = np.arange(10)

    monkeypatch.setenv("PNC_VOL_HINTS_FILE", str(guard))
    closed(-2)
    pnc_vol.finalize()
    before = open_now()
    closed(-1)
    counted = Interrupts(0, KeyboardInterrupt)
    with counted:
        pnc_vol.finalize()
    assert counted.count > 200

    def once(n: int, trouble: AtCall) -> None:
        closed(n)
        interrupted(trouble, pnc_vol.finalize)
        pnc_vol.finalize()
        assert open_now() == before
        with pnc_vol.File(tmp_path / f"step{n}.nc") as f:
            assert f["x"][...].tolist() == list(range(10))
        pnc_vol.finalize()

    sweep(counted, most, once)


@SWEEP
def test_a_process_does_not_wait_for_its_own_lock(most: int, tmp_path: Path) -> None:
    """A write that Ctrl-C ended may keep its lock on bytes that are read next."""

    def opened(n: int) -> pnc_vol.File:
        f = pnc_vol.File(tmp_path / f"step{n}.nc", "w", **options("coherent cache", tmp_path), collective_timeout=5)
        f["x"] = np.arange(1000)
        f.flush()
        return f

    def change(f: pnc_vol.File) -> None:
        f["x"][::2] = 7
        f.flush()

    opened(-2).close()
    counted = Interrupts(0, KeyboardInterrupt)
    with opened(-1) as f, counted:
        change(f)

    def once(n: int, trouble: AtCall) -> None:
        with opened(n) as f:
            interrupted(trouble, lambda: change(f))
            assert f["x"][1::2].tolist() == list(range(1, 1000, 2))
            change(f)

    sweep(counted, most, once)


def test_a_dataset_is_read_after_an_interrupted_post(tmp_path: Path) -> None:
    def post(f: pnc_vol.File) -> None:
        f["x"][[1, 3, 4]] = 7

    with pnc_vol.File(tmp_path / "x.nc", "w") as f:
        f["x"] = np.arange(10)
        f.flush()
        post(f)
        f.flush()
        with Interrupts(0, KeyboardInterrupt) as counted:
            post(f)
        for n in range(1, counted.count + 1):
            f.flush()
            trouble = counted.at_line(n)
            interrupted(trouble, lambda: post(f))
            assert f["x"][...].tolist() == [0, 7, 2, 7, 7, 5, 6, 7, 8, 9], trouble.where


@pytest.mark.parametrize("line", range(1, 12))
def test_a_rank_that_leaves_takes_the_cache_of_the_replaced_file_along(tmp_path: Path, line: int) -> None:
    """There is no memory where it is left, after a copy with a new layout has taken the place of its file."""

    hints = {"e10_cache_path": str(tmp_path), "e10_cache": "coherent"}

    def job(comm: Any) -> None:
        f = pnc_vol.File(tmp_path / "a.nc", "w", comm=comm, driver="posix", hints=hints, collective_timeout=2)
        f.create_dataset("x", (2, 3), "i4", maxshape=(None, None))[...] = 1
        f.sync()
        f.attrs["long"] = "text" * 4000
        trouble = AtCall(Call(HeldBytes.leave.__code__, 1), line, 0, MemoryError)
        try:
            with trouble if comm.rank else nullcontext():
                f.flush()
        except MemoryError as error:
            f.__exit__(MemoryError, error, None)
        else:
            f.close()
        deferred.part_from_others(last=True)

    virtual_ranks.run(2, job, timeout=5)
    pnc_vol.File(tmp_path / "a.nc", "r+", recover=True, hints=hints).close()
    assert {path.name for path in tmp_path.iterdir()} == {"a.nc"}


@pytest.mark.parametrize("kind", ["cache", "coherent cache"])
def test_who_keeps_the_exception_of_an_opening_keeps_no_window(kind: str, tmp_path: Path) -> None:
    """A window has a descriptor of its own, which would keep the space of a log that was removed."""
    counted = Interrupts(0, KeyboardInterrupt)
    for n, trouble in ((-2, Interrupts(0, KeyboardInterrupt)), (-1, counted)):
        with trouble:
            f = pnc_vol.File(tmp_path / f"{n}.nc", "w", **options(kind, tmp_path / str(n)))
        f.close()
    codes = System.mmap.__code__, CacheDriver.__init__.__code__
    lines = [n + 1 for n, call in enumerate(counted._call_of) if counted._noted[call].code in codes]
    before = open_now()
    for n in lines:
        trouble = counted.at_line(n)
        with pytest.raises(KeyboardInterrupt) as kept, trouble:
            pnc_vol.File(tmp_path / f"{n}.nc", "w", **options(kind, tmp_path / str(n)))
        assert open_now() == before, trouble.where
        del kept
