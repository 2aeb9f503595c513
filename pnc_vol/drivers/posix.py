"""The root for ordinary files: a descriptor, `pread` and `pwrite`.

Knows: descriptors, through a `System`. Does not know: MPI-IO. Of the ranks that may share the file it knows that one of
them changes its size.

Rules
-----
1. Nothing is kept between calls: after `write` has returned, `read` of another process sees the bytes.
2. `collective` has no effect here; each rank reads and writes its own bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from pnc_vol.drivers.base import Capabilities, Memory, OpenContext, Ranks
from pnc_vol.drivers.descriptor import Descriptor
from pnc_vol.drivers.root import Root
from pnc_vol.drivers.vectored_io import put_extents
from pnc_vol.extents.model import Extents
from pnc_vol.system import REAL, System

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["PosixDriver"]

SMALL = 64 << 10
"""Bytes of a read or a write during which other threads may wait, since it takes no longer than to let them in."""


class PosixDriver(Root):
    """A file of the operating system.

    Parameters
    ----------
    fd : int
        An open descriptor; the driver closes it unless it is `lent`.
    path : str or None
        For messages.
    writable : bool
    system : System
    comm : Ranks or None
        Who shares the file.
    lent : bool

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
    capabilities = Capabilities(concurrent=True, mapping=True, takes_descriptor=True)

    def __init__(
        self,
        fd: int,
        path: str | None = None,
        *,
        writable: bool = True,
        system: System = REAL,
        comm: Ranks | None = None,
        lent: bool = False,
    ) -> None:
        super().__init__(path, writable=writable)
        self._file = Descriptor(system, fd, path, lent=lent)
        self._comm = comm

    @classmethod
    def open(cls, path: str | None, context: OpenContext) -> Self:
        """Open a file that exists, or use the descriptor of the context.

        Parameters
        ----------
        path, context
            As for every root.

        Raises
        ------
        OSError
            `FileNotFoundError`, `PermissionError`, `IsADirectoryError`, or what else the system says.
        """
        if path is None:
            raise ValueError("The posix driver needs the path of a file")
        fd, system = context.fd, context.system
        lent = fd >= 0
        if not lent:
            fd = system.open(path, os.O_RDWR if context.writable else os.O_RDONLY)
        return cls(fd, path, writable=context.writable, system=system, comm=context.comm, lent=lent)

    def _read(self, extents: Extents, memory: Memory, collective: bool) -> tuple[int, int]:
        return self._file.read(extents, memory)

    def _look(self, end: int, nbytes: int, use: Callable[[Memory], None]) -> bool:
        return self._file.look(end, nbytes, use)

    def read_one(self, array: npt.NDArray[Any], offset: int) -> int:
        nbytes = array.nbytes
        if nbytes <= SMALL and self._file.system is REAL:
            # In a third of the time that `read` takes, which costs more than the system's call.
            use = self._use
            buffer: Any = array
            with use.lock:
                try:
                    whole = not use.closed and REAL.pread_into(self._file.fd, buffer, offset) == nbytes
                except OSError:  # told below; `suppress` would take as long as the call
                    whole = False
                if whole:
                    counts = self._counts
                    counts["read_calls"] += 1
                    counts["read_bytes"] += nbytes
                    return nbytes
        # What went wrong goes wrong again, and is told. A system that stands in for the real one is given bytes.
        return super().read_one(array, offset)

    def write_one(self, data: bytes | memoryview, offset: int) -> None:
        nbytes = len(data)
        if 0 < nbytes <= SMALL and self.writable and self._file.system is REAL:
            # As `read_one`; what could not be written whole is written again, and told.
            use = self._use
            with use.lock:
                try:
                    whole = not use.closed and REAL.pwrite(self._file.fd, data, offset) == nbytes
                except OSError:
                    whole = False
                if whole:
                    self._note_written(1, nbytes, offset + nbytes)
                    return
        super().write_one(data, offset)

    def _write(self, extents: Extents, memory: Memory, collective: bool) -> int:
        return put_extents(extents, memory, self._file.put)

    def _size(self) -> int:
        return self._file.size()

    def _resize(self, nbytes: int) -> None:
        self._file.resize(nbytes, None if self._comm is None else self._comm.mpi)

    def _sync(self) -> None:
        self._file.sync()

    def _close(self) -> None:
        self._file.close()
