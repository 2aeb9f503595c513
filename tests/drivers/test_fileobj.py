"""The driver of file-like objects: the public suite on several kinds of them, and objects that fail."""

from __future__ import annotations

import errno
import io
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pnc_vol
from pnc_vol.drivers.fileobj import FileObjectDriver
from pnc_vol.testing.driver_suite import Driver, DriverSuite, extents_of


class TestBytesIO(DriverSuite):
    persistent = False

    def make(self, path: str, *, writable: bool = True) -> Driver:
        return FileObjectDriver(io.BytesIO(), writable=writable)


class Closing(DriverSuite):
    """Closes the objects at the end of each test, which the driver does not."""

    @pytest.fixture(autouse=True)
    def targets(self) -> Iterator[None]:
        self.opened: list[Any] = []
        yield
        for target in self.opened:
            target.close()

    def on(self, target: Any, *, writable: bool) -> Driver:
        self.opened.append(target)
        return FileObjectDriver(target, writable=writable)


class TestUnbuffered(Closing):
    def make(self, path: str, *, writable: bool = True) -> Driver:
        return self.on(open(path, "r+b" if writable else "rb", buffering=0), writable=writable)


class TestSpooled(Closing):
    """It has no ``readinto`` before Python 3.11, and turns into a file on the way."""

    persistent = False

    def make(self, path: str, *, writable: bool = True) -> Driver:
        return self.on(tempfile.SpooledTemporaryFile(max_size=1000), writable=writable)


class Plain:
    """Only what h5py asks for, in small portions, without a position that is told."""

    def __init__(self, content: bytes = b"") -> None:
        self.inner = io.BytesIO(content)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self.inner.seek(offset, whence)

    def read(self, n: int = -1) -> bytes:
        return self.inner.read(min(n, 1000) if n >= 0 else n)

    def write(self, data: Any) -> int:
        return self.inner.write(bytes(memoryview(data)[:1000]))


def all_of(driver: Driver) -> bytes:
    memory = np.zeros(driver.size(), np.uint8)
    driver.read(extents_of((0, len(memory), 0)), memory)
    return memory.tobytes()


def test_an_object_with_three_methods() -> None:
    driver = FileObjectDriver(Plain(b"head"))
    values = np.arange(5000) % 251
    driver.write(extents_of((4, 5000, 0)), values.astype(np.uint8))
    assert all_of(driver) == b"head" + bytes(values.tolist())
    driver.resize(6000)
    assert driver.size() == 6000
    driver.sync()
    with pytest.raises(OSError, match="truncate"):
        driver.resize(10)
    driver.close()
    assert driver.target is None


def test_what_cannot_be_a_file_is_refused(tmp_path: Any) -> None:
    with pytest.raises(TypeError, match="binary"):
        FileObjectDriver(io.StringIO())
    with open(tmp_path / "x", "wb") as target, pytest.raises(io.UnsupportedOperation, match="read"):
        FileObjectDriver(target)
    with open(tmp_path / "x", "rb") as target, pytest.raises(OSError, match="written"):
        FileObjectDriver(target)
    with open(tmp_path / "x", "rb") as target:
        FileObjectDriver(target, writable=False).close()
        assert not target.closed
    reader, writer = os.pipe()
    with open(reader, "rb") as target, open(writer, "wb"), pytest.raises(OSError, match="sought"):
        FileObjectDriver(target, writable=False)


def test_an_object_that_writes_elsewhere_is_found_out(tmp_path: Any) -> None:
    (tmp_path / "x").write_bytes(b"0123456789")
    with open(tmp_path / "x", "a+b", buffering=0) as target, pytest.raises(OSError, match="mode 'a'"):
        FileObjectDriver(target).write(extents_of((2, 2, 0)), np.zeros(2, np.uint8))


class Failing(io.BytesIO):
    """Raises in one of its methods, as long as it is told so."""

    method = ""
    error: Exception = RuntimeError("I am broken")
    flushes = 0

    def flush(self) -> None:
        super().flush()
        self.flushes += 1

    def __getattribute__(self, name: str) -> Any:
        if name != "method" and name == self.method:

            def fail(*args: Any) -> Any:
                raise self.error

            return fail
        return super().__getattribute__(name)


@pytest.mark.parametrize(
    "error", [RuntimeError("broken"), OSError("no number"), OSError(errno.ENOSPC, "full")], ids=str
)
@pytest.mark.parametrize("method", ["seek", "write", "readinto", "truncate", "flush"])
def test_every_failure_is_an_os_error_that_says_where(method: str, error: Exception) -> None:
    target = Failing(b"x" * 100)
    driver = FileObjectDriver(target)
    driver.write(extents_of((0, 1, 0)), np.zeros(1, np.uint8))
    target.method, target.error = method, error
    calls = {
        "seek": driver.size,
        "write": lambda: driver.write(extents_of((3, 2, 0)), np.zeros(2, np.uint8)),
        "readinto": lambda: driver.read(extents_of((3, 2, 0)), np.zeros(2, np.uint8)),
        "truncate": lambda: driver.resize(10),
        "flush": driver.end_flush,
    }
    with pytest.raises(OSError) as caught:
        calls[method]()
    assert caught.value.errno == (error.errno if isinstance(error, OSError) and error.errno else errno.EIO)
    if caught.value.errno == errno.EIO:
        assert method in str(caught.value)
        assert str(error) in str(caught.value)
    target.method, before = "", target.flushes
    driver.end_flush()
    assert target.flushes == before + 1, "it had something to flush"
    driver.end_flush()
    assert target.flushes == before + 1, "and then nothing more"


def test_a_write_that_takes_nothing_is_an_error() -> None:
    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            return 0

    with pytest.raises(OSError, match="wrote none of 2 bytes at offset 3"):
        FileObjectDriver(Full()).write(extents_of((3, 2, 0)), np.zeros(2, np.uint8))


def test_a_new_layout_is_held_until_the_object_takes_it() -> None:
    target = Failing()
    with pnc_vol.File(target, "w", header_reserve=0) as f:
        f["x"] = np.arange(100)
        f.flush()
        f.attrs["long"], old = "a" * 5000, target.getvalue()
        target.method = "write"
        with pytest.raises(OSError, match="write"):
            f.flush()
        assert target.getvalue() == old
        assert f["x"][5] == 5
        target.method = ""
        f.flush()
        new = target.getvalue()
        assert f["x"][5] == 5
    with pnc_vol.File(io.BytesIO(new), strict=True) as f:
        assert (f.attrs["long"], f["x"][...].tolist()) == ("a" * 5000, list(range(100)))
