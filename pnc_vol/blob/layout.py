"""`BlobLayout` places the elements that a process owns of a variable in one piece, in one file for each node.

`BlobPlace` turns runs of canonical elements into byte extents at the addresses of subfiles.

Knows: the headers of all subfiles, which variable has which map, where this rank's part of each map lies, the index of
a map. Does not know: data, ranks, how the files are opened and written (`subfile_set`).

Rules
-----
1. Every element has one address, the same on all ranks: a number of a subfile and an offset in it. So queue, plans,
   transports and reads are those of every file. To translate each post and read into those of inner files would be a
   second path for every kind of them, and elements that other ranks write again would be there twice.
2. A variable that has no map is in every subfile; the one in subfile 0 counts.
3. Elements that a map leaves open are in the variable's supplement, in subfile 0; while there is none, they are
   nowhere, and are left out of the extents: a read begins with memory full of fill values.
4. Elements of this rank's own blob are located without the index of all blobs, which is made when other elements are
   asked for: a program that writes the same elements again never reads a map.
5. As of every `ElementMap`, no extent holds bytes of two runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from pnc_vol.blob.index import ElementIndex, Pieces
from pnc_vol.blob.maps import MAP_VARIABLES, MapSizes, SubfileMap, from_content
from pnc_vol.blob.names import subfile_path
from pnc_vol.drivers.base import Driver
from pnc_vol.errors import FormatError
from pnc_vol.extents.merge import coalesced
from pnc_vol.extents.model import Extents, Int64, Runs, before, one_extent
from pnc_vol.format import model
from pnc_vol.format.model import Header, Var
from pnc_vol.layout.base import SHIFT, ElementMap, Layout, Place
from pnc_vol.layout.canonical import CanonicalLayout
from pnc_vol.mapping.tree import Tree

__all__ = [
    "Addresses", "BlobFiles", "BlobLayout", "BlobPlace", "Hdf5BlobLayout", "MapLookup", "NetcdfForm",
    "SubfileLayout", "SubfilesForm", "read_map_variable",
]  # fmt: skip


class SubfilesForm(Protocol):
    """How the subfiles of a set hold the same content: as NetCDF files (`NetcdfForm`), or in HDF5 files
    (`hdf5.subfile.Hdf5Form`).

    headers : list of Header, of each subfile.
    numbers : sequence of int, for each canonical variable the one of subfile 0.
    """

    @property
    def headers(self) -> Sequence[Header]: ...

    @property
    def numbers(self) -> Sequence[int]: ...

    def addresses(self, i: int) -> tuple[Int64, Int64]:
        """Return the address at which canonical variable `i` begins in each part, and its record sizes; see
        `ElementIndex`."""
        ...

    def first(self, variable: int) -> tuple[int, int]:
        """Return where a variable of subfile 0, which lies there as a whole, begins, and its record size."""
        ...

    def maps(self, k: int, dims: tuple[int, ...], file: Callable[[int], Driver]) -> Iterator[tuple[int, SubfileMap]]:
        """Read what each part holds of a map, from 1, of these dimensions, by the drivers of subfiles."""
        ...

    def most_runs(self, k: int) -> int:
        """Return the number of runs that a map has at most."""
        ...

    def over(self, number: int, driver: Driver) -> Driver:
        """Return a driver of big-endian elements over that of a subfile."""
        ...


def read_map_variable(file: Driver, header: Header, var: Var, name: str) -> npt.NDArray[Any]:
    """Read a variable of a map from a subfile, as it is stored there; `name` is what an error begins with.

    Raises
    ------
    FormatError
        The file ends before it.
    """
    shape, dtype = tuple(header.dims[i].size for i in var.dims), model.TYPES[var.type].dtype
    raw = np.zeros(math.prod(shape) * dtype.itemsize, np.uint8)
    if file.read(one_extent(var.begin, raw.nbytes), raw) < raw.nbytes:
        raise FormatError(f"{name}: the file ends before {var.name}", offset=var.begin, field=var.name, value=0)
    return raw.view(dtype).reshape(shape)


class NetcdfForm:
    """Each subfile is a NetCDF file, in which the blobs of a variable lie one behind another: a part is a subfile.

    Parameters
    ----------
    path : str, of the set.
    headers : sequence of Header, that the subfiles have, or will have at the end of the flush that is under way.
    variables : sequence of sequences of int
        For each subfile, the number of the variable of each canonical one, -1 where it has none.
    """

    def __init__(self, path: str, headers: Sequence[Header], variables: Sequence[Sequence[int]]) -> None:
        self.path, self.headers, self.numbers = path, list(headers), variables[0]
        begins = [
            [header.vars[i].begin if i >= 0 else 0 for i in of] for header, of in zip(headers, variables, strict=True)
        ]
        numbers = np.arange(len(headers), dtype=np.int64)
        self._begins = np.array(begins, np.int64).reshape(len(headers), -1) + (numbers << SHIFT)[:, None]
        self._steps = np.array([model.record_size(header) for header in headers], np.int64)

    def addresses(self, i: int) -> tuple[Int64, Int64]:
        return self._begins[:, i], self._steps

    def first(self, variable: int) -> tuple[int, int]:
        return self.headers[0].vars[variable].begin, int(self._steps[0])

    def maps(self, k: int, dims: tuple[int, ...], file: Callable[[int], Driver]) -> Iterator[tuple[int, SubfileMap]]:
        return ((s, self._map(s, header, k, dims, file(s))) for s, header in enumerate(self.headers))

    def most_runs(self, k: int) -> int:
        # a row for each blob, as long as the longest
        at = (k - 1) * len(MAP_VARIABLES) + MAP_VARIABLES.index("offsets")
        return sum(math.prod(header.dims[i].size for i in header.vars[at].dims) for header in self.headers)

    def over(self, number: int, driver: Driver) -> Driver:
        return driver

    def _map(self, number: int, header: Header, k: int, dims: tuple[int, ...], file: Driver) -> SubfileMap:
        """Read the part of a map that one subfile holds."""
        name, columns, begins = f"{subfile_path(self.path, number)}: D{k}", [], []
        first = (k - 1) * len(MAP_VARIABLES)
        for var in header.vars[first : first + len(MAP_VARIABLES)]:
            column = read_map_variable(file, header, var, name)
            columns.append(column)
            begins.append(var.begin + np.arange(len(column)) * (column.nbytes // len(column)))
        nblobs, most = columns[3].shape
        nelems = next(dim.size for dim in header.dims if dim.name == f"D{k}.nelems")
        return from_content(MapSizes(dims, (), nblobs, nelems, most), columns, name, begins)


class BlobFiles:
    """The subfiles of an open set, as all layouts of the set know them.

    Attributes
    ----------
    form : SubfilesForm or None, of the subfiles, with begins; None before the first header is known.
    uids : tuple of int, the dataset of each canonical variable in the headers.
    assigned : dict of uid to int, the number of the map of each of them, from 1; 0: not partitioned.
    supplements : dict of uid to int, the variable of subfile 0 that is the supplement.
    dims : list of tuple of int, of each map the lengths of its dimensions.
    own : dict of int to (Runs, int, int)
        What this rank owns of each map, as `MapLookup` has it.
    nprocs : int, the processes that made the set.
    """

    def __init__(self, index_of: Callable[[int], ElementIndex], nprocs: int) -> None:
        self._index_of, self.nprocs = index_of, nprocs
        self.form: SubfilesForm | None = None
        self.uids: tuple[int, ...] = ()
        self.assigned: dict[int, int] = {}
        self.supplements: dict[int, int] = {}
        self.dims: list[tuple[int, ...]] = []
        self.own: dict[int, tuple[Runs, int, int]] = {}
        self._lookups: dict[int, MapLookup] = {}

    @property
    def headers(self) -> Sequence[Header]:
        """The header of each subfile; empty before the first is known."""
        return () if self.form is None else self.form.headers

    @property
    def known_form(self) -> SubfilesForm:
        """The form, once it is known."""
        assert self.form is not None
        return self.form

    def use(self, form: SubfilesForm, uids: tuple[int, ...], supplements: dict[int, int]) -> None:
        """Take over what the subfiles are now."""
        self.form, self.uids, self.supplements = form, uids, supplements

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
        form = self.form
        for i, uid in enumerate(self.uids):
            itemsize = itemsizes.get(uid)
            if itemsize is None or form is None:
                continue
            n, k = inner[uid], self.assigned[uid]
            if not k:
                found[uid] = self._whole(form.numbers[i], itemsize, n)
                continue
            rest = self.supplements.get(uid)
            found[uid] = BlobPlace(
                self.lookup(k),
                itemsize,
                record=n > 0,
                addresses=partial(form.addresses, i),
                supplement=None if rest is None else self._whole(rest, itemsize, n),
            )
        return found

    def _whole(self, variable: int, itemsize: int, inner: int) -> Place:
        """Return the place of a variable that lies in subfile 0 as a whole."""
        begin, step = self.known_form.first(variable)
        return Place(begin, itemsize, inner, step if inner else 0)


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


class Hdf5BlobLayout(BlobLayout):
    """The same; the subfiles become HDF5 files at the close, see `hdf5`."""

    name: ClassVar[str] = "hdf5blob"


class SubfileLayout(CanonicalLayout):
    """The layout of one subfile: as E3SM-IO's, without gaps in front of variables of 8-byte types."""

    element_align: ClassVar[int] = 4

    def may_hold(self, var: Var) -> bool:
        # if not this subfile, another one of the set, and all of them go on in copies together
        return True


def without_begins(header: Header) -> Header:
    """Return the canonical header of a set, whose begins say nothing."""
    return header.with_vars(tuple(var._replace(begin=0) for var in header.vars))


# ----------------------------------------------------------------------------------------------- runs to extents

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
