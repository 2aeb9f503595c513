"""Several ranks of a node share a file in blocks; this module computes where the bytes of one rank are.

Knows: arithmetic. Does not know: files, what the bytes mean. The C library of PnetCDF has the same blocks
(``nc_burst_buf_shared_logs``).
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["SHARED_BLOCK", "Share", "shared_pieces"]

SHARED_BLOCK = 8 << 20
"""Bytes of a block in a file that several ranks of a node share."""


def shared_pieces(
    channel: int, channels: int, offset: int, nbytes: int, *, block: int = SHARED_BLOCK
) -> list[tuple[int, int]]:
    """Return where bytes of one rank's log stand in the file that it shares.

    Parameters
    ----------
    channel, channels : int, the rank among those that share, and how many these are.
    offset, nbytes : int, bytes of the rank's own log.
    block : int, bytes of a block: block i of channel c of n is block ``i * n + c`` of the file.

    Returns
    -------
    list of (offset, nbytes)

    Examples
    --------
    >>> shared_pieces(1, 2, 24, 16, block=32)
    [(56, 8), (96, 8)]
    """
    pieces, end = [], offset + nbytes
    while offset < end:
        number, inside = divmod(offset, block)
        length = min(block - inside, end - offset)
        pieces.append(((number * channels + channel) * block + inside, length))
        offset += length
    return pieces


class Share(NamedTuple):
    """A file that the ranks of a node share: block i of rank c of n is block ``i * n + c`` of the file.

    channel, channels : int, c and n.
    """

    channel: int
    channels: int

    def pieces(self, offset: int, nbytes: int) -> list[tuple[int, int]]:
        """Return where a rank's own bytes stand in the file."""
        return shared_pieces(self.channel, self.channels, offset, nbytes)

    def size_of(self, physical: int) -> int:
        """Return the number of bytes that a rank may have in a file of so many bytes."""
        rounds, rest = divmod(physical, self.channels * SHARED_BLOCK)
        return rounds * SHARED_BLOCK + min(max(rest - self.channel * SHARED_BLOCK, 0), SHARED_BLOCK)

    def part_of(self, whole: bytes | memoryview) -> bytes:
        """Return a rank's own bytes of a whole file."""
        return b"".join(whole[at : at + n] for at, n in self.pieces(0, self.size_of(len(whole))))

    def cuts(self, offset: int, end: int) -> bool:
        """Return whether bytes of one post lie in two blocks."""
        return offset // SHARED_BLOCK != (end - 1) // SHARED_BLOCK
