"""A set of subfiles whose job was killed is not replayed without what its logs and caches hold."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from kills import forked, kill_after

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
