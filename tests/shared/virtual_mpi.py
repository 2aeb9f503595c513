"""What the module mpi4py.MPI is for virtual ranks: threads that take turns, collective calls and messages in memory.

Knows: the calls of MPI that `mpi_comm`, `rank_places` and the writes of a flush use. Does not know: files, what ranks
agree on. Names and arguments are those of mpi4py.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from pnc_vol.ranks.waiting import NOTES

__all__ = ["Ended", "Intracomm", "Turns", "VirtualMPI", "World"]


class Ended(BaseException):
    """Another rank has failed, and the run ends."""


class Turns:
    """Which rank runs: one for which something has happened since it ran last; if there is none, each in turn.

    To let all others run whenever one waits would give each of 21,600 ranks a turn for every step of a tree.
    """

    def __init__(self) -> None:
        self.ended = False
        self._running = 0
        self._locks: list[threading.Lock] = []
        self._ready: deque[int] = deque()
        self._idle: dict[int, None] = {}
        self._woken: set[int] = set()

    def announce(self) -> None:
        """One more rank will run."""
        lock = threading.Lock()
        lock.acquire()
        self._ready.append(len(self._locks))
        self._locks.append(lock)

    def enter(self, rank: int) -> None:
        """Wait for the first turn."""
        self._locks[rank].acquire()
        self._running = rank

    def next(self) -> None:
        """This rank waits for something: let others run before it goes on."""
        mine = self._running
        if mine in self._woken:
            self._woken.remove(mine)
            self._ready.append(mine)
        else:
            self._idle[mine] = None
        self.pass_on()
        self._locks[mine].acquire()
        self._running = mine
        if self.ended:
            raise Ended

    def wake(self, rank: int) -> None:
        """Something has happened that a rank may wait for."""
        if rank in self._idle:
            del self._idle[rank]
            self._ready.append(rank)
        else:
            self._woken.add(rank)

    def pass_on(self) -> None:
        """Give the next rank its turn."""
        if not self._ready:
            # Those that wait look at the clock, and at whatever happens outside of MPI.
            self._ready.extend(self._idle)
            self._idle.clear()
        if self._ready:
            self._locks[self._ready.popleft()].release()


class VirtualMPI:
    """What the module mpi4py.MPI is for real ranks."""

    ANY_SOURCE = ANY_TAG = -1
    COMM_TYPE_SHARED = 1
    UNDEFINED = -32766
    COMM_NULL = None
    BYTE = INT64_T = UINT64_T = "buffer"
    MAX, SUM, BOR = np.maximum, np.add, np.bitwise_or

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.finalized = False

    def Is_finalized(self) -> bool:
        """Whether the run has ended: then nobody answers any more."""
        return self.finalized

    class Status:
        """Who sent how much."""

        def __init__(self) -> None:
            self.source = self.tag = self.count = 0

        def Get_source(self) -> int:
            """The sender."""
            return self.source

        def Get_tag(self) -> int:
            """What the sender called it."""
            return self.tag

        def Get_count(self, _datatype: Any) -> int:
            """Bytes."""
            return self.count

    class Request:
        """A request of which only the completion can be tested."""

        def __init__(self, turns: Turns, done: Callable[[], bool]) -> None:
            self._turns, self._done, self._complete = turns, done, False

        def Test(self) -> bool:
            """Whether it is complete; if not, all other ranks have had their turn."""
            if not self._complete:
                self._complete = self._done()
                if not self._complete:
                    self._turns.next()
                    self._complete = self._done()
            return self._complete

        @staticmethod
        def Testall(requests: list[Any]) -> bool:
            """Whether all are complete."""
            return all(one.Test() for one in requests)


class World:
    """One communicator: its collective calls that are under way, and its messages."""

    def __init__(self, turns: Turns, ranks: list[int], nodes: list[int]) -> None:
        self.turns = turns
        self.ranks = ranks
        self.nodes = nodes
        self.size = len(ranks)
        self.calls: dict[int, _Call] = {}
        self.messages: list[dict[tuple[int, int], deque[_Message]]] = [{} for _ in ranks]


class _Call:
    """One collective call: what the ranks gave so far."""

    __slots__ = ("arrived", "given", "left", "result")

    def __init__(self, size: int) -> None:
        self.arrived, self.left = 0, size
        self.given: dict[int, Any] = {}
        self.result: Any = None


_numbers = count()


class _Message:
    """Bytes on their way; a later one has a higher number."""

    __slots__ = ("content", "number", "taken", "waits")

    def __init__(self, content: Any, *, waits: bool) -> None:
        self.content, self.waits, self.taken = content, waits, False
        self.number = next(_numbers)


class Group:
    """The ranks of a communicator."""

    def __init__(self, ranks: list[int]) -> None:
        self._ranks = ranks

    def Free(self) -> None:
        """Nothing to give back."""

    def Translate_ranks(self, ranks: None, other: Group) -> list[int]:
        """The ranks that all of these have in another group."""
        there = {rank: i for i, rank in enumerate(other._ranks)}
        return [there[rank] for rank in self._ranks]


def _bytes(buffer: Any) -> Any:
    """The bytes of what MPI is given: memory, or memory with its type."""
    memory = buffer[0] if isinstance(buffer, (list, tuple)) else buffer
    return memory.reshape(-1).view(np.uint8) if isinstance(memory, np.ndarray) else np.frombuffer(memory, np.uint8)


class Intracomm:
    """A communicator as a rank sees it; the verbs have the names and arguments of mpi4py."""

    def __init__(self, world: World, rank: int) -> None:
        self._world, self.rank, self.size = world, rank, world.size
        self._calls = 0
        self._kept: dict[int, Any] = {}

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.size

    def Free(self) -> None:
        """Nothing to give back."""

    def Get_group(self) -> Group:
        return Group(self._world.ranks)

    # ------------------------------------------------------------------------------------ collective calls

    def _collective(self, given: Any, merge: Callable[[dict[int, Any]], Any], take: Callable[[Any], None]) -> Any:
        """A call that is complete when all ranks have come."""
        world, number = self._world, self._calls
        self._calls += 1
        call = world.calls.setdefault(number, _Call(self.size))
        call.given[self.rank] = given
        call.arrived += 1
        if call.arrived == self.size:
            call.result = merge(call.given)
            for rank in world.ranks:
                world.turns.wake(rank)

        def done() -> bool:
            if call.arrived < self.size:
                return False
            take(call.result)
            call.left -= 1
            if not call.left:
                del world.calls[number]
            return True

        return VirtualMPI.Request(world.turns, done)

    def _blocking(self, request: Any) -> None:
        while not request.Test():
            pass

    def Iallreduce(self, sent: Any, got: Any, op: Any) -> Any:
        kind = np.uint8 if op is np.bitwise_or else np.int64
        mine, into = _bytes(sent).view(kind).copy(), _bytes(got).view(kind)
        # One vector for all ranks: it is added to as they come.
        return self._collective(mine, lambda given: op.reduce(list(given.values())), partial(np.copyto, into))

    def Ibcast(self, buffer: Any, root: int) -> Any:
        into = _bytes(buffer)
        given = into.copy() if self.rank == root else None

        def take(result: Any) -> None:
            if self.rank != root:
                into[:] = result

        return self._collective(given, lambda every: every[root], take)

    def Ibarrier(self) -> Any:
        return self._collective(None, lambda _: None, lambda _: None)

    def Barrier(self) -> None:
        self._blocking(self.Ibarrier())

    def _gather(self, sent: Any, got: Any) -> Any:
        into = _bytes(got)

        def take(result: Any) -> None:
            into[: len(result)] = result

        given = _bytes(sent).copy()
        return self._collective(given, lambda every: np.concatenate([every[r] for r in range(self.size)]), take)

    Iallgather = Iallgatherv = _gather

    def Allgather(self, sent: Any, got: Any) -> None:
        self._blocking(self._gather(sent, got))

    Allgatherv = Allgather

    def Bcast(self, buffer: Any, root: int) -> None:
        self._blocking(self.Ibcast(buffer, root))

    def _split(self, color: int, key: int) -> Intracomm | None:
        made: list[Any] = [None]

        def merge(given: dict[int, Any]) -> dict[int, tuple[World, int]]:
            found: dict[int, tuple[World, int]] = {}
            for group in sorted({one for one, _ in given.values()}):
                ranks = sorted((r for r in given if given[r][0] == group), key=lambda r: (given[r][1], r))
                world = self._world
                inner = World(world.turns, [world.ranks[r] for r in ranks], [world.nodes[r] for r in ranks])
                found |= {r: (inner, i) for i, r in enumerate(ranks)}
            return found

        def take(result: Any) -> None:
            made[0] = Intracomm(*result[self.rank])

        self._blocking(self._collective((color, key), merge, take))
        return None if color == VirtualMPI.UNDEFINED else made[0]

    def Split(self, color: int, key: int = 0) -> Any:
        return self._split(color, key)

    def Split_type(self, _kind: int) -> Any:
        return self._split(self._world.nodes[self.rank], self.rank)

    # -------------------------------------------------------------------------------------------- messages

    def _send(self, buffer: Any, dest: int, tag: int, *, waits: bool) -> _Message:
        """Put a message where its receiver finds it; the sender may wait until it is taken."""
        message, world = _Message(_bytes(buffer).copy(), waits=waits), self._world
        world.messages[dest].setdefault((self.rank, tag), deque()).append(message)
        world.turns.wake(world.ranks[dest])
        return message

    def Issend(self, buffer: Any, dest: int, tag: int = 0) -> Any:
        message = self._send(buffer, dest, tag, waits=True)
        return VirtualMPI.Request(self._world.turns, lambda: message.taken)

    def Isend(self, buffer: Any, dest: int, tag: int = 0) -> Any:
        self._send(buffer, dest, tag, waits=False)
        return VirtualMPI.Request(self._world.turns, lambda: True)

    def _find(self, source: int, tag: int) -> tuple[int, int] | None:
        """Where the first message from a rank is."""
        box = self._world.messages[self.rank]
        if tag == VirtualMPI.ANY_TAG:
            # messages of one rank come in the order in which it sent them
            return min((key for key in box if key[0] == source), key=lambda key: box[key][0].number, default=None)
        if source != VirtualMPI.ANY_SOURCE:
            return (source, tag) if (source, tag) in box else None
        return next((key for key in box if key[1] == tag), None)

    def Iprobe(self, source: int, tag: int, status: Any = None) -> bool:
        key = self._find(source, tag)
        if key is None and tag not in NOTES:
            # Whoever waits for it asks again; notes of ranks that leave are looked for in passing.
            self._world.turns.next()
            key = self._find(source, tag)
        if key is None:
            return False
        if status is not None:
            (status.source, status.tag), status.count = key, len(self._world.messages[self.rank][key][0].content)
        return True

    def _take(self, into: Any, source: int, tag: int) -> bool:
        key = self._find(source, tag)
        if key is None:
            return False
        box = self._world.messages[self.rank]
        message = box[key].popleft()
        if not box[key]:
            del box[key]
        into[: len(message.content)] = message.content
        message.taken = True
        if message.waits:
            self._world.turns.wake(self._world.ranks[key[0]])
        return True

    def Irecv(self, buffer: Any, source: int, tag: int = 0) -> Any:
        return VirtualMPI.Request(self._world.turns, partial(self._take, _bytes(buffer), source, tag))

    def Recv(self, buffer: Any, source: int, tag: int = 0, _status: Any = None) -> None:
        self._blocking(self.Irecv(buffer, source, tag))
