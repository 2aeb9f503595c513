"""`with_bytes` reads the first bytes of a file, as many as their reader asks for.

Knows: `NeedBytes`. Does not know: headers, descriptors.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TypeVar

from pnc_vol.errors import NeedBytes

__all__ = ["with_bytes"]

T = TypeVar("T")


def with_bytes(read: Callable[[bytearray, int], int], nbytes: int, ask: Callable[..., T]) -> T:
    """Return the result of `ask` for the first bytes of a file; it is given more until it does not raise `NeedBytes`.

    Parameters
    ----------
    read : callable
        Reads into a buffer, from an offset on; the number of bytes.
    nbytes : int
        Of the file.
    ask : callable
        ``ask(data, file_size=...)``, as `format.decode.decode` and `format.check.check` are.
    """
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
