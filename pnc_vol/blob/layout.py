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
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from pnc_vol.blob.index import ElementIndex
from pnc_vol.blob.maps import MAP_VARIABLES, MapSizes, SubfileMap, from_content
from pnc_vol.blob.names import subfile_path
from pnc_vol.blob.places import BlobPlace, MapLookup
from pnc_vol.drivers.base import Driver
from pnc_vol.errors import FormatError
from pnc_vol.extents.model import Int64, Runs, one_extent
from pnc_vol.format import model
from pnc_vol.format.model import Header, Var
from pnc_vol.layout.base import SHIFT, ElementMap, Layout, Place
from pnc_vol.layout.canonical import CanonicalLayout
from pnc_vol.mapping.tree import Tree

__all__ = [
    "BlobFiles", "BlobLayout", "Hdf5BlobLayout", "NetcdfForm", "SubfileLayout", "SubfilesForm", "read_map_variable",
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
