"""A file whose name leads elsewhere before it is closed: what is posted goes to the file that was opened."""

from __future__ import annotations

import errno
import os
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import h5py
import numpy as np
import pytest

import pnc_vol

SMALL, LARGE = np.arange(5), np.arange(7000)
"""An attribute that the header has room for, and one that needs a new layout."""


def begun(module: Any, path: pathlib.Path) -> Any:
    f = module.File(path, "w")
    f.create_dataset("r", (2, 3), "f8", maxshape=(None, 3))[:] = 1
    f["x"] = np.arange(10)
    f.flush()
    return f


def ended(f: Any, attribute: Any) -> None:
    f["x"][3] = 33
    f["r"].resize(4, axis=0)
    f["r"][3] = 3
    f.attrs["a"] = attribute
    f.flush()
    f.close()


def whole(module: Any, path: pathlib.Path, attribute: Any) -> bool:
    with module.File(path, "r") as f:
        assert f["x"][:].tolist() == [0, 1, 2, 33, 4, 5, 6, 7, 8, 9]
        assert f["r"][:].tolist() == [[1] * 3] * 2 + [[0] * 3, [3] * 3]
        assert f.attrs["a"].tolist() == attribute.tolist()
    return True


@pytest.mark.parametrize("module", [h5py, pnc_vol])
@pytest.mark.parametrize("attribute", [SMALL, LARGE], ids=["in place", "new layout"])
@pytest.mark.parametrize("taken", [False, True])
def test_a_renamed_file_is_finished(tmp_path: pathlib.Path, module: Any, attribute: Any, taken: bool) -> None:
    if module is pnc_vol and not os.path.isdir("/proc/self/fd"):
        pytest.skip("this system does not tell the name of an open file")
    path, other = tmp_path / "x", tmp_path / "renamed"
    f = begun(module, path)
    path.rename(other)
    if taken:
        path.write_bytes(b"of somebody else")
    ended(f, attribute)
    assert whole(module, other, attribute)
    assert sorted(os.listdir(tmp_path)) == (["renamed", "x"] if taken else ["renamed"])
    assert not taken or path.read_bytes() == b"of somebody else"


@pytest.mark.parametrize("attribute", [SMALL, LARGE], ids=["in place", "new layout"])
def test_a_renamed_folder(tmp_path: pathlib.Path, attribute: Any) -> None:
    (tmp_path / "old").mkdir()
    f = begun(pnc_vol, tmp_path / "old" / "x")
    (tmp_path / "old").rename(tmp_path / "new")
    f.flush(durable=True)
    ended(f, attribute)
    assert whole(pnc_vol, tmp_path / "new" / "x", attribute)
    assert os.listdir(tmp_path / "new") == ["x"]


REMOVED: list[Callable[[pathlib.Path], object]] = [lambda path: path.unlink(), lambda path: shutil.rmtree(path.parent)]


@pytest.mark.parametrize("module", [h5py, pnc_vol])
@pytest.mark.parametrize("remove", REMOVED, ids=["file", "folder"])
def test_a_removed_file_is_finished_as_with_h5py(
    tmp_path: pathlib.Path, module: Any, remove: Callable[[pathlib.Path], object]
) -> None:
    path = tmp_path / "folder" / "x"
    path.parent.mkdir()
    f = begun(module, path)
    remove(path)
    f["x"][0] = 5
    f.attrs["a"] = SMALL
    f.flush()
    assert f["x"][0] == 5
    ended(f, SMALL)
    assert not path.exists()


def test_a_removed_file_takes_its_name_again_for_a_new_layout(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x"
    f = begun(pnc_vol, path)
    path.unlink()
    ended(f, LARGE)
    assert whole(pnc_vol, path, LARGE)
    assert os.listdir(tmp_path) == ["x"]


def test_a_stranger_under_the_name_is_not_replaced(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x"
    f = begun(pnc_vol, path)
    path.unlink()
    path.write_bytes(b"of somebody else")
    with pytest.raises(FileExistsError, match="another file has taken this name") as caught:
        ended(f, LARGE)
    with pytest.raises(FileExistsError):
        f.close()
    assert not f
    assert path.read_bytes() == b"of somebody else"
    (kept,) = {tmp_path / name for name in os.listdir(tmp_path)} - {path}
    assert str(kept) in str(caught.value)
    kept.rename(tmp_path / "mine")
    assert whole(pnc_vol, tmp_path / "mine", LARGE)


def test_a_name_that_is_free_again_is_taken(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x"
    f = begun(pnc_vol, path)
    path.unlink()
    path.write_bytes(b"of somebody else")
    f.attrs["a"] = LARGE
    with pytest.raises(FileExistsError):
        f.flush()
    path.rename(tmp_path / "theirs")
    ended(f, LARGE)
    assert whole(pnc_vol, path, LARGE)


def test_a_removed_folder_and_a_new_layout(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "folder" / "x"
    path.parent.mkdir()
    f = begun(pnc_vol, path)
    shutil.rmtree(path.parent)
    f.attrs["a"] = LARGE
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        f.flush()
    path.parent.mkdir()
    ended(f, LARGE)
    assert whole(pnc_vol, path, LARGE)


@pytest.mark.parametrize("module", [h5py, pnc_vol])
@pytest.mark.parametrize("mode", ["r+", "a"])
def test_an_empty_file_is_no_file_yet(tmp_path: pathlib.Path, module: Any, mode: str) -> None:
    path = tmp_path / "x"
    path.touch(0o640)
    with module.File(path, mode) as f:
        assert (f.mode, list(f)) == ("r+", [])
        f["x"] = [1, 2]
    with module.File(path, "r") as f:
        assert f["x"][:].tolist() == [1, 2]
    assert path.stat().st_mode & 0o777 == 0o640
    path.write_bytes(b"")
    with pytest.raises(OSError, match=r"(?i)signature not found|empty") as caught:
        module.File(path, "r")
    assert caught.value.errno in (None, 0, errno.EINVAL)
