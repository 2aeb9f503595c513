"""Pickles of handles: what is read elsewhere is the same, and what cannot travel says why."""

from __future__ import annotations

import copy
import io
import os
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from other_process import fresh

import pnc_vol


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "x.nc"
    with pnc_vol.File(made, "w") as f:
        f["a/b"] = np.arange(12.0).reshape(3, 4)
        f["a"].attrs["unit"] = "m"
        f["s"] = ["one", "three"]
        f["type"] = np.dtype("i4")
        f["point"] = np.array([(1, 2.5)], [("x", "i4"), ("y", "f8")])
    return made


def travelled(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


def test_every_kind_of_object_travels(path: Path) -> None:
    with pnc_vol.File(path) as f:
        made = {name: travelled(f[name]) for name in ("a", "a/b", "s", "type", "point")}
        file, attrs, view = travelled(f), travelled(f["a"].attrs), travelled(f["s"].asstr())
        assert made["a/b"] == f["a/b"], "in the same process it is a handle on the same session"
    assert type(file) is pnc_vol.File
    assert (file.filename, file.mode) == (str(path), "r")
    assert made["a/b"][1, 1:].tolist() == [5, 6, 7]
    assert made["a/b"].name == "/a/b"
    assert list(made["a"]) == ["b"]
    assert attrs["unit"] == "m"
    assert view[1] == "three"
    assert made["type"].dtype == "i4"
    assert made["point"]["y"].tolist() == [2.5]
    assert copy.deepcopy(file)["s"][0] == b"one"
    file.close()
    assert made["a/b"][0, 0] == 0, "each of them is an opening of its own"


def test_a_virtual_dataset_travels(path: Path) -> None:
    with pnc_vol.File(path, "r+") as f:
        layout = pnc_vol.VirtualLayout((4,), "f8")
        layout[:] = pnc_vol.VirtualSource(f["a/b"])[1]
        f.create_virtual_dataset("v", layout)
    with pnc_vol.File(path) as f:
        made = travelled(f["v"])
        assert (made[:].tolist(), made.is_virtual) == ([4, 5, 6, 7], True)


def test_subclasses_stay_what_they_are(path: Path) -> None:
    with pnc_vol.File(path) as f:
        group = travelled(MyGroup(f["a"].id))
        root = travelled(pnc_vol.Group(f.id))
    assert type(group) is MyGroup
    assert group.twice() == 2
    assert type(root) is pnc_vol.Group
    assert root["a/b"].shape == (3, 4)


class MyGroup(pnc_vol.Group):
    def twice(self) -> int:
        return 2 * len(self)


def tell_what_came(sent: str) -> None:
    os.chdir("/")
    x = pickle.loads(bytes.fromhex(sent))
    print(x[2].tolist(), x.file.driver, x.file.mode, x.file.hints["nc_var_align_size"])


def test_another_process_reads_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has another working directory, and gets the options."""
    monkeypatch.chdir(path.parent)
    with pnc_vol.File("x.nc", driver="trace | posix", strict=True, hints={"nc_var_align_size": "8"}) as f:
        sent = pickle.dumps(f["a/b"])
    told = fresh(tell_what_came, sent.hex())
    assert told.stdout.strip() == "[8.0, 9.0, 10.0, 11.0] trace | posix r 8", told.stderr


def test_what_cannot_travel_says_why(path: Path) -> None:
    with pnc_vol.File(path, "r+") as f:
        for thing in (f, f["a"], f["a/b"]):
            with pytest.raises(TypeError, match=r"cannot be pickled: its file is open for writing.*mode 'r'"):
                pickle.dumps(thing)
            with pytest.raises(TypeError, match="pickled"):
                copy.deepcopy(thing)
        with pnc_vol.File(path) as reader, warnings.catch_warnings():
            assert travelled(reader["s"])[0] == b"one", "the handle was opened for reading"
    with pnc_vol.File(io.BytesIO(path.read_bytes())) as f, pytest.raises(TypeError, match=r"Python object.*path or"):
        pickle.dumps(f["s"])
    with pnc_vol.File.in_memory(path.read_bytes()) as f, pytest.raises(TypeError, match="for writing"):
        pickle.dumps(f)
    f = pnc_vol.File(path)
    sent, x = pickle.dumps(f["s"]), f["s"]
    f.close()
    for gone in (f, x):
        with pytest.raises(ValueError, match="closed"):
            pickle.dumps(gone)
    with pnc_vol.File(path, "r+") as f:
        del f["s"]
    with pytest.raises(KeyError, match="s"):
        pickle.loads(sent)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"x\.nc"):
        pickle.loads(sent)
