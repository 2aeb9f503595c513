"""``pnc-vol link``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py

import pnc_vol


def test_the_verb_says_what_it_did_and_what_is_stale(tmp_path: Path, verb: Any) -> None:
    source, target = tmp_path / "a.nc", tmp_path / "a.h5"
    with pnc_vol.File(source, "w") as f:
        f["x"] = [1]
    assert verb("link", source, target, code=0).out == f"{target}: 1 dataset, 1 range of {source}\n"
    assert "up to date" in verb("link", source, target, code=0).out
    assert json.loads(h5py.File(target, "r").attrs["pnc_vol_link"])["source"] == str(source)
    assert "up to date" in verb("link", "--check", target, code=0).out
    with pnc_vol.File(source, "r+") as f:
        f["y"] = [1]
    assert "stale" in verb("link", "--check", target, code=1).out
    assert "EXTFILE" in verb("link", "--relative", source, target, code=0).out
    assert "no link file" in verb("link", "--check", source, code=2).err
    assert "name the HDF5 file" in verb("link", source, code=2).err
