"""The root that most files have: a descriptor, `pread` and `pwrite`.

Knows: descriptors, through a `System`. Does not know: MPI-IO. Of the ranks that may share the file it knows that one of
them changes its size.

Rules
-----
1. Nothing is kept between calls: what `write` returned from, another process's `read` sees.
2. `collective` means nothing here; each rank moves its own bytes.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.base import Memory, Ranks
from pnc_vol.drivers.gathering import LEAST, PIECE, Gatherer
from pnc_vol.drivers.guarding import Window
from pnc_vol.drivers.moves import get_extents, put_extents
from pnc_vol.drivers.pieces import check, copy_pieces
from pnc_vol.drivers.root import Root
from pnc_vol.extents.model import Extents
from pnc_vol.system import CALL_BYTES, REAL, System, read_at, write_all

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["PosixDriver"]

_AT_ONCE = 1 << 16
"""Pieces that are copied at once: their indices should stay in the cache."""


class PosixDriver(Root):
    """A file of the operating system.

    Parameters
    ----------
    fd : int
        An open descriptor; the driver closes it.
    path : str or None
        For messages.
    writable : bool
    system : System
    comm : Ranks or None
        Who shares the file.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "a")
    >>> driver = PosixDriver(REAL.open(path, os.O_RDWR | os.O_CREAT), path)
    >>> extents = Extents(*np.array([[0, 8], [2, 2], [0, 2]]))  # offsets, lengths, places
    >>> driver.write(extents, np.frombuffer(b"abcd", np.uint8))
    >>> driver.size()
    10
    >>> driver.close()
    """

    name = "posix"
    concurrent = True

    def __init__(
        self,
        fd: int,
        path: str | None = None,
        *,
        writable: bool = True,
        system: System = REAL,
        comm: Ranks | None = None,
    ) -> None:
        super().__init__(path, writable=writable)
        self._fd = fd
        self._system = system
        self._comm = comm
        # A system that stands in for the real one sees every read.
        self._gatherer = Gatherer(system, fd) if system is REAL else None
        self._window = Window(system, fd) if system is REAL else None

    @classmethod
    def open(
        cls,
        path: str | None,
        *,
        writable: bool,
        system: System,
        comm: Ranks | None = None,
        hints: Mapping[str, str] | None = None,
    ) -> Self:
        """Open a file that exists.

        Raises
        ------
        OSError
            `FileNotFoundError`, `PermissionError`, `IsADirectoryError`, or what else the system says.
        """
        if path is None:
            raise ValueError("The posix driver needs the path of a file")
        return cls(
            system.open(path, os.O_RDWR if writable else os.O_RDONLY),
            path,
            writable=writable,
            system=system,
            comm=comm,
        )

    def _read(self, extents: Extents, memory: Memory, collective: bool) -> tuple[int, int]:
        system, fd = self._system, self._fd
        if self._seen(extents, memory):
            return extents.nbytes, 1
        return get_extents(
            extents,
            memory,
            lambda buffers, offset: read_at(system, fd, buffers, offset),
            gather=self._gatherer.read if self._gatherer else None,
        )

    def _seen(self, extents: Extents, memory: Memory) -> bool:
        """Copy small pieces from the file's own bytes, if they can be had; see `look`."""
        offset, length, place = extents
        if self._window is None or len(offset) < LEAST or int(length.max()) > PIECE:
            return False
        check(extents, memory)

        def use(file: Memory) -> None:
            for first in range(0, len(offset), _AT_ONCE):
                part = slice(first, first + _AT_ONCE)
                copy_pieces(memory, place[part], file, offset[part], length[part])

        # A file that is cut meanwhile must leave what it does not hold any more as it was: read again, it says so.
        before = memory.copy()
        if self._window.look(int((offset + length).max()), use, extents.nbytes):
            return True
        memory[:] = before
        return False

    def look(self, end: int, nbytes: int, use: Callable[[Memory], None]) -> bool:
        if self._window is None:
            return False
        with self._use:
            seen = self._window.look(end, use, nbytes)
        if seen:
            with self._use.lock:
                self._counts["read_calls"] += 1
                self._counts["read_bytes"] += nbytes
        return seen

    def _read_one(self, array: npt.NDArray[Any], offset: int) -> int:
        # A system that stands in for the real one is given bytes, which are a step more.
        if self._system is not REAL or array.nbytes > CALL_BYTES:
            return -1
        buffer: Any = array
        try:
            return REAL.pread_into(self._fd, buffer, offset)
        except OSError:
            return -1

    def _write(self, extents: Extents, memory: Memory, collective: bool) -> int:
        system, fd = self._system, self._fd
        return put_extents(extents, memory, lambda buffers, offset: write_all(system, fd, buffers, offset))

    def _size(self) -> int:
        return self._system.fstat(self._fd).st_size

    def _resize(self, nbytes: int) -> None:
        if self._comm is None or self._comm.size == 1:
            self._system.ftruncate(self._fd, nbytes)
            return
        # One rank does it, after every rank's earlier writes and before any rank's later ones: a second rank's cut
        # could take away what the first has written by then.
        mpi = self._comm.mpi
        mpi.Barrier()
        number = np.zeros(1, np.int64)
        if self._comm.rank == 0:
            try:
                self._system.ftruncate(self._fd, nbytes)
            except OSError as error:
                number[0] = error.errno or errno.EIO
        mpi.Bcast(number, root=0)
        if number[0]:
            raise OSError(int(number[0]), f"{os.strerror(int(number[0]))} (resize to {nbytes} bytes)", self.path)

    def _sync(self) -> None:
        self._system.fdatasync(self._fd)

    def _close(self) -> None:
        if self._gatherer is not None:
            self._gatherer.close()
        if self._window is not None:
            self._window.close()
        self._system.close(self._fd)
