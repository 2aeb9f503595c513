"""`copy` copies the values of a set of subfiles to the places that a file of the canonical layout has for them.

Knows: variables as elements and bytes, drivers, the memory that may be used. Does not know: sets of subfiles, headers,
ranks, files' names.

Rules
-----
1. The elements of a stretch of one record of a variable are a few ranges of the blobs, since a process's runs are in
   ascending order. Those of consecutive stretches are read together, and put into their order in memory.
   To read each blob once and write its runs, as the C tool does, makes many short writes to one file. So no rank needs
   data of another one, and none waits for one that failed.
2. Which ranges and which order these are depends on the map alone: it is found once for all variables of a map.
3. Maps that are larger than a stretch are copied stretch by stretch, each with all variables; all others in the order
   of the target, so that it is written from front to back.
4. Elements that are nowhere get the variable's fill value.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.base import Driver
from pnc_vol.errors import FormatError
from pnc_vol.extents.merge import coalesce
from pnc_vol.extents.model import Extents, Int64, before, one_extent
from pnc_vol.file.reads.gathered import Order, order_of, ranges
from pnc_vol.layout.base import ElementMap

__all__ = ["CopiedVariable", "Piece", "copy", "pieces", "share"]

Bytes = npt.NDArray[np.uint8]

_LEAST_STRETCH = 1 << 12
_BLOCK, _LEAST_BLOCK = 1 << 20, 64 << 10
"""Bytes that are read or written at a time: what is read is still in a processor's cache when it is put in order."""


class CopiedVariable(NamedTuple):
    """A variable to be copied.

    name : str, for messages.
    source : ElementMap, where its elements are.
    same : hashable, equal for variables whose elements are in the same order in the same blobs.
    width : int, bytes of an element.
    elements : int, of a record, or of all if it has none.
    records : int, 1 if it has no record dimension.
    begin, step : int
        Bytes of the target: where it begins, and from one record to the next; 0 if it has no record dimension.
    fill : bytes, of one element.
    """

    name: str
    source: ElementMap
    same: Hashable
    width: int
    elements: int
    records: int
    begin: int
    step: int
    fill: bytes


class Piece(NamedTuple):
    """A stretch of one record of a variable: its first element in the record, and elements."""

    of: CopiedVariable
    record: int
    first: int
    elements: int

    @property
    def nbytes(self) -> int:
        return self.elements * self.of.width


def pieces(variables: Sequence[CopiedVariable], budget: int) -> list[Piece]:
    """Cut variables into pieces, in an order that reads and writes sequentially; `budget` as of `copy`."""
    # The index that orders the elements takes about as many bytes as the elements.
    stretch = max(_LEAST_STRETCH, budget // 128)
    small = [of for of in variables if of.elements <= stretch]
    made = [Piece(of, 0, 0, of.elements) for of in small if not of.step]
    growing = [of for of in small if of.step]
    for record in range(max((of.records for of in growing), default=0)):
        made += [Piece(of, record, 0, of.elements) for of in growing if record < of.records]
    large: dict[Hashable, list[CopiedVariable]] = {}
    for of in variables:
        if of.elements > stretch:
            large.setdefault((of.same, of.elements), []).append(of)
    for group in large.values():
        for first in range(0, group[0].elements, stretch):
            count = min(stretch, group[0].elements - first)
            made += [Piece(of, record, first, count) for of in group for record in range(of.records)]
    return [piece for piece in made if piece.elements]


def share(all_pieces: Sequence[Piece], rank: int, size: int) -> list[Piece]:
    """Select the pieces that one of several ranks copies: consecutive ones, about as many bytes for each rank."""
    ends = np.cumsum([piece.nbytes for piece in all_pieces], dtype=np.int64)
    if not ends.size:
        return []
    owner = np.minimum((ends - 1) * size // max(1, int(ends[-1])), size - 1)
    low, high = np.searchsorted(owner, [rank, rank + 1])
    return list(all_pieces[int(low) : int(high)])


def copy(
    wanted: Sequence[Piece],
    source: Driver,
    target: Driver,
    budget: int,
    note: Callable[[int, str], None],
) -> int:
    """Copy pieces.

    Parameters
    ----------
    wanted : sequence of Piece
    source, target : Driver
    budget : int, bytes of memory that it may take, for buffers and for what is known of maps.
    note : called as ``note(done, name)`` when a piece of a variable is copied, with the bytes of all so far.

    Returns
    -------
    int
        Bytes.

    Raises
    ------
    FormatError
        A subfile has become shorter.
    OSError
    """
    # a quarter each: pending writes, the orders, what is read together, and what the driver takes for that
    writer = _JoiningWriter(target, min(_BLOCK, max(_LEAST_BLOCK, budget // 4)))
    orders, room, done = dict[Hashable, Order](), budget // 4, 0

    def order_for(piece: Piece) -> Order:
        nonlocal room
        of = piece.of
        key = (of.same, of.elements, piece.first, piece.elements)
        order = orders.get(key)
        if order is None:
            order = order_of(of.source, piece.first, piece.elements)
            room -= order.nbytes
            if room < 0:
                orders.clear()
                room = budget // 4 - order.nbytes
            orders[key] = order
        return order

    memory = np.empty(0, np.uint8)
    for batch in _batches(wanted, min(_BLOCK, budget // 4)):
        known = [order_for(piece) for piece in batch]
        ends = np.cumsum(
            [(order.total + order.holes) * piece.of.width for piece, order in zip(batch, known, strict=True)]
        )
        if ends[-1] > memory.size:
            memory = np.empty(int(ends[-1]), np.uint8)
        _read(source, batch, known, before(np.diff(ends, prepend=0)), memory)
        for piece, order, values in zip(batch, known, np.split(memory, ends), strict=False):
            of = piece.of
            offset = of.begin + piece.record * of.step + piece.first * of.width
            _put(order, values, of, writer.room(offset, piece.nbytes))
            done += piece.nbytes
            note(done, of.name)
    writer.flush()
    return done


def _batches(wanted: Sequence[Piece], nbytes: int) -> Iterator[list[Piece]]:
    """Yield consecutive pieces of so many bytes together, or single ones that are larger."""
    batch, size = list[Piece](), 0
    for piece in wanted:
        if batch and size + piece.nbytes > nbytes:
            yield batch
            batch, size = [], 0
        batch.append(piece)
        size += piece.nbytes
    if batch:
        yield batch


def _read(source: Driver, batch: Sequence[Piece], orders: Sequence[Order], places: Int64, memory: Bytes) -> None:
    """Read what is needed of some pieces together: variables that follow each other in a subfile are one range.

    places : int64[n], where the ranges of each piece go in `memory`.

    Raises
    ------
    FormatError
        A subfile ends before one.
    """
    found = [ranges(piece.of.source, order, piece.record) for piece, order in zip(batch, orders, strict=True)]
    offset, length = (np.concatenate([one[i] for one in found]) for i in (0, 1))
    place = np.concatenate([one.place + at for one, at in zip(found, places, strict=True)])
    by_offset = np.argsort(offset, kind="stable")
    together = coalesce(Extents(offset[by_offset], length[by_offset], place[by_offset]))
    if source.read(together, memory) < together.nbytes:
        for piece, one in zip(batch, found, strict=True):
            if source.read(one, memory) < one.nbytes:
                text = "could not be read whole: a subfile ends before its data, or was cut meanwhile"
                raise FormatError(f"{piece.of.name!r} {text}", field=piece.of.name)


def _put(order: Order, memory: Bytes, of: CopiedVariable, out: Bytes) -> None:
    """Put values that were read into the order of the target."""
    if order.taken is None:
        out[:] = memory
        return
    if order.holes:
        memory[-of.width :] = np.frombuffer(of.fill, np.uint8)
    # all indices are valid; mode "raise" would copy the whole output first
    memory.view(f"V{of.width}").take(order.taken, out=out.view(f"V{of.width}"), mode="clip")


class _JoiningWriter:
    """A writer that joins adjacent values into one call."""

    def __init__(self, driver: Driver, room: int) -> None:
        self.driver = driver
        self.memory = np.empty(room, np.uint8)
        self.begin = self.used = 0

    def room(self, offset: int, nbytes: int) -> Bytes:
        """Return the memory for values that are written later; it is to be filled before the next call."""
        gap = offset - self.begin - self.used
        # A gap of less than 8 bytes is the padding of a variable: zeros, so that both sides go in one call.
        if self.used and not (0 <= gap < 8 and self.used + gap + nbytes <= self.memory.nbytes):
            self.flush()
        if not self.used:
            self.begin, gap = offset, 0
            if nbytes > self.memory.nbytes:
                self.memory = np.empty(nbytes, np.uint8)
        self.memory[self.used : self.used + gap] = 0
        self.used += gap + nbytes
        return self.memory[self.used - nbytes : self.used]

    def flush(self) -> None:
        """Write the pending values."""
        if self.used:
            used, self.used = self.used, 0
            self.driver.write(one_extent(self.begin, used), self.memory[:used])
