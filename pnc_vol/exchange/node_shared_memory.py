"""Memory that the ranks of one node share.

Knows: ranks, files in memory. Does not know: extents, what is put there.

Rules
-----
1. The memory is a file without a name that rank 0 makes and the others open by its descriptor: nothing is left behind,
   however the job ends, and the space is reserved, so that touching it never fails.
2. If any of this is missing or refused on any rank, there is no shared memory, and all ranks know it.
"""

from __future__ import annotations

import os
import struct

import numpy as np
import numpy.typing as npt

from pnc_vol.ranks.comm import Comm
from pnc_vol.system import REAL

__all__ = ["shared_memory"]

_TOLD = struct.Struct("<qqq16s")


def shared_memory(comm: Comm, nbytes: int) -> npt.NDArray[np.uint8] | None:
    """uint8[nbytes] that all ranks have in common, or None on all of them (collective).

    It is given back when the last array of it is gone. Ask only for ranks of one node.
    """
    fd, found, told = -1, None, b""
    token = os.urandom(16)
    if comm.rank == 0:
        try:
            fd = REAL.memory_file()
            REAL.fallocate(fd, 0, nbytes)
            found = _mapped(fd, nbytes)
            found[:16] = np.frombuffer(token, np.uint8)
            told = _TOLD.pack(REAL.getpid(), fd, nbytes, token)
        except (OSError, ValueError, MemoryError):
            found = None
    try:
        told = comm.from_root("flush memory", told)
        if comm.rank and told:
            found = _opened(*_TOLD.unpack(told))
        # Until all have it open, the one who made it keeps it.
        missing = comm.reduce("flush memory", [found is None])[0][0]
    finally:
        if fd >= 0:
            REAL.close(fd)
    return None if missing else found


def _mapped(fd: int, nbytes: int) -> npt.NDArray[np.uint8]:
    return np.frombuffer(REAL.mmap(fd, nbytes), np.uint8)


def _opened(pid: int, number: int, nbytes: int, token: bytes) -> npt.NDArray[np.uint8] | None:
    """The memory that another process made; None if it cannot be had or is another one's."""
    try:
        fd = REAL.open(f"/proc/{pid}/fd/{number}", os.O_RDWR | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        if REAL.fstat(fd).st_size != nbytes:
            return None
        found = _mapped(fd, nbytes)
        return found if found[:16].tobytes() == token else None
    except (OSError, ValueError, MemoryError):
        return None
    finally:
        REAL.close(fd)
