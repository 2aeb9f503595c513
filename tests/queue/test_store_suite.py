"""Stores by the public suite: memory, the spill file, the log, and the example of another package."""

from __future__ import annotations

import importlib.util
import pathlib
import sys
import types

import pnc_vol
from pnc_vol.testing.store_suite import StoreSuite, queue_of

FOLDER = pathlib.Path(__file__).parents[2] / "examples" / "plugin_store"


def example() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("pnc_vol_zipped", FOLDER / "pnc_vol_zipped.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class TestMemory(StoreSuite):
    store = "memory"


class TestSpill(StoreSuite):
    """Posts go to memory, and from there to the spill file."""

    store = "memory"

    def between(self, file: pnc_vol.File) -> None:
        queue_of(file).spill()
        assert not queue_of(file).memory.batches


class TestLog(StoreSuite):
    store = "log"


class TestZipped(StoreSuite):
    store = example().ZippedStore.open
