"""The root ``memory`` keeps the bytes of a file in this process's memory.

Knows: numpy. Does not know: files, but for the one it may be filled from when it is opened.

Rules
-----
1. What was never written reads as zeros, as a hole of a file does.
2. Nothing is written to disk; the content is lost at `close`.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import numpy as np

from pnc_vol.drivers.base import Capabilities, Driver, Memory, OpenContext
from pnc_vol.drivers.root import Root
from pnc_vol.drivers.vectored_io import check, copy_pieces, in_order
from pnc_vol.extents.model import Extents
from pnc_vol.system import exists
from pnc_vol.system.full_io import read_whole

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["MemoryDriver"]


class MemoryDriver(Root):
    """A file that is an array of bytes.

    Parameters
    ----------
    content : bytes-like
        What it holds at first; copied.
    writable : bool

    Examples
    --------
    >>> driver = MemoryDriver(b"hello")
    >>> driver.resize(7)
    >>> driver.content()
    b'hello\\x00\\x00'
    """

    name = "memory"
    capabilities = Capabilities(keeps_file=False)

    def __init__(self, content: bytes | memoryview = b"", *, writable: bool = True) -> None:
        super().__init__(None, writable=writable)
        self._bytes: Memory = np.frombuffer(content, np.uint8).copy()
        self._nbytes = len(content)

    @classmethod
    def open(cls, path: str | None, context: OpenContext) -> Self:
        """Start with the content of the file `path` if there is one, else empty; the file itself never changes.

        Raises
        ------
        ValueError
            The communicator has several ranks, each of which would hold a file of its own.
        OSError
            The file exists and cannot be read.
        """
        comm, system = context.comm, context.system
        if comm is not None and comm.size > 1:
            raise ValueError(
                f"The memory driver keeps the bytes in one process, and the communicator has {comm.size}; use 'mpio'"
            )
        filled = path is not None and not context.new and exists(system, path)
        content = read_whole(system, path, limit=1 << 62) if path is not None and filled else b""
        return cls(content, writable=context.writable)

    def content(self) -> bytes:
        """Return a copy of the whole file."""
        with self._use, self._use.lock:
            return self._bytes[: self._nbytes].tobytes()

    def _read(self, extents: Extents, memory: Memory, collective: bool) -> tuple[int, int]:
        check(extents, memory)
        offset, length, place = extents
        with self._use.lock:
            if len(offset) and int((offset + length).max()) > self._nbytes:
                length = np.clip(self._nbytes - offset, 0, length)
                some = length > 0
                offset, length, place = offset[some], length[some], place[some]
            copy_pieces(memory, place, self._bytes, offset, length)
        return int(length.sum()), 1

    def _write(self, extents: Extents, memory: Memory, collective: bool) -> int:
        check(extents, memory)
        offset, length, place = in_order(extents)
        if not len(offset):
            return 0
        with self._use.lock:
            end = int((offset + length).max())
            if end > self._nbytes:
                self._reserve(end)
                self._nbytes = end
            copy_pieces(self._bytes, offset, memory, place, length)
        return 1

    def empty_copy(self) -> Driver:
        return MemoryDriver()

    def replace_with(self, copy: Driver) -> bool:
        if not isinstance(copy, MemoryDriver):
            return False
        with self._use, self._use.lock:
            self._bytes, self._nbytes = copy._bytes, copy._nbytes
            self._use.reach = copy._use.reach
        copy.close()
        return True

    def _reserve(self, nbytes: int) -> None:
        """Reserve room for `nbytes`; what is beyond `_nbytes` is always zeros."""
        if nbytes <= len(self._bytes):
            return
        try:
            wider = np.zeros(max(nbytes, len(self._bytes) + len(self._bytes) // 2), np.uint8)
        except (MemoryError, ValueError) as error:
            raise OSError(errno.ENOMEM, f"Not enough memory for a file of {nbytes} bytes") from error
        wider[: self._nbytes] = self._bytes[: self._nbytes]
        self._bytes = wider

    def _size(self) -> int:
        return self._nbytes

    def _resize(self, nbytes: int) -> None:
        with self._use.lock:
            self._reserve(nbytes)
            self._bytes[nbytes : self._nbytes] = 0
            self._nbytes = nbytes

    def _sync(self) -> None:
        """There is no stable storage."""

    def _close(self) -> None:
        self._bytes = np.empty(0, np.uint8)
        self._nbytes = 0
