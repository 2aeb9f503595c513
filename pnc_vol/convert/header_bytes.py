"""`with_header` reads the first bytes of a file, as many as their reader asks for.

Knows: descriptors, `NeedBytes`. Does not know: headers.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from pnc_vol.errors import NeedBytes
from pnc_vol.system import System
from pnc_vol.system.full_io import read_at

__all__ = ["with_bytes", "with_header"]

T = TypeVar("T")


def with_header(system: System, fd: int, ask: Callable[..., T]) -> T:
    """Return the result of `ask` for the first bytes of a file; it is given more until it does not raise `NeedBytes`.

    Parameters
    ----------
    system : System
    fd : int
    ask : callable
        ``ask(data, file_size=...)``, as `format.decode.decode` and `format.check.check` are.
    """
    return with_bytes(partial(read_at, system, fd), system.fstat(fd).st_size, ask)


def with_bytes(read: Callable[[bytearray, int], int], nbytes: int, ask: Callable[..., T]) -> T:
    """Return the same of `nbytes` bytes that a function reads: into a buffer, from an offset on."""
    wanted = min(nbytes, 1 << 16)
    while True:
        data = bytearray(wanted)
        got = read(data, 0)
        try:
            return ask(memoryview(data)[:got], file_size=nbytes)
        except NeedBytes as more:
            if got < wanted:
                raise OSError(errno.EIO, "the file became shorter while it was read; try again") from None
            wanted = more.nbytes
