"""Stores by the public suite: memory, the spill file, the log, and the example of another package."""

from __future__ import annotations

import sys

import options

import pnc_vol
from pnc_vol import plugins
from pnc_vol.testing.store_suite import StoreSuite, queue_of

with plugins.restored():
    options.load_plugins("zipped")


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
    store = sys.modules["pnc_vol_zipped"].ZippedStore.open
