"""Sync threads carry what is in the cache file to the global file, from three queues.

Knows: ranges, epochs, threads. Does not know: files; it calls functions that carry ranges. No thread calls MPI.

As in E10, there is a *pending* queue (made, not given to a thread), a *submitted* queue (given, not through), and a
*wait* queue (given, and nobody has waited for it yet). They are one for all threads, and the pending ranges of an epoch
are one request that grows until it is submitted: a program that writes 10^7 small pieces needs no object for each.

Rules
-----
1. What cannot be carried stays pending, and so does the rest until the epoch ends or somebody drains.
2. A thread that ends by an error that is not the file's is replaced, and the error is told like one of the file.
3. Ctrl-C, or no memory, may end a call of the program anywhere, and what it had taken stays taken: the next call of
   the same thread gives that back first (`_own`).
4. Threads are started when there is work for them. They are daemons: the interpreter joins others before it calls what
   would end them.

Rules of the queues, whose callers hold the lock
-------------------------------------------------
1. No two threads are at one byte at the same time, and what is written to a byte while a thread is at it is carried
   again afterwards. So the last write wins, whatever the number of threads, without versions of bytes and without a
   part of the file for each thread.
2. A byte that waits already is not added again: it is read from the cache file when its turn comes, and is new then. It
   keeps its first epoch, since that one is complete only when this byte is in the file.
"""

from __future__ import annotations

import errno
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from pnc_vol.extents.merge import EMPTY, Ranges
from pnc_vol.system import PAGE

__all__ = ["Lost", "Pending", "Queues", "SyncRequest", "SyncThreads"]

_LOOK = 0.5
"""Seconds after which somebody who waits looks whether the threads live."""


class SyncThreads:
    """The queues, and the threads that empty them; its methods may be called from any thread.

    Parameters
    ----------
    carry : callable
        Takes ranges and the number of the thread, and brings them to the global file, or raises `OSError`.
    idle : callable
        Called by a thread when all data are in the global file.
    threads : int
    immediate : bool
        Pending ranges are submitted as soon as a thread has nothing to do.
    """

    def __init__(
        self,
        carry: Callable[[Ranges, int], None],
        idle: Callable[[], None],
        *,
        threads: int,
        immediate: bool,
    ) -> None:
        self._carry, self._idle = carry, idle
        self._number, self._immediate = threads, immediate
        self._changed = threading.Condition(threading.RLock())
        self._queues = Queues()
        self._lost: list[Lost] = []
        self._threads: list[threading.Thread] = []
        self._stop = self._halted = False
        self._readers = 0

    # ------------------------------------------------------------------------------------ from the program

    @property
    def epoch(self) -> int:
        """The epoch that has not ended."""
        return self._queues.epoch

    @property
    def ended(self) -> int:
        """The last epoch that has ended."""
        return self._queues.ended

    @property
    def nbytes(self) -> int:
        """Bytes that are not in the global file yet, about."""
        with self._changed:
            return self._queues.nbytes

    @property
    def weight(self) -> int:
        """The same, with a page for each range: what a range takes on the device at least, and more than in memory."""
        with self._changed:
            return self._queues.nbytes + PAGE * self._queues.count

    def waiting(self) -> tuple[int, int]:
        """Return bytes that are not in the global file yet, and ranges of these, about."""
        with self._changed:
            return self._queues.nbytes, self._queues.count

    def end_epoch(self) -> int:
        """End the epoch and return its number. Threads that stopped at an error try again."""
        with self._changed:
            self._halted = False
            self._queues.ended += 1
            self._wake()
            return self._queues.ended

    def add(self, ranges: Ranges) -> None:
        """Ranges were written to the cache file."""
        with self._changed:
            self._queues.add(ranges)
            if self._immediate:
                self._wake()

    @contextmanager
    def _own(self) -> Iterator[None]:
        """Hold the lock, after what an interrupted call of this thread left was given back."""
        with self._changed:
            me, busy = threading.get_ident(), self._queues.busy
            if busy.pop(-me, None) is not None:
                self._queues.leave(lambda waiting: waiting)
            yield

    def submit(self) -> None:
        """Give all that is pending to the threads, without waiting."""
        with self._changed:
            self._queues.submit()
            self._wake()

    def unsynced(self) -> Ranges:
        """Return all that is not known to be in the global file."""
        with self._changed:
            return self._queues.union()

    def synced_epoch(self) -> int:
        """See `Holder.synced_epoch`."""
        with self._changed:
            return self._queues.synced()

    @contextmanager
    def reading(self) -> Iterator[Ranges]:
        """Yield what waits; the cache file is not emptied meanwhile."""
        with self._changed:
            self._readers += 1
            found = self._queues.union()
        try:
            yield found
        finally:
            with self._changed:
                self._readers -= 1

    @contextmanager
    def quiet(self) -> Iterator[bool]:
        """Yield whether nothing waits and nobody reads; if so, nothing is added and nobody begins to read meanwhile."""
        with self._changed:
            yield self._queues.empty and not self._readers

    def done_with(self, ranges: Ranges, thread: int) -> Ranges:
        """Return those of the ranges that a thread has carried that wait for nothing else."""
        with self._changed:
            return self._queues.without(ranges, thread)

    def forget(self, ranges: Ranges, *, act: Callable[[], None]) -> None:
        """Do something to the global file that takes the place of all that waits for these ranges.

        No thread is at these bytes meanwhile. If it raises, they wait as before.
        """
        queues, key = self._queues, -threading.get_ident()
        with self._own():
            self._await(lambda: not any(part.touches(ranges) for _, part in queues.busy.values()))
            queues.busy[key] = queues.epoch, ranges
        try:
            act()
            with self._changed:
                queues.leave(lambda waiting: waiting.minus(ranges))
        finally:
            with self._changed:
                queues.busy.pop(key, None)
                queues.leave(lambda waiting: waiting)
                self._changed.notify_all()

    def cut(self, nbytes: int) -> None:
        """Forget what lies behind a byte, when no thread is at it."""
        with self._own():
            busy = self._queues.busy
            self._await(lambda: not any(part.end.size and part.end[-1] > nbytes for _, part in busy.values()))
            self._queues.leave(lambda waiting: waiting.below(nbytes))

    def lost(self) -> list[Lost]:
        """Return what was lost since this was asked last; the threads try again when the epoch ends."""
        with self._changed:
            lost, self._lost = self._lost, []
            return lost

    def drain(self) -> list[Lost]:
        """Wait until all is carried; what could not be is told, and stays."""
        queues = self._queues
        with self._own():
            # What was lost before and is carried now is no news.
            self._lost, self._halted = [], False
            while not self._halted:
                queues.submit()
                if not (queues.submitted or queues.busy):
                    break
                self._wake()
                self._await(lambda: self._halted or not (queues.submitted or queues.busy))
            self._await(lambda: not any(key > 0 for key in queues.busy))
            lost, self._lost = self._lost, []
            return lost

    def settle(self) -> None:
        """Wait as `drain` does; what could not be carried is told to whoever asks next."""
        lost = self.drain()
        with self._changed:
            self._lost = lost + self._lost

    def stop(self) -> None:
        """End the threads; what is queued stays."""
        with self._changed:
            self._stop = True
            self._changed.notify_all()
        for thread in self._threads:
            # one that Ctrl-C kept from being started has nothing to end
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join()

    # ------------------------------------------------------------------------------------------ threads

    def _wake(self) -> None:
        """Let the threads look, and start those that are missing."""
        self._changed.notify_all()
        if self._stop or (len(self._threads) == self._number and all(one.is_alive() for one in self._threads)):
            return
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        taken = {thread.name for thread in self._threads}
        for number in range(1, self._number + 1):
            name = f"pnc_vol sync {number}"
            if name not in taken:
                thread = threading.Thread(target=self._run, args=(number,), name=name, daemon=True)
                self._threads.append(thread)
                try:
                    thread.start()
                except RuntimeError:
                    # The system gives no more, or the interpreter ends: `_await` does the work if there is none at all.
                    self._threads.remove(thread)
                    return

    def _next(self, number: int) -> tuple[SyncRequest, Ranges] | None:
        if self._halted:
            return None
        if self._immediate and not self._queues.submitted:
            self._queues.submit()
        return self._queues.take(number)

    def _run(self, number: int) -> None:
        while True:
            with self._changed:
                while not self._stop and (work := self._next(number)) is None:
                    self._changed.wait()
                if self._stop:
                    return
                assert work is not None
            if not self._do(number, *work):
                return

    def _do(self, number: int, request: SyncRequest, ranges: Ranges) -> bool:
        """Carry what was taken; return False if an error came that is not the file's, which ends a thread."""
        error = _error_of(partial(self._carry, ranges, number))
        if self._through(number, request, ranges, error) and (failed := _error_of(self._idle)) is not None:
            with self._changed:
                self._lost.append(Lost(EMPTY, failed))
        return error is None or error.__cause__ is None

    def _through(self, number: int, request: SyncRequest, ranges: Ranges, error: OSError | None) -> bool:
        """Note that a thread has done its part, or failed; return whether all data are in the global file now."""
        with self._changed:
            # It was tried again: an error of the same bytes that nobody was told of yet is no news.
            before, self._lost = self._lost, []
            for one in before:
                left = one.ranges.minus(ranges)
                if left.start.size or not one.ranges.start.size:
                    self._lost.append(one._replace(ranges=left))
            if error is not None:
                self._lost.append(Lost(ranges, error))
                self._halted = True
            self._queues.give_back(number, request, ranges, failed=error is not None)
            self._changed.notify_all()
            return self._queues.empty

    def _await(self, done: Callable[[], bool]) -> None:
        """Wait, and look after the threads meanwhile; without any, do what they would do."""
        while not done():
            if not self._threads and (work := self._next(1)) is not None:
                self._do(1, *work)
                continue
            if self._changed.wait(_LOOK) or done() or any(thread.is_alive() for thread in self._threads):
                continue
            queues, error = self._queues, OSError(errno.EIO, "all sync threads have ended")
            for key in [key for key in queues.busy if key > 0]:
                # No thread is left that could give it back.
                queues.give_up(SyncRequest(*queues.busy.pop(key)))
            for request in list(queues.submitted):
                queues.give_up(request)
            self._lost.append(Lost(EMPTY, error))
            self._halted = True
            return


def _error_of(call: Callable[[], None]) -> OSError | None:
    """Return what a call raised; an error that is not the file's ends the thread, and is the cause of this one."""
    try:
        call()
    except OSError as error:
        error.__cause__ = None
        return error
    except BaseException as error:
        made = OSError(errno.EIO, f"a sync thread ended with {type(error).__name__}: {error}")
        made.__cause__ = error
        return made
    return None


# ----------------------------------------------------------------------------------------------------------- queues

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
