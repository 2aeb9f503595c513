"""`copy` copies the values of a set of subfiles to the places that a file of the canonical layout has for them.

Knows: variables as elements and bytes, drivers, the memory that may be used. Does not know: sets of subfiles, headers,
ranks, files' names.

Rules
-----
1. A copy works on one stretch of one record of a variable at a time. The elements of a stretch are a few ranges of the
   blobs, since a process's runs are in ascending order; they are read one by one and put into their order in memory.
   To read each blob once and write its runs, as the C tool does, makes many short writes to one file. So no rank needs
   data of another one, and none waits for one that failed.
2. Which ranges and which order these are depends on the map alone: it is found once for all variables of a map.
3. Maps that are larger than a stretch are copied stretch by stretch, each with all variables; all others in the order
   of the target, so that it is written from front to back.
4. Elements that are nowhere get the variable's fill value.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.base import Driver
from pnc_vol.errors import FormatError
from pnc_vol.extents.model import Extents, one_extent
from pnc_vol.file.reads.gathered import Order, order_of, ranges
from pnc_vol.layout.base import OFFSET, ElementMap

__all__ = ["CopiedVariable", "Piece", "copy", "pieces", "share"]

Bytes = npt.NDArray[np.uint8]

_LEAST_STRETCH = 1 << 12
_BLOCK, _LEAST_BLOCK = 1 << 20, 64 << 10
"""Bytes that are read or written at a time: what is read is still in a processor's cache when it is put in order."""
_LOOKED = 64 << 10
"""Bytes of a range from which on it is looked at in the file."""
_RANGES = 256
"""More ranges than this are read in one call."""


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
    note : called as ``note(bytes, name)`` when so many more bytes of a variable are copied.

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
    # a quarter each: blocks read ahead, pending writes, the orders, and the current stretch
    reader = _ReadAhead(source, budget // 4)
    writer = _JoiningWriter(target, min(_BLOCK, max(_LEAST_BLOCK, budget // 4)))
    orders, room, done = dict[Hashable, Order](), budget // 4, 0
    for piece in wanted:
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
        offset = of.begin + piece.record * of.step + piece.first * of.width
        _gather(piece, order, reader, writer.room(offset, piece.nbytes))
        done += piece.nbytes
        note(piece.nbytes, of.name)
    writer.flush()
    return done


def _gather(piece: Piece, order: Order, reader: _ReadAhead, out: Bytes) -> None:
    """Read the values of a piece, in the order of the target."""
    of, width = piece.of, piece.of.width
    wanted = ranges(of.source, order, piece.record)
    if order.taken is None:
        memory = out
        reader.read(wanted, memory, of.name)
        return
    if order.length.size == 1 and not order.holes:
        offset, nbytes = int(wanted.offset[0]), out.nbytes

        def use(file: Bytes) -> None:
            at = offset & OFFSET
            _put(order, file[at : at + nbytes], width, of.fill, out)

        if reader.look(offset, nbytes, use):
            return
        memory = reader.view(offset, nbytes, of.name)
    else:
        memory = np.empty((order.total + order.holes) * width, np.uint8)
        reader.read(wanted, memory, of.name)
    _put(order, memory, width, of.fill, out)


def _put(order: Order, memory: Bytes, width: int, pattern: bytes, out: Bytes) -> None:
    """Put values that were read into the order of the target.

    memory : uint8, of all ranges, and of one element more if some are nowhere.
    pattern : bytes, of an element that is nowhere.
    """
    assert order.taken is not None
    if order.holes:
        memory[-width:] = np.frombuffer(pattern, np.uint8)
    # all indices are valid; mode "raise" would copy the whole output first
    memory.view(f"V{width}").take(order.taken, out=out.view(f"V{width}"), mode="clip")


class _ReadAhead:
    """A reader that reads small neighbouring ranges in large blocks, which are kept while there is room."""

    def __init__(self, driver: Driver, room: int) -> None:
        self.driver, self.most = driver, max(1, room // _LEAST_BLOCK)
        self.step, self.room = _LEAST_BLOCK, room
        self.maps: bool | None = None
        """Whether the file's own bytes can be had; None before that was tried."""
        self.blocks: dict[int, Bytes] = {}

    def read(self, extents: Extents, memory: Bytes, name: str) -> None:
        """Read ranges into memory.

        Raises
        ------
        FormatError
            A file ends before one.
        """
        offset, length, place = extents
        if not offset.size:
            return
        if offset.size > min(_RANGES, self.most // 2) or int(length.max()) >= _BLOCK:
            self.complete(self.driver.read(extents, memory), extents.nbytes, name)
            return
        self.sized(int(offset.size))
        for low, n, at in zip(offset.tolist(), length.tolist(), place.tolist(), strict=True):
            self.range(low, memory[at : at + n], name)

    def look(self, offset: int, nbytes: int, use: Callable[[Bytes], None]) -> bool:
        """Let `use` copy a range of some length from the file's own bytes, if they can be had."""
        if nbytes < _LOOKED or self.maps is False:
            return False
        seen = self.driver.look(offset + nbytes, nbytes, use)
        if seen and not self.maps:
            # long ranges are now copied from the file's own bytes, so small blocks are enough for the short ones
            self.blocks.clear()
            self.step, self.most = _LEAST_BLOCK, max(1, self.room // _LEAST_BLOCK)
        self.maps = seen
        return seen

    def view(self, offset: int, nbytes: int, name: str) -> Bytes:
        """Return one range, not to be changed: of a block that is kept if it lies in one."""
        self.sized(1)
        number, skip = divmod(offset, self.step)
        if skip + nbytes <= self.step:
            found = self.block(number)[skip : skip + nbytes]
            self.complete(found.nbytes, nbytes, name)
            return found
        memory = np.empty(nbytes, np.uint8)
        self.read(one_extent(offset, nbytes), memory, name)
        return memory

    def sized(self, count: int) -> None:
        """Choose the size of a block, if that was not done: as many as ranges are read by turns, and some more."""
        if self.step == _LEAST_BLOCK and not self.maps:
            fit = self.room // (4 * count)
            self.step = max(_LEAST_BLOCK, min(_BLOCK, 1 << max(0, fit.bit_length() - 1)))
            self.most = max(1, self.room // self.step)

    def range(self, offset: int, memory: Bytes, name: str) -> None:
        """Read one range."""
        done = 0
        while done < memory.nbytes:
            number, skip = divmod(offset + done, self.step)
            block = self.block(number)
            n = min(block.nbytes - skip, memory.nbytes - done)
            self.complete(max(0, n), 1, name)
            memory[done : done + n] = block[skip : skip + n]
            done += n

    def block(self, number: int) -> Bytes:
        """Return a block of a file; shorter at its end."""
        found = self.blocks.pop(number, None)
        if found is None:
            while len(self.blocks) >= self.most:
                # least recently used first
                del self.blocks[next(iter(self.blocks))]
            found = np.empty(self.step, np.uint8)
            found = found[: self.driver.read(one_extent(number * self.step, self.step), found)]
        self.blocks[number] = found
        return found

    @staticmethod
    def complete(got: int, nbytes: int, name: str) -> None:
        if got < nbytes:
            raise FormatError(
                f"{name!r} could not be read whole: a subfile ends before its data, or was cut meanwhile", field=name
            )


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
