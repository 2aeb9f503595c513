"""Logs of a file that was killed before it got its name at the close: they are found by its temporary name."""

from __future__ import annotations

import errno
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest
from kills import ended, killed_job

import pnc_vol
from pnc_vol.errors import LogRefusedError, PncVolWarning
from pnc_vol.testing.faults import FaultSystem


def killed(path: str | pathlib.Path, flushed: int, folder: pathlib.Path, **options: Any) -> pathlib.Path:
    """What a job leaves that ends before its close: the file under its temporary name."""

    def work(f: Any) -> None:
        d = f.create_dataset("x", (100,), "i4")
        d[:] = 1
        if flushed:
            f.flush()
            if flushed > 1:
                # a new layout
                f.attrs["long"] = list(range(3000))
                f.flush()
            d[10:20] = 2

    def job() -> None:
        # in a process of its own, so that its folder is not that of the tests
        os.chdir(folder)
        killed_job(path, work, publish="close", burst_buf=True, **options)

    ended(job)
    (work_file,) = folder.glob(".*.pnctmp")
    return work_file


def left(folder: pathlib.Path) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name not in ("nvm", "logs"))


@pytest.mark.parametrize(("flushed", "absolute"), [(0, False), (1, True), (2, False)])
@pytest.mark.parametrize("kind", ["beside", "dirname", "cache", "flush", "each"])
@pytest.mark.parametrize("how", ["replay", "command", "recover", "renamed"])
def test_a_log_is_found_by_the_temporary_name(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, kind: str, flushed: int, absolute: bool, how: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nvm").mkdir()
    (tmp_path / "logs").mkdir()
    options: dict[str, Any] = {
        "beside": {},
        "dirname": {"burst_buf_dirname": str(tmp_path / "logs")},
        "cache": {"hints": {"e10_cache_path": str(tmp_path / "nvm")}},
        "flush": {"burst_buf_sync": "flush"},
        "each": {"burst_buf_sync": "each"},
    }[kind]
    work = killed(tmp_path / "x.nc" if absolute else "x.nc", flushed, tmp_path, **options)
    if how == "renamed":
        work = work.rename(tmp_path / "x.nc")
    if how == "recover":
        with pnc_vol.File(work, "r+", recover=True):
            pass
    elif how == "command":
        command = [sys.executable, "-m", "pnc_vol.cli", "replay", work.name]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert "1 requests of 1 log replayed" in told
    else:
        report = pnc_vol.replay(work)
        assert (report.logs, report.replayed) == (1, 1)
    assert left(tmp_path) == [work.name]
    assert not os.listdir(tmp_path / "logs")
    with pnc_vol.File(work) as f:
        assert f["x"][9:12].tolist() == ([1, 2, 2] if flushed else [1, 1, 1])


def test_who_looks_at_the_temporary_file_is_told(tmp_path: pathlib.Path) -> None:
    work = killed("x.nc", 1, tmp_path)
    with pytest.warns(PncVolWarning, match="left posted data that are not in the file"), pnc_vol.File(work) as f:
        assert f["x"][12] == 1


def test_the_final_name_says_where_the_file_is(tmp_path: pathlib.Path) -> None:
    work = killed("x.nc", 1, tmp_path)
    with pytest.raises(LogRefusedError, match=f"replay it into '{work.name}'.* rename that"):
        pnc_vol.replay(tmp_path / "x.nc")


def test_files_without_names_have_logs_of_their_own(tmp_path: pathlib.Path) -> None:
    """Of two jobs, for the same file and for another one of the folder, each log goes to its own file."""
    first = killed("x.nc", 0, tmp_path)
    aside = first.rename(tmp_path / "aside")
    second = killed("x.nc", 1, tmp_path)
    aside.rename(first)
    assert pnc_vol.replay(second).replayed == 1
    with pnc_vol.File(second) as f:
        assert f["x"][12] == 2
    assert pnc_vol.replay(first).replayed == 1
    with pnc_vol.File(first) as f:
        assert f["x"][12] == 1
    assert left(tmp_path) == sorted([first.name, second.name])


@pytest.mark.parametrize("flushed", [False, True])
def test_a_close_that_fails_says_which_file_a_replay_takes(tmp_path: pathlib.Path, flushed: bool) -> None:
    """It named the file that there is not yet, with which a replay was refused."""
    system = FaultSystem(fail_at=0, errno=errno.EIO, mode="forever")
    f = pnc_vol.File(tmp_path / "x.nc", "w", publish="close", burst_buf=True, system=system)
    x = f.create_dataset("x", (3,), "i4")
    if flushed:
        f.flush()
    x[:] = 4
    system.fail_at = system.count + 1
    with pytest.warns(PncVolWarning, match="is kept in") as caught, pytest.raises(pnc_vol.FlushError):
        f.close()
    text = next(str(one.message) for one in caught if "is not in the file is kept" in str(one.message))
    (log,) = (one for one in tmp_path.iterdir() if one.is_dir())
    if flushed:
        file = pathlib.Path(text.split(": what was posted")[0])
        assert pnc_vol.replay(file, log).replayed == 1
    else:
        assert f"'pnc-vol replay --any-file FILE {log}'" in text
        file = tmp_path / "y.nc"
        pnc_vol.File(file, "w").close()
        pnc_vol.replay(file, log, any_file=True)
    with pnc_vol.File(file) as g:
        assert g["x"][:].tolist() == [4] * 3


def test_a_set_says_what_to_rename(tmp_path: pathlib.Path) -> None:
    work = killed("x.nc", 1, tmp_path, layout="blob")
    with pytest.raises(LogRefusedError, match=r"rename this file to 'x.nc.0000'"):
        pnc_vol.replay(work)
    work.rename(tmp_path / "x.nc.0000")
    with pnc_vol.File(tmp_path / "x.nc", "r+", recover=True) as f:
        assert f["x"][9:12].tolist() == [1, 2, 2]
    assert left(tmp_path) == ["x.nc.0000"]
