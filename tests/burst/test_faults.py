"""Devices that are full, calls that fail, and what is synced when."""

from __future__ import annotations

import errno
import itertools
import pathlib
import subprocess
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from kills import logged_job

import pnc_vol
from pnc_vol.testing.faults import FaultSystem, HookedSystem, TraceSystem

SMALL = 64 << 10


@pytest.fixture
def device(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A device of 64 KiB."""
    folder = tmp_path / "device"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("a device of 64 KiB can only be mounted by root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def logged(logs: pathlib.Path, **more: Any) -> dict[str, Any]:
    return {"burst_buf": True, "burst_buf_dirname": str(logs), **more}


# --------------------------------------------------------------------------------------------- no room


def test_a_device_that_is_full_loses_nothing(device: pathlib.Path, tmp_path: pathlib.Path) -> None:
    rows = np.arange(400 * 100.0).reshape(400, 100)
    with pnc_vol.File(tmp_path / "x.nc", "w", **logged(device)) as f:
        x = f.create_dataset("x", rows.shape, "f4")
        r = f.create_dataset("r", (0,), "i4", maxshape=(None,))
        for i, row in enumerate(rows):
            request = x.iput((i,), row)
            if i % 10 == 0:
                r.resize(i // 10 + 1, axis=0)
                r[i // 10] = i
            if i % 50 == 7:
                np.testing.assert_array_equal(x[: i + 1], rows[: i + 1])
        assert request.status == "pending"
        # How often depends on how much of the device is reserved ahead; so much does not fit at once.
        assert f.statistics()["flushes"] >= x.size * x.dtype.itemsize // SMALL
        # One that never fits.
        f["large"] = np.arange(50_000.0)
    with pnc_vol.File(tmp_path / "x.nc") as f:
        np.testing.assert_array_equal(f["x"][...], rows)
        assert f["r"][:].tolist() == list(range(0, 400, 10))
        assert f["large"][-1] == 49_999
    assert not list(device.iterdir())


def test_a_kill_on_a_full_device_loses_nothing(device: pathlib.Path, tmp_path: pathlib.Path) -> None:
    def work(f: Any) -> None:
        x = f.create_dataset("x", (500, 50), "f4")
        r = f.create_dataset("r", (500, 5000), "i2", maxshape=(None, 5000))
        for i in range(333):
            x[i] = i + 1
        # Goes by the log, beyond the records that the header counts.
        r[:400] = 3
        r[499] = 4

    logged_job(tmp_path / "x.nc", device, work)
    with pnc_vol.File(tmp_path / "x.nc", "r+", recover=True, burst_buf_dirname=str(device)) as f:
        assert f["x"][:, 7].tolist() == [*range(1, 334), *[0] * 167]
        assert f["r"][:, 4999].tolist() == [3] * 400 + [0] * 99 + [4]


@pytest.mark.parametrize("capacity", [1, 3000, 20_000, 1 << 20])
def test_capacity(capacity: int, tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    most = 0
    with pnc_vol.File(tmp_path / "x.nc", "w", **logged(logs, burst_buf_capacity=capacity)) as f:
        x = f.create_dataset("x", (300, 20), "f4")
        for i in range(300):
            x[i] = i
            # what is reserved ahead is NUL
            most = max(most, sum(len(file.read_bytes().rstrip(b"\0")) for file in logs.glob("*/*.[md]*a")))
        assert (f.statistics().get("flushes", 0) > 0) == (capacity <= 20_000)
        assert x[:, 3].tolist() == list(range(300))
    assert most <= max(capacity, 1000) + 500
    with pnc_vol.File(tmp_path / "x.nc") as f:
        assert f["x"][:, 19].tolist() == list(range(300))


def works(f: Any, x: Any, r: Any) -> Iterator[Any]:
    """Posts, cuts and a flush, each to be done at least once."""
    yield from (lambda i=i: x.__setitem__(i, i + 1) for i in range(20))
    yield from (lambda n=n: r.resize(n, axis=0) for n in (3, 1, 6))
    yield from (lambda: r.__setitem__(slice(0, 6), 5.0), f.flush, lambda: r.__setitem__(2, 7.0))


@pytest.mark.parametrize("name", ["fallocate", "mmap", "pwrite", "ftruncate", "fdatasync"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_every_call_fails_once(name: str, number: int, tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    """A post fails whole or not at all, whatever call it was, and goes through when it is made again."""
    for at in range(1, 60):
        path = tmp_path / f"{at}.nc"
        system = FaultSystem(fail_at=0, errno=number, calls={name})
        f = pnc_vol.File(path, "w", **logged(logs, system=system, burst_buf_sync="each", burst_buf_capacity=60_000))
        x, r = f.create_dataset("x", (20, 300), "i4"), f.create_dataset("r", (0, 900), "f8", maxshape=(None, 900))
        system.fail_at = system.count + at
        for work in works(f, x, r):
            try:
                work()
            except OSError as error:
                assert error.errno == number or isinstance(error, pnc_vol.FlushError)  # noqa: PT017
                work()
        wanted = np.full((6, 900), 5.0)
        wanted[2] = 7.0
        np.testing.assert_array_equal(r[...], wanted)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                f.close()
            except OSError as error:
                # A sync that failed is never made good by another one.
                assert number == errno.EIO or name == "fdatasync", error  # noqa: PT017
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pnc_vol.File(path, "r+", recover=True, burst_buf_dirname=str(logs)) as f:
                assert f["x"][:, 5].tolist() == list(range(1, 21))
                np.testing.assert_array_equal(f["r"][...], wanted)
        assert not list(logs.iterdir())
        if not system.fired:
            break
    assert not system.fired or at == 59


def test_a_close_that_fails_keeps_the_log(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    system = FaultSystem(fail_at=0, errno=errno.EIO, mode="forever")
    f = pnc_vol.File(tmp_path / "x.nc", "w", **logged(logs, system=system))
    x = f.create_dataset("x", (5,), "i4")
    f.flush()
    x[:] = 4
    system.fail_at = system.count + 1
    with pytest.warns(pnc_vol.PncVolWarning, match="is kept in"), pytest.raises(pnc_vol.FlushError):
        f.close()
    with pnc_vol.File(tmp_path / "x.nc", "r+", recover=True) as f:
        assert f["x"][:].tolist() == [4] * 5
    assert not list(logs.iterdir())


# ------------------------------------------------------------------------------------------------- syncs


def trace(tmp_path: pathlib.Path, logs: pathlib.Path, sync: str) -> tuple[TraceSystem, list[int]]:
    """A program with two posts and a flush; its calls, and how many there were before and after each step."""
    system = TraceSystem()
    f = pnc_vol.File(tmp_path / "x.nc", "w", **logged(logs, system=system, burst_buf_sync=sync))
    marks = []
    x = f.create_dataset("x", (10,), "f4")
    for step in (lambda: x.__setitem__(0, 1), lambda: x.__setitem__(1, 2), f.flush):
        marks.append(len(system.log))
        step()
    marks.append(len(system.log))
    f.close()
    return system, marks


def synced(system: TraceSystem, first: int, last: int) -> list[str]:
    return [pathlib.Path(call.path).suffix for call in system.log[first:last] if call.name in ("fdatasync", "fsync")]


def test_sync_none(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    system, _ = trace(tmp_path, logs, "none")
    assert synced(system, 0, len(system.log)) == []


def test_sync_flush(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    system, marks = trace(tmp_path, logs, "flush")
    assert synced(system, marks[0], marks[2]) == []
    order = synced(system, marks[2], marks[3])
    assert order[:4] == [".defs", ".data", ".meta", ".commit"]
    # The file is on stable storage before the log is begun anew.
    assert set(order[4:-1]) == {".defs", ".nc", ".pncj"}
    # The log knows the header that comes before it is written.
    assert order[4:].index(".defs") < order[4:].index(".pncj")
    # And the log says so before it is cut.
    assert order[-1] == ".commit"
    names = [(call.name, pathlib.Path(call.path).suffix) for call in system.log[marks[2] : marks[3]]]
    cut = next(i for i, call in enumerate(names) if call == ("ftruncate", ".meta"))
    assert cut > max(i for i, call in enumerate(names) if call[0] in ("fsync", "fdatasync"))
    first_write = next(i for i, (n, suffix) in enumerate(names) if n.startswith("pwrite") and suffix == ".nc")
    assert first_write > names.index(("fdatasync", ".commit"))


def test_sync_each(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    system, marks = trace(tmp_path, logs, "each")
    for first, last in itertools.pairwise(marks[:3]):
        assert synced(system, first, last) == [".defs", ".data", ".meta", ".commit"]
    begun = [call for call in system.log[: marks[0]] if call.name == "fsync_dir"]
    folders = [pathlib.Path(call.path) for call in begun]
    assert logs in folders
    assert any(folder.parent == logs for folder in folders)


def test_a_sync_that_fails_is_no_post(tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    system = FaultSystem(fail_at=0, errno=errno.EIO, calls={"fdatasync"})

    def work(f: Any) -> None:
        x = f.create_dataset("x", (4,), "i4")
        x[0] = 1
        system.fail_at = system.count + 4
        with pytest.raises(OSError, match="Input/output"):
            x[1] = 2

    logged_job(tmp_path / "x.nc", logs, work, system=system, burst_buf_sync="each")
    assert pnc_vol.replay(tmp_path / "x.nc", burst_buf_dirname=str(logs)).replayed == 1
    with pnc_vol.File(tmp_path / "x.nc") as f:
        assert f["x"][:].tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("layout", ["canonical", "blob"])
def test_a_file_that_could_not_be_synced_keeps_its_log(layout: str, tmp_path: pathlib.Path, logs: pathlib.Path) -> None:
    """Also a set of subfiles: the log has what the storage may not have."""
    path = tmp_path / "x.nc"

    class Failing(HookedSystem):
        fails = False

        def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if self.fails and "sync" in name and str(path) in str(pathlib.Path(f"/proc/self/fd/{args[0]}").resolve()):
                raise OSError(errno.EIO, "Input/output error")
            return super().call(name, args, kwargs)

    system = Failing()
    f = pnc_vol.File(path, "w", **logged(logs, system=system, layout=layout, burst_buf_sync="flush"))
    x = f.create_dataset("x", (4,), "i4")
    f.flush()
    x[0] = 1
    system.fails = True
    with pytest.raises(pnc_vol.SyncError):
        f.flush()
    system.fails = False
    x[1] = 2
    f.flush(durable=False)
    with pytest.warns(pnc_vol.PncVolWarning, match="is kept in"), pytest.raises(pnc_vol.SyncError):
        f.close()
    assert list(logs.iterdir())


# -------------------------------------------------------------------------------------------- a full device


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("call", ["mkdir", "fallocate"])
def test_a_log_that_cannot_be_begun_names_the_folder(
    number: int, call: str, tmp_path: pathlib.Path, logs: pathlib.Path
) -> None:
    for mode in ("a", "r+"):
        system = FaultSystem(fail_at=1, errno=number, mode="forever", calls={call})
        with pytest.raises(OSError, match=r"nc_burst_buf_dirname.*nc_burst_buf=disable") as caught:
            pnc_vol.File(tmp_path / "x.nc", mode, **logged(logs, system=system))
        assert (caught.value.errno, caught.value.filename) == (number, str(logs))
        assert not list(logs.iterdir())
        pnc_vol.File(tmp_path / "x.nc", "a").close()


def test_a_device_without_room_for_a_log_is_named(device: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (device / "fill").write_bytes(bytes(SMALL))
    with pytest.raises(OSError, match="its device is full") as caught:
        pnc_vol.File(tmp_path / "x.nc", "w", **logged(device))
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(device))
