"""The verbs that take addresses: what they print is what they print of the same file here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pnc_vol

pytest.importorskip("fsspec")


def test_verbs_take_addresses(verb: Any, server: Any, tmp_path: Path) -> None:
    with pnc_vol.File(tmp_path / "a.nc", "w") as f:
        f["x"] = np.arange(12.0).reshape(3, 4)
        f["g/text"] = ["one", "three"]
        f.create_dataset("r", data=np.arange(6, dtype="i2").reshape(3, 2), maxshape=(None, 2))
        f["x"].attrs["units"] = "m"
    (tmp_path / "broken.nc").write_bytes((tmp_path / "a.nc").read_bytes()[:60])
    for args in (["ls", "-r", "-v"], ["dump"], ["dump", "-h"], ["check", "--for", "scipy"]):
        here = verb(*args, tmp_path / "a.nc")
        there = verb(*args, f"{server.url}/a.nc")
        assert there.out.replace(server.url, str(tmp_path)) == here.out
        assert there.code == here.code
    verb("convert", "-q", f"{server.url}/a.nc", tmp_path / "a.h5", code=0)
    assert verb("check", f"{server.url}/broken.nc").code == 1
    for args in (["ls"], ["dump"], ["check"]):
        gone = verb(*args, f"{server.url}/gone.nc")
        assert "no such file at this address" in gone.err
        assert gone.code != 0
        assert "does not know such addresses" in verb(*args, "nosuch://host/a.nc").err
    refused = verb("convert", tmp_path / "a.h5", f"{server.url}/b.nc")
    assert "write the file here" in refused.err
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5") as f:
        assert f["x"][2].tolist() == [8, 9, 10, 11]
        assert f["r"][:, 1].tolist() == [1, 3, 5]
