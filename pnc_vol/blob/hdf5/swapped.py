"""`SwappedDriver` swaps the bytes of elements: they are big-endian above it, and little-endian in the file.

Knows: drivers, in which bytes of the file elements of which size lie. Does not know: variables, HDF5.

Rules
-----
1. The byte ``i`` of an element of ``n`` bytes is the byte ``n - 1 - i`` of the same element in the file. So a part of
   an element is one piece of the file, too, in reverse order, and no call has to fetch the rest of the element.
2. It is for reading: who writes HDF5 blobs (`subfile.wrap`) swaps whole variables.
3. Bytes outside of all regions are passed on as they are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pnc_vol.drivers.base import Capabilities, Driver, Memory, Wrapper
from pnc_vol.extents.model import Extents, Int64, distinct, spread

__all__ = ["Regions", "SwappedDriver"]

_MANY = 64
"""Units of one piece from which on it is turned round by itself."""


class Regions(NamedTuple):
    """Where elements lie in a file: sorted, disjoint, each of whole elements of one size.

    first, end : int64[n], bytes from the start of the file.
    itemsize : int64[n], bytes of an element: 1, 2, 4 or 8.
    """

    first: Int64
    end: Int64
    itemsize: Int64


class _Units(NamedTuple):
    """Units to be swapped: `number` units of `size` bytes, one behind another, from `place` on."""

    place: Int64
    size: Int64
    number: Int64


class SwappedDriver(Wrapper):
    """A wrapper that reads elements of some regions, which are stored in the other byte order.

    Parameters
    ----------
    inner : Driver, of the file.
    regions : Regions

    Examples
    --------
    >>> from pnc_vol.drivers.memory import MemoryDriver
    >>> from pnc_vol.extents.model import one_extent
    >>> below = MemoryDriver(bytes([1, 2, 3, 4, 5]))
    >>> driver = SwappedDriver(below, Regions(*np.array([[1], [5], [2]])))
    >>> found = np.zeros(3, np.uint8)
    >>> driver.read(one_extent(0, 3), found), found.tolist()
    (3, [1, 3, 2])
    """

    name = "swapped"

    def __init__(self, inner: Driver, regions: Regions) -> None:
        super().__init__(inner)
        there = regions.end > regions.first
        first, end, itemsize = (column[there] for column in regions)
        # A gap between regions becomes a region of single bytes, so that every offset from 0 on lies in one.
        self._bounds = np.column_stack((first, end)).ravel()
        self._itemsize = np.column_stack((itemsize, np.ones_like(itemsize))).ravel()
        if bool((self._bounds[1:] < self._bounds[:-1]).any()):
            raise ValueError(f"{self.path}: regions of elements overlap or are not sorted")

    @classmethod
    def declares(cls, below: Capabilities) -> Capabilities:
        return below._replace(mapping=False)

    def read(self, extents: Extents, memory: Memory, *, collective: bool = False) -> int:
        below, units = self._below(extents)
        got = self.inner.read(below, memory, collective=collective)
        if got < extents.nbytes and units.place.size:
            units = _within(below, units, self.inner.size())
        _turn(memory, units)
        return got

    def describe(self) -> str:
        # a user cannot name it in ``driver=``, since only the layout knows where elements lie
        return self.inner.describe()

    def _below(self, extents: Extents) -> tuple[Extents, _Units]:
        """Return the pieces of the file that hold these, those with `_Units` first, in their order."""
        offset, length, place = extents
        if not length.all():
            kept = length > 0
            offset, length, place = offset[kept], length[kept], place[kept]
        first = np.searchsorted(self._bounds, offset, side="right") - 1
        last = np.searchsorted(self._bounds, offset + length, side="left") - 1
        if bool((first != last).any()):
            owner, region = spread(last - first + 1)
            region += first[owner]
            # region -1 is what lies before the first region, which no begin cuts
            low = np.maximum(offset[owner], np.where(region >= 0, self._bounds[region], 0))
            high = np.append(self._bounds, np.iinfo(np.int64).max)[region + 1]
            end = np.minimum((offset + length)[owner], high)
            offset, length, place, first = low, end - low, place[owner] + low - offset[owner], region
        # bytes before the first region and behind the last one
        size = np.where(first >= 0, self._itemsize[first], 1) if self._itemsize.size else np.ones_like(first)
        plain = size == 1
        if plain.all():
            return Extents(offset, length, place), _Units(*np.zeros((3, 0), np.int64))
        turned = np.flatnonzero(~plain)
        below, units = _pieces(offset[turned], length[turned], place[turned], size[turned], self._bounds[first[turned]])
        rest = (offset[plain], length[plain], place[plain])
        return Extents(*(np.concatenate(both) for both in zip(below, rest, strict=True))), units


def _pieces(offset: Int64, length: Int64, place: Int64, size: Int64, region: Int64) -> tuple[Extents, _Units]:
    """Return where pieces of one region each lie in the file; whole elements apart from parts of the first and the
    last."""
    into = (offset - region) % size
    head = np.where(into > 0, np.minimum(size - into, length), 0)
    tail = (length - head) % size
    body = length - head - tail
    if not (head.any() or tail.any()):
        return Extents(offset, length, place), _Units(place, size, body // size)
    behind = head + body
    columns = (
        (offset - into + size - into - head, head, place, head, np.ones_like(head)),
        (offset + head, body, place + head, size, body // size),
        (offset + behind + size - tail, tail, place + behind, tail, np.ones_like(tail)),
    )
    off, nbytes, to, unit, count = (np.concatenate(column) for column in zip(*columns, strict=True))
    kept = nbytes > 0
    off, nbytes, to, unit, count = (column[kept] for column in (off, nbytes, to, unit, count))
    return Extents(off, nbytes, to), _Units(to, unit, count)


def _within(below: Extents, units: _Units, nbytes: int) -> _Units:
    """Return the units that lie in a file of `nbytes` bytes as a whole."""
    offset = below.offset[: units.place.size]
    return units._replace(number=np.clip((nbytes - offset) // units.size, 0, units.number))


def _turn(memory: Memory, units: _Units) -> None:
    """Reverse the bytes of each unit, in place."""
    place, size, count = units
    if not place.size:
        return
    large = (count >= _MANY) & ((size & (size - 1)) == 0)
    for i in np.flatnonzero(large).tolist():
        first, unit = int(place[i]), int(size[i])
        values: npt.NDArray[Any] = memory[first : first + unit * int(count[i])].view(f"u{unit}")
        values.byteswap(inplace=True)
    small = np.flatnonzero(~large & (size > 1))
    for unit in distinct(size[small]).tolist():
        these = small[size[small] == unit]
        owner, step = spread(count[these])
        at = place[these][owner] + step * unit
        windows = np.ndarray((memory.nbytes - unit + 1, unit), np.uint8, memory.data, strides=(1, 1))
        windows[at] = windows[at][:, ::-1]
