"""Thousands of small pieces of a local file by one system call each thousand.

Knows: descriptors, a mapping of the file, Linux. Does not know: extents' order, variables.

`preadv` reads one range of the file; small pieces far apart would take a call each. `pwritev` takes a list of
addresses: so the file is mapped, and the kernel is asked to write the pieces from the mapping to a file in memory.

Rules
-----
1. No instruction of this process touches the mapping, the kernel alone does. To it, a page that is gone because the
   file shrank, or that the disk cannot read, is a short count and not a signal: the pieces are then read one by one,
   and what is wrong is said in the usual way. That is what plain access to a mapping cannot promise.
2. Only files on a block device of this machine are mapped: on network file systems a mapping may be stale.
3. Where something here is missing or refused, `read` says None, and nothing else happens.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import stat
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from pnc_vol.drivers.pieces import Bytes, copy_pieces
from pnc_vol.extents.model import Int64
from pnc_vol.extents.ragged import before
from pnc_vol.system import System

__all__ = ["PIECE", "Gatherer"]

PIECE = 16384
"""Bytes of a piece from which on a call of its own costs no more."""

LEAST = 32
"""Pieces below which it is not worth while."""

_VECTOR = 1024
"""Pieces of one call: what Linux takes."""

_SINK = 1 << 20
"""Bytes of the memory that pieces are gathered in; it stays in a core's cache."""


class Gatherer:
    """Reads small pieces of one file.

    Parameters
    ----------
    system : System
    fd : int, open for reading; whoever gave it closes it, after `close`.
    anywhere : bool
        Map the file wherever it is. By default only one on a block device, which has a major number.
    """

    def __init__(self, system: System, fd: int, *, anywhere: bool = False) -> None:
        self._system = system
        self._fd = fd
        self._anywhere = anywhere
        self._window: Any = None
        self._address = 0
        self._sinks: list[_Sink] = []
        self._able = _pwritev() is not None

    def read(self, offset: Int64, length: Int64, memory: Bytes, place: Int64) -> int | None:
        """``memory[p:p+n] = file[o:o+n]`` for each piece.

        Parameters
        ----------
        offset, length, place : int64[n]
            Bytes; no length above `PIECE`.

        Returns
        -------
        int or None
            The system calls that it took; None if the pieces have to be read in another way: there are few, or they
            are not all there. What `memory` holds at their places is then not known.
        """
        n = len(offset)
        if not self._able or n < LEAST:
            return None
        end = int((offset + length).max())
        if not self._covers(end):
            return None
        vector = np.empty((n, 2), np.int64)
        vector[:, 0] = offset
        vector[:, 0] += self._address
        vector[:, 1] = length
        # Taken out and put back, so that each thread has one of its own.
        sink = self._sinks.pop() if self._sinks else _Sink.made(self._system)
        if sink is None:
            self._able = False
            return None
        try:
            for part in _parts(length):
                if not sink.take(vector[part]):
                    return None
                copy_pieces(memory, place[part], sink.memory, before(length[part]), length[part])
        finally:
            self._sinks.append(sink)
        # The last page of a mapping goes on, with zeros, behind the end of the file.
        if self._system.fstat(self._fd).st_size < end:
            return None
        return -(-n // _VECTOR)

    def _covers(self, end: int) -> bool:
        """Whether the mapping reaches to `end`; made anew if the file grew."""
        if self._window is not None and end <= len(self._window):
            return True
        found = self._system.fstat(self._fd)
        local = stat.S_ISREG(found.st_mode) and (self._anywhere or os.major(found.st_dev) != 0)
        if not local or found.st_size < end:
            self._able = local
            return False
        try:
            # The one before is left to whoever still uses it in another thread.
            self._window = self._system.mmap(self._fd, found.st_size, writable=False)
        except (OSError, ValueError):
            self._able = False
            return False
        self._address = np.frombuffer(self._window, np.uint8, 1).ctypes.data
        return True

    def close(self) -> None:
        """Give back the mapping and the memory."""
        self._able = False
        self._window = None
        for sink in self._sinks:
            sink.close(self._system)
        self._sinks.clear()


def _parts(length: Int64) -> list[slice]:
    """Cut pieces into groups of at most `_SINK` bytes."""
    number = np.cumsum(length) // (_SINK - PIECE)
    cuts = [0, *(np.flatnonzero(number[1:] != number[:-1]) + 1).tolist(), len(length)]
    return [slice(a, b) for a, b in itertools.pairwise(cuts)]


class _Sink:
    """A file in memory, seen through a mapping of its own, which nobody else can shrink."""

    def __init__(self, fd: int, memory: Bytes) -> None:
        self._fd = fd
        self.memory = memory

    @classmethod
    def made(cls, system: System) -> _Sink | None:
        """None where the system has no such files."""
        try:
            fd = system.memory_file()
        except OSError:
            return None
        try:
            system.ftruncate(fd, _SINK)
            return cls(fd, np.frombuffer(system.mmap(fd, _SINK), np.uint8))
        except OSError:
            system.close(fd)
            return None

    def take(self, vector: Int64) -> bool:
        """Let the kernel put the pieces, (n, 2) of address and bytes, one after another; False if not all came."""
        call = _pwritev()
        assert call is not None
        wanted = int(vector[:, 1].sum())
        done = 0
        for first in range(0, len(vector), _VECTOR):
            done += call(self._fd, vector[first:].ctypes.data, min(_VECTOR, len(vector) - first), done)
        return done == wanted

    def close(self, system: System) -> None:
        system.close(self._fd)


@functools.cache
def _pwritev() -> Callable[[int, int, int, int], int] | None:
    """The call with a vector given by its address: `os.pwritev` would make an object of every piece."""
    if sys.platform != "linux" or sys.maxsize < 1 << 32:
        return None
    try:
        call = ctypes.CDLL(None).pwritev
    except (OSError, AttributeError):
        return None
    call.restype = ctypes.c_ssize_t
    call.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_long]
    return call
