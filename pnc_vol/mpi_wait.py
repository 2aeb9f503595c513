"""Completing MPI requests with a time limit, and knowing which ranks still take part.

Knows: messages, deadlines, the numbers of collective calls. Does not know: what a call exchanges, files. It gets mpi4py
from its user.

Rules
-----
1. If a rank does not come in time, those that came raise `CollectiveTimeout`, which names it.
2. A rank that leaves by an exception says so (`TimedWait.leave`) and how many calls it completed; whoever waits for it
   raises `RankError` at once, unless it took part in the call.
3. Waiting ranks sleep: on a machine with more ranks than cores, spinning is most of the cost of a collective call.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pnc_vol import errors
from pnc_vol.rank_errors import ranks_text

__all__ = ["Arrival", "Consensus", "TimedWait", "patiently"]

_LAST_CALL = _SIZE = struct.Struct("<q")
# Ranks in step meet within some turns; the shortest sleep takes 50 microseconds, as long as the whole exchange.
_QUICK_TURNS = 200
_give_way: Callable[[], None] = getattr(os, "sched_yield", lambda: time.sleep(0))
_TAG_LEFT = 4001
_TAG_HERE = 4002
_LONGEST_NOTE = 4096


def patiently(timeout: float | None) -> Iterator[int]:
    """Turns of waiting until the time is up, with sleeps that grow longer the longer it takes."""
    deadline = None if timeout is None else time.monotonic() + timeout
    pause, turn = 0.0, 0
    while True:
        yield turn
        turn += 1
        if turn % 16 == 0 and deadline is not None and time.monotonic() > deadline:
            return
        if turn <= _QUICK_TURNS:
            _give_way()
        else:
            pause = min(0.001, pause + 0.00002)
            time.sleep(pause)


class TimedWait:
    """Completes the collective calls of one communicator.

    mpi : mpi4py.MPI.Intracomm
    module : the module mpi4py.MPI
    timeout : float or None, seconds to wait in one call.
    sequence : int, calls that were begun here.
    broken : RankError or None, why no call can be completed any more.
    note : callable or None, is told the operation and when (`time.perf_counter`) waiting for it began, when it ends.
    """

    def __init__(self, mpi: Any, module: Any, timeout: float | None) -> None:
        self.mpi = mpi
        self.module = module
        self.timeout = timeout
        self.sequence = 0
        self.broken: errors.RankError | None = None
        self.note: Callable[[str, float], None] | None = None
        self._completed = 0
        # Who left, after which call, and why.
        self._left: list[tuple[int, int, str]] = []
        # Requests that were given up: MPI may still write to their buffers.
        self._given_up: list[Any] = []

    def begin(self, operation: str) -> int:
        """Begin a call; its number.

        Raises
        ------
        RankError
            It cannot be completed: a rank left, an earlier call was given up, or MPI has ended.
        """
        if self.broken is not None:
            raise type(self.broken)(str(self.broken), self.broken.ranks)
        if self.module.Is_finalized():
            self.broken = errors.RankError(f"{operation} comes after MPI has ended; close files before MPI.Finalize()")
            raise self.broken
        self.sequence += 1
        self._raise_if_left(operation)
        return self.sequence

    def completed(self) -> None:
        """Note that the call that was begun last is complete on this rank."""
        self._completed = self.sequence

    def wait(self, operation: str, request: Any, buffers: tuple[Any, ...]) -> None:
        """Complete `request`, which fills `buffers`.

        Raises
        ------
        RankError
            A rank left before this call.
        CollectiveTimeout
            Not all ranks came in time.
        """
        early = False
        start = time.perf_counter() if self.note is not None else 0.0
        for turn in patiently(self.timeout):
            done = request.Test()
            if done or turn % 16 == 15:
                # A rank that comes late may find all messages of the others already there, and the others gone.
                self._listen(operation, request, buffers, late=not early)
                early = True
            if done:
                if self.note is not None:
                    self.note(operation, start)
                return
        self._give_up(operation, request, buffers, late=False)

    def _listen(self, operation: str, request: Any, buffers: tuple[Any, ...], *, late: bool) -> None:
        """Take messages of ranks that left or gave up this call; `late`: that may have been before this rank came."""
        status = self.module.Status()
        while self.mpi.Iprobe(self.module.ANY_SOURCE, _TAG_LEFT, status):
            note = bytearray(_LONGEST_NOTE)
            self.mpi.Recv([note, self.module.BYTE], status.Get_source(), _TAG_LEFT, status)
            (last,) = _LAST_CALL.unpack_from(note)
            reason = bytes(note[_LAST_CALL.size : status.Get_count(self.module.BYTE)]).decode(errors="replace")
            self._left.append((status.Get_source(), last, reason))
        try:
            self._raise_if_left(operation)
        except errors.RankError:
            self._given_up.append((request, buffers))
            raise
        if self.mpi.Iprobe(self.module.ANY_SOURCE, _TAG_HERE, status) and self.timeout is not None:
            # The time limit of another rank is over: its call has failed, and so has this one.
            self._give_up(operation, request, buffers, late=late)

    def _raise_if_left(self, operation: str) -> None:
        """Raise if a rank left before this call."""
        for left, last, reason in self._left:
            if last < self.sequence:
                self.broken = errors.RankError(
                    f"{operation} cannot be completed: rank {left} left the file: {reason}", [left]
                )
                raise self.broken

    def _give_up(self, operation: str, request: Any, buffers: tuple[Any, ...], *, late: bool) -> None:
        """Name the ranks that did not come: each rank says to all whether it came in time, and listens for a while."""
        MPI = self.module
        self._given_up.append((request, buffers))
        note = bytearray((late,))
        for other in range(self.mpi.size):
            if other != self.mpi.rank:
                self._given_up.append((self.mpi.Isend([note, MPI.BYTE], other, _TAG_HERE), note))
        told = {self.mpi.rank: late}
        patience = time.monotonic() + min(2.0, max(0.5, (self.timeout or 1.0) / 4))
        status = MPI.Status()
        while time.monotonic() < patience and len(told) < self.mpi.size:
            if self.mpi.Iprobe(MPI.ANY_SOURCE, _TAG_HERE, status):
                heard = bytearray(1)
                self.mpi.Recv([heard, MPI.BYTE], status.Get_source(), _TAG_HERE)
                told[status.Get_source()] = bool(heard[0])
            else:
                time.sleep(0.005)
        absent = [rank for rank in range(self.mpi.size) if told.get(rank, True)]
        who = f"{ranks_text(absent)} did not call it" if absent else "a rank called it too late"
        self.broken = errors.CollectiveTimeout(
            f"{operation} (collective call {self.sequence} of this file): {who} within {self.timeout:g} s; "
            "every rank must call it (collective_timeout= sets the time limit)",
            absent,
        )
        raise self.broken

    def free(self) -> None:
        """Give the communicator back (collective)."""
        # One with calls that were given up can only be left to MPI_Finalize.
        if self.broken is None and self.mpi is not None:
            self.mpi.Free()
        self.mpi = None

    def leave(self, reason: str) -> None:
        """Tell all other ranks, without waiting, that this rank takes part in nothing any more."""
        if self.broken is None and not self.module.Is_finalized():
            self.broken = errors.RankError(f"this rank left the file: {reason}", [self.mpi.rank])
            note = bytearray((_LAST_CALL.pack(self._completed) + reason.encode(errors="replace"))[:_LONGEST_NOTE])
            for other in range(self.mpi.size):
                if other != self.mpi.rank:
                    request = self.mpi.Isend([note, self.module.BYTE], other, _TAG_LEFT)
                    self._given_up.append((request, note))


class Arrival:
    """A message of one rank that may have any length, taken when it comes."""

    def __init__(self, mpi: Any, module: Any, source: int, tag: int) -> None:
        self._mpi, self._module, self._source, self._tag = mpi, module, source, tag
        self.taken: bytes | BaseException = b""
        self._request: Any = None
        self._memory: bytearray = bytearray()

    def Test(self) -> bool:
        """Whether it is here."""
        MPI, mpi = self._module, self._mpi
        if self._request is None:
            status = MPI.Status()
            if not mpi.Iprobe(self._source, self._tag, status):
                return False
            try:
                self._memory = bytearray(status.Get_count(MPI.BYTE))
            except MemoryError as error:
                # The message stays where it is: no later call has its tag for a long time.
                self.taken = error
                return True
            self._request = mpi.Irecv([self._memory, MPI.BYTE], self._source, self._tag)
        if not self._request.Test():
            return False
        self.taken = bytes(self._memory)
        return True


class Consensus:
    """Sizes to some ranks, and from those that have something for this one: complete when nothing is under way."""

    def __init__(self, mpi: Any, module: Any, tag: int, sizes: Mapping[int, int]) -> None:
        self._mpi, self._module, self._tag = mpi, module, tag
        self._memory = [bytearray(_SIZE.pack(size)) for size in sizes.values()]
        pairs = zip(self._memory, sizes, strict=True)
        self._sends = [mpi.Issend([one, module.BYTE], rank, tag) for one, rank in pairs]
        self._barrier: Any = None
        self._status = module.Status()
        self.coming: dict[int, int] = {}

    def Test(self) -> bool:
        """Whether all sizes of all ranks have arrived."""
        MPI, mpi = self._module, self._mpi
        while mpi.Iprobe(MPI.ANY_SOURCE, self._tag, self._status):
            source, got = self._status.Get_source(), bytearray(_SIZE.size)
            mpi.Recv([got, MPI.BYTE], source, self._tag)
            (self.coming[source],) = _SIZE.unpack(got)
        if self._barrier is None:
            self._sends = [one for one in self._sends if not one.Test()]
            if not self._sends:
                self._barrier = mpi.Ibarrier()
        return self._barrier is not None and bool(self._barrier.Test())
