"""A log is replayed into the file that it was written for, whatever that is called, and into no other one."""

from __future__ import annotations

import errno
import os
import pathlib
import shutil
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kills import Ending, killed_job
from this_system import needs_attributes

import pnc_vol
from pnc_vol.errors import LogRefusedError, PncVolWarning
from pnc_vol.testing.faults import HookedSystem, TraceSystem


class NoAttributes(HookedSystem):
    """A file system without extended attributes."""

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name in ("getxattr", "setxattr"):
            raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
        return super().call(name, args, kwargs)


@pytest.fixture(params=["attributes", "inodes"])
def system(request: pytest.FixtureRequest) -> Any:
    return (HookedSystem if request.param == "attributes" else NoAttributes)()


def killed(path: pathlib.Path, work: Callable[[Any], object], mode: str = "w", **options: Any) -> None:
    """A job that does some work on a file with a log, and is killed."""
    killed_job(path, work, mode, burst_buf=True, **options)


def first(f: Any) -> None:
    x = f.create_dataset("x", (3,), "i4")
    f.flush()
    x[0] = 5


def folders(path: pathlib.Path) -> list[pathlib.Path]:
    return sorted(path.parent.glob(f"pncbb-{path.name}-*"))


def content(path: pathlib.Path, name: str = "x") -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pnc_vol.File(path) as f:
            return np.asarray(f[name][...]).tolist()


def refused(path: pathlib.Path, system: Any, match: str) -> None:
    """All ways refuse, change nothing, and keep the log; the one that is asked for takes it."""
    before, logs = path.read_bytes(), folders(path)
    assert logs
    with pytest.warns(PncVolWarning, match="left posted data of another file|are not replayed"):
        pnc_vol.File(path, "r+", recover=True, system=system).close()
    for given in (None, logs):
        with pytest.raises(LogRefusedError, match=match) as caught:
            pnc_vol.replay(path, given, system=system)
        assert "--any-file" in str(caught.value)
    assert path.read_bytes() == before
    assert folders(path) == logs


def test_what_was_posted_to_a_replaced_file_stays_out_of_the_new_one(tmp_path: pathlib.Path, system: Any) -> None:
    path = tmp_path / "x.nc"
    killed(path, first, system=system)
    for values in ([100, 200, 300], [4, 5, 6], [1, 2, 3]):
        with pytest.warns(PncVolWarning, match="left posted data of the file that is replaced now") as told:
            f = pnc_vol.File(path, "w", system=system)
        assert len(told) == 1
        with f:
            # The same definitions in the same steps: the header, and maybe the inode, is that of the former file.
            x = f.create_dataset("x", (3,), "i4")
            f.flush()
            x[:] = values
        refused(path, system, "belongs to another file")
        assert content(path) == values
    assert pnc_vol.replay(path, any_file=True, system=system).replayed == 1
    assert content(path) == [5, 2, 3]
    assert not folders(path)


def test_a_new_job_with_a_log_has_a_file_of_its_own(tmp_path: pathlib.Path, system: Any) -> None:
    """Of two logs under one name the one of the file is replayed, and the other one told and kept."""
    path = tmp_path / "x.nc"
    killed(path, first, system=system)
    (old,) = folders(path)

    def second(f: Any) -> None:
        x = f.create_dataset("x", (3,), "i4")
        f.flush()
        x[1] = 7

    killed(path, second, system=system)
    assert len(folders(path)) == 2
    with pytest.warns(PncVolWarning, match="of another file that had this name") as told:
        pnc_vol.File(path, "r+", recover=True, system=system).close()
    assert len(told) == 1
    assert str(old) in str(told[0].message)
    assert folders(path) == [old]
    assert content(path) == [0, 7, 0]
    pnc_vol.File(path, "r+", recover="any-file", system=system).close()
    assert content(path) == [5, 7, 0]
    assert not folders(path)


def test_another_file_takes_the_name(tmp_path: pathlib.Path, system: Any) -> None:
    path, other = tmp_path / "x.nc", tmp_path / "other.nc"
    killed(path, first, system=system)
    with pnc_vol.File(other, "w", system=system) as f:
        f.create_dataset("x", (3,), "i4")[:] = [7, 8, 9]
    os.replace(other, path)
    refused(path, system, "belongs to another file")
    assert content(path) == [7, 8, 9]


def test_another_file_is_copied_over_it(tmp_path: pathlib.Path, system: Any) -> None:
    """The file keeps its identity then; its header is another one."""
    path, other = tmp_path / "x.nc", tmp_path / "other.nc"
    killed(path, first, system=system)
    with pnc_vol.File(other, "w", system=system) as f:
        f.create_dataset("x", (3,), "i4")[:] = [7, 8, 9]
        f.attrs["of"] = "another run"
    shutil.copyfile(other, path)
    refused(path, system, "has a header .* does not know")
    assert content(path) == [7, 8, 9]


def test_a_copy_is_another_file(tmp_path: pathlib.Path, system: Any) -> None:
    path, copy = tmp_path / "x.nc", tmp_path / "copy.nc"
    killed(path, first, system=system)
    shutil.copyfile(path, copy)
    with pytest.raises(LogRefusedError, match="belongs to another file"):
        pnc_vol.replay(copy, folders(path), system=system)
    report = pnc_vol.replay(copy, folders(path), any_file=True, system=system)
    assert (report.replayed, content(copy)) == (1, [5, 0, 0])


def test_a_rename_takes_the_logs_along(tmp_path: pathlib.Path, system: Any) -> None:
    path, moved = tmp_path / "x.nc", tmp_path / "moved.nc"
    killed(path, first, system=system)
    path.rename(moved)
    assert pnc_vol.replay(moved, folders(path), system=system).replayed == 1
    assert content(moved) == [5, 0, 0]


def test_a_new_layout_is_the_same_file(tmp_path: pathlib.Path, system: Any) -> None:
    """A header that outgrows its room makes a copy of the file, which takes the name."""
    path = tmp_path / "x.nc"

    def work(f: Any) -> None:
        x = f.create_dataset("x", (3,), "i4")
        x[:] = [1, 2, 3]
        f.flush()
        inode = path.stat().st_ino
        x[0] = 4
        f.attrs["long"] = "a" * 20_000
        f.flush()
        assert path.stat().st_ino != inode
        x[1] = 5

    killed(path, work, system=system)
    assert pnc_vol.replay(path, system=system).replayed == 1
    assert content(path) == [4, 5, 3]


def test_a_stop_in_a_new_layout(tmp_path: pathlib.Path, system: Any) -> None:
    """Whichever file has the name then, the log is that file's."""

    stops = 0
    for at in range(40):
        path = tmp_path / f"{at}.nc"
        own = Ending(system)

        def work(f: Any, own: Ending = own, at: int = at) -> None:
            x = f.create_dataset("x", (3,), "i4")
            x[:] = [1, 2, 3]
            f.flush()
            x[0] = 4
            f.attrs["long"] = "a" * 20_000
            own.left = at
            f.flush()
            own.left = -1

        killed(path, work, system=own)
        report = pnc_vol.replay(path, system=system)
        assert content(path) == [4, 2, 3]
        if not report.logs:
            break
        stops += 1
        assert not folders(path)
    assert stops > 4


def test_two_jobs_one_after_the_other(tmp_path: pathlib.Path, system: Any) -> None:
    """The second one began on what the first one had left, and changed the header."""
    path = tmp_path / "x.nc"
    killed(path, first, system=system)

    def second(f: Any) -> None:
        f["x"][1] = 6
        f["y"] = [1.0]
        f.flush()
        f["x"][2] = 7

    killed(path, second, "r+", system=system)
    assert pnc_vol.replay(path, system=system).replayed == 2
    assert content(path) == [5, 6, 7]


def test_a_file_that_was_changed_since_is_refused(tmp_path: pathlib.Path, system: Any) -> None:
    path = tmp_path / "x.nc"
    killed(path, first, system=system)
    with pytest.warns(PncVolWarning, match="are not in the file"), pnc_vol.File(path, "r+", system=system) as f:
        f["x"][2] = 9
    with pytest.warns(PncVolWarning, match="are not in the file"), pnc_vol.File(path, "r+", system=system) as f:
        f.attrs["changed"] = 1
    refused(path, system, "has a header .* does not know")
    assert pnc_vol.replay(path, any_file=True, system=system).replayed == 1
    assert content(path) == [5, 0, 9]


@needs_attributes
def test_a_file_without_a_log_has_no_identity(tmp_path: pathlib.Path) -> None:
    with pnc_vol.File(tmp_path / "x.nc", "w") as f:
        f["x"] = [1]
    assert os.listxattr(tmp_path / "x.nc") == []


@needs_attributes
def test_an_identity_is_as_safe_as_the_log(tmp_path: pathlib.Path) -> None:
    """With ``burst_buf_sync`` it is synced before the first post; it costs two calls."""
    for sync in ("none", "each"):
        path, system = tmp_path / f"{sync}.nc", TraceSystem()
        f = pnc_vol.File(path, "w", burst_buf=True, burst_buf_sync=sync, system=system)
        names = [call.name for call in system.log]
        assert [name for name in names if name.endswith("xattr")] == ["getxattr", "setxattr"]
        assert ("fsync" in names[names.index("setxattr") :]) == (sync == "each")
        f.close()
