"""`BlobLayout` places the elements that a process owns of a variable in one piece, in one file for each node.

Knows: the headers of all subfiles, which variable has which map, where this rank's part of each map lies. Does not
know: data, ranks, how the files are opened and written (`subfile_set`).

Rules
-----
1. Every element has one address, the same on all ranks: a number of a subfile and an offset in it. So queue, plans,
   transports and reads are those of every file. To translate each post and read into those of inner files would be a
   second path for every kind of them, and elements that other ranks write again would be there twice.
2. A variable that has no map is in every subfile; the one in subfile 0 counts.
3. Elements that a map leaves open are in the variable's supplement, in subfile 0; while there is none, they are
   nowhere, and read as the fill value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np

from pnc_vol.blob.index import ElementIndex
from pnc_vol.blob.maps import MAP_VARIABLES
from pnc_vol.blob.names import subfile_path
from pnc_vol.blob.places import BlobPlace, MapLookup
from pnc_vol.extents.model import Int64, Runs
from pnc_vol.format import model
from pnc_vol.format.model import Header, Var
from pnc_vol.layout.base import ElementMap, Layout, Place
from pnc_vol.layout.canonical import CanonicalLayout
from pnc_vol.mapping.tree import Tree

__all__ = ["BlobFiles", "BlobLayout", "SubfileLayout"]


class BlobFiles:
    """The subfiles of an open set, as all layouts of the set know them.

    Attributes
    ----------
    headers : list of Header, of each subfile, with begins; empty before the first is known.
    uids : tuple of int, the dataset of each canonical variable in `headers`.
    assigned : dict of uid to int, the number of the map of each of them, from 1; 0: not partitioned.
    supplements : dict of uid to int, the variable of subfile 0 that is the supplement.
    dims : list of tuple of int, of each map the lengths of its dimensions.
    own : dict of int to (Runs, int, int)
        What this rank owns of each map, as `MapLookup` has it.
    """

    def __init__(self, index_of: Callable[[int], ElementIndex]) -> None:
        self._index_of = index_of
        self.headers: list[Header] = []
        self.uids: tuple[int, ...] = ()
        self.assigned: dict[int, int] = {}
        self.supplements: dict[int, int] = {}
        self.dims: list[tuple[int, ...]] = []
        self.own: dict[int, tuple[Runs, int, int]] = {}
        self._lookups: dict[int, MapLookup] = {}
        self._begins: Int64 = np.empty((0, 0), np.int64)
        self._strides: Int64 = np.empty(0, np.int64)

    def use(
        self,
        headers: Sequence[Header],
        uids: tuple[int, ...],
        supplements: dict[int, int],
        variables: Sequence[Sequence[int]] = (),
    ) -> None:
        """Take over the headers that the subfiles have now, or will have at the end of the flush that is under way.

        variables : for each subfile, the number of the variable of each of `uids`, -1 where it has none; by default
            they stand behind those of the maps.
        """
        self.headers, self.uids, self.supplements = list(headers), uids, supplements
        first = len(MAP_VARIABLES) * len(self.dims)
        at = variables or [range(first, first + len(uids))] * len(headers)
        begins = [[header.vars[i].begin if i >= 0 else 0 for i in of] for header, of in zip(headers, at, strict=True)]
        self._begins = np.array(begins, np.int64).reshape(len(headers), len(uids))
        self._strides = np.array([model.record_size(header) for header in headers], np.int64)

    def forget_maps(self) -> None:
        """The subfiles may have other maps."""
        self._lookups.clear()

    def lookup(self, k: int) -> MapLookup:
        """Return what finds the elements of a map."""
        found = self._lookups.get(k)
        if found is None:
            nelems = math.prod(self.dims[k - 1])
            found = self._lookups[k] = MapLookup(nelems, lambda: self._index_of(k), self.own.get(k))
        return found

    def places(self, itemsizes: Mapping[int, int], inner: Mapping[int, int]) -> dict[int, ElementMap]:
        """Return where the elements of each canonical variable of the subfiles are, by uid.

        itemsizes, inner : mappings by uid, see `ElementMap`.
        """
        found: dict[int, ElementMap] = {}
        none = np.zeros_like(self._strides)
        for i, uid in enumerate(self.uids):
            itemsize = itemsizes.get(uid)
            if itemsize is None:
                continue
            n, k = inner[uid], self.assigned[uid]
            strides = self._strides if n else none
            first = int(strides[0])
            if not k:
                found[uid] = Place(int(self._begins[0, i]), itemsize, n, first)
                continue
            rest = self.supplements.get(uid)
            extra = None if rest is None else Place(self.headers[0].vars[rest].begin, itemsize, n, first)
            found[uid] = BlobPlace(
                self.lookup(k),
                itemsize,
                record=n > 0,
                begins=self._begins[:, i],
                record_sizes=strides,
                supplement=extra,
            )
        return found


class BlobLayout(Layout):
    """Each process's part of each variable in one piece; see the module.

    Attributes
    ----------
    files : BlobFiles
    """

    name: ClassVar[str] = "blob"
    # the session of each subfile moves its own data when a header grows
    several_ranks = several_files = relocates = True
    sets = "blob"

    files: BlobFiles

    def anew(self) -> BlobLayout:
        made = super().anew()
        made.files = self.files
        return made

    @classmethod
    def header_path(cls, path: str) -> str:
        return subfile_path(path, 0)

    def with_begins(self, new: Header, uids: tuple[int, ...], tree: Tree, *, reserve: int, least: int) -> Header:
        # The real begins are in the headers of the subfiles. These constant ones are only compared, by a log.
        return without_begins(new)

    def made_maps(self) -> dict[int, ElementMap]:
        widths = dict(zip(self.uids, self.itemsizes, strict=True))
        nbytes = model.inner_sizes(self.header)
        inner = {
            uid: max(1, n // widths[uid]) if uid in self.record_uids else 0
            for uid, n in zip(self.uids, nbytes, strict=True)
        }
        return self.files.places(widths, inner)

    def forget_places(self) -> None:
        """The subfiles have other headers, or another map."""
        self._maps = None
        self.facts.clear()


class SubfileLayout(CanonicalLayout):
    """The layout of one subfile: as E3SM-IO's, without gaps in front of variables of 8-byte types."""

    element_align: ClassVar[int] = 4

    def may_hold(self, var: Var) -> bool:
        # if not this subfile, another one of the set, and all of them go on in copies together
        return True


def without_begins(header: Header) -> Header:
    """Return the canonical header of a set, whose begins say nothing."""
    return header.with_vars(tuple(var._replace(begin=0) for var in header.vars))
