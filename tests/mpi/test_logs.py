"""Logs of ranks: what a kill leaves of them at the worst moments, and what any number of ranks makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import pnc_vol
from pnc_vol.testing.mpi import missing, run_mpi

PROGRAM = Path(__file__).with_name("ranks_logs.py")

pytestmark = [pytest.mark.skipif(bool(missing()), reason=missing()), pytest.mark.timeout(600)]


@pytest.mark.parametrize("cuts", [0, 1, 2, 3])
def test_a_kill_while_a_log_is_begun_anew(cuts: int, tmp_path: Path) -> None:
    """One rank has cut some of the files of its log, and another one has posted more by then."""
    job = run_mpi(2, PROGRAM, "reset", tmp_path, cuts, check=False)
    assert (tmp_path / "posted").exists(), job.stderr
    assert cuts == 3 or "cutting" in job.stdout
    report = pnc_vol.replay(tmp_path / "x.nc")
    assert (report.replayed, report.damaged, report.torn) == (1, False, 0)
    with pnc_vol.File(tmp_path / "x.nc") as f:
        assert f["x"][:].tolist() == [0, 77, 0, 0, 3, 3, 0, 0]


@pytest.mark.parametrize("nprocs", [2, 3])
def test_strings_that_grow_are_replayed_on_ranks(nprocs: int, tmp_path: Path) -> None:
    run_mpi(2, PROGRAM, "strings", tmp_path, check=False)
    done = run_mpi(nprocs, PROGRAM, "replay", tmp_path)
    assert done.stdout.split() == ["2", "8"]
    with pnc_vol.File(tmp_path / "x.nc") as f:
        for name in ("s", "t"):
            assert [len(text) for text in f[name].asstr()[:]] == [5, 8, 0, 0, 12, 15, 0, 0]


def test_a_string_that_grows_on_one_rank(tmp_path: Path) -> None:
    """The width that counts for the comparison of ranks is the one that they agreed on, not 1."""
    run_mpi(2, PROGRAM, "grown", tmp_path)


def test_posts_whose_rows_fill_the_memory_before_the_file_can_take_them(tmp_path: Path) -> None:
    """An AssertionError came of it: the bytes were in the log, and nothing took the rows out of memory."""
    run_mpi(2, PROGRAM, "rows", tmp_path)
    with pnc_vol.File(tmp_path / "x.nc") as f:
        assert f["x"][:6].tolist() == [-1, -1, 1, 0, 2, 0]


def test_the_logs_of_a_replaced_file_are_refused_on_ranks(tmp_path: Path) -> None:
    run_mpi(2, PROGRAM, "strings", tmp_path, check=False)
    folders = list(tmp_path.glob("pncbb-*"))
    run_mpi(3, PROGRAM, "again", tmp_path)
    run_mpi(2, PROGRAM, "again", tmp_path, "logged")
    assert list(tmp_path.glob("pncbb-*")) == folders


def command(*args: object) -> tuple[int, str, str]:
    """``pnc-vol replay`` on three ranks."""
    done = run_mpi(3, "pnc_vol.cli", "replay", *args, check=False)
    return done.returncode, done.stdout, done.stderr


def test_the_command_on_ranks_is_one_replay(tmp_path: Path) -> None:
    run_mpi(2, PROGRAM, "strings", tmp_path, check=False)
    path = tmp_path / "x.nc"
    code, out, _ = command(path)
    assert (code, out.splitlines()[0]) == (0, f"{path}: 8 requests of 2 logs replayed")
    assert out.count("requests") == 1
    code, out, _ = command(path)
    assert (code, out) == (0, f"{path}: no job left a log of this file\n")
    code, out, err = command(tmp_path / "missing.nc", path)
    assert (code, out) == (2, "")
    assert err.count("pnc-vol: ") == 1
