"""Two wrappers live for one flush: a layout of a file that cannot be replaced by a rename, and progress.

Knows: the driver protocol. Does not know: why there is a new layout.

Rules
-----
1. Until `end_flush` all verbs go to the copy, and what is below stays as it was. Then the copy's bytes are written
   there.
2. If that fails nothing is lost: the copy goes on being the content, and the next `end_flush` tries again.
3. Without a copy it passes everything on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy.typing as npt

from pnc_vol.drivers.base import Capabilities, Driver, Memory, Wrapper
from pnc_vol.drivers.block_copy import copy_blocks
from pnc_vol.extents.model import Extents, one_extent

__all__ = [
    "ProgressDriver",
    "StagedDriver",
]


class StagedDriver(Wrapper):
    """What `copy` holds, until the end of the flush brings it to `inner`.

    Parameters
    ----------
    inner : Driver
    copy : Driver
        Belongs to this driver from now on.

    Examples
    --------
    >>> from pnc_vol.drivers.memory import MemoryDriver
    >>> below = MemoryDriver(b"old content")
    >>> driver = StagedDriver(below, MemoryDriver(b"new"))
    >>> driver.size(), below.content()
    (3, b'old content')
    >>> driver.end_flush()
    >>> below.content()
    b'new'
    """

    name = "staged"

    def __init__(self, inner: Driver, copy: Driver) -> None:
        super().__init__(inner)
        self._copy: Driver | None = copy
        # No verb may come between bringing the bytes over and going on below.
        self._lock = threading.RLock()

    @classmethod
    def declares(cls, below: Capabilities) -> Capabilities:
        return below._replace(holds_back=True)

    @property
    def _content(self) -> Driver:
        return self.inner if self._copy is None else self._copy

    def read(self, extents: Extents, memory: Memory, *, collective: bool = False) -> int:
        with self._lock:
            return self._content.read(extents, memory, collective=collective)

    def read_one(self, array: npt.NDArray[Any], offset: int) -> int:
        with self._lock:
            return self._content.read_one(array, offset)

    def look(self, end: int, nbytes: int, use: Callable[[Memory], None]) -> bool:
        with self._lock:
            return self._content.look(end, nbytes, use)

    def write(self, extents: Extents, memory: Memory, *, collective: bool = False) -> None:
        with self._lock:
            self._content.write(extents, memory, collective=collective)

    def size(self) -> int:
        with self._lock:
            return self._content.size()

    def resize(self, nbytes: int) -> None:
        with self._lock:
            self._content.resize(nbytes)

    def sync(self) -> None:
        with self._lock:
            self._bring()
            self.inner.sync()

    def grow(self, nbytes: int) -> None:
        with self._lock:
            self._content.grow(nbytes)

    def order(self) -> None:
        with self._lock:
            self._content.order()

    def end_flush(self) -> None:
        with self._lock:
            self._bring()
            self.inner.end_flush()

    def replace_with(self, copy: Driver) -> bool:
        with self._lock:
            left, self._copy = self._copy, copy
            if left is not None:
                left.close()
        return True

    def close(self) -> None:
        with self._lock:
            if self._copy is not None:
                self._copy.close()
            self.inner.close()

    def describe(self) -> str:
        return self.inner.describe()

    def _bring(self) -> None:
        """Bring the copy's bytes below, in blocks, and go on there."""
        copy = self._copy
        if copy is None:
            return
        nbytes = copy.size()
        copy_blocks(copy.read, self.inner.write, one_extent(0, nbytes, 0))
        if self.inner.size() > nbytes:
            self.inner.resize(nbytes)
        self._copy = None
        copy.close()


# ------------------------------------------------------------------------------------------------------------ progress
# How far the writing of a flush is, told to a function of the user while it goes on.
#
# Knows: bytes that go through. Does not know: flushes, requests, who shows it.


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
