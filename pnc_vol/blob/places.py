"""`BlobPlace` turns runs of canonical elements into byte extents at the addresses of subfiles.

Knows: runs, extents, the index of a map, begins. Does not know: headers, data, ranks, drivers.

Rules
-----
1. Elements of this rank's own blob are located without the index of all blobs, which is made when other elements are
   asked for: a program that writes the same elements again never reads a map.
2. Elements that are in no blob lie in the supplement of the variable. Without one they have no place, and are left out
   of the extents: a read begins with memory full of fill values.
3. As of every `ElementMap`, no extent holds bytes of two runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pnc_vol.blob.index import ElementIndex, Pieces
from pnc_vol.extents.merge import coalesced
from pnc_vol.extents.model import Extents, Int64, Runs, before, one_extent
from pnc_vol.layout.base import Place

__all__ = ["Addresses", "BlobPlace", "MapLookup"]

Addresses = Callable[[], tuple[Int64, Int64]]
"""Gives the address at which a variable begins in each part, and the bytes from one record of it to the next there."""

_MOST_KNOWN = 64
"""Lists of runs that are remembered."""


class MapLookup:
    """Finds elements of one map for all variables that have it.

    Parameters
    ----------
    nelems : int, elements of the map's dimensions.
    index : function
        Makes the index of all blobs; it is called once at most.
    own : (Runs, int, int), optional
        The runs of this rank's blob, sorted and disjoint, its part, and its first element's position there.

    Attributes
    ----------
    orders : dict
        What `file.reads.gathered` keeps of it.

    Examples
    --------
    >>> owned = Runs(np.array([2, 6]), np.array([2, 3]))
    >>> lookup = MapLookup(10, lambda: ElementIndex(10, []), (owned, 1, 40))
    >>> lookup.locate(Runs(np.array([7]), np.array([1]))).position.tolist()
    [43]
    """

    __slots__ = ("_before", "_index", "_known", "_make", "_own_index", "nelems", "orders", "own", "own_elements")

    def __init__(
        self, nelems: int, index: Callable[[], ElementIndex], own: tuple[Runs, int, int] | None = None
    ) -> None:
        self.nelems, self.own = nelems, own
        self.own_elements = 0 if own is None else int(own[0].length.sum())
        self._make = index
        self._index: ElementIndex | None = None
        self._own_index: ElementIndex | None = None
        self._before = None if own is None else before(own[0].length)
        self._known: dict[int, tuple[Runs, int]] = {}
        self.orders: dict[Any, Any] = {}

    def own_record(self, runs: Runs) -> int:
        """Return the record in which runs are exactly this rank's elements in the order of its blob; else -1.

        Lists that are used again are compared once: 300 variables of a climate model share one.
        """
        found = self._known.get(id(runs))
        if found is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            # the runs are kept, because `id` of a freed list may become that of another one
            found = self._known[id(runs)] = runs, self._compared(runs)
        return found[1]

    def _compared(self, runs: Runs) -> int:
        if self.own is None or not runs.start.size:
            return -1
        owned = self.own[0]
        record = int(runs.start[0]) // self.nelems
        start = runs.start - record * self.nelems
        if int(start[-1]) >= self.nelems or bool((start[1:] < start[:-1] + runs.length[:-1]).any()):
            return -1
        joined = coalesced(Runs(start, runs.length))
        return record if all(map(np.array_equal, joined, owned)) else -1

    @property
    def index(self) -> ElementIndex:
        """The index of all blobs."""
        if self._index is None:
            self._index = self._make()
        return self._index

    def locate(self, runs: Runs) -> Pieces:
        """See `ElementIndex.locate`."""
        if self._index is None and self.own is not None:
            found = self._in_own(runs)
            if found is not None:
                return found
        return self.index.locate(runs)

    def _in_own(self, runs: Runs) -> Pieces | None:
        """Locate runs that lie entirely in this rank's blob; None if some do not."""
        if self.own is None or self._before is None:
            return None
        owned, part, position = self.own
        if not owned.start.size:
            return None
        times, rest = divmod(runs.start.size, owned.start.size)
        if times and not rest and _repeated(runs.start, owned.start) and _repeated(runs.length, owned.length):
            # the common case: all elements of the blob, in one record or in several
            at = self._before if times == 1 else np.tile(self._before, times)
            total = int(owned.length.sum())
            place = at if times == 1 else at + np.repeat(np.arange(times) * total, owned.start.size)
            n = runs.start.size
            where = np.broadcast_to(np.int64(part), (n,))
            return Pieces(runs.start, runs.length, place, where, at + position, np.arange(n, dtype=np.int64))
        if self._own_index is None:
            self._own_index = ElementIndex.of_blob(self.nelems, owned, part, position)
        found = self._own_index.locate(runs)
        return None if bool((found.part < 0).any()) else found


def _repeated(column: Int64, once: Int64) -> bool:
    return column is once or bool((column.reshape(-1, once.size) == once).all())


class BlobPlace:
    """Where the elements of one partitioned variable lie: an `ElementMap`.

    Parameters
    ----------
    lookup : MapLookup, of its map; shared by its variables.
    itemsize : int, bytes of an element.
    record : bool, the variable has the record dimension.
    addresses : Addresses, of the parts that the index of the map numbers; called once at most.
    supplement : Place, optional
        Of the elements that are in no blob, in ascending order.

    Examples
    --------
    >>> owned = Runs(np.array([2, 6]), np.array([2, 3]))
    >>> lookup = MapLookup(10, lambda: ElementIndex(10, []), (owned, 0, 0))
    >>> place = BlobPlace(lookup, 8, record=True, addresses=lambda: (np.array([100]), np.array([80])))
    >>> place.extents(Runs(np.array([17, 2]), np.array([2, 1]))).offset.tolist()
    [204, 100]
    """

    __slots__ = ("_addresses", "_known", "inner", "itemsize", "lookup", "supplement")

    def __init__(
        self, lookup: MapLookup, itemsize: int, *, record: bool, addresses: Addresses, supplement: Place | None = None
    ) -> None:
        self.lookup, self.itemsize, self.supplement = lookup, itemsize, supplement
        self.inner = lookup.nelems if record else 0
        self._addresses = addresses
        self._known: tuple[Int64, Int64] | None = None

    @property
    def orders(self) -> dict[Any, Any]:
        """What is kept of the map by those that read its variables."""
        return self.lookup.orders

    @property
    def elements(self) -> int:
        """Elements of a record, or of all."""
        return self.lookup.nelems

    def _where(self) -> tuple[Int64, Int64]:
        """Return the address at which each part begins, and its record size; computed when first asked for."""
        if self._known is None:
            # Elements in no blob have the part -1, which indexes the last entry: that of the supplement.
            last = self.supplement or Place(0, self.itemsize, 0, 0)
            begins, steps = self._addresses()
            n = begins.size
            known = np.empty((2, n + 1), np.int64)
            known[0, :n], known[1, :n], known[:, n] = begins, steps, (last.begin, last.record_size)
            self._known = known[0], known[1]
        return self._known

    def heads(self, elements: Int64) -> Pieces:
        """Return where elements of a record are, for `addresses` of any variable of the map."""
        return self.lookup.locate(Runs(elements, np.ones_like(elements)))

    def parts(self, heads: Pieces) -> tuple[Int64, Int64]:
        """Return the part that has each element, -1 for the supplement, and its number in that part."""
        return heads.part, heads.position

    def addresses(self, heads: Pieces, record: int) -> Int64:
        """Return where these elements of a record begin."""
        begins, steps = self._where()
        where: Int64 = begins[heads.part] + heads.position * self.itemsize
        if record:
            where += record * steps[heads.part]
        return where

    def joined(self, runs: Runs) -> Extents:
        """Do as `extents` does, but what lies behind one another in file and memory may be one extent; see
        `ElementMap`."""
        record = self.lookup.own_record(runs)
        own = self.lookup.own
        if record < 0 or own is None or (record and not self.inner):
            return self.extents(runs)
        begins, steps = self._where()
        _, part, position = own
        offset = int(begins[part]) + position * self.itemsize + record * int(steps[part])
        return one_extent(offset, self.lookup.own_elements * self.itemsize)

    def extents(self, runs: Runs) -> Extents:
        """See `ElementMap.extents`; elements without a place are left out."""
        start, length = runs
        record: Int64 | None = None
        if self.inner:
            record = start // self.inner
            if record.any():
                start = start - record * self.inner
            else:
                record = None
        found = self.lookup.locate(Runs(start, length))
        begins, steps = self._where()
        offset = begins[found.part] + found.position * self.itemsize
        if record is not None:
            offset += record[found.run] * steps[found.part]
        nbytes, place = found.length * self.itemsize, found.place * self.itemsize
        if self.supplement is None:
            missing = found.part < 0
            if missing.any():
                there = ~missing
                return Extents(offset[there], nbytes[there], place[there])
        return Extents(offset, nbytes, place)
