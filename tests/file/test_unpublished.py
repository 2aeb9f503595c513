"""A file that gets its name at the close: what is flushed before is found under a temporary name."""

from __future__ import annotations

import errno
import os
import pathlib

import numpy as np
import pytest
from other_process import fresh

import pnc_vol
from pnc_vol.errors import FlushError, SyncError
from pnc_vol.testing.faults import FaultSystem, TraceSystem


def temporary(path: pathlib.Path) -> list[pathlib.Path]:
    return sorted(path.parent.glob(".*.pnctmp"))


def test_the_header_of_a_flushed_file_has_a_journal(path: pathlib.Path) -> None:
    """A kill in the middle of the write of a header leaves a journal, by which the next opening completes it."""
    system = TraceSystem()
    with pnc_vol.File(path, "w", publish="close", system=system) as f:
        f["x"] = [1]
        f.flush()
        assert not system.matching(name="open", path=lambda name: name.endswith("pncj"))
        f["y"] = [2]
        f.flush()
        assert system.matching(name="open", path=lambda name: name.endswith("pnctmp.pncj"))
    assert os.listdir(path.parent) == ["x.nc"]


def test_a_new_layout_takes_the_temporary_name(path: pathlib.Path) -> None:
    with pnc_vol.File(path, "w", publish="close") as f:
        f["x"] = np.arange(10)
        f.flush()
        (work,) = temporary(path)
        for k in range(100):
            f.attrs[f"a{k}"] = "y" * 100
        f.flush()
        assert f.statistics()["moves"] == 1
        assert temporary(path) == [work]
        with open(work, "rb") as disk, pnc_vol.File(disk) as other:
            assert len(other.attrs) == 100
            assert other["x"][:].tolist() == list(range(10))
    assert os.listdir(path.parent) == ["x.nc"]


def test_a_durable_flush_brings_the_temporary_name_to_stable_storage(path: pathlib.Path) -> None:
    system = TraceSystem()
    with pnc_vol.File(path, "w", publish="close", system=system) as f:
        f["x"] = [1]
        f.flush()
        assert not system.matching(name={"fsync", "fdatasync", "fsync_dir"})
        f.flush(durable=True)
        assert system.matching(name="fsync_dir")


@pytest.mark.parametrize("how", ["close", "with", "set"])
def test_a_close_that_could_not_rename_is_tried_again(path: pathlib.Path, how: str) -> None:
    system = FaultSystem(fail_at=1, errno=errno.EIO, calls={"rename"})
    f = pnc_vol.File(path, "w", publish="close", system=system, layout="blob" if how == "set" else "canonical")
    f["x"] = [1, 2]
    f.flush(durable=True)
    f["x"][1] = 3
    with pytest.raises(OSError, match=r"kept in .*pnctmp \(call close\(\) again") as caught:
        if how == "with":
            with f:
                pass
        else:
            f.close()
    if how != "set":
        (work,) = temporary(path)
        assert str(caught.value) == (
            "[Errno 5] the file cannot get its name: Input/output error; what was flushed before is kept in "
            f"{work} (call close() again, or rename that file): '{path}'"
        )
    assert f
    assert f["x"][:].tolist() == [1, 3]
    f.close()
    assert not f
    assert not temporary(path)
    with pnc_vol.File(path) as f:
        assert f["x"][:].tolist() == [1, 3]


def test_after_the_second_attempt_the_file_is_closed_and_kept(path: pathlib.Path) -> None:
    system = FaultSystem(fail_at=1, errno=errno.EIO, calls={"rename"}, mode="forever")
    f = pnc_vol.File(path, "w", publish="close", system=system)
    f["x"] = [1, 2]
    f.flush()
    for again in (True, False):
        with pytest.raises(OSError, match=r"kept in .*pnctmp") as caught:
            f.close()
        assert bool(f) == again
        assert ("close() again" in str(caught.value)) == again
        assert str(caught.value).count("pnctmp") == 1
    f.close()
    (work,) = temporary(path)
    with pnc_vol.File(work, "r+") as f:
        assert f["x"][:].tolist() == [1, 2]


def fails_to_close(path: str) -> None:
    system = FaultSystem(fail_at=1, errno=5, calls={"rename"}, mode="forever")
    f = pnc_vol.File(path, "w", publish="close", system=system)
    f["x"] = [1, 2]
    f.flush()
    f.close()


def test_the_error_of_a_close_is_printed_once(path: pathlib.Path) -> None:
    """When the interpreter exits the close is tried again; who called it knows already what is wrong."""
    done = fresh(fails_to_close, path)
    assert done.returncode == 1
    assert done.stderr.count("OSError: [Errno 5] the file cannot get its name") == 1, done.stderr
    assert len(temporary(path)) == 1


@pytest.mark.parametrize("calls", ["pwrite", "fdatasync"])
def test_a_close_that_cannot_write_keeps_what_was_flushed(path: pathlib.Path, calls: str) -> None:
    system = FaultSystem(fail_at=1, errno=errno.ENOSPC, calls={calls}, mode="forever")
    system.fail_at = 0
    f = pnc_vol.File(path, "w", publish="close", system=system)
    f["x"] = [1, 2]
    f.flush(durable=True)
    f["x"][1] = 3
    system.fail_at = system.count + 1
    with pytest.raises((FlushError, SyncError)) as caught:
        f.close()
    assert not f
    # without the data that failed the file is whole; what could not be synced does not get the name
    (there,) = [*temporary(path), *path.parent.glob("x.nc")]
    assert there == path or str(there) in str(caught.value)
    with pnc_vol.File(there) as f:
        assert f["x"][0] == 1


def test_a_temporary_file_that_is_gone_is_not_promised(path: pathlib.Path) -> None:
    f = pnc_vol.File(path, "w", publish="close")
    f["x"] = [1, 2]
    f.flush()
    for work in temporary(path):
        work.unlink()
    with pytest.raises(FileNotFoundError) as caught:
        f.close()
    assert "was removed" in str(caught.value)
    assert "kept" not in str(caught.value)
    with pytest.raises(FileNotFoundError) as caught:
        f.close()
    assert "kept" not in str(caught.value)
    assert not f


def test_what_has_taken_the_name_is_said(path: pathlib.Path) -> None:
    f = pnc_vol.File(path, "w", publish="close")
    f["x"] = [1, 2]
    f.flush()
    path.mkdir()
    with pytest.raises(IsADirectoryError, match="the file cannot get its name: Is a directory; what was flushed"):
        f.close()
    path.rmdir()
    f.close()
    with pnc_vol.File(path) as f:
        assert f["x"][:].tolist() == [1, 2]


def test_a_file_without_a_flush_leaves_nothing(path: pathlib.Path) -> None:
    system = FaultSystem(fail_at=1, errno=errno.EIO, calls={"rename"})
    f = pnc_vol.File(path, "w", publish="close", system=system)
    f["x"] = [1, 2]
    with pytest.raises(OSError, match="Input/output"):
        f.close()
    assert not f
    assert not os.listdir(path.parent)


def test_a_file_that_has_its_name_keeps_it(tmp_path: pathlib.Path) -> None:
    """Opened again with the same option, what is flushed is under the name at once, and the close loses nothing."""
    path = tmp_path / "x.nc"
    pnc_vol.File(path, "w", publish="close").close()
    with pnc_vol.File(path, "r+", publish="close") as f:
        f.create_dataset("a", (3,), "i4", maxshape=(None,))
        f.flush()
        f["g/h/b"] = np.arange(40)
        f.flush(durable=True)
        assert os.listdir(tmp_path) == ["x.nc"]
        with open(path, "rb") as disk, pnc_vol.File(disk) as other:
            assert other["g/h/b"][...].tolist() == list(range(40))
        f.create_dataset("c", (3,), "i4")
    with pnc_vol.File(path) as f:
        assert sorted(f) == ["a", "c", "g"]
    assert os.listdir(tmp_path) == ["x.nc"]
