"""The files of E3SM-IO's cases have these variables, under these maps; both can be made up.

From the lists that describe the C program's own files (names, attributes and order are theirs), or, where those are not
at hand, from their counts: as many variables of each kind, with names of their own. Credit for the cases: Northwestern
University and Argonne National Laboratory, E3SM-IO.

The maps that are published with E3SM-IO are read by `convert.map_files`. Those that are made here are of the same kind:
a cubed sphere whose columns are dealt to processes twice (in patches, and scattered for the physics), an ocean of
patches of whole columns, land in clumps on a latitude-longitude grid.

Knows: variables, cells, processes. Does not know: libraries, arrays in memory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from pnc_vol.convert.map_files import Map
from pnc_vol.extents.model import Runs
from pnc_vol.system import REAL
from pnc_vol.system.full_io import read_whole

FILES = {"F": ("f_h0", "f_h1"), "G": ("g_hist",), "I": ("i_h0", "i_h1")}
ONE_RECORD = ("f_h0", "i_h1")
TYPES = {"double": "f8", "float": "f4", "int": "i4", "char": "S1"}


@dataclass(frozen=True)
class Variable:
    """One variable: dims by name, `number` of its map from 1 on or 0."""

    name: str
    dtype: Any
    dims: tuple[str, ...]
    number: int
    attrs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CaseFile:
    """One file: lengths of dimensions by name (None: records), attributes, variables in order."""

    name: str
    dims: Mapping[str, int | None]
    attrs: Mapping[str, Any]
    variables: list[Variable]

    @property
    def one_record(self) -> bool:
        return self.name in ONE_RECORD

    def shape(self, variable: Variable, records: int, lengths: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape of a variable in a file of `records` records."""
        return tuple(lengths.get(dim, self.dims[dim] or records) for dim in variable.dims)

    def is_record(self, variable: Variable) -> bool:
        return bool(variable.dims) and self.dims[variable.dims[0]] is None


def files_of(case: str, which: int) -> list[str]:
    """Return the names of the files of a case: h0, h1 or both (-1)."""
    names = FILES[case]
    return list(names) if which < 0 or len(names) == 1 else [names[which]]


def _value(stored: Any) -> Any:
    if isinstance(stored, dict):
        values = np.array(stored["v"], TYPES[stored["t"]])
        return values[0] if values.size == 1 else values
    return stored


def _attributes(stored: Any, kind: str) -> dict[str, Any]:
    found = {key: _value(value) for key, value in stored}
    if "_FillValue" in found and kind in TYPES:
        # always of the variable's type, which other attributes of that value are not
        found["_FillValue"] = np.dtype(TYPES[kind]).type(found["_FillValue"])
    return found


def listed(path: str, *, floats: bool) -> CaseFile:
    """Return a file from its list.

    Parameters
    ----------
    floats : bool
        Whether what the C program makes float under ``-j`` is float.
    """
    listing = json.loads(read_whole(REAL, path))
    narrow = set(listing["float_with_j"]) if floats else set()
    variables = []
    for name, kind, dims, number, attrs in listing["vars"]:
        stored = "float" if name in narrow else kind
        variables.append(Variable(name, TYPES[stored], tuple(dims), number, _attributes(attrs, stored)))
    name = path.rpartition("/")[2].removesuffix(".json")
    attrs = {key: _value(value) for key, value in listing["attrs"]}
    return CaseFile(name, dict(listing["dims"]), attrs, variables)


# --------------------------------------------------------------------------------------------------- from counts

# how many variables, their type, their dimensions, and the number of their map
_F = """
5 int - 0; 2 double ncol 2; 1 double ncol 1; 3 double lev 0; 3 double ilev 0; 1 double - 0; 2 char time,chars 0;
5 int time 0; 7 double time 0; 1 double time,nbnd 0;
"""
_I_FIXED = """
3 double lat,lon 1; 2 int lat,lon 1; 2 double levgrnd 0; 1 double levlak 0; 1 double lon 0; 1 double lat 0;
"""
_I_RECORDS = """
2 char time,string_length 0; 5 int time 0; 1 double time 0; 1 double time,hist_interval 0; 460 double time,lat,lon 1;
56 double time,levdcmp,lat,lon 2; 13 double time,levgrnd,lat,lon 2; 2 double time,levlak,lat,lon 3;
1 double time,ltype,lat,lon 4; 1 double time,natpft,lat,lon 5;
"""
COUNTS = {
    "f_h0": f"{_F} 321 double time,ncol 2; 63 double time,lev,ncol 3;",
    "f_h1": f"{_F} 20 double time,ncol 2; 1 double time,lev,ncol 3;",
    "g_hist": """
2 int nEdges 2; 1 int nCells 1; 1 double nCells 1; 1 int nCells,nVertLevels 3; 1 int nEdges,nVertLevels 4;
1 int nVertices,nVertLevels 5; 4 double nVertLevels 0; 1 char time,string_length 0; 6 double time 0;
4 double time,nCells 1; 24 double time,nCells,nVertLevels 3; 1 double time,nEdges,nVertLevels 4;
1 double time,nVertices,nVertLevels 5; 4 double time,nCells,nVertLevelsP1 6;
""",
    "i_h0": f"{_I_FIXED} 6 double levgrnd,lat,lon 2; 2 double levlak,lat,lon 3; {_I_RECORDS}",
    "i_h1": _I_FIXED + _I_RECORDS,
}

_SMALL_DIMS = {"time": None, "nbnd": 2, "chars": 8, "string_length": 64, "hist_interval": 2}


def counted(name: str, lengths: Mapping[str, int], *, floats: bool) -> CaseFile:
    """Return a file with as many variables of each kind as the C program's, on dimensions of these lengths."""
    case = name[0].upper()
    variables: list[Variable] = []
    for count, kind, along, number in (kinds.split() for kinds in COUNTS[name].rstrip("; \n").split(";")):
        narrow = floats and kind == "double" and case != "G"
        dims = () if along == "-" else tuple(along.split(","))
        for _ in range(int(count)):
            at = len(variables)
            attrs = {"long_name": f"variable {at} of {name}", "units": "1"}
            variables.append(Variable(f"v{at:03d}", TYPES["float" if narrow else kind], dims, int(number), attrs))
    used = {dim for variable in variables for dim in variable.dims}
    known: dict[str, int | None] = {dim: n for dim, n in {**_SMALL_DIMS, **lengths}.items() if dim in used}
    return CaseFile(name, known, {"title": f"like E3SM-IO's {name}"}, variables)


# --------------------------------------------------------------------------------------------------- maps made up

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Dealt:
    """Who owns what of one map.

    dims : tuple of int, lengths of the dimensions, without time.
    owners : int64[n], the process of each run of a level, -1 is nobody; a run has `length` elements.
    levels : int, times that these runs are there, at distances of a level.
    length : int, elements of a run.
    """

    dims: tuple[int, ...]
    owners: Ints
    levels: int = 1
    length: int = 1

    @cached_property
    def _order(self) -> Ints:
        """The runs of a level, one process's behind the other's."""
        return np.argsort(self.owners, kind="stable")

    @cached_property
    def _first(self) -> Ints:
        """Where each process's begin in this order."""
        most = int(self.owners.max()) + 1
        return np.searchsorted(self.owners[self._order], np.arange(most + 1)).astype(np.int64)

    def of(self, process: int) -> Runs:
        """Return the runs of a process, level by level."""
        first, last = self._first[process : process + 2] if process + 1 < len(self._first) else (0, 0)
        starts = self._order[first:last] * self.length
        size = self.owners.size * self.length
        found = (starts[None] + np.arange(self.levels)[:, None] * size).ravel()
        return Runs(found, np.full(len(found), self.length))

    def map(self, processes: int) -> Map:
        """Return the map as a file has it, for the first of the processes."""
        runs = [self.of(p) for p in range(processes)]
        nreqs = np.array([len(one.start) for one in runs], np.int64)
        columns = zip(*runs, strict=True)
        return Map(self.dims, nreqs, nreqs, *(np.concatenate(column).astype(np.int64) for column in columns))


def invented(case: str, size: int, processes: int) -> tuple[list[Map], dict[str, int]]:
    """Return maps of a case at any size, and the lengths of the dimensions that they are about.

    Parameters
    ----------
    case, size, processes
        See `dealt_out`.
    """
    dealt, lengths = dealt_out(case, size, processes)
    maps = [one.map(processes) for one in dealt]
    if case == "F":
        # patches are stored as runs of several columns
        runs = [maps[0].of_rank(p, processes) for p in range(processes)]
        nreqs = np.array([len(one.start) for one in runs], np.int64)
        maps[0] = Map(maps[0].dims, nreqs, nreqs, *(np.concatenate(column) for column in zip(*runs, strict=True)))
    return maps, lengths


def dealt_out(case: str, size: int, processes: int, *, depth: int = 100) -> tuple[list[Dealt], dict[str, int]]:
    """Return who owns what of the maps of a case, and the lengths of the dimensions that they are about.

    Parameters
    ----------
    case : {"F", "G", "I"}
    size : int
        F: elements along an edge of the cube (``6 size^2 9 + 2`` columns). G: ``10 size^2 + 2`` cells. I: latitudes.
    processes : int
        That the cells are dealt to.
    depth : int
        G: levels of the ocean.
    """
    if case == "G":
        return _ocean(size, processes, depth)
    return (_atmosphere if case == "F" else _land)(size, processes)


def _atmosphere(size: int, processes: int) -> tuple[list[Dealt], dict[str, int]]:
    columns, levels = 54 * size**2 + 2, 72
    # dynamics: neighbours together, along the faces of the cube, in pieces as long as an element's row
    patches = np.arange(columns) * processes // columns
    swapped = (np.arange(columns) // max(1, 3 * size)) % 7 == 3
    patches = np.where(swapped, np.roll(patches, columns // processes), patches)
    # physics: scattered, so that day and night cost all the same; what is left over goes to few processes, in pairs: of
    # 777,602 columns one of 21,600 processes has 38, and 184,644 runs of all variables, as the largest of the real map
    number, even = np.arange(columns), columns // processes * processes
    scattered = np.where(number < even, number % processes, (number - even) // 2)
    scattered = np.random.default_rng(0).permutation(scattered)
    maps = [Dealt((columns,), patches), Dealt((columns,), scattered), Dealt((levels, columns), scattered, levels)]
    return maps, {"ncol": columns, "lev": levels, "ilev": levels + 1}


def _ocean(size: int, processes: int, depth: int) -> tuple[list[Dealt], dict[str, int]]:
    cells = 10 * size**2 + 2
    counts = {"nCells": cells, "nEdges": 3 * (cells - 2) + 1, "nVertices": 2 * (cells - 2) + 1}
    levels = {"nVertLevels": depth, "nVertLevelsP1": depth + 1}

    def patches(n: int) -> Ints:
        """Return owners of `n` points of a mesh whose numbering runs across the patches."""
        width = max(1, round(n**0.5))
        across = max(1, round(processes**0.5))
        x, y = np.arange(n) % width, np.arange(n) // width
        tile = (x * across // width) + across * (y * across // (n // width + 1))
        owners: Ints = np.minimum(tile, processes - 1).astype(np.int64)
        return owners

    def whole(name: str, depth: int) -> Dealt:
        return Dealt((counts[name], depth), patches(counts[name]), length=depth)

    maps = [
        Dealt((counts["nCells"],), patches(counts["nCells"])),
        Dealt((counts["nEdges"],), patches(counts["nEdges"])),
        *(whole(name, levels["nVertLevels"]) for name in counts),
        whole("nCells", levels["nVertLevelsP1"]),
    ]
    return maps, counts | levels


def _land(size: int, processes: int) -> tuple[list[Dealt], dict[str, int]]:
    lat, lon = size, 3 * size // 2
    y, x = np.meshgrid(np.linspace(-1.5, 1.5, lat), np.linspace(0, 2 * np.pi, lon), indexing="ij")
    height = np.cos(2 * x + 1) * np.cos(y) + np.sin(3 * x - y) * np.cos(2 * y) + np.sin(4 * y)
    land = np.flatnonzero((height > np.quantile(height, 0.59)).ravel())
    owners = np.full(lat * lon, -1, np.int64)
    owners[land] = (np.arange(len(land)) // 6) % processes
    depths = {"levgrnd": 15, "levlak": 10, "ltype": 9, "natpft": 17}
    maps = [Dealt((lat, lon), owners)]
    maps += [Dealt((depth, lat, lon), owners, depth) for depth in depths.values()]
    return maps, {"lat": lat, "lon": lon, "levdcmp": 15, **depths}
