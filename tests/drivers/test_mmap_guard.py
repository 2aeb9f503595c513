"""Looking at a mapped file: what is seen, and that a file which is cut never ends the process."""

from __future__ import annotations

import mmap
import os
import shutil
import signal
import threading
from typing import Any

import numpy as np
import pytest
from kills import forked, kill_after
from other_process import fresh

from pnc_vol.drivers.mmap_guard import GuardedMap, _calls
from pnc_vol.testing.faults import HookedSystem

pytestmark = pytest.mark.skipif(_calls() is None, reason="files are looked at on Linux, x86_64 and aarch64, alone")

PAGE = os.sysconf("SC_PAGESIZE")
SIZE = 64 * PAGE


def prepared(path: str) -> tuple[int, GuardedMap]:
    """In a process that a signal may end."""
    fd = os.open(path, os.O_RDWR)
    return fd, GuardedMap(HookedSystem(), fd, anywhere=True)


def looked(path: str) -> bool:
    """Look at all of a file, which is cut meanwhile."""
    fd, window = prepared(path)

    def use(file: Any) -> None:
        os.ftruncate(fd, 0)
        assert not np.frombuffer(file, ">f8").astype("f8").sum()

    return window.look(SIZE, use)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "bytes"
    path.write_bytes(np.random.default_rng(0).bytes(SIZE))
    return path


@pytest.fixture
def fd(path):
    fd = os.open(path, os.O_RDWR)
    yield fd
    os.close(fd)


def seen(window: GuardedMap, size: int, part: slice) -> bytes | None:
    """What a look at a file of that size finds; None if it is not shown."""
    found: list[bytes] = []
    return found[0] if window.look(size, lambda file: found.append(bytes(file[part]))) else None


def test_the_file_is_seen_as_it_is(fd):
    window = GuardedMap(HookedSystem(), fd, anywhere=True)
    assert seen(window, SIZE, slice(10, 20)) == os.pread(fd, 10, 10)
    os.pwrite(fd, b"0123456789", 10)
    assert seen(window, 20, slice(10, 20)) == b"0123456789"
    # it grows, and is mapped anew
    assert seen(window, SIZE + 1, slice(0)) is None
    os.pwrite(fd, b"more", SIZE)
    assert seen(window, SIZE + 4, slice(SIZE, None)) == b"more"
    # it is cut: within the last page there is no signal, and zeros are what one sees
    os.ftruncate(fd, PAGE)
    assert seen(window, SIZE, slice(None)) is None
    assert seen(window, PAGE + 1, slice(PAGE, None)) is None
    assert seen(window, PAGE, slice(PAGE)) == os.pread(fd, PAGE, 0)
    os.ftruncate(fd, 0)
    assert seen(window, SIZE, slice(None)) is None
    os.pwrite(fd, b"x" * SIZE, 0)
    assert seen(window, SIZE, slice(-3, None)) == b"xxx"
    window.close()
    assert seen(window, 20, slice(10)) is None


def test_what_is_seen_cannot_be_written(fd):
    def use(file):
        with pytest.raises(ValueError, match="read-only"):
            file[0] = 1

    assert GuardedMap(HookedSystem(), fd, anywhere=True).look(1, use)


def cut_during_a_look(path: str) -> None:
    print(looked(path))


def cut_with_the_signal_blocked(path: str) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGBUS])
    assert not looked(path)
    print(signal.SIGBUS not in signal.pthread_sigmask(signal.SIG_BLOCK, []))


def cut_with_a_handler(path: str) -> None:
    told: list[int] = []
    signal.signal(signal.SIGBUS, lambda number, _: told.append(number))
    assert not looked(path)
    assert not told
    os.kill(os.getpid(), signal.SIGBUS)
    print(told != [signal.SIGBUS])


@pytest.mark.parametrize("program", [cut_during_a_look, cut_with_the_signal_blocked, cut_with_a_handler])
def test_a_cut_during_a_look_ends_no_process(path, program):
    """Nor is the signal of somebody else's handler taken, or that of a program that blocks it let through."""
    done = fresh(program, path)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr


def cut_map(path: str) -> Any:
    """What is mapped without a guard, of a file that is cut then."""
    fd = os.open(path, os.O_RDWR)
    held = np.frombuffer(mmap.mmap(fd, SIZE, prot=mmap.PROT_READ), np.uint8)
    os.ftruncate(fd, 0)
    return held


def no_guard(path: str) -> None:
    cut_map(path).sum()


def other_map(path: str, other: str) -> None:
    held = cut_map(other)
    prepared(path)[1].look(SIZE, lambda file: held.sum())


def own_signal(path: str, other: str) -> None:
    prepared(path)[1].look(SIZE, lambda file: os.kill(os.getpid(), signal.SIGBUS))


@pytest.mark.parametrize("program", [no_guard, other_map, own_signal])
def test_another_signal_is_not_swallowed(path, tmp_path, program):
    """Without the guard a cut ends a process, and with it that of another file does."""
    other = shutil.copy(path, tmp_path / "other")
    assert fresh(program, *(path, other)[: 1 + (program is not no_guard)]).returncode == -signal.SIGBUS


def cut_and_grown(path: str) -> None:
    """Two threads look while another process cuts: each look is whole or says that it is not."""
    child, reading = forked(lambda told: cuts(path, told))
    os.read(reading, 1)
    _, window = prepared(path)

    def looks() -> None:
        for _ in range(1500):
            window.look(SIZE, lambda file: np.unique(file[::64]))

    threads = [threading.Thread(target=looks) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kill_after(child, reading, 0)
    print("alive")


def cuts(path: str, told: int) -> None:
    fd = os.open(path, os.O_RDWR)
    os.write(told, b".")
    while True:
        os.ftruncate(fd, 0)
        os.pwrite(fd, bytes([7]) * SIZE, 0)


def test_a_file_that_is_cut_and_grows_all_the_time(path):
    done = fresh(cut_and_grown, path)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr


def test_several_threads_look_at_once(fd):
    window = GuardedMap(HookedSystem(), fd, anywhere=True)
    together = threading.Barrier(4, timeout=60)
    found = []

    def look():
        found.append(window.look(SIZE, lambda file: (together.wait(), file.sum())))

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 4


def test_an_error_of_the_user_comes_through_and_leaves_no_handler(fd):
    window = GuardedMap(HookedSystem(), fd, anywhere=True)
    before = signal.getsignal(signal.SIGBUS)
    with pytest.raises(ZeroDivisionError):
        window.look(1, lambda file: 1 // 0)
    assert signal.getsignal(signal.SIGBUS) is before
    assert window.look(1, lambda file: None)


def test_what_is_no_file_is_not_mapped():
    read, write = os.pipe()
    assert not GuardedMap(HookedSystem(), read, anywhere=True).look(1, lambda file: None)
    os.close(read)
    os.close(write)
