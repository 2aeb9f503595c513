"""A file by MPI-IO alone: what one rank moves by itself where there is no descriptor beside it.

Knows: mpi4py's files. Does not know: collective reads and writes, views.

It has the methods of `Descriptor`, so that `mpio` need not ask which of the two it has.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from pnc_vol.drivers.byte_copy import Bytes
from pnc_vol.drivers.mpi_library import os_errors
from pnc_vol.drivers.vectored_io import get_extents
from pnc_vol.extents.model import Extents

__all__ = ["MpiFile"]


class MpiFile:
    """An open file of MPI-IO, which its user closes.

    Parameters
    ----------
    file : mpi4py.MPI.File
        Its view is plain bytes.
    path : str
        For messages.
    round_bytes : int
        Bytes of one MPI call at most.
    lock : RLock
        Held in every call: not every MPI lets two threads in at once.
    """

    def __init__(self, file: Any, path: str, round_bytes: int, lock: AbstractContextManager[Any]) -> None:
        self._file = file
        self._path = path
        self._round = round_bytes
        self._lock = lock

    def put(self, buffers: memoryview | list[memoryview], offset: int) -> int:
        """Write all; the calls that it took."""
        from mpi4py import MPI

        status = MPI.Status()
        calls = 0
        for view in buffers if isinstance(buffers, list) else [buffers]:
            while view.nbytes:
                part = view[: self._round]
                with self._lock, os_errors(self._path, f"write of {part.nbytes} bytes at offset {offset}"):
                    self._file.Write_at(offset, [part, part.nbytes, MPI.BYTE], status)
                done = int(status.Get_count(MPI.BYTE))
                if done <= 0:
                    raise OSError(errno.EIO, f"MPI-IO wrote 0 of {part.nbytes} bytes at offset {offset}", self._path)
                # Open MPI says so when it wrote less; writing on brings the reason out.
                view, offset, calls = view[done:], offset + done, calls + 1
        return calls

    def get(self, buffers: memoryview | list[memoryview], offset: int) -> int:
        """Read as far as the file goes; bytes."""
        from mpi4py import MPI

        status = MPI.Status()
        done = 0
        for view in buffers if isinstance(buffers, list) else [buffers]:
            for start in range(0, view.nbytes, self._round):
                part = view[start : start + self._round]
                with self._lock, os_errors(self._path, f"read of {part.nbytes} bytes at offset {offset + done}"):
                    self._file.Read_at(offset + done, [part, part.nbytes, MPI.BYTE], status)
                got = int(status.Get_count(MPI.BYTE))
                done += got
                if got < part.nbytes:
                    return done
        return done

    def read(self, extents: Extents, memory: Bytes) -> tuple[int, int]:
        """Bytes of the extents that were read, and calls."""
        return get_extents(extents, memory, self.get)

    def look(self, end: int, nbytes: int, use: Callable[[Bytes], None]) -> bool:
        """False: there is nothing to map."""
        return False

    def size(self) -> int:
        """Bytes of the file."""
        with self._lock, os_errors(self._path, "size"):
            return int(self._file.Get_size())

    def resize(self, nbytes: int, mpi: Any) -> None:
        """Cut or extend the file; all ranks together."""
        with self._lock, os_errors(self._path, f"resize to {nbytes} bytes"):
            # No rank's earlier write may come after the cut.
            mpi.Barrier()
            self._file.Set_size(nbytes)

    def sync(self) -> None:
        """Nothing: all ranks sync the open file together."""

    def close(self) -> None:
        """Nothing: all ranks close the open file together."""
