"""The root ``posix`` reads and writes ordinary files: a descriptor, `pread` and `pwrite`.

Knows: descriptors, through a `System`. Does not know: MPI-IO. Of the ranks that may share the file it knows that one of
them changes its size.

Rules
-----
1. Nothing is kept between calls: after `write` has returned, `read` of another process sees the bytes.
2. `collective` has no effect here; each rank reads and writes its own bytes.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers import vectored_io
from pnc_vol.drivers.base import Capabilities, Memory, OpenContext, Ranks
from pnc_vol.drivers.root import Root
from pnc_vol.drivers.vectored_io import get_extents, put_extents
from pnc_vol.extents.model import Extents, before
from pnc_vol.ranks.comm import Comm
from pnc_vol.system import REAL, System
from pnc_vol.system.full_io import read_at, write_all

if TYPE_CHECKING:
    from typing_extensions import Self

    from pnc_vol.drivers.mmap_guard import GuardedMap
    from pnc_vol.drivers.vectored_io import Bytes

__all__ = [
    "Descriptor",
    "PosixDriver",
]


# ---------------------------------------------------------------------------------------------------------- descriptor
# A file by its descriptor: a whole posix file, and the independent calls of one rank in a file of MPI-IO.
#
# Knows: descriptors, extents, ranks' nodes. Does not know: views, collective calls.
#
# Where all ranks are on one node, the system keeps one copy of the file in memory for all of them: what a rank writes
# by a descriptor, another one can read by MPI-IO, and the other way round, without any message. A call of MPI-IO costs
# several times what the system's does.
#
# Rules
# -----
# 1. Beside MPI-IO there is a descriptor only if all ranks are on one node and have opened the same regular file, and
#    then on all ranks.
# 2. Ranks of several nodes get none: two nodes may each have a copy of their own.
# 3. A rank that cannot open the file is named in an error that all ranks raise.


_UNSIGNED, _SIGNED = struct.Struct("<2Q"), struct.Struct("<2q")

_LEAST, _LONGEST = 32, 16384
"""Pieces below which, and bytes of a piece from which on, a call for each costs no more than a look."""
_PIECES_AT_ONCE, _BYTES_AT_ONCE = 1 << 16, 8 << 20
"""What is copied at once: its indices should stay in the cache."""


class Descriptor:
    """An open descriptor, which `close` gives back unless it is `lent`.

    Parameters
    ----------
    system : System
    fd : int
    path : str or None
        For messages.
    """

    def __init__(self, system: System, fd: int, path: str | None = None, *, lent: bool = False) -> None:
        self._lent = lent
        self.system = system
        self.fd = fd
        self.named = False
        """Whether `link` stands for the open file, on all ranks."""
        self._path = path
        self._window: GuardedMap | None = None

    @classmethod
    def of(cls, path: str, ranks: Comm, *, writable: bool, system: System) -> Descriptor | None:
        """Open the file on all ranks, which are on one node, or on none (collective).

        Raises
        ------
        OSError
            A rank cannot open it: the same on all ranks, and the text names the rank.
        """
        fd = -1
        try:
            with ranks.errors_shared():
                fd = system.open(path, os.O_RDWR if writable else os.O_RDONLY)
                there = system.fstat(fd)
                device, number = _SIGNED.unpack(_UNSIGNED.pack(there.st_dev, there.st_ino))
                other, unnamed = not stat.S_ISREG(there.st_mode), not _is_link_to(system, fd, there)
                agreed, _ = ranks.agree("open file", (device, ~device, number, ~number, other, unnamed))
        except BaseException:
            if fd >= 0:
                system.close(fd)
            raise
        if agreed[0] != ~agreed[1] or agreed[2] != ~agreed[3] or agreed[4]:
            system.close(fd)
            return None
        made = cls(system, fd, path)
        made.named = not agreed[5]
        return made

    @property
    def link(self) -> str:
        """A path of the open file in this process, whatever its name has become; see `named`."""
        return _link(self.fd)

    def put(self, buffers: memoryview | list[memoryview], offset: int) -> int:
        """Write all; the calls that it took."""
        return write_all(self.system, self.fd, buffers, offset)

    def get(self, buffers: memoryview | list[memoryview], offset: int) -> int:
        """Read as far as the file goes; bytes."""
        return read_at(self.system, self.fd, buffers, offset)

    def read(self, extents: Extents, memory: Bytes) -> tuple[int, int]:
        """Return bytes of the extents that were read, and calls."""
        if self.system is REAL and len(extents.length) >= _LEAST:
            longest = int(extents.length.max())
            if longest <= _LONGEST:
                return self._read_small(extents, memory, longest)
        return get_extents(extents, memory, self.get)

    def _read_small(self, extents: Extents, memory: Bytes, longest: int) -> tuple[int, int]:
        """Return the same for small pieces, copied from the file's own bytes as long as these can be had; see
        `look`."""
        vectored_io.check(extents, memory)
        step = min(_PIECES_AT_ONCE, _BYTES_AT_ONCE // max(longest, 1))
        for first in range(0, len(extents.offset), step):
            part = Extents(*(column[first : first + step] for column in extents))
            # Not into `memory` yet: a file that is cut meanwhile must leave what it does not hold any more as it was.
            packed = np.empty(part.nbytes, np.uint8)

            def use(file: Bytes, part: Extents = part, packed: Bytes = packed) -> None:
                vectored_io.copy_pieces(packed, before(part.length), file, part.offset, part.length)

            if not self.look(int((part.offset + part.length).max()), part.nbytes, use):
                nbytes, calls = get_extents(Extents(*(column[first:] for column in extents)), memory, self.get)
                return int(extents.length[:first].sum()) + nbytes, first // step + calls
            vectored_io.copy_pieces(memory, part.place, packed, before(part.length), part.length)
        return extents.nbytes, -(-len(extents.offset) // step)

    def look(self, end: int, nbytes: int, use: Callable[[Bytes], None]) -> bool:
        """See `GuardedMap.look`; False where the file is not to be mapped."""
        if self._window is None:
            if self.system is not REAL:
                # a system that stands in for the real one sees every read
                return False
            from pnc_vol.drivers import mmap_guard

            self._window = mmap_guard.GuardedMap(self.system, self.fd)
        return self._window.look(end, use, nbytes)

    def size(self) -> int:
        """Return the number of bytes of the file."""
        return self.system.fstat(self.fd).st_size

    def resize(self, nbytes: int, mpi: Any) -> None:
        """Cut or extend the file; all ranks of a communicator together, if there is one."""
        if mpi is None or mpi.Get_size() == 1:
            self.system.ftruncate(self.fd, nbytes)
            return
        # One rank does it, after every rank's earlier writes and before any rank's later ones: a second rank's cut
        # could take away what the first has written by then.
        mpi.Barrier()
        number = np.zeros(1, np.int64)
        if mpi.Get_rank() == 0:
            try:
                self.system.ftruncate(self.fd, nbytes)
            except OSError as error:
                number[0] = error.errno or errno.EIO
        mpi.Bcast(number, root=0)
        if number[0]:
            raise OSError(int(number[0]), f"{os.strerror(int(number[0]))} (resize to {nbytes} bytes)", self._path)

    def sync(self) -> None:
        """Bring what any process wrote to the file to stable storage."""
        self.system.fdatasync(self.fd)

    def close(self) -> None:
        """Give the descriptor back."""
        if self._window is not None:
            self._window.close()
        if not self._lent:
            self.system.close(self.fd)
            # a second call does nothing
            self._lent = True


def _link(fd: int) -> str:
    return f"/proc/self/fd/{fd}"


def _is_link_to(system: System, fd: int, there: os.stat_result) -> bool:
    """Return whether the system has a path for an open descriptor; Linux does, where ``/proc`` is mounted."""
    try:
        found = system.stat(_link(fd))
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (there.st_dev, there.st_ino)


SMALL = 64 << 10
"""Bytes of a read or a write during which other threads may wait, since it takes no longer than to let them in."""


class PosixDriver(Root):
    """A file of the operating system.

    Parameters
    ----------
    fd : int
        An open descriptor; the driver closes it unless it is `lent`.
    path : str or None
        For messages, as is `shown`, a name that the user knows, if it is another one.
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
        shown: str = "",
    ) -> None:
        super().__init__(path, writable=writable, shown=shown)
        self._file = Descriptor(system, fd, shown or path, lent=lent)
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
        return cls(fd, path, writable=context.writable, system=system, comm=context.comm, lent=lent, shown=context.name)

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
