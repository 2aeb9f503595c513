"""The commit records of a log that is being written, and which entry is whose.

Knows: one file that grows, commit records. Does not know: entries, values, when a record is due.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left
from zlib import crc32

from pnc_vol.log.commit_log import (
    FLUSHED,
    TOMBSTONE,
    CommitLogHeader,
    encode_commit,
    encode_commit_log_header,
    encode_fill,
    encode_record,
)
from pnc_vol.log.files import Tail

__all__ = ["Records"]


class Records:
    """The commit log of one rank.

    Parameters
    ----------
    tail : Tail
    file : bytes[16], identity of the file.
    rank, num_ranks : int, of the job.
    path : str, the file that the log is for.

    Attributes
    ----------
    log_id : bytes[16]
    seed : int, CRC of it.
    sequence : int, of the last record.
    entries : int, entries that were committed.
    epoch, fills : int, flushes so far, and fills since the last one.
    requests, ends : array of int
        Request and end in the metadata log of each entry.
    """

    __slots__ = ("ends", "entries", "epoch", "fills", "log_id", "requests", "seed", "sequence", "tail")

    def __init__(self, tail: Tail, file: bytes, rank: int, num_ranks: int, path: str) -> None:
        self.tail = tail
        self.log_id = os.urandom(16)
        self.seed = crc32(self.log_id)
        self.sequence = self.epoch = self.fills = self.entries = 0
        self.requests, self.ends = array("q"), array("q")
        tail.append(encode_commit_log_header(CommitLogHeader(self.log_id, file, rank, num_ranks, path)))

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
        seed, sequence, epoch = self.seed, self.sequence + 1, self.epoch
        self.tail.append(encode_commit(seed, sequence, request, epoch, meta_end, data_end, meta_crc, data_crc))

    def added(self, request: int, meta_end: int) -> None:
        """The entry that ends there, and its commit, are in the log."""
        self.entries += 1
        self.sequence += 1
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
                found.append((request, self.ends[at]))
                at += 1
        if found:
            self._append(TOMBSTONE, found, data_end)
        return bool(found)

    def flushed(self, meta_end: int, data_end: int) -> None:
        """Record that all of the log is in the file.

        Raises
        ------
        OSError
            There is no room.
        """
        self._append(FLUSHED, [(0, meta_end)], data_end)

    def _append(self, kind: int, which: list[tuple[int, int]], data_end: int) -> None:
        """Records that are no commits, one for each request and end in the metadata log; all or none."""
        self.tail.append(
            b"".join(
                encode_record(
                    kind,
                    log_id=self.log_id,
                    sequence=self.sequence + i,
                    request=request,
                    epoch=self.epoch,
                    meta_end=end,
                    data_end=data_end,
                )
                for i, (request, end) in enumerate(which, 1)
            )
        )
        self.sequence += len(which)

    def fill(self, varid: int, meta_end: int, first: int) -> None:
        """Record that a variable is filled from the first index on; `filled` counts it.

        Raises
        ------
        OSError
            There is no room.
        """
        sequence = self.sequence + 1
        self.tail.append(
            encode_fill(varid, log_id=self.log_id, sequence=sequence, meta_end=meta_end, first=first, epoch=self.epoch)
        )

    def filled(self) -> None:
        """The fill is in the log."""
        self.sequence += 1
        self.fills += 1

    def next_epoch(self) -> None:
        """A flush begins."""
        self.epoch += 1
        self.fills = 0

    def forget(self) -> None:
        """The log is begun anew."""
        self.sequence = self.entries = 0
        self.requests, self.ends = array("q"), array("q")
