"""MPI requests are completed with a time limit; this module knows which ranks still take part.

Knows: messages, deadlines, the numbers of collective calls. Does not know: what a call exchanges, files. It gets mpi4py
from its user.

Rules
-----
1. If a rank does not come in time, those that came raise `CollectiveTimeout`, which names it. They find out by telling
   their neighbours, at distances of 1, 2, 4, ... ranks, who they know is here, until nobody learns more; who is silent
   then is asked directly. No rank sends to all others.
2. A rank that leaves by an exception says so to its neighbours (`TimedWait.leave`), and how many calls it completed;
   each rank that waits passes it on to its neighbours, and raises `RankError` unless the other took part in the call.
3. When all ranks have left, they part (`TimedWait.part`): each takes all messages of its neighbours that it did not
   take before, and all learn the least of some numbers. These are messages, since a collective call would be matched
   by MPI with one that a rank may have begun and another one never begins. Who does not find the
   others waits no longer than it is told to, and goes on with it later.
4. Waiting ranks sleep: on a machine with more ranks than cores, spinning is most of the cost of a collective call.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from pnc_vol import errors
from pnc_vol.interruptions import is_interruption
from pnc_vol.ranks.comm import ranks_text

__all__ = ["NOTES", "Arrival", "TimedWait", "patiently"]

_LEFT = struct.Struct("<qq")
# Ranks in step meet within some turns; the shortest sleep takes 50 microseconds, as long as the whole exchange.
_QUICK_TURNS = 200
_CROWDED_TURNS = 10
"""The same where ranks share cores: the others need the core to come at all."""
_SAY_AGAIN = 0.01
_MOST_ASKED = 64
_give_way: Callable[[], None] = getattr(os, "sched_yield", lambda: time.sleep(0))
_TAG_LEFT = 4001
_TAG_HERE = 4002
_TAG_PART = 4100
"""The first of the tags, one for each step, of what ranks say at last."""
NOTES = _TAG_LEFT, _TAG_HERE
"""Tags of what ranks say when they leave, or give a call up."""
_LONGEST_NOTE = 4096


def patiently(timeout: float | None, quick: int = _QUICK_TURNS) -> Iterator[int]:
    """Turns of waiting until the time is up, with sleeps that grow longer the longer it takes."""
    deadline = None if timeout is None else time.monotonic() + timeout
    pause, turn = 0.0, 0
    while True:
        yield turn
        turn += 1
        # At some turns only: a limit of seconds needs no more, and the first turns are to be quick.
        if turn % 16 == 0 and deadline is not None and time.monotonic() > deadline:
            return
        if turn <= quick:
            _give_way()
        else:
            pause = min(0.001, pause + 0.00002)
            time.sleep(pause)


class TimedWait:
    """Completes the collective calls of one communicator.

    mpi : mpi4py.MPI.Intracomm
    module : the module mpi4py.MPI
    timeout : float or None, seconds to wait in one call.
    file : str, what the calls are about, for messages.
    sequence : int, calls that were begun here.
    broken : RankError or None, why no call can be completed any more.
    crowded : bool, ranks share cores.
    note : callable or None, is told the operation and when (`time.perf_counter`) waiting for it began, when it ends.
    """

    def __init__(self, mpi: Any, module: Any, timeout: float | None, file: str) -> None:
        self.mpi = mpi
        self.module = module
        self.timeout = timeout
        self.file = file
        self.sequence = 0
        self.crowded = False
        self.broken: errors.RankError | None = None
        self.note: Callable[[str, float], None] | None = None
        self._completed = 0
        # Who left, after which call, and why.
        self._left: list[tuple[int, int, str]] = []
        # Requests that were given up: MPI may still write to their buffers.
        self._given_up: list[Any] = []
        self._parting: Iterator[list[int] | None] | None = None

    def begin(self, operation: str) -> int:
        """Begin a call; its number.

        Raises
        ------
        RankError
            It cannot be completed: a rank left, an earlier call was given up, or MPI has ended.
        """
        if self.broken is not None:
            # A new object, as one that is raised again would show the traceback of the first time, too.
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
        for turn in patiently(self.timeout, _CROWDED_TURNS if self.crowded else _QUICK_TURNS):
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
            left, last = _LEFT.unpack_from(note)
            length = status.Get_count(self.module.BYTE)
            if all(one != left for one, _, _ in self._left):
                self._left.append((left, last, bytes(note[_LEFT.size : length]).decode(errors="replace")))
                self._say(note[:length], _TAG_LEFT, self.neighbours() - {left, status.Get_source()})
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

    def neighbours(self) -> set[int]:
        """Return ranks at distances of 1, 2, 4, ...: what each passes on to these comes to all."""
        rank, size = self.mpi.rank, self.mpi.size
        steps = [1 << level for level in range((size - 1).bit_length())]
        return {(rank + step) % size for step in steps} | {(rank - step) % size for step in steps} - {rank}

    def _say(self, note: bytes | bytearray, tag: int, ranks: Iterable[int]) -> None:
        """Send a few bytes, without waiting."""
        for other in ranks:
            self._given_up.append((self.mpi.Isend([note, self.module.BYTE], other, tag), note))

    def _give_up(self, operation: str, request: Any, buffers: tuple[Any, ...], *, late: bool) -> None:
        """Name the ranks that did not come: each rank tells who came in time, as far as it knows, and listens."""
        self._given_up.append((request, buffers))
        silent = self._silent(late=late)
        absent = _ranks_of(silent)
        who = f"{ranks_text(absent)} did not call it" if absent else "a rank called it too late"
        self.broken = errors.CollectiveTimeout(
            f"{operation} (collective call {self.sequence} of {self.file}): {who} within {self.timeout:g} s; "
            "every rank must call it (collective_timeout= sets the time limit)",
            absent,
        )
        raise self.broken

    def _silent(self, *, late: bool) -> int:
        """Return the ranks that did not come, or came too late, as bits of a number."""
        MPI, rank, size = self.module, self.mpi.rank, self.mpi.size
        width = -(-size // 8)
        everyone, here, came_late = (1 << size) - 1, 1 << rank, late << rank
        neighbours, announced, again = self.neighbours(), (0, 0), 0.0
        patience = min(2.0, max(0.5, (self.timeout or 1.0) / 4))
        start = news = time.monotonic()
        asked = False
        status = MPI.Status()
        while here != everyone and time.monotonic() < start + patience:
            now = time.monotonic()
            if announced != (here, came_late) and now > again:
                announced, again = (here, came_late), now + _SAY_AGAIN
                self._say(_bits(announced, width), _TAG_HERE, neighbours)
            elif not asked and now > news + patience / 2:
                # All neighbours of a rank may be absent.
                asked = True
                self._say(_bits(announced, width), _TAG_HERE, _share(rank, here, everyone & ~here))
            # What one rank knows goes to its neighbours, and on to theirs, until nothing new comes.
            if self.mpi.Iprobe(MPI.ANY_SOURCE, _TAG_HERE, status):
                heard = bytearray(2 * width)
                self.mpi.Recv([heard, MPI.BYTE], status.Get_source(), _TAG_HERE)
                more = int.from_bytes(heard[:width], "little") | here
                came_late |= int.from_bytes(heard[width:], "little")
                here, news = more, news if more == here else now
            else:
                time.sleep(0.005)
        if announced != (here, came_late):
            self._say(_bits((here, came_late), width), _TAG_HERE, neighbours)
        absent: int = everyone & ~here | came_late
        return absent

    def free(self) -> None:
        """Give the communicator back (collective)."""
        # One with calls that were given up can only be left to MPI_Finalize.
        if self.broken is None and self.mpi is not None:
            self.mpi.Free()
        self.mpi = None

    def leave(self, reason: str, *, inside: bool = False) -> None:
        """Tell all other ranks, without waiting, that this rank takes part in nothing any more.

        inside : bool, not even in the rest of the call that it began last.
        """
        # once the communicator was given back, all ranks are done with it
        if self.broken is None and self.mpi is not None and not self.module.Is_finalized():
            self.broken = errors.RankError(f"this rank left the file: {reason}", [self.mpi.rank])
            # Calls up to this one can be completed by the others; in later ones they would wait for this rank.
            last = self.sequence - 1 if inside else self._completed
            note = _LEFT.pack(self.mpi.rank, last) + reason.encode(errors="replace")
            self._say(note[:_LONGEST_NOTE], _TAG_LEFT, self.neighbours())

    def leave_if_interrupted(self, call: str, error: BaseException) -> None:
        """Leave if `error`, Ctrl-C or no memory, has cut short the collective call that this rank began last."""
        if is_interruption(error):
            self.leave(f"{call} was cut short by {type(error).__name__}", inside=True)

    def part(self, values: Sequence[int], patience: float) -> list[int] | None:
        """Return the least of each of these numbers of all ranks; None: not all ranks are here within `patience`
        seconds.

        Called again it goes on with the numbers of the first call.
        """
        if self.mpi is None or self.module.Is_finalized():
            return None
        if self._parting is None:
            self._parting = self._part(list(values))
        for _ in patiently(patience, _CROWDED_TURNS):
            found = next(self._parting, None)
            if found is not None:
                return found
        return None

    def _part(self, values: list[int]) -> Iterator[list[int] | None]:
        """Do as `part` does, None as long as a message is missing: steps of a dissemination, in which neighbours take
        part."""
        MPI, rank, size, status = self.module, self.mpi.rank, self.mpi.size, self.module.Status()
        for level in range((size - 1).bit_length()):
            tag, step = _TAG_PART + level, 1 << level
            peers = {(rank + step) % size, (rank - step) % size}
            self._say(struct.pack(f"<{len(values)}q", *values), tag, peers)
            for peer in peers:
                arrived = -1
                while arrived != tag:
                    if not self.mpi.Iprobe(peer, MPI.ANY_TAG, status):
                        yield None
                        continue
                    # Messages of one rank come in the order in which it sent them: what comes before is of no use.
                    note, arrived = bytearray(status.Get_count(MPI.BYTE)), status.Get_tag()
                    self.mpi.Recv([note, MPI.BYTE], peer, arrived)
                values = list(map(min, values, struct.unpack(f"<{len(values)}q", note)))
        yield values


def _bits(sets: tuple[int, int], width: int) -> bytes:
    """Return two sets of ranks as bytes."""
    return b"".join(one.to_bytes(width, "little") for one in sets)


def _share(rank: int, here: int, silent: int) -> list[int]:
    """Return the silent ranks that this one asks: all that are here ask some."""
    place, askers = (here & ((1 << rank) - 1)).bit_count(), here.bit_count()
    return _ranks_of(silent)[place::askers][:_MOST_ASKED]


def _ranks_of(bits: int) -> list[int]:
    """Return a set of ranks as a list, in order."""
    packed = np.frombuffer(bits.to_bytes(-(-bits.bit_length() // 8), "little"), np.uint8)
    found: list[int] = np.flatnonzero(np.unpackbits(packed, bitorder="little")).tolist()
    return found


class Arrival:
    """A message of one rank that may have any length, taken when it comes."""

    def __init__(self, mpi: Any, module: Any, source: int, tag: int) -> None:
        self._mpi, self._module, self._source, self._tag = mpi, module, source, tag
        self.taken: bytes | BaseException = b""
        self._request: Any = None
        self._memory: bytearray = bytearray()

    def Test(self) -> bool:
        """Return whether it is here."""
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
