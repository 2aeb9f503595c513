"""Every call of the cache files and of the global file fails in turn: an error or a fallback, and nothing is lost."""

from __future__ import annotations

import errno
import os
import re
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from full_disk import OfFolder
from holding import HeldHeaders

import pnc_vol
from pnc_vol.errors import PncVolWarning
from pnc_vol.testing.driver_suite import Driver, Model, extents_of, open_stack
from pnc_vol.testing.faults import FaultSystem

CALLS = {
    "open", "pwrite", "pwritev", "ftruncate", "fallocate", "copy_range", "pread_into", "preadv", "mkdir", "mmap",
    "flock", "unlink", "rmdir", "close",
}  # fmt: skip


def insist(system: FaultSystem, verb: Callable[[], Any]) -> list[OSError]:
    """Do something; after an error once more, without faults."""
    try:
        verb()
    except OSError as error:
        system.heal()
        verb()
        return [error]
    return []


def life(driver: Driver, headers: HeldHeaders, system: FaultSystem, model: Model) -> list[OSError]:
    """Four epochs with overlaps, reads in between, a cut, and a header each, of which the last one does not follow."""
    told: list[OSError] = []
    rng = np.random.default_rng(3)

    def write(*pieces: tuple[int, int, int]) -> None:
        extents, memory = extents_of(*pieces), rng.integers(0, 256, 6000, dtype=np.uint8)
        told.extend(insist(system, lambda: driver.write(extents, memory)))
        model.write(extents, memory)

    def flush(reach: int) -> None:
        header = rng.integers(0, 256, 64, dtype=np.uint8)
        headers.flush(header.tobytes(), reach)
        # it is there in the end
        model.write(extents_of((0, 64, 0)), header)
        model.resize(max(len(model.content), reach))

    for epoch in range(3):
        write((100, 3000, 0))
        write((2000 + epoch, 1500, 0), (5000, 700, 2000), (9000 * (epoch + 1), 10, 10))
        write((2500, 900, 100))
        back, expected = np.zeros(4000, np.uint8), np.zeros(4000, np.uint8)
        told.extend(insist(system, lambda back=back: driver.read(extents_of((64, 4000, 0)), back)))  # type: ignore[misc]
        model.read(extents_of((64, 4000, 0)), expected)
        assert back.tobytes() == expected.tobytes()
        flush(40_000)
        if not epoch:
            told.extend(insist(system, driver.sync))
            told.extend(insist(system, headers.follow))
    told.extend(insist(system, driver.holder.drain))
    told.extend(insist(system, headers.follow))
    told.extend(insist(system, lambda: driver.resize(7000)))
    model.resize(7000)
    write((6990, 20, 0))
    flush(7500)
    return told


@pytest.mark.filterwarnings("ignore:.*the log of this cache cannot be ended")
@pytest.mark.parametrize("options", ["", "flush=flush_onclose, threads=3", "mode=coherent, copy_size=500"])
@pytest.mark.parametrize("where", ["cache", "file"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_each_call_in_turn(tmp_path: Path, options: str, where: str, number: int) -> None:
    folder = {"cache": tmp_path / "nvm", "file": tmp_path / "global"}
    for each in folder.values():
        each.mkdir()
    path, fail_at, reached, seen, replayed = str(folder["file"] / "x"), 0, True, 0, 0
    again = 5 if where == "file" and "coherent" not in options else 0
    while reached and fail_at < 150:
        fail_at += 1
        Path(path).write_bytes(b"")
        mode = ("once", "forever")[fail_at % 2] if where == "file" else "forever"
        system, model = OfFolder(folder[where], calls=CALLS, fail_at=fail_at, errno=number, mode=mode), Model()
        text = f"cache(path='{folder['cache']}'{', ' + options if options else ''}) | posix"
        try:
            driver = open_stack(text, path, system=system)
        except OSError:
            assert where == "file", "a cache that cannot be made is trouble, not an error"
            continue
        headers = HeldHeaders(driver)
        told = life(driver, headers, system, model)
        trouble = driver.holder.trouble()
        told += insist(system, driver.holder.drain)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                headers.close()
            except OSError as error:
                told.append(error)
        at_close = " ".join(str(one) for one in (*told[-1:], *(one.message for one in warned)))
        # While the note beside the file cannot be changed, the folder that it names stays, with an empty log.
        if where == "file" and (kept := [str(one.parent) for one in folder["cache"].glob("*/*.cache")]):
            # Nobody can ask a closed driver to try again: it says where the data are, and how they get to the file.
            where_and_how = f"data stay in the cache file {re.escape(kept[0])}/.*'pnc-vol replay' brings them"
            assert re.search(where_and_how, at_close)
            replayed += bool(pnc_vol.replay(path, kept).headers)
        reached = system.fired
        if not reached and not replayed and again:
            # Threads make more or fewer calls each time: the one that writes the last header was passed over.
            again, fail_at, reached = again - 1, max(fail_at - 8, 0), True
        assert Path(path).read_bytes() == bytes(model.content), (fail_at, system.fired)
        if where == "cache" and reached:
            assert not told or all(error.errno == number for error in told)
        seen += bool(told or trouble)
        for left in folder["cache"].glob("*/*"):
            left.unlink()
        for left in folder["cache"].iterdir():
            left.rmdir()
    assert not reached
    assert seen > 5, "faults were noticed"
    # In a coherent cache a thread may have written each header before its fault, so none need be left for the close.
    assert replayed or where == "cache" or "coherent" in options, "headers that the close could not write were kept"
    assert not (replayed and where == "cache")


def test_a_failed_byte_of_the_file_is_told_with_all_that_helps(tmp_path: Path, nvm: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"")
    system = FaultSystem(fail_at=0, errno=errno.EDQUOT, mode="forever", calls={"pwrite", "copy_range"})

    class OfTheFile(FaultSystem):
        def call(self, name, args, kwargs):
            target = args[1] if name == "copy_range" else args[0] if name == "pwrite" else -1
            if target >= 0 and os.readlink(f"/proc/self/fd/{target}") == str(path):
                raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
            return getattr(self.inner, name)(*args, **kwargs)

    broken = OfTheFile(system, fail_at=0)
    driver = open_stack(f"cache(path='{nvm}') | posix", str(path), system=broken)
    driver.write(extents_of((40, 8, 0)), np.arange(8, dtype=np.uint8))
    with pytest.raises(
        OSError, match=r"bytes 40 to 48 could not be synchronised.*the data stay in the cache file"
    ) as told:
        driver.holder.drain()
    assert told.value.errno == errno.EDQUOT
    assert str(nvm) in str(told.value)
    driver.end_flush()
    (lost,) = wait_for_failures(driver)
    assert (lost.offset, lost.nbytes, lost.error.errno) == (40, 8, errno.EDQUOT)
    assert driver.holder.synced_epoch() == 0
    broken.call = lambda name, args, kwargs: getattr(broken.inner, name)(*args, **kwargs)  # type: ignore[method-assign]
    driver.holder.drain()
    assert driver.holder.synced_epoch() == 1
    driver.close()
    assert path.read_bytes()[40:] == bytes(range(8))


def wait_for_failures(driver: Driver) -> list[Any]:
    for _ in range(500):
        if found := driver.holder.failures():
            return found
        threading.Event().wait(0.01)
    raise AssertionError("no thread told of an error")


def test_what_could_not_be_carried_stays_when_the_file_is_closed(tmp_path: Path, nvm: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"")
    system = FaultSystem(fail_at=0, errno=errno.EIO, mode="forever", calls={"copy_range", "preadv", "pread_into"})
    driver = open_stack(f"cache(path='{nvm}', flush=flush_onclose) | posix", str(path), system=system)
    driver.write(extents_of((0, 8, 0)), np.arange(8, dtype=np.uint8))
    system.fail_at = system.count + 1
    with pytest.raises(OSError, match="the data stay in the cache file"):
        driver.close()
    (kept,) = nvm.glob("*/*.cache")
    assert kept.read_bytes()[:8] == bytes(range(8))


@pytest.mark.parametrize("error", [MemoryError("no memory"), KeyboardInterrupt()])
def test_a_thread_that_dies_is_noticed_and_replaced(tmp_path: Path, nvm: Path, error: BaseException) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"")
    dying = [error]

    class Dying(FaultSystem):
        def call(self, name, args, kwargs):
            if name in ("copy_range", "pread_into", "preadv") and dying:
                raise dying.pop()
            return getattr(self.inner, name)(*args, **kwargs)

    # Nothing is carried before it is asked for: what a thread lost earlier, and another one carried since, is no news.
    driver = open_stack(f"cache(path='{nvm}', flush=flush_onclose) | posix", str(path), system=Dying(fail_at=0))
    driver.write(extents_of((0, 8, 0)), np.arange(8, dtype=np.uint8))
    with pytest.raises(OSError, match=f"a sync thread ended with {type(error).__name__}"):
        driver.holder.drain()
    driver.holder.drain()
    driver.close()
    assert path.read_bytes() == bytes(range(8))


def test_flush_none_keeps_the_file_and_says_so(tmp_path: Path, nvm: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"")
    driver = open_stack(f"cache(path='{nvm}', flush=flush_none) | posix", str(path))
    driver.write(extents_of((0, 8, 0)), np.arange(8, dtype=np.uint8))
    with pytest.warns(PncVolWarning, match="data stay in the cache file"):
        driver.close()
    assert path.read_bytes() == b""
    (kept,) = nvm.glob("*/*.cache")
    assert kept.read_bytes()[:8] == bytes(range(8))
    assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.parent.stat().st_mode & 0o777 == 0o700
