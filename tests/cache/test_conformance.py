"""The public suite over stacks with a cache."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from pnc_vol.testing.driver_suite import Driver, DriverSuite, open_stack


class CacheSuite(DriverSuite):
    """A stack whose cache is in a directory of the test: the path and `options` go into the brackets of `stack`."""

    stack = "cache({}) | posix"
    options = ""

    @pytest.fixture(autouse=True)
    def where(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "nvm"
        self.folder.mkdir()

    def make(self, path: str, *, writable: bool = True) -> Driver:
        return open_stack(self.stack.format(f"path='{self.folder}'{self.options}"), path, writable=writable)

    def test_nothing_is_left_of_the_cache(self, path: str) -> None:
        with contextlib.closing(self.make(path)) as driver:
            assert list(self.folder.iterdir())
            driver.sync()
        assert not list(self.folder.iterdir())


class TestImmediate(CacheSuite):
    pass


class TestThreads(CacheSuite):
    options = ", threads=4, copy_size=1000"


class TestAtTheClose(CacheSuite):
    options = ", flush=flush_onclose, threads=2"


class TestCoherent(CacheSuite):
    options = ", mode=coherent, threads=3"


class TestBounded(CacheSuite):
    options = ", in_flight=100, capacity=5000"


class TestTraced(CacheSuite):
    stack = "trace | cache({}) | posix"


class TestMemory(CacheSuite):
    stack = "cache({}) | memory"
    persistent = False
