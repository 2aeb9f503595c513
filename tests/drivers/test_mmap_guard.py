"""Looking at a mapped file: what is seen, and that a file which is cut never ends the process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from pnc_vol.drivers.mmap_guard import GuardedMap, _calls
from pnc_vol.system import REAL

pytestmark = pytest.mark.skipif(_calls() is None, reason="files are looked at on Linux, x86_64 and aarch64, alone")

PAGE = os.sysconf("SC_PAGESIZE")
SIZE = 64 * PAGE

PREPARED = """
import os, signal, sys
import numpy as np
from pnc_vol.drivers.mmap_guard import GuardedMap
from pnc_vol.system import REAL
fd = os.open(sys.argv[1], os.O_RDWR)
size = os.fstat(fd).st_size
window = GuardedMap(REAL, fd, anywhere=True)
"""


def run(program: str, path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PREPARED + program, str(path), *more], capture_output=True, text=True, timeout=120
    )


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


def test_the_file_is_seen_as_it_is(fd, path):
    window = GuardedMap(REAL, fd, anywhere=True)
    seen = []
    assert window.look(SIZE, lambda file: seen.append(bytes(file[10:20])))
    os.pwrite(fd, b"0123456789", 10)
    assert window.look(20, lambda file: seen.append(bytes(file[10:20])))
    assert seen == [seen[0], b"0123456789"]
    window.close()
    assert not window.look(20, lambda file: seen.append(b""))


def test_a_file_that_grew_is_mapped_anew(fd):
    window = GuardedMap(REAL, fd, anywhere=True)
    assert window.look(1, lambda file: None)
    assert not window.look(SIZE + 1, lambda file: None)
    os.pwrite(fd, b"more", SIZE)
    seen = []
    assert window.look(SIZE + 4, lambda file: seen.append(bytes(file[SIZE : SIZE + 4])))
    assert seen == [b"more"]


def test_what_is_seen_cannot_be_written(fd):
    def use(file):
        with pytest.raises(ValueError, match="read-only"):
            file[0] = 1

    assert GuardedMap(REAL, fd, anywhere=True).look(1, use)


def test_a_file_that_was_cut_before_is_not_seen(fd):
    window = GuardedMap(REAL, fd, anywhere=True)
    assert window.look(SIZE, lambda file: None)
    os.ftruncate(fd, PAGE)
    assert not window.look(SIZE, lambda file: file.sum())
    # Within the last page there is no signal, and zeros are what one sees.
    assert not window.look(PAGE + 1, lambda file: file[PAGE])
    assert window.look(PAGE, lambda file: file[:PAGE].sum())


def test_a_file_that_grew_again_is_seen_again(fd):
    window = GuardedMap(REAL, fd, anywhere=True)
    assert window.look(SIZE, lambda file: None)
    os.ftruncate(fd, 0)
    assert not window.look(SIZE, lambda file: file.sum())
    os.pwrite(fd, b"x" * SIZE, 0)
    seen = []
    assert window.look(SIZE, lambda file: seen.append(bytes(file[-3:])))
    assert seen == [b"xxx"]


def test_a_cut_during_a_look_ends_no_process(path):
    done = run(
        """
def use(file):
    os.ftruncate(fd, 0)
    print(np.frombuffer(file, ">f8").astype("f8").sum())
print(window.look(size, use))
""",
        path,
    )
    assert (done.returncode, done.stdout) == (0, "0.0\nFalse\n"), done.stderr


def test_without_the_guard_it_would(path):
    done = run(
        """
import mmap
held = np.frombuffer(mmap.mmap(fd, size, prot=mmap.PROT_READ), np.uint8)
os.ftruncate(fd, 0)
held.sum()
""",
        path,
    )
    assert done.returncode == -signal.SIGBUS


def test_a_blocked_signal_ends_no_process(path):
    done = run(
        """
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGBUS])
def use(file):
    os.ftruncate(fd, 0)
    file.sum()
print(window.look(size, use), signal.SIGBUS in signal.pthread_sigmask(signal.SIG_BLOCK, []))
""",
        path,
    )
    assert (done.returncode, done.stdout) == (0, "False True\n"), done.stderr


@pytest.mark.parametrize("how", ["os.kill(os.getpid(), signal.SIGBUS)", "other.sum()"])
def test_another_signal_is_not_swallowed(path, tmp_path, how):
    other = tmp_path / "other"
    other.write_bytes(bytes(4 * PAGE))
    done = run(
        f"""
import mmap
mine = os.open(sys.argv[2], os.O_RDWR)
other = np.frombuffer(mmap.mmap(mine, os.fstat(mine).st_size), np.uint8)
os.ftruncate(mine, 0)
window.look(size, lambda file: {how})
""",
        path,
        str(other),
    )
    assert done.returncode == -signal.SIGBUS


def test_who_stood_there_before_gets_his_signals(path):
    done = run(
        """
signal.signal(signal.SIGBUS, lambda *_: print("mine"))
def use(file):
    os.ftruncate(fd, 0)
    file.sum()
print(window.look(size, use))
os.kill(os.getpid(), signal.SIGBUS)
print("end")
""",
        path,
    )
    assert (done.returncode, done.stdout) == (0, "False\nmine\nend\n"), done.stderr


def test_a_file_that_is_cut_and_grows_all_the_time(path):
    """Two threads look while another process cuts: each look is whole or says that it is not."""
    cuts = """
print("ready", flush=True)
while True:
    os.ftruncate(fd, 0)
    os.pwrite(fd, bytes([7]) * size, 0)
"""
    looks = """
import threading
def looks():
    for _ in range(1500):
        window.look(size, lambda file: np.unique(file[::64]))
threads = [threading.Thread(target=looks) for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("alive")
"""
    command = [sys.executable, "-c", PREPARED + cuts, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as cutter:
        assert cutter.stdout is not None
        cutter.stdout.readline()
        try:
            done = run(looks, path)
        finally:
            cutter.kill()
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr


def test_several_threads_look_at_once(fd):
    window = GuardedMap(REAL, fd, anywhere=True)
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
    window = GuardedMap(REAL, fd, anywhere=True)
    before = signal.getsignal(signal.SIGBUS)
    with pytest.raises(ZeroDivisionError):
        window.look(1, lambda file: 1 // 0)
    assert signal.getsignal(signal.SIGBUS) is before
    assert window.look(1, lambda file: None)


def test_what_is_no_file_is_not_mapped():
    read, write = os.pipe()
    assert not GuardedMap(REAL, read, anywhere=True).look(1, lambda file: None)
    os.close(read)
    os.close(write)
