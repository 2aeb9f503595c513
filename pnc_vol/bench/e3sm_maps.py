"""Who writes which cells: decomposition maps of the kind of E3SM-IO's cases, made up at any size.

The maps that Northwestern University and Argonne National Laboratory publish with E3SM-IO are read by
`convert.map_files`. Those that are made here are of the same kind: a cubed sphere whose columns are dealt to processes
twice (in patches, and scattered for the physics), an ocean of patches of whole columns, land in clumps on a
latitude-longitude grid.

Knows: cells and processes. Does not know: variables.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from pnc_vol.convert.map_files import Map
from pnc_vol.extents.model import Runs

__all__ = ["Dealt", "dealt_out", "invented"]

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
        """The runs of a process, level by level."""
        first, last = self._first[process : process + 2] if process + 1 < len(self._first) else (0, 0)
        starts = self._order[first:last] * self.length
        size = self.owners.size * self.length
        found = (starts[None] + np.arange(self.levels)[:, None] * size).ravel()
        return Runs(found, np.full(len(found), self.length))

    def map(self, processes: int) -> Map:
        """As a file has it, for the first of the processes."""
        runs = [self.of(p) for p in range(processes)]
        nreqs = np.array([len(one.start) for one in runs], np.int64)
        columns = zip(*runs, strict=True)
        return Map(self.dims, nreqs, nreqs, *(np.concatenate(column).astype(np.int64) for column in columns))


def invented(case: str, size: int, processes: int, only: int | None = None) -> tuple[list[Map], dict[str, int]]:
    """Maps of a case at any size, and the lengths of the dimensions that they are about.

    Parameters
    ----------
    case, size, processes
        See `dealt_out`.
    only : int, optional
        Make the lists of the first so many processes alone: those of all are more than one machine's memory where
        there are thousands.
    """
    dealt, lengths = dealt_out(case, size, processes)
    maps = [one.map(only or processes) for one in dealt]
    if case == "F":
        # patches are stored as runs of several columns
        runs = [maps[0].of_rank(p, only or processes) for p in range(only or processes)]
        nreqs = np.array([len(one.start) for one in runs], np.int64)
        maps[0] = Map(maps[0].dims, nreqs, nreqs, *(np.concatenate(column) for column in zip(*runs, strict=True)))
    return maps, lengths


def dealt_out(case: str, size: int, processes: int, *, depth: int = 100) -> tuple[list[Dealt], dict[str, int]]:
    """Who owns what of the maps of a case, and the lengths of the dimensions that they are about.

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
        """Owners of `n` points of a mesh whose numbering runs across the patches."""
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
