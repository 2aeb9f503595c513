"""`first_wrong` compares the CRC-32 of many small pieces of one buffer with what they should be, many at once.

Knows: bytes, CRCs. Does not know: records, entries, files.

Rules
-----
1. The CRC of adjacent pieces together follows from the CRCs of the pieces: each is moved over the bytes behind its
   piece, a linear operation, and all are added. So one pass of zlib over some KiB checks all pieces in them.
2. A single wrong piece is always found, as its own CRC would find it: the operation loses nothing. Where the sum is
   wrong each piece is looked at. Several wrong pieces within one block whose errors cancel out pass with a probability
   of 2^-32, which is that of one wrong piece whose CRC is right by chance.

Source: zlib's ``crc32_combine``.
"""

from __future__ import annotations

from functools import cache
from zlib import crc32

import numpy as np
import numpy.typing as npt

__all__ = ["first_wrong"]

CRCs = npt.NDArray[np.uint32]
Int64 = npt.NDArray[np.int64]

BLOCK = 4 << 10
"""Bytes of pieces compared at once: a call of zlib then costs little, and a CRC is moved by 12 bits at most."""


def first_wrong(data: memoryview, bounds: Int64, crcs: CRCs) -> int:
    """Return the first piece that has not the CRC that it should have; their number if all are right.

    Parameters
    ----------
    data : memoryview of bytes
    bounds : int64[n + 1], increasing: piece i is ``data[bounds[i] : bounds[i + 1]]``.
    crcs : uint32[n], of the pieces, as zlib has them.

    Examples
    --------
    >>> pieces = [b"ab", b"", b"cde", b"f"]
    >>> bounds = np.array([0, 2, 2, 5, 6])
    >>> crcs = np.array([crc32(piece) for piece in pieces], np.uint32)
    >>> first_wrong(memoryview(b"abcdef"), bounds, crcs), first_wrong(memoryview(b"abcdeF"), bounds, crcs)
    (4, 3)
    """
    if not len(crcs):
        return 0
    begin, end = bounds[:-1], bounds[1:]
    large = end - begin > BLOCK
    opens = np.diff(begin // BLOCK, prepend=-1) > 0
    opens |= large
    opens[1:] |= large[:-1]
    firsts = np.flatnonzero(opens)
    lasts = np.append(firsts[1:], len(crcs))
    behind = np.repeat(end[lasts - 1], lasts - firsts) - end
    sums = np.bitwise_xor.reduceat(_moved(crcs, behind), firsts).tolist()
    blocks = zip(firsts.tolist(), begin[firsts].tolist(), end[lasts - 1].tolist(), sums, strict=True)
    for first, low, high, wanted in blocks:
        if crc32(data[low:high]) != wanted:
            pieces = zip(bounds[first:-1].tolist(), bounds[first + 1 :].tolist(), crcs[first:].tolist(), strict=True)
            return first + next(i for i, (a, b, crc) in enumerate(pieces) if crc32(data[a:b]) != crc)
    return len(crcs)


def _moved(crcs: CRCs, behind: Int64) -> CRCs:
    """Return what each CRC adds to that of bytes which go on for `behind` bytes after its piece."""
    found = crcs.copy()
    for bit in range(int(behind.max()).bit_length()):
        some = np.flatnonzero(behind >> bit & 1)
        of = found[some].view(np.uint8).reshape(-1, 4)
        first, second, third, fourth = _over_zeros(bit)
        found[some] = first[of[:, 0]] ^ second[of[:, 1]] ^ third[of[:, 2]] ^ fourth[of[:, 3]]
    return found


@cache
def _over_zeros(bit: int) -> CRCs:
    """Return uint32[4, 256]: what each byte of a CRC, in this machine's order, becomes when ``2**bit`` bytes follow."""
    zeros = bytes(1 << bit)
    none = crc32(zeros)
    tables = np.zeros((4, 256), np.uint32)
    of_bytes = np.array([1], "u4").view(np.uint8)
    order = range(4) if of_bytes[0] else range(3, -1, -1)
    for place, table in zip(order, tables, strict=True):
        for k in range(8):
            table[1 << k : 2 << k] = table[: 1 << k] ^ np.uint32(crc32(zeros, 1 << (8 * place + k)) ^ none)
    return tables
