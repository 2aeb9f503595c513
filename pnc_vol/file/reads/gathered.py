"""Reads of variables whose elements lie in another order in the file: a few long ranges, put in order in memory.

Knows: elements of records, where they lie, runs. Does not know: users' objects, who reads the ranges, subfiles.

Rules
-----
1. Which ranges hold a stretch of a record, and where in them each element is, follows from the map alone: an `Order` is
   found once for all variables of a map and all their records.
2. A range is as long as the elements lie together, whichever blobs they are of; none is read twice.
3. Elements that are nowhere get the variable's fill value.
4. Of each map at most 8 MiB of orders are kept; what is larger is read stretch by stretch.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pnc_vol.extents.model import Extents, Int64, Runs, before, spread
from pnc_vol.file.session import Session
from pnc_vol.layout.places import ElementMap, Place
from pnc_vol.layout.subfiles import OFFSET
from pnc_vol.mapping.tree import DatasetNode

__all__ = ["Order", "order_of", "pattern_of", "put", "ranges", "read_gathered"]

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

_STRETCH = 1 << 18
_KEPT = 1 << 20
"""Elements of a stretch, and of all orders that are kept of a map; each takes 8 bytes."""
_LOOKED = 16 << 10
"""Bytes of a range from which on it is looked at in the file."""
_FEW = 16
"""Ranges up to which each is read by a call of its own, which takes fewer steps."""
_LEAST = 16
"""Elements from which on a read is done here: fewer are found as fast one by one."""


class Order(NamedTuple):
    """How a stretch of a record is made of what is read.

    heads : what `_Scattered.heads` makes of the first element of each range.
    length, place : int64[n], elements of each range, and of all before it.
    total : int, elements of all ranges.
    taken : intp[elements] or None
        Where each element is among those of all ranges; `total`: nowhere. None: all are there, in the same order.
    holes : bool, some are nowhere.
    """

    heads: Any
    length: Int64
    place: Int64
    total: int
    taken: npt.NDArray[np.intp] | None
    holes: bool

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it takes."""
        return 8 * self.length.nbytes + (0 if self.taken is None else self.taken.nbytes)


class _Scattered(ElementMap, Protocol):
    """An `ElementMap` of a map that other variables have, too.

    orders : dict, what is kept of the map.
    elements : int, of a record, or of all.
    """

    @property
    def orders(self) -> dict[tuple[bool, int, int], Order]: ...

    @property
    def elements(self) -> int: ...

    @property
    def supplement(self) -> Place | None: ...

    def heads(self, elements: Int64) -> Any:
        """Elements of a record, in the form that `addresses` takes."""
        ...

    def addresses(self, heads: Any, record: int) -> Int64:
        """Where these elements of a record begin."""
        ...


def order_of(source: ElementMap, first: int, count: int) -> Order:
    """How `count` elements of a record from `first` on are made of what is read."""
    width = source.itemsize
    found = source.extents(Runs(np.array([first]), np.array([count])))
    offset, length, place = found.offset, found.length // width, found.place // width
    if bool((offset[1:] < offset[:-1]).any()):
        by_offset = np.argsort(offset, kind="stable")
        offset, length, place = offset[by_offset], length[by_offset], place[by_offset]
    starts = np.flatnonzero(np.concatenate(([True], offset[1:] != offset[:-1] + length[:-1] * width)))[: offset.size]
    at = before(length)
    total = int(length.sum())
    counts = np.diff(np.append(at[starts], total))
    taken: npt.NDArray[np.intp] | None = None
    if total < count or bool((place != at).any()):
        taken = np.full(count, total, np.intp)
        run, step = spread(length)
        taken[place[run] + step] = np.arange(total)
    elements = first + place[starts]
    heads = elements if isinstance(source, Place) else source.heads(elements)  # type: ignore[attr-defined]
    return Order(heads, counts, before(counts), total, taken, total < count)


def ranges(source: ElementMap, order: Order, record: int) -> Extents:
    """What is to be read of a record, one range behind another in memory."""
    width = source.itemsize
    if isinstance(source, Place):
        offset = source.begin + order.heads * width + record * source.record_size
    else:
        offset = source.addresses(order.heads, record)  # type: ignore[attr-defined]
    return Extents(offset, order.length * width, order.place * width)


def put(order: Order, memory: Bytes, width: int, pattern: bytes, out: Bytes) -> None:
    """Put what was read into its order.

    memory : uint8, of all ranges, and of one element more if some are nowhere.
    pattern : bytes, of an element that is nowhere.
    """
    if order.taken is None:
        out[:] = memory
        return
    if order.holes:
        memory[-width:] = np.frombuffer(pattern, np.uint8)
    # all are within: "raise" would make a copy first
    memory.view(f"V{width}").take(order.taken, out=out.view(f"V{width}"), mode="clip")


def pattern_of(node: DatasetNode, width: int) -> bytes:
    """The bytes of an element that is nowhere."""
    return (node.fillvalue or b"").ljust(width, b"\0")[:width]


def read_gathered(session: Session, node: DatasetNode, start: int, nelems: int, shape: tuple[int, ...]) -> Array | None:
    """`nelems` numbers of a variable that has a map; None if it is something else, or the file does not hold them all.

    Raises
    ------
    OSError
        The file could not be read.
    """
    element, layout = node.element, session.disk.layout
    source: Any = layout.stored_map(node)
    if nelems < _LEAST or element.kind != "number" or getattr(source, "addresses", None) is None:
        return None
    width, elements = source.itemsize, source.elements
    if width != element.itemsize or (source.inner and start + nelems > layout.elements_stored(node, source)):
        return None
    out = np.empty(nelems, element.dtype)
    memory, done = out.view(np.uint8), 0
    while done < nelems:
        record, first = divmod(start + done, elements)
        count = min(elements - first, nelems - done, _STRETCH)
        if not _read_stretch(session, node, source, record, first, memory[done * width : (done + count) * width]):
            return None
        done += count
    if width > 1 and element.dtype != element.file_dtype:
        out.byteswap(inplace=True)
    return out.reshape(shape)


def _read_stretch(session: Session, node: DatasetNode, source: _Scattered, record: int, first: int, out: Bytes) -> bool:
    width, driver = source.itemsize, session.disk.driver
    order = _known_order(source, first, out.nbytes // width)
    nbytes, memory = order.total * width, out
    few = order.length.size <= _FEW
    if order.taken is not None:
        if order.length.size == 1 and nbytes >= _LOOKED and not order.holes:
            # the file's own bytes, if they can be had: that saves a copy
            offset = int(source.addresses(order.heads, record)[0])

            def use(file: Bytes) -> None:
                at = offset & OFFSET
                put(order, file[at : at + nbytes], width, b"", out)

            if driver.look(offset + nbytes, nbytes, use):
                return True
        memory = np.empty((order.total + order.holes) * width, np.uint8)
    wanted = ranges(source, order, record)
    if few:
        got = 0
        for offset, n, at in zip(*(column.tolist() for column in wanted), strict=True):
            got += driver.read_one(memory[at : at + n], offset)
    else:
        got = driver.read(wanted, memory)
    if got < nbytes:
        return False
    if order.taken is not None:
        put(order, memory, width, pattern_of(node, width), out)
    return True


def _known_order(source: _Scattered, first: int, count: int) -> Order:
    """The order of a stretch; it is kept if it is of a whole record or of a stretch of one."""
    key, kept = (source.supplement is None, first, count), source.orders
    found = kept.get(key)
    if found is None:
        found = order_of(source, first, count)
        if first % _STRETCH == 0 and count == min(_STRETCH, source.elements - first):
            if sum(known[2] for known in kept) + count > _KEPT:
                kept.clear()
            kept[key] = found
    return found
