"""A file that a process writes: nobody else writes it meanwhile, and nothing is lost."""

from __future__ import annotations

import errno
import io
import os
import pathlib
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import h5py
import numpy as np
import pytest
from other_process import Other
from this_system import LOCK, OFD
from torn_headers import journal_of

import pnc_vol
from pnc_vol.convert.hdf5 import convert
from pnc_vol.disk.locking import Held
from pnc_vol.errors import LockedError, PncVolWarning
from pnc_vol.system import REAL
from pnc_vol.testing.faults import HookedSystem, TraceSystem


@contextmanager
def writing(path: pathlib.Path, mode: str = "r+", **options: Any) -> Iterator[Other]:
    """Another process that has a file open; when it goes on it closes it."""

    def program() -> Iterator[None]:
        f = pnc_vol.File(path, mode, **options)
        yield
        f.close()

    with Other(program) as other:
        assert other() == "done"
        yield other


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "w") as f:
        f["x"] = np.arange(10)
    return path


@pytest.mark.parametrize("mode", ["r+", "a", "w"])
def test_what_another_process_writes_is_refused(path: pathlib.Path, mode: str) -> None:
    with writing(path) as other:
        before = path.read_bytes()
        with pytest.raises(BlockingIOError, match="unable to lock file: held by another process") as caught:
            pnc_vol.File(path, mode)
        assert isinstance(caught.value, LockedError)
        assert caught.value.errno == errno.EAGAIN
        assert f"'lsof {path}'" in str(caught.value)
        assert path.read_bytes() == before
        assert os.listdir(path.parent) == [path.name]
        with pnc_vol.File(path) as reader:
            assert reader["x"][:].tolist() == list(range(10))
        assert other() == "done"
        pnc_vol.File(path, mode).close()


def test_it_is_as_in_h5py(tmp_path: pathlib.Path) -> None:
    """The class of the error and its number are those of h5py."""

    def program() -> Iterator[None]:
        with h5py.File(tmp_path / "a.h5", "w"), pnc_vol.File(tmp_path / "a.nc", "w"):
            yield

    told = []
    with Other(program) as other:
        assert other() == "done"
        for module, name in ((h5py, "a.h5"), (pnc_vol, "a.nc")):
            with pytest.raises(OSError, match="unable to lock file") as caught:
                module.File(tmp_path / name, "r+")
            told.append((isinstance(caught.value, BlockingIOError), caught.value.errno))
    assert told[0] == told[1]


def test_a_new_layout_keeps_the_lock(path: pathlib.Path) -> None:
    def program() -> Iterator[None]:
        with pnc_vol.File(path, "r+") as f:
            f.attrs["a"] = np.arange(20000)
            f.flush()
            yield

    before = path.stat().st_ino
    with Other(program) as other:
        assert other() == "done"
        assert path.stat().st_ino != before
        with pytest.raises(LockedError):
            pnc_vol.File(path, "r+")
        assert other() == "done"
    with pnc_vol.File(path, "r+") as f:
        assert len(f.attrs["a"]) == 20000


def test_the_name_is_never_without_a_lock(path: pathlib.Path) -> None:
    """At every call of a new layout, and of a file that replaces one, another opening is refused."""
    tried = []

    class Asking(HookedSystem):
        def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            result = super().call(name, args, kwargs)
            if armed and name in ("rename", "close", LOCK, "pwrite"):
                armed.clear()
                try:
                    pnc_vol.File(path, "r+", system=HookedSystem()).close()
                    tried.append((name, "opened"))
                except LockedError as error:
                    tried.append((name, "refused" if "this process itself" in str(error) else str(error)))
                armed.append(True)
            return result

    armed: list[bool] = []
    with pnc_vol.File(path, "r+", system=Asking()) as f:
        armed.append(True)
        f.attrs["a"] = np.arange(20000)
        f.flush()
        f.attrs["b"] = np.arange(90000)
        f.flush()
        armed.clear()
    assert {name for name, _ in tried} == {"rename", "close", LOCK, "pwrite"}
    assert {what for _, what in tried} == {"refused"}


def test_a_file_that_appears_at_its_close(path: pathlib.Path) -> None:
    """The file that is to be replaced is locked: two such writers, or one and one that changes it, do not meet."""

    def program() -> Iterator[None]:
        with pnc_vol.File(path, "w", publish="close") as f:
            f["new"] = 1
            yield

    with Other(program) as other:
        assert other() == "done"
        for mode, publish in (("w", "close"), ("w", "create"), ("r+", "create")):
            with pytest.raises(LockedError):
                pnc_vol.File(path, mode, publish=publish)
        with pnc_vol.File(path) as reader:
            assert list(reader) == ["x"]
        assert other() == "done"
    with pnc_vol.File(path, "r+") as f:
        assert list(f) == ["new"]


def test_a_name_taken_before_the_close(tmp_path: pathlib.Path) -> None:
    """Nothing was there to be locked; another process makes the file and has it open when ours is to have its name."""
    path = tmp_path / "x.nc"

    def program() -> Iterator[None]:
        with pnc_vol.File(path, "w") as g:
            g["x"] = 2
            g.flush()
            yield

    with Other(program) as other:
        f = pnc_vol.File(path, "w", publish="close")
        f["mine"] = 1
        assert other() == "done"
        with pytest.raises(LockedError):
            f.close()
        assert other() == "done"
    with pnc_vol.File(path) as g:
        assert list(g) == ["x"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_kill_frees_the_file(path: pathlib.Path, how: signal.Signals) -> None:
    def program() -> Iterator[None]:
        f = pnc_vol.File(path, "r+")
        f["posted"] = 1
        yield

    with Other(program) as other:
        assert other() == "done"
        other.kill(how)
    with pnc_vol.File(path, "r+") as f:
        assert list(f) == ["x"]


@pytest.mark.parametrize("how", ["close", "kill"])
def test_a_forked_child_keeps_no_lock(path: pathlib.Path, how: str) -> None:
    """Neither after its parent closed the file, nor after its parent was killed."""
    told, tell = os.pipe()

    def program() -> Iterator[None]:
        f = pnc_vol.File(path, "r+")
        assert f["x"][0] == 0
        if not os.fork():
            os.write(tell, str(os.getpid()).encode())  # once it has closed its copies, which a fork does first
            time.sleep(60)
            os._exit(0)
        yield
        f.close()

    with Other(program) as other:
        assert other() == "done"
        child = int(os.read(told, 100))
        try:
            if how == "close":
                assert other() == "done"
            else:
                other.kill()
            pnc_vol.File(path, "r+").close()
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_child_does_not_free_what_its_parent_holds(path: pathlib.Path) -> None:
    def program() -> Iterator[None]:
        pnc_vol.File(path, "r+")
        yield

    # forked before the file is open
    with Other(program) as other, pnc_vol.File(path, "r+"):
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        assert other().startswith("LockedError: [Errno 11] unable to lock file")


@pytest.mark.parametrize(
    ("environ", "keywords", "locked"),
    [
        ("", {}, True),
        ("", {"locking": True}, True),
        ("", {"locking": "best-effort"}, True),
        ("", {"locking": False}, False),
        ("", {"locking": "false"}, False),
        ("FALSE", {}, False),
        ("0", {"locking": True}, False),
        ("TRUE", {"locking": False}, True),
        ("BEST_EFFORT", {"locking": False}, True),
        ("nonsense", {}, True),
    ],
)
def test_the_option_and_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, environ: str, keywords: dict[str, Any], locked: bool
) -> None:
    """As in HDF5, where the environment outdoes the property list."""
    if environ:
        monkeypatch.setenv("HDF5_USE_FILE_LOCKING", environ)
    system = TraceSystem()
    with pnc_vol.File(tmp_path / "x.nc", "w", system=system, **keywords):
        pass
    assert bool(system.matching(name=LOCK)) is locked


class NoLocks(HookedSystem):
    """A file system as some network file systems are."""

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name in ("record_lock", "flock"):
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
        return super().call(name, args, kwargs)


def test_where_there_are_no_locks(monkeypatch: pytest.MonkeyPatch, path: pathlib.Path) -> None:
    monkeypatch.setattr("pnc_vol.warn._warned", set())
    with pytest.warns(PncVolWarning, match="the file system has no locks"):
        pnc_vol.File(path, "r+", system=NoLocks()).close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # it was said once
        pnc_vol.File(path, "w", system=NoLocks()).close()
        pnc_vol.File(path, "r+", system=NoLocks(), locking="best-effort").close()
        pnc_vol.File(path, "r+", system=NoLocks(), locking=False).close()
    before = path.read_bytes()
    for mode in ("r+", "w"):
        with pytest.raises(OSError, match="pass locking='best-effort'") as caught:
            pnc_vol.File(path, mode, system=NoLocks(), locking=True)
        assert caught.value.errno == errno.ENOLCK
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_without_these_locks_flock_is_used(monkeypatch: pytest.MonkeyPatch, path: pathlib.Path) -> None:
    monkeypatch.setattr("pnc_vol.disk.locking._OFD", False)
    with writing(path) as other:
        with pytest.raises(LockedError, match="held by another process"):
            pnc_vol.File(path, "r+")
        assert other() == "done"
        pnc_vol.File(path, "r+").close()


@pytest.mark.parametrize("ofd", [OFD, False])
def test_a_copy_of_the_descriptor_does_not_keep_the_lock(
    monkeypatch: pytest.MonkeyPatch, path: pathlib.Path, ofd: bool
) -> None:
    """A process that is being started has one between fork and exec."""
    monkeypatch.setattr("pnc_vol.disk.locking._OFD", ofd)
    copies: list[int] = []

    class Copying(HookedSystem):
        def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            result = super().call(name, args, kwargs)
            if name == "open":
                copies.append(os.dup(result))
            return result

    pnc_vol.File(path, "r+", system=Copying()).close()
    assert copies
    pnc_vol.File(path, "r+").close()
    for fd in copies:
        os.close(fd)


def test_a_journal_of_a_living_writer_is_left_alone(path: pathlib.Path) -> None:
    journal = journal_of(path)
    with writing(path):
        journal.write_bytes(b"of the writer")
        with pytest.raises(LockedError):
            pnc_vol.File(path, "r+")
        assert journal.read_bytes() == b"of the writer"


def test_in_one_process_nothing_is_in_its_own_way(path: pathlib.Path) -> None:
    with pnc_vol.File(path, "r+") as f, pnc_vol.File(path, "r+") as g, pnc_vol.File(path) as h:
        f["x"][0] = 7
        assert g["x"][0] == h["x"][0] == 7
    with pnc_vol.File(path), pytest.raises(OSError, match="this process has it open"):
        pnc_vol.File(path, "r+")


def test_what_is_no_file_takes_no_lock(path: pathlib.Path) -> None:
    with writing(path):
        with pnc_vol.File(path, "r+", driver="memory") as f:
            f["x"][0] = 1
        pnc_vol.File(io.BytesIO(path.read_bytes()), "r+").close()


def test_programs_that_write_whole_files_ask_too(path: pathlib.Path) -> None:
    spare = path.with_name("spare.nc")
    with pnc_vol.File(spare, "w") as f:
        f["y"] = 1
    with writing(path):
        before = path.read_bytes()
        for act in (
            lambda: pnc_vol.repack(path),
            lambda: pnc_vol.repack(spare, path, overwrite=True),
            lambda: convert(spare, path, overwrite=True),
        ):
            with pytest.raises(LockedError):
                act()
            assert path.read_bytes() == before
    assert sorted(os.listdir(path.parent)) == ["spare.nc", "x.nc"]


def test_an_mpi_job_is_told_what_to_pass(monkeypatch: pytest.MonkeyPatch, path: pathlib.Path) -> None:
    with writing(path):
        monkeypatch.setenv("PMI_RANK", "1")
        with pytest.raises(LockedError, match=r"driver='mpio' and comm=MPI\.COMM_WORLD"):
            pnc_vol.File(path, "w")


def test_a_descriptor_that_was_closed_unlocks_no_other_file(tmp_path: pathlib.Path) -> None:
    """After an interruption, a number is kept that the next file may have got."""
    held, later = (Held(REAL, name, None) for name in ("first", "second"))
    first = REAL.open(tmp_path / "first", os.O_RDWR | os.O_CREAT)
    held.lock(first)
    held.keep(first)
    REAL.close(first)
    second = REAL.open(tmp_path / "second", os.O_RDWR | os.O_CREAT)
    assert int(second) == int(first)
    later.lock(second)
    later.keep(second)
    # a log is locked in this way, also where there are open file description locks
    REAL.flock(second)
    held.release()
    with pytest.raises(LockedError):
        Held(REAL, "another", None).take(str(tmp_path / "second"))
    third = REAL.open(tmp_path / "second", os.O_RDWR)
    with pytest.raises(BlockingIOError):
        REAL.flock(third)
    REAL.close(third)
    later.release()
