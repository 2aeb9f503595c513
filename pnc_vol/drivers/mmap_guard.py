"""A memory-mapped file is read safely: SIGBUS is handled.

Knows: mappings, signals, Linux. Does not know: extents, variables.

A read of a mapping is a load from memory. If the page cannot be had, because another process cut the file or the disk
failed, the system sends SIGBUS at that very instruction, which ends the process by default. Here a handler is installed
while a mapping is read: it maps zeros over the whole range, notes that, and the load goes on. The reader is then told
that what it saw is not the file, and reads by `pread` instead, which raises the usual error.

Single columns are ten times faster this way. To let the kernel alone look, by `pwritev` from the mapping to a file in
memory, needs no handler, but a column of 8192 rows takes 2 ms instead of 0.3 ms. A lease (``F_SETLEASE``)
does not help: the kernel breaks it after 45 s.

Rules
-----
1. The handler is installed only while a mapping is read (`GuardedMap.look`), and the former one is put back: one that
   stays would take the signal from other libraries. To install it costs more than a small `pread`, which is how small
   runs are read. A SIGBUS at an address outside of our mappings is passed to the former handler.
2. The signal comes from an instruction of the reading thread itself, in a copy that holds no lock: that is why the
   handler may be Python. SIGBUS is unblocked in that thread meanwhile: a blocked one would end the process.
3. Only files on a block device of this machine are mapped: on network file systems a mapping may be stale.
4. The size of the file is asked after the read: the last page of a mapping goes on, with zeros, behind the end.
"""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from pnc_vol.system import System

if TYPE_CHECKING:
    from pnc_vol.drivers.vectored_io import Bytes

__all__ = ["GuardedMap"]

_MOST_TAKEN = 64 << 20
"""Bytes that are looked at before their pages are given back."""
_SIGBUS = int(signal.SIGBUS)
_BYTE, _BIT = (_SIGBUS - 1) // 8, 1 << (_SIGBUS - 1) % 8
"""Where SIGBUS is in a ``sigset_t``."""
_Mask = ctypes.c_ubyte * 128
_UNBLOCK, _SETMASK = 1, 2
_SIGINFO = 4
_READ, _FIXED_ANONYMOUS, _NO_LONGER_NEEDED = 0x1, 0x32, 4
"""PROT_READ; MAP_PRIVATE, MAP_FIXED and MAP_ANONYMOUS; MADV_DONTNEED."""


class GuardedMap:
    """A mapping of a file, made when it is first needed and anew when the file has grown.

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
        self._range: _Range | None = None
        self._able = _calls() is not None

    def look(self, end: int, use: Callable[[Bytes], None], nbytes: int = 0) -> bool:
        """Call `use` with the bytes of the file, of which it looks at the first `end` and takes `nbytes`.

        Returns
        -------
        bool
            Whether it saw the file. If not, what it made of what it saw is worth nothing; it may not have been called.
        """
        found = self._covering(end)
        if found is None:
            return False
        before = _enter(found)
        try:
            use(found.memory)
        finally:
            _leave(found, before)
        if found.broken:
            # Zeros are there now, for good.
            self._range = None
            return False
        found.taken += nbytes
        if found.taken >= _MOST_TAKEN:
            # They stay in the system's cache; only this process does not count them as its own any more.
            found.taken = 0
            found.window.madvise(_NO_LONGER_NEEDED)
        try:
            # It reaches so far if its last byte can be read, which takes half of the time that its status does.
            return end == 0 or self._system.pread_into(self._fd, bytearray(1), end - 1) == 1
        except OSError:
            return False

    def _covering(self, end: int) -> _Range | None:
        """Return the mapping, if it reaches to `end`."""
        if not self._able:
            return None
        known = self._range
        if known is not None and end <= known.nbytes:
            # whether the file still reaches so far is asked afterwards
            return known
        found = self._system.fstat(self._fd)
        self._able = stat.S_ISREG(found.st_mode) and (self._anywhere or os.major(found.st_dev) != 0)
        if not self._able or found.st_size < end:
            return None
        try:
            window = self._system.mmap(self._fd, found.st_size, writable=False)
        except (OSError, ValueError):
            self._able = False
            return None
        # The one before is left to whoever still looks at it in another thread.
        self._range = _Range(window)
        return self._range

    def close(self) -> None:
        """Let go of the mapping."""
        self._able = False
        self._range = None


class _Range:
    """Addresses of a mapping."""

    __slots__ = ("broken", "first", "last", "memory", "nbytes", "taken", "window")

    def __init__(self, window: Any) -> None:
        calls: Any = _calls()
        self.window = window
        self.taken = 0
        self.memory = memory = np.frombuffer(window, np.uint8)
        self.nbytes = memory.nbytes
        self.first: int = memory.ctypes.data
        self.last = self.first + memory.nbytes + (-memory.nbytes) % calls.page
        self.broken = False


class _Action(ctypes.Structure):
    """``struct sigaction`` of Linux's C libraries on the machines of `_calls`."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ubyte * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class _Calls:
    """The C library's functions, and the handler."""

    def __init__(self) -> None:
        # None of these calls waits, so that none lets go of Python's lock. Two of them are called three times a look:
        # without `argtypes`, for which `byref` needs none, they take half of the time.
        libc = ctypes.PyDLL(None)
        pointer, number = ctypes.c_void_p, ctypes.c_int
        self.action, self.mask = libc.sigaction, libc.pthread_sigmask
        self.map, self.again = libc.mmap, getattr(libc, "raise")
        self.map.argtypes = (pointer, ctypes.c_size_t, number, number, number, ctypes.c_long)
        self.map.restype = pointer
        self.again.argtypes = (number,)
        self.own, self.before = _Action(), _Action()
        self.on, self.off = ctypes.byref(self.own), ctypes.byref(self.before)
        self.page: int = libc.getpagesize()
        self.handler = ctypes.CFUNCTYPE(None, number, pointer, pointer)(_on_bus_error)
        self.own.handler = ctypes.cast(self.handler, pointer).value
        self.own.flags = _SIGINFO
        self.blocked = _Mask()
        self.blocked[_BYTE] = _BIT
        self.unblocked = ctypes.byref(self.blocked)


@functools.cache
def _calls() -> _Calls | None:
    """Return None on a machine whose structures are not known to be these."""
    if sys.platform != "linux" or sys.maxsize < 1 << 32 or os.uname().machine not in ("x86_64", "aarch64"):
        return None
    try:
        return _Calls()
    except (OSError, AttributeError):
        return None


_lock = threading.Lock()
_ranges: tuple[_Range, ...] = ()


def _renew() -> None:
    """Renew the lock in a forked child: a thread that is not there may have held it."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew)


def _enter(found: _Range) -> Any:
    """Stand ready for a fault in this range, in this thread; the signals that were blocked before, if SIGBUS was."""
    global _ranges
    calls: Any = _calls()
    with _lock:
        if not _ranges:
            calls.action(_SIGBUS, calls.on, calls.off)
        _ranges = (*_ranges, found)
    mask = _Mask()
    calls.mask(_UNBLOCK, calls.unblocked, ctypes.byref(mask))
    return mask if mask[_BYTE] & _BIT else None


def _leave(found: _Range, before: Any) -> None:
    """The last to leave puts back what stood there before."""
    global _ranges
    calls: Any = _calls()
    if before is not None:
        calls.mask(_SETMASK, ctypes.byref(before), None)
    with _lock:
        at = _ranges.index(found)
        _ranges = _ranges[:at] + _ranges[at + 1 :]
        if not _ranges:
            calls.action(_SIGBUS, calls.off, None)


def _on_bus_error(number: int, info: int, _: int) -> None:
    calls: Any = _calls()
    code, address = ctypes.c_int.from_address(info + 8).value, ctypes.c_size_t.from_address(info + 16).value
    if code > 0:
        for found in _ranges:
            if found.first <= address < found.last:
                found.broken = True
                nbytes = found.last - found.first
                if calls.map(found.first, nbytes, _READ, _FIXED_ANONYMOUS, -1, 0) == found.first:
                    return
    # Not ours: whoever stood there before gets it, at once if somebody sent it, else when the instruction fails again.
    calls.action(number, calls.off, None)
    if code <= 0:
        calls.again(number)
