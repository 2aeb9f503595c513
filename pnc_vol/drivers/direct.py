"""The file behind MPI-IO by a descriptor, for what one rank moves by itself.

Knows: descriptors, ranks' nodes. Does not know: extents, views, collective calls.

Where all ranks are on one node, the system keeps one copy of the file in memory for all of them: what a rank writes by
a descriptor another one finds by MPI-IO, and the other way round, without a word between them. A call of MPI-IO costs
several times what the system's does.

Rules
-----
1. Only if all ranks are on one node and have opened the same regular file is there a descriptor, and then on all ranks.
2. Ranks of several nodes get none: two nodes may each have a copy of their own.
"""

from __future__ import annotations

import os
import stat
from typing import Any

import numpy as np

from pnc_vol.drivers.gathering import Gatherer
from pnc_vol.system import REAL, System, read_at, write_all

__all__ = ["Descriptor"]


class Descriptor:
    """An open descriptor; see `of`."""

    def __init__(self, system: System, fd: int) -> None:
        self._system = system
        self._fd = fd
        self._gatherer = Gatherer(system, fd) if system is REAL else None
        self.gather = self._gatherer.read if self._gatherer else None

    @classmethod
    def of(cls, path: str, mpi: Any, *, writable: bool, system: System) -> Descriptor | None:
        """Open the file on all ranks of a communicator, or on none (collective)."""
        if not _one_node(mpi):
            return None
        fd = -1
        try:
            fd = system.open(path, os.O_RDWR if writable else os.O_RDONLY)
            found = system.fstat(fd)
            mine = (int(stat.S_ISREG(found.st_mode)), found.st_dev, found.st_ino)
        except OSError:
            mine = (0, 0, 0)
        told = np.empty((mpi.Get_size(), 3), np.uint64)
        mpi.Allgather(np.array(mine, np.uint64), told)
        if told[0, 0] and bool((told == told[0]).all()):
            return cls(system, fd)
        if fd >= 0:
            system.close(fd)
        return None

    def put(self, buffers: memoryview | list[memoryview], offset: int) -> int:
        """Write all; the calls that it took."""
        return write_all(self._system, self._fd, buffers, offset)

    def get(self, buffers: memoryview | list[memoryview], offset: int) -> int:
        """Read as far as the file goes; bytes."""
        return read_at(self._system, self._fd, buffers, offset)

    def size(self) -> int:
        """Bytes of the file."""
        return self._system.fstat(self._fd).st_size

    def sync(self) -> None:
        """Bring what any process wrote to the file to stable storage."""
        self._system.fdatasync(self._fd)

    def close(self) -> None:
        """Give the descriptor back."""
        if self._gatherer is not None:
            self._gatherer.close()
        self._system.close(self._fd)


def _one_node(mpi: Any) -> bool:
    from mpi4py import MPI

    if mpi.Get_size() == 1:
        return True
    ours = mpi.Split_type(MPI.COMM_TYPE_SHARED)
    try:
        return bool(ours.Get_size() == mpi.Get_size())
    finally:
        ours.Free()
