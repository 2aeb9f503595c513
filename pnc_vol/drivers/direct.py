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

import errno
import os
import stat
from collections.abc import Callable
from typing import Any

import numpy as np

from pnc_vol.drivers.base import Ranks
from pnc_vol.drivers.gathering import LEAST, Gatherer
from pnc_vol.drivers.guarding import Window
from pnc_vol.drivers.pieces import Bytes, copy_pieces
from pnc_vol.extents.model import Int64
from pnc_vol.system import REAL, System, read_at, write_all

__all__ = ["Descriptor", "one_node"]


class Descriptor:
    """An open descriptor; see `of`."""

    def __init__(self, system: System, fd: int) -> None:
        self._system = system
        self._fd = fd
        # A system that stands in for the real one sees every read.
        self._gatherer = Gatherer(system, fd) if system is REAL else None
        self._window = Window(system, fd) if system is REAL else None

    @classmethod
    def of(cls, path: str, mpi: Any, *, writable: bool, system: System) -> Descriptor | None:
        """Open the file on all ranks of a communicator, which are on one node, or on none (collective)."""
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

    def gather(self, offset: Int64, length: Int64, memory: Bytes, place: Int64) -> int | None:
        """Many small pieces at once; see `Gatherer.read`."""
        if len(offset) >= LEAST:
            end = int((offset + length).max())
            if self.look(end, lambda file: copy_pieces(memory, place, file, offset, length)):
                return 1
        return self._gatherer.read(offset, length, memory, place) if self._gatherer is not None else None

    def look(self, end: int, use: Callable[[Bytes], None]) -> bool:
        """See `Window.look`; False where the file is not to be mapped."""
        return self._window is not None and self._window.look(end, use)

    def size(self) -> int:
        """Bytes of the file."""
        return self._system.fstat(self._fd).st_size

    def resize(self, nbytes: int, mpi: Any) -> None:
        """Cut or extend the file; all ranks together."""
        # One rank does it, after every rank's earlier writes and before any rank's later ones.
        mpi.Barrier()
        number = np.zeros(1, np.int64)
        if mpi.Get_rank() == 0:
            try:
                self._system.ftruncate(self._fd, nbytes)
            except OSError as error:
                number[0] = error.errno or errno.EIO
        mpi.Bcast(number, root=0)
        if number[0]:
            raise OSError(int(number[0]), f"{os.strerror(int(number[0]))} (resize to {nbytes} bytes)")

    def sync(self) -> None:
        """Bring what any process wrote to the file to stable storage."""
        self._system.fdatasync(self._fd)

    def close(self) -> None:
        """Give the descriptor back."""
        if self._gatherer is not None:
            self._gatherer.close()
        if self._window is not None:
            self._window.close()
        self._system.close(self._fd)


def one_node(comm: Ranks | None, mpi: Any) -> bool:
    """Whether all ranks are on one node (collective); `comm` may know."""
    if mpi.Get_size() == 1:
        return True
    known = getattr(comm, "node", None)
    if known is not None:
        return bool(known()[1] == mpi.Get_size())
    from mpi4py import MPI

    ours = mpi.Split_type(MPI.COMM_TYPE_SHARED)
    try:
        return bool(ours.Get_size() == mpi.Get_size())
    finally:
        ours.Free()
