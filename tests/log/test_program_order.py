"""The state machine of the queue in memory, on a log: rounds, capacity, and devices that fail."""

from __future__ import annotations

import warnings
from typing import Any

import posting_machine as order
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

import pnc_vol
from pnc_vol.system import REAL
from pnc_vol.testing.faults import FaultSystem


class LogMachine(order.Machine):
    """The same rules; the options say that there is a log."""

    @initialize(
        reserve=st.sampled_from([None, 0, 20000]),
        publish=st.sampled_from(["create", "create", "close"]),
        rounds=st.sampled_from([0, 1, 100_000]),
        capacity=st.sampled_from([0, 0, 20_000, 400_000]),
        sync=st.sampled_from(["none", "none", "flush", "each"]),
    )
    def open(self, reserve: int | None, publish: str, rounds: int, capacity: int, sync: str) -> None:
        self.system = FaultSystem(REAL, fail_at=0, calls=order.FAILING | {"fallocate", "mmap", "fdatasync"})
        self.options: dict[str, Any] = {
            "header_reserve": reserve,
            "publish": publish,
            "system": self.system,
            "burst_buf": True,
            "burst_buf_flush_buffer_size": rounds,
            "burst_buf_capacity": capacity,
            "burst_buf_sync": sync,
        }
        self.version = "CDF-5"
        self.f = pnc_vol.File(self.path, "w", buffer_size=order.BUDGET, **self.options)

    @rule(after=st.integers(1, 12), mode=st.sampled_from(["once", "short", "forever", "short-forever"]))
    def fail_to_flush(self, after: int, mode: str) -> None:
        """A failed fsync is the end of a log that is synced: the close says so, writes all, and keeps the log."""
        super().fail_to_flush(after, mode)
        if self.f.id.handle.session.disk.sync_error is not None:
            with pytest.raises(OSError, match="durability is no longer promised"):
                self.f.flush()
            with warnings.catch_warnings(), pytest.raises(OSError, match="durability is no longer promised"):
                warnings.simplefilter("ignore", pnc_vol.errors.PncVolWarning)
                self.f.close()
            self.finished()
            self.f = pnc_vol.File(self.path, "r+", buffer_size=order.BUDGET, recover=True, **self.options)
            self.check_all()

    @invariant()
    def bounded(self) -> None:
        if hasattr(self, "f") and self.f:
            queue = self.f.id.handle.session.posted.queue
            assert queue.used <= 2 * order.BUDGET


TestOrder = pytest.mark.timeout(300)(LogMachine.TestCase)
TestOrder.settings = settings(max_examples=40, stateful_step_count=50)
