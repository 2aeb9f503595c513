"""Hidden files belong to a file and lie beside it: notes, journals, files that have no name yet.

Knows: names. Does not know: what is in the files.
"""

from __future__ import annotations

import os
import zlib

from pnc_vol.system import TEMPORARY

__all__ = ["CACHES_NOTED", "LOGS_NOTED", "UNNAMED", "cut_name", "is_unnamed", "neighbour"]

LOGS_NOTED, CACHES_NOTED = "pncbb", "pncc"
"""What the names of notes end with, of the folders of logs and of caches; see `neighbour`."""
UNNAMED = TEMPORARY
"""What the name of a file ends with that has not got its own name yet."""
_LONGEST = 240
"""Bytes of a name that takes a dot and a suffix besides."""


def neighbour(path: str, suffix: str) -> str:
    """Return the name of a hidden file that belongs to a file, the same each time: ``.NAME.suffix``.

    Examples
    --------
    >>> neighbour("folder/out.nc", "pncj")
    'folder/.out.nc.pncj'
    """
    head, slash, tail = path.rpartition("/")
    if tail.isascii() and len(tail) <= _LONGEST:
        return f"{head}{slash}.{tail}.{suffix}"
    raw = os.fsencode(tail)
    if len(raw) > _LONGEST:
        # a name may have 255 bytes: of a longer one the start, and what tells it from others of that start
        tail = f"{cut_name(raw, _LONGEST - 9)}.{zlib.crc32(raw):08x}"
    return f"{head}{slash}.{tail}.{suffix}"


def is_unnamed(path: str) -> bool:
    """Return whether this is the name of a file that has not got its own name yet."""
    if not path.endswith(UNNAMED):
        return False  # first: this is asked at every opening
    return os.path.basename(path).startswith(".")


def cut_name(name: bytes, nbytes: int) -> str:
    """Return the start of a name, without half a character at its end."""
    return name[:nbytes].decode("utf-8", "ignore")
