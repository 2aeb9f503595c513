"""A set of subfiles whose job was killed is not replayed without what its logs and caches hold."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from kills import forked, kill_after, killed_job
from other_process import killed

import pnc_vol
from pnc_vol.errors import LogRefusedError

HINTS = {
    "log": {"nc_burst_buf": "enable"},
    "cache": {"e10_cache": "enable", "e10_cache_flush_flag": "flush_none"},
}


@pytest.mark.parametrize("place", HINTS)
def test_the_replay_of_a_killed_set_asks_for_its_leftovers_first(tmp_path: Path, place: str) -> None:
    path, out = str(tmp_path / "set.nc"), str(tmp_path / "out.nc")
    (tmp_path / "local").mkdir()
    hints: dict[str, Any] = dict(HINTS[place])
    if place == "cache":
        hints["e10_cache_path"] = str(tmp_path / "local")

    def job(pipe: int) -> None:
        f = pnc_vol.File(path, "w", layout="blob", hints=hints)
        x = f.create_dataset("x", (4,), "i8")
        x[...] = 1
        f.flush()
        x[1] = 5
        if place == "cache":
            f.flush()
        os.write(pipe, b"..")
        os.read(os.pipe()[0], 1)

    kill_after(*forked(job), 1, 0.0)
    with pytest.raises(LogRefusedError, match=r"left data that are not in the subfiles.*pnc-vol replay .*set.nc.0000'"):
        pnc_vol.replay(path, output=out)
    assert not os.path.exists(out)
    pnc_vol.replay(path + ".0000")
    assert pnc_vol.replay(path, output=out).whole
    with pnc_vol.File(out) as f:
        assert f["x"][...].tolist() == [1, 5, 1, 1]


def test_a_recovery_of_a_set_may_be_killed_at_any_call(tmp_path: Path) -> None:
    killed_there, n = True, 0
    while killed_there:
        n += 1
        folder = tmp_path / str(n)
        folder.mkdir()
        path = folder / "set.nc"
        killed_job(path, lambda f: f.create_dataset("x", data=[1, 2, 3]), layout="blob", burst_buf=True)

        def recover(system: Any, path: Path = path) -> None:
            pnc_vol.File(path, "r+", recover=True, system=system).close()

        killed_there = killed(recover, n)
        # what a recovery that was killed has written does not make another file of it
        with pnc_vol.File(path, "r+", recover=True) as f:
            assert f["x"][...].tolist() == [1, 2, 3]
        assert not [name for name in os.listdir(folder) if name.startswith("pncbb")]
    assert n > 10
