"""Logs when a file is opened and closed: hints, folders, permissions, what killed jobs left, what other jobs have."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import shutil
import signal
import stat
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kills import ended, forked, kill_after, killed_job, logged_job

import pnc_vol
from pnc_vol.errors import ForkedFileError, LockedError, LogRefusedError, PncVolWarning
from pnc_vol.testing.faults import FaultSystem, HookedSystem


def open_logged(path: pathlib.Path, logs: pathlib.Path, mode: str = "w", **options: Any) -> Any:
    return pnc_vol.File(path, mode, burst_buf=True, burst_buf_dirname=str(logs), **options)


def job(path: pathlib.Path, logs: pathlib.Path, mode: str = "w", value: float = 1.0, **options: Any) -> None:
    """A job that posts, in a process that ends without closing the file."""

    def work(f: Any) -> None:
        f.require_dataset("x", (4,), "f8")[:] = value
        f.require_dataset("g/y", (2,), "i2")[1] = int(value)

    logged_job(path, logs, work, mode, **options)


def note_of(path: pathlib.Path) -> pathlib.Path:
    """The note beside a file that says where its logs are."""
    return path.with_name(f".{path.name}.pncbb")


def folders(logs: pathlib.Path) -> list[pathlib.Path]:
    return sorted(logs.iterdir())


# --------------------------------------------------------------------------------------------------- hints


def test_hints_of_the_environment_win_over_info_and_arguments(
    tmp_path: pathlib.Path, logs: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    hints = {"nc_burst_buf": "enable", "nc_burst_buf_dirname": str(first), "cb_nodes": "2", "nc_burst_buf_sync": "each"}
    with pnc_vol.File(tmp_path / "x.nc", "w", hints=hints) as f:
        assert len(folders(first)) == 1
        assert f.hints["nc_burst_buf"] == "enable"
        assert f.hints["cb_nodes"] == "2"
    info = {"nc_burst_buf_dirname": str(second), "nc_burst_buf_sync": "flush", "striping_unit": "7"}
    with pnc_vol.File(tmp_path / "x.nc", "w", hints=hints, info=info) as f:
        assert len(folders(second)) == 1
        assert (f.hints["nc_burst_buf_sync"], f.hints["striping_unit"]) == ("flush", "7")
    monkeypatch.setenv("PNETCDF_HINTS", f"nc_burst_buf_dirname={logs};nc_burst_buf_sync=none;odd=1")
    with pnc_vol.File(tmp_path / "x.nc", "w", hints=hints, info=info) as f:
        assert len(folders(logs)) == 1
        assert {
            "nc_burst_buf": "enable",
            "nc_burst_buf_dirname": str(logs),
            "nc_burst_buf_del_on_close": "enable",
            "nc_burst_buf_overwrite": "disable",
            "nc_burst_buf_shared_logs": "disable",
            "nc_burst_buf_sync": "none",
            "nc_burst_buf_capacity": "0",
            "odd": "1",
        }.items() <= f.hints.items()
    monkeypatch.setenv("PNC_VOL_HINTS", "nc_burst_buf=disable")
    with pnc_vol.File(tmp_path / "x.nc", "w", hints=hints, info=info) as f:
        assert not folders(logs)
        assert f.hints["nc_burst_buf"] == "disable"


@pytest.mark.parametrize(
    "hint",
    ["nc_burst_buf=perhaps", "nc_burst_buf_flush_buffer_size=-1", "nc_burst_buf_sync=always",
     "nc_burst_buf_capacity=much", "nc_burst_buf_del_on_close=2", "nc_burst_buf_overwrite=x"],
)  # fmt: skip
def test_wrong_values_are_named(hint: str, tmp_path: pathlib.Path) -> None:
    name, _, value = hint.partition("=")
    with pytest.raises(ValueError, match=name):
        pnc_vol.File(tmp_path / "x.nc", "w", hints={"nc_burst_buf": "enable", name: value})
    assert not list(tmp_path.iterdir())


def test_a_file_opened_for_reading_has_no_log(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    open_logged(tmp_path / "x.nc", logs).close()
    with open_logged(tmp_path / "x.nc", logs, "r") as f:
        assert not folders(logs)
        assert f.hints["nc_burst_buf"] == "disable"


# ------------------------------------------------------------------------------------------------- folders


@pytest.mark.parametrize("there", [False, True])
def test_a_folder_that_is_missing_is_an_error_before_the_file_is_touched(there: bool, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.nc"
    if there:
        path.write_bytes(b"old content")
    with pytest.raises(FileNotFoundError, match="nc_burst_buf_dirname"):
        open_logged(path, tmp_path / "nowhere")
    assert (path.read_bytes() if there else path.exists()) == (b"old content" if there else False)
    assert list(tmp_path.iterdir()) == ([path] if there else [])


def test_a_folder_that_cannot_be_written_to_is_an_error(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    system = FaultSystem(fail_at=1, errno=errno.EACCES, calls={"mkdir"})
    with pytest.raises(PermissionError, match="nc_burst_buf_dirname"):
        open_logged(tmp_path / "x.nc", logs, system=system)
    assert not (tmp_path / "x.nc").exists()


def test_a_plain_file_as_folder_is_an_error(tmp_path: pathlib.Path) -> None:
    (tmp_path / "plain").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        open_logged(tmp_path / "x.nc", tmp_path / "plain")


def test_a_file_in_a_folder_that_is_missing_is_told_as_without_a_log(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere.*create it first"):
        pnc_vol.File(tmp_path / "nowhere" / "x.nc", "w", burst_buf=True)


def test_a_broken_device_is_named(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    system = FaultSystem(fail_at=0, errno=errno.EIO, calls={"pwrite"})
    with open_logged(tmp_path / "x.nc", logs, system=system) as f:
        x = f.create_dataset("x", (10_000,), "f8")
        system.fail_at = system.count + 1
        with pytest.raises(OSError, match=f"Input/output error: '{folders(logs)[0]}/x.nc_0_0'"):
            x[:] = 1.0
        x[:] = 2.0
        assert x[5] == 2


def test_a_relative_folder_is_found_from_anywhere(
    tmp_path: pathlib.Path, logs: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job(tmp_path / "x.nc", pathlib.Path("logs"))
    monkeypatch.chdir("/")
    with pnc_vol.File(tmp_path / "x.nc", "r+", recover=True) as f:
        assert f["x"][0] == 1
    assert not folders(logs)


def test_only_its_owner_can_look_at_a_log(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    before = os.umask(0)
    try:
        with open_logged(tmp_path / "x.nc", logs) as f:
            f["x"] = [1, 2]
            (folder,) = folders(logs)
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
            assert sorted(file.suffix for file in folder.iterdir()) == [".commit", ".data", ".defs", ".meta"]
            assert stat.S_IMODE(note_of(tmp_path / "x.nc").stat().st_mode) == 0o600
    finally:
        os.umask(before)
    assert not folders(logs)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["logs", "x.nc"]


def test_no_link_is_written_through(
    tmp_path: pathlib.Path, logs: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    path = tmp_path / "x.nc"
    # The note has a name that anybody can tell beforehand; so has a log whose token is known.
    note_of(path).symlink_to(victim)
    with open_logged(path, logs) as f:
        f["x"] = np.arange(1000)
        assert not note_of(path).is_symlink()
    assert victim.read_bytes() == b"precious"

    class Known(HookedSystem):
        def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if name == "mkdir" and logs in pathlib.Path(args[0]).parents:
                super().call(name, args, kwargs)
                return os.symlink(victim, os.path.join(args[0], "x.nc_0_0.data"))
            if name == "rmdir":
                os.unlink(os.path.join(args[0], "x.nc_0_0.data"))
            return super().call(name, args, kwargs)

    with pytest.raises(FileExistsError):
        open_logged(path, logs, system=Known())
    assert victim.read_bytes() == b"precious"


def test_files_of_one_name_have_logs_of_their_own(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    with open_logged(tmp_path / "one/x.nc", logs) as one, open_logged(tmp_path / "two/x.nc", logs) as two:
        one["x"], two["x"] = [1], [2]
        names = [folder.name for folder in folders(logs)]
        assert len({name.rsplit("-", 1)[0] for name in names}) == 2
    for folder, value in (("one", 1), ("two", 2)):
        with pnc_vol.File(tmp_path / folder / "x.nc") as f:
            assert f["x"][0] == value


# ---------------------------------------------------------------------------------------------- what was left


@pytest.mark.parametrize("mode", ["r", "r+", "a", "w"])
def test_what_a_killed_job_left_is_said_and_kept(mode: str, tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    path = tmp_path / "x.nc"
    job(path, logs)
    left = folders(logs)
    with pytest.warns(PncVolWarning, match=left[0].name) as caught:
        pnc_vol.File(path, mode).close()
    assert caught[0].filename == __file__
    with pytest.warns(PncVolWarning, match=left[0].name):
        open_logged(path, logs, mode).close()
    assert folders(logs) == left
    if mode == "w":
        return
    report = pnc_vol.replay(path, left)
    assert (report.replayed, report.created) == (2, ["/x", "/g/y"])
    with pnc_vol.File(path) as f:
        assert (f["x"][:].tolist(), f["g/y"][:].tolist()) == ([1.0] * 4, [0, 1])


def test_two_killed_jobs_are_replayed_in_their_order(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    path, others = tmp_path / "x.nc", tmp_path / "others"
    others.mkdir()
    job(path, logs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        job(path, others, "r+", 2.0)
    assert len(folders(logs)) == len(folders(others)) == 1
    # Neither folder is named: the note beside the file knows both.
    with pnc_vol.File(path, "r+", recover=True) as f:
        assert f["x"][:].tolist() == [2.0] * 4
    assert not folders(logs) + folders(others)
    assert not note_of(path).exists()


def test_recovery_needs_a_mode_that_writes(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    job(tmp_path / "x.nc", logs)
    with pytest.warns(PncVolWarning, match="r\\+"), pnc_vol.File(tmp_path / "x.nc", recover=True) as f:
        assert list(f) == []
    with pnc_vol.File(tmp_path / "x.nc", "a", recover=True) as f:
        assert f["x"][0] == 1


def test_overwrite_removes_what_was_left(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    job(tmp_path / "x.nc", logs)
    with pytest.warns(PncVolWarning), pnc_vol.File(tmp_path / "x.nc", burst_buf_overwrite=True):
        assert len(folders(logs)) == 1
    with open_logged(tmp_path / "x.nc", logs, "r+", hints={"nc_burst_buf_overwrite": "enable"}) as f:
        assert list(f) == []
    assert not folders(logs)


@pytest.mark.parametrize("recover", [True, "any-file"])
def test_what_is_to_be_recovered_is_not_removed_by_overwrite(
    recover: Any, tmp_path: pathlib.Path, logs: pathlib.Path
) -> None:
    path = tmp_path / "x.nc"
    job(path, logs)
    with pnc_vol.File(path, "r+", recover=recover, burst_buf_overwrite=True) as f:
        assert f["x"][:].tolist() == [1.0] * 4
    assert not folders(logs)


def test_a_new_file_recovers_nothing(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    path = tmp_path / "x.nc"
    job(path, logs)
    with pnc_vol.File(path, "w", recover=True, burst_buf_overwrite=True) as f:
        assert list(f) == []
    assert not folders(logs)


def test_an_empty_folder_that_a_kill_left_is_removed(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    """Its job was killed before it noted the folder, or after it took it out of the note."""
    path = tmp_path / "x.nc"
    job(tmp_path / "y.nc", logs)
    (other,) = folders(logs)
    job(path, logs)
    for file in (*logs.glob("*/*"), note_of(path), note_of(tmp_path / "y.nc")):
        file.unlink()
    open_logged(path, logs, "r+").close()
    assert folders(logs) == [other]


def test_a_recovery_that_is_killed_at_its_end_leaves_nothing_for_ever(
    tmp_path: pathlib.Path, logs: pathlib.Path
) -> None:
    """The next one finds what it left by the note, or in the folder of logs."""

    class Killed(HookedSystem):
        """Ends the process at the n-th removal of a file or folder."""

        left = 0

        def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if name in ("unlink", "rmdir"):
                self.left -= 1
                if not self.left:
                    os._exit(0)
            return super().call(name, args, kwargs)

    def recovered(path: pathlib.Path, n: int) -> int:
        system = Killed()
        system.left = n
        pnc_vol.File(path, "r+", recover=True, system=system).close()
        return -system.left

    job(tmp_path / "0.nc", logs)
    count = recovered(tmp_path / "0.nc", 0)
    assert count > 4
    for n in range(1, count + 1):
        path = tmp_path / f"{n}.nc"
        job(path, logs)
        ended(lambda path=path, n=n: recovered(path, n))  # type: ignore[misc]
        with pnc_vol.File(path, "r+", recover=True, burst_buf_dirname=str(logs)) as f:
            assert f["x"][:].tolist() == [1.0] * 4
        assert not folders(logs), n
        assert not note_of(path).exists(), n


def test_a_folder_that_another_opening_took_for_a_leftover_is_made_again(
    tmp_path: pathlib.Path, logs: pathlib.Path
) -> None:
    class Removing(HookedSystem):
        """Before the first file of the log is made, another job opens the file."""

        removed = 0

        def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if name == "open" and str(args[0]).endswith(".defs") and not self.removed:
                self.removed = 1
                os.rmdir(os.path.dirname(args[0]))
            return super().call(name, args, kwargs)

    system = Removing()
    with open_logged(tmp_path / "x.nc", logs, system=system) as f:
        f["x"] = [1.0, 2.0]
    assert system.removed
    assert not folders(logs)
    with pnc_vol.File(tmp_path / "x.nc") as f:
        assert f["x"][:].tolist() == [1.0, 2.0]


def living(path: pathlib.Path, logs: pathlib.Path) -> tuple[int, int]:
    """A job that has posted 5, and lives; see `kills.forked`."""

    def work(told: int) -> None:
        f = open_logged(path, logs)
        f["x"] = np.full(4, 5.0)
        os.write(told, b".")
        signal.pause()

    child, reading = forked(work)
    os.read(reading, 1)
    return child, reading


class ReadOnly(HookedSystem):
    """No name can be made, changed or removed in some folders."""

    folders: tuple[pathlib.Path, ...] = ()

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name in ("unlink", "rename", "mkdir", "rmdir") or (name == "open" and args[1] & os.O_CREAT):
            for path in args[: 2 if name == "rename" else 1]:
                if pathlib.Path(path).parent in self.folders:
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return super().call(name, args, kwargs)


@pytest.mark.parametrize("kept", ["log", "cache"])
@pytest.mark.parametrize("which", ["beside the file", "of the logs", "both"])
def test_a_folder_that_becomes_read_only_leaves_nothing_that_is_told_of(
    tmp_path: pathlib.Path, logs: pathlib.Path, kept: str, which: str
) -> None:
    system, path = ReadOnly(), tmp_path / "data" / "x.nc"
    path.parent.mkdir()
    options: dict[str, Any] = {"burst_buf": True, "burst_buf_dirname": str(logs)}
    if kept == "cache":
        options = {"hints": {"e10_cache_path": str(logs)}}
    f = pnc_vol.File(path, "w", system=system, **options)
    f["x"] = np.arange(4)
    f.flush()
    f["x"][0] = 5
    f.sync()
    system.folders = {"beside the file": (path.parent,), "of the logs": (logs,), "both": (path.parent, logs)}[which]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f.close()
        with pnc_vol.File(path) as f:
            assert f["x"][0] == 5
        pnc_vol.File(path, "r+", **options).close()
    assert [*path.parent.iterdir(), *folders(logs)] == [path]


def test_the_log_of_a_job_that_lives_is_left_alone(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    path = tmp_path / "x.nc"
    child, reading = living(path, logs)
    live = folders(logs)
    runs = pytest.warns(PncVolWarning, match="a running job writes to this file through a log")
    with runs, pytest.raises(OSError, match="unable to lock file"):
        pnc_vol.File(path, "r+", burst_buf_overwrite=True)
    # Who goes without the lock is told.
    with runs, pnc_vol.File(path, "r+", burst_buf_overwrite=True, locking=False) as f:
        assert list(f) == []
    assert folders(logs) == live
    in_use = "a running job, or another recovery, has its log in"
    for locking in (True, False):
        with pytest.raises(LogRefusedError, match=in_use):
            pnc_vol.File(path, "r+", recover=True, burst_buf_overwrite=True, locking=locking)
    assert folders(logs) == live
    with pytest.raises(LogRefusedError, match=in_use):
        pnc_vol.replay(path)
    with pytest.raises(LogRefusedError, match="is still running"):
        pnc_vol.replay(path, live)
    kill_after(child, reading, 0)
    assert pnc_vol.replay(path, live).replayed == 1


def test_a_recovery_that_another_one_overtakes_is_refused(
    tmp_path: pathlib.Path, logs: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A writer beside the other recovery would have its values covered by the older posts.
    path = tmp_path / "x.nc"
    child, reading = living(path, logs)
    try:
        # the other one locks the log just after this one found it free
        monkeypatch.setattr("pnc_vol.append_log.private_folders._is_alive", lambda *_: False)
        with pytest.raises(LogRefusedError, match="the job that writes this log, or another replay of it"):
            pnc_vol.File(path, "r+", recover=True, locking=False)
    finally:
        kill_after(child, reading, 0)
    monkeypatch.undo()
    with pnc_vol.File(path, "r+", recover=True) as f:
        assert f["x"][0] == 5.0


@pytest.mark.parametrize(("way", "layout"), [("open", "canonical"), ("log", "blob"), ("replay", "canonical")])
def test_two_recoveries_at_a_time(tmp_path: pathlib.Path, logs: pathlib.Path, way: str, layout: str) -> None:
    """Whenever another process replays and removes the log, this one finds it done, or is refused by name."""
    path, done = tmp_path / "x.nc", list[int]()

    class Beside(HookedSystem):
        """Before the n-th call on a folder of logs, another process replays what is there."""

        def __init__(self, at: int) -> None:
            super().__init__()
            self.left = at

        def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if args and "pncbb-" in str(args[0]):
                self.left -= 1
                if not self.left:
                    ended(lambda: quiet(lambda: pnc_vol.File(path, "r+", recover=True).close()))
            return super().call(name, args, kwargs)

    def quiet(work: Callable[[], object]) -> None:
        with warnings.catch_warnings(), contextlib.suppress(LogRefusedError, LockedError):
            warnings.simplefilter("ignore")
            work()

    def work(f: Any) -> None:
        f.create_dataset("x", (4,), "i4")
        f.flush()
        f["x"][1] = 7

    for at in range(1, 200):
        path.unlink(missing_ok=True)
        options = {"burst_buf": True, "burst_buf_dirname": str(logs), "layout": layout}
        killed_job(path, work, "w", **options)
        system = Beside(at)
        if way == "replay":
            quiet(lambda system=system: pnc_vol.replay(path, system=system))
        else:
            more = {} if way == "open" else options
            quiet(
                lambda system=system, more=more: pnc_vol.File(path, "r+", recover=True, system=system, **more).close()
            )
        done.append(system.left)
        quiet(lambda: pnc_vol.replay(path))
        with pnc_vol.File(path) as f:
            assert f["x"][:].tolist() == [0, 7, 0, 0]
        assert not folders(logs)
        if system.left > 0:
            break
    assert len(done) > 10


def test_a_child_of_the_job_does_not_keep_its_log_alive(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    path = tmp_path / "x.nc"

    def work(told: int) -> None:
        f = open_logged(path, logs)
        f["x"] = [5.0]
        grandchild = os.fork()
        if not grandchild:
            with pytest.raises(ForkedFileError):
                f["x"][0] = 6.0
            os.write(told, b"%8d." % os.getpid())
        signal.pause()

    child, reading = forked(work)
    said = os.read(reading, 9)
    os.kill(child, 9)
    os.waitpid(child, 0)
    try:
        with pnc_vol.File(path, "r+", recover=True) as f:
            assert f["x"][0] == 5.0
    finally:
        os.kill(int(said[:-1]), 9)
        os.close(reading)


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps"), reason="there is no /proc to look into processes with")
def test_a_killed_job_is_dead_while_somebody_looks_at_its_memory(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    def look(pid: int) -> None:
        with contextlib.suppress(OSError):
            while True:
                pathlib.Path(f"/proc/{pid}/smaps").read_bytes()

    for i in range(30):
        path = tmp_path / f"{i}.nc"
        child, reading = living(path, logs)
        watcher, watched = forked(lambda _, pid=child: look(pid))  # type: ignore[misc]
        time.sleep(0.002)
        kill_after(child, reading, 0)
        try:
            with pnc_vol.File(path, "r+", recover=True, burst_buf_dirname=str(logs)) as f:
                assert f["x"][0] == 5
        finally:
            kill_after(watcher, watched, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
def test_folders_of_other_users_do_not_count(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    job(tmp_path / "x.nc", logs)
    (folder,) = folders(logs)
    os.chown(folder, 12345, 12345)
    told = pytest.warns(PncVolWarning, match="are not read: .*belongs to user 12345")
    with told, open_logged(tmp_path / "x.nc", logs, "r+", recover=True) as f:
        assert list(f) == []
    os.chown(folder, 0, 0)
    os.chmod(folder, 0o777)
    told = pytest.warns(PncVolWarning, match="are not read: .*others may write to it")
    with told, open_logged(tmp_path / "x.nc", logs, "r+", recover=True) as f:
        assert list(f) == []
    assert folder in folders(logs)


def test_what_is_no_log_of_this_file_is_not_looked_into(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    path = tmp_path / "x.nc"
    pnc_vol.File(path, "w").close()
    job(tmp_path / "other.nc", logs)
    (elsewhere,) = folders(logs)
    for file in elsewhere.iterdir():
        file.unlink()
    note_of(path).write_text(f"/etc\n{elsewhere}\n{tmp_path}\n\xff\n")
    (elsewhere / "x_0_0.meta").write_bytes(b"PnetCDF1")
    with open_logged(path, logs, "r+", recover=True):
        pass
    assert elsewhere.exists()


def test_logs_that_are_kept_hold_nothing(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    path = tmp_path / "x.nc"
    with open_logged(path, logs, hints={"nc_burst_buf_del_on_close": "disable"}) as f:
        f["x"] = np.arange(1000.0)
        f.flush()
        f["x"][3] = -1
    (folder,) = folders(logs)
    content = path.read_bytes()
    report = pnc_vol.replay(path, folder)
    assert (report.logs, report.replayed, report.whole) == (1, 0, True)
    assert path.read_bytes() == content
    # Nobody is told of them, and nobody removes them.
    open_logged(path, logs, "r+", recover=True).close()
    assert folders(logs) == [folder]
    assert not note_of(path).exists()


@pytest.mark.parametrize(
    "look", [lambda path, logs: open_logged(path, logs, "r+").close(), lambda path, _: pnc_vol.replay(path)]
)
def test_a_job_that_ended_after_its_last_flush_leaves_nothing(
    look: Any, tmp_path: pathlib.Path, logs: pathlib.Path
) -> None:
    path = tmp_path / "x.nc"

    def work(f: Any) -> None:
        f["x"] = [1.0]
        f.flush()

    logged_job(path, logs, work)
    assert len(folders(logs)) == 1
    pnc_vol.File(path).close()
    look(path, logs)
    assert not folders(logs)
    assert not note_of(path).exists()


def test_a_file_that_never_took_its_name_is_not_mixed_with_the_old_one(
    tmp_path: pathlib.Path, logs: pathlib.Path
) -> None:
    path = tmp_path / "x.nc"
    with pnc_vol.File(path, "w") as f:
        f["x"] = np.full(4, -7.0)
    old = path.read_bytes()
    job(path, logs, publish="close")
    with pytest.warns(PncVolWarning, match="not replayed.*pnctmp"):
        pnc_vol.File(path, "r+", recover=True).close()
    assert path.read_bytes() == old
    (work,) = tmp_path.glob(".*.pnctmp")
    report = pnc_vol.replay(work, folders(logs))
    assert report.replayed == 2
    with pnc_vol.File(work) as f:
        assert f["x"][:].tolist() == [1.0] * 4


def test_a_log_of_a_missing_file_is_refused(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    job(tmp_path / "x.nc", logs)
    (tmp_path / "x.nc").unlink()
    with pytest.raises(LogRefusedError, match="no such file"):
        pnc_vol.replay(tmp_path / "x.nc", folders(logs))
    with pytest.warns(PncVolWarning, match="not replayed"):
        pnc_vol.File(tmp_path / "x.nc", "a", recover=True).close()
    assert len(folders(logs)) == 1


def test_importing_the_package_loads_no_replay() -> None:
    code = "import sys, pnc_vol; assert 'pnc_vol.recovery' not in sys.modules; pnc_vol.replay"
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", code]) == 0


@pytest.mark.parametrize("replays", [0, 1])
def test_names_that_changed_hands_in_a_header_that_is_there_already(
    replays: int, tmp_path: pathlib.Path, logs: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job, or a replay of its log, stops between the header and the end of the log."""
    path, again = tmp_path / "x.nc", {"recover": True, "burst_buf_dirname": str(logs)}

    def work(f: Any) -> None:
        f["a"], f["b"] = np.zeros(3), np.zeros(3)
        f.flush()
        f["a"][0], f["b"][0] = 1.0, 2.0
        f["new"] = np.arange(4)
        for old, new in (("a", "c"), ("b", "a"), ("c", "b"), ("new", "newer")):
            f.move(old, new)
        f["new"] = np.array([True, False])
        f["a"][1], f["b"][1] = 20.0, 10.0
        if not replays:
            monkeypatch.setattr("pnc_vol.burst.store.LogStore.after_flush", lambda self: os._exit(0))
            f.flush()

    def replay() -> None:
        monkeypatch.setattr("pnc_vol.burst.recovery.sources.LogSource.mark_flushed", lambda self: os._exit(0))
        pnc_vol.File(path, "r+", **again)
        raise AssertionError("the replay came to its end")

    logged_job(path, logs, work)
    for _ in range(replays):
        ended(replay)
    with pnc_vol.File(path, "r+", **again) as f:
        assert {name: f[name][...].tolist() for name in f} == {
            "a": [2.0, 20.0, 0.0],
            "b": [1.0, 10.0, 0.0],
            "new": [True, False],
            "newer": [0, 1, 2, 3],
        }


class _Removing(HookedSystem):
    """The logs in a folder are removed before the n-th call that looks at them."""

    def __init__(self, folder: str, nth: int) -> None:
        super().__init__()
        self.folder, self.left = folder, nth

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args and isinstance(args[0], str) and args[0].startswith(self.folder):
            self.left -= 1
            if self.left == 0:
                shutil.rmtree(self.folder)
        return super().call(name, args, kwargs)


def test_logs_that_are_removed_while_a_reader_looks_at_them(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    """A job that closes a file removes its logs, and a reader that opens it at that moment is not disturbed."""
    path, nth, done = tmp_path / "x.nc", 0, False
    with pnc_vol.File(path, "w") as f:
        f["flushed"] = [1.0]
    while not done:
        nth += 1
        job(path, logs, "a")
        (folder,) = map(str, folders(logs))
        system = _Removing(folder, nth)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PncVolWarning)
            with pnc_vol.File(path, "r", burst_buf_dirname=str(logs), system=system) as f:
                assert f["flushed"][:].tolist() == [1.0]
        done = system.left > 0
        shutil.rmtree(folder, ignore_errors=True)
    assert nth > 3


@pytest.mark.parametrize("mode", ["r", "r+", "a"])
def test_a_log_on_another_node_is_named(mode: str, tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    """The note beside the file names a folder that is not on this machine."""
    path, elsewhere = tmp_path / "x.nc", tmp_path / "elsewhere"
    with pnc_vol.File(path, "w") as f:
        f.create_dataset("x", (4,), "f8")
    job(path, logs, "a", 5.0)
    (folder,) = folders(logs)
    logs.rename(elsewhere)
    with pytest.warns(PncVolWarning, match=f"{folder}: it is not on this machine"):
        pnc_vol.File(path, mode).close()
    report = pnc_vol.replay(path)
    assert report.logs == 0
    assert str(folder) in report.closed[0]
    assert pnc_vol.replay(path, [elsewhere / folder.name]).replayed == 2
    assert not note_of(path).exists()
    with pnc_vol.File(path) as f:
        assert f["x"][:].tolist() == [5.0] * 4


def test_a_log_that_a_partial_replay_left_out_stays_named(tmp_path: pathlib.Path) -> None:
    """The job's folders on several nodes have one name."""
    path, here, there = tmp_path / "x.nc", tmp_path / "here", tmp_path / "there"
    here.mkdir()
    with pnc_vol.File(path, "w") as f:
        f.create_dataset("x", (4,), "f8")
    job(path, here, "a")
    (folder,) = folders(here)
    with note_of(path).open("a") as note:
        note.write(f"{there / folder.name}\n")
    assert pnc_vol.replay(path, partial=True).replayed == 2
    assert note_of(path).read_text().split() == [str(there / folder.name)]


def test_a_log_on_another_node_is_given_up(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    path = tmp_path / "x.nc"
    pnc_vol.File(path, "w").close()
    job(path, logs, "a")
    shutil.rmtree(logs)
    pnc_vol.File(path, "r+", burst_buf_overwrite=True).close()
    assert not note_of(path).exists()


def test_a_closed_file_holds_no_descriptor(tmp_path: pathlib.Path) -> None:
    """Whoever keeps its object: windows of the log are given back, also where nothing was posted."""
    before = set(os.listdir("/proc/self/fd"))
    files = [pnc_vol.File(tmp_path / f"{n}.nc", "w", burst_buf=True) for n in range(3)]
    for f in files:
        f.create_dataset("x", (0,), "i4")
        f.close()
    assert set(os.listdir("/proc/self/fd")) == before


class Met(HookedSystem):
    """Lets another process do something after a call about names or locks, from that on that makes a log's folder."""

    def __init__(self, at: int, meet: Callable[[], object]) -> None:
        super().__init__()
        self.at, self.meet, self.count = at, meet, 0

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        found = super().call(name, args, kwargs)
        begun = self.count or (name == "mkdir" and "pncbb-" in os.path.basename(args[0]))
        if begun and name in ("mkdir", "open", "flock", "rename", "unlink"):
            self.count += 1
            if self.count == self.at:
                self.meet()
        return found


def test_an_opening_takes_no_log_that_is_being_made_for_one_of_a_killed_job(tmp_path: pathlib.Path) -> None:
    """Another process opens the file, in vain, at any moment of the opening; then the job posts, and is killed."""
    lost, at, reached = [], 0, True
    while reached:
        at += 1
        path, logs = tmp_path / f"{at}.nc", tmp_path / str(at)
        logs.mkdir()
        pnc_vol.File(path, "w").close()
        asked, answers = os.pipe(), os.pipe()

        def other(
            path: pathlib.Path = path, logs: pathlib.Path = logs, asks: int = asked[0], answer: int = answers[1]
        ) -> None:
            os.read(asks, 1)
            warnings.simplefilter("ignore", PncVolWarning)
            with contextlib.suppress(LockedError), open_logged(path, logs, "r+"):
                pass
            os.write(answer, b".")

        child, told = forked(lambda _: other())

        def meet(ask: int = asked[1], answered: int = answers[0]) -> None:
            os.write(ask, b"?")
            os.read(answered, 1)

        system = Met(at, meet)

        def work(f: Any, system: Met = system) -> None:
            reached = system.count >= system.at
            system.at = 0
            f["x"] = np.arange(4)
            os._exit(0 if reached else 3)

        job, status = os.fork(), 0
        if not job:
            warnings.simplefilter("ignore", PncVolWarning)
            try:
                work(open_logged(path, logs, "r+", system=system))
            finally:
                os._exit(1)
        status = os.waitstatus_to_exitcode(os.waitpid(job, 0)[1])
        if status == 3:
            meet()
        os.waitpid(child, 0)
        for fd in (*asked, *answers, told):
            os.close(fd)
        reached = status != 3
        with contextlib.suppress(FileNotFoundError):
            pnc_vol.replay(path)
        with pnc_vol.File(path) as f:
            if status not in (0, 3) or "x" not in f or f["x"][:].tolist() != [0, 1, 2, 3]:
                lost.append(at)
    assert at > 10
    assert not lost, f"of {at} moments"
