"""How the posix driver calls the system: few calls, whole ones, and errors that stay errors."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from pnc_vol.errors import ClosedFileError
from pnc_vol.testing.driver_suite import Driver, Extents, extents_of, open_stack
from pnc_vol.testing.faults import FaultSystem, HookedSystem, TraceSystem


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "file").touch()
    return str(tmp_path / "file")


def opened(path: str, system: HookedSystem | None = None) -> Driver:
    return open_stack("posix", path, writable=True, system=system or HookedSystem())


def dealt(count: int, length: int, gap: int = 0) -> tuple[Extents, np.ndarray]:
    """Pieces in file order whose places are in the opposite order, and a memory of the right size."""
    step = np.arange(count, dtype=np.int64)
    extents = Extents(step * (length + gap), np.full(count, length), step[::-1] * length)
    return extents, np.random.default_rng(0).integers(1, 256, count * length, dtype=np.uint8)


def moved(system: TraceSystem, *names: str) -> int:
    return len(system.matching(name=names))


def test_pieces_that_touch_are_one_call(path: str) -> None:
    for count, length, calls in [(1, 100, 1), (10_000, 8, 1), (100, 10_000, 1), (60, 100_000, 60)]:
        system = TraceSystem()
        driver = opened(path, system)
        extents, memory = dealt(count, length)
        driver.write(extents, memory)
        assert moved(system, "pwrite", "pwritev") == driver.statistics()["posix.write_calls"] == calls, (count, length)
        back = np.zeros_like(memory)
        driver.read(extents, back)
        assert moved(system, "pread_into", "preadv") == calls
        assert np.array_equal(back, memory)
        driver.close()


def test_a_file_whose_end_was_written_is_not_asked_for_its_size(path: str) -> None:
    system = TraceSystem()
    driver = opened(path, system)
    memory = np.ones(64, np.uint8)
    driver.write(extents_of((0, 8, 0), (92, 8, 8)), memory)
    # pieces in any order: the last one alone is looked at, which is never too far
    driver.write(extents_of((60, 4, 0), (10, 4, 8)), memory)
    # what is empty is not written
    driver.write(extents_of((0, 4, 0), (500, 0, 8)), memory)
    driver.grow(100)
    assert not moved(system, "fstat")
    driver.grow(101)
    driver.grow(101)
    assert moved(system, "fstat") == 1
    assert driver.size() == 101
    driver.resize(50)
    driver.grow(101)
    assert driver.size() == 101
    driver.resize(200)
    driver.write(extents_of((250, 8, 0)), memory)
    driver.grow(258)
    assert driver.size() == 258
    driver.close()


def test_a_vector_is_cut_at_what_the_system_takes(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pnc_vol.system.full_io.IOV_MAX", 16)
    system = TraceSystem()
    driver = opened(path, system)
    extents, memory = dealt(100, 2000)
    driver.write(extents, memory)
    assert moved(system, "pwritev") == driver.statistics()["posix.write_calls"] == 7
    driver.close()


def test_long_pieces_go_straight_from_memory(path: str) -> None:
    class Watch(HookedSystem):
        addresses: list[int]

        def call(self, name, args, kwargs):
            if name == "pwrite":
                self.addresses.append(np.frombuffer(args[1], np.uint8).ctypes.data)
            return super().call(name, args, kwargs)

    system = Watch()
    system.addresses = []
    driver = opened(path, system)
    memory = np.zeros(400_000, np.uint8)
    driver.write(extents_of((0, 200_000, 200_000), (200_000, 200_000, 0)), memory)
    assert system.addresses == [memory.ctypes.data + 200_000, memory.ctypes.data]
    driver.close()


def test_reads_bridge_short_gaps_and_writes_touch_nothing_else(path: str) -> None:
    system = TraceSystem()
    driver = opened(path, system)
    extents, memory = dealt(500, 8, gap=24)
    driver.write(Extents(np.array([0]), np.array([16_000]), np.array([0])), np.full(16_000, 255, np.uint8))
    driver.write(extents, memory)
    assert moved(system, "pwrite", "pwritev") == 501
    back = np.zeros_like(memory)
    assert driver.read(extents, back) == memory.nbytes
    assert np.array_equal(back, memory)
    assert moved(system, "pread_into", "preadv") == 1
    driver.close()
    table = np.fromfile(path, np.uint8).reshape(500, 32)
    assert (table[:, 8:] == 255).all()


def test_far_pieces_are_not_bridged(path: str) -> None:
    system = TraceSystem()
    driver = opened(path, system)
    driver.resize(10_000_000)
    extents, memory = dealt(50, 8, gap=100_000)
    driver.read(extents, memory)
    assert sum(call.nbytes for call in system.matching(name={"pread_into", "preadv"})) == 400
    driver.close()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG])
def test_each_call_may_fail_and_the_same_write_works_later(path: str, number: int) -> None:
    extents, memory = dealt(40, 10, gap=3)
    at, fired = 1, True
    while fired:
        system = FaultSystem(fail_at=at, errno=number)
        driver = opened(path, system)
        try:
            driver.write(extents, memory)
        except OSError as error:
            assert system.fired, "an error without a fault"
            assert error.errno == number  # noqa: PT017
        else:
            assert not system.fired, "the fault was swallowed"
        fired = system.fired
        system.heal()
        driver.write(extents, memory)
        back = np.zeros_like(memory)
        assert driver.read(extents, back) == memory.nbytes
        assert np.array_equal(back, memory)
        driver.close()
        at += 1
    assert at == 42


@pytest.mark.parametrize(("count", "length"), [(40, 10), (40, 3000), (1, 100_000)])
def test_short_counts_are_written_on(path: str, count: int, length: int) -> None:
    extents, memory = dealt(count, length)
    driver = opened(path, FaultSystem(fail_at=1, mode="short"))
    driver.write(extents, memory)
    back = np.zeros_like(memory)
    assert driver.read(extents, back) == memory.nbytes
    assert np.array_equal(back, memory)
    driver.close()


def test_reads_fail_with_their_number(path: str) -> None:
    driver = opened(path, FaultSystem(fail_at=1, errno=errno.ESTALE, calls={"pread_into", "preadv"}))
    with pytest.raises(OSError) as caught:
        driver.read(extents_of((0, 1, 0)), np.zeros(1, np.uint8))
    assert caught.value.errno == errno.ESTALE
    driver.close()


def test_after_a_failed_sync_none_succeeds(path: str) -> None:
    driver = opened(path, FaultSystem(fail_at=2, errno=errno.EIO, calls={"fdatasync"}))
    driver.sync()
    for message in ("Input/output", "earlier sync"):
        with pytest.raises(OSError, match=message) as caught:
            driver.sync()
        assert caught.value.errno == errno.EIO
    assert driver.statistics()["posix.syncs"] == 1
    driver.close()


def test_sizes_that_cannot_be(path: str) -> None:
    driver = opened(path)
    with pytest.raises(ValueError, match="-1 bytes"):
        driver.resize(-1)
    driver.close()


def test_close_waits_for_a_write_in_another_thread(path: str) -> None:
    """Its descriptor would else be closed, and perhaps another file's, under the write."""
    inside, leave = threading.Event(), threading.Event()

    class Gate(HookedSystem):
        def call(self, name, args, kwargs):
            if name == "pwrite":
                inside.set()
                leave.wait(30)
            return super().call(name, args, kwargs)

    system = TraceSystem(Gate())
    driver = opened(path, system)
    memory = np.ones(4, np.uint8)
    writer = threading.Thread(target=driver.write, args=(extents_of((0, 4, 0)), memory))
    closer = threading.Thread(target=driver.close)
    writer.start()
    inside.wait(30)
    closer.start()
    while not driver.closed:
        time.sleep(0.001)
    with pytest.raises(ClosedFileError):
        driver.write(extents_of((0, 4, 0)), memory)
    leave.set()
    writer.join()
    closer.join()
    assert [call.name for call in system.log] == ["open", "pwrite", "close"]
    assert os.path.getsize(path) == 4
