"""Variables whose elements lie in another order in the file are read in few long ranges, and put in order in memory.

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
from pnc_vol.file.reads.execute import read_numbers
from pnc_vol.file.session import Session
from pnc_vol.layout.base import ElementMap, Place
from pnc_vol.mapping.tree import DatasetNode

__all__ = ["Order", "order_of", "pattern_of", "ranges", "read_gathered"]

Array = npt.NDArray[Any]

_STRETCH = 1 << 18
_KEPT = 1 << 20
"""Elements of a stretch, and of all orders that are kept of a map; each takes 8 bytes."""
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
        """Return elements of a record, in the form that `addresses` takes."""
        ...

    def parts(self, heads: Any) -> tuple[Int64, Int64]:
        """Return the part that has each of these elements, whichever the variable, and its number in that part.

        What is next to each other in a part is so in each variable of the map, in each record, as long as it has it.
        """
        ...

    def addresses(self, heads: Any, record: int) -> Int64:
        """Return where these elements of a record begin."""
        ...


def order_of(source: ElementMap, first: int, count: int) -> Order:
    """Return how `count` elements of a record from `first` on are made of what is read."""
    width = source.itemsize
    found = source.extents(Runs(np.array([first]), np.array([count])))
    length, place = found.length // width, found.place // width
    if isinstance(source, Place):
        part, within = np.zeros_like(length), (found.offset - source.begin) // width
    else:
        part, within = source.parts(source.heads(first + place))  # type: ignore[attr-defined]
    if bool(((part[1:] < part[:-1]) | ((part[1:] == part[:-1]) & (within[1:] < within[:-1]))).any()):
        by_place = np.lexsort((within, part))
        part, within, length, place = part[by_place], within[by_place], length[by_place], place[by_place]
    # Two parts may adjoin for this variable, in this record and today; the order is of all that have the map.
    apart = (part[1:] != part[:-1]) | (within[1:] != within[:-1] + length[:-1])
    starts = np.flatnonzero(np.concatenate(([True], apart)))[: length.size]
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
    """Return what is to be read of a record, one range behind another in memory."""
    width = source.itemsize
    if isinstance(source, Place):
        offset = source.begin + order.heads * width + record * source.record_size
    else:
        offset = source.addresses(order.heads, record)  # type: ignore[attr-defined]
    return Extents(offset, order.length * width, order.place * width)


def pattern_of(node: DatasetNode, width: int) -> bytes:
    """Return the bytes of an element that is nowhere."""
    return (node.fillvalue or b"").ljust(width, b"\0")[:width]


def read_gathered(session: Session, node: DatasetNode, start: int, nelems: int, shape: tuple[int, ...]) -> Array | None:
    """Return `nelems` numbers of a variable that has a map; None if it is something else, or the file does not hold
    them all.

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
    out, done = np.empty(nelems, element.dtype), 0
    while done < nelems:
        record, first = divmod(start + done, elements)
        count = min(elements - first, nelems - done, _STRETCH)
        if not _read_stretch(session, node, source, record, first, out[done : done + count]):
            return None
        done += count
    return out.reshape(shape)


def _read_stretch(session: Session, node: DatasetNode, source: _Scattered, record: int, first: int, out: Array) -> bool:
    order, file_dtype = _known_order(source, first, out.size), node.element.file_dtype
    memory = out if order.taken is None else np.empty(order.total + order.holes, out.dtype)
    if not read_numbers(session.disk.driver, file_dtype, ranges(source, order, record), memory[: order.total]):
        return False
    if order.taken is None:
        return True
    if order.holes:
        memory[-1] = np.frombuffer(pattern_of(node, source.itemsize), file_dtype)[0]
    # all are within: "raise" would make a copy first
    memory.take(order.taken, out=out, mode="clip")
    return True


def _known_order(source: _Scattered, first: int, count: int) -> Order:
    """Return the order of a stretch; it is kept if it is of a whole record or of a stretch of one."""
    key, kept = (source.supplement is None, first, count), source.orders
    found = kept.get(key)
    if found is None:
        found = order_of(source, first, count)
        if first % _STRETCH == 0 and count == min(_STRETCH, source.elements - first):
            if sum(known[2] for known in kept) + count > _KEPT:
                kept.clear()
            kept[key] = found
    return found
