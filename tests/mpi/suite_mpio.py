"""The public suite of drivers on stacks over MPI-IO, in a process that MPI was started in: `test_conformance` runs it.

Its name keeps it from being collected with the other tests: MPI is started once in a process and ends with it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mpi4py import MPI

from pnc_vol.testing.driver_suite import DriverSuite, open_stack

assert MPI.Is_initialized()


class TestMpio(DriverSuite):
    stack = "mpio"


class TestMpioInSmallCalls(DriverSuite):
    stack = "mpio(round_bytes=1000)"


class TestMpioWithoutTypes(DriverSuite):
    stack = "mpio(derived_types=false)"


class CacheSuite(DriverSuite):
    """`{}` in the stack is the directory of a cache."""

    @pytest.fixture(autouse=True)
    def where(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def make(self, path: str, *, writable: bool = True) -> Any:
        return open_stack(self.stack.format(f"path='{self.folder}'"), path, writable=writable)


class TestCache(CacheSuite):
    stack = "cache({}, threads=2) | mpio"


class TestCoherentCache(CacheSuite):
    stack = "cache({}, mode=coherent) | mpio"
