"""A collective write has calls of two levels: within a node, and between the ranks that write.

Knows: messages, ranks, nodes, whose limits of time and whose departures count. Does not know: files, extents, what is
sent. It gets mpi4py from its user.

Rules
-----
1. All of it stands in a call of the file's communicator (`call`), so that a rank that leaves, or that does not come,
   is noticed as in any other collective call.
2. Who has nothing for another one sends nothing: who receives learns that all has come when every writer has told that
   its messages were taken (nonblocking consensus).
3. Messages of two rounds that follow each other have different tags: a rank may be a round ahead of another one.
   Answers need no second tag: a round is over for nobody before all who asked have theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.ranks.comm import Traffic
from pnc_vol.ranks.waiting import TimedWait

__all__ = ["NO_ANSWER", "Exchange", "Levels", "Message"]

Bytes = npt.NDArray[np.uint8]
Int64 = npt.NDArray[np.int64]

_TAGS = 4003, 4004
_ANSWERS = 4005

Message = tuple[int, Bytes, Bytes]
"""To which rank, what, and where its answer goes; without bytes if there is none."""
NO_ANSWER: Bytes = np.empty(0, np.uint8)


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
        # A split is collective: ranks that do not write take part in it, and get no communicator.
        writers = calls.mpi.Split(0 if writes else calls.module.UNDEFINED, rank)
        return cls(calls, calls.mpi.Split(node, rank), writers if writes else None, traffic)

    @contextmanager
    def call(self, operation: str) -> Iterator[None]:
        """Yield the call of the file's communicator in which other calls stand; on all ranks."""
        try:
            self._calls.begin(operation)
            yield
        except BaseException as error:
            # A rank on which the call is cut short leaves: its next call would meet this one of the others.
            self._calls.leave_if_interrupted(operation, error)
            raise
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

    def reduce(self, operation: str, how: str, local: npt.NDArray[Any], found: npt.NDArray[Any]) -> None:
        """Put into `found` of each number what all ranks give together; on all ranks.

        how : str
            ``"largest"`` of int64, ``"sum"`` of uint64, without what exceeds 64 bits, or ``"any"``: each bit of uint8
            that any rank has.
        """
        MPI = self._MPI
        kind, op = {
            "largest": (MPI.INT64_T, MPI.MAX),
            "sum": (MPI.UINT64_T, MPI.SUM),
            "any": (MPI.BYTE, MPI.BOR),
        }[how]
        self._wait(operation, self._all.Iallreduce([local, kind], [found, kind], op=op), (local, found))
        self._traffic.sent(_steps(self._all.Get_size()), local.nbytes)

    def exchange(
        self, operation: str, messages: list[Message], answer: Callable[[Bytes], Bytes | None], room: Bytes
    ) -> None:
        """Send messages to writers of other nodes, and answer theirs; by all writers together.

        Parameters
        ----------
        messages : list of Message
        answer : callable
            Is given each message that comes, and returns the answer, of the length that the other one waits for, or
            None if it waits for none; must not fail. It is not called again before its answer has gone.
        room : uint8[...]
            Where a message arrives; as long as the longest.
        """
        work = Exchange(self._all, self.writers, self._MPI, self._tag(), messages, answer, room)
        self._wait(operation, work, (work, messages))
        for nbytes in (*(len(message) for _, message, _ in messages), *work.answered):
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
            # The communicator of all ranks belongs to the file.
            if one is not None and one is not self._all:
                one.Free()
        self.node = self.writers = None
        return True


def _steps(ranks: int) -> int:
    """Return messages of each rank where all tell all in a tree."""
    return (ranks - 1).bit_length()


class Exchange:
    """All messages of a round and their answers, as one request that can be tested.

    answered : list of int, bytes of the answers that this rank gave.
    """

    def __init__(
        self,
        everyone: Any,
        writers: Any,
        module: Any,
        tag: int,
        messages: list[Message],
        answer: Callable[[Bytes], Bytes | None],
        room: Bytes,
    ) -> None:
        self._all, self._writers, self._MPI = everyone, writers, module
        self._tag, self._answer, self._room = tag, answer, room
        self._status = module.Status()
        self._coming: tuple[Any, int, Bytes] | None = None
        self._going: Any = None
        self._barrier: Any = None
        self.answered: list[int] = []
        byte = module.BYTE
        # Answers of one rank come in the order of the messages to it.
        self._begun = [everyone.Irecv([into, byte], rank, _ANSWERS) for rank, _, into in messages if len(into)]
        # An answer shows that its message was taken; where there is none, the send ends only then.
        sends = ((everyone.Isend if len(into) else everyone.Issend, rank, one) for rank, one, into in messages)
        self._begun += [send([one, byte], rank, tag) for send, rank, one in sends]

    def Test(self) -> bool:
        """Do what can be done now; whether all writers' messages have arrived, and their answers."""
        # One answer is under way at a time, since there is one memory for answers.
        while self._gone() and self._arrived():
            pass
        if self._coming is not None or not self._gone():
            return False
        if self._barrier is None:
            # What this rank sent was taken, so it comes to the barrier; when all have come, nothing is under way.
            if self._MPI.Request.Testall(self._begun):
                self._barrier = self._writers.Ibarrier()
            return False
        return bool(self._barrier.Test())

    def _gone(self) -> bool:
        """Return whether the last answer has left its memory."""
        if self._going is not None and self._going.Test():
            self._going = None
        return self._going is None

    def _arrived(self) -> bool:
        """Return whether a message came to its end; it is answered then."""
        MPI, status = self._MPI, self._status
        if self._coming is None:
            if not self._all.Iprobe(MPI.ANY_SOURCE, self._tag, status):
                return False
            message, source = self._room[: status.Get_count(MPI.BYTE)], status.Get_source()
            self._coming = self._all.Irecv([message, MPI.BYTE], source, self._tag), source, message
        request, source, message = self._coming
        if not request.Test():
            return False
        self._coming = None
        found = self._answer(message)
        if found is not None:
            self._going = self._all.Isend([found, MPI.BYTE], source, _ANSWERS)
            self.answered.append(len(found))
        return True
