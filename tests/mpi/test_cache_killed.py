"""Jobs with caches of which all ranks are killed at once; a replay brings what every flush had promised.

That one rank is killed at any call is an event of the engine (`killed`, with the options of caches).
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import threading
import time
import warnings
from contextlib import suppress
from pathlib import Path

import pytest

import pnc_vol
from pnc_vol.errors import LogRefusedError, PncVolWarning
from pnc_vol.testing.mpi import missing, run_mpi

PROGRAM = Path(__file__).with_name("ranks_cache_killed.py")
RANKS = 3

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


SHARED = {"PYTHONPATH": str(Path(__file__).parents[1] / "shared")}


def said(path: Path, rank: int) -> list[int]:
    with suppress(FileNotFoundError, ValueError):
        return [int(line) for line in Path(f"{path}.said.{rank}").read_text().splitlines()]
    return []


def killed(path: Path, nvm: Path | str, options: str, flushes: int) -> int:
    """Kill all ranks after some flushes; the last flush that returned on some rank."""
    job = threading.Thread(
        target=run_mpi, args=(RANKS, PROGRAM, path, nvm, options), kwargs={"check": False, "env": SHARED}
    )
    job.start()
    end = time.monotonic() + 120
    while min(len(said(path, rank)) for rank in range(RANKS)) < flushes + 1:
        assert time.monotonic() < end
        assert job.is_alive()
        time.sleep(0.002)
    time.sleep(random.random() * 0.02)
    for rank in random.sample(range(RANKS), RANKS):
        with suppress(ProcessLookupError):
            os.kill(said(path, rank)[0], signal.SIGKILL)
    job.join()
    return max(said(path, rank)[-1] for rank in range(RANKS))


def check(path: Path, promised: int | None) -> None:
    """That a file is whole, and has what was promised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PncVolWarning)
        with pnc_vol.File(path) as f:
            count = f["r"].shape[0] if "r" in f else 0
            for k in range(count):
                for rank in range(RANKS):
                    assert (f["r"][k, rank] == k + rank).all(), (k, rank)
            if promised is not None:
                assert count in (promised + 1, promised + 2)
                assert set(f["g"][...].ravel().tolist()) <= {promised, promised + 1}
                assert f.attrs["k"] in (promised, promised + 1)


@pytest.mark.parametrize("options", ["", ", flush=flush_onclose", ", threads=2, mode=coherent"])
@pytest.mark.parametrize("flushes", [2, 11])
def test_killed(tmp_path: Path, options: str, flushes: int) -> None:
    path, nvm = tmp_path / "x.nc", tmp_path / "nvm"
    nvm.mkdir()
    promised = killed(path, nvm, options, flushes)
    check(path, None)
    shutil.copytree(nvm, tmp_path / "kept")
    report = pnc_vol.replay(path)
    assert report.caches == RANKS
    check(path, promised)
    assert not list(nvm.iterdir())


def test_directories_of_their_own_are_found(tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    for rank in range(RANKS):
        (tmp_path / f"nvm{rank}").mkdir()
    promised = killed(path, str(tmp_path / "nvm{rank}"), ", flush=flush_onclose", 4)
    gone = (tmp_path / "nvm1").rename(tmp_path / "away")
    told = rf"ranks 1 are not there \(they are in {re.escape(os.uname().nodename)}:{tmp_path}/nvm1/pnccache-.*\)"
    with pytest.raises(LogRefusedError, match=told):
        pnc_vol.replay(path)
    gone.rename(tmp_path / "nvm1")
    assert pnc_vol.replay(path).caches == RANKS
    check(path, promised)
    assert not list(tmp_path.glob("nvm?/*"))
    assert not list(tmp_path.glob(".*")), "no note is left"


def test_a_node_that_is_gone_is_named(tmp_path: Path) -> None:
    path, nvm = tmp_path / "x.nc", tmp_path / "nvm"
    nvm.mkdir()
    killed(path, nvm, ", flush=flush_onclose", 3)
    before = path.read_bytes()
    for gone in nvm.glob("*/1.*"):
        gone.unlink()
    with pytest.raises(LogRefusedError, match="of 3 ranks the caches of ranks 1 are not there"):
        pnc_vol.replay(path)
    assert path.read_bytes() == before
    assert pnc_vol.replay(path, partial=True).caches == RANKS - 1


@pytest.mark.parametrize(
    ("case", "driver"),
    [
        ("all_open", "mpio"),
        ("one_open", "posix"),
        ("one_raises", "mpio"),
        ("one_exits", "posix"),
        ("one_killed", "mpio"),
    ],
)
def test_ranks_that_end_without_a_close(tmp_path: Path, case: str, driver: str) -> None:
    """What was flushed is in the caches, unless all ranks learned that it is in the file; the rest is not promised."""
    path, nvm = tmp_path / "x.nc", tmp_path / "nvm"
    nvm.mkdir()
    env = {"PNC_VOL_HINTS": f"e10_cache_path={nvm};e10_cache_flush_flag=flush_onclose"}
    run_mpi(2, PROGRAM.with_name("ranks_endings.py"), case, driver, path, timeout=60, env=env, check=False)
    end = time.monotonic() + 10
    while True:
        try:
            pnc_vol.replay(path)
            break
        except LogRefusedError as error:
            # The launcher may return before the last rank is gone.
            if "running job" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.05)
    with pnc_vol.File(path) as f:
        assert f["x"][...].tolist() == [1, 2]
    assert not list(nvm.iterdir())


@pytest.mark.parametrize("end", ["killed", "full"])
def test_the_first_subfile_is_never_ahead_of_the_others(tmp_path: Path, end: str) -> None:
    """Its header followed while that of the second one waited: what a kill, or a full disk, left was no set any
    more."""
    (tmp_path / "nvm").mkdir()
    run_mpi(2, PROGRAM.with_name("ranks_held_set.py"), tmp_path / "x.nc", tmp_path / "nvm", end)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PncVolWarning)
        with pnc_vol.File(tmp_path / "x.nc") as f:
            assert end == "full" or f["x"][...].tolist() == [[1] * 3] * 2
    pnc_vol.replay(tmp_path / "x.nc")
    with pnc_vol.File(tmp_path / "x.nc") as f:
        assert f["x"][...].tolist() == [[1] * 3] * 2
        assert end == "full" or f.attrs["a"] == 1
