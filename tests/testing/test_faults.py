"""The systems that fail, stop and record do so when they say."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from pnc_vol.system import CALLS, REAL, System
from pnc_vol.testing.faults import CHANGING, FaultSystem, HookedSystem, Stopped, StopSystem, TraceSystem


def save(system: System, folder: Path) -> None:
    """A small work: a new file by rename, as careful programs do it."""
    fd = system.open(folder / "new", os.O_RDWR | os.O_CREAT, 0o600)
    system.pwrite(fd, b"head", 0)
    system.pwritev(fd, [b"12", b"345"], 4)
    system.fsync(fd)
    system.close(fd)
    system.rename(folder / "new", folder / "name")
    system.fsync_dir(folder)


def test_every_call_passes_the_hook() -> None:
    class Names(HookedSystem):
        def call(self, name, args, kwargs):
            return name

    for name in CALLS:
        assert getattr(Names(), name)() == name
    assert set(CALLS) >= CHANGING


def test_the_nth_call_fails(tmp_path: Path) -> None:
    for at in range(1, 4):
        system = FaultSystem(fail_at=at, errno=errno.EDQUOT)
        if at == 3:
            save(system, tmp_path)
            assert (system.count, system.fired) == (2, False)
        else:
            with pytest.raises(OSError) as caught:
                save(system, tmp_path)
            assert caught.value.errno == errno.EDQUOT
            assert (system.count, system.fired) == (at, True)


def test_once_for_ever_and_healed(tmp_path: Path) -> None:
    fd = REAL.open(tmp_path / "f", os.O_RDWR | os.O_CREAT)
    for mode, later in [("once", True), ("forever", False)]:
        system = FaultSystem(fail_at=1, mode=mode, calls={"fsync"})
        with pytest.raises(OSError):
            system.fsync(fd)
        if later:
            system.fsync(fd)
        else:
            with pytest.raises(OSError):
                system.fsync(fd)
            system.heal()
            system.fsync(fd)
    REAL.close(fd)


def test_half_writes(tmp_path: Path) -> None:
    fd = REAL.open(tmp_path / "f", os.O_RDWR | os.O_CREAT)
    system = FaultSystem(fail_at=1, mode="short")
    assert system.pwritev(fd, [b"abc", b"def"], 0) == 3
    assert system.pwrite(fd, b"xyz", 3) == 3
    assert (tmp_path / "f").read_bytes() == b"abcxyz"
    system = FaultSystem(fail_at=1, mode="short-forever", errno=errno.EFBIG)
    assert system.pwrite(fd, b"12345", 0) == 2
    with pytest.raises(OSError) as caught:
        system.pwrite(fd, b"345", 2)
    assert caught.value.errno == errno.EFBIG
    assert FaultSystem(fail_at=1, mode="short").pwrite(fd, b"1", 0) == 0
    REAL.close(fd)


def test_unknown_calls_are_refused() -> None:
    with pytest.raises(ValueError, match="wrte"):
        FaultSystem(fail_at=1, calls={"wrte"})


def test_stopped_at_every_call(tmp_path: Path) -> None:
    """The state after each is what the calls before it made; the last run is not stopped."""
    states = []
    for at in range(1, 9):
        folder = tmp_path / str(at)
        folder.mkdir()
        (folder / "name").write_bytes(b"old")
        system = StopSystem(stop_at=at)
        descriptors = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
        try:
            save(system, folder)
        except Stopped:
            with pytest.raises(Stopped):
                system.unlink(folder / "name")
        system.bury()
        if descriptors:
            assert len(os.listdir("/proc/self/fd")) == descriptors
        states.append({path.name: path.read_bytes() for path in folder.iterdir()})
    old = {"name": b"old"}
    assert states == [
        old, old | {"new": b""}, old | {"new": b"head"}, old | {"new": b"head12345"}, old | {"new": b"head12345"},
        {"name": b"head12345"}, {"name": b"head12345"}, {"name": b"head12345"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("at", "torn", "left"), [(2, 3, b"hea"), (2, 0, b""), (3, 4, b"head1234"), (3, 99, b"head12345")]
)
def test_a_torn_write(tmp_path: Path, at: int, torn: int, left: bytes) -> None:
    system = StopSystem(stop_at=at, torn=torn)
    with pytest.raises(Stopped):
        save(system, tmp_path)
    system.bury()
    assert (tmp_path / "new").read_bytes() == left
    assert not issubclass(Stopped, Exception)


def test_the_trace_and_its_order(tmp_path: Path) -> None:
    system = TraceSystem()
    save(system, tmp_path)
    assert [call.name for call in system.log] == [
        "open", "pwrite", "pwritev", "fsync", "close", "rename", "fsync_dir",
    ]  # fmt: skip
    (vector,) = system.matching(name="pwritev")
    assert (vector.path, vector.offset, vector.nbytes, vector.result) == (str(tmp_path / "new"), 4, 5, 5)
    system.assert_order(
        {"name": {"pwrite", "pwritev"}}, {"name": "fsync"}, {"name": "rename", "path": str(tmp_path / "name")}
    )
    with pytest.raises(AssertionError, match="came after"):
        system.assert_order({"name": "pwrite", "offset": 0}, {"name": {"pwrite", "pwritev"}})
    with pytest.raises(AssertionError, match="no call"):
        system.assert_order({"name": "unlink"}, {"name": "fsync"})
    assert len(system.matching(nbytes=lambda nbytes: nbytes > 4)) == 1


def test_traces_of_faults_hold_the_error(tmp_path: Path) -> None:
    system = TraceSystem(FaultSystem(fail_at=1))
    with pytest.raises(OSError):
        save(system, tmp_path)
    assert system.log[-1].result.errno == errno.ENOSPC
