"""Three queues hold what is to be carried to the global file.

Knows: ranges, epochs. Does not know: threads, files; whoever calls holds the lock.

As in E10, there is a *pending* queue (made, not given to a thread), a *submitted* queue (given, not through), and a
*wait* queue (given, and nobody has waited for it yet). They are one for all threads, and the pending ranges of an epoch
are one request that grows until it is submitted: a program that writes 10^7 small pieces needs no object for each.

Rules
-----
1. No two threads are at one byte at the same time, and what is written to a byte while a thread is at it is carried
   again afterwards. So the last write wins, whatever the number of threads, without versions of bytes and without a
   part of the file for each thread.
2. A byte that waits already is not added again: it is read from the cache file when its turn comes, and is new then. It
   keeps its first epoch, since that one is complete only when this byte is in the file.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from pnc_vol.extents.merge import EMPTY, Ranges

__all__ = ["Lost", "Pending", "Queues", "SyncRequest"]

SLICE = 8 << 20
"""Bytes that a thread takes at once, about."""
_MOST_RANGES = 1 << 16
_FOLD = 256
_NO_EPOCH = 1 << 62


class SyncRequest:
    """Ranges of one epoch that were given to the threads.

    Attributes
    ----------
    epoch : int
    left : Ranges, not begun yet.
    nbytes : int, bytes of these.
    inside : int, threads that carry a part of it.
    """

    __slots__ = ("epoch", "inside", "left", "nbytes")

    def __init__(self, epoch: int, left: Ranges) -> None:
        self.epoch, self.inside = epoch, 0
        self.leave(left)

    def leave(self, left: Ranges) -> None:
        """Leave these of the ranges."""
        self.left, self.nbytes = left, left.nbytes


class Lost(NamedTuple):
    """Ranges that could not be carried, and why; without ranges a thread has ended by an error of its own."""

    ranges: Ranges
    error: OSError


class Pending:
    """The pending ranges of an epoch; new ones are joined with the others from time to time."""

    __slots__ = ("_new", "_old", "count", "nbytes")

    def __init__(self) -> None:
        self._old, self.count, self.nbytes = EMPTY, 0, 0
        self._new: list[Ranges] = []

    def add(self, ranges: Ranges) -> None:
        self._new.append(ranges)
        self.count += ranges.start.size
        self.nbytes += ranges.nbytes
        if len(self._new) >= _FOLD:
            self.all()

    def all(self) -> Ranges:
        # Halves first: each byte of the small sets is moved few times, and of the large one once.
        while len(self._new) > 1:
            pairs = itertools.zip_longest(self._new[::2], self._new[1::2], fillvalue=EMPTY)
            self._new = [a.plus(b) for a, b in pairs]
        if self._new:
            # an interruption in between leaves them twice, and loses none
            self._old = self._old.plus(self._new[-1])
            self._new.clear()
            self.count, self.nbytes = self._old.start.size, self._old.nbytes
        return self._old


class Queues:
    """What waits, and who is at what.

    Attributes
    ----------
    submitted : deque of SyncRequest, of which something is left, or is being carried.
    busy : dict of int to (int, Ranges)
        Who is at which bytes, of which epoch: a sync thread by its number, from 1 on; others by negative numbers.
    ended : int, the last epoch that has ended.
    """

    def __init__(self) -> None:
        self._pending: dict[int, Pending] = {}
        self._union: Ranges | None = EMPTY
        self.submitted: deque[SyncRequest] = deque()
        self.busy: dict[int, tuple[int, Ranges]] = {}
        self.ended = 0

    @property
    def epoch(self) -> int:
        """The epoch that has not ended."""
        return self.ended + 1

    @property
    def nbytes(self) -> int:
        """Bytes that are not in the global file yet, about."""
        queues = (self._pending.values(), self.submitted, (ranges for _, ranges in self.busy.values()))
        return sum(part.nbytes for queue in queues for part in queue)

    @property
    def count(self) -> int:
        """Ranges of these, about."""
        waiting = sum(pending.count for pending in self._pending.values())
        return waiting + sum(request.left.start.size for request in self.submitted)

    @property
    def empty(self) -> bool:
        """Whether all data are in the global file."""
        return not (self._pending or self.submitted or self.busy)

    def add(self, ranges: Ranges) -> None:
        """Ranges were written to the cache file."""
        for request in self.submitted:
            ranges = ranges.minus(request.left)
        for epoch, pending in self._pending.items():
            if epoch != self.epoch:
                ranges = ranges.minus(pending.all())
        if ranges.start.size:
            self._again(self.epoch, ranges)

    def _again(self, epoch: int, ranges: Ranges) -> None:
        # first, here and below: an interruption must not leave the union of before
        self._union = None
        self._pending.setdefault(epoch, Pending()).add(ranges)

    def _waiting(self, *, but: int = 0) -> Iterator[tuple[int, Ranges]]:
        """Yield epochs and ranges that are not known to be in the global file, without what a thread is at."""
        yield from ((epoch, pending.all()) for epoch, pending in self._pending.items())
        yield from ((request.epoch, request.left) for request in self.submitted)
        yield from (part for key, part in self.busy.items() if key != but)

    def union(self) -> Ranges:
        """Return all that is not known to be in the global file."""
        if (union := self._union) is None:
            union = EMPTY
            for _, part in self._waiting():
                union = union.plus(part)
            self._union = union
        return union

    def without(self, ranges: Ranges, thread: int) -> Ranges:
        """Return those of the ranges that a thread is at that wait for nothing else."""
        for _, part in self._waiting(but=thread):
            ranges = ranges.minus(part)
        return ranges

    def synced(self) -> int:
        """See `Holder.synced_epoch`."""
        lowest = min((epoch for epoch, _ in self._waiting()), default=_NO_EPOCH)
        return min(self.ended, lowest - 1)

    def submit(self) -> None:
        """Move what is pending to the submitted queue, the oldest epoch first."""
        for request in list(self.submitted):
            # of which an interruption came before it was noted that nothing is left of them
            self._settle(request)
        for epoch in sorted(self._pending):
            ranges = self._pending[epoch].all()
            if ranges.start.size:
                request = SyncRequest(epoch, ranges)
                self.submitted.append(request)
            # last: what an interruption leaves here as well is carried twice, and nothing is lost
            del self._pending[epoch]

    def take(self, thread: int) -> tuple[SyncRequest, Ranges] | None:
        """Return what a thread does next, a part of a request; None if there is nothing now."""
        for request in self.submitted:
            head, rest = request.left.split(SLICE, _MOST_RANGES)
            free = self._free(head)
            if not free.start.size and rest.start.size:
                # Others are at the first part of it; perhaps not at all of it.
                head, rest = request.left, EMPTY
                free, _ = self._free(head).split(SLICE, _MOST_RANGES)
            if free.start.size:
                request.leave(rest if free is head else head.minus(free).plus(rest))
                request.inside += 1
                self.busy[thread] = request.epoch, free
                return request, free
        return None

    def _free(self, ranges: Ranges) -> Ranges:
        for _, part in self.busy.values():
            ranges = ranges.minus(part)
        return ranges

    def give_back(self, thread: int, request: SyncRequest, ranges: Ranges, *, failed: bool) -> None:
        """A thread is through with what it took, or has failed."""
        self._union = None
        self.busy.pop(thread, None)
        request.inside -= 1
        if failed:
            request.leave(request.left.plus(ranges))
            self.give_up(request)
        else:
            self._settle(request)

    def give_up(self, request: SyncRequest) -> None:
        """Make what is left of a request pending again."""
        if request in self.submitted:
            self.submitted.remove(request)
        self._again(request.epoch, request.left)
        request.leave(EMPTY)

    def _settle(self, request: SyncRequest) -> None:
        """Note that a request is through, if it is."""
        if not request.inside and not request.left.start.size and request in self.submitted:
            self.submitted.remove(request)

    def leave(self, what: Callable[[Ranges], Ranges]) -> None:
        """Leave these of the ranges."""
        self._union = None
        for epoch in list(self._pending):
            left = Pending()
            left.add(what(self._pending[epoch].all()))
            # in one line: an interruption must not lose what is left
            self._pending[epoch] = left
            if not left.count:
                del self._pending[epoch]
        for request in list(self.submitted):
            request.leave(what(request.left))
            self._settle(request)
