"""How far the writing of a flush is, told to a function of the user while it goes on.

Knows: bytes that go through. Does not know: flushes, requests, who shows it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from pnc_vol.drivers.base import Driver, Memory, Wrapper
from pnc_vol.extents.model import Extents

__all__ = ["ProgressDriver"]


class ProgressDriver(Wrapper):
    """Calls a function after every write.

    Parameters
    ----------
    inner : Driver
    progress : callable
        ``progress(done, total)`` in bytes; one call at a time, whichever thread writes.
    total : int, bytes that are expected.
    """

    name = "progress"

    def __init__(self, inner: Driver, progress: Callable[[int, int], None], total: int) -> None:
        super().__init__(inner)
        self._progress, self._total, self._done = progress, total, 0
        self._turn = threading.Lock()

    def write(self, extents: Extents, memory: Memory, *, collective: bool = False) -> None:
        super().write(extents, memory, collective=collective)
        with self._turn:
            self._done += extents.nbytes
            self._progress(self._done, max(self._total, self._done))
