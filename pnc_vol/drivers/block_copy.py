"""`copy_blocks` copies bytes from one file to another, block by block, with a report of each block.

Knows: extents, what reads and what writes them, descriptors that the kernel can copy between. Does not know: layouts,
ranks, what is copied, who shows how far it is.

Memory does not grow with the files. The kernel copies where both ends are descriptors and it can (`copy_file_range`):
nothing comes to this process's memory then, and some file systems copy no byte at all. Short extents are read and
written together, as a call of the kernel for each would take longer than their bytes.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.vectored_io import get_extents, put_extents
from pnc_vol.extents.blocks import rounds
from pnc_vol.extents.model import Extents, before, one_extent
from pnc_vol.system import System
from pnc_vol.system.full_io import read_at, write_all

__all__ = ["BLOCK", "Descriptors", "copy_blocks", "copy_file"]

Bytes = npt.NDArray[np.uint8]

BLOCK = 8 << 20
"""Bytes of a block: more makes a copy no faster, and a report of each comes several times a second."""
_LONG = 64 << 10
"""Mean bytes of the extents of a block from which on a call of the kernel for each is worth it."""
_REFUSED = (
    errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF, errno.ETXTBSY,
)  # fmt: skip
"""What the kernel says where only reading and writing will do."""


class Descriptors:
    """Two open files of the operating system, or one whose two ranges do not overlap."""

    def __init__(self, system: System, source: int, target: int) -> None:
        self.system, self.source, self.target = system, source, target
        # The kernel refuses all blocks of two files if it refuses one.
        self._refused = False

    def read(self, extents: Extents, memory: Bytes) -> int:
        """Read extents of the source; bytes, fewer where it ends."""
        return get_extents(extents, memory, lambda buffers, at: read_at(self.system, self.source, buffers, at))[0]

    def write(self, extents: Extents, memory: Bytes) -> None:
        """Write extents of the target, by this process alone."""
        put_extents(extents, memory, lambda buffers, at: write_all(self.system, self.target, buffers, at))

    def by_kernel(self, part: Extents) -> bool:
        """Let the kernel copy a block; False if it is to be read and written, whatever is in the target by then."""
        if self._refused or part.nbytes < _LONG * len(part.length):
            return False
        for offset, length, place in zip(*(column.tolist() for column in part), strict=True):
            done = 0
            while done < length:
                at, to = offset + done, place + done
                try:
                    moved = self.system.copy_range(self.source, self.target, length - done, at, to)
                except InterruptedError:
                    continue
                except OSError as error:
                    if error.errno not in _REFUSED:
                        raise
                    moved = 0
                if not moved:
                    # 0 is also what some kernels say of files that have bytes, of /proc and of overlays.
                    self._refused = True
                    return False
                done += moved
        return True


def copy_blocks(
    read: Callable[[Extents, Bytes], int],
    write: Callable[[Extents, Bytes], object],
    pieces: Extents,
    *,
    by_kernel: Callable[[Extents], bool] | None = None,
    block: int = BLOCK,
    room: Bytes | None = None,
    share: tuple[int, int] = (0, 1),
    too_short: Callable[[], Exception] | None = None,
    note: Callable[[str, float, int], object] | None = None,
) -> int:
    """Copy pieces of a file; `place` is where they go in the target.

    Parameters
    ----------
    read : callable, reads extents of the source; its result is fewer bytes where the source ends.
    write : callable, writes extents of the target.
    pieces : Extents
    by_kernel : callable, optional, see `Descriptors.by_kernel`.
    block : int, bytes that are copied at a time, the most that is in memory.
    room : uint8[...], optional, memory of `block` bytes; made if it is needed and not given.
    share : (int, int), which of those that share the blocks this one is, and how many they are: each takes one in turn.
    too_short : callable, optional
        Gives the error to raise if the source ends before a piece. By default zeros stand for what it has not.
    note : callable, optional
        Called after each block that was read or written: ``note("read" or "write", when it began, bytes)``. What the
        kernel copies is written.

    Returns
    -------
    int
        Bytes copied here.

    Examples
    --------
    >>> from pnc_vol.drivers.memory import MemoryDriver
    >>> from pnc_vol.extents.model import one_extent
    >>> one, other = MemoryDriver(b"abcdef"), MemoryDriver(b"")
    >>> copy_blocks(one.read, other.write, one_extent(2, 6, 1), block=4), other.content()
    (6, b'\\x00cdef\\x00\\x00')
    """
    done = 0
    for number, part in enumerate(rounds(pieces, block)):
        if number % share[1] != share[0]:
            continue
        nbytes, start = part.nbytes, time.perf_counter()
        if by_kernel is None or not by_kernel(part):
            if room is None:
                room = np.empty(min(block, pieces.nbytes), np.uint8)
            packed = before(part.length)
            _read_whole(read, Extents(part.offset, part.length, packed), room[:nbytes], too_short)
            if note is not None:
                note("read", start, nbytes)
            start = time.perf_counter()
            write(Extents(part.place, part.length, packed), room[:nbytes])
        if note is not None:
            note("write", start, nbytes)
        done += nbytes
    return done


def copy_file(system: System, source: int, target: int) -> None:
    """Copy all bytes of an open file to the beginning of another one."""
    files = Descriptors(system, source, target)
    copy_blocks(files.read, files.write, one_extent(0, system.fstat(source).st_size), by_kernel=files.by_kernel)


def _read_whole(
    read: Callable[[Extents, Bytes], int],
    wanted: Extents,
    memory: Bytes,
    too_short: Callable[[], Exception] | None,
) -> None:
    if read(wanted, memory) < memory.nbytes:
        if too_short is not None:
            raise too_short()
        # What was read of the block before is still there.
        memory[:] = 0
        read(wanted, memory)
