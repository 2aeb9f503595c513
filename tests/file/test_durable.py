"""What is durable was put on stable storage in the right order, and a failed fsync ends the promise."""

from __future__ import annotations

import contextlib
import errno
import pathlib

import numpy as np
import pytest

import pnc_vol
from pnc_vol.testing.faults import FaultSystem, TraceSystem

SYNCS = {"fsync", "fdatasync", "fsync_dir"}


def test_data_then_header_then_names(path: pathlib.Path) -> None:
    system = TraceSystem()
    with pnc_vol.File(path, "w", system=system) as f:
        f["x"] = np.arange(1000.0)
        system.log.clear()
        f.flush(durable=True)
        at = f["x"].id.get_offset()
        journal, folder = str(path.with_name(".x.nc.pncj")), str(path.parent)
        data = {"name": "pwrite", "path": str(path), "offset": lambda offset: offset >= at}
        header = {"name": "pwrite", "path": str(path), "offset": lambda offset: offset < at}
        synced = [call.number for call in system.matching(name={"fsync", "fdatasync"}, path=str(path))]
        assert synced
        first, last = system.matching(**data)[-1].number, system.matching(**header)[0].number
        assert any(first < number < last for number in synced), "the data are not safe before the header"
        assert last < synced[-1], "the header is not synced"
        system.assert_order(
            {"name": "fsync", "path": journal},
            {"name": "fsync_dir", "path": folder},
            header,
            {"name": "unlink", "path": journal, "result": None},
        )
        after_header = [n for n in synced if n > last]
        assert after_header[0] < system.matching(name="unlink", path=journal)[-1].number


def test_records_then_their_count(path: pathlib.Path) -> None:
    with pnc_vol.File(path, "w") as f:
        f.create_dataset("r", (1, 100), "f8", maxshape=(None, 100))
    system = TraceSystem()
    with pnc_vol.File(path, "r+", system=system, durable=True) as f:
        f["r"].resize(4, axis=0)
        f["r"][1:] = 1
        f.flush()
        count = {"name": "pwrite", "offset": 4, "nbytes": 8}
        data = system.matching(name={"pwrite", "pwritev"}, offset=lambda offset: offset > 8)
        syncs = system.matching(name={"fsync", "fdatasync"})
        assert data[-1].number < syncs[0].number < system.matching(**count)[0].number < syncs[-1].number


def test_a_moved_file_gets_its_name_when_all_of_it_is_safe(path: pathlib.Path) -> None:
    with pnc_vol.File(path, "w") as f:
        f["x"] = np.arange(1000.0)
    system = TraceSystem()
    with pnc_vol.File(path, "r+", system=system) as f:
        f.attrs["long"] = np.arange(5000)
        f.flush(durable=True)
        (rename,) = system.matching(name="rename")
        writes = [call for call in system.matching(name={"pwrite", "pwritev"}) if call.path.endswith("pnctmp")]
        syncs = [call for call in system.matching(name={"fsync", "fdatasync"}) if call.path.endswith("pnctmp")]
        assert writes[-1].offset == 0
        assert writes[-2].number < syncs[0].number < writes[-1].number < syncs[-1].number < rename.number
        assert system.matching(name="fsync_dir")[0].number > rename.number


def test_nothing_is_synced_without_being_asked(path: pathlib.Path) -> None:
    system = TraceSystem()
    with pnc_vol.File(path, "w", system=system) as f:
        f["x"] = np.arange(1000.0)
        f.flush()
        f.attrs["long"] = np.arange(5000)
    assert system.matching(name=SYNCS) == []


@pytest.mark.parametrize("how", ["resize", "rows", "replace"])
def test_a_plain_flush_syncs_what_stands_for_durable_values(path: pathlib.Path, how: str) -> None:
    """Data, header, and only then whatever uses the space again."""
    with pnc_vol.File(path, "w") as f:
        f.create_dataset("z", data=np.ones((12, 12)), maxshape=(20, 20))
        f.create_dataset("v", (2,), pnc_vol.vlen_dtype("i4"))[:] = [[1, 2], [3]]
    system = TraceSystem()
    with pnc_vol.File(path, "r+", system=system) as f:
        if how == "resize":
            f["z"].resize((5, 12))
        elif how == "rows":
            f["v"][0] = [7, 8]
        else:
            del f["z"]
            f["z"] = np.zeros((12, 12))
        f.flush()
        assert "moves" not in f.statistics()
        writes = system.matching(name={"pwrite", "pwritev"}, path=str(path))
        syncs = system.matching(name={"fsync", "fdatasync"}, path=str(path))
        data = [call for call in writes if call.offset > 1500]
        header = [call for call in writes if call.offset < 1500]
        assert data[-1].number < syncs[0].number < header[0].number
        assert header[-1].number < syncs[-1].number


@pytest.mark.parametrize("burst_buf", [False, True])
def test_a_file_over_another_one_is_synced_before_the_rename(path: pathlib.Path, burst_buf: bool) -> None:
    with pnc_vol.File(path, "w") as f:
        f["x"] = 1
    system = TraceSystem()
    with pnc_vol.File(path, "w", system=system, burst_buf=burst_buf):
        (rename,) = (call for call in system.matching(name="rename") if "pncbb" not in call.path)
        synced = system.matching(name={"fsync", "fdatasync"}, path=lambda name: name.endswith("pnctmp"))
        assert synced
        assert synced[0].number < rename.number


@pytest.mark.parametrize("which", [1, 2, 3, 4])
def test_after_a_failed_fsync_of_the_file_nothing_is_durable_any_more(path: pathlib.Path, which: int) -> None:
    system = FaultSystem(fail_at=which, errno=errno.EIO, calls={"fdatasync"})
    f = pnc_vol.File(path, "w", system=system)
    f["x"] = np.arange(1000.0)
    with pytest.raises(OSError) as caught:
        for i in range(5):
            f.attrs["i"] = i
            f.flush(durable=True)
    assert caught.value.errno == errno.EIO
    f["y"] = [1, 2]
    f.flush()
    for _ in range(2):
        with pytest.raises(OSError, match=r"earlier f?sync failed") as caught:
            f.flush(durable=True)
        assert caught.value.errno == errno.EIO
    f.close()
    with pnc_vol.File(path) as f:
        assert f["x"][:].tolist() == list(range(1000))
        assert f["y"][:].tolist() == [1, 2]


def test_a_failed_fsync_of_the_data_is_remembered(path: pathlib.Path) -> None:
    system = FaultSystem(fail_at=1, errno=errno.EIO, calls={"fdatasync"})
    with pnc_vol.File(path, "w", system=system) as f:
        f["x"] = [1]
        with pytest.raises(OSError):
            f.flush(durable=True)
        with pnc_vol.File(path) as other:
            assert list(other) == [], "a header that promises what may be lost"
        with pytest.raises(OSError, match="durability is no longer promised"):
            f.flush(durable=True)


@pytest.mark.parametrize("subfiles", [1, 2])
@pytest.mark.parametrize("nth", range(1, 4))
def test_a_close_of_a_set_after_a_failed_fsync_writes_all_the_same(path: pathlib.Path, subfiles: int, nth: int) -> None:
    system = FaultSystem(fail_at=0, errno=errno.EIO, calls={"fdatasync"})
    f = pnc_vol.File(path, "w", system=system, durable=True, layout="blob", subfiles=subfiles)
    f["x"] = [1]
    system.fail_at = system.count + nth
    with pytest.raises(pnc_vol.errors.SyncError):
        f.flush()
    f["y"] = [2, 3]
    with pytest.raises(pnc_vol.errors.SyncError, match="durability is no longer promised"):
        f.close()
    with pnc_vol.File(path) as f:
        assert (f["x"][0], f["y"][:].tolist()) == (1, [2, 3])


@pytest.mark.parametrize("log", [False, True])
def test_a_close_after_a_failed_fsync_writes_all_the_same(path: pathlib.Path, log: bool) -> None:
    system = FaultSystem(fail_at=0, errno=errno.EIO, calls={"fdatasync"})
    options = {"burst_buf": True, "burst_buf_sync": "flush"} if log else {"durable": True}
    f = pnc_vol.File(path, "w", system=system, **options)
    f["x"] = [1]
    # The four files of a log are synced before the file is.
    system.fail_at = system.count + (5 if log else 1)
    with pytest.raises(pnc_vol.errors.SyncError):
        f.flush()
    f["y"] = [2, 3]
    with contextlib.ExitStack() as stack:
        if log:
            stack.enter_context(pytest.warns(pnc_vol.errors.PncVolWarning, match="is kept in"))
        with pytest.raises(OSError, match="durability is no longer promised") as caught:
            f.close()
    assert caught.value.errno == errno.EIO
    assert not f
    for options in [{"mode": "r+", "recover": True}, {}] if log else [{}]:
        with pnc_vol.File(path, **options) as f:
            assert (f["x"][0], f["y"][:].tolist()) == (1, [2, 3])
    assert [found.name for found in path.parent.iterdir()] == [path.name]


def test_a_failed_fsync_is_told_as_one_though_all_that_follows_fails(tmp_path: pathlib.Path) -> None:
    told = 0
    for fail_at in range(1, 20):
        system = FaultSystem(fail_at=0, errno=errno.EIO, calls={"fsync", "fdatasync", "pwrite", "pwritev"})
        f = pnc_vol.File(tmp_path / f"{fail_at}.nc", "w", system=system, durable=True)
        f.flush()
        f.attrs["a"] = 1
        system.mode, system.fail_at = "forever", system.count + fail_at
        with contextlib.suppress(OSError):
            f.flush()
        system.heal()
        if not system.fired:
            f.close()
            break
        try:
            f.close()
        except pnc_vol.errors.SyncError as error:
            told += "no longer promised" in str(error)
        with pnc_vol.File(tmp_path / f"{fail_at}.nc") as f:
            assert f.attrs["a"] == 1
    assert 2 <= told < fail_at - 1


def test_a_name_that_an_ordinary_flush_gave_is_made_safe_once(path: pathlib.Path) -> None:
    system = TraceSystem()
    with pnc_vol.File(path, "w", system=system) as f:
        x = f.create_dataset("x", (10,), "f8")
        f.flush()
        assert not system.matching(name="fsync_dir")
        x[...] = 1
        f.flush(durable=True)
        folder = system.matching(name="fsync_dir", path=str(path.parent))
        assert len(folder) == 1
        assert folder[0].number > system.matching(name="rename")[-1].number
        x[...] = 2
        f.flush(durable=True)
        assert len(system.matching(name="fsync_dir")) == 1


@pytest.mark.filterwarnings("ignore:.*no note of its log can be written:pnc_vol.errors.PncVolWarning")
def test_a_log_that_cannot_be_begun_leaves_the_old_file(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """As on a log device that is full: the error names its folder."""
    logs = tmp_path / "logs"
    logs.mkdir()
    named = 0
    for fail_at in range(1, 100):
        with pnc_vol.File(path, "w") as f:
            f["x"] = [1, 2, 3]
        calls = {"pwrite", "pwritev", "fallocate", "ftruncate", "mkdir", "rename"}
        system = FaultSystem(fail_at=fail_at, errno=errno.ENOSPC, mode="forever", calls=calls)
        try:
            f = pnc_vol.File(path, "w", system=system, burst_buf=True, burst_buf_dirname=str(logs))
        except OSError as error:
            named += str(logs) in str(error)
            with pnc_vol.File(path) as f:
                assert f["x"][:].tolist() == [1, 2, 3]
            assert sorted(found.name for found in tmp_path.iterdir()) == ["logs", "x.nc"]
            assert list(logs.iterdir()) == []
        else:
            system.heal()
            with f:
                assert not list(f)
            break
    assert named >= 3
