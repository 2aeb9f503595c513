"""`Hdf5BlobLayout` places the elements of variables in the blobs of HDF5 files.

Knows: the subfiles of a set, which variable has which map. Does not know: data, ranks, how the files are opened and
written (`file_set`).

Rules
-----
1. While a set is written nothing has an offset: posted data stay in the queue, or in its spill file, until the close.
   Then all places are known at once, before the first byte is written.
2. A closed set can only be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import ClassVar

import numpy as np

from pnc_vol.blob.hdf5.places import Hdf5BlobPlace, HeldElsewhere, blob_starts
from pnc_vol.blob.hdf5.subfile import Hdf5Subfile
from pnc_vol.blob.index import ElementIndex, index_of
from pnc_vol.blob.layout import BlobFiles, BlobLayout
from pnc_vol.blob.maps import SubfileMap
from pnc_vol.drivers.base import Driver
from pnc_vol.extents.model import Int64, Runs
from pnc_vol.layout.base import SHIFT, ElementMap, Place

__all__ = ["Hdf5BlobFiles", "Hdf5BlobLayout"]


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
