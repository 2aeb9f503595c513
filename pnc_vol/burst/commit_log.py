"""Commit records beside the two logs mark which bytes of the logs are complete, cancelled, or already in the file.

Knows: the records of the commit log, which entry is whose. Does not know: entries, files, when a record is due.

Rules
-----
1. The bytes are those of `append_log.records`.
2. A commit covers the bytes of both logs between the previous commit and itself: a group of entries.
3. The entries behind the last commit are the open group. The slot of the file has the CRCs of their bytes, in one word
   that is stored when an entry and its values are there; so a kill loses none of them (`recovery.scan`). A group
   is closed by its commit before any other record, at a flush, and when it is large. The slot tells nothing of an
   entry that is a group alone: a power failure may bring the slot to the disk, and not the entry. A count of entries
   would cost less than CRCs, and would be believed when a crash of the node has lost some of them; CRCs of the values
   alone would let them be replayed to wrong places.
4. A group of small posts is in the slot itself (`recent_posts`), and goes to the logs before its commit is written.
5. Before each flush the files are compared with what was written to them (`find_damage`): no file may be shorter, and
   no record missing. Of the values, so many groups of posts are read back and compared with their CRC as make up 4 MiB,
   at most 4096 of them, spread over the log: all of a small log, a spot check of a large one. A log that was cut, and
   grew again, holds zeros over a range, which this check finds; a single changed byte in a large log is found by a
   replay, which compares everything. To compare all here as well would read a large log twice from its device.

States of the open group; `slot[1]` is the request of its first entry, and 0 if there is no group.

=======  =====================  =======  ============================================================================
state    event                  next     on disk, where a kill leaves it
=======  =====================  =======  ============================================================================
none     `add_entry`            in logs  entry and values in the logs, then their CRC in ``slot[0]``
none     `open_posts`           in slot  ``slot[1]`` is set last: a kill before or after it leaves no posts in the group
in logs  `add_entry`            in logs  the CRC comes last: a kill before it leaves the group without the new entry
in slot  a small post           in slot  the post, then the CRC of all: a kill between them loses the new post only
in slot  `close_group`          none     posts are copied to the logs, then committed; between them the slot counts
any      `close_group`          none     the commit record; the slot then names an older number of records: not used
any      an error of the close  same     the logs end where they ended before
=======  =====================  =======  ============================================================================
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from struct import Struct
from typing import Any, NamedTuple, Protocol
from zlib import crc32

import numpy as np
import numpy.typing as npt

from pnc_vol.append_log.records import (
    RECORD_BYTES,
    SLOT_BYTES,
    RecordFormat,
    RecordHeader,
    RecordTail,
    RecordWriter,
    decode_header,
    first_wrong,
)
from pnc_vol.burst.encoding import FIRST_DATA
from pnc_vol.burst.recent_posts import POSTS_BYTES, RecentPosts, SplitPosts
from pnc_vol.errors import LogError, PncVolError
from pnc_vol.extents.model import Int64

__all__ = [
    "COMMIT", "COMMIT_LOG", "FILL", "FLUSHED", "GROUP", "GROUP_BYTES", "IN_LOGS", "IN_SLOT", "OPEN_GROUP", "SUFFIX",
    "TOMBSTONE", "WHOLE", "CommitLog", "GroupState", "OpenGroup",
]  # fmt: skip

SUFFIX = ".commit"

COMMIT, TOMBSTONE, FILL, FLUSHED = 1, 2, 3, 4

COMMIT_LOG = RecordFormat(
    "commit log",
    b"PncVolBB",
    {COMMIT: "commit", TOMBSTONE: "tombstone", FILL: "fill", FLUSHED: "flushed"},
    ("meta_crc", "request", "epoch", "meta_end", "data_end", "number", "data_crc"),
    slot=SLOT_BYTES + POSTS_BYTES,
)
"""Commit: the bytes of both logs up to ``meta_end`` and ``data_end`` are whole; ``number`` entries, the first of them
of ``request``; the CRCs are of the bytes since the commit before it, or since the begin of the logs.

Tombstone: the entry that ends at ``meta_end``, of ``request``, is cancelled.

Fill: after the entries that end up to ``meta_end``, and before those that follow, a variable is filled: ``meta_crc`` is
the variable, ``data_end`` the first index along the first dimension and ``number`` how many.

Flushed: what ends up to ``meta_end`` is in the file."""

WHOLE = 2**64 - 1
"""``number`` of a fill of all there is along the first dimension."""


GROUP, GROUP_BYTES = 1024, 1 << 20
"""Entries of a group at most, and bytes of their values, unless one alone has more: what one wrong bit may cost."""

OPEN_GROUP = Struct("<QQQQQ24x")
"""The slot: the CRC of the open group; the request of its first entry, 0 if no group is open; the epoch; the records
before the group; and where it is, `IN_LOGS` or `IN_SLOT`. Of a group in the logs the CRCs of the entries and of the
values are added without carry."""

IN_LOGS, IN_SLOT = 0, 1

_MOST_BYTES, _MOST_POSTS = 4 << 20, 4096
"""Of values that are read back before a flush."""

_SIZE = Struct("=q")


class _Tail(RecordTail, Protocol):
    def extend(self, data: Any) -> None: ...

    def provide(self, offset: int, nbytes: int) -> None: ...

    def reserve(self, nbytes: int) -> None: ...


class _WritableLog(Protocol):
    """The part of the `LogFiles` interface that is used here."""

    counters: Any

    @property
    def meta(self) -> _Tail: ...

    @property
    def data(self) -> _Tail: ...

    @property
    def commit(self) -> _Tail: ...

    def path(self, suffix: str) -> str: ...

    def sizes(self) -> Iterator[tuple[str, int, int]]: ...

    def read(self, suffix: str, target: npt.NDArray[np.uint8], offset: int) -> None: ...


class GroupState(NamedTuple):
    """The state that `CommitLog.take_back` restores: the number of entries, and the CRCs of the open group."""

    entries: int
    meta_crc: int
    data_crc: int


class OpenGroup:
    """The entries behind the last commit.

    Attributes
    ----------
    slot : memoryview of uint64
        The slot in the file, to be set before the first post; see `OPEN_GROUP`.
    posts : RecentPosts, those of the group that are in the slot.
    committed : int, entries that commits cover; those behind them are the open group.
    meta_crc, data_crc : int, of the entries and values of the group.
    data_begin : int, where the values begin.
    quick_meta, quick_data : int
        Up to where in both logs posts may go to the group without a further look.
    """

    __slots__ = ("committed", "data_begin", "data_crc", "meta_crc", "posts", "quick_data", "quick_meta", "slot")

    def __init__(self) -> None:
        self.slot: Any = None
        self.posts = RecentPosts()
        self.committed = self.meta_crc = self.data_crc = self.quick_meta = self.quick_data = 0
        self.data_begin = FIRST_DATA

    def use(self, slot: Any, room: Any) -> None:
        """Take the slot: the words that describe the group, and the room for small posts."""
        self.slot = self.posts.slot = slot
        self.posts.room = room

    def drop(self, committed: int, data_begin: int) -> None:
        """Empty the group."""
        self.slot[1] = self.quick_meta = self.meta_crc = self.data_crc = 0
        self.committed, self.data_begin = committed, data_begin
        self.posts.forget()


def _nothing() -> None:
    """Undo nothing."""


class CommitLog(RecordWriter):
    """The commit log of one rank, while it is written.

    Parameters
    ----------
    files : the files of the log.
    header : RecordHeader
        With the identity of the file when the log is begun (`disk.identity`); a replay refuses another file.
    slot : int, bytes of the slot: with or without room for posts.

    Attributes
    ----------
    group : OpenGroup
    post_rows : callable
        To be set before posts go to the slot: makes rows of those that leave it, and of their requests, and returns
        what takes them back.
    requests : array of int
        The request of each entry.
    epoch, fills : int, flushes so far, and fills since the last one.
    """

    __slots__ = ("_ends", "_files", "epoch", "fills", "first_entry", "group", "post_rows", "requests")

    def __init__(self, files: _WritableLog, header: RecordHeader, slot: int) -> None:
        super().__init__(COMMIT_LOG, files.commit, header, slot)
        self.post_rows: Callable[[SplitPosts, Int64], Callable[[], None]]
        self._files = files
        self.group = OpenGroup()
        self.epoch = self.fills = 0
        self.first_entry = files.meta.end
        self.requests, self._ends = array("q"), array("q")

    @property
    def when(self) -> tuple[int, int]:
        """The time that a definition records: flushes so far, and fills since the last one."""
        return self.epoch, self.fills

    @property
    def holds(self) -> bool:
        """Whether anything was recorded since the log was begun."""
        return bool(self.sequence or self.requests)

    @property
    def open(self) -> int:
        """Entries of the open group."""
        return len(self.requests) - self.group.committed

    def add_entry(self, request: int, entry: bytes, values: Any, *, alone: bool) -> None:
        """Take an entry that was appended, with its values, into the open group; it is posted from then on.

        alone : bool, the group is closed at once, and it is posted when it is closed.
        """
        group = self.group
        if not (alone or self.open):
            self._open_group(request, IN_LOGS)
        # The slot gets the CRC after the entry and its values are in the logs: this store makes it a post (rule 3).
        group.meta_crc = crc32(entry, group.meta_crc)
        group.data_crc = crc32(values, group.data_crc)
        if not alone:
            group.slot[0] = group.meta_crc ^ group.data_crc
        self.requests.append(request)
        self._files.counters[1] = len(self.requests)

    def _open_group(self, request: int, where: int) -> None:
        slot = self.group.slot
        slot[0] = 0
        slot[2], slot[3], slot[4] = self.epoch, self.sequence, where
        slot[1] = request

    def open_posts(self, request: int, limit: int) -> None:
        """Begin a group in the slot.

        Parameters
        ----------
        request : int, of the first post.
        limit : int, bytes that the posts may take.

        Raises
        ------
        OSError
            There is no room for them in the logs.
        """
        self.close_group()
        files, posts = self._files, self.group.posts
        if not posts.provided:
            files.commit.provide(self.begin - len(posts.room), len(posts.room))
            posts.provided = True
        files.data.reserve(limit)
        files.meta.reserve(limit)
        # The commit of this group is reserved now, so that a flush can write it even if the device is full by then.
        files.commit.reserve(RECORD_BYTES)
        self._open_group(request, IN_SLOT)
        posts.data_end, posts.limit = files.data.end, limit

    def close_group(self) -> None:
        """Write the commit of the open group, if there is one; posts in the slot go to the logs before.

        Raises
        ------
        OSError
            There is no room; the group is open still.
        """
        if number := self.open:
            group, files, undo = self.group, self._files, _nothing
            request, sequence = self.requests[group.committed], self.sequence
            tails = files.commit, files.meta, files.data
            before, committed = [tail.end for tail in tails], False
            try:
                meta_crc, data_crc = group.meta_crc, group.data_crc
                if group.posts.end:
                    posts = group.posts.split()
                    undo = self.post_rows(posts, np.array(self.requests[group.committed :], np.int64))
                    files.data.extend(posts.values.data)
                    files.meta.extend(posts.entries.data)
                    meta_crc, data_crc = crc32(posts.entries.data), crc32(posts.values.data)
                ends = files.meta.end, files.data.end
                super().add_all(COMMIT, [(meta_crc, request, self.epoch, *ends, number, data_crc)])
                committed = True
                self.drop_group()
            except BaseException:
                # BaseException: also after an interrupt or a MemoryError the whole group is in the slot or in the logs.
                if committed:
                    self.drop_group()
                    raise
                undo()
                for tail, end in zip(tails, before, strict=True):
                    if tail.end != end:
                        tail.take_back(end)
                self.sequence = sequence
                raise
        elif self.group.posts.limit:
            self.drop_group()

    def close_group_if_possible(self) -> None:
        """Write the commit of the open group; if that cannot be done, the group stays open."""
        with suppress(OSError):
            self.close_group()

    def add_all(self, kind: int, rows: Sequence[tuple[int, ...]]) -> None:
        self.close_group()
        super().add_all(kind, rows)

    def _end_of(self, entry: int) -> int:
        """Return where an entry ends in the metadata log."""
        ends = self._ends
        if entry >= len(ends):
            begin = ends[-1] if ends else self.first_entry
            entries = np.empty(self._files.meta.end - begin, np.uint8)
            self._files.read(".meta", entries, begin)
            at = 0
            while at < len(entries):
                at += max(_SIZE.unpack_from(entries.data, at)[0], _SIZE.size)
                ends.append(begin + at)
        return ends[entry]

    def cancel(self, requests: set[int], data_end: int) -> bool:
        """Record that the entries of some requests are cancelled; False if they have none.

        Raises
        ------
        OSError
            There is no room; no record was added.
        """
        found = []
        if self.group.posts.end:
            self.close_group()
        for request in sorted(requests):
            # Requests only grow along the entries.
            at = bisect_left(self.requests, request)
            while at < len(self.requests) and self.requests[at] == request:
                found.append((0, request, self.epoch, self._end_of(at), data_end, 0, 0))
                at += 1
        if found:
            self.add_all(TOMBSTONE, found)
        return bool(found)

    def flushed(self, meta_end: int, data_end: int) -> None:
        """Record that the file contains all posts of the log.

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
        """Count a fill, once its record can no longer be taken back."""
        self.fills += 1

    def state(self) -> GroupState:
        """Return the state that `take_back` restores."""
        return GroupState(len(self.requests), self.group.meta_crc, self.group.data_crc)

    def take_back(self, end: int, state: GroupState) -> None:
        """Forget the records behind a place in the file, and the entries since `state`; the logs end there again."""
        self.sequence = (end - self.begin) // RECORD_BYTES
        group, entries = self.group, state.entries
        group.quick_meta = 0
        del self.requests[entries:], self._ends[entries:]
        if group.committed >= entries:
            # The entry had a group, and a commit, of its own.
            self.drop_group()
        elif not group.posts.limit:
            group.meta_crc, group.data_crc = state.meta_crc, state.data_crc
            group.slot[0] = group.meta_crc ^ group.data_crc

    def drop_group(self) -> None:
        """Empty the open group, when all counted entries have commits."""
        count = self._files.counters[1] = len(self.requests)
        self.group.drop(count, self._files.data.end)

    def next_epoch(self) -> None:
        """Count a new flush; no group is open."""
        self.epoch += 1
        self.fills = 0

    def forget(self) -> None:
        """Reset the counts, after the files of the log were cut."""
        requests, ends = array("q"), array("q")
        self.sequence, self.requests, self._ends, self.group.committed = 0, requests, ends, 0
        self.drop_group()

    def find_damage(self) -> str:
        """Return the reason why the log cannot be flushed; "" if its files have the bytes that were written (rule 5).

        Raises
        ------
        OSError
            A file cannot be read.
        """
        files, begin = self._files, self.begin
        for path, written, there in files.sizes():
            if there < written:
                return f"{path} has {there} bytes, and {written} were written to it"
        # Behind the look at the sizes: it makes the file of records longer.
        self.close_group_if_possible()
        count = (files.commit.end - begin) // RECORD_BYTES
        raw = np.empty(begin + count * RECORD_BYTES, np.uint8)
        try:
            files.read(".commit", raw, 0)
            decode_header(COMMIT_LOG, raw.data)
            records = raw[begin:].view(COMMIT_LOG.dtype)
            if (records["sequence"] != np.arange(1, count + 1, dtype=np.uint64)).any():
                return f"the records in {files.path('.commit')} are not those that were written"
            groups = records[records["kind"] == COMMIT]
            end = groups["data_end"].astype(np.int64)
            start = np.concatenate(([FIRST_DATA], end[:-1]))
            some = _some(end - start)
            if len(some) == len(groups) and some:
                # A small log is read whole: one pass of CRCs over the buffer is faster than one read for each post.
                values = np.empty(int(end[-1]) - FIRST_DATA, np.uint8)
                files.read(".data", values, FIRST_DATA)
                wrong = first_wrong(values.data, np.append(FIRST_DATA, end) - FIRST_DATA, groups["data_crc"])
                some = [wrong] if wrong < len(groups) else []
            for i in some:
                values = np.empty(int(end[i] - start[i]), np.uint8)
                files.read(".data", values, int(start[i]))
                if crc32(values.data) != int(groups["data_crc"][i]):
                    return f"bytes {start[i]} to {end[i]} of {files.path('.data')} are not those that were written"
        except LogError as error:
            return f"{files.path('.commit')}: {error}"
        except PncVolError as error:
            return str(error)
        return ""


def _some(nbytes: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[int]:
    """Return the indices of the posts that are read back."""
    step = max(1, -(-int(nbytes.sum()) // _MOST_BYTES), -(-len(nbytes) // _MOST_POSTS))
    found = np.arange(len(nbytes))[::-step]
    return [int(i) for i in found[nbytes[found] <= _MOST_BYTES]]
