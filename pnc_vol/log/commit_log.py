"""Commit records beside the two logs: which of their bytes are whole, cancelled, or in the file already.

Knows: the records of the commit log, which entry is whose. Does not know: entries, values, files, when a record is due.

Rules
-----
1. The bytes are those of `append_log.records`.
2. A commit covers the bytes of both logs between the previous commit and itself. One commit may cover many
   entries: what it costs is what a group of posts costs.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable
from zlib import crc32

from pnc_vol.append_log.records import CRC, RECORD_BODY, RECORD_BYTES, RecordFormat, RecordWriter

__all__ = ["COMMIT", "COMMIT_LOG", "FILL", "FLUSHED", "SUFFIX", "TOMBSTONE", "WHOLE", "CommitLog"]

SUFFIX = ".commit"

COMMIT, TOMBSTONE, FILL, FLUSHED = 1, 2, 3, 4

COMMIT_LOG = RecordFormat(
    "commit log",
    b"PncVolBB",
    {COMMIT: "commit", TOMBSTONE: "tombstone", FILL: "fill", FLUSHED: "flushed"},
    ("meta_crc", "request", "epoch", "meta_end", "data_end", "number", "data_crc"),
)
"""Commit: the bytes of both logs up to ``meta_end`` and ``data_end`` are whole; ``number`` entries, the first of them
of ``request``; the CRCs are of the bytes since the commit before it, or since the begin of the logs.

Tombstone: the entry that ends at ``meta_end``, of ``request``, is cancelled.

Fill: after the entries that end up to ``meta_end``, and before those that follow, a variable is filled: ``meta_crc`` is
the variable, ``data_end`` the first index along the first dimension and ``number`` how many.

Flushed: what ends up to ``meta_end`` is in the file."""

WHOLE = 2**64 - 1
"""``number`` of a fill of all there is along the first dimension."""


class CommitLog(RecordWriter):
    """The commit log of one rank, while it is written.

    Parameters
    ----------
    append : callable
        Puts bytes at the end of the file.
    file : bytes[16], identity of the file when the log is begun (`disk.identity`); a replay refuses another file.
    rank, num_ranks : int, of the job.
    path : str, the file that the log is for.

    Attributes
    ----------
    entries : int, entries that were committed.
    epoch, fills : int, flushes so far, and fills since the last one.
    requests, ends : array of int
        Request and end in the metadata log of each entry.
    """

    __slots__ = ("ends", "entries", "epoch", "fills", "requests")

    def __init__(self, append: Callable[[bytes], None], file: bytes, rank: int, num_ranks: int, path: str) -> None:
        super().__init__(COMMIT_LOG, append, file=file, rank=rank, num_ranks=num_ranks, path=path)
        self.epoch = self.fills = self.entries = 0
        self.requests, self.ends = array("q"), array("q")

    @property
    def when(self) -> tuple[int, int]:
        """Flushes so far, and fills since the last one: what a definition says of its time."""
        return self.epoch, self.fills

    def commit(self, request: int, meta_end: int, data_end: int, meta_crc: int, data_crc: int) -> None:
        """Vouch for the one entry that was appended; see `added`.

        Raises
        ------
        OSError
            There is no room.
        """
        # As `add`, for most posts.
        sequence = self.sequence + 1
        fields = meta_crc, sequence, request, self.epoch, meta_end, data_end, 1, data_crc
        body = RECORD_BODY.pack(RECORD_BYTES, COMMIT, *fields)
        self.append(body + CRC.pack(crc32(body, self.seed)))
        self.sequence = sequence

    def added(self, request: int, meta_end: int) -> None:
        """The entry that ends there, and its commit, are in the log."""
        self.entries += 1
        self.requests.append(request)
        self.ends.append(meta_end)

    def cancel(self, requests: set[int], data_end: int) -> bool:
        """Record that the entries of some requests are cancelled; False if they have none.

        Raises
        ------
        OSError
            There is no room; no record was added.
        """
        found = []
        for request in sorted(requests):
            # Requests only grow along the entries.
            at = bisect_left(self.requests, request)
            while at < len(self.requests) and self.requests[at] == request:
                found.append((0, request, self.epoch, self.ends[at], data_end, 0, 0))
                at += 1
        if found:
            self.add_all(TOMBSTONE, found)
        return bool(found)

    def flushed(self, meta_end: int, data_end: int) -> None:
        """Record that all of the log is in the file.

        Raises
        ------
        OSError
            There is no room.
        """
        self.add(FLUSHED, 0, 0, self.epoch, meta_end, data_end, 0, 0)

    def fill(self, varid: int, meta_end: int, first: int) -> None:
        """Record that a variable is filled from the first index on; `filled` counts it.

        Raises
        ------
        OSError
            There is no room.
        """
        self.add(FILL, varid, 0, self.epoch, meta_end, first, WHOLE, 0)

    def filled(self) -> None:
        """The fill is in the log for good."""
        self.fills += 1

    def take_back(self, end: int) -> None:
        """Forget the records behind a place in the file."""
        self.sequence = (end - self.begin) // RECORD_BYTES

    def next_epoch(self) -> None:
        """A flush begins."""
        self.epoch += 1
        self.fills = 0

    def forget(self) -> None:
        """The log is begun anew."""
        self.sequence = self.entries = 0
        self.requests, self.ends = array("q"), array("q")
