"""A driver of another package: reads back what is written and compares, for storage that is not trusted.

pip install examples/plugin_driver
File(path, "w", driver="verify | posix")
File(path, "w", driver="verify(retries=2) | mpio")
"""

from __future__ import annotations

import errno
from typing import Any

import numpy as np

from pnc_vol.drivers.base import Driver, Memory, Wrapper
from pnc_vol.extents.model import Extents, before


class VerifyDriver(Wrapper):
    """Raises `OSError` (EIO) if the file does not hold what was written to it a moment ago.

    Parameters
    ----------
    inner : Driver
    retries : int
        Times that a differing write is done again before it is an error.
    """

    name = "verify"

    def __init__(self, inner: Driver, *, retries: int = 0) -> None:
        super().__init__(inner)
        self.retries = retries
        self.verified = self.differing = 0

    def write(self, extents: Extents, memory: Memory, *, collective: bool = False) -> None:
        self.inner.write(extents, memory, collective=collective)
        # Fill values are written to many places from the same memory: what is read back has memory of its own.
        pieces = [memory[a : a + n] for a, n in zip(extents.place.tolist(), extents.length.tolist(), strict=True)]
        wanted = np.concatenate(pieces) if pieces else memory[:0]
        apart = extents._replace(place=before(extents.length))
        for attempt in range(self.retries + 1):
            found = ~wanted  # so that a byte that is not read never passes for one that is equal
            self.inner.read(apart, found)
            if np.array_equal(found, wanted):
                self.verified += extents.nbytes
                return
            self.differing += 1
            if attempt < self.retries:
                self.inner.write(extents, memory)
        raise OSError(errno.EIO, "What was written is not what is read back", self.path)

    def statistics(self) -> dict[str, Any]:
        mine = {"verify.verified_bytes": self.verified, "verify.differing": self.differing}
        return mine | self.inner.statistics()
