"""What the wrapper promises: order, epochs, memory, locks, forks, the end of the process."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import select
import struct
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from full_disk import Failing
from holding import HeldHeaders
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kills import ended, forked, kill_after
from other_process import fresh
from this_system import needs_record_locks

from pnc_vol.errors import ForkedFileError, PncVolWarning
from pnc_vol.testing.driver_suite import Driver, Extents, Model, extents_of, open_stack
from pnc_vol.testing.faults import HookedSystem

steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(16, 300), st.integers(1, 120)),
        st.tuples(st.sampled_from(["flush", "read", "drain", "release"]), st.just(0), st.just(0)),
    ),
    max_size=16,
)


class Slow(HookedSystem):
    """Reads and writes take a random time."""

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name in ("pwrite", "pread_into", "copy_range", "pwritev", "preadv"):
            time.sleep(random.random() * 0.0005)
        return super().call(name, args, kwargs)


def piece(offset: int, nbytes: int) -> Extents:
    return extents_of((offset, nbytes, 0))


def opened(tmp_path: Path, options: str = "", system: Any = None, **told: Any) -> tuple[Driver, Path]:
    path, nvm = tmp_path / "x", tmp_path / "nvm"
    nvm.mkdir(exist_ok=True)
    path.write_bytes(b"")
    options = f", {options}" if options else ""
    return open_stack(f"cache(path='{nvm}'{options}) | posix", str(path), system=system or HookedSystem(), **told), path


@pytest.mark.parametrize(
    "options", ["threads=1", "threads=4, copy_size=64", "threads=3, in_flight=20000, mode=coherent"]
)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=steps)
def test_the_last_write_wins_and_the_header_waits(
    tmp_path: Path, options: str, program: list[tuple[str, int, int]]
) -> None:
    """Headers are one byte, the number of the flush; bytes from 16 on are data, written with numbers that grow."""
    driver, path = opened(tmp_path, options, Slow())
    model, headers, number, flushed = Model(), HeldHeaders(driver), 0, 0
    at_flush: list[bytes] = [b""]
    for verb, offset, nbytes in program:
        if verb == "write":
            number += 1
            memory = np.full(nbytes, number, np.uint8)
            driver.write(piece(offset, nbytes), memory)
            model.write(piece(offset, nbytes), memory)
        elif verb == "flush":
            at_flush.append(bytes(model.content))
            flushed += 1
            headers.flush(bytes([flushed]))
        elif verb == "read":
            memory = np.zeros(len(model.content), np.uint8)
            assert driver.read(piece(0, memory.nbytes), memory) == memory.nbytes
            assert memory[16:].tobytes() == bytes(model.content[16:])
        elif verb == "drain":
            driver.holder.drain()
        else:
            headers.follow()
        there = path.read_bytes()
        known = at_flush[there[0] if there else 0]
        short = [i for i in range(16, len(known)) if i >= len(there) or there[i] < known[i]]
        assert not short, "the header in the file never describes data that are not there"
    headers.close()
    if flushed:
        model.write(piece(0, 1), np.full(1, flushed, np.uint8))
    assert path.read_bytes() == bytes(model.content)


def test_a_full_bound_writes_through_in_order(tmp_path: Path) -> None:
    driver, path = opened(tmp_path, "in_flight=50000, flush=flush_onclose")
    driver.write(piece(0, 40000), np.full(40000, 1, np.uint8))
    driver.write(piece(100, 30000), np.full(30000, 2, np.uint8))
    assert driver.statistics()["cache.through_bytes"] == 30000
    assert path.read_bytes()[100:30100] == b"\2" * 30000
    driver.close()
    assert path.read_bytes() == b"\1" * 100 + b"\2" * 30000 + b"\1" * 9900


def test_phases_and_statistics(tmp_path: Path) -> None:
    driver, _ = opened(tmp_path, "threads=2")
    seen: list[Any] = []
    driver.holder.observe(seen.append)
    driver.write(piece(0, 1 << 20), np.ones(1 << 20, np.uint8))
    driver.holder.drain()
    names = {phase.name for phase in seen}
    assert {"copy to cache", "sync write", "non-hidden sync"} <= names
    assert {phase.thread for phase in seen if phase.name == "sync write"} <= {1, 2}
    counts = driver.statistics()
    assert counts["cache.write_bytes"] == counts["cache.synced_bytes"] == 1 << 20
    assert counts["cache.unsynced_bytes"] == 0
    assert counts["cache.sync_seconds"] > 0
    driver.close()


@needs_record_locks
def test_a_coherent_reader_of_another_process_waits_for_the_data(tmp_path: Path) -> None:
    driver, path = opened(tmp_path, "mode=coherent, flush=flush_onclose")
    driver.write(piece(1000, 500), np.full(500, 7, np.uint8))
    taken = struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 1200, 1, 0)
    with open(path, "rb") as other, pytest.raises(BlockingIOError):
        fcntl.fcntl(other, fcntl.F_OFD_SETLK, taken)
    child, told = forked(lambda pipe: read_coherently(tmp_path, pipe))
    assert os.read(told, 4) == b"asks"
    assert not select.select([told], [], [], 0.5)[0]
    driver.holder.drain()
    assert os.read(told, 3) == b"\7\7."
    kill_after(child, told, 0)
    with open(path, "rb") as other:
        fcntl.fcntl(other, fcntl.F_OFD_SETLK, taken)
    driver.close()


def read_coherently(folder: Path, pipe: int) -> None:
    spec = f"cache(path='{folder / 'nvm'}', mode=coherent) | posix"
    driver = open_stack(spec, str(folder / "x"), writable=False)
    memory = np.zeros(500, np.uint8)
    os.write(pipe, b"asks")
    driver.read(piece(1000, 500), memory)
    os.write(pipe, bytes([memory.min(), memory.max()]) + b".")


def test_a_cut_gives_back_the_locks_of_what_is_gone(tmp_path: Path) -> None:
    driver, _ = opened(tmp_path, "mode=coherent, flush=flush_onclose")
    driver.write(piece(0, 8), np.full(8, 5, np.uint8))
    driver.resize(3)
    driver.resize(6)
    memory = np.ones(6, np.uint8)
    assert driver.read(piece(0, 6), memory) == 6
    assert memory.tobytes() == b"\5\5\5\0\0\0"
    driver.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_can_neither_use_nor_harm_it(tmp_path: Path) -> None:
    driver, path = opened(tmp_path, "flush=flush_onclose")
    driver.write(piece(0, 8), np.arange(8, dtype=np.uint8))

    def child() -> None:
        with pytest.raises(ForkedFileError):
            driver.write(piece(0, 8), np.zeros(8, np.uint8))
        driver.close()

    ended(child)
    driver.close()
    assert path.read_bytes() == bytes(range(8))


held: list[Driver] = []


def left_open(folder: str) -> None:
    held.append(opened(Path(folder), "flush=flush_onclose")[0])
    held[0].write(piece(0, 1000), np.full(1000, 3, np.uint8))


def test_the_end_of_the_process_waits_for_the_data(tmp_path: Path) -> None:
    assert fresh(left_open, tmp_path).returncode == 0
    assert (tmp_path / "x").read_bytes() == b"\3" * 1000


def test_a_cache_that_cannot_be_made_is_trouble_and_the_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"")
    driver = open_stack(f"cache(path='{tmp_path / 'none'}') | posix", str(path))
    assert "none" in driver.holder.trouble()
    driver.write(piece(0, 3), np.ones(3, np.uint8))
    with pytest.warns(PncVolWarning, match="the cache .e10_cache. is off from here"):
        driver.holder.drain(stop=driver.holder.trouble())
    assert driver.holder.hints()["e10_cache"] == "disable"
    driver.write(piece(3, 3), np.full(3, 2, np.uint8))
    assert path.read_bytes() == b"\1\1\1\2\2\2"
    driver.close()


def test_two_threads_of_a_program(tmp_path: Path) -> None:
    driver, path = opened(tmp_path, "threads=2", Slow())

    def work(mine: int) -> None:
        for i in range(30):
            driver.write(extents_of((100 * i + 50 * mine, 50, 0)), np.full(50, mine + i, np.uint8))

    threads = [threading.Thread(target=work, args=(mine,)) for mine in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    driver.close()
    found = np.frombuffer(path.read_bytes(), np.uint8).reshape(30, 2, 50)
    assert (found == np.arange(30).reshape(30, 1, 1) + np.arange(2).reshape(1, 2, 1)).all()


@pytest.mark.parametrize("flush", ["flush_immediate", "flush_onclose"])
def test_without_threads_the_program_carries_the_data_itself(
    flush: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system gives no more threads, or the interpreter ends: Python 3.12.1 starts none at its end."""

    def refused(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    driver, path = opened(tmp_path, f"flush={flush}")
    driver.write(piece(0, 1000), np.full(1000, 3, np.uint8))
    driver.holder.drain()
    assert path.read_bytes() == b"\3" * 1000
    driver.write(piece(1000, 8), np.arange(8, dtype=np.uint8))
    driver.close()
    assert path.read_bytes() == b"\3" * 1000 + bytes(range(8))


class Counting(Failing):
    """Counts the writes that failed."""

    failed = 0

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return super().call(name, args, kwargs)
        except OSError as error:
            self.failed += error.errno == errno.EIO
            raise


@pytest.mark.parametrize("mended", [False, True])
def test_of_what_was_tried_again_the_last_time_counts(mended: bool, tmp_path: Path) -> None:
    """A flush that comes late is told of one error of the same bytes, and of none if they are in the file."""
    (tmp_path / "out").mkdir()
    system = Counting(tmp_path / "out" / "x")
    (tmp_path / "out" / "x").write_bytes(b"")
    stack = f"cache(path='{tmp_path}', flush=flush_immediate) | posix"
    driver = open_stack(stack, str(tmp_path / "out" / "x"), system=system)
    system.error = errno.EIO
    driver.write(piece(0, 1000), np.full(1000, 3, np.uint8))

    def tried(times: int) -> None:
        end = time.monotonic() + 20
        while system.failed < times or driver.read(piece(0, 8), np.empty(8, np.uint8)) < 8:
            assert time.monotonic() < end
            time.sleep(0.001)
        # the thread notes it then
        time.sleep(0.05)

    tried(1)
    system.error = 0 if mended else errno.EIO
    driver.end_flush()
    if mended:
        driver.holder.drain()
    else:
        tried(2)
    found = driver.holder.failures()
    assert len(found) == (not mended)
    system.error = 0
    driver.holder.drain()
    driver.close()
    assert (tmp_path / "out" / "x").read_bytes() == b"\3" * 1000
