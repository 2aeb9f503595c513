"""What ranks say to each other in a collective write of two levels: within a node, and between the ranks that write.

Knows: messages, ranks, nodes, whose limits of time and whose departures count. Does not know: files, extents, what is
sent. It gets mpi4py from its user.

Rules
-----
1. All of it stands in one call of the file's communicator (`begin`, `completed`), so that a rank that leaves, or that
   does not come, is met as in any other collective call.
2. Who has nothing for another one sends nothing: who receives learns that all has come when every writer has told that
   its messages were taken (nonblocking consensus).
3. Messages of two rounds that follow each other have different tags: a rank may be a round ahead of another one.
   Answers need no second tag: a round is over for nobody before all who asked have theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.ranks.comm import Traffic
from pnc_vol.ranks.waiting import TimedWait

__all__ = ["Levels"]

Bytes = npt.NDArray[np.uint8]
Int64 = npt.NDArray[np.int64]
UInt64 = npt.NDArray[np.uint64]

_TAGS = 4003, 4004
_ANSWERS = 4005


class Levels:
    """The communicators of both levels.

    Parameters
    ----------
    calls : TimedWait, of the communicator of all ranks.
    node : mpi4py.MPI.Intracomm, the ranks of this node, in their order.
    writers : mpi4py.MPI.Intracomm or None, the ranks that send or receive between nodes; None on a rank that does not.
    traffic : Traffic, counts what this rank sends and waits for.
    """

    def __init__(self, calls: TimedWait, node: Any, writers: Any, traffic: Traffic) -> None:
        self._calls = calls
        self._all, self._MPI = calls.mpi, calls.module
        self.node = node
        self.writers = writers
        self.rank, self.size = node.Get_rank(), node.Get_size()
        self._traffic = traffic
        self._rounds = 0

    @classmethod
    def split(cls, calls: TimedWait, traffic: Traffic, node: int | None, *, writes: bool) -> Levels:
        """Split the communicator of all ranks, unless they are on one node (collective, without a time limit)."""
        if node is None:
            return cls(calls, calls.mpi, None, traffic)
        rank = calls.mpi.Get_rank()
        writers = calls.mpi.Split(0 if writes else calls.module.UNDEFINED, rank)
        return cls(calls, calls.mpi.Split(node, rank), writers if writes else None, traffic)

    def begin(self, operation: str) -> None:
        """Begin the call in which all that follows stands; on all ranks."""
        self._calls.begin(operation)

    def completed(self) -> None:
        """All that stands in the call is done on this rank."""
        self._calls.completed()

    def table(self, operation: str, row: Int64, rows: Int64) -> None:
        """Put the rows of all ranks of this node into `rows`, int64[ranks of the node, len(row)]."""
        self._wait(operation, self.node.Iallgather(row, rows), (row, rows))
        self._traffic.sent(_steps(self.size), (self.size - 1) * row.nbytes // max(1, _steps(self.size)))
        self._traffic.received(rows.nbytes)

    def meet(self, operation: str) -> None:
        """Wait until all ranks of this node are here."""
        self._wait(operation, self.node.Ibarrier(), ())
        self._traffic.sent(_steps(self.size), 0)

    def largest(self, operation: str, numbers: Int64, found: Int64) -> None:
        """Put into `found` of each number the largest that any rank has; on all ranks."""
        request = self._all.Iallreduce(numbers, found, op=self._MPI.MAX)
        self._wait(operation, request, (numbers, found))
        self._traffic.sent(_steps(self._all.Get_size()), numbers.nbytes)

    def any_of(self, operation: str, bits: Bytes, found: Bytes) -> None:
        """Put into `found` of each bit whether any rank has it; on all ranks."""
        byte = self._MPI.BYTE
        request = self._all.Iallreduce([bits, byte], [found, byte], op=self._MPI.BOR)
        self._wait(operation, request, (bits, found))
        self._traffic.sent(_steps(self._all.Get_size()), bits.nbytes)

    def sums(self, operation: str, numbers: UInt64, found: UInt64) -> None:
        """Put into `found` the sum of each number over all ranks, without what exceeds 64 bits; on all ranks."""
        kind = self._MPI.UINT64_T
        request = self._all.Iallreduce([numbers, kind], [found, kind], op=self._MPI.SUM)
        self._wait(operation, request, (numbers, found))
        self._traffic.sent(_steps(self._all.Get_size()), numbers.nbytes)

    def deliver(
        self, operation: str, outgoing: list[tuple[int, Bytes]], take: Callable[[Bytes], None], room: Bytes
    ) -> None:
        """Send messages to writers of other nodes, and take all that come from them; by all writers together.

        Parameters
        ----------
        outgoing : list of (rank, bytes)
        take : callable
            Is given each message that comes; must not fail.
        room : uint8[...]
            Where a message arrives; as long as the longest.
        """
        arriving = _Arriving(self._all, self._MPI, self._tag(), take, room)
        work = _Delivery(self._all, self.writers, self._MPI, outgoing, arriving)
        self._wait(operation, work, (work, outgoing))
        for _, message in outgoing:
            self._traffic.sent(1, len(message))
        self._traffic.sent(_steps(self.writers.Get_size()), 0)
        self._traffic.received(len(room))

    def fetch(
        self,
        operation: str,
        requests: list[tuple[int, Bytes, Bytes]],
        answer: Callable[[Bytes], Bytes],
        room: Bytes,
    ) -> None:
        """Send requests to writers of other nodes, answer theirs, and wait for the answers; by all writers together.

        Parameters
        ----------
        requests : list of (rank, request, where the answer goes)
        answer : callable
            Is given each request that comes, and returns the answer, of the length that the other one waits for; must
            not fail. It is not called again before its answer has gone.
        room : uint8[...]
            Where a request arrives; as long as the longest.
        """
        work = _Fetch(self._all, self.writers, self._MPI, self._tag(), requests, answer, room)
        self._wait(operation, work, (work, requests))
        for _, message, _ in requests:
            self._traffic.sent(1, len(message))
        for nbytes in work.answered:
            self._traffic.sent(1, nbytes)
        self._traffic.sent(_steps(self.writers.Get_size()), 0)
        self._traffic.received(len(room))

    def _tag(self) -> int:
        self._rounds += 1
        return _TAGS[self._rounds % 2]

    def _wait(self, operation: str, request: Any, buffers: tuple[Any, ...]) -> None:
        self._calls.wait(operation, request, buffers)
        self._traffic.rounds += 1

    def free(self) -> bool:
        """Give the communicators back (collective); False: a rank has left, and only the end of the job can do it."""
        if self._calls.broken is not None:
            return False
        for one in (self.node, self.writers):
            if one is not None and one is not self._all:
                one.Free()
        self.node = self.writers = None
        return True


def _steps(ranks: int) -> int:
    """Messages of each rank where all tell all in a tree."""
    return (ranks - 1).bit_length()


class _Arriving:
    """Messages of any ranks under one tag, each of which is taken when it is here."""

    def __init__(self, everyone: Any, module: Any, tag: int, take: Callable[[Bytes], None], room: Bytes) -> None:
        self._all, self._MPI, self.tag = everyone, module, tag
        self._take, self._room = take, room
        self._status = module.Status()
        self._coming: tuple[Any, Bytes] | None = None
        self.source = -1

    @property
    def under_way(self) -> bool:
        """Whether a message has begun to arrive."""
        return self._coming is not None

    def one(self) -> bool:
        """Whether a message came to its end."""
        MPI, status = self._MPI, self._status
        if self._coming is None:
            if not self._all.Iprobe(MPI.ANY_SOURCE, self.tag, status):
                return False
            message = self._room[: status.Get_count(MPI.BYTE)]
            self.source = status.Get_source()
            self._coming = self._all.Irecv([message, MPI.BYTE], self.source, self.tag), message
        request, message = self._coming
        if not request.Test():
            return False
        self._coming = None
        self._take(message)
        return True


class _Delivery:
    """All messages of a round, as one request that can be tested."""

    def __init__(
        self, everyone: Any, writers: Any, module: Any, outgoing: list[tuple[int, Bytes]], arriving: _Arriving
    ) -> None:
        self._writers, self._MPI, self._arriving = writers, module, arriving
        tag = arriving.tag
        self._sends = [everyone.Issend([message, module.BYTE], rank, tag) for rank, message in outgoing]
        self._sent: Any = None

    def Test(self) -> bool:
        """Do what can be done now; whether all messages of all writers have arrived."""
        while self._arriving.one():
            pass
        if self._arriving.under_way:
            return False
        if self._sent is None:
            if self._MPI.Request.Testall(self._sends):
                self._sent = self._writers.Ibarrier()
            return False
        return bool(self._sent.Test())


class _Fetch:
    """All requests of a round and the answers, as one request that can be tested.

    answered : list of int, bytes of the answers that this rank gave.
    """

    def __init__(
        self,
        everyone: Any,
        writers: Any,
        module: Any,
        tag: int,
        requests: list[tuple[int, Bytes, Bytes]],
        answer: Callable[[Bytes], Bytes],
        room: Bytes,
    ) -> None:
        self._all, self._writers, self._MPI, self._answer = everyone, writers, module, answer
        self._arriving = _Arriving(everyone, module, tag, self._reply, room)
        self._going: Any = None
        self._met: Any = None
        self.answered: list[int] = []
        byte = module.BYTE
        # Answers of one rank come in the order of the requests to it.
        self._begun = [everyone.Irecv([into, byte], rank, _ANSWERS) for rank, _, into in requests]
        self._begun += [everyone.Isend([message, byte], rank, tag) for rank, message, _ in requests]

    def Test(self) -> bool:
        """Do what can be done now; whether all writers have all that they asked for."""
        while self._gone() and self._arriving.one():
            pass
        if self._arriving.under_way or not self._gone():
            return False
        if self._met is None:
            if self._MPI.Request.Testall(self._begun):
                self._met = self._writers.Ibarrier()
            return False
        done = bool(self._met.Test())
        if done:
            # This object refers to itself: the memory of the requests does not wait for the garbage collector.
            self._begun.clear()
            del self._answer
        return done

    def _gone(self) -> bool:
        """Whether the last answer has left its memory."""
        if self._going is not None and self._going.Test():
            self._going = None
        return self._going is None

    def _reply(self, asked: Bytes) -> None:
        found = self._answer(asked)
        self._going = self._all.Isend([found, self._MPI.BYTE], self._arriving.source, _ANSWERS)
        self.answered.append(len(found))
