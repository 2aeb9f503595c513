"""`Hdf5BlobLayout` places the elements of variables in the blobs of HDF5 files.

Knows: the subfiles of a set, which variable has which map. Does not know: data, ranks, how the files are opened and
written (`file_set`).

Rules
-----
1. While a set is written nothing has an offset: posted data stay in the queue, or in its spill file, until the close.
   Then all places are known at once, before the first byte is written.
2. A closed set can only be read.
3. In a PnetCDF blob file the elements of all blobs of a subfile lie in one row of a variable; here each blob has a part
   of its own. So a variable begins at as many addresses as there are blobs in all subfiles. They are computed when the
   variable is first asked for: of 500 variables a program reads a few.
4. Elements that are in no blob lie in the supplement of the variable, or have no place, as in a `BlobPlace`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import ClassVar

import numpy as np

from pnc_vol.blob.hdf5.parts import BlobParts
from pnc_vol.blob.hdf5.subfile import Hdf5Subfile
from pnc_vol.blob.index import ElementIndex, index_of
from pnc_vol.blob.layout import BlobFiles, BlobLayout
from pnc_vol.blob.maps import SubfileMap
from pnc_vol.blob.places import MapLookup, PlaceByMap
from pnc_vol.drivers.base import Driver
from pnc_vol.errors import NotSyncedError
from pnc_vol.extents.model import Extents, Int64, Runs, before, one_extent, spread
from pnc_vol.layout.base import SHIFT, ElementMap, Place

__all__ = ["Addresses", "Hdf5BlobFiles", "Hdf5BlobLayout", "Hdf5BlobPlace", "HeldElsewhere", "blob_starts"]

Addresses = Callable[[], tuple[Int64, Int64]]
"""Gives where each blob's part of a variable begins, as an address, and bytes from one record of it to the next."""


def blob_starts(parts: Sequence[BlobParts], k: int) -> Int64:
    """Compute where each blob of all subfiles begins among the elements of a map: subfile and position in one number.

    Parameters
    ----------
    parts : sequence of BlobParts, of each subfile.
    k : int, the number of the map, from 0.

    Returns
    -------
    int64[blobs of all subfiles], ascending
    """
    none = np.empty(0, np.int64)
    return np.concatenate([none, *(before(one.counts[k]) + (s << SHIFT) for s, one in enumerate(parts))])


class Hdf5BlobPlace(PlaceByMap):
    """Where the elements of one partitioned variable lie: an `ElementMap`.

    Parameters
    ----------
    lookup : MapLookup, of its map; shared by its variables.
    starts : int64[blobs], `blob_starts` of its map; shared by its variables.
    itemsize : int, bytes of an element.
    record : bool, the variable has the record dimension.
    addresses : Addresses, called once at most.
    supplement : Place, optional
        Of the elements that are in no blob, in ascending order.

    Examples
    --------
    >>> from pnc_vol.blob.index import ElementIndex
    >>> owned = Runs(np.array([2, 6]), np.array([2, 3]))
    >>> lookup = MapLookup(10, lambda: ElementIndex(10, []), (owned, 0, 0))
    >>> where = np.array([100, 500]), np.array([24, 16])
    >>> place = Hdf5BlobPlace(lookup, np.array([0, 3]), 8, record=True, addresses=lambda: where)
    >>> found = place.extents(Runs(np.array([2, 16]), np.array([2, 3])))
    >>> found.offset.tolist(), found.length.tolist(), found.place.tolist()
    ([100, 140, 516], [16, 8, 16], [0, 16, 24])
    """

    __slots__ = ("_addresses", "_base", "_starts", "_steps")

    def __init__(
        self,
        lookup: MapLookup,
        starts: Int64,
        itemsize: int,
        *,
        record: bool,
        addresses: Addresses,
        supplement: Place | None = None,
    ) -> None:
        super().__init__(lookup, itemsize, record=record, supplement=supplement)
        self._starts = starts
        self._addresses = addresses
        self._base: Int64 | None = None
        self._steps = starts

    def _begins(self) -> Int64:
        """Return where each part begins."""
        if self._base is None:
            base, steps = self._addresses()
            # elements in no blob have the index -1, which is the last entry
            last = self.supplement or Place(0, self.itemsize, 0, 0)
            self._steps = np.append(steps, last.record_size)
            self._base = np.append(base, last.begin)
        return self._base

    def heads(self, elements: Int64) -> tuple[Int64, Int64]:
        """See `BlobPlace.heads`: the blob of each element, and elements before it in that blob's part."""
        found = self.lookup.locate(Runs(elements, np.ones_like(elements)))
        home = (found.subfile << SHIFT) + found.position
        blob = np.searchsorted(self._starts, home, side="right") - 1
        nowhere = found.subfile < 0
        blob[nowhere] = -1
        return blob, np.where(nowhere, found.position, home - self._starts[blob])

    def parts(self, heads: tuple[Int64, Int64]) -> tuple[Int64, Int64]:
        """Return the blob of each element, -1 for the supplement, and its number in that blob's part."""
        return heads

    def addresses(self, heads: tuple[Int64, Int64], record: int) -> Int64:
        """See `BlobPlace.addresses`."""
        blob, within = heads
        where: Int64 = self._begins()[blob] + within * self.itemsize + record * self._steps[blob]
        return where

    def joined(self, runs: Runs) -> Extents:
        """See `ElementMap.joined`: all that this rank owns is one extent."""
        record, own = self.lookup.own_record(runs), self.lookup.own
        if record < 0 or own is None or (record and not self.inner):
            return self.extents(runs)
        base = self._begins()
        blob = int(np.searchsorted(self._starts, (own[1] << SHIFT) + own[2], side="right")) - 1
        nbytes = int(own[0].length.sum()) * self.itemsize
        return one_extent(int(base[blob] + record * self._steps[blob]), nbytes)

    def extents(self, runs: Runs) -> Extents:
        """See `ElementMap.extents`; elements without a place are left out."""
        base = self._begins()
        start, length = runs
        record = start // self.inner if self.inner else np.zeros(start.size, np.int64)
        found = self.lookup.locate(Runs(start - record * self.inner, length))
        number, place, record = found.length, found.place, record[found.run]
        # Subfile and position in one number, as in `starts`; elements in no blob have negative numbers, in order.
        home = np.where(found.subfile < 0, -1 - found.position, (found.subfile << SHIFT) + found.position)
        blob = np.searchsorted(self._starts, home, side="right") - 1
        last_blob = np.where(home < 0, blob, np.searchsorted(self._starts, home + number - 1, side="right") - 1)
        if bool((blob != last_blob).any()):
            # A piece of several blobs, or with empty ones in between.
            owner, step = spread(last_blob - blob + 1)
            blob = blob[owner] + step
            bounds = np.append(self._starts, np.iinfo(np.int64).max)
            low = np.maximum(home[owner], np.where(blob < 0, home[owner], bounds[blob]))
            high = np.minimum((home + number)[owner], np.where(blob < 0, (home + number)[owner], bounds[blob + 1]))
            place = place[owner] + low - home[owner]
            home, number, record = low, high - low, record[owner]
            there = number > 0
            home, number, record, place, blob = (column[there] for column in (home, number, record, place, blob))
        nowhere = home < 0
        within = np.where(nowhere, -1 - home, home - self._starts[blob]) if self._starts.size else -1 - home
        offset = base[blob] + within * self.itemsize + record * self._steps[blob]
        nbytes, at = number * self.itemsize, place * self.itemsize
        if self.supplement is None and nowhere.any():
            there = ~nowhere
            return Extents(offset[there], nbytes[there], at[there])
        return Extents(offset, nbytes, at)


class HeldElsewhere:
    """A variable of a file that is being written, of which other ranks hold elements until the close: an `ElementMap`.

    Nothing of it is in a file. What this rank posted is laid over what is read; other elements cannot be had.

    Parameters
    ----------
    itemsize, inner : int, see `ElementMap`.
    posted : function, gives what this rank posted: sorted, disjoint runs.
    name : str, of the file and the variable, for messages.
    """

    __slots__ = ("_name", "_posted", "inner", "itemsize")

    def __init__(self, itemsize: int, inner: int, posted: Callable[[], Runs], name: str) -> None:
        self.itemsize, self.inner = itemsize, inner
        self._posted, self._name = posted, name

    def extents(self, runs: Runs) -> Extents:
        """Return no extents, if this rank posted all of the elements.

        Raises
        ------
        NotSyncedError
            Other ranks may have posted some.
        """
        posted = self._posted()
        at = np.searchsorted(posted.start, runs.start, side="right") - 1
        ends = np.append(posted.start + posted.length, 0)[at]
        if bool((runs.start + runs.length > np.where(at < 0, 0, ends)).any()):
            raise NotSyncedError(
                f"{self._name}: with layout='hdf5blob' each rank keeps what it wrote until the file is closed: read "
                "what this rank wrote, or close the file and open it again"
            )
        return Extents(*np.zeros((3, 0), np.int64))

    joined = extents


class Hdf5BlobFiles(BlobFiles):
    """The subfiles of an open set, as far as they are known.

    Attributes
    ----------
    subfiles : list of Hdf5Subfile; empty until the places are known.
    elsewhere : mapping of uid to a function that gives what this rank posted of a variable
        Variables of which other ranks hold elements.
    """

    def __init__(self, index_of: Callable[[int], ElementIndex], path: str) -> None:
        super().__init__(index_of)
        self.path = path
        self.subfiles: list[Hdf5Subfile] = []
        self.elsewhere: Mapping[int, Callable[[], Runs]] = {}
        self._starts: dict[int, Int64] = {}

    def use_subfiles(self, subfiles: Sequence[Hdf5Subfile], uids: tuple[int, ...]) -> None:
        """Take over the subfiles, once all offsets are known."""
        self.subfiles, self.uids = list(subfiles), uids
        first = self.subfiles[0].says
        self.headers = [one.header for one in subfiles]
        self.assigned = dict(zip(uids, first.assigned, strict=True))
        self.dims = [one.dims for one in first.maps]
        self.supplements = {uids[i]: at for i, at in first.supplements.items()}
        self._starts.clear()

    def places(self, itemsizes: Mapping[int, int], inner: Mapping[int, int]) -> dict[int, ElementMap]:
        if not self.subfiles:
            return {
                uid: HeldElsewhere(itemsizes[uid], inner[uid], posted, self.path)
                for uid, posted in self.elsewhere.items()
                if uid in itemsizes
            }
        found: dict[int, ElementMap] = {}
        first = self.subfiles[0]
        for i, uid in enumerate(self.uids):
            itemsize = itemsizes.get(uid)
            if itemsize is None:
                continue
            k, at = self.assigned[uid], first.says.variables[i]
            if not k:
                found[uid] = self._in_first(at, itemsize, inner[uid])
                continue
            rest = self.supplements.get(uid)
            found[uid] = Hdf5BlobPlace(
                self.lookup(k),
                self._starts_of(k),
                itemsize,
                record=inner[uid] > 0,
                addresses=partial(self._addresses, i),
                supplement=None if rest is None else self._in_first(rest, itemsize, inner[uid]),
            )
        return found

    def _in_first(self, variable: int, itemsize: int, inner: int) -> Place:
        """Locate a variable that lies as a whole in the first blob of subfile 0."""
        one = self.subfiles[0]
        step = int(one.parts.record_sizes(variable)[0])
        return Place(int(one.begins(variable)[0]), itemsize, inner, step)

    def _starts_of(self, k: int) -> Int64:
        found = self._starts.get(k)
        if found is None:
            found = self._starts[k] = blob_starts([one.parts for one in self.subfiles], k - 1)
        return found

    def _addresses(self, i: int) -> tuple[Int64, Int64]:
        """Compute where canonical variable `i` begins in each blob of all subfiles, and its record sizes."""
        at = [one.says.variables[i] for one in self.subfiles]
        begins = [one.begins(v) + (s << SHIFT) for s, (one, v) in enumerate(zip(self.subfiles, at, strict=True))]
        steps = [one.parts.record_sizes(v) for one, v in zip(self.subfiles, at, strict=True)]
        return np.concatenate(begins), np.concatenate(steps)

    def read_index(self, driver_of: Callable[[int], Driver], k: int) -> ElementIndex:
        """Read from the subfiles where the elements of a map are.

        driver_of : function of the number of a subfile, gives its driver, as `Hdf5Subfile.over` does.
        """

        def maps() -> Iterator[tuple[int, SubfileMap]]:
            return ((s, one.read_map(driver_of(s), k - 1)) for s, one in enumerate(self.subfiles))

        most = sum(int(one.parts.nreqs[k - 1].sum()) for one in self.subfiles)
        return index_of(self.lookup(k).nelems, maps, f"{self.path}: D{k}", most=most)


class Hdf5BlobLayout(BlobLayout):
    """Blobs in HDF5 files; see the module."""

    name: ClassVar[str] = "hdf5blob"
    keeps_posts = True
