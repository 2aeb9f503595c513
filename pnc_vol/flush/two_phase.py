"""Small pieces of many ranks, written by few ranks in few large pieces.

Knows: ranks, extents, a driver. Does not know: requests, variables, which transport is chosen.

The file from the first byte that any rank writes to the last is cut into windows, a window into stripes, one for each
aggregator. Ranks of one node put their pieces into memory that all of them see; ranks of several nodes send them. Then
each aggregator writes its stripe by one call.

Rules
-----
1. A stripe begins as what the file holds, so bytes that nobody gave stay. Nobody else writes meanwhile: no stripe is
   read before all ranks are there, and none goes on before all stripes are written. What drivers hold back of the
   windows, in any rank's cache, is brought to the file before.
2. If a stripe cannot be read or written, all ranks that gave something get an error; who gave what to it is not known
   there. They then write what is theirs by themselves, and find out.
3. Where the pieces are too far apart for this, all ranks write by themselves.
4. Ranks wait in `Comm.exchange` and `Comm.all_to_all`, which sleep.
5. What is no error of the file, such as a rank without the memory for a window or for what it is sent, is raised on all
   ranks at the next exchange (`Comm.errors_shared`), and all that was posted stays posted.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.comm import Comm
from pnc_vol.drivers.base import Driver
from pnc_vol.drivers.byte_copy import copy_pieces
from pnc_vol.extents.blocks import extents_between
from pnc_vol.extents.model import Extents, Int64, before, one_extent
from pnc_vol.flush.node_shared_memory import shared_memory

__all__ = ["Nodes", "TwoPhase"]

Bytes = npt.NDArray[np.uint8]

WINDOW = 16 << 20
"""Bytes of a window. Two of them are in memory at a time."""

_PAGE = 4096
_SPARSE = 64
"""How many times the bytes that are given the windows may have, before ranks rather write by themselves."""

_MOST_WINDOWS = 1 << 20
_BOUNDS = struct.Struct("<4q")
_DONE = struct.Struct("<q")
_BEYOND = 1 << 62


class Nodes(NamedTuple):
    """Where ranks are.

    node : list of int, for each rank the lowest rank of its node.
    cores : list of int, for each rank the cores that it may use.
    """

    node: list[int]
    cores: list[int]

    @classmethod
    def of(cls, comm: Comm) -> Nodes:
        """Ask all ranks (collective)."""
        nodes = comm.nodes()
        return cls([lowest for lowest, _ in nodes], [cores for _, cores in nodes])

    @property
    def single(self) -> bool:
        """Whether all ranks are on one node."""
        return len(set(self.node)) == 1

    def aggregators(self, wanted: int) -> list[int]:
        """Ranks that write for others: `wanted` of each node; as many as it has cores if that is 0."""
        found: list[int] = []
        for first in sorted(set(self.node)):
            ranks = [rank for rank, node in enumerate(self.node) if node == first]
            n = min(len(ranks), wanted or self.cores[first])
            found += [ranks[i * len(ranks) // n] for i in range(n)]
        return found


class _Part(NamedTuple):
    """A part of the file, from `first` to `last`: a window, or a stripe of one.

    base : int, the byte of the file that lies at the beginning of a window's memory.
    """

    first: int
    last: int
    base: int


class TwoPhase:
    """Collective writes of one file; every rank makes the same calls.

    Parameters
    ----------
    comm : Comm
    driver : Driver
    nodes : Nodes
    window : int, bytes.
    """

    def __init__(self, comm: Comm, driver: Driver, nodes: Nodes, *, window: int = WINDOW) -> None:
        self.comm = comm
        self.driver = driver
        self.nodes = nodes
        self.window = window
        self._refused = False
        self._shared: Bytes | None = None
        self._own: Bytes | None = None

    def write(self, extents: Extents, memory: Bytes, aggregators: list[int]) -> None:
        """Write this rank's extents, sorted and disjoint, perhaps none; all ranks together.

        Raises
        ------
        OSError
            Something of what all ranks gave could not be written; which pieces are in the file is not known.
        """
        with self.comm.errors_shared():
            work = _Round(self, extents, memory, aggregators)
            windows = work.agree()
            if windows == []:
                return
            if windows and self.driver.capabilities.holds_back:
                # What ranks hold of the windows has to be in the file before a stripe is read.
                work.attempt(lambda: self._drain(windows))
                self.comm.exchange("flush stripes")
            if windows is None:
                work.attempt(lambda: self.driver.write(extents, memory))
            else:
                shared = self._memory(work.size * min(2, len(windows))) if self.nodes.single else None
                if shared is not None:
                    self._through_shared_memory(work, windows, shared)
                else:
                    self._by_messages(work, windows)
            failure = work.end()
        if failure is not None:
            raise failure

    def _drain(self, windows: list[_Part]) -> None:
        """Bring what this rank holds to the file if some of it is in a window."""
        held = self.driver.unsynced()
        ends = held.offset + held.length
        if any(len(extents_between(held, ends, one.first, one.last).offset) for one in windows):
            self.driver.drain()

    def _memory(self, nbytes: int) -> Bytes | None:
        """Memory that all ranks see, of this size at least; None if they cannot have any."""
        if not self._refused and (self._shared is None or self._shared.nbytes < nbytes):
            self._shared = None
            self._shared = shared_memory(self.comm, nbytes)
            self._refused = self._shared is None
        return self._shared

    def _through_shared_memory(self, work: _Round, windows: list[_Part], memory: Bytes) -> None:
        """Through memory that all see; while one window is written, the next one is filled."""
        halves = [memory[: work.size], memory[work.size :]]
        work.begin(windows[0], halves[0])
        self.comm.exchange("flush window")
        for k, window in enumerate(windows):
            work.fill(window, halves[k % 2])
            if k + 1 < len(windows):
                # This rank's stripe of the window before is written, and nobody fills it yet.
                work.begin(windows[k + 1], halves[(k + 1) % 2])
            self.comm.exchange("flush window")
            work.finish(window, halves[k % 2])

    def _by_messages(self, work: _Round, windows: list[_Part]) -> None:
        """By messages to the aggregators."""
        if self._own is None:
            self._own = np.empty(self.window, np.uint8)
        for window in windows:
            work.begin(window, self._own)
            got = self.comm.all_to_all("flush pieces", work.parcels(window))
            work.attempt(lambda window=window, got=got: work.unpack(window, got, self._own))  # type: ignore[misc]
            work.finish(window, self._own)

    def close(self) -> None:
        """Give the memory back."""
        self._shared = self._own = None


class _Round:
    """One collective write."""

    def __init__(self, of: TwoPhase, extents: Extents, memory: Bytes, aggregators: list[int]) -> None:
        self.of = of
        self.extents = extents
        self.ends = extents.offset + extents.length
        self.memory = memory
        self.aggregators = aggregators
        rank = of.comm.rank
        self.mine = aggregators.index(rank) if rank in aggregators else -1
        self.failure: OSError | None = None
        self.size = self.each = 0
        """Bytes of a window and of a stripe."""

    def attempt(self, do: Callable[[], None]) -> None:
        """Read or write unless that failed before; what fails is raised at the end, as requests may be at fault."""
        if self.failure is None:
            try:
                do()
            except OSError as error:
                self.failure = error

    def agree(self) -> list[_Part] | None:
        """The windows that some rank has pieces for; None if all write by themselves as the windows were too empty."""
        comm = self.of.comm
        n = len(self.extents.offset)
        mine = (int(self.extents.offset[0]), int(self.ends[-1]), self.extents.nbytes, n) if n else (_BEYOND, 0, 0, 0)
        told = [_BOUNDS.unpack(one) for one in comm.exchange("flush bounds", _BOUNDS.pack(*mine))]
        low, high = min(one[0] for one in told), max(one[1] for one in told)
        nbytes = sum(one[2] for one in told)
        if not nbytes:
            return []
        base = low // _PAGE * _PAGE
        # All windows are cut to stripes alike, so that a rank's stripes always have the same part of the memory.
        n = len(self.aggregators)
        self.each = -(-min(self.of.window, high - base) // (n * _PAGE)) * _PAGE
        self.size = size = min(self.of.window, n * self.each)
        count = -(-(high - base) // size)
        if count > _MOST_WINDOWS:
            return None
        touched = np.ones(count, bool)
        if count > 1:
            bits = np.zeros(-(-count // 8), np.uint8)
            self.attempt(lambda: self._touch(bits, base, count))
            everyone = comm.exchange("flush windows", bits.tobytes())
            any_of = np.bitwise_or.reduce([np.frombuffer(one, np.uint8) for one in everyone])
            touched = np.unpackbits(any_of, count=count).astype(bool)
        which = np.flatnonzero(touched)
        if min(len(which) * size, high - low) > _SPARSE * nbytes:
            return None
        begins = (base + which * size).tolist()
        return [_Part(max(low, begin), min(high, begin + size), begin) for begin in begins]

    def _touch(self, bits: Bytes, base: int, count: int) -> None:
        """Set the bit of each window that this rank has pieces for."""
        first = np.bincount((self.extents.offset - base) // self.size, minlength=count + 1)
        beyond = np.bincount((self.ends - 1 - base) // self.size + 1, minlength=count + 1)
        bits[:] = np.packbits(np.cumsum(first - beyond)[:count] > 0)

    def end(self) -> OSError | None:
        """Learn how it went everywhere: what this rank, or one that writes for it, failed with."""
        number = 0 if self.failure is None else self.failure.errno or errno.EIO
        told = [_DONE.unpack(one)[0] for one in self.of.comm.exchange("flush written", _DONE.pack(number))]
        if self.failure is not None:
            return self.failure
        failed = [rank for rank, one in enumerate(told) if one]
        if failed and len(self.extents.offset):
            number = told[failed[0]]
            return OSError(number, f"{os.strerror(number)} (rank {failed[0]}, which writes for others)")
        return None

    # ------------------------------------------------------------------------------------------ stripes

    def stripe(self, window: _Part, number: int) -> _Part:
        """The part of a window that an aggregator writes; may be empty. It is cut at pages of the file."""
        first = max(window.first, window.base + number * self.each)
        last = min(window.last, window.base + min((number + 1) * self.each, self.size))
        return _Part(first, max(first, last), window.base)

    def begin(self, window: _Part, memory: Bytes) -> None:
        """Let this rank's stripe be what the file holds."""
        if self.mine < 0:
            return
        first, last, base = self.stripe(window, self.mine)
        if last > first:
            room = memory[first - base : last - base]

            def do() -> None:
                got = self.of.driver.read(one_extent(first, last - first), room)
                room[got:] = 0

            self.attempt(do)

    def fill(self, window: _Part, memory: Bytes) -> None:
        """Put this rank's pieces of a window into the memory that all see."""

        def do() -> None:
            part = self.within(window)
            copy_pieces(memory, part.offset - window.base, self.memory, part.place, part.length)

        self.attempt(do)

    def finish(self, window: _Part, memory: Bytes) -> None:
        """Write this rank's stripe."""
        if self.mine < 0:
            return
        first, last, base = self.stripe(window, self.mine)
        if last > first:
            self.attempt(lambda: self.of.driver.write(one_extent(first, last - first, first - base), memory))

    def within(self, part: _Part) -> Extents:
        """This rank's pieces of a part of the file."""
        return extents_between(self.extents, self.ends, part.first, part.last)

    # ----------------------------------------------------------------------------------------- messages

    def parcels(self, window: _Part) -> list[Bytes]:
        """For each rank what it writes for this one: number of pieces, their offsets, lengths and bytes."""
        found = [_NOTHING] * self.of.comm.size

        def do() -> None:
            for number, rank in enumerate(self.aggregators):
                part = self.within(self.stripe(window, number))
                n = len(part.offset)
                if n:
                    head = np.concatenate(([n], part.offset - window.base, part.length)).astype(np.int64)
                    parcel = np.empty(head.nbytes + part.nbytes, np.uint8)
                    parcel[: head.nbytes] = head.view(np.uint8)
                    copy_pieces(parcel, head.nbytes + before(part.length), self.memory, part.place, part.length)
                    found[rank] = parcel

        self.attempt(do)
        return found if self.failure is None else [_NOTHING] * self.of.comm.size

    def unpack(self, window: _Part, got: list[Bytes], memory: Bytes) -> None:
        """Put what others sent into this rank's stripe, the lowest rank's first."""
        for parcel in got:
            if len(parcel):
                n = int(parcel[:8].view(np.int64)[0])
                numbers: Int64 = parcel[8 : 8 + 16 * n].view(np.int64)
                offset, length = numbers[:n], numbers[n:]
                copy_pieces(memory, offset, parcel[8 + 16 * n :], before(length), length)


_NOTHING = np.empty(0, np.uint8)
